"""What the engine does not read, zarr reads, with the same values, errors and bounds on memory."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.core.buffer import cpu
from zarr.registry import register_codec
from zarr.storage import MemoryStore

import intarsia
from intarsia.engine.plan import plan
from intarsia.engine.request import parse_selection
from intarsia.engine.zarr_fallback import _outer_pieces, _point_pieces
from tests.grids import dear
from tests.logical import strategies as s
from tests.logical.codec_kinds import AsyncOnlyCodec

register_codec("test.async_only", AsyncOnlyCodec)


def flipped(shape=(12, 10)):
    store = MemoryStore()
    array = intarsia.create(store, "a", shape=shape, chunks=(4, 5), dtype="uint8")
    data = np.arange(np.prod(shape), dtype="u1").reshape(shape)
    half = ((0, 8), (0, shape[1])), ((8, shape[0]), (0, shape[1]))
    array.add_region(half[0], codecs=[AsyncOnlyCodec()], data=data[:8], chunks=(3, 4))
    array.add_region(half[1], codecs=["zstd"], data=data[8:])
    return store, array, data


@dear
@given(st.data())
def test_codecs_that_only_work_asynchronously(data):
    _, array, model = flipped()
    array = array.with_config(window_bytes=data.draw(st.sampled_from([1, 40, 1000])))
    selection = data.draw(s.basic(model.shape))
    np.testing.assert_array_equal(array[selection], model[selection])
    selection = data.draw(s.orthogonal(model.shape))
    np.testing.assert_array_equal(array.oindex[selection], s.by_numpy_orthogonal(model, selection))
    points = data.draw(s.points(model.shape))
    np.testing.assert_array_equal(array.vindex[points], model[points])


def test_they_are_written_too():
    _, array, data = flipped()
    array = array.with_config(cross_region_writes=True)
    array[2:10, 3:7] = 9
    array.vindex[[0, 11], [0, 9]] = [1, 2]
    array.oindex[[5, 1], :] = 3
    data[2:10, 3:7], data[0, 0], data[11, 9], data[[1, 5]] = 9, 1, 2, 3
    np.testing.assert_array_equal(array[...], data)


def test_a_damaged_chunk_is_named():
    store, array, _ = flipped()
    member = array.regions[0].name
    store._store_dict[f"a/{member}/c/1/2"] = cpu.Buffer.from_bytes(b"\x0d" + bytes(11))
    with pytest.raises(intarsia.errors.ReadError, match=rf"{member}, chunk \(1, 2\): chunk starts with 13"):
        array[...]
    with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(1, 2\)"):
        array.vindex[[0, 3], [0, 8]]


def test_strings_are_read():
    array = intarsia.create({}, "a", shape=(6,), chunks=(2,), dtype=str, fill_value="none")
    array.add_region(((0, 4),), codecs=["vlen-utf8", "zstd"], data=np.array(list("abcd"), dtype=array.dtype))
    assert array[1:].tolist() == ["b", "c", "d", "none", "none"]
    assert "zarr itself: the data type 'string'" in repr(intarsia.explain(array))
    array[1] = "β"
    assert array[:2].tolist() == ["a", "β"]


def test_missing_chunks_may_be_refused():
    with zarr.config.set({"array.read_missing_chunks": False}):
        array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
        array.add_region(((0, 4),), codecs=[])
        array[:2] = 1
        assert array[:2].tolist() == [1, 1]
        with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(1,\)"):
            array[:]


@dear
@given(st.data())
def test_pieces_hold_everything_once_and_stay_small(data):
    _, array, model = flipped()
    most = data.draw(st.integers(1, 60))
    object_shape = (3, 4)
    asked = parse_selection(model.shape, data.draw(s.basic(model.shape)), "basic")
    for part in plan(array.manifest, asked).parts:
        taken = np.zeros(asked.working_shape, dtype=int)
        for piece in _outer_pieces(part, object_shape, 1, most):
            taken[piece.output_selection] += 1
            chunks = [
                np.unique(np.arange(20)[x] // g).size
                for x, g in zip(piece.member_selection, object_shape, strict=True)
            ]
            assert 12 * np.prod(chunks) <= max(most, 12)
        whole = np.zeros_like(taken)
        whole[part.output_selection] = 1
        np.testing.assert_array_equal(taken, whole)
    points = parse_selection(
        model.shape, data.draw(s.points(model.shape).filter(lambda p: p[0].size)), "vectorized"
    )
    for part in () if points.points is None else plan(array.manifest, points).parts:
        pieces = list(_point_pieces(part, object_shape, 1, most))
        places = np.concatenate([piece.output_selection[0] for piece in pieces])
        assert sorted(places.tolist()) == sorted(part.output_selection[0].tolist())
        for piece in pieces:
            chunks = {(int(y) // 3, int(x) // 4) for y, x in zip(*piece.member_selection, strict=True)}
            assert len(chunks) <= max(1, most // 12)
