"""Logical arrays of nullable data: masked arrays, plain members among nullable ones, refusals."""

import itertools

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia
from intarsia.engine.prepared_member import EngineMember
from intarsia.errors import DataTypeError, MemberError, NullsPresentError, ReadError, ShapeError
from intarsia.manifest.data_types import write_decoded
from intarsia.nullable import NULL, NullableValues, Some, as_nullable, create_array, optional_dtype

GZIP, ZSTD = ["gzip"], [{"name": "zstd", "configuration": {"level": 1}}]


def same(got, model):
    assert isinstance(got, np.ma.MaskedArray) or got is np.ma.masked or np.ndim(got) == 0
    assert NullableValues.of(np.ma.asarray(got)).equals(NullableValues.of(np.ma.asarray(model)))


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return np.ma.MaskedArray(rng.random((20, 6)), mask=rng.random((20, 6)) < 0.3)


@pytest.fixture
def array(data):
    """Two regions: one with gzip, one with big endian values and zstd."""
    made = intarsia.create({}, "a", shape=(0, 6), chunks=(2, 3), dtype="optional[float64]")
    made.append(data[:8], codecs=GZIP)
    made.append(data[8:14], codecs=[{"name": "bytes", "configuration": {"endian": "big"}}, *ZSTD])
    made.append(data[14:])
    return made


@pytest.mark.parametrize("dtype", ["optional[float64]", optional_dtype("float64")])
def test_the_data_type_as_text_or_object(dtype, tmp_path):
    made = intarsia.create(tmp_path, "a", shape=(4,), dtype=dtype)
    assert made.fill_value is NULL
    assert made.dtype == np.dtype("float64")
    assert "optional[float64]" in repr(made)
    assert made[:].mask.all()
    opened = intarsia.open(tmp_path, "a")
    assert opened.manifest.data_type == optional_dtype("float64")
    assert opened[:].tolist() == [None] * 4


def test_regions_of_different_encodings_read_as_one(array, data):
    assert [region.codec_names for region in array.regions] == ["optional(gzip)", "optional(zstd)"]
    same(array[...], data)
    same(array[7:15, 1::2], data[7:15, 1::2])
    same(array.oindex[[19, 0, 9], [5, 1]], data[np.ix_([19, 0, 9], [5, 1])])
    same(array.vindex[[0, 9, 19], [1, 2, 3]], data[[0, 9, 19], [1, 2, 3]])
    same(array.vindex[data.data > 0.5], data[data.data > 0.5])
    same(array.lazy[3:17:2, 1:5].result(), data[3:17:2, 1:5])
    for row, expected in zip(array, data, strict=True):
        same(row, expected)


def test_writes(array, data):
    array[1:5, 2] = np.ma.masked
    data[1:5, 2] = np.ma.masked
    array[9] = [None, 1, 2, 3, 4, None]
    data[9] = np.ma.masked_equal([-1, 1, 2, 3, 4, -1], -1)
    array.vindex[[0, 1], [0, 0]] = np.ma.masked_equal([5.0, 6.0], 5.0)
    data[[0, 1], [0, 0]] = np.ma.masked_equal([5.0, 6.0], 5.0)
    wide = array.with_config(cross_region_writes=True)
    wide[6:16, 3:5] = data[:10, :2]
    data[6:16, 3:5] = data[:10, :2].copy()
    wide[0:20:3] = None
    data[0:20:3] = np.ma.masked
    same(array[...], data)


def test_changes_of_the_layout(array, data):
    array.recode([(4, 16), (0, 6)], codecs=ZSTD)
    same(array[...], data)
    array.drop_region([(2, 6), (0, 3)])
    data[2:6, 0:3] = np.ma.masked
    same(array[...], data)
    array.add_region([(2, 6), (0, 3)], codecs=GZIP, data=np.ones((4, 3)))
    data[2:6, 0:3] = 1
    same(array[...], data)
    array.resize((23, 6))
    grown = np.ma.masked_all((23, 6))
    grown[:20] = data
    same(array[...], grown)
    assert not intarsia.verify(array)
    intarsia.vacuum(array.store)
    same(intarsia.open(array.store, "a")[...], grown)


