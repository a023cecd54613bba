"""Shards and their indexes, and shards with slots."""

import struct

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec

import intarsia
from soak.damage.chunks import Damages, Stored, keys_of, logical, quiet, values_of
from soak.damage.verdict import judged, refused
from soak.mutations import NUMBERS, damaged
from soak.target import Target

SHAPE, SHARD, INNER = (24, 40), (12, 20), (6, 10)
CHECKED, BARE = (BytesCodec(), Crc32cCodec()), (BytesCodec(),)


def serializers():
    """Shards of every kind."""
    for location in ("start", "end"):
        for index in (CHECKED, BARE):
            for inner in (
                BARE,
                CHECKED,
                (BytesCodec(), ZstdCodec()),
                (TransposeCodec(order=(1, 0)), BytesCodec()),
            ):
                yield ShardingCodec(
                    chunk_shape=INNER, codecs=inner, index_codecs=index, index_location=location
                )
    nested = ShardingCodec(chunk_shape=(3, 5), codecs=(BytesCodec(), ZstdCodec()), index_codecs=BARE)
    yield ShardingCodec(chunk_shape=INNER, codecs=(nested,), index_codecs=BARE)


def sharded(serializer):
    store, values = zarr.storage.MemoryStore(), values_of()
    z = zarr.create_array(
        store, name="a", shape=SHAPE, chunks=SHARD, dtype="<i4", serializer=serializer, compressors=None
    )
    z[...] = values
    return Stored(intarsia.reader(store, "a"), keys_of(store), z.dtype, SHAPE, ("chunk", "shard")), store


class Shards(Damages):
    """The same as of chunks, with more harm to the indexes, and reads of a part."""

    def __call__(self, number, rng):
        if rng.random() < 0.5:
            return super().__call__(number, rng)
        stored, store = rng.choice(self._made)
        key = rng.choice(list(stored.chunks))
        data = bytearray(stored.chunks[key])
        entries = 4 * 16
        where = rng.choice((0, max(0, len(data) - entries - 4), max(0, len(data) - entries)))
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = where + 8 * rng.randrange(8)
            number = rng.choice((*NUMBERS, len(data), len(data) - 1, rng.randrange(2 * len(data))))
            if at + 8 <= len(data):
                data[at : at + 8] = struct.pack("<Q", number)
        store._store_dict[key] = type(store._store_dict[key]).from_bytes(bytes(data))
        try:
            y, x = rng.randrange(20), rng.randrange(30)
            part = stored.array[y : y + 4, x : x + 10] if rng.random() < 0.5 else None
        except intarsia.IntarsiaError as error:
            return refused(error, stored.names)
        else:
            shape = stored.shape if part is None else (4, 10)
            read = (lambda: stored.array[...]) if part is None else (lambda: part)
            return judged(read, shape, stored.dtype, *stored.names)
        finally:
            store._store_dict[key] = type(store._store_dict[key]).from_bytes(stored.chunks[key])


@quiet
def prepare(_folder, _seed):
    made = [sharded(serializer) for serializer in serializers()]
    made += [logical([serializer.to_dict()], values_of()) for serializer in serializers()]
    return Shards(made)


SLOTS = 8


def _nothing(_result):
    """For what gives no values."""


class Slotted:
    """Files of shards with slots: read, looked at, written to, compacted."""

    def __init__(self, folder):
        self._made = []
        for index, codecs in enumerate((CHECKED, BARE)):
            path = folder / str(index)
            z = zarr.create_array(
                str(path), shape=SLOTS * 64, chunks=SLOTS * 64, dtype="<i4", compressors=None, fill_value=-1,
                serializer=ShardingCodec(chunk_shape=(64,), codecs=codecs, index_codecs=CHECKED),
            )  # fmt: skip
            slots = intarsia.shards.slotted(z)
            for chunk in (0, 2, 3, 5, 7):
                slots[64 * chunk : 64 * chunk + 64] = chunk
            file = path / "c" / "0"
            self._made.append((z, slots, file, file.read_bytes()))

    def __call__(self, _number, rng):
        z, slots, file, plain = rng.choice(self._made)
        file.write_bytes(damaged(plain, rng, [plain]))
        try:
            return self._tried(z, slots, rng)
        finally:
            file.write_bytes(plain)
            for other in file.parent.iterdir():
                if other != file:
                    other.unlink()

    def _tried(self, z, slots, rng):
        names = ("shard", "chunk", "slot")
        way = rng.randrange(5)
        if way == 0:
            return judged(lambda: slots[...], (SLOTS * 64,), slots.dtype, *names)
        if way == 1:
            return judged(lambda: intarsia.reader(z)[...], (SLOTS * 64,), z.dtype, *names)
        if way == 2:
            return judged(lambda: _nothing(intarsia.verify(z)), (), None, *names)
        if way == 3:
            return judged(lambda: _nothing(intarsia.shards.compact(z)), (), None, *names)
        return judged(lambda: slots.__setitem__(slice(64 * 4, 64 * 5), np.arange(64)), (), None, *names)


@quiet
def prepare_slotted(folder, _seed):
    return Slotted(folder)


TARGETS = [
    Target("damage", "shards and their indexes", prepare, share=12),
    Target("damage", "shards with slots", prepare_slotted, share=3),
]
