"""Packed regions, and regions that look at their members through views, equal NumPy: reads and writes."""

import pickle
from unittest import mock

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia import Packing, View
from intarsia.engine import prepared_member
from intarsia.engine.plan import plan
from intarsia.engine.request import parse_selection
from intarsia.errors import (
    DataTypeError,
    MemberError,
    MissingMemberError,
    NoRegionError,
    PackingError,
    ReadError,
    ShapeError,
)
from tests.grids import dear
from tests.logical import backings
from tests.logical import strategies as s

BACKED = backings.arrays() | backings.series()


@pytest.fixture(params=["engine", "zarr"], scope="module")
def reader(request):
    """Runs the test with the engine, and with everything left to zarr."""
    if request.param == "engine":
        yield
    else:
        with mock.patch.object(
            prepared_member, "Decoder", side_effect=prepared_member._ObstacleError("a test")
        ):
            yield


def same(got, expected):
    np.testing.assert_array_equal(got, expected)
    assert got.shape == np.shape(expected)


@dear
@given(st.data())
def test_basic_selections(reader, data):
    array, model = data.draw(BACKED)
    same(array[...], model)
    selection = data.draw(s.basic(model.shape))
    same(array[selection], model[selection])


@dear
@given(st.data())
def test_orthogonal_selections(reader, data):
    array, model = data.draw(BACKED)
    selection = data.draw(s.orthogonal(model.shape))
    same(array.oindex[selection], s.by_numpy_orthogonal(model, selection))


@dear
@given(st.data())
def test_points(reader, data):
    array, model = data.draw(BACKED)
    if model.ndim:
        selection = data.draw(s.points(model.shape))
        same(array.vindex[selection], model[selection])
        mask = data.draw(s.masks(model.shape))
        same(array[mask], model[mask])


@pytest.mark.parametrize("data_type", ["float64", "optional[int32]"])
def test_points_in_a_member_without_axes(reader, data_type):
    array = intarsia.create({}, "a", shape=(2, 3), chunks=(1, 1), dtype=data_type)
    create = zarr.create_array if data_type == "float64" else intarsia.nullable.create_array
    create(array.group.store_path / "m", shape=(), chunks=(), dtype=data_type)[...] = 7
    array.add_region(((0, 1), (0, 1)), member="m", view=View.identity(0).expand(0).expand(0))
    assert array.vindex[[0, 0], [0, 0]].tolist() == [7, 7]
    assert array[np.array([[True, False, False], [False, False, False]])].tolist() == [7]


@dear
@given(st.data())
def test_lazy_views(reader, data):
    array, model = data.draw(BACKED)
    first = data.draw(s.basic(model.shape))
    same(array.lazy[first].result(), model[first])


def test_a_lazy_view_of_a_nullable_array_travels(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(0,), chunks=(2,), dtype="optional[int32]")
    array.append(np.ma.masked_equal([1, 2, 3, 4], 3))
    assert pickle.loads(pickle.dumps(array.lazy[1:])).result().tolist() == [2, None, 4]


def written(array, model, places, values):
    """The model after a write to some places, all in regions: as packed as the regions have it."""
    expected = model.copy()
    expected[places] = values
    touched = np.zeros(model.shape, dtype=bool)
    touched[places] = True
    for region in array.regions:
        inside = np.zeros(model.shape, dtype=bool)
        inside[tuple(slice(a, b) for a, b in region.bounds)] = True
        inside &= touched
        if region.packing is not None:
            expected[inside] = region.packing.decode(region.packing.encode(expected[inside]))
        touched &= ~inside
    return None if touched.any() else expected  # some in a hole


@dear
@given(st.data())
def test_writes(reader, data):
    array, model = data.draw(BACKED)
    array = array.with_config(cross_region_writes=True)
    selection = data.draw(s.orthogonal(model.shape))
    places = [
        np.arange(n)[entry] if np.ndim(entry) or isinstance(entry, slice) else np.array([entry])
        for entry, n in zip(selection, model.shape, strict=True)
    ]
    # Which one wins of an element that is written twice is nobody's promise, so both are equal.
    sums = np.ix_(*(axis % n * 3 % 7 for axis, n in zip(places, model.shape, strict=True)))
    values = np.asarray(sum(sums), dtype=float)
    expected = written(array, model, np.ix_(*places) if places else ..., values)
    if expected is None:
        with pytest.raises(NoRegionError):
            array.oindex[selection] = 1
    else:
        array.oindex[selection] = values.reshape(array.oindex[selection].shape)
        same(array[...], expected)


@dear
@given(st.data())
def test_writes_of_one_value(reader, data):
    array, model = data.draw(BACKED)
    array = array.with_config(cross_region_writes=True)
    selection = data.draw(s.basic(model.shape))
    expected = written(array, model, selection, 12.5)
    if expected is not None:
        array[selection] = 12.5
        same(array[...], expected)


