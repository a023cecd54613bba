"""The way to the conditional codec."""

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec

from intarsia.codecs import ConditionalCodec, ShuffleCodec
from intarsia.codecs.codec_path import find_routes, routes

LITTLE = BytesCodec(endian="little")
CODEC = ConditionalCodec(codecs=[ZstdCodec()])


def test_neighbours_are_told_apart():
    shuffle, crc = ShuffleCodec(element_size=2), Crc32cCodec()
    (route,) = routes((LITTLE, shuffle, CODEC, crc))
    assert route.shards == ()
    assert (route.end.before, route.end.codec, route.end.after) == ((LITTLE, shuffle), CODEC, (crc,))


def test_through_shards():
    inner = ShardingCodec(chunk_shape=(2,), codecs=[LITTLE, CODEC])
    outer = ShardingCodec(chunk_shape=(4,), codecs=[inner])
    (route,) = routes((outer, Crc32cCodec()))
    assert [step.codec for step in route.shards] == [outer, inner]
    assert route.shards[0].after == (Crc32cCodec(),)
    assert route.end.codec == CODEC


def test_nested_conditional_codecs_are_the_business_of_the_outer_one():
    outer = ConditionalCodec(codecs=[CODEC])
    assert [route.end.codec for route in routes((LITTLE, outer))] == [outer]


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_the_grid_is_in_the_axes_of_the_array():
    inner = ShardingCodec(chunk_shape=(3, 2), codecs=[TransposeCodec(order=(1, 0)), LITTLE, CODEC])
    z = zarr.create(
        store={}, shape=(12, 18), chunks=(6, 6), dtype="f4", codecs=[TransposeCodec(order=(1, 0)), inner],
        fill_value=np.float32(1),
    )  # fmt: skip
    (route,) = find_routes(z, "test")
    assert route.chunk_shape(z) == (2, 3)
    assert route.grid_shape(z) == (6, 6)
    assert route.spec(z, (6, 6)).shape == (2, 3)
