"""What a store holds, in any format; tags and branches."""

import numpy as np
import pytest
import zarr

import intarsia
from tests.cli.program import document, failure, succeed


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_plain_arrays_are_listed_and_read_and_told_from_logical_ones(zarr_format, tmp_path):
    alone, group = tmp_path / "alone.zarr", tmp_path / "group.zarr"
    zarr.create_array(alone, data=np.array([[1, 2, 3], [4, 5, 6]]), zarr_format=zarr_format)
    zarr.create_group(group, zarr_format=zarr_format).create_array("a/b", shape=(4,), dtype="u1")
    assert document("ls", alone)["arrays"][0]["shape"] == [2, 3]
    assert [each["path"] for each in document("ls", group)["arrays"]] == ["a/b"]
    assert "plain" in succeed("ls", group)
    assert document("read", alone, "1, 0:2")["values"] == [4, 5]
    assert document("read", group, "a/b", "0")["values"] == 0
    assert "intarsia convert" in succeed("info", alone)
    assert "intarsia convert" in failure("regions", alone, code=3)
    assert "plain Zarr array" in succeed("info", group, "a/b")
    assert "intarsia convert" in failure("report", alone, code=3)


def test_a_selection_may_stand_for_the_path_of_the_only_array(store, data):
    assert document("read", store, "0, 0, 0:3")["values"] == data[0, 0, :3].tolist()
    assert document("explain", store, "0, 0, 0:3")["plan"]["shape"] == [3]
    intarsia.convert(zarr.create_array({}, data=np.array([1])), store, "other")
    text = failure("regions", store, code=2)
    assert "say which as PATH" in text
    assert "(50, 6, 8)" in text
    failure("read", store, "0, 0, 0:3", code=3)


def test_tags_and_branches_are_made_listed_and_removed(store, made):
    assert [each["name"] for each in document("tag", store)["tags"]] == ["v1"]
    assert document("tag", store, "v2", made[1][2])["snapshot_id"] == made[1][2]
    assert document("info", store, "--tag", "v2")["shape"] == [40, 6, 8]
    assert "already a tag" in failure("tag", store, "v2", code=2)
    assert document("tag", store, "v2", "--delete")["deleted"]
    assert "Branches: main; tags: v1" in failure("tag", store, "nothing", "--delete", code=3)
    document("branch", store, "trial", "v1")
    assert "trial" in succeed("branch", store)
    assert document("info", store, "--branch", "trial")["shape"] == [20, 6, 8]
    succeed("branch", store, "trial", "--delete")
    assert "cannot be deleted" in failure("branch", store, "main", "--delete", code=8)
    assert "no version" in failure("branch", store, "x", "nowhere", code=3)


def test_versions_and_tags_need_a_repository(plain):
    for verb in ("tag", "branch"):
        assert "has no versions" in failure(verb, plain, "v1", code=2)


@pytest.mark.parametrize("snapshot", ["AAAA", "A" * 20, "x"])
def test_a_snapshot_that_is_not_there_is_not_found(snapshot, store):
    failure("info", store, "--snapshot", snapshot, code=3)