@dear
@given(st.data())
def test_writes_to_points(reader, data):
    array, model = data.draw(BACKED)
    array = array.with_config(cross_region_writes=True)
    if model.ndim:
        mask = data.draw(s.masks(model.shape))
        values = np.arange(mask.sum()) % 20 + 0.25
        expected = written(array, model, mask, values)
        if expected is not None:
            array.vindex[mask] = values
            same(array[...], expected)


def test_a_value_that_a_region_cannot_hold_is_refused_and_nothing_is_written():
    array = intarsia.create({}, "a", shape=(6, 4), chunks=(2, 2), dtype="float64")
    array.add_region(((0, 2), (0, 4)), data=np.ones((2, 4)))
    array.group.create_array("turned", data=np.full((4, 4), 7, dtype="uint8"))
    view = View.identity(2).transpose(1, 0).flip(0, length=4)
    array.add_region(((2, 6), (0, 4)), member="turned", packing=Packing("uint8", scale=0.5), view=view)
    before = array[...]
    values = np.full((6, 4), 2.0)
    values[4, 1] = 1000
    across = array.with_config(cross_region_writes=True)
    writes = {
        "slices": lambda: across.__setitem__(..., values),
        "upside down": lambda: across.__setitem__(np.s_[::-1, ::-1], values[::-1, ::-1]),
        "outer": lambda: across.oindex.__setitem__(([1, 4], [3, 1]), values[[1, 4]][:, [3, 1]]),
        "points": lambda: across.vindex.__setitem__(([1, 4], [3, 1]), values[[1, 4], [3, 1]]),
        "one value": lambda: across.__setitem__((4, 1), 1000),
    }
    for name, write in writes.items():
        with pytest.raises(PackingError, match=r"region \[2:6, 0:4\].*: cannot hold 1000.0: values lie"):
            write()
        same(array[...], before), name


def test_data_that_a_packing_cannot_hold_leaves_no_region():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="float64")
    packing = Packing("uint8", scale=0.5)
    with pytest.raises(PackingError, match=r"cannot hold -1.0 \(at \[1\]\)"):
        array.add_region([(2, 4)], data=[0, -1], packing=packing)
    assert not array.regions
    assert not list(array.group.members())


def test_a_packed_region_without_data_reads_as_the_fill_value_or_as_missing():
    array = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype="float64", fill_value=3)
    array.add_region([(0, 2)], packing={"stored": "uint8", "scale": 0.5, "missing": 9})
    array.add_region([(2, 4)], packing={"stored": "uint8", "offset": 50.0, "missing": 9})
    array.add_region([(4, 6)], packing={"stored": "uint8", "offset": 50.0}, fill_value=51)
    same(array[...], [3, 3, np.nan, np.nan, 51, 51, 3, 3])
    with pytest.raises(PackingError, match="holds neither the array's fill value"):
        array.add_region([(6, 8)], packing={"stored": "uint8", "offset": 50.0})
    assert len(array.regions) == 3


def test_a_region_is_refused_if_its_packing_or_view_does_not_fit_the_array_or_the_member():
    array = intarsia.create({}, "a", shape=(4, 6), chunks=(2, 3), dtype="float32")
    array.group.create_array("there", data=np.ones((6, 4), dtype="int16"))
    whole, turned = ((0, 4), (0, 6)), View.identity(2).transpose(1, 0)
    for error, message, options in [
        (PackingError, "values='float32'", {"packing": Packing("int16", scale=0.1)}),
        (PackingError, "not the arguments of a packing", {"packing": {"scale": 0.1}}),
        (PackingError, "neither a Packing", {"packing": "int16"}),
        (DataTypeError, "decodes to int16, but the logical array is float32", {"view": turned}),
        (
            DataTypeError,
            "decodes to int16, but the packing of its regions is of int8",
            {"packing": {"stored": "int8"}},
        ),
        (MemberError, "its shape is", {"packing": {"stored": "int16"}}),
        (ShapeError, "input_rank: 3, but shape has 2 axes", {"view": View.identity(2).expand(0)}),
        (ShapeError, "axis 0 is new", {"view": View.identity(1).expand(0)}),
        (ShapeError, "where no member can be", {"view": turned.flip(0, length=2)}),
        (ShapeError, "view={'axes': 3}: .*unknown field axes", {"view": {"axes": 3}}),
    ]:
        with pytest.raises(error, match=message):
            array.add_region(whole, member="there", **options)
    with pytest.raises(ShapeError, match="give member="):
        array.add_region(whole, view=turned)
    assert array.generation == 0
    array.add_region(whole, member="there", packing={"stored": "int16"}, view=turned.to_json())
    assert array.regions[0].view == turned
    assert array.regions[0].packing == Packing("int16", values="float32")
    assert array.regions[0].member_bounds == ((0, 6), (0, 4))


def test_a_view_that_changes_nothing_is_none():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="uint8")
    array.group.create_array("there", data=np.ones(4, dtype="uint8"))
    array.add_region([(0, 4)], member="there", view=View.identity(1).flip(0, length=4).flip(0, length=4))
    assert array.regions[0].view is None
    assert array.manifest.version == 1


