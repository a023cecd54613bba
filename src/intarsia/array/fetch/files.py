"""Fetching from files of this machine: opened and read in the thread that decodes them."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from zarr.storage import LocalStore

from intarsia.errors import ChunkDecodeError

if TYPE_CHECKING:
    from intarsia.array.fetch.fetcher import Encoded, Fetcher, Pending, Spans
    from intarsia.array.source import EngineSource
    from intarsia.array.table import Ints


CAN_READ_FILES = hasattr(os, "preadv")
"""Whether the system reads from a place in a file into memory; Windows does not."""


class FileSpan:
    """Bytes of an open file, not read yet; good until the next one is asked for."""

    __slots__ = ("_file", "_offset", "nbytes")

    def __init__(self, file: int, offset: int, nbytes: int) -> None:
        self._file, self._offset, self.nbytes = file, offset, nbytes

    def read(self) -> bytes | bytearray:
        """The bytes."""
        content = os.pread(self._file, self.nbytes, self._offset)
        if len(content) == self.nbytes:
            return content
        whole = bytearray(self.nbytes)
        whole[: len(content)] = content
        self._read_rest(memoryview(whole), len(content))
        return whole

    def read_into(self, destination: memoryview) -> None:
        """The bytes, put right where they belong."""
        count = os.preadv(self._file, [destination], self._offset)
        if count != self.nbytes:
            self._read_rest(destination, count)

    def _read_rest(self, destination: memoryview, count: int) -> None:
        """Go on reading: the system gives no more than 2 GiB at a time, and may give less at any time."""
        while count < self.nbytes:
            more = os.preadv(self._file, [destination[count:]], self._offset + count)
            if not more:
                raise ChunkDecodeError(f"its file is cut off: {count} bytes are there of {self.nbytes}")
            count += more


class _Later:
    """Opens and reads files when it is iterated over."""

    def __init__(self, root: bytes, spans: Sequence[Spans]) -> None:
        self._root, self._spans = root, spans

    def __iter__(self) -> Generator[Encoded | None]:
        for source, blob, start, nbytes in self._spans:
            starts = [0] * blob.size if start is None else start.tolist()
            lengths = [None] * blob.size if nbytes is None else nbytes.tolist()
            for key, first, length in zip(source.keys(blob), starts, lengths, strict=True):
                try:
                    file = os.open(self._root + os.fsencode(key), os.O_RDONLY)
                except (FileNotFoundError, NotADirectoryError):
                    yield None
                    continue
                try:
                    size = os.fstat(file).st_size
                    offset = first if first >= 0 else max(0, size + first)
                    yield FileSpan(file, offset, size - offset if length is None else length)
                finally:
                    os.close(file)

    def cancel(self) -> None:
        """Nothing runs."""


class LocalFiles:
    """A zarr store of plain files."""

    in_threads, lasting = True, False
    name = "local files"

    def __init__(self, store: LocalStore) -> None:
        self._root = os.fsencode(store.root) + b"/"

    def sizes(self, sources: Sequence[tuple[EngineSource, Ints]]) -> list[Ints | None]:
        return [None] * len(sources)

    def for_member(self, source: EngineSource) -> Fetcher:
        return self

    def begin(self, spans: Sequence[Spans]) -> Pending:
        return _Later(self._root, spans)
