"""`reshape` against NumPy and zarrs."""

from itertools import pairwise
from math import prod

import numpy as np
import pytest
import zarr
import zarrista
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarrista.store import FilesystemStore

import intarsia
from intarsia.codecs import ReshapeCodec
from intarsia.errors import CodecConfigurationError

LITTLE = BytesCodec(endian="little")

SHAPES = [
    ([8, 15], (8, 15)),
    ([-1], (120,)),
    ([4, -1, 5], (4, 6, 5)),
    ([[0, 1], [2]], (24, 5)),
    ([[0, 1], -1, 1], (24, 5, 1)),
    ([[0], 2, 3, [2]], (4, 2, 3, 5)),
    ([[], [0, 1, 2]], (1, 120)),
]


@pytest.mark.parametrize(("shape", "encoded"), SHAPES)
def test_elements_keep_their_order(shape, encoded, tmp_path, pipeline):
    codec = ReshapeCodec(shape=shape)
    assert codec.encoded_shape((4, 6, 5)) == encoded
    data = np.random.default_rng(0).integers(0, 99, (9, 6, 5), dtype="i2")
    z = zarr.create(store=tmp_path, shape=(9, 6, 5), chunks=(4, 6, 5), dtype="i2", codecs=[codec, LITTLE])
    z[...] = data
    np.testing.assert_array_equal(np.fromfile(tmp_path / "c/1/0/0", "<i2"), data[4:8].reshape(-1))
    np.testing.assert_array_equal(zarr.open_array(tmp_path)[2:7, ::2, 1], data[2:7, ::2, 1])


@pytest.mark.parametrize("shape", [shape for shape, _ in SHAPES if shape != [[0], 2, 3, [2]]])
def test_zarrs_reads_it(shape, tmp_path):
    data = np.arange(240, dtype="i4").reshape(8, 6, 5)
    codecs = [TransposeCodec(order=(0, 1, 2)), ReshapeCodec(shape=shape), LITTLE, ZstdCodec()]
    z = zarr.create(store=tmp_path, shape=data.shape, chunks=(4, 6, 5), dtype="i4", codecs=codecs)
    z[...] = data
    theirs = zarrista.Array.open(FilesystemStore(str(tmp_path)), "/")[...]
    np.testing.assert_array_equal(np.frombuffer(theirs.buffer(), "i4").reshape(data.shape), data)


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_any_cut_of_the_axes_is_what_numpy_makes_of_it(sizes, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sizes)))) | {0, len(sizes)})
    axes = [list(range(a, b)) for a, b in pairwise(cuts)]
    given = [data.draw(st.sampled_from([group, prod(sizes[i] for i in group)])) for group in axes]
    expected = tuple(prod(sizes[i] for i in group) for group in axes)
    assert ReshapeCodec(shape=given).encoded_shape(tuple(sizes)) == expected
    assert np.zeros(sizes).reshape(expected).shape == expected
    again = ReshapeCodec.from_dict(ReshapeCodec(shape=given).to_dict())
    assert again == ReshapeCodec(shape=given)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("where", ["alone", "transposed", "in shards"])
def test_with_other_codecs_and_nulls(nullable, where, tmp_path, pipeline):
    reshape = ReshapeCodec(shape=[[0], -1])
    filters = [TransposeCodec(order=(1, 0, 2)), reshape] if where == "transposed" else [reshape]
    options = {"shards": (4, 6, 5)} if where == "in shards" else {}
    data = np.ma.MaskedArray(np.arange(240).reshape(8, 6, 5), mask=np.arange(240).reshape(8, 6, 5) % 7 == 0)
    create = intarsia.nullable.create_array if nullable else zarr.create_array
    z = create(tmp_path, shape=data.shape, dtype="i8", chunks=(2, 3, 5), filters=filters, **options)
    z[...] = data if nullable else data.data
    open_array = intarsia.nullable.open_array if nullable else zarr.open_array
    read = open_array(tmp_path)
    for key in (..., (slice(1, 7, 2), 3), (5, slice(2, 4), 1)):
        expected = data[key] if nullable else data.data[key]
        np.testing.assert_array_equal(np.ma.filled(read[key], -1), np.ma.filled(expected, -1))


@pytest.mark.parametrize("dtype", ["i8", "optional[int64]"])
def test_in_members_of_logical_arrays(dtype):
    array = intarsia.create(
        {}, "a", shape=(8, 6), chunks=(4, 6), dtype=dtype, fill_value=None if "o" in dtype else 0
    )
    array.add_region(
        ((0, 8), (0, 6)), codecs=[ReshapeCodec(shape=[2, -1]), "zstd"], data=np.arange(48).reshape(8, 6)
    )
    np.testing.assert_array_equal(array[1:7, ::2], np.arange(48).reshape(8, 6)[1:7, ::2])
    assert "reshape" in array.regions[0].codec_names


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ([[1], [0]], "must increase"),
        ([[0, 0], -1], "must increase"),
        ([-1, -1], "more than one size open"),
        ([-2], "shape"),
        ([1.5], "Expected `int"),
        (["x"], "shape"),
    ],
)  # fmt: skip
def test_a_bad_shape_is_refused_in_words(shape, problem):
    with pytest.raises(CodecConfigurationError, match=problem):
        ReshapeCodec(shape=shape)


@pytest.mark.parametrize("shape", [[7, 3], [7, -1], [9], [0]])
def test_sizes_that_no_chunk_has_are_refused_when_the_array_is_created(shape):
    with pytest.raises(CodecConfigurationError, match=r"chunk of shape \(2, 4\) cannot become"):
        zarr.create_array({}, shape=(4, 8), chunks=(2, 4), dtype="i2", filters=ReshapeCodec(shape=shape))


@pytest.mark.parametrize("shape", [[4, [0]], [-1, [2]], [[0]]])
def test_axes_that_do_not_fit_are_refused_with_the_first_chunk(shape, pipeline):
    z = zarr.create_array({}, shape=(4, 8), chunks=(2, 4), dtype="i2", filters=ReshapeCodec(shape=shape))
    with pytest.raises(CodecConfigurationError, match=r"chunk of shape \(2, 4\) cannot become"):
        z[...] = 1


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_the_chunk_index_is_unknown_rather_than_wrong_behind_it():
    seen = []

    def note(chunk_index):
        seen.append(chunk_index)
        return False

    inner = [LITTLE, intarsia.codecs.ConditionalCodec(codecs=["zstd"], decision=note)]
    codecs = [ReshapeCodec(shape=[3, -1]), ShardingCodec(chunk_shape=(1, 2), codecs=inner)]
    z = zarr.create(store={}, shape=(4, 6), chunks=(4, 6), dtype="i2", codecs=codecs)
    with pytest.raises(intarsia.errors.ChunkIndexUnknownError):
        z[...] = 1
    assert not seen
