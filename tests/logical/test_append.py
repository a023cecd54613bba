"""Appending: which run-time options write the new chunks, and those that are filled up first; which axis,
which data types."""

import pickle

import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from intarsia.codecs import ConditionalCodec, PadCodec

ROWS = np.full((8, 64), 7, "u2")


def deciding(decision="compress_if_smaller"):
    return ConditionalCodec(codecs=["zstd"], decision=decision)


def length(encoded):
    return b"LEN%05d" % len(encoded)


def padding(function=length):
    return PadCodec(location="start", nbytes=8, padding_func=function)


def masks(array):
    return [intarsia.codecs.masks(member).ravel().tolist() for member in array.members.values()]


def heads(array):
    """The first three bytes of every chunk of a logical array in a directory."""
    place = array.store.root / array.path
    return [
        (place / name / member.metadata.encode_chunk_key((i, 0))).read_bytes()[:3]
        for name, member in array.members.items()
        for i in range(member.cdata_shape[0])
    ]


@pytest.fixture
def opened(tmp_path):
    """Opens the array anew, as another process would."""
    intarsia.create(tmp_path, "x", shape=(0, 64), chunks=(8, 64), dtype="u2")
    return lambda: intarsia.open(tmp_path, "x", mode="r+")


class CountingStore(zarr.storage.MemoryStore):
    """Remembers the reads of a group's zarr.json, which holds the manifest."""

    def __init__(self):
        super().__init__()
        self.reads = []

    async def get(self, key, *arguments, **options):
        self.reads += [key] if key == "a/zarr.json" else []
        return await super().get(key, *arguments, **options)

    def get_sync(self, key, **options):
        self.reads += [key] if key == "a/zarr.json" else []
        return super().get_sync(key, **options)


# zarr looks at the group once more for every array that it makes there: the parent might be an array.
@pytest.mark.parametrize(("merge", "members"), [(True, 0), (False, 1)])
def test_the_manifest_is_read_once(merge, members):
    store = CountingStore()
    array = intarsia.create(store, "a", shape=(0,), chunks=(4,), dtype="i4")
    array.append([1, 2, 3], codecs=["gzip"])
    store.reads.clear()
    array.append([4, 5, 6], merge=merge)
    assert len(store.reads) == 1 + members
    assert array[...].tolist() == [1, 2, 3, 4, 5, 6]


def test_each_append_decides_for_what_it_writes_even_in_a_member_that_grows(opened):
    for decision in ("always_apply", None, "never_apply", "compress_if_smaller"):
        opened().append(ROWS, codecs=[deciding(decision)])
    assert masks(opened()) == [[1, 0, 0, 1]]


def test_a_handle_goes_on_as_its_last_append_did(opened):
    array = opened()
    array.append(ROWS, codecs=[deciding(None)])
    array.append(ROWS, codecs=[deciding()])
    array.append(ROWS)
    array[16:] = 8
    pickle.loads(pickle.dumps(array))[:8] = 9
    assert masks(array) == [[1, 1, 1]]


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("codecs", [[deciding()], [deciding(), "crc32c"], ["gzip"]])
def test_the_partial_last_chunk_is_filled_as_the_append_says(merge, codecs, opened):
    opened().append(ROWS[:4], codecs=[deciding("never_apply")])
    opened().append(ROWS, codecs=codecs, merge=merge)
    (first, *_) = intarsia.open(opened().store, "x").members.values()
    assert intarsia.codecs.masks(first)[0, 0] == (codecs[0] != "gzip")
    assert (opened()[...] == 7).all()


