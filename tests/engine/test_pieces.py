"""Pieces of chunks: what is read and decompressed of large ones, compared with NumPy."""

from unittest import mock

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import RangeByteRequest
from zarr.codecs import BloscCodec, ZstdCodec
from zarr.core.buffer import cpu
from zarr.storage import LocalStore, MemoryStore

import intarsia
from intarsia.codecs import compressors
from intarsia.engine import inner_chunks
from tests.engine.test_inner_chunks import Watched
from tests.grids import dear
from tests.logical import strategies as s


@given(st.data())
def test_a_piece_holds_the_selection_and_is_small(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    model = np.arange(np.prod(shape)).reshape(shape)
    inside = []
    for n in shape:
        start = data.draw(st.integers(0, n - 1))
        stop = data.draw(st.integers(start + 1, n))
        chosen = slice(start, stop, data.draw(st.integers(1, 3)))
        if not any(isinstance(x, np.ndarray) for x in inside) and data.draw(st.booleans()):
            chosen = np.arange(start, stop)[:: data.draw(st.sampled_from([1, -1]))]
        inside.append(chosen)
    piece = inner_chunks.chunk_piece(tuple(inside), shape)
    if piece is None:
        return
    assert 2 * piece.size <= model.size
    stretch = model.reshape(-1)[piece.first : piece.first + piece.size].reshape(piece.shape)
    np.testing.assert_array_equal(stretch[piece.inside], model[tuple(inside)])


SHAPE = (300, 200)
KINDS = {
    "raw": None,
    "blosc": BloscCodec(cname="lz4", clevel=5, typesize=4, shuffle="shuffle", blocksize=4096),
    "blosc of another size": BloscCodec(cname="zstd", typesize=3, shuffle="noshuffle", blocksize=5000),
    "blosc that gave up": BloscCodec(cname="lz4", clevel=0, typesize=4, blocksize=4096),
    "zstd": ZstdCodec(),
}


def filled(store, kind, **options):
    values = np.random.default_rng(0).normal(size=SHAPE).astype("f4").round(1)
    array = zarr.create_array(
        store, shape=SHAPE, chunks=(150, 180), dtype="f4", compressors=KINDS[kind], **options
    )
    array[...] = values
    return array, values


@pytest.mark.parametrize("kind", KINDS)
@dear
@given(st.data(), st.sampled_from([None, (300, 180)]), st.sampled_from(["memory", "files", "loop"]))
def test_selections_of_large_chunks_equal_numpy(tmp_path_factory, kind, data, shards, place):
    array, values = _kept(tmp_path_factory, kind, shards, place)
    reader = intarsia.reader(array)
    selection = data.draw(s.basic(SHAPE))
    np.testing.assert_array_equal(reader[selection], values[selection])
    selection = data.draw(s.orthogonal(SHAPE))
    np.testing.assert_array_equal(reader.oindex[selection], s.by_numpy_orthogonal(values, selection))
    points = data.draw(s.points(SHAPE))
    np.testing.assert_array_equal(reader.vindex[points], values[points])


_made = {}


def _kept(tmp_path_factory, kind, shards, place):
    key = kind, shards, place
    if key not in _made:
        store = {
            "memory": MemoryStore,
            "files": lambda: LocalStore(tmp_path_factory.mktemp("files")),
            "loop": lambda: Watched(MemoryStore()),
        }[place]()
        _made[key] = filled(store, kind, shards=shards)
    return _made[key]


@pytest.mark.parametrize("shards", [None, (300, 180)])
def test_no_more_than_the_stretch_is_fetched_of_raw_chunks(shards):
    store = Watched(MemoryStore())
    array, values = filled(store, "raw", shards=shards, name="a")
    reader = intarsia.reader(array)
    store.ranges.clear()
    np.testing.assert_array_equal(reader[160:163, 7], values[160:163, 7])
    assert [r.end - r.start for _, r in store.ranges if isinstance(r, RangeByteRequest)] == [3 * 180 * 4]


def test_no_more_than_the_blocks_are_decompressed_of_blosc_chunks():
    array, values = filled(MemoryStore(), "blosc")
    with mock.patch.object(compressors.blosc, "decompress", side_effect=AssertionError):
        np.testing.assert_array_equal(intarsia.reader(array)[160:163, 7], values[160:163, 7])


def test_where_numcodecs_shows_no_blosc_chunks_are_decompressed_as_a_whole():
    array, values = filled(MemoryStore(), "blosc")
    with mock.patch.object(compressors, "blosc_elements", None):
        np.testing.assert_array_equal(intarsia.reader(array)[160:163, 7], values[160:163, 7])


@pytest.mark.parametrize("kind", ["raw", "blosc"])
def test_pieces_of_damaged_chunks_are_errors(kind):
    store = MemoryStore()
    array, _ = filled(store, kind)
    content = store._store_dict["c/1/0"].to_bytes()
    for damaged in (content[:200], content[:-1], content[:40] + b"\xff" * (len(content) - 41)):
        store._store_dict["c/1/0"] = cpu.Buffer.from_bytes(damaged)
        with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(1, 0\)"):
            intarsia.reader(array)[297:300, 7]


def test_pieces_of_chunks_that_are_not_stored_are_the_fill_value():
    array, _ = filled(Watched(MemoryStore()), "raw", fill_value=9)
    array[150:, :180] = 9
    assert intarsia.reader(array)[160:163, 7].tolist() == [9, 9, 9]
