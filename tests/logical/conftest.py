"""What the tests of logical arrays share."""

import pytest

from intarsia.engine import thread_pool
from tests.logical import places


@pytest.fixture(autouse=True)
def _threads_for_little(monkeypatch):
    """Reads of a quarter of a megabyte are divided among threads, so that small data show what these do."""
    monkeypatch.setattr(thread_pool, "WORTH_A_READING_THREAD", thread_pool.WORTH_A_THREAD)
    monkeypatch.setattr(thread_pool, "TOO_SMALL_TO_SHARE", 0)
    monkeypatch.setattr(thread_pool, "TOO_FAST_TO_SHARE", 0)


@pytest.fixture(params=sorted(places.PLACES))
def place(request):
    """Runs the test once for every kind of store, and once with everything left to zarr."""
    return request.param
