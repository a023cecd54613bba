"""Fetching encoded chunks from files of this machine, opened and read in the thread that decodes them."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from zarr.storage import LocalStore

from intarsia.array.fetch.joining import FILES, joined_in_order
from intarsia.array.fetch.links import Folders
from intarsia.array.fetch.shard_files import inner_chunks
from intarsia.array.fetch.store import (
    Cost,
    Encoded,
    Pending,
    Plain,
    Spans,
    cost_of,
    cut_out,
    one_span,
)

if TYPE_CHECKING:
    from intarsia.array.table import Ints

SMALL_PIECE = 128 << 10
"""Of a file here: finding it takes longer than copying it once more."""


class _FilesLater:
    """Opens and reads files when it is iterated over."""

    arrival = None

    def __init__(self, folders: Folders, spans: Sequence[Spans]) -> None:
        self._folders, self._spans = folders, spans

    def __iter__(self) -> Generator[Encoded | None]:
        for item in self._spans:
            source, blob, start, nbytes, _, within = item
            if within is not None:
                yield from inner_chunks(self._folders, item)
                continue
            compressed = not source.decoder.is_raw
            if nbytes is not None and start is not None and _is_worth_joining(start, nbytes):
                yield from self._joined_pieces(item)
                continue
            starts = [0] * blob.size if start is None else start.tolist()
            lengths = [None] * blob.size if nbytes is None else nbytes.tolist()
            for key, first, length in zip(source.keys(blob), starts, lengths, strict=True):
                try:
                    file = self._folders.open(key)
                except (FileNotFoundError, NotADirectoryError):
                    yield None
                    continue
                yield from one_span(file, first, length, compressed)

    def _joined_pieces(self, item: Spans) -> Iterator[bytes | None]:
        """Small pieces of files: each file opened once, neighbours read in one go."""
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
        """Nothing runs."""


def _is_worth_joining(start: Ints, nbytes: Ints) -> bool:
    """Whether pieces of files are so small that finding them takes longer than copying them once more."""
    return bool(start.size > 1 and (start >= 0).all() and nbytes.max() <= SMALL_PIECE)


def _joined_in_files(item: Spans) -> Spans:
    """What is read of files in one go."""
    if item.start is None or item.nbytes is None or not _is_worth_joining(item.start, item.nbytes):
        return item
    return joined_in_order(item, 0, FILES.most_gap)[0]


class LocalFiles(Plain):
    """A zarr store of plain files."""

    in_threads = True
    looks_into_shards = True
    name = "local files"

    def __init__(self, store: LocalStore) -> None:
        self._folders = Folders(os.fspath(store.root))

    def cost(self, spans: Sequence[Spans]) -> Cost:
        return cost_of([_joined_in_files(item) for item in spans])

    def begin(self, spans: Sequence[Spans]) -> Pending:
        return _FilesLater(self._folders, spans)
