"""Recoding by others: threads and processes copy blocks of whole chunks, none of them twice."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.display import Table
from intarsia.inspect.survey import REGION_COLUMNS, survey
from intarsia.logical import recode as module
from tests.grids import dear
from tests.logical.strategies import arrays, codec_lists


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(3) as pool:
        yield pool


@pytest.fixture(autouse=True)
def tiny_tasks(monkeypatch):
    monkeypatch.setattr(module, "TASK_BYTES", 1)  # a task for every chunk


@dear
@given(st.data())
def test_recoding_on_a_client_keeps_the_values(threads, data):
    array, model = data.draw(arrays(max_ndim=3))
    if not array.regions:
        return
    chunks = tuple(data.draw(st.integers(1, 5)) for _ in model.shape)
    codecs = data.draw(codec_lists(array.ndim))
    seen = []
    array.recode(codecs=codecs, chunks=chunks, client=threads, progress=lambda *n: seen.append(n))
    assert np.array_equal(array[...], model)
    assert len(array.members) == 1
    assert intarsia.verify(array) == ()
    assert seen == [(done, len(seen) - 1) for done in range(len(seen))]


def test_parts_that_share_a_chunk_of_the_new_member_are_one_task():
    array = intarsia.create({}, "a", shape=(12,), chunks=(2,), dtype="i4", fill_value=-1)
    for start in (0, 4, 8):
        array.add_region(((start, start + 2),), codecs=[], data=np.arange(start, start + 2))
    model = array[...]
    seen = []
    with ThreadPoolExecutor(3) as pool:
        array.recode(codecs=["gzip"], chunks=(12,), client=pool, progress=lambda *n: seen.append(n))
    assert seen == [(0, 1), (1, 1)]
    assert np.array_equal(array[...], model)


def test_a_client_that_fails_leaves_the_array_as_it_was(threads, monkeypatch):
    array = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype="i4")
    array.add_region(((0, 8),), codecs=["gzip"], data=np.arange(8))
    before = set(array.group.array_keys())

    def fail(*_):
        raise RuntimeError("the workers are gone")

    monkeypatch.setattr(module._Copy, "__call__", fail)
    with pytest.raises(RuntimeError, match="the workers are gone"):
        array.recode(codecs=["zstd"], client=threads)
    assert set(array.group.array_keys()) == before
    assert array[...].tolist() == list(range(8))


SHARDED = {"chunks": (5, 2), "shards": (20, 4)}


def sharded(store, length=40):
    """An array of one sharded member whose chunks are not those of the lattice."""
    array = intarsia.create(store, "a", shape=(length, 8), chunks=(10, 4), dtype="i4")
    array.add_region(
        np.s_[:, :], codecs=["gzip"], data=np.arange(length * 8, dtype="i4").reshape(length, 8), **SHARDED
    )
    return array


def layouts(array):
    return [(region.chunks, region.shards) for region in array.regions]


def test_chunks_and_shards_stay_unless_others_are_requested():
    array = sharded({})
    model = array[...]
    array.recode(codecs=["blosc"])
    assert layouts(array) == [((5, 2), (20, 4))]
    array.recode(codecs=["zstd"], shards=(10, 8))
    assert layouts(array) == [((5, 2), (10, 8))]
    array.recode(codecs=["gzip"], chunks=(4, 4))
    assert layouts(array) == [((4, 4), None)]
    array.recode(codecs=["zstd"], shards=(10, 8))  # no whole number of (4, 4)
    assert layouts(array) == [((10, 4), (10, 8))]
    assert np.array_equal(array[...], model)
    assert intarsia.verify(array) == ()


def test_a_part_of_a_member_gets_no_shards_or_chunks_beyond_it():
    array = sharded({})
    model = array[...]
    array.recode([(0, 10), (0, 8)], codecs=["zstd"])
    assert layouts(array) == [((5, 2), (10, 4)), ((5, 2), (20, 4))]
    array.recode(codecs=["zstd"], chunks=(40, 8))
    array.recode([(0, 20), (4, 8)], codecs=["zstd"])
    assert {(20, 4), (40, 8)} == {region.chunks for region in array.regions}
    assert np.array_equal(array[...], model)
    assert intarsia.verify(array) == ()


def test_of_several_layouts_the_one_of_the_largest_region_stays():
    array = sharded({})
    array.append(np.zeros((10, 8), "i4"), codecs=[], chunks=(1, 8))
    array.recode(codecs=["zstd"])
    assert layouts(array) == [((5, 2), (20, 4))]


def test_a_view_keeps_its_layout_in_the_axes_of_the_array():
    array = intarsia.create({}, "a", shape=(8, 40), chunks=(4, 10), dtype="i4")
    stored = sharded({})
    name = next(iter(stored.members))
    array.group.create_array(name, data=stored[...], chunks=(5, 2), shards=(20, 4), compressors=None)
    array.add_region(np.s_[:, :], member=name, view=intarsia.View.identity(2).transpose(1, 0))
    model = array[...]
    array.recode(codecs=["zstd"])
    assert layouts(array) == [((2, 5), (4, 20))]
    assert np.array_equal(array[...], model)


def test_recoding_in_a_repository_keeps_the_layout():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        sharded(tx)
    intarsia.recode(repo, "a", codecs=["blosc"])
    assert layouts(intarsia.open(repo, "a")) == [((5, 2), (20, 4))]


def test_tables_and_explanations_show_shards():
    array = sharded({})
    assert "(20, 4)" in str(array.regions)
    seen = survey(array)
    table = Table.of([seen.row(0)], REGION_COLUMNS)
    assert table.rows[0][list(table.columns).index("Shards")] == "(20, 4)"
    assert "shards (20, 4)" in str(intarsia.explain(array))
    array.recode(codecs=[], chunks=(10, 4))
    assert "Shards" not in str(array.regions)
    assert "Shards" not in Table.of(survey(array).rows(), REGION_COLUMNS).columns
    assert "shards" not in str(intarsia.explain(array))