def test_numpy_gets_no_numbers_for_nulls(array):
    with pytest.raises(NullsPresentError, match="elements are null"):
        np.asarray(array)
    array.with_config(cross_region_writes=True)[...] = 3
    assert np.asarray(array, dtype="f4").sum() == 3 * 120


def test_a_fill_value_that_is_present():
    array = intarsia.create({}, "a", shape=(5,), chunks=(2,), dtype="optional[int16]", fill_value=7)
    array.add_region([(2, 4)], codecs=GZIP)
    array[3] = None
    assert array[...].tolist() == [7, 7, 7, None, 7]
    assert array.fill_value == Some(7)


def test_other_libraries_write(array, data):
    pd = pytest.importorskip("pandas")
    array[0] = pd.Series([1, None, 3, 4, 5, 6], dtype="Int64")
    assert array[0].tolist() == [1, None, 3, 4, 5, 6]
    pa = pytest.importorskip("pyarrow")
    array[1] = pa.array([1.5, None, 3, 4, 5, 6])
    assert array[1].tolist() == [1.5, None, 3, 4, 5, 6]


def test_nested_levels_and_strings():
    nested = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="optional[optional[int8]]")
    values = NullableValues(np.arange(5, dtype="i1"), np.array([0, 1, 2, 0, 1], dtype="u1"), 2)
    nested.append(values, codecs=GZIP)
    assert nested[:].equals(values)
    assert nested.vindex[[1, 2]].equals(values[[1, 2]])
    text = intarsia.create({}, "b", shape=(0,), chunks=(2,), dtype="optional[string]")
    text.append(["x", None, "y"], codecs=GZIP)
    text.append(np.array(["z"], dtype=np.dtypes.StringDType()))
    assert text[:].tolist() == ["x", None, "y", "z"]
    assert text.dtype == np.dtypes.StringDType()


def test_values_that_would_change_their_meaning_are_refused(array):
    small = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="optional[int8]")
    small.add_region([(0, 4)], codecs=GZIP)
    with pytest.raises(DataTypeError, match="cannot hold"):
        small[:] = np.ma.masked_equal([1, 2, 300, 4], 2)
    small[:] = np.ma.masked_equal([1, 2, 300, 4], 300)
    assert small[:].tolist() == [1, 2, None, 4]
    with pytest.raises(DataTypeError):
        array[0] = "text"
    with pytest.raises(ShapeError):
        array[0:2] = [1, None]


# -- plain members


@pytest.fixture
def mixed(data):
    """A plain member, then a nullable one."""
    array = intarsia.create({}, "a", shape=(12, 6), chunks=(2, 3), dtype="optional[float64]")
    plain = array.group.create_array("plain", shape=(8, 6), chunks=(4, 6), dtype="float64")
    plain[...] = data.data[:8]
    array.add_region([(0, 8), (0, 6)], member="plain")
    array.add_region([(8, 12), (0, 6)], codecs=GZIP, data=data[8:12])
    return array


def test_plain_members_are_all_valid(mixed, data):
    expected = np.ma.MaskedArray(data[:12].data, mask=data[:12].mask.copy())
    expected.mask[:8] = False
    same(mixed[...], expected)
    same(mixed[6:10, ::2], expected[6:10, ::2])
    same(mixed.vindex[[0, 11], [1, 2]], expected[[0, 11], [1, 2]])
    assert not intarsia.verify(mixed)


def test_a_null_for_a_plain_member_is_refused_before_anything_is_written(mixed, data):
    before = mixed[...]
    wide = mixed.with_config(cross_region_writes=True)
    with pytest.raises(
        NullsPresentError, match=r"are null, and the array behind .* float64.*\n.*arr\.recode"
    ):
        wide[...] = data[:12]
    with pytest.raises(NullsPresentError, match="recode"):
        mixed[0, 0] = None
    same(mixed[...], before)
    mixed[0, 0] = 9.0
    assert mixed[0, 0] == 9.0
    mixed.recode([(0, 8), (0, 6)], codecs=GZIP)
    mixed[0, 0] = None
    assert mixed[0, 0].mask


