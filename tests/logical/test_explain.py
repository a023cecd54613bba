"""The plan that is shown is the plan that is read."""

import json

import numpy as np
import pytest

import intarsia
from tests.logical.places import PLACES, moved


@pytest.fixture
def array():
    array = intarsia.create({}, "a", shape=(40, 30), chunks=(10, 10), dtype="float64", fill_value=1)
    rng = np.random.default_rng(0)
    array.add_region(((0, 20), (0, 30)), codecs=["zstd"], data=rng.normal(size=(20, 30)), chunks=(5, 30))
    array.add_region(((20, 30), (0, 30)), codecs=[], data=rng.normal(size=(10, 30)))
    array.add_region(((30, 40), (0, 10)), codecs=["gzip"])
    return array


def test_totals(array):
    plan = intarsia.explain(array)
    assert (plan.shape, plan.nbytes, plan.members) == ((40, 30), 9600, 3)
    assert plan.holes == 200
    assert plan.chunks == 4 + 3 + 1
    assert plan.stored_bytes is None
    assert plan.threads == 1


def test_sizes_are_known_in_a_snapshot(array, tmp_path):
    with moved(array, "icechunk local", tmp_path) as there:
        plan = intarsia.explain(there)
        assert [part.fetched for part in plan.parts] == [4, 3, 0]
        assert plan.stored_bytes == sum(region.nbytes_stored for region in array.regions)
        assert [part.stored_bytes for part in plan.parts][1:] == [2400, 0]


def test_it_is_text_and_json(array):
    plan = intarsia.explain(array, np.s_[::3, 5])
    text = repr(plan)
    assert text.startswith("reads (14,), 112 B, from 3 regions of 3 members: 6 chunks")
    assert "[20:30, 0:30]" in text
    assert "elements lie in no region" not in text.split("\n")[0]
    document = json.loads(json.dumps(plan.to_json()))
    assert document["chunks"] == 6
    assert document["parts"][0]["codecs"] == "zstd-0"


def test_regions_are_told_by_position_whatever_came_first(array):
    array.recode(((0, 10), (0, 30)), codecs=["gzip"])
    bounds = [region.bounds for region in array.regions]
    assert bounds == sorted(bounds)
    assert [part.bounds for part in intarsia.explain(array).parts] == bounds
    assert [region.codec_names for region in array.regions][:2] == ["gzip", "zstd"]


def test_lines_end_between_words(array, monkeypatch):
    plan = intarsia.explain(array)
    monkeypatch.setattr("intarsia.display.terminal_width", lambda: 30)
    lines = repr(plan).partition("Region")[0].split("\n")
    assert " ".join(lines).strip() == " ".join(plan.summary())
    assert max(map(len, lines)) <= 30


def test_many_regions_are_cut_short():
    array = intarsia.create({}, "a", shape=(50,), chunks=(1,), dtype="u1")
    for i in range(50):
        array.add_region(((i, i + 1),), codecs=[], data=[i])
    text = repr(intarsia.explain(array))
    assert text.endswith("and 20 more regions")
    assert text.count("MemoryStore") == 30


def test_modes(array):
    assert intarsia.explain(array, ([0, 25], [0, 1]), mode="orthogonal").shape == (2, 2)
    assert intarsia.explain(array, ([0, 25], [0, 1]), mode="vectorized").shape == (2,)
    assert repr(intarsia.explain(array, np.s_[:0])).count("\n") == 1


def test_every_place_is_explained(array, tmp_path):
    for place in sorted(PLACES):
        folder = tmp_path / place
        folder.mkdir()
        with moved(array, place, folder) as there:
            plan = intarsia.explain(there)
            assert plan.members == 3
            assert plan.chunks == (0 if place == "by zarr" else 8)


def test_a_scalar(array):
    array = intarsia.create({}, "a", shape=(), chunks=(), dtype="u1")
    array.add_region((), codecs=[], data=3)
    assert intarsia.explain(array).parts[0].bounds == ()
    assert "[]" in repr(intarsia.explain(array))
