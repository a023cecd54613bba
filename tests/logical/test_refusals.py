"""Bad input: the right error, a message that helps, and not one stored byte changed."""

import numpy as np
import pytest
import zarr

import intarsia
from tests.logical.stores import memory, stored


@pytest.fixture
def case():
    store = memory()
    array = intarsia.create(store, "a", shape=(1000, 1000), chunks=(100, 100), dtype="int16")
    array.add_region(((0, 500), (0, 1000)), codecs=["zstd"], data=np.ones((500, 1000), dtype="i2"))
    array.add_region(((500, 800), (0, 1000)), codecs=["gzip"], data=np.ones((300, 1000), dtype="i2"))
    return store, array


REFUSALS = {
    "a write across regions": (
        lambda a: a.__setitem__(np.s_[450:550, 0:1000], 1),
        intarsia.errors.CrossRegionWriteError,
        r"the write to \[450:550, 0:1000\] touches 2 regions: \[0:500, 0:1000\] \(m-\w{4}, zstd\) and "
        r"\[500:800, 0:1000\] \(m-\w{4}, gzip\)\.\n  Write them one by one, or allow it: "
        r"arr\.with_config\(cross_region_writes=True\)",
    ),
    "a write to points across regions": (
        lambda a: a.vindex.__setitem__(([1, 700], [2, 3]), 1),
        intarsia.errors.CrossRegionWriteError,
        "touches 2 regions",
    ),
    "a write into a hole": (
        lambda a: a.__setitem__(np.s_[850:860], 1),
        intarsia.errors.NoRegionError,
        r"10000 of 10000\.\n  Add a region there first: arr\.add_region",
    ),
    "a write half into a hole": (
        lambda a: a.with_config(cross_region_writes=True).__setitem__(np.s_[790:810], 1),
        intarsia.errors.NoRegionError,
        "10000 of 20000",
    ),
    "bounds off the lattice": (
        lambda a: a.add_region(((810, 950), (0, 1000)), codecs=[]),
        intarsia.errors.AlignmentError,
        r"nearest aligned bounds around them are \[800:1000, 0:1000\]",
    ),
    "a recode off the lattice": (
        lambda a: a.recode(((0, 150), (0, 1000)), codecs=[]),
        intarsia.errors.AlignmentError,
        r"\[0:200, 0:1000\]",
    ),
    "an overlapping region": (
        lambda a: a.add_region(((700, 900), (0, 1000)), codecs=[]),
        intarsia.errors.OverlapError,
        r"the regions \[500:800, 0:1000\] and \[700:900, 0:1000\] overlap",
    ),
    "fractions into integers": (
        lambda a: a.__setitem__(np.s_[0, 0], 1.5),
        intarsia.errors.DataTypeError,
        r"the values are float64, and int16 cannot hold them all.*\n  Convert them first",
    ),
    "integers that do not fit": (
        lambda a: a.append(np.full((1, 1000), 70_000)),
        intarsia.errors.DataTypeError,
        "cannot hold them all",
    ),
    "text into numbers": (
        lambda a: a.append(np.full((1, 1000), "1")),
        intarsia.errors.DataTypeError,
        "cannot hold them all",
    ),
    "data of the wrong shape": (
        lambda a: a.add_region(((800, 900), (0, 1000)), codecs=[], data=np.ones((99, 1000), dtype="i2")),
        intarsia.errors.ShapeError,
        r"the data has shape \(99, 1000\), but the region \[800:900, 0:1000\] needs the shape \(100, 1000\)",
    ),
    "values that do not broadcast": (
        lambda a: a.__setitem__(np.s_[0:10, 0:10], np.ones((3, 10), dtype="i2")),
        intarsia.errors.ShapeError,
        r"values of shape \(3, 10\) do not fit the selection, whose shape is \(10, 10\)",
    ),
    "an append of the wrong shape": (
        lambda a: a.append(np.ones((5, 999), dtype="i2")),
        intarsia.errors.ShapeError,
        r"\(5, 999\), but data to append along axis 0 needs the shape \(5, 1000\)",
    ),
    "an append of the wrong dimensions": (
        lambda a: a.append(np.ones(1000, dtype="i2")),
        intarsia.errors.ShapeError,
        r"the data has shape \(\d+,\), but data to append along axis 0 needs the shape",
    ),
    "an axis that is not there": (
        lambda a: a.append(np.ones((5, 1000), dtype="i2"), axis=2),
        intarsia.errors.BoundsError,
        "axis 2 is out of bounds",
    ),
    "bounds outside": (
        lambda a: a.add_region(((800, 1100), (0, 1000)), codecs=[]),
        intarsia.errors.BoundsError,
        r"outside the array, whose shape is \(1000, 1000\)",
    ),
    "bounds of too few axes": (
        lambda a: a.add_region(((800, 900),), codecs=[]),
        intarsia.errors.ShapeError,
        r"give a pair of integers \(start, stop\) for each of the 2 axes",
    ),
    "bounds that are fractions": (
        lambda a: a.recode(((0, 100.5), (0, 1000)), codecs=[]),
        intarsia.errors.ShapeError,
        "a pair of integers",
    ),
    "attributes that are no JSON": (lambda a: a.attrs.update(x=object()), TypeError, "JSON"),
    "empty bounds": (
        lambda a: a.drop_region(((800, 800), (0, 1000))),
        intarsia.errors.BoundsError,
        "empty or outside",
    ),
    "dropping a hole": (
        lambda a: a.drop_region(((800, 900), (0, 1000))),
        intarsia.errors.NoRegionError,
        "nothing to drop",
    ),
    "recoding a hole": (
        lambda a: a.recode(((800, 900), (0, 1000)), codecs=[]),
        intarsia.errors.NoRegionError,
        "nothing to recode",
    ),
    "an index outside": (lambda a: a[1000, 0], IndexError, "out of bounds"),
    "too many indices": (lambda a: a[0, 0, 0], IndexError, "too many indices"),
    "an ambiguous selection": (lambda a: a[[0, 1], [0, 1], ...], IndexError, r"array\.oindex"),
    "a shape of other dimensions": (
        lambda a: a.resize((10,)),
        intarsia.errors.ShapeError,
        "does not have 2 sizes",
    ),
    "a negative shape": (lambda a: a.resize((10, -1)), intarsia.errors.ShapeError, "at least 0"),
    "codecs out of order": (
        lambda a: a.recode(((0, 500), (0, 1000)), codecs=["gzip", "bytes"]),
        intarsia.errors.CodecConfigurationError,
        "are no chain",
    ),
    "an unknown codec": (
        lambda a: a.recode(((0, 500), (0, 1000)), codecs=["no-such-codec"]),
        intarsia.errors.CodecConfigurationError,
        "no codec 'no-such-codec': there are .*blosc, bytes",
    ),
    "a misspelt codec": (
        lambda a: a.recode(((0, 500), (0, 1000)), codecs="zsdt"),
        intarsia.errors.CodecConfigurationError,
        "no codec 'zsdt': did you mean 'zstd'",
    ),
    "a codec as commands take it": (
        lambda a: a.recode(((0, 500), (0, 1000)), codecs=["zstd:level=3"]),
        intarsia.errors.CodecConfigurationError,
        r"did you mean 'zstd'.*\n  Options are given as \{'name': 'zstd'",
    ),
    "a misspelt option of zarr's codec": (
        lambda a: a.recode(((0, 500), (0, 1000)), codecs=[{"name": "zstd", "configuration": {"levle": 3}}]),
        intarsia.errors.CodecConfigurationError,
        "codec 'zstd': .*unexpected keyword argument 'levle'",
    ),
    "a misspelt option of ours": (
        lambda a: a.recode(
            ((0, 500), (0, 1000)), codecs=[{"name": "shuffle", "configuration": {"elementsize": 3}}]
        ),
        intarsia.errors.CodecConfigurationError,
        r"codec 'shuffle'.*unknown field `elementsize`.\n  Its options are element_size",
    ),
    "chunks of too few axes": (
        lambda a: a.recode(((0, 500), (0, 1000)), codecs=[], chunks=(10,)),
        intarsia.errors.ShapeError,
        "chunks has 1 dimensions but shape has 2",
    ),
    "a member that is not there": (
        lambda a: a.add_region(((800, 900), (0, 1000)), member="m-nothing"),
        intarsia.errors.MissingMemberError,
        "m-nothing",
    ),
    "a region index outside": (
        lambda a: a.region_at((0, 1000)),
        intarsia.errors.BoundsError,
        "out of bounds",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_is_refused_and_changes_nothing(name, case):
    store, array = case
    action, error, match = REFUSALS[name]
    before, generation = stored(store), array.generation
    with pytest.raises(error, match=match):
        action(array)
    assert stored(store) == before
    assert array.generation == generation
    np.testing.assert_array_equal(array[::50, ::50], intarsia.open(store, "a")[::50, ::50])


def test_dimensions_in_another_order_are_put_in_order():
    xr = pytest.importorskip("xarray")
    array = intarsia.create({}, "a", shape=(0, 2), chunks=(2, 2), dtype="i8", dimension_names=("time", "x"))
    turned = xr.DataArray([[0, 1], [2, 3]], dims=("x", "time"))
    array.append(turned)
    assert array[...].tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize("dtype", ["float32", "optional[float32]"])
def test_values_that_would_change_are_taken_only_if_asked_for(dtype):
    array = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype=dtype)
    changing = np.array([2**24 + 1, 0])
    with pytest.raises(intarsia.errors.DataTypeError, match="16777217 would become"):
        array.add_region([(0, 2)], data=changing)
    array.add_region([(0, 2)], data=changing, casting="unsafe")
    with pytest.raises(intarsia.errors.DataTypeError, match="16777217 would become"):
        array.append(changing)
    array.append(changing, casting="unsafe")
    with pytest.raises(intarsia.errors.DataTypeError, match="16777217 would become"):
        array[8:] = changing
    array.with_config(casting="unsafe")[8:] = changing
    assert array[0] == array[8] == 2**24
    with pytest.raises(ValueError, match="'same_kind' or 'unsafe'"):
        array.with_config(casting="no")


READ_ONLY = {
    "write": lambda a: a.__setitem__(np.s_[0, 0], 1),
    "append": lambda a: a.append(np.ones((1, 1000), dtype="i2")),
    "add": lambda a: a.add_region(((800, 900), (0, 1000)), codecs=[]),
    "recode": lambda a: a.recode(((0, 500), (0, 1000)), codecs=[]),
    "drop": lambda a: a.drop_region(((0, 500), (0, 1000))),
    "resize": lambda a: a.resize((5, 5)),
    "attributes": lambda a: a.attrs.update(x=1),
}


@pytest.mark.parametrize("name", READ_ONLY)
def test_an_array_opened_for_reading_refuses_changes(name, case):
    store, _ = case
    before = stored(store)
    with pytest.raises(intarsia.errors.ReadOnlyError, match=r"opened for reading(.|\n)*Open it for writing"):
        READ_ONLY[name](intarsia.open(store, "a", mode="r"))
    assert stored(store) == before


def test_a_member_of_another_data_type_is_refused(case):
    store, array = case
    array.group.create_array("m-float", shape=(100, 1000), dtype="f4")
    array.group.create_array("m-small", shape=(10, 1000), dtype="i2")
    before = stored(store)
    with pytest.raises(
        intarsia.errors.DataTypeError, match="decodes to float32, but the logical array is int16"
    ):
        array.add_region(((800, 900), (0, 1000)), member="m-float")
    with pytest.raises(
        intarsia.errors.MemberError, match=r"shape is \(10, 1000\), but its regions need at least"
    ):
        array.add_region(((800, 900), (0, 1000)), member="m-small")
    assert stored(store) == before


@pytest.mark.parametrize(
    ("what", "error", "match"),
    [
        ({"shape": (4,), "chunks": (0,)}, intarsia.errors.ShapeError, "chunk_shape"),
        ({"shape": (4,), "chunks": (2, 2)}, intarsia.errors.ShapeError, "2 axes, but shape has 1"),
        ({"shape": (-4,), "chunks": (2,)}, intarsia.errors.ShapeError, "shape"),
        (
            {"shape": (4,), "chunks": (2,), "dimension_names": ("x", "y")},
            intarsia.errors.ShapeError,
            "dimension_names: 2 axes, but shape has 1",
        ),
        ({"shape": (4,), "chunks": (2,), "attributes": {"intarsia": 1}}, KeyError, "belongs to intarsia"),
    ],
)
def test_create_refuses_nonsense_before_writing(what, error, match):
    store = memory()
    with pytest.raises(error, match=match):
        intarsia.create(store, "a", dtype="f4", **what)
    assert stored(store) == {}


def test_opening_what_is_not_there_says_so(tmp_path):
    store = memory()
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match="no logical array at 'a'"):
        intarsia.open(store, "a")
    zarr.create_group(store, path="g")
    with pytest.raises(
        intarsia.errors.NotLogicalArrayError, match=r"is a Zarr group, but not a logical array"
    ):
        intarsia.open(store, "g")
    zarr.create_array(store, name="z", shape=3, dtype="u1")
    zarr.create_array(store, name="g/old", shape=3, dtype="u1", zarr_format=2)
    for path, form in (("z", 3), ("g/old", 2)):
        words = rf"no logical array at '{path}', but a plain Zarr array of format {form}.\n.*intarsia\.reader"
        with pytest.raises(intarsia.errors.NotLogicalArrayError, match=words):
            intarsia.open(store, path)
        with pytest.raises(intarsia.errors.NotLogicalArrayError, match=words):
            intarsia.write_report(store, path, tmp_path / "page.html")
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match=r"not a logical array.\n.*is only old"):
        intarsia.open(store, "g")
    with pytest.raises(ValueError, match="mode 'a' is not"):
        intarsia.open(store, "a", mode="a")
    with pytest.raises(intarsia.errors.NotLogicalArrayError):
        intarsia.open(tmp_path / "nowhere", "a")
    assert not (tmp_path / "nowhere").exists()


