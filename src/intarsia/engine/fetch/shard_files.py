"""Inner chunks of shards that are files on this machine: one open file serves the index and the chunks.

A shard that is replaced during a read is read as it was, its chunks by its own index. Indexes are kept for as
long as the file is the same, which the system tells for the open file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from intarsia.codecs.shard_index import ABSENT, LONGEST, points_outside
from intarsia.engine.fetch.byte_ranges import FILES, joined_in_order
from intarsia.engine.fetch.store import Encoded, FileSpan, Spans, cut_out, file_bytes

if TYPE_CHECKING:
    from intarsia.engine.fetch.symlinks import Folders
    from intarsia.engine.inner_chunks import Shards
    from intarsia.manifest.region_table import Ints

SMALL_CHUNK = 16 << 10
"""Stored bytes: asking the system for a chunk this small takes longer than copying it once more."""

SETTLED_NS = 3_000_000_000
"""A file that was changed less than this ago may change again without a new time: file systems count in steps
of up to two seconds. Its index is not kept."""

_NO_ENTRY = int(ABSENT)


class FileStamp(NamedTuple):
    """What the system says about an open file; if it says the same again, the file has not changed."""

    device: int
    inode: int
    nbytes: int
    modified: int
    """When the file was written to, which anybody may set."""
    changed: int
    """When the file, or its name, was changed, which nobody may set."""

    @classmethod
    def of(cls, file: int) -> FileStamp:
        """The stamp of an open file."""
        told = os.fstat(file)
        return cls(told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns)

    @property
    def is_settled(self) -> bool:
        """Whether any change from now on will show."""
        return time.time_ns() - max(self.modified, self.changed) > SETTLED_NS


def index_of(file: int, shards: Shards, blob: int) -> Any:
    """The offset and length of every inner chunk of an open shard, either kept from before or read."""
    stamp = FileStamp.of(file)
    entries = shards.kept(blob, stamp)
    if entries is None:
        settled = stamp.is_settled  # before it is read: any later change is younger
        form = shards.form
        entries = form.decode(file_bytes(file, max(0, form.start(stamp.nbytes)), form.nbytes))
        if settled:
            shards.keep(blob, entries, stamp)
    return entries


def inner_chunks(folders: Folders, item: Spans) -> Iterator[Encoded | None]:
    """The requested parts of inner chunks, None for what is not stored.

    A file stays open for as long as its chunks follow one another.
    """
    source, shards, blobs = item.source, item.source.shards, item.blob
    assert shards is not None
    ends = [*(np.flatnonzero(blobs[1:] != blobs[:-1]) + 1).tolist(), blobs.size] if blobs.size > 1 else [1]
    start = 0
    for end in ends:
        some = item if len(ends) == 1 else item.some(slice(start, end))
        start = end
        (key,) = source.keys(some.blob[:1])
        try:
            file = folders.open(key)
        except (FileNotFoundError, NotADirectoryError):
            yield from (None for _ in range(some.blob.size))
            continue
        try:
            entries = index_of(file, shards, int(some.blob[0]))
            yield from _one(file, entries, some) if some.blob.size == 1 else _several(file, entries, some)
        finally:
            os.close(file)


def _one(file: int, entries: Any, item: Spans) -> Iterator[Encoded | None]:
    assert item.within is not None
    offset, length = entries[item.within[0]].tolist()
    if offset == _NO_ENTRY:
        yield None
        return
    if offset > LONGEST or length > LONGEST:
        raise points_outside()
    decoder = item.source.decoder
    if item.start is not None and item.nbytes is not None and length == decoder.nbytes:
        offset, length = offset + int(item.start[0]), int(item.nbytes[0])
    yield FileSpan(file, offset, length) if decoder.is_raw else file_bytes(file, offset, length)


def _several(file: int, entries: Any, item: Spans) -> Iterator[Encoded | None]:
    entry, decoder = entries[item.within], item.source.decoder
    stored = entry[:, 0] != ABSENT
    bad = stored & ((entry > LONGEST).any(axis=1))
    first_bad = int(np.argmax(bad)) if bad.any() else -1
    start, nbytes = (np.where(stored & ~bad, column, 0).astype(np.int64) for column in entry.T)
    if item.start is not None and item.nbytes is not None:
        whole = nbytes == decoder.nbytes  # else it is damaged, and decoding it says so
        start, nbytes = np.where(whole, start + item.start, start), np.where(whole, item.nbytes, nbytes)
    if int(nbytes.max()) <= SMALL_CHUNK:
        pieces: Iterator[Encoded] = _joined(file, item, start[stored], nbytes[stored])
    elif decoder.is_raw:
        columns = start[stored].tolist(), nbytes[stored].tolist()
        pieces = (FileSpan(file, *span) for span in zip(*columns, strict=True))
    else:
        columns = start[stored].tolist(), nbytes[stored].tolist()
        pieces = (file_bytes(file, *span) for span in zip(*columns, strict=True))
    for k, is_stored in enumerate(stored.tolist()):
        if k == first_bad:
            raise points_outside()
        yield next(pieces) if is_stored else None


def _joined(file: int, item: Spans, start: Ints, nbytes: Ints) -> Iterator[bytes]:
    """Small pieces of one file: neighbours are read in one go."""
    blob = np.full(start.shape, item.blob[0])
    ranges, cuts = joined_in_order(item._replace(blob=blob, start=start, nbytes=nbytes), 0, FILES.most_gap)
    assert ranges.start is not None
    assert ranges.nbytes is not None
    spans = zip(ranges.start.tolist(), ranges.nbytes.tolist(), strict=True)
    contents = [os.pread(file, length, first) for first, length in spans]
    return (cut_out(contents[request], first, last) for request, first, last in cuts)