def test_appending_nulls_after_a_plain_member_starts_a_new_region(data):
    array = intarsia.create({}, "a", shape=(8, 6), chunks=(2, 3), dtype="optional[float64]")
    plain = array.group.create_array("plain", shape=(8, 6), chunks=(2, 6), dtype="float64")
    plain[...] = data.data[:8]
    array.add_region([(0, 8), (0, 6)], member="plain")
    array.append(data[8:10])
    array.append(data.data[10:12])
    assert len(array.regions) == 2
    expected = np.ma.MaskedArray(data[:12].data, mask=data[:12].mask.copy())
    expected.mask[:8] = expected.mask[10:] = False
    same(array[...], expected)


def test_members_of_another_type_are_refused(array):
    for name, dtype in (("ints", "int32"), ("strings", "string")):
        array.group.create_array(name, shape=(2, 6), dtype=dtype)
        array.resize((24, 6))
        with pytest.raises(
            (DataTypeError, MemberError), match=r"but the logical array is optional\[float64\]"
        ):
            array.add_region([(20, 22), (0, 6)], member=name)
    create_array(array.group.store, f"{array.group.path}/nested", shape=(2, 6), dtype="float64", depth=2)
    with pytest.raises((DataTypeError, MemberError), match=r"decodes to optional\[optional\[float64\]\]"):
        array.add_region([(20, 22), (0, 6)], member="nested")


def test_a_plain_logical_array_takes_no_nullable_member():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="float64")
    create_array(array.group.store, "a/nullable", data=[1.0, None, 3.0, 4.0])
    with pytest.raises((DataTypeError, MemberError), match=r"decodes to optional\[float64\]"):
        array.add_region([(0, 4)], member="nullable")


def test_codecs_as_a_whole_or_of_the_values():
    for codecs, names in (
        ([], ["optional(raw)"]),
        (["gzip"], ["optional(gzip)"]),
        ([{"name": "transpose", "configuration": {"order": [1, 0]}}], ["transpose+optional(raw)"]),
        ([{"name": "shuffle", "configuration": {"element_size": 8}}, "gzip"], ["optional(shuffle+gzip)"]),
        ([intarsia.nullable.NullableCodec(), "gzip"], ["optional(raw)+gzip"]),
        ([{"name": "scale_offset", "configuration": {"offset": 1}}, "gzip"], ["optional(scale_offset+gzip)"]),
    ):
        array = intarsia.create({}, "a", shape=(0, 3), chunks=(2, 3), dtype="optional[float64]")
        values = np.ma.masked_equal(np.arange(12.0).reshape(4, 3), 5)
        array.append(values, codecs=codecs)
        assert [region.codec_names for region in array.regions] == names
        same(array[...], values)