def test_a_write_that_fails_midway_leaves_no_member_behind(case, monkeypatch):
    store, array = case
    before = stored(store)

    chunks = iter(range(3))
    put = zarr.storage.MemoryStore.set_sync

    def fill_up(self, key, value):
        if "/c/" in key and next(chunks, None) is None:
            raise OSError("disk full")
        put(self, key, value)

    monkeypatch.setattr(zarr.storage.MemoryStore, "set_sync", fill_up)
    with pytest.raises(OSError, match="disk full"):
        array.add_region(((800, 900), (0, 1000)), codecs=[], data=np.ones((100, 1000), dtype="i2"))
    with pytest.raises(OSError, match="disk full"):
        array.recode(((0, 500), (0, 1000)), codecs=[])
    monkeypatch.undo()
    assert stored(store) == before


def test_masked_values_are_refused_where_there_is_no_null():
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="int16")
    with pytest.raises(intarsia.errors.NullsPresentError, match="1 of 2 values are masked"):
        array.append(np.ma.masked_array([1, 2], mask=[0, 1]))
    array.append(np.ma.masked_array([1, 2], mask=[0, 0]))
    assert array[...].tolist() == [1, 2]


@pytest.mark.parametrize("values", [["a", None], np.array(["a", None], dtype=object)])
def test_texts_that_are_not_there_are_refused_where_there_is_no_null(values):
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="string")
    with pytest.raises(intarsia.errors.NullsPresentError, match="1 of 2 values"):
        array.append(values)
    with pytest.raises(intarsia.errors.DataTypeError, match="int, str"):
        array.append(["a", 1])


def test_a_path_is_no_array():
    for function in (intarsia.fuse, intarsia.split, intarsia.region_map, intarsia.explain):
        with pytest.raises(
            TypeError, match=rf"takes an array, not a 'str'(.|\n)*intarsia\.{function.__name__}\("
        ):
            function("data/store")


def test_what_is_no_store_is_named(tmp_path):
    (tmp_path / "file").touch()
    for place, what in ((tmp_path, "directory"), (tmp_path / "file", "file")):
        for opener in (intarsia.open, intarsia.reader, intarsia.verify):
            with pytest.raises(intarsia.IntarsiaError, match=rf"{place} is a {what}, not a store"):
                opener(place, "a")
    with pytest.raises(FileNotFoundError, match=r"is a file, not an Icechunk repository(.|\n)*ingest\(files"):
        intarsia.open_repository(tmp_path / "file", create=True)
