"""Nullable arrays against NumPy's masked arrays, operation by operation."""

import pickle

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.grids import spread

from intarsia import nullable
from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import NULL, NullableArray, NullableValues, Some

STRING = np.dtypes.StringDType()
DTYPES = {
    "bool": (np.dtype("bool"), [True, False]),
    "int16": (np.dtype("int16"), [0, -1, 7, 32767]),
    "float64": (np.dtype("float64"), [0.0, -0.0, 1.5, float("nan"), float("inf")]),
    "complex64": (np.dtype("complex64"), [0, 1 - 2j, complex("nan")]),
    "datetime64": (np.dtype("datetime64[ms]"), [np.datetime64("NaT", "ms"), np.datetime64(7, "ms")]),
    "string": (STRING, ["", "a", "zwölf Ä", "longer than fifteen bytes"]),
}
LAYOUTS = {
    "plain": {"compressors": None, "chunks": (3, 2)},
    "zstd": {"compressors": [{"name": "zstd", "configuration": {"level": 1}}], "chunks": (4, 3)},
    "transpose": {"filters": [{"name": "transpose", "configuration": {"order": [1, 0]}}], "chunks": (2, 3)},
    "sharding": {"shards": (4, 4), "chunks": (2, 2)},
    "big-endian": {"compressors": None, "chunks": (3, 4), "big": True},
}
warned = pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")


def create(dtype, layout, shape, fill_value=NULL, store=None):
    options = dict(LAYOUTS[layout])
    if options.pop("big", False) and dtype.kind not in "bT":
        options["data_codecs"] = [{"name": "bytes", "configuration": {"endian": "big"}}]
    return nullable.create_array(
        {} if store is None else store, shape=shape, dtype=dtype, fill_value=fill_value, **options
    )


def assert_same(got, model):
    """Same shape, same nulls, same present values to the bit."""
    got, model = NullableValues.of(np.ma.asarray(got)), NullableValues.of(np.ma.asarray(model))
    assert got.equals(model), f"{got!r} is not {model!r}"


