"""Recoding by others: threads and processes copy blocks of whole chunks, none of them twice."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia
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
