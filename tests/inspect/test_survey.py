"""A survey says what the array's own regions say, and every stored byte is counted once."""

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import given, settings

import intarsia
from intarsia.display import Table
from intarsia.engine.prepared_member import short_codecs
from intarsia.inspect.chunk_sizes import requests_needed
from intarsia.inspect.survey import REGION_COLUMNS, share_labels, survey
from tests.inspect import samples
from tests.logical import backings
from tests.logical.strategies import arrays


@settings(max_examples=25)
@given(arrays())
def test_a_survey_equals_the_regions_of_the_array(made):
    array, _ = made
    seen = survey(array)
    for row, region in zip(seen.rows(), array.regions, strict=True):
        assert row.bounds == region.bounds
        assert all(name in row.codecs for name in region.codec_names.split("+"))
        assert row.chunks == region.chunks
        assert row.nbytes == region.nbytes
        assert row.nbytes_stored == region.nbytes_stored
        assert row.member == region.name


@settings(max_examples=25)
@given(backings.arrays())
def test_packed_and_turned_regions_are_surveyed_as_they_are(made):
    array, _ = made
    seen = survey(array)
    assert seen.problems == ()
    for row, region in zip(seen.rows(), array.regions, strict=True):
        assert (row.bounds, row.chunks, row.nbytes_stored) == (
            region.bounds,
            region.chunks,
            region.nbytes_stored,
        )
        assert row.packing == (None if region.packing is None else str(region.packing))
        assert row.view == (None if region.view is None else str(region.view))
    columns = Table.of(seen.rows(), REGION_COLUMNS).columns if len(seen) else ("Region",)
    assert ("Packing" in columns) == any(region.packing for region in array.regions)
    assert ("View" in columns) == any(region.view for region in array.regions)


def test_nulls_are_told_with_the_codecs_of_their_values():
    array = intarsia.create({}, "n", shape=(0,), chunks=(2,), dtype="optional[float32]")
    array.append(np.ma.masked_equal(np.array([1, 2, 3, 4], dtype="f4"), 2), codecs=["zstd"])
    array.append(np.ma.masked_equal(np.array([1, 2, 3, 4], dtype="f4"), 2), codecs=["gzip"], shards=(4,))
    seen = survey(array)
    assert [row.codecs for row in seen.rows()] == [short_codecs(region.member) for region in array.regions]
    assert seen.labels == ("optional(gzip-5)", "optional(zstd-0)")
    assert seen.rows()[1].codecs == "optional(gzip-5)"


def stores(tmp_path):
    repo = icechunk.Repository.create(icechunk.in_memory_storage())
    return {
        "memory": zarr.storage.MemoryStore(),
        "local": zarr.storage.LocalStore(tmp_path / "plain"),
        "icechunk": repo.writable_session("main").store,
    }


@pytest.mark.parametrize("kind", ["memory", "local", "icechunk"])
@pytest.mark.parametrize("options", [{}, {"shards": (20, 72, 144)}], ids=["chunks", "shards"])
def test_stored_bytes_are_the_same_by_every_way_of_asking(kind, options, tmp_path):
    array = intarsia.create(stores(tmp_path)[kind], "s", shape=(0, 72, 144), chunks=(10, 36, 72), dtype="f4")
    array.append(np.random.default_rng(0).normal(size=(20, 72, 144)), codecs=["gzip"], **options)
    array.append(np.zeros((10, 72, 144)), codecs=["zstd"])  # nothing is stored for fill values
    seen = survey(array)
    assert [row.nbytes_stored for row in seen.rows()] == [region.nbytes_stored for region in array.regions]
    assert seen.rows()[1].nbytes_stored == 0
    assert seen.total_stored == sum(region.nbytes_stored for region in array.regions)
    assert seen.total_unused == 0


def test_chunks_that_no_region_shows_are_counted_apart():
    array = samples.series()
    before = survey(array)
    array.recode(((10, 20), (0, 72), (0, 144)), codecs=["zstd"])
    seen = survey(array)
    assert seen.total_unused > 0
    assert seen.total_stored == sum(p.nbytes_stored for p in seen.pipelines())
    assert seen.total_nbytes == before.total_nbytes


def test_a_chunk_that_two_regions_share_is_counted_once_in_the_total():
    array = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype="u1")
    array.add_region([(0, 8)], codecs=[], data=np.arange(8), chunks=(8,))
    array.drop_region([(2, 4)])
    seen = survey(array)
    assert [row.nbytes_stored for row in seen.rows()] == [8, 8]
    assert seen.total_stored == 8


def test_pipelines_are_named_as_exactly_as_needed():
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="f4")
    for level in (1, 9):
        array.append([1, 2], codecs=[{"name": "gzip", "configuration": {"level": level}}])
    array.append([1, 2], codecs=[])
    assert sorted(survey(array).labels) == ["gzip-1", "gzip-9", "raw"]


def test_too_many_pipelines_are_put_together():
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="f4")
    for i in range(12):
        array.append(
            [1, 2],
            codecs=["crc32c"] * i + [{"name": "gzip", "configuration": {"level": i % 10}}],
            merge=False,
        )
    seen = survey(array)
    assert len(seen.labels) == 8
    assert seen.labels[-1] == "5 others"
    assert sum(p.regions for p in seen.pipelines()) == 12


def test_a_pipeline_keeps_its_place_from_version_to_version():
    array = samples.series(steps=(("gzip", 20),))
    first = survey(array)
    array.append(np.ones((90, 72, 144)), codecs=["zstd"])
    second = survey(array)
    assert (first.labels, second.labels) == (("gzip-5",), ("zstd-0", "gzip-5"))
    before, after = share_labels([first, second])
    places = [{p.codecs: p.place for p in seen.pipelines()} for seen in (before, after)]
    assert places[0]["gzip-5"] == places[1]["gzip-5"]
    assert "zstd-0" not in places[0]


def test_sizes_are_left_out_where_they_cost_too_much():
    array = samples.series()
    seen = survey(array, most_requests=3)
    assert requests_needed(array.store, seen.facts) > 3
    assert seen.stored is None
    assert seen.total_stored is None
    assert [*Table.of(seen.rows(), REGION_COLUMNS).rows[0]][4:6] == ["?", "?"]


def test_a_missing_member_does_not_hide_the_others():
    store = zarr.storage.MemoryStore()
    array = samples.series(store)
    gone = array.manifest.members[0]
    for key in [k for k in store._store_dict if gone in k]:
        del store._store_dict[key]
    seen = survey(intarsia.open(store, "series"))
    assert seen.problems == (f"{gone}: the member is missing",)
    assert seen.rows()[1].codecs == "zstd-0"