class Machine:
    """An array and its model, and the operations that both can do."""

    def __init__(self, draw, dtype, pool, layout):
        self.draw, self.dtype, self.pool = draw, dtype, pool
        fill = draw(st.sampled_from([NULL, *map(Some, pool)]))
        shape = draw(st.tuples(st.integers(0, 7), st.integers(1, 6)))
        self.array = create(dtype, layout, shape, fill)
        self.fill = fill
        self.model = self.filled(shape)

    def filled(self, shape):
        value = self.pool[0] if self.fill is NULL else self.fill.value
        return np.ma.MaskedArray(
            np.full(shape, value, dtype=self.dtype), mask=np.full(shape, self.fill is NULL)
        )

    def some_data(self, shape):
        shares = self.draw(st.sampled_from([0.0, 0.3, 1.0]))
        rng = np.random.default_rng(self.draw(st.integers(0, 2**16)))
        values = np.empty(int(np.prod(shape)), dtype=self.dtype)
        for i, choice in enumerate(rng.integers(0, len(self.pool), values.size)):
            values[i] = self.pool[choice]
        return np.ma.MaskedArray(values.reshape(shape), mask=rng.random(shape) < shares)

    def slices(self):
        parts = []
        for size in self.model.shape:
            start = self.draw(st.integers(0, size))
            stop = self.draw(st.integers(start, size))
            parts.append(slice(start, stop, self.draw(st.integers(1, 3))))
        return tuple(parts)

    def indices(self, unique=False):
        parts = []
        for size in self.model.shape:
            if size == 0:
                return None
            parts.append(self.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5, unique=unique)))
        return parts

    # -- the operations

    def set_slices(self):
        where = self.slices()
        data = self.some_data(self.model[where].shape)
        self.array[where] = data
        self.model[where] = data

    def set_scalar(self):
        where = self.slices()
        value = self.draw(st.sampled_from([None, np.ma.masked, *self.pool]))
        self.array[where] = value
        if value is None or value is np.ma.masked:
            self.model[where] = np.ma.masked
        else:
            self.model[where] = np.ma.MaskedArray(np.full((), value, dtype=self.dtype), mask=False)

    def set_outer(self):
        where = self.indices(unique=True)
        if where is not None:
            data = self.some_data(tuple(map(len, where)))
            self.array.oindex[tuple(where)] = data
            self.model[np.ix_(*where)] = data

    def set_points(self):
        where = self.indices()
        if where is not None:
            points = sorted(set(zip(*where, strict=False)))
            rows, columns = map(list, zip(*points, strict=True))
            data = self.some_data((len(points),))
            self.array.vindex[rows, columns] = data
            self.model[rows, columns] = data

    def set_mask(self):
        mask = self.some_mask()
        data = self.some_data((int(mask.sum()),))
        self.array.vindex[mask] = data
        self.model[mask] = data

    def some_mask(self):
        rng = np.random.default_rng(self.draw(st.integers(0, 2**16)))
        return rng.random(self.model.shape) < 0.5

    def append(self):
        axis = self.draw(st.integers(0, 1))
        shape = list(self.model.shape)
        shape[axis] = self.draw(st.integers(0, 4))
        data = self.some_data(tuple(shape))
        self.array.append(data, axis=axis)
        self.model = np.ma.concatenate([self.model, data], axis=axis)

    def resize(self):
        # zarr keeps what lies beyond a cut through the middle of a chunk, so cuts go along chunks here.
        steps = self.array.shards or self.array.chunks
        shape = []
        for size, step in zip(self.model.shape, steps, strict=True):
            cuts = range(step, size, step)
            shape.append(self.draw(st.sampled_from([*cuts, *range(size, size + 4)])))
        self.array.resize(tuple(shape))
        resized = self.filled(tuple(shape))
        both = tuple(slice(0, min(a, b)) for a, b in zip(shape, self.model.shape, strict=True))
        resized[both] = self.model[both]
        self.model = resized

    def get_slices(self):
        where = self.slices()
        assert_same(self.array[where], self.model[where])

    def get_outer(self):
        where = self.indices()
        if where is not None:
            assert_same(self.array.oindex[tuple(where)], self.model[np.ix_(*where)])

    def get_points(self):
        where = self.indices()
        if where is not None:
            rows, columns = (list(part) for part in zip(*zip(*where, strict=False), strict=True))
            assert_same(self.array.vindex[rows, columns], self.model[rows, columns])
            assert_same(self.array[rows, columns], self.model[rows, columns])

    def get_mask(self):
        mask = self.some_mask()
        assert_same(self.array.vindex[mask], self.model[mask])

    def get_element(self):
        where = self.indices()
        if where is not None:
            at = (where[0][0], where[1][0])
            got, expected = self.array[at], self.model[at]
            if expected is np.ma.masked:
                assert got is np.ma.masked
            else:
                assert_same(np.array(got, self.dtype), np.array(expected, self.dtype))


OPERATIONS = [
    "set_slices", "set_slices", "set_scalar", "set_outer", "set_points", "set_mask", "append", "resize",
    "get_slices", "get_outer", "get_points", "get_mask", "get_element",
]  # fmt: skip