def test_headers_are_those_of_the_append_or_it_is_refused(opened):
    for _ in range(3):
        opened().append(ROWS[:6], codecs=["zstd", padding()])
    assert heads(opened()) == [b"LEN"] * 3
    with pytest.raises(intarsia.errors.ChunkEncodeError, match="with_padding"):
        opened().append(ROWS)
    with pytest.raises(intarsia.errors.ChunkEncodeError, match="with_padding"):
        opened()[...] = 1
    assert opened().shape == (18, 64)
    assert (opened()[...] == 7).all()
    array = intarsia.codecs.with_padding(opened(), length)
    array.append(ROWS)
    array[...] = 9
    assert heads(opened()) == [b"LEN"] * 4


@pytest.mark.parametrize("shards", [None, (16, 64)])
def test_regions_and_recodes_write_with_what_they_are_given(shards, opened):
    array = opened()
    array.resize((32, 64))
    array.add_region([(0, 16), (0, 64)], codecs=[deciding()], data=np.tile(ROWS, (2, 1)), shards=shards)
    array.add_region([(16, 32), (0, 64)], codecs=[deciding()], shards=shards)
    array[16:] = 7
    assert masks(array) == [[1, 1], [1, 1]]
    opened().recode(codecs=[deciding("always_apply")], shards=shards)
    assert masks(opened()) == [[1] * 4]


def test_an_axis_is_named_by_its_dimension():
    array = intarsia.create({}, "a", shape=(2, 0), chunks=(2, 2), dtype="i4", dimension_names=("y", "time"))
    array.append([[1, 2], [3, 4]], axis="time")
    assert array[...].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(intarsia.errors.BoundsError, match=r"did you mean 'time'\? There are y, time"):
        array.append([[1], [2]], axis="tmie")


def test_data_with_named_dimensions_is_turned_to_the_order_of_the_array():
    array = intarsia.create({}, "a", shape=(0, 3), chunks=(2, 3), dtype="i4", dimension_names=("time", "x"))
    values = np.arange(9).reshape(3, 3)
    array.append(xr.DataArray(values.T, dims=("x", "time")))
    assert array[...].tolist() == values.tolist()
    array[1:3] = xr.DataArray(-values[1:3].T, dims=("x", "time"))
    assert array[1:].tolist() == (-values[1:]).tolist()


def test_data_whose_dimensions_have_other_names_is_refused():
    array = intarsia.create({}, "a", shape=(0, 2), chunks=(2, 2), dtype="i4", dimension_names=("time", "x"))
    other = xr.DataArray(np.zeros((2, 2), "i4"), dims=("t", "x"))
    with pytest.raises(intarsia.errors.ShapeError, match=r"data.rename\({'t': …}\)"):
        array.append(other)
    assert array.shape == (0, 2)
    array.append(xr.DataArray(np.zeros((2, 2), "i4")))  # dim_0 and dim_1 are no names
    assert array.shape == (2, 2)


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("codecs", [["gzip"], [], "auto", None])
@pytest.mark.parametrize(
    ("dtype", "values"),
    [("string", ["a", "", "é" * 40]), ("variable_length_bytes", [b"a", b"", b"\x00" * 9])],
)
def test_texts_and_bytes_of_any_length_take_any_codecs(dtype, values, codecs):
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype=dtype)
    array.append(values, codecs=codecs)
    array.append(values[::-1], codecs=codecs)
    assert array[...].tolist() == values + values[::-1]
    array[1:3] = values[0]
    assert array[:4].tolist() == [values[0], values[0], values[0], values[2]]
    array.optimize("size")
    assert array[4:].tolist() == [values[1], values[0]]


def test_a_region_that_sees_fewer_axes_than_its_member_has_grows():
    array = intarsia.create({}, "a", shape=(2, 3), chunks=(1, 3), dtype="i4")
    member = array.group.create_array("m", shape=(1, 2, 3), chunks=(1, 1, 3), dtype="i4")
    member[...] = [[[1, 2, 3], [4, 5, 6]]]
    array.add_region(((0, 2), (0, 3)), member="m", view=intarsia.View.identity(3).drop(0))
    array.append([[7, 8, 9]])
    assert len(array.regions) == 1
    assert array[...].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
