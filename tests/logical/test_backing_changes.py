"""Appends, recodes, joins and resizes of packed regions, and of those that look at members through views."""

import numpy as np
import pytest

import intarsia
from intarsia import Packing, View
from intarsia.errors import PackingError

HALVES = Packing("int16", scale=0.5, missing=-1)
TENTHS = Packing("int16", scale=0.1, missing=-1)


def created(shape=(4,), chunks=(2,), **options):
    return intarsia.create({}, "a", shape=shape, chunks=chunks, dtype="float64", **options)


def packings(array):
    return [region.packing for region in array.regions]


def numbers(array, i):
    return array.regions[i].member[...].tolist()


def test_data_that_a_packing_holds_makes_its_region_longer():
    array = created()
    array.add_region([(0, 4)], data=[0, 1, 2, np.nan], packing=TENTHS)
    array.append([0.3, 0.7, np.nan])  # 7 * 0.1 is not 0.7, but for the last digit
    assert packings(array) == [TENTHS]
    assert numbers(array, 0) == [0, 10, 20, -1, 3, 7, -1]
    assert array[5] == 7 * 0.1


def test_data_that_would_lose_digits_becomes_a_region_of_plain_values():
    array = created()
    array.add_region([(0, 4)], data=[0, 1, 2, 3], packing=TENTHS, codecs=["gzip"])
    array.append([0.123456789, 5e9])
    assert array[...].tolist() == [0, 1, 2, 3, 0.123456789, 5e9]
    assert packings(array) == [TENTHS, None]
    assert [region.codec_names for region in array.regions] == ["gzip", "gzip"]


def test_data_is_rounded_where_that_is_asked_for():
    array = created()
    array.add_region([(0, 4)], data=[0, 1, 2, 3], packing=TENTHS)
    array.append([0.123456789, 1], packing="keep")
    array.append([0.123456789, 1], packing="keep", merge=False)
    array.append([0.123456789, 1], packing=HALVES)
    assert packings(array) == [TENTHS, TENTHS, HALVES]
    assert array[4:].tolist() == [0.1, 1, 0.1, 1, 0, 1]
    before = array.manifest
    with pytest.raises(PackingError, match=r"cannot hold 1000000.0 \(at \[1\]\)"):
        array.append([1, 1e6], packing="keep")
    assert array.manifest == before
    assert array.shape == (10,)
    with pytest.raises(PackingError, match='give "keep"'):
        array.append([1], packing="gzip")


def test_keep_means_plain_values_after_plain_values_and_in_an_empty_array():
    array = created(shape=(0,))
    array.append([0.15, 1], packing="keep")
    array.append([0.15, 1], packing="keep", merge=False)
    assert packings(array) == [None, None]
    assert array[...].tolist() == [0.15, 1, 0.15, 1]


def test_a_partial_last_chunk_takes_what_its_packing_holds():
    array = created(shape=(3,))
    array.add_region([(0, 3)], data=[0, 1, 2], packing=HALVES)
    array.append([2.5, 3, 4], merge=False)
    assert packings(array) == [HALVES, None]
    assert [region.bounds for region in array.regions] == [((0, 4),), ((4, 6),)]
    assert array[...].tolist() == [0, 1, 2, 2.5, 3, 4]


def test_a_partial_last_chunk_is_unpacked_for_what_its_packing_does_not_hold():
    array = created(shape=(5,))
    array.add_region([(0, 5)], data=[0, 1, 2, np.nan, 4], packing=HALVES, codecs=["zstd"])
    array.append([0.123, 7, 8])
    np.testing.assert_array_equal(array[...], [0, 1, 2, np.nan, 4, 0.123, 7, 8])
    assert packings(array) == [HALVES, None]
    assert [region.bounds for region in array.regions] == [((0, 4),), ((4, 8),)]


def test_a_hole_in_a_partial_last_chunk_still_reads_as_the_fill_value():
    odd = Packing("uint8", scale=2.0, offset=1.0)
    array = created(shape=(1,))
    array.append([3, 5, 7], packing=odd)
    assert array[...].tolist() == [0, 3, 5, 7]
    assert packings(array) == [None, odd]
    array = created(shape=(1,), fill_value=1)
    array.append([3, 5, 7], packing=odd)
    assert array[...].tolist() == [1, 3, 5, 7]
    assert packings(array) == [odd, odd]