@warned
@pytest.mark.parametrize(("dtype", "layout"), spread(DTYPES, LAYOUTS, times=2))
@settings(
    max_examples=max(4, settings().max_examples // 10),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_sequence_of_operations_gives_what_masked_arrays_give(dtype, layout, pipeline, data):
    machine = Machine(data.draw, *DTYPES[dtype], layout)
    for name in data.draw(st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=8)):
        getattr(machine, name)()
    assert_same(machine.array[...], machine.model)
    assert machine.array.shape == machine.model.shape


# -- what is easily got wrong


@warned
@pytest.mark.parametrize("layout", LAYOUTS)
def test_negative_zero_next_to_a_fill_value_of_zero_is_stored(layout, pipeline):
    array = create(np.dtype("float64"), layout, (4, 4), Some(0.0))
    array[...] = np.full((4, 4), -0.0)
    assert np.signbit(array[...].data).all()
    array[...] = np.zeros((4, 4))
    assert not np.signbit(array[...].data).any()
    assert array.zarr_array.nchunks_initialized == 0


@warned
def test_nan_and_nat_are_values(pipeline):
    floats = nullable.create_array({}, data=np.ma.MaskedArray([np.nan, 1.0, np.nan], mask=[0, 0, 1]))
    read = floats[:]
    assert read.mask.tolist() == [False, False, True]
    assert np.isnan(read.data[[0, 2]]).all()  # NaN lies beneath the null, too
    times = np.array(["NaT", "2020-01-01", "NaT"], dtype="M8[s]")
    dates = nullable.create_array({}, data=np.ma.MaskedArray(times, mask=[0, 0, 1]))[:]
    assert dates.mask.tolist() == [False, False, True]
    assert np.isnat(dates.data).tolist() == [True, False, True]


@pytest.mark.parametrize("fill_value", [NULL, Some(7)])
def test_arrays_without_dimensions(fill_value, pipeline):
    array = nullable.create_array({}, shape=(), dtype="int32", fill_value=fill_value)
    assert array[()] is np.ma.masked if fill_value is NULL else array[()] == 7
    array[...] = 5
    assert array[()] == 5
    assert array[...] == 5
    array[()] = None
    assert array[...] is np.ma.masked
    assert array.zarr_array[()] is NULL
    with pytest.raises(TypeError, match="without dimensions"):
        len(array)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0)])
def test_empty_arrays(shape, pipeline):
    array = nullable.create_array({}, shape=shape, dtype="float32")
    assert array[...].shape == shape
    array[...] = np.ma.masked_all(shape, dtype="float32")
    assert array.vindex[tuple(np.zeros((len(shape), 0), dtype=int))].shape == (0,)
    assert array[...].shape == shape


@pytest.mark.parametrize("layout", LAYOUTS)
def test_chunks_of_nothing_but_null_are_not_stored(layout, pipeline):
    array = create(np.dtype("int32"), layout, (8, 8))
    array[...] = np.ma.masked_all((8, 8), dtype="int32")
    assert array.zarr_array.nchunks_initialized == 0
    array[0, 0] = 1
    assert array.zarr_array.nchunks_initialized > 0
    array[0, 0] = None
    assert array.zarr_array.nchunks_initialized == 0


@pytest.mark.parametrize("fill_value", [NULL, Some(1)])
def test_chunks_of_nothing_but_null_and_of_no_null(fill_value, pipeline):
    array = nullable.create_array(
        {}, shape=6, chunks=3, dtype="int16", fill_value=fill_value, config={"write_empty_chunks": True}
    )
    array[:3] = np.ma.masked_all(3, dtype="int16")
    array[3:] = [4, 5, 6]
    assert array.zarr_array.nchunks_initialized == 2
    assert array[:].tolist() == [None, None, None, 4, 5, 6]


@pytest.mark.parametrize("dtype", ["bytes", "S3", "U4", "V2", "float16", "uint64", "complex128", "m8[10us]"])
@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
def test_other_inner_types(dtype, pipeline):
    if dtype == "bytes":
        values, kind = np.array([b"a", b"", b"a longer one"], dtype=object), "variable_length_bytes"
    else:
        values, kind = np.array([b"a", b"", b"bb"] if dtype[0] in "SUV" else [1, 0, 3]).astype(dtype), dtype
    array = nullable.create_array({}, shape=3, dtype=kind)
    data = NullableValues(values, np.array([False, False, True]))
    array[:] = data
    assert array.read_nullable().equals(data)
    assert array.dtype == values.dtype


