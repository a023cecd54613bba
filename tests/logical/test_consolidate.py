"""Joining regions: the same values, the same bytes, fewer members."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.manifest.box import Box
from tests.logical import strategies as s
from tests.logical.stores import memory, stored


def series(lengths, *, store=None, chunks=2, **options):
    """An array of regions of these lengths, one after the other, with one encoding."""
    array = intarsia.create(
        memory() if store is None else store, "a", shape=(0,), chunks=(chunks,), dtype="int32"
    )
    count = 1
    for length in lengths:
        array.append(np.arange(count, count + length), merge=False, **{"codecs": ["gzip"], **options})
        count += length
    return array


def chunk_bytes(array):
    """Encoded bytes, by the logical index at which each stored object begins."""
    found, content = {}, stored(array.store)
    for region in array.regions:
        member = region.member
        size = member.shards or member.chunks
        for key, value in content.items():
            prefix = f"{member.path}/c/"
            if key.startswith(prefix):
                index = [int(i) for i in key[len(prefix) :].split("/")]
                place = tuple(
                    i * g - m + b
                    for i, g, (m, _), (b, _) in zip(
                        index, size, region.member_bounds, region.bounds, strict=True
                    )
                )
                if all(a <= p < b for p, (a, b) in zip(place, region.bounds, strict=True)):
                    found[place] = value
    return found


def test_a_series_becomes_one_member_with_the_same_bytes():
    array = series([2, 4, 2, 6])
    before, chunks = array[...], chunk_bytes(array)
    assert array.consolidate() == 3
    assert len(array.members) == len(array.regions) == 1
    assert chunk_bytes(array) == chunks
    np.testing.assert_array_equal(array[...], before)
    assert array.consolidate() == 0


def test_nothing_is_decoded(monkeypatch):
    array = series([2, 4, 2])

    def fail(*_):
        raise AssertionError("a chunk was decoded")

    with monkeypatch.context() as patch:
        patch.setattr(zarr.codecs.GzipCodec, "_decode_single", fail)
        patch.setattr(zarr.codecs.GzipCodec, "_decode_sync", fail, raising=False)
        patch.setattr(zarr.codecs.GzipCodec, "_encode_single", fail)
        patch.setattr(zarr.codecs.GzipCodec, "_encode_sync", fail, raising=False)
        assert array.consolidate() == 2
    assert array[...].tolist() == list(range(1, 9))


def test_different_encodings_stay_apart():
    array = series([2, 2])
    array.append([5, 6], codecs=["zstd"])
    array.append([7, 8], codecs=["zstd"], merge=False)
    assert array.consolidate() == 2
    assert [region.codec_names for region in array.regions] == ["gzip", "zstd"]
    assert array[...].tolist() == list(range(1, 9))


def test_shards_are_joined_as_a_whole():
    array = series([8, 8, 8], shards=(4,), chunks=2)
    chunks = chunk_bytes(array)
    assert array.consolidate() == 2
    assert chunk_bytes(array) == chunks
    assert array[...].tolist() == list(range(1, 25))


def test_members_whose_chunks_do_not_meet_stay_apart():
    array = series([2, 2, 2], chunks=2)
    wide = intarsia.create(memory(), "b", shape=(0,), chunks=(2,), dtype="int32")
    for _ in range(3):
        wide.append([1, 2], codecs=["gzip"], chunks=(4,), merge=False)
    assert array.consolidate() == 2
    assert wide.consolidate() == 0
    assert wide[...].tolist() == [1, 2] * 3


def test_chunks_that_were_never_written_stay_unwritten():
    store = memory()
    array = intarsia.create(store, "a", shape=(8,), chunks=(2,), dtype="int32", fill_value=7)
    array.add_region([(0, 4)], codecs=["gzip"])
    array.add_region([(4, 8)], codecs=["gzip"])
    array[6] = 1
    assert array.consolidate() == 1
    assert array[...].tolist() == [7, 7, 7, 7, 7, 7, 1, 7]
    assert sum("/c/" in key for key in stored(store)) == 1


def test_what_the_first_member_hides_does_not_shine_through():
    """The first member still stores chunks that a cut hid; the neighbour has none there."""
    array = intarsia.create(memory(), "a", shape=(8,), chunks=(2,), dtype="int32")
    array.add_region([(0, 8)], codecs=["gzip"], data=np.arange(1, 9))
    array.drop_region([(4, 8)])
    array.add_region([(4, 8)], codecs=["gzip"])
    array[4] = 50
    expected = [1, 2, 3, 4, 50, 0, 0, 0]
    assert array[...].tolist() == expected
    assert array.consolidate() == 1
    assert array[...].tolist() == expected


def test_two_windows_on_one_member_become_one_region():
    array = series([8])
    array.recode([(2, 4)], codecs=["gzip"])
    assert len(array.regions) == 3
    assert array.consolidate() == 2
    assert len(array.members) == 1
    assert array[...].tolist() == list(range(1, 9))


def test_a_partial_last_chunk_can_grow_afterwards():
    array = series([2, 3])
    assert array.consolidate() == 1
    array.append([6, 7, 8])
    assert array[...].tolist() == list(range(1, 9))
    assert len(array.members) == 1


def test_tiles_of_a_plane_become_one():
    array = intarsia.create(memory(), "a", shape=(6, 6), chunks=(2, 2), dtype="int32")
    model = np.arange(1, 37).reshape(6, 6)
    for i in range(0, 6, 2):
        for j in range(0, 6, 2):
            array.add_region([(i, i + 2), (j, j + 2)], codecs=["gzip"], data=model[i : i + 2, j : j + 2])
    chunks = chunk_bytes(array)
    assert array.consolidate() == 8
    np.testing.assert_array_equal(array[...], model)
    assert chunk_bytes(array) == chunks


def test_a_read_only_array_is_refused():
    store = memory()
    series([2, 2], store=store)
    with pytest.raises(intarsia.errors.ReadOnlyError):
        intarsia.open(store, "a").consolidate()


@given(st.data())
def test_any_layout_keeps_its_values_and_stays_sound(data):
    array, model = data.draw(s.arrays())
    if data.draw(st.booleans()):  # one encoding for all, so that much can be joined
        chunks = (
            tuple(data.draw(st.integers(1, 4)) for _ in array.shape) if data.draw(st.booleans()) else None
        )
        for region in array.regions:
            array.recode(region.bounds, codecs=["gzip"], chunks=chunks)
    if data.draw(st.booleans()) and len(array.regions):
        one = data.draw(st.sampled_from(array.regions))
        array.drop_region(one.bounds)
        model[tuple(slice(a, b) for a, b in one.bounds)] = array.fill_value
    count = len(array.regions)
    gone = array.consolidate()
    assert len(array.regions) == count - gone
    np.testing.assert_array_equal(array[...], model)
    assert intarsia.verify(array) == ()


def test_what_is_joined_on_one_axis_is_joined_on_the_others_too():
    array = intarsia.create({}, "a", shape=(4, 4), chunks=(2, 2), dtype="i4")
    model = np.arange(16, dtype="i4").reshape(4, 4)
    for bounds in (((0, 2), (0, 4)), ((2, 4), (0, 2)), ((2, 4), (2, 4))):
        array.add_region(bounds, codecs=["gzip"], data=model[Box.of(bounds).slices])
    assert array.consolidate() == 2
    assert array.consolidate() == 0
    assert np.array_equal(array[...], model)
