"""Zarr arrays of others go in and out: converted, adopted, exported, fused and split."""

import numpy as np
import pytest
import zarr

import intarsia
from tests.cli.program import document, failure, succeed


@pytest.fixture
def old(tmp_path):
    values = np.arange(480, dtype="f4").reshape(10, 6, 8)
    zarr.create_array(tmp_path / "old.zarr", data=values, chunks=(5, 6, 8), zarr_format=2)
    return tmp_path / "old.zarr", values


def test_convert_makes_a_repository_and_chooses_codecs(old, tmp_path):
    said = document("convert", old[0], tmp_path / "new", "t", "--objective", "size")
    assert said["arrays"][0]["path"] == "t"
    assert said["snapshot_id"] == intarsia.open_repository(tmp_path / "new").lookup_branch("main")
    assert said["arrays"][0]["nbytes_stored"] < said["arrays"][0]["nbytes"]
    np.testing.assert_array_equal(intarsia.open(tmp_path / "new", "t")[...], old[1])
    assert "converted old: float32" in succeed("convert", old[0], tmp_path / "new", "-c", "gzip")
    assert intarsia.open(tmp_path / "new", "old").regions[0].codec_names == "gzip"
    assert "already" in failure("convert", old[0], tmp_path / "new", "t", code=4)
    assert "does not exist" in failure("convert", tmp_path / "none.zarr", tmp_path / "new", code=3)
    assert "pattern of names" in failure("convert", old[0], tmp_path / "*.zarr", code=2)
    assert not list(tmp_path.glob("[*]*"))


def test_adopt_refers_to_files_and_says_where(old, store, data):
    said = document("adopt", store, "temperature", old[0])
    assert (said["bounds"], said["shape"]) == ([[50, 60], [0, 6], [0, 8]], [60, 6, 8])
    assert said["snapshot_id"] == intarsia.open_repository(store).lookup_branch("main")
    read = document("read", store, "temperature", "50:, 0, 0", "--allow", "all")["values"]
    assert read == old[1][:, 0, 0].tolist()
    failure("adopt", store, "temperature", old[0], "--how", "link", code=2)
    assert document("adopt", store, "new", old[0])["shape"] == [10, 6, 8]
    assert document("read", store, "new", ":, 0, 0", "--allow", "all")["values"] == old[1][:, 0, 0].tolist()
    failure("adopt", store, "none", old[0], "--bounds", "0:5, :, :", code=3)


def test_export_writes_what_zarr_reads(store, plain, data, tmp_path):
    assert "exported 1 array" in succeed("export", store, tmp_path / "a.zarr", "temperature")
    z = zarr.open_array(tmp_path / "a.zarr", mode="r")
    np.testing.assert_array_equal(z[...], data)
    assert (z.metadata.dimension_names, dict(z.attrs)) == (("time", "lat", "lon"), {"units": "K"})
    assert "--overwrite" in failure("export", store, tmp_path / "a.zarr", code=4)
    assert "is an array" in failure("export", plain, tmp_path / "a.zarr", "--target-path", "x", code=4)
    said = document("export", plain, tmp_path / "c.zarr", "--target-path", "x", "-c", "gzip")
    assert said["arrays"] == ["x/temperature"]
    first = document("export", store, tmp_path / "b.zarr", "--tag", "v1")
    assert first["nbytes"] == 20 * 6 * 8 * 4
    assert "pattern of names" in failure("export", store, tmp_path / "*.zarr", code=2)


@pytest.mark.parametrize("where", ["store", "plain"])
def test_fuse_and_split_are_one_commit_each(where, request):
    place = request.getfixturevalue(where)
    fused = document("fuse", place, "temperature")
    assert fused["fused"] == "temperature-fused"
    split = document("split", place, "temperature-fused", "--to", "again")
    assert (split["split"], bool(split["snapshot_id"])) == ("again", where == "store")
    arrays = [intarsia.open(place, name)[...] for name in ("temperature", "again")]
    np.testing.assert_array_equal(*arrays)
    assert "no array 'nothing'" in failure("split", place, "nothing", code=3)
    assert "already a logical array" in failure("split", place, "temperature", code=2)
