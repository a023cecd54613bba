"""Fetching encoded chunks from files on this machine, opened and read in the thread that decodes them."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
from zarr.storage import LocalStore

from intarsia.engine.fetch.byte_ranges import FILES, joined_in_order
from intarsia.engine.fetch.read_ahead import Disk, FilesInTurn
from intarsia.engine.fetch.shard_files import inner_chunks
from intarsia.engine.fetch.store import Cost, Encoded, Pending, Plain, Spans, cost_of, cut_out
from intarsia.engine.fetch.symlinks import Folders

SMALL_PIECE = 128 << 10
"""In a local file, finding a piece this small takes longer than copying it once more."""


class _FilesLater:
    """Opens and reads files during iteration."""

    arrival = None

    def __init__(self, folders: Folders, disk: Disk, spans: Sequence[Spans]) -> None:
        self._folders, self._disk, self._spans = folders, disk, spans
        if disk.is_cold:
            for item in spans:
                if item.within is None and not _is_worth_joining(item):
                    self._files(item).begin()

    def __iter__(self) -> Generator[Encoded | None]:
        for item in self._spans:
            if item.within is not None:
                yield from inner_chunks(self._folders, item)
            elif _is_worth_joining(item):
                yield from self._joined_pieces(item)
            else:
                yield from self._files(item)

    def _files(self, item: Spans) -> FilesInTurn:
        source, blob, start, nbytes, *_ = item
        keys, folders = source.keys(blob), self._folders
        starts = [0] * blob.size if start is None else start.tolist()
        lengths = [None] * blob.size if nbytes is None else nbytes.tolist()
        return FilesInTurn(
            lambda i: folders.open(keys[i]), starts, lengths, source.decoder, self._disk, _not_stored
        )

    def _joined_pieces(self, item: Spans) -> Iterator[bytes | None]:
        """Small pieces of files: each file is opened once, and neighbours are read in one go."""
        ranges, cuts = joined_in_order(item, 0, FILES.most_gap)
        assert ranges.start is not None
        assert ranges.nbytes is not None
        columns = ranges.blob.tolist(), ranges.start.tolist(), ranges.nbytes.tolist()
        contents: list[bytes | None] = []
        for blob, group in groupby(zip(*columns, strict=True), key=itemgetter(0)):
            (key,) = item.source.keys(np.array([blob]))
            try:
                file = self._folders.open(key)
            except (FileNotFoundError, NotADirectoryError):
                contents += [None for _ in group]
                continue
            try:
                contents += [os.pread(file, length, first) for _, first, length in group]
            finally:
                os.close(file)
        for request, first, last in cuts:
            content = contents[request]
            yield None if content is None else cut_out(content, first, last)

    def cancel(self) -> None:
        """Nothing is running."""


def _not_stored(_: int, error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _is_worth_joining(item: Spans) -> bool:
    """Whether the pieces are so small that finding them takes longer than copying them once more."""
    start, nbytes = item.start, item.nbytes
    if start is None or nbytes is None or start.size <= 1:
        return False
    return bool((start >= 0).all() and nbytes.max() <= SMALL_PIECE)


def _joined_in_files(item: Spans) -> Spans:
    """The ranges of files that are read in one go."""
    return joined_in_order(item, 0, FILES.most_gap)[0] if _is_worth_joining(item) else item


class LocalFiles(Plain):
    """A zarr store of plain files."""

    in_threads = True
    looks_into_shards = True
    name = "local files"

    def __init__(self, store: LocalStore) -> None:
        self._folders, self._disk = Folders(os.fspath(store.root)), Disk()

    def cost(self, spans: Sequence[Spans]) -> Cost:
        return cost_of([_joined_in_files(item) for item in spans])

    def begin(self, spans: Sequence[Spans]) -> Pending:
        return _FilesLater(self._folders, self._disk, spans)