def test_codecs_chosen_by_the_data():
    values = np.ma.masked_less(np.arange(4000.0).reshape(100, 40) // 7, 5)
    array = intarsia.create({}, "a", shape=(0, 40), chunks=(50, 40), dtype="optional[float64]")
    array.append(values, codecs="auto")
    same(array[...], values)
    array.optimize("size")
    same(array[...], values)


def test_in_transactions(data):
    repo = icechunk.Repository.create(icechunk.in_memory_storage())
    with intarsia.transaction(repo, message="first") as tx:
        tx.create("a", shape=(0, 6), chunks=(2, 3), dtype="optional[float64]")
    intarsia.append(repo, "a", data[:7], codecs=GZIP)
    intarsia.append(repo, "a", data[7:], codecs=ZSTD)
    same(intarsia.open(repo, "a")[...], data)


@settings(
    max_examples=max(10, settings().max_examples // 2),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_layout_of_regions_gives_what_masked_arrays_give(data):
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    model = np.ma.MaskedArray(rng.integers(0, 9, (12, 5)), mask=rng.random((12, 5)) < 0.4)
    array = intarsia.create({}, "a", shape=(12, 5), chunks=(2, 2), dtype="optional[int64]")
    edges = sorted({0, 12, *draw(st.lists(st.sampled_from(range(0, 12, 2)), max_size=4))})
    for i, (a, b) in enumerate(itertools.pairwise(edges)):
        kind = draw(st.sampled_from(["nullable", "plain", "hole"]))
        if kind == "hole":
            model[a:b] = np.ma.masked
        elif kind == "plain":
            model.mask[a:b] = False
            name = f"plain-{i}"
            array.group.create_array(name, shape=(b - a, 5), dtype="int64")[...] = model.data[a:b]
            array.add_region([(a, b), (0, 5)], member=name)
        else:
            array.add_region([(a, b), (0, 5)], codecs=draw(st.sampled_from([GZIP, ZSTD])), data=model[a:b])
    for _ in range(3):
        rows = slice(draw(st.integers(0, 11)), draw(st.integers(1, 12)), draw(st.integers(1, 3)))
        columns = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
        same(array[rows], model[rows])
        same(array.oindex[rows, columns], model[rows][:, columns])
        points = draw(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 4)), min_size=1, max_size=6))
        places = tuple(map(list, zip(*points, strict=True)))
        same(array.vindex[places], model[places])


def test_zarr_reads_the_members(array, data):
    (first, *_), (last, *_) = array.members.values(), reversed(list(array.members.values()))
    assert zarr.open_array(first.store_path)[:2].equals(as_nullable(data[:2]))
    assert last.metadata.data_type == optional_dtype("float64")


def test_damage_names_region_member_and_chunk(tmp_path, data):
    array = intarsia.create(tmp_path, "a", shape=(0, 6), chunks=(2, 3), dtype="optional[float64]")
    array.append(data, codecs=GZIP)
    (name,) = array.members
    (tmp_path / "a" / name / "c/3/1").write_bytes(b"short")
    with pytest.raises(ReadError, match=rf"\[0:20, 0:6\].*{name}, chunk \(3, 1\): codec 'optional': 5 bytes"):
        array[...]
    same(array[:6], data[:6])
    assert intarsia.verify(array)


def test_nullable_members_are_read_by_the_engine(array):
    for name in array.members:
        assert isinstance(array._logical.state.source(name), EngineMember)


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "f8", "c16", "M8[s]", "S3"])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 32, 33])
@pytest.mark.parametrize(
    "target",
    [
        ...,
        np.s_[:, 0:1, 2:-1],
        np.s_[::2, 1:2, :-3],
        np.s_[::-1, 1:2, :-3],
        np.s_[:, 0:1, -4::-1],
        np.s_[:, 0:1, 1:-1:2],
        (np.arange(3000)[::-1], slice(1), slice(3)),
    ],
)
def test_chunks_of_short_rows_are_written_as_numpy_writes_them(dtype, length, target):
    numbers = np.random.default_rng(0).integers(0, 100, (3000, 2, length + 3)).astype("u1")
    out = numbers.astype(dtype)
    expected = out.copy()
    values = (100 + numbers).astype(dtype)[target].copy()
    expected[target] = values
    write_decoded(out, target, values)
    np.testing.assert_array_equal(out, expected)
    write_decoded(out, target, expected[target])  # not contiguous, and in part of the same memory
    np.testing.assert_array_equal(out, expected)
    if out.dtype.kind == "f":
        expected[target] = values.astype("f2")
        write_decoded(out, target, values.astype("f2"))
        np.testing.assert_array_equal(out, expected)


def test_arrays_of_short_rows_read_as_in_zarr():
    data = np.random.default_rng(0).random((5000, 3, 1, 10))
    z = zarr.create_array({}, data=data, chunks=(1500, 1, 1, 5), compressors=None)
    reader = intarsia.reader(z)
    for selection in (np.s_[...], np.s_[15:-15], np.s_[:, 0:2, 0], np.s_[::-3], np.s_[..., 1:9]):
        np.testing.assert_array_equal(reader[selection], data[selection])
