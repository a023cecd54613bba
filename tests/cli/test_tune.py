"""Encodings are advised, taken and joined from the shell."""

import json

import numpy as np
import pytest
import zarr

import intarsia
from tests.cli.program import document, failure, succeed


def test_advise_lists_the_best_first_and_says_how_to_take_it(store, tmp_path):
    said = document("advise", store, "--objective", "size")
    sizes = [each["stored_bytes"] for each in said["encodings"]]
    assert sizes == sorted(sizes)
    best = said["encodings"][0]
    text = succeed("advise", store, "temperature", "-o", "size", "--bounds", "0:20, :, :")
    assert "best first for size" in text
    assert "→" in text
    assert "To use the best: intarsia optimize STORE PATH --objective size" in text
    options = [word for codec in best["codecs"] for word in ("-c", json.dumps(codec))]
    succeed("recode", store, "temperature", "--bounds", "0:20, :, :", *options)
    assert intarsia.open(intarsia.open_repository(store), "temperature").regions[0].bounds[0] == (0, 20)
    succeed("optimize", store, "temperature", "--objective", "size")
    assert "did you mean 'speed'" in failure("advise", store, "-o", "spede", code=2)


def test_a_plain_array_takes_what_was_advised_by_a_conversion(tmp_path):
    zarr.create_array(tmp_path / "old.zarr", name="a", data=np.zeros((20, 20), "f4"))
    said = succeed("advise", tmp_path / "old.zarr", "a", "--bounds", "0:10, :")
    assert "To use the best: intarsia convert STORE NEW_STORE --objective balanced" in said
    objective = "--objective", "balanced"
    assert "converted a" in succeed("convert", tmp_path / "old.zarr", tmp_path / "new", *objective)


@pytest.mark.parametrize("where", ["store", "plain"])
def test_optimize_tells_what_it_changed_and_nothing_else(where, request, data):
    place = request.getfixturevalue(where)
    before = document("info", place)["layers"][0]["nbytes_stored"]
    said = document("optimize", place, "--objective", "size")
    assert said["changes"]
    assert all(each["bytes_after"] < each["bytes_before"] for each in said["changes"])
    assert document("info", place)["layers"][0]["nbytes_stored"] < before
    np.testing.assert_array_equal(intarsia.open(place, "temperature")[...], data)
    assert bool(said["snapshot_id"]) == (where == "store")
    if where == "store":
        again = document("optimize", place, "--objective", "size")
        assert (again["changes"], again["snapshot_id"]) == ([], None)
    else:
        assert "no region would gain" in succeed("optimize", place, "--objective", "size")


def test_consolidate_joins_what_is_encoded_alike(store, data):
    repo = intarsia.open_repository(store)
    with intarsia.transaction(repo, message="apart") as tx:
        tx.open("temperature").append(data[:10], codecs=[], merge=False)
    said = document("consolidate", store)
    assert (said["joined"], said["regions"]) == (1, 3)
    assert "temperature: nothing to join in 3 regions" in succeed("consolidate", store)
