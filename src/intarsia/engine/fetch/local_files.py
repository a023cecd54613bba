"""Fetching encoded chunks from files on this machine, opened and read in the thread that decodes them.

The system is told which files come next if they are not in memory: it then reads many at a time, where a
reader would wait for one after the other. Checking whether a file is in memory takes less than a microsecond,
and nothing else is done where the first of many is.

For inner chunks of a shard, one open file serves the index and the chunks. A shard that is replaced during a
read is read as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.storage import LocalStore

from intarsia.codecs.shard_index import ABSENT, LONGEST, points_outside
from intarsia.engine.fetch.byte_ranges import FILES, coalesce_ranges
from intarsia.engine.fetch.store import (
    ByteRanges,
    DeferredBytes,
    Encoded,
    FileSpan,
    OpaqueStore,
    PendingBytes,
)
from intarsia.engine.fetch.symlinks import CheckedFolders
from intarsia.errors import IntarsiaError, signal_failure
from intarsia.file_io import read_exactly

if TYPE_CHECKING:
    from intarsia.engine.chunk_codecs import Decoder


MAX_FILES = 64
"""The system is told about so many files at a time: with 32, reads took a third longer."""

MAX_BYTES = 16 << 20
"""This many bytes are on their way at a time, and no more than that of a single file."""

_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)
_CAN_TELL = _NO_WAIT != 0 and hasattr(os, "posix_fadvise")


def is_in_memory(file: int, offset: int = 0) -> bool:
    """Whether the byte at this place of an open file can be read without waiting for a disk.

    If the system does not say, the byte counts as being in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     is_in_memory(file.fileno())
    True
    """
    if not _CAN_TELL:
        return True
    try:
        os.preadv(file, [bytearray(1)], offset, _NO_WAIT)
    except BlockingIOError:
        return False
    except OSError:  # this file system cannot say
        return True
    return True


def files_in_turn(
    open_file: Callable[[int], int],
    starts: Sequence[int],
    lengths: Sequence[int | None],
    decoder: Decoder,
    otherwise: Callable[[int, OSError], Encoded | None],
    keeps_open: Callable[[int], bool] | None = None,
) -> Generator[Encoded | None]:
    """Bytes of files that are read one after the other, while the system is told which come next.

    `open_file` opens the file at a position; if it raises OSError, `otherwise` says what replaces the file's
    bytes, or raises. The bytes of each file are wanted from `starts` on, which count from the end if they are
    negative; all of them if the length is None. Bytes that need no decoding are read once it is known where
    they go. `keeps_open` says which files somebody else closes; the system is told nothing about such files,
    in which many chunks follow one another.
    """
    nbytes = min(max(decoder.nbytes, 1), MAX_BYTES)
    ahead, last = min(MAX_FILES, MAX_BYTES // nbytes), len(starts) - 1
    for i, (first, length) in enumerate(zip(starts, lengths, strict=True)):
        try:
            file = open_file(i)
        except OSError as error:
            if error.errno is None:  # not from the system: a signal handler may raise a TimeoutError
                raise
            yield otherwise(i, error)
            continue
        try:
            if keeps_open is None and i % ahead == 0 and i < last and not is_in_memory(file, max(0, first)):
                for coming in range(i + 1, min(i + ahead, last + 1)):
                    _announce(open_file, coming, max(0, starts[coming]), nbytes)
            if length is None or first < 0:
                size = os.lseek(file, 0, os.SEEK_END)  # half the time of fstat
                first = first if first >= 0 else max(0, size + first)
                length = size - first if length is None else length
            if decoder.is_raw:
                yield FileSpan(file, first, length)
                continue
            content = read_exactly(file, first, length)
        finally:
            if keeps_open is None or not keeps_open(file):
                os.close(file)
        yield content


def _announce(open_file: Callable[[int], int], position: int, start: int, nbytes: int) -> None:
    """Tell the system that a file comes next."""
    try:
        file = open_file(position)
    except (OSError, IntarsiaError) as error:
        if signal_failure(error) is not None:
            raise
        return  # the error is raised when it is read
    try:
        os.posix_fadvise(file, start, nbytes, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)


SMALL_CHUNK = 16 << 10
"""Stored bytes: asking the system for a chunk this small takes longer than copying it once more."""

WORTH_JOINING = 32
"""Fewer chunks are read one by one in the time that it takes to find out which are neighbours."""

_NO_ENTRY = int(ABSENT)


def inner_chunks(folders: CheckedFolders, item: ByteRanges) -> Iterator[Encoded | None]:
    """The requested parts of inner chunks, None for what is not stored.

    A file stays open for as long as its chunks follow one another.
    """
    source, shards, objects = item.source, item.source.shards, item.object_index
    assert shards is not None
    form = shards.form
    changes = np.flatnonzero(objects[1:] != objects[:-1]) + 1
    ends = [*changes.tolist(), objects.size] if objects.size > 1 else [1]
    start = 0
    for end in ends:
        some = item if len(ends) == 1 else item.select(slice(start, end))
        start = end
        (key,) = source.keys(some.object_index[:1])
        try:
            file = folders.open(key)
        except (FileNotFoundError, NotADirectoryError):
            yield from (None for _ in range(some.object_index.size))
            continue
        try:
            start_of_index = max(0, form.start(os.lseek(file, 0, os.SEEK_END)))
            entries = form.decode(read_exactly(file, start_of_index, form.nbytes))
            yield from _in_shard(file, entries, some)
        finally:
            os.close(file)


def _in_shard(file: int, entries: Any, item: ByteRanges) -> Iterator[Encoded | None]:
    """The requested parts of inner chunks of one open shard."""
    assert item.within is not None
    if item.within.size >= WORTH_JOINING:
        neighbours = _joined(file, entries[item.within], item)
        if neighbours is not None:
            yield from neighbours
            return
    decoder, starts, lengths = item.source.decoder, item.start, item.nbytes
    for k, (offset, length) in enumerate(entries[item.within].tolist()):
        if offset == _NO_ENTRY:
            yield None
            continue
        if offset > LONGEST or length > LONGEST:
            raise points_outside()
        if starts is not None and lengths is not None and length == decoder.nbytes:
            # A chunk of another size is damaged, and decoding it says so.
            offset, length = offset + int(starts[k]), int(lengths[k])
        yield FileSpan(file, offset, length) if decoder.is_raw else read_exactly(file, offset, length)


def _joined(file: int, entry: Any, item: ByteRanges) -> Iterator[Encoded] | None:
    """Small chunks that are all in the file, neighbours read in one go; None for others."""
    if int(entry[:, 1].max()) > SMALL_CHUNK or int(entry[:, 0].max()) > LONGEST or item.start is not None:
        return None
    start, nbytes = entry.astype(np.int64).T
    if int((start + nbytes).max()) > os.fstat(file).st_size:
        return None
    requests = coalesce_ranges(np.zeros_like(start), start, nbytes, FILES)
    spans = zip(requests.first.tolist(), (requests.last - requests.first).tolist(), strict=True)
    contents = [read_exactly(file, *span) for span in spans]
    begin = start - requests.first[requests.request]
    pieces = zip(requests.request.tolist(), begin.tolist(), (begin + nbytes).tolist(), strict=True)
    return (contents[number][first:last] for number, first, last in pieces)


def _not_stored(_: int, error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


class LocalFiles(OpaqueStore):
    """A zarr store of plain files."""

    in_threads = is_near = True
    looks_into_shards = True
    name = "local files"
    limits = FILES

    def __init__(self, store: LocalStore) -> None:
        self._folders = CheckedFolders(os.fspath(store.root))

    def begin(self, spans: Sequence[ByteRanges]) -> PendingBytes:
        return DeferredBytes(partial(self._read, spans))

    def _read(self, spans: Sequence[ByteRanges]) -> Generator[Encoded | None]:
        for item in spans:
            if item.within is not None:
                yield from inner_chunks(self._folders, item)
            else:
                yield from self._files(item)

    def _files(self, item: ByteRanges) -> Generator[Encoded | None]:
        source, object_index, start, nbytes, *_ = item
        keys, folders = source.keys(object_index), self._folders
        starts = [0] * object_index.size if start is None else start.tolist()
        lengths = [None] * object_index.size if nbytes is None else nbytes.tolist()
        return files_in_turn(lambda i: folders.open(keys[i]), starts, lengths, source.decoder, _not_stored)
