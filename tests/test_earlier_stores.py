"""What earlier states wrote can be read and added to: manifests 1 and 2, tables, ledger 3, plain Zarr."""

import tarfile

import numpy as np
import pytest
import zarr

import intarsia
from tests.fixtures import make_earlier as earlier
from tests.fixtures.make_earlier import field


@pytest.fixture
def unpacked(tmp_path):
    """Unpacks one of the archives, and gives its folder."""

    def unpack(name):
        with tarfile.open(earlier.HERE / f"earlier-{name}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
        return tmp_path

    return unpack


def test_a_repository_with_manifests_of_version_1(unpacked):
    repo = intarsia.open_repository(unpacked("manifest-1") / "repository")
    array = intarsia.open(repo, "group/field")
    expected = field(14)
    expected[9:12] = -1
    assert array.manifest.version == 1
    assert np.array_equal(array[...], expected)
    assert array.attrs["units"] == "K"
    assert array.manifest.dimension_names == ("y", "x")
    assert np.array_equal(intarsia.open(repo, "group/field", tag="first")[...], field(3))
    assert [entry.message for entry in intarsia.history(repo)][-5:] == [
        "shards", "a hole, then a partial chunk", "third", "second", "create",
    ]  # fmt: skip

    intarsia.append(repo, "group/field", field(4, first=14), codecs=["zstd"])
    with intarsia.transaction(repo, message="fill the hole") as tx:
        tx.open("group/field").add_region(((9, 12), (0, 20)), data=field(3, first=9), codecs=["gzip"])
    intarsia.write(repo, "group/field", np.s_[4, 3], 7)
    expected = field(18)
    expected[4, 3] = 7
    array = intarsia.open(repo, "group/field")
    assert np.array_equal(array[...], expected)
    assert array.manifest.version == 1
    assert not intarsia.verify(repo)


def test_a_repository_with_packings_views_and_replicas(unpacked):
    repo = intarsia.open_repository(unpacked("manifest-2") / "repository")
    array = intarsia.open(repo, "field")
    assert array.manifest.version == 2
    assert len({region.packing for region in array.regions}) == 3
    assert [region.view is None for region in array.regions] == [True, True, False]
    for layer in (0, 1):
        assert np.array_equal(array.with_config(layer=layer)[...], field(9))

    packing = array.regions[0].packing
    intarsia.append(repo, "field", field(3, first=9), codecs=["zstd"], packing=packing)
    intarsia.write(repo, "field", np.s_[7, 2:4], [5, 6])
    intarsia.maintain(repo, "field")
    expected = field(12)
    expected[7, 2:4] = [5, 6]
    array = intarsia.open(repo, "field")
    for layer in (0, 1):
        assert np.array_equal(array.with_config(layer=layer)[...], expected)
    assert len(array.replicas) > 0
    assert not intarsia.verify(repo)


def test_regions_in_a_table(unpacked):
    folder = unpacked("table")
    repo = intarsia.open_repository(folder / "repository")
    assert len(intarsia.open(repo, "counted").regions) == 510
    assert np.array_equal(intarsia.open(repo, "counted")[...], earlier.counted(510))
    intarsia.append(repo, "counted", [510, 510, 511], codecs=[])
    assert np.array_equal(intarsia.open(repo, "counted")[...], earlier.counted(512)[:-1])
    assert not intarsia.verify(intarsia.open(repo, "counted"))

    array = intarsia.open(folder / "plain", "counted", mode="r+")
    assert np.array_equal(array[...], earlier.counted(12))
    array.append([12, 12], codecs=[])
    array = intarsia.open(folder / "plain", "counted")
    assert np.array_equal(array[...], earlier.counted(13))
    assert not intarsia.verify(array)


def test_an_archive_of_files_goes_on(unpacked):
    folder = unpacked("archive")
    moved = intarsia.archives.relocate(folder / "repository", {earlier.FILES: folder / "files"})
    assert moved.files == 3
    assert np.array_equal(
        intarsia.open(moved.repository, "sst")[...], np.concatenate([earlier.sst(day) for day in range(3)])
    )
    assert [file.state for file in intarsia.archives.sources(moved.repository)] == ["present"] * 3

    earlier.netcdf(folder / "files" / "3.nc", 3, 0.125)
    report = intarsia.ingest(folder / "files/*.nc", folder / "repository", concat_dim="time")
    assert report.summary == "1 added, 3 unchanged"
    array = intarsia.open(report.repository, "sst")
    assert np.array_equal(array[...], np.concatenate([earlier.sst(day) for day in range(4)]))
    assert not intarsia.verify(report.repository)


def test_a_logical_array_in_a_plain_store(unpacked):
    array = intarsia.open(unpacked("plain") / "logical", "field", mode="r+")
    assert np.array_equal(array[...], field(9))
    array.append(field(2, first=9), codecs=["zstd"])
    assert np.array_equal(intarsia.open(array.group.store, "field")[...], field(11))
    assert not intarsia.verify(array)


def test_a_nullable_array(unpacked):
    folder = unpacked("plain") / "nullable"
    array = intarsia.nullable.open_array(folder, mode="r+")
    values = earlier.nullable_values()
    for _ in range(2):
        found = intarsia.nullable.open_array(folder)[...]
        assert np.array_equal(found.mask, values.mask)
        assert np.array_equal(found.compressed(), values.compressed())
        values[2:4, 3] = np.ma.masked_array([1, 2], mask=[True, False])
        array[2:4, 3] = values[2:4, 3]


def test_an_array_with_the_conditional_codec(unpacked):
    folder = unpacked("plain") / "conditional"
    assert np.array_equal(zarr.open_array(folder)[...], field(12))
    array = intarsia.codecs.with_decision(zarr.open_array(folder), "always_apply")
    array.resize((15, 20))
    array[12:] = field(3, first=12)
    assert np.array_equal(zarr.open_array(folder)[...], field(15))


def test_slots_in_a_shard(unpacked):
    folder = unpacked("plain") / "slots"
    array = zarr.open_array(folder)
    assert np.array_equal(array[...], np.arange(256))
    intarsia.shards.slotted(array)[128:192] = 7
    expected = np.arange(256)
    expected[128:192] = 7
    assert np.array_equal(array[...], expected)
    assert intarsia.shards.compact(array).replaced == 1
    assert np.array_equal(array[...], expected)