@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nested_levels_are_kept_apart(depth, layout, pipeline):
    options = {key: value for key, value in LAYOUTS[layout].items() if key != "big"}
    rng = np.random.default_rng(depth)
    data = NullableValues(
        rng.random((7, 6)), rng.integers(0, depth + 1, (7, 6)).astype("u1"), depth
    )  # fmt: skip
    array = nullable.create_array({}, shape=(7, 6), dtype="float64", depth=depth, **options)
    array[...] = data
    assert array.read_nullable().equals(data)
    assert array.vindex[[3, 1], [2, 0]].equals(data[[3, 1], [2, 0]])
    array[2:5, 1] = data[0:3, 4]
    assert array.read_nullable((slice(2, 5), 1)).equals(data[0:3, 4])
    array[0, 0] = Some(NULL)
    assert array[0, 0] == Some(NULL)
    array[0, 0] = None
    assert array[0, 0] is NULL
    array[0, 0] = 3.0
    assert array[0, 0] == 3.0
    with pytest.raises(DataTypeError, match="which of"):
        array[0, :2] = np.ma.masked_all(2)
    with pytest.raises(DataTypeError, match="one kind of null"):
        array.read_nullable().masked()


# -- plain zarr


def test_plain_zarr_refuses_to_make_numbers_of_nulls(pipeline):
    z = nullable.create_array({}, data=[[1, None], [3, 4]]).zarr_array
    for attempt in (
        lambda: np.asarray(z),
        lambda: np.asarray(z[...]),
        lambda: np.array(z[0]) + 1,
        lambda: z.vindex[[0], [1]],
        lambda: float(z[0, 1]),
        lambda: sum(z[0]),
    ):
        with pytest.raises((NullsPresentError, TypeError)):
            attempt()
    with pytest.raises(NullsPresentError, match=r"1 of 4 elements are null.*\n.*\.masked\(\).*open_array"):
        np.asarray(z[...])
    assert np.asarray(z[1]).tolist() == [3, 4]  # without a null there is nothing to lose
    assert z[...].masked().tolist() == [[1, None], [3, 4]]
    assert (z[0] * 2).tolist() == [2, None]


def test_plain_zarr_writes_masked_arrays_and_scalars(pipeline):
    z = nullable.create_array({}, shape=(4, 3), chunks=(2, 2), dtype="float64").zarr_array
    data = np.ma.masked_greater(np.arange(12.0).reshape(4, 3), 6)
    z[...] = data
    assert_same(z[...].masked(), data)
    z[0] = NULL
    z[1, 1] = Some(9.0)
    z[2, 0] = np.ma.masked
    z[3] = np.arange(3)  # integers, converted
    data[0] = data[2, 0] = np.ma.masked
    data[1, 1], data[3] = 9, np.arange(3)
    assert_same(z[...].masked(), data)


@pytest.mark.parametrize("kind", ["U", object, STRING, np.dtypes.StringDType(na_object=None)])
def test_plain_zarr_writes_masked_arrays_of_strings(kind, pipeline):
    array = nullable.create_array({}, data=["x", None, "z"])
    array.zarr_array[:] = np.ma.MaskedArray(np.array(["p", "q", "r"], dtype=kind), mask=[0, 1, 0])
    assert array[:].tolist() == ["p", None, "r"]


def test_plain_zarr_refuses_nullable_data_that_would_change(pipeline):
    array = nullable.create_array({}, data=[1, None], dtype="int8")
    for values in (np.array([np.nan, 0.0]), np.array([300, 0])):
        with pytest.raises(DataTypeError, match="and int8 cannot hold them all"):
            array.zarr_array[:] = NullableValues(values, np.array([False, True]))
    assert array[:].tolist() == [1, None]


def test_a_string_that_is_its_own_null_and_a_mask_are_both_null():
    text = np.array(["a", None, "c"], dtype=np.dtypes.StringDType(na_object=None))
    masked = np.ma.MaskedArray(text, mask=[0, 0, 1])
    assert nullable.create_array({}, data=masked)[:].tolist() == ["a", None, None]
    assert nullable.create_array({}, data=np.ma.MaskedArray(text))[:].tolist() == ["a", None, "c"]


