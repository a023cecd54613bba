"""What a write consists of: each part alone, and all of them in a bare loop, as `read_parts` has of reads."""

import asyncio
import os
import threading
from itertools import product
from math import prod

import numpy as np
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from benchmarks.read_parts import LOOPS, all_of, milliseconds, missed
from intarsia.engine.chunk_codecs import packer
from intarsia.engine.config import cores
from intarsia.engine.prepared_member import PreparedMember

GATHERING, COMPRESSING, STORING = "gathering", "compressing", "storing"


class Writes:
    """A write of all chunks of an array, done without an engine, in as many threads as there are cores."""

    def __init__(self, data, chunk, compressors, per_shard, put_all) -> None:
        """`put_all` stores blobs, each by its number, in so many threads; a blob is a chunk or a shard."""
        blob = tuple(c * n for c, n in zip(chunk, per_shard, strict=True))
        self._pieces = [
            [part[cut] for cut in _boxes(part.shape, chunk)]
            for part in (data[cut] for cut in _boxes(data.shape, blob))
        ]
        self._chunk, self._dtype, self._own = chunk, data.dtype, threading.local()
        self._put_all, self._index = put_all, [bytes(16 * prod(per_shard) + 4)] if prod(per_shard) > 1 else []
        nbytes = prod(chunk) * data.dtype.itemsize
        self._pack = packer(compressors[0], nbytes) if compressors else None
        self._plain = [np.ascontiguousarray(piece) for pieces in self._pieces for piece in pieces]
        self._stored = [[bytes(piece) for piece in self._encoded(pieces)] for pieces in self._pieces]

    @property
    def parts(self):
        every = [piece for pieces in self._pieces for piece in pieces]
        parts = {GATHERING: lambda: all_of(every, self._gathered, cores())}
        if self._pack is not None:
            parts[COMPRESSING] = lambda: all_of(self._plain, self._packed, cores())
        parts[STORING] = lambda: self._put_all(enumerate(self._stored), lambda stored: stored, cores())
        return parts

    @property
    def loops(self):
        return {
            name: (lambda n=threads: self._put_all(enumerate(self._pieces), self._encoded, n))
            for name, threads in LOOPS.items()
        }

    def _gathered(self, piece):
        """The values of a chunk brought together, in memory that the thread keeps."""
        if not hasattr(self._own, "room"):
            self._own.room = np.empty(self._chunk, self._dtype)
        self._own.room[...] = piece
        return self._own.room

    def _packed(self, values):
        return self._pack(values.reshape(-1).view("u1"))

    def _encoded(self, pieces):
        """The bytes of a chunk or of a shard, piece by piece; good until the thread encodes the next one."""
        if self._pack is not None:
            return [self._packed(self._gathered(piece)) for piece in pieces] + self._index
        if len(pieces) == 1:
            return [self._gathered(pieces[0]).reshape(-1).view("u1").data]
        return [np.array(piece, order="C").reshape(-1).view("u1").data for piece in pieces] + self._index


def _boxes(shape, size):
    """The boxes of a regular grid, in C order."""
    return [
        tuple(slice(start, start + n) for start, n in zip(corner, size, strict=True))
        for corner in product(*(range(0, length, n) for length, n in zip(shape, size, strict=True)))
    ]


def into_files(place):
    """Stores blobs as files in a folder, each written beside its place and then moved there."""
    place.mkdir()

    def put_all(blobs, encoded, threads):
        def put(blob):
            path = f"{place}/{blob[0]}"
            file = os.open(f"{path}.partial", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            os.writev(file, encoded(blob[1]))
            os.close(file)
            os.replace(f"{path}.partial", path)

        all_of(blobs, put, threads)

    return put_all


def into_icechunk(array):
    """Stores blobs as chunks of an array in an Icechunk session: all at once, when all are encoded."""
    source, store, make = (
        PreparedMember.of("", array),
        array.store,
        default_buffer_prototype().buffer.from_bytes,
    )

    async def set_all(values):
        await asyncio.gather(*(store.set(key, make(value)) for key, value in values))

    def put_all(blobs, encoded, threads):
        values = []
        all_of(blobs, lambda blob: values.append((blob[0], b"".join(encoded(blob[1])))), threads)
        keys = source.keys(np.array([number for number, _ in values]))
        sync(set_all([(key, value) for key, (_, value) in zip(keys, values, strict=True)]))

    return put_all


WRITE_LIMITS = (
    "intarsia", "gathering alone", "compressing alone", "storing alone", *LOOPS,
    "who is faster", "than the bare loop, too",
)  # fmt: skip
"""What the table of limits says of a write, after its name."""


def write_limits(costs, rivals):
    """The cells of a row of limits of a write; TensorStore waits for the disk, and goes by processor time."""
    cells = [costs.get(name) for name in ("intarsia", GATHERING, COMPRESSING, STORING, *LOOPS)]
    others = {name: costs[name] for name in rivals if name in costs}
    waits = {name: others.pop(name) for name in ("TensorStore",) if name in others}
    faster = zip(missed(costs, others), missed(costs, waits, "processor"), strict=True)
    return *map(milliseconds, cells), *("; ".join(filter(None, names)) for names in faster)