def turned(array, name, values, bounds, view, packing=None):
    array.group.create_array(name, data=values, chunks=tuple(min(2, n) for n in values.shape))
    array.add_region(bounds, member=name, view=view, packing=packing)


def test_a_region_that_is_seen_upwards_grows_through_its_view():
    array = created(shape=(3, 4), chunks=(2, 2))
    values = np.arange(12.0).reshape(4, 3)
    turned(array, "there", values, ((0, 3), (0, 4)), View.identity(2).transpose(1, 0).flip(1, length=4))
    more = -np.arange(8.0).reshape(2, 4)
    array.append(more)
    np.testing.assert_array_equal(array[...], np.concatenate([values.T[:, ::-1], more]))
    assert [region.name for region in array.regions] == ["there"]
    assert array.members["there"].shape == (4, 5)


def test_a_region_that_is_seen_downwards_does_not_grow():
    array = created(shape=(3,))
    turned(array, "there", np.arange(3.0), [(0, 3)], View.identity(1).flip(0, length=3))
    array.append([7, 8, 9])
    assert array[...].tolist() == [2, 1, 0, 7, 8, 9]
    assert array.members["there"].shape == (3,)
    assert [region.view for region in array.regions] == [View.identity(1).flip(0, length=3), None]
    assert intarsia.verify(array) == ()


def test_a_new_axis_does_not_grow():
    array = created(shape=(1, 4), chunks=(1, 2))
    turned(array, "there", np.arange(4.0), ((0, 1), (0, 4)), View.identity(1).expand(0))
    array.append([[7, 8, 9, 10]])
    assert array[...].tolist() == [[0, 1, 2, 3], [7, 8, 9, 10]]
    assert [region.name == "there" for region in array.regions] == [True, False]


def test_recode_keeps_the_packing_of_every_region_and_its_numbers():
    array = created(shape=(8,))
    stored = np.array([1, 2, -1, 32767], dtype="int16")
    for i, packing in enumerate((HALVES, TENTHS)):
        array.group.create_array(f"m{i}", data=stored)
        array.add_region([(4 * i, 4 * i + 4)], member=f"m{i}", packing=packing)
    before = array[...]
    array.recode(codecs=["zstd"])
    assert packings(array) == [HALVES, TENTHS]
    assert len(array.members) == 1
    assert numbers(array, 0) == [*stored.tolist(), *stored.tolist()]
    np.testing.assert_array_equal(array[...], before)
    array.recode(codecs=["gzip"], packing=None)
    assert packings(array) == [None]
    np.testing.assert_array_equal(array[...], before)


def test_recode_keeps_numbers_that_no_value_leads_back_to():
    array = intarsia.create({}, "a", shape=(2,), chunks=(2,), dtype="float64")
    largest = np.array([np.iinfo("int64").max, 5])
    array.group.create_array("m", data=largest)
    array.add_region([(0, 2)], member="m", packing=Packing("int64", missing=5))
    array.recode(codecs=[])
    assert numbers(array, 0) == largest.tolist()
    np.testing.assert_array_equal(array[...], [2.0**63, np.nan])


def test_recode_of_packed_and_plain_regions_together_stores_values():
    array = created(shape=(8,), fill_value=-7)
    array.add_region([(0, 4)], data=[0, 1, 2, np.nan], packing=HALVES)
    array.add_region([(4, 6)], data=[0.1, 0.2])
    array.recode([(2, 8)], codecs=["gzip"])
    assert packings(array) == [HALVES, None, None]
    np.testing.assert_array_equal(array[...], [0, 1, 2, np.nan, 0.1, 0.2, -7, -7])


def test_recode_packs_or_refuses():
    array = created(shape=(4, 4), chunks=(2, 2))
    turned(array, "there", np.arange(16.0).reshape(4, 4), ((0, 4), (0, 4)), View.identity(2).transpose(1, 0))
    array.recode([(0, 2), (0, 4)], codecs=["gzip"], packing={"stored": "uint8", "scale": 2.0})
    expected = np.arange(16.0).reshape(4, 4).T.copy()
    expected[:2] = np.rint(expected[:2] / 2) * 2
    np.testing.assert_array_equal(array[...], expected)
    before = array.manifest
    with pytest.raises(PackingError, match=r"cannot hold 14.0 \(at \[2, 3\]\)"):
        array.recode([(2, 4), (2, 4)], codecs=[], packing={"stored": "uint8", "scale": 0.05})
    assert array.manifest == before
    assert set(array.group.array_keys()) == set(before.members)


