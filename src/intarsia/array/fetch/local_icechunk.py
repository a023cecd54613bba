"""Fetching from an Icechunk repository on the local file system: its chunk files, read directly.

Only for read-only sessions, and only for chunks that are files of the repository or inlined in its
references; whatever else there is goes through Icechunk. So does a file that cannot be opened: Icechunk says
what is wrong.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from intarsia._icechunk import session_bytes
from intarsia.array.fetch.fetcher import Spans
from intarsia.array.fetch.files import CAN_READ_FILES, FileSpan
from intarsia.array.fetch.icechunk_batch import IcechunkBatch
from intarsia.array.fetch.references import NATIVE
from intarsia.array.fetch.store import requests_of, start
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from icechunk import IcechunkStore

    from intarsia.array.fetch.fetcher import Encoded, Fetcher, Pending
    from intarsia.array.source import Source
    from intarsia.array.table import Ints

__all__ = ["LocalIcechunk", "repository_path"]

PROVIDER = b"local_file_system_object_store_provider"
PATH_FIELD = b"\xa4path"  # the key "path" in MessagePack, which sessions are pickled as


def repository_path(pickled: bytes) -> Path | None:
    """Where a pickled session's repository lies on this machine; None if it does not, or it is not clear.

    >>> repository_path(b"...s3_object_store_provider...") is None
    True
    """
    found = set()
    position = pickled.find(PROVIDER)
    while position >= 0:
        after = position + len(PROVIDER)
        text = _text(pickled, after + len(PATH_FIELD)) if pickled.startswith(PATH_FIELD, after) else None
        found.add(text)
        position = pickled.find(PROVIDER, after)
    if len(found) != 1:
        return None
    path = found.pop()
    return None if path is None else Path(path)


def _text(packed: bytes, at: int) -> str | None:
    """The MessagePack string at a position."""
    for mark, size in ((0xD9, 1), (0xDA, 2), (0xDB, 4)):
        if packed[at : at + 1] == bytes([mark]):
            length = int.from_bytes(packed[at + 1 : at + 1 + size], "big")
            begin = at + 1 + size
            break
    else:
        if at >= len(packed) or packed[at] & 0xE0 != 0xA0:
            return None
        length, begin = packed[at] & 0x1F, at + 1
    raw = packed[begin : begin + length]
    try:
        return raw.decode() if len(raw) == length else None
    except UnicodeDecodeError:
        return None


class _Files:
    """Opens and reads chunk files when it is iterated over."""

    def __init__(self, folder: bytes, batch: IcechunkBatch, spans: Sequence[Spans]) -> None:
        self._folder, self._batch, self._spans = folder, batch, spans

    def __iter__(self) -> Generator[Encoded | None]:
        folder = self._folder
        for spans in self._spans:
            table = spans.source.references
            assert table is not None
            rows = table.rows(spans.blob)
            offset, nbytes = table.offset[rows], table.nbytes[rows]
            if spans.start is not None and spans.nbytes is not None:
                offset = offset + np.where(spans.start < 0, nbytes + spans.start, spans.start)
                nbytes = spans.nbytes
            columns = [column.tolist() for column in (table.file[rows], offset, nbytes)]
            native = (table.kind[rows] == NATIVE).tolist()
            for i, (file, first, length) in enumerate(zip(*columns, strict=True)):
                if not native[i]:
                    yield memoryview(table.inlined[int(rows[i])])[first : first + length]
                    continue
                try:
                    opened = os.open(folder + file, os.O_RDONLY)
                except OSError:
                    yield _by_icechunk(self._batch, spans, i)
                    continue
                try:
                    yield FileSpan(opened, first, length)
                finally:
                    os.close(opened)

    def cancel(self) -> None:
        """Nothing runs."""


def _by_icechunk(batch: IcechunkBatch, spans: Spans, i: int) -> bytes:
    """Ask Icechunk for what could not be read from a file: it answers with the bytes, or says why not."""
    check_store(batch.store)
    source, blob, first, nbytes = spans
    one = slice(i, i + 1)
    if first is None or nbytes is None:
        wanted = Spans(source, blob[one])
    else:
        wanted = Spans(source, blob[one], first[one], nbytes[one])
    ((key, byte_range),) = requests_of([wanted])
    found = start(batch.get_one(key, byte_range)).result()
    if found is None:
        raise FileNotFoundError(f"{key} is referred to, but not there")
    return bytes(found)


class LocalIcechunk:
    """A read-only session of a repository on the local file system."""

    in_threads, lasting = True, True

    def __init__(self, store: IcechunkStore, repository: Path) -> None:
        self._batch = IcechunkBatch(store, read_only=True, listed_at_a_time=1)  # threads would cost more
        self._folder = os.fsencode(repository / "chunks") + b"/"
        self.name = "Icechunk, chunk files"

    @classmethod
    def of(cls, store: IcechunkStore) -> LocalIcechunk | None:
        """The fetcher for a store whose repository lies here; None where it does not."""
        if not CAN_READ_FILES:
            return None
        repository = repository_path(session_bytes(store))
        if repository is None or not (repository / "chunks").is_dir():
            return None
        return cls(store, repository)

    def sizes(self, sources: Sequence[tuple[Source, Ints]]) -> list[Ints | None]:
        return self._batch.sizes(sources)

    def for_member(self, source: Source) -> Fetcher:
        table = source.references
        return self if table is not None and table.is_here else self._batch

    def begin(self, spans: Sequence[Spans]) -> Pending:
        return _Files(self._folder, self._batch, spans)