def test_nullable_arrays_have_views_and_no_packings():
    array = intarsia.create({}, "a", shape=(1, 3, 2), chunks=(1, 2, 2), dtype="optional[int16]")
    values = np.ma.masked_equal(np.arange(6).reshape(2, 3), 4)
    intarsia.nullable.create_array(
        array.group.store_path, name="there", data=values.astype("int16"), chunks=(1, 2)
    )
    view = View.identity(2).transpose(1, 0).flip(0, length=3).expand(0)
    array.add_region(((0, 1), (0, 3), (0, 2)), member="there", view=view)
    model = values.T[::-1][None]
    assert array[...].tolist() == model.tolist()
    assert array.oindex[[0, 0], [2, 0], :].tolist() == model[np.ix_([0, 0], [2, 0])].tolist()
    assert array.vindex[[0, 0], [1, 2], [1, 0]].tolist() == model[[0, 0], [1, 2], [1, 0]].tolist()
    array[0, 1:, 0] = np.ma.masked_equal([5, 7], 7)
    array.vindex[[0], [0], [0]] = 9
    assert array[..., 0].tolist() == [[9, 5, None]]
    assert array[..., 1].tolist() == model[..., 1].tolist()
    with pytest.raises(PackingError, match="cannot hold"):
        array.add_region(((0, 1), (0, 3), (0, 2)), packing={"stored": "int16"})


def test_damaged_and_missing_members_never_become_fill_values():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="float64")
    array.add_region([(0, 4)], data=[1, 2, 3, 4], packing={"stored": "int16", "missing": 9}, codecs=["zstd"])
    store, member = array.store, array.regions[0].name
    key = f"a/{member}/c/1"
    store._store_dict[key] = store._store_dict[key][:5]
    with pytest.raises(ReadError, match=rf"region \[0:4\].*member {member}.* chunk \(1,\)"):
        array[...]
    same(array[:2], [1, 2])
    assert [problem.kind for problem in intarsia.verify(array)] == ["data"]
    array.group.store_path.store._store_dict.pop(f"a/{member}/zarr.json")
    with pytest.raises(MissingMemberError):
        intarsia.open(store, "a")[...]


def packed_series(count, chunks, **options):
    """As many regions of one element, each with its own scale, in one member of ones."""
    array = intarsia.create({}, "a", shape=(count,), chunks=(1,), dtype="float64")
    array.group.create_array("m", data=np.ones(count, dtype="int16"), chunks=chunks, **options)
    for i in range(count):
        packing = Packing("int16", scale=float(i), missing=-1)
        array.add_region([(i, i + 1)], member="m", member_start=[i], packing=packing)
    return array


@pytest.mark.parametrize("chunks", [(1,), (4,)])
def test_regions_of_one_member_that_differ_in_their_packings_are_read_as_one_part(chunks):
    array = packed_series(9, chunks)
    asked = parse_selection(array.shape, np.s_[1:])
    (part,) = plan(array.manifest, asked, by_strips=True).parts
    assert part.strip.rows.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(plan(array.manifest, asked).parts) == 8
    same(array[...], np.arange(9.0))
    same(array[::-2], np.arange(9.0)[::-2])
    same(array.oindex[[5, 2, 5]], [5, 2, 5])
    same(array.vindex[[5, 2, 5]], [5, 2, 5])
    array.drop_region([(4, 5)])
    assert len(plan(array.manifest, asked, by_strips=True).parts) == 2
    same(array[...], [0, 1, 2, 3, 0, 5, 6, 7, 8])
    assert [part.bounds for part in intarsia.explain(array, np.s_[2:4]).parts] == [((2, 3),), ((3, 4),)]


def test_what_is_wrong_with_one_of_many_regions_is_told_of_that_one_alone():
    array = packed_series(6, (1,), compressors=zarr.codecs.ZstdCodec())
    data = array.store._store_dict
    data["a/m/c/3"] = data["a/m/c/3"][:5]
    with pytest.raises(ReadError, match=r"region \[3:4\] .*chunk \(3,\)"):
        array[...]
    same(array[:3], [0, 1, 2])
    del data["a/m/c/3"]
    same(array[...], [0, 1, 2, 0, 4, 5])
    array.members["m"].resize((5,))
    again = intarsia.open(array.store, "a")
    with pytest.raises(MemberError, match=r"cannot back the region \[5:6\]: its shape is \(5,\)"):
        again[2:]
    same(again[2:5], [2, 0, 4])


def test_explain_tells_of_packings_and_views():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="float64")
    array.group.create_array("there", data=np.zeros(4, dtype="int8"), compressors=None)
    array.add_region(
        [(0, 4)], member="there", packing=Packing("int8", scale=0.5), view=View.identity(1).flip(0, 4)
    )
    (part,) = intarsia.explain(array, ...).parts
    assert (part.packing, part.view) == ("int8 * 0.5", "[-0]")
    assert "int8 * 0.5; [-0]" in str(intarsia.explain(array, ...))