def test_neighbours_of_one_packing_and_one_view_are_joined():
    array = created(shape=(8, 2), chunks=(2, 2))
    packing, view = HALVES, View.identity(2).transpose(1, 0)
    for i in range(4):
        values = np.full((2, 2), i, dtype="int16")
        array.group.create_array(f"m{i}", data=values, chunks=(2, 2))
        array.add_region(((2 * i, 2 * i + 2), (0, 2)), member=f"m{i}", packing=packing, view=view)
    before = array[...]
    assert array.consolidate() == 3
    np.testing.assert_array_equal(array[...], before)
    assert [region.name for region in array.regions] == ["m0"]
    assert array.regions[0].packing == packing


def test_neighbours_that_are_packed_or_seen_otherwise_are_not_joined():
    array = created(shape=(8,))
    array.add_region([(0, 2)], data=[1, 2], packing=HALVES)
    array.add_region([(2, 4)], data=[1, 2], packing=TENTHS)
    turned(array, "down", np.arange(4.0), [(4, 6)], View.identity(1).flip(0, length=2))
    turned(array, "up", np.arange(2.0), [(6, 8)], None)
    assert array.consolidate() == 0


def test_reversed_neighbours_are_joined_where_there_is_room_before():
    array = created(shape=(4,))
    view = View.identity(1).flip(0, length=4)
    array.group.create_array("one", data=np.arange(4.0), chunks=(2,))
    array.group.create_array("two", data=10 + np.arange(4.0), chunks=(2,))
    array.add_region([(0, 2)], member="one", view=view)
    array.add_region([(2, 4)], member="two", view=view)
    assert array[...].tolist() == [3, 2, 13, 12]
    assert array.consolidate() == 1
    assert array[...].tolist() == [3, 2, 13, 12]
    assert array.members["one"][...].tolist() == [12, 13, 2, 3]


def test_reversed_neighbours_are_not_joined_where_there_is_no_room_before():
    array = created(shape=(4,))
    array.group.create_array("one", data=np.arange(2.0), chunks=(2,))
    array.group.create_array("two", data=10 + np.arange(4.0), chunks=(2,))
    array.add_region([(0, 2)], member="one", view=View.identity(1).flip(0, length=2))
    array.add_region([(2, 4)], member="two", view=View.identity(1).flip(0, length=2))
    assert array.consolidate() == 0
    assert array[...].tolist() == [1, 0, 11, 10]


def test_a_resize_shows_the_fill_value_whatever_a_region_can_hold():
    array = created(shape=(3,), fill_value=100)
    array.add_region([(0, 3)], data=[1, 2, 3], packing={"stored": "uint8", "scale": 0.1})
    array.resize((6,))
    np.testing.assert_allclose(array[...], [1, 2, 3, 100, 100, 100], rtol=1e-15)
    assert packings(array) == [Packing("uint8", scale=0.1), None]
    array = created(shape=(3,), fill_value=10)
    array.add_region([(0, 3)], data=[1, 2, 3], packing={"stored": "uint8", "scale": 0.5})
    array.resize((6,))
    assert array[...].tolist() == [1, 2, 3, 10, 10, 10]
    assert len(array.regions) == 1


def test_a_resize_copies_what_many_regions_cannot_show_into_one_member():
    array = created(shape=(6, 5), chunks=(1, 2), fill_value=1e9)
    numbers = np.arange(36, dtype="int16").reshape(6, 6)
    array.group.create_array("there", data=numbers, chunks=(1, 2))
    scales = [Packing("int16", scale=0.1 * (i + 1)) for i in range(5)]
    for i, packing in enumerate(scales):  # the last one is a chunk long, and one row is a hole
        start = 4 if i == 4 else 0
        array.add_region(((i, i + 1), (start, 5)), member="there", member_start=(i, start), packing=packing)
    before, generation = array[...], array.generation
    array.resize((6, 9))
    np.testing.assert_array_equal(array[:, :5], before)
    assert (array[:, 5:] == 1e9).all()
    assert len(array.members) == 2
    assert array.generation == generation + 2
    assert packings(array).count(None) == 1
    array.resize((4, 4))
    np.testing.assert_array_equal(array[...], before[:4, :4])


