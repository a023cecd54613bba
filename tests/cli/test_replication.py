"""Verbs for arrays in several layouts: replicate, maintain; and what info, regions, explain, diff say."""

import numpy as np
import pytest

import intarsia
from tests.cli.program import document, failure, succeed


@pytest.mark.parametrize("kind", ["store", "plain"])
def test_replicate_and_drop(kind, request, data):
    store = request.getfixturevalue(kind)
    said = document("replicate", store, "temperature", "--chunks", "50,3,1", "-c", "zstd")
    assert (said["layer"], said["layers"], said["dropped"]) == (1, [0, 1], False)
    assert (said["snapshot_id"] is None) == (kind == "plain")
    array = intarsia.open(store, "temperature")
    np.testing.assert_array_equal(array.with_config(layer=1)[...], data[: len(array)])
    assert intarsia.explain(array, np.s_[:, 2, 3]).parts[0].layer == 1
    again = document("replicate", store, "temperature", "--chunks", "50,1,1", "--bounds", "0:10,:,:")
    assert (again["layer"], again["layers"]) == (2, [0, 1, 2])
    gone = document("replicate", store, "temperature", "--drop", "1")
    other = ("--chunks", "50,1,1", "-c", "gzip")  # the chunks of layer 2, in another encoding
    for bounds in ("10:20,:,:", "30:40,:,:"):
        assert document("replicate", store, "temperature", *other, "--bounds", bounds)["layer"] == 1
    assert (gone["layers"], gone["nbytes_stored"]) == ([0, 2], 0)
    failure("replicate", store, "temperature", "--drop", "7", code=4)
    failure("replicate", store, "temperature", "--drop", "2", "-c", "zstd", code=2)
    assert "--chunks, --codec, --shards" in failure("replicate", store, "temperature", code=2)


def test_what_is_said_about_layers(store, made):
    succeed("replicate", store, "temperature", "--chunks", "50,3,1")
    said = document("info", store, "temperature")
    assert [(layer["layer"], layer["regions"]) for layer in said["layers"]] == [(0, 3), (1, 1)]
    assert "Layer 1" in succeed("info", store, "temperature")
    listed = document("regions", store, "temperature")["regions"]
    assert [region["layer"] for region in listed] == [0, 0, 0, 1]
    assert "Layer" in succeed("regions", store, "temperature")
    plan = document("explain", store, "temperature", ":, 1, 1")["plan"]
    assert [(price["layer"], price["taken"]) for price in plan["prices"]] == [(0, 0), (1, 50)]
    assert "layer 0: has 50 elements" in succeed("explain", store, "temperature", ":, 1, 1")
    changes = document("diff", store, "temperature", made[1][-1])["change"]["regions"]
    assert [(change["kind"], change["layer"]) for change in changes] == [("added", 1)]
    succeed("report", store, "temperature", "-o", store.parent / "out.html")
    assert "Layer 1: 1 replica" in (store.parent / "out.html").read_text()
    assert document("verify", store, "--deep")["problems"] == []


def test_maintain(store, plain):
    assert "is a plain Zarr store" in failure("maintain", plain, code=2)
    succeed("replicate", store, "temperature", "--chunks", "50,3,1")
    assert document("maintain", store)["steps"] == []
    said = succeed("maintain", store)
    assert "nothing to do" in said
    intarsia.write(store, "temperature", 3, 0)
    planned = document("maintain", store, "temperature", "--dry-run")
    done = document("maintain", store, "temperature")
    assert [step["what"] for step in planned["steps"]] == ["replica"]
    assert done["steps"][0]["bounds"] == planned["steps"][0]["bounds"]
    array = intarsia.open(store, "temperature")
    assert len(array.replicas) == 1
    assert not array.with_config(layer=1)[3].any()


def test_maintain_leaves_arrays_alone_whose_new_data_is_not_long_enough_yet(tmp_path):
    with intarsia.transaction(intarsia.open_repository(tmp_path, create=True)) as tx:
        for name, length in (("a", 4), ("b", 1)):
            array = tx.create(name, shape=(0,), chunks=(1,), dtype="u1")
            array.append(np.arange(length, dtype="u1"))
            array.set_policy(replica={"chunks": (4,), "after": "2 chunks"})
    assert [step["path"] for step in document("maintain", tmp_path)["steps"]] == ["a"]
    assert [len(intarsia.open(tmp_path, name).replicas) for name in "ab"] == [1, 0]