@pytest.mark.parametrize("chosen", [{}, {"na_object": None}, {"na_object": np.nan}])
def test_a_handle_survives_pickling_with_what_was_chosen(chosen, tmp_path):
    nullable.create_array(tmp_path, data=["x", None])
    array = nullable.open_array(tmp_path, **chosen)
    copied = pickle.loads(pickle.dumps(array))
    assert type(copied[:]) is type(array[:])
    assert copied[:].dtype == array[:].dtype
    assert copied.read_nullable().tolist() == ["x", None]


def test_the_whole_array_survives_pickling(tmp_path):
    array = nullable.create_array(tmp_path / "a", data=[1, None, 3])
    z = pickle.loads(pickle.dumps(array.zarr_array))
    assert z[:].masked().tolist() == [1, None, 3]
    assert pickle.loads(pickle.dumps(z[:])).equals(z[:])
    assert pickle.loads(pickle.dumps((NULL, Some(3)))) == (NULL, Some(3))


# -- the handle


def test_a_handle_describes_its_array():
    array = nullable.create_array(
        {}, shape=(8, 4), dtype="int16", chunks=(2, 2), shards=(4, 4), fill_value=3, attributes={"k": 1}
    )
    assert (array.shape, array.ndim, array.size, len(array)) == ((8, 4), 2, 32, 8)
    assert (array.chunks, array.shards, array.dtype, array.depth) == ((2, 2), (4, 4), np.dtype("int16"), 1)
    assert array.fill_value == Some(np.int16(3))
    assert dict(array.attrs) == {"k": 1}
    assert "optional[int16]" in repr(array)


def test_only_nullable_arrays_get_a_handle():
    with pytest.raises(DataTypeError, match=r"has no nulls: open it with zarr\.open_array"):
        NullableArray(zarr.zeros(3))


@pytest.mark.parametrize(
    ("selection", "match"),
    [
        (([0, 9], [0, 0]), "out of bounds"),
        (([0, -4], [0, 0]), "out of bounds"),
        (np.zeros((2, 2), dtype=bool), "one mask of shape"),
        (([0],), "2 integer arrays"),
        (([0.5], [1]), "2 integer arrays"),
    ],
)
def test_points_that_are_not_there(selection, match):
    array = nullable.create_array({}, shape=(3, 3), dtype="int8")
    with pytest.raises(IndexError, match=match):
        array.vindex[selection]


def test_negative_points_count_from_the_end_and_results_keep_their_shape():
    array = nullable.create_array({}, data=np.arange(12).reshape(3, 4))
    rows = np.array([[0, -1], [1, 2]])
    assert array.vindex[rows, -1].tolist() == [[3, 11], [7, 11]]
    assert array.vindex[0, 1] == 1
    with pytest.raises(ValueError, match=r"the selection has shape \(2, 2\), but the data has shape \(2,\)"):
        array.vindex[rows, 0] = [1, 2]


def test_a_failed_conversion_changes_nothing():
    array = nullable.create_array({}, data=[1, 2])
    with pytest.raises(DataTypeError):
        array.append(["x"])
    assert array.shape == (2,)


def test_lists_of_indexes_and_masks_write_points():
    a = nullable.create_array({}, data=[1, 2, 3, 4], chunks=2)
    a[[0, 2]] = [None, 9]
    assert a[:].tolist() == [None, 2, 9, 4]
    a[np.array([True, False, False, True])] = [5, None]
    assert a[:].tolist() == [5, 2, 9, None]


def test_numpy_gets_plain_values_unless_there_is_a_null():
    assert np.asarray(nullable.create_array({}, data=[1, 2])).tolist() == [1, 2]
    with pytest.raises(NullsPresentError, match="1 of 2 elements are null"):
        np.asarray(nullable.create_array({}, data=[1, None]))


def test_plain_zarr_writes_values_in_the_other_byte_order():
    codec = nullable.NullableCodec(data_codecs=["packbits"])
    dtype = nullable.optional_dtype("<f8")
    z = zarr.create_array({}, shape=3, dtype=dtype, serializer=codec, compressors=None)
    z[:] = np.ma.masked_array(np.array([1.5, 2.5, 3.5], ">f8"), [False, True, False])
    assert z[:].tolist() == [1.5, None, 3.5]
