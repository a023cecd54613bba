"""What the tests of logical arrays share."""

import pytest

from tests.array import places


@pytest.fixture(scope="session", autouse=True)
def _servers_stop():
    yield
    places.s3.stop()


@pytest.fixture(params=sorted(places.PLACES))
def place(request):
    """Runs the test once for every kind of store, and once with everything left to zarr."""
    return request.param