def test_a_resize_shows_the_fill_value_where_a_region_is_seen_downwards():
    array = created(shape=(3, 3), chunks=(2, 2), fill_value=100)
    view = View.identity(2).flip(0, length=3).flip(1, length=3)
    values = np.arange(9.0).reshape(3, 3)
    turned(array, "there", values, ((0, 3), (0, 3)), view)
    array.resize((4, 5))
    expected = np.full((4, 5), 100.0)
    expected[:3, :3] = values[::-1, ::-1]
    np.testing.assert_array_equal(array[...], expected)
    array.resize((2, 2))
    np.testing.assert_array_equal(array[...], expected[:2, :2])
    np.testing.assert_array_equal(array.members["there"][...], values)


def test_dropping_a_part_leaves_packings_and_views_of_the_rest():
    array = created(shape=(6,))
    view = View.identity(1).flip(0, length=6)
    turned(array, "there", np.arange(6, dtype="int16"), [(0, 6)], view, HALVES)
    array.drop_region([(2, 4)])
    assert array[...].tolist() == [2.5, 2, 0, 0, 0.5, 0]
    assert [(region.packing, region.view) for region in array.regions] == [(HALVES, view)] * 2
    assert [region.member_bounds for region in array.regions] == [((4, 6),), ((0, 2),)]


def test_verify_finds_members_that_do_not_fit_their_packing_or_view():
    array = created(shape=(4, 2), chunks=(2, 2))
    view = View.identity(2).transpose(1, 0)
    turned(array, "there", np.zeros((2, 4), dtype="int16"), ((0, 4), (0, 2)), view, HALVES)
    assert intarsia.verify(array) == ()
    array.group["there"].resize((2, 3))
    (problem,) = intarsia.verify(intarsia.open(array.store, "a"))
    assert "its shape is (2, 3), but its regions need at least (2, 4)" in problem.what
    del array.group["there"]
    array.group.create_array("there", data=np.zeros((2, 4)))
    (problem,) = intarsia.verify(intarsia.open(array.store, "a"))
    assert "decodes to float64, but the packing of its regions is of int16" in problem.what


def test_codecs_are_chosen_by_the_numbers_that_are_stored():
    array = created(shape=(64, 64), chunks=(64, 32))
    view = View.identity(2).transpose(1, 0)
    numbers = np.random.default_rng(0).integers(0, 3, (64, 64)).astype("int16")
    transpose = {"name": "transpose", "configuration": {"order": [1, 0]}}
    array.group.create_array("m", data=numbers, chunks=(32, 64), filters=[transpose], compressors=None)
    array.add_region(((0, 64), (0, 64)), member="m", packing=HALVES, view=view)
    (change,) = array.optimize("size")
    assert (change.before, packings(array)) == ("transpose", [HALVES])
    assert change.bytes_after < change.bytes_before
    assert array.regions[0].chunks == (64, 32)
    array.recode(codecs="auto")
    assert packings(array) == [HALVES]
    np.testing.assert_array_equal(array[...], numbers.T * 0.5)


def test_codecs_for_another_element_size_are_not_taken_over():
    shuffle = {"name": "shuffle", "configuration": {"element_size": 8}}
    array = created(shape=(3,), chunks=(3,))
    array.add_region([(0, 3)], data=[0, 1, 2], codecs=[shuffle, "gzip"])
    array.append([1, 2, 3], packing=HALVES)
    array.append([0.123, 2, 3])
    assert [region.codec_names for region in array.regions] == ["shuffle+gzip", "gzip", "gzip"]
    assert array[3:].tolist() == [1, 2, 3, 0.123, 2, 3]


@pytest.mark.parametrize("how", ["add", "append", "recode"])
def test_codecs_are_chosen_for_packings_that_are_given(how):
    array = created(shape=(0 if how == "append" else 33,), chunks=(33,))
    data, packing = np.arange(33) / 2, HALVES
    if how == "add":
        array.add_region([(0, 33)], data=data, packing=packing, codecs="auto")
    elif how == "append":
        array.append(data, packing=packing, codecs="auto")
    else:
        array.add_region([(0, 33)], data=data)
        array.recode(codecs="auto", packing=packing)
    assert packings(array) == [HALVES]
    assert array[...].tolist() == data.tolist()
