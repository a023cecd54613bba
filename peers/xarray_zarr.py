"""xarray's own tests of its Zarr backend: `engine="intarsia"` opens what xarray writes, in both formats."""

import contextlib

import pytest
import xarray as xr
from xarray.tests import test_backends
from xarray.tests.test_backends import default_zarr_format  # noqa: F401  # a fixture: each of the two formats

OF_ZARR = {"consolidated", "zarr_format", "use_zarr_fill_value_as_mask"}
"""Options that say how zarr's own engine finds and reads metadata."""


@pytest.fixture(autouse=True)
def wanted(request):
    """The marks of tests that are for one format only; xarray reads them in a file that its wheel lacks."""
    for mark in request.node.iter_markers("skip_if_param"):
        unwanted = {name: value for name, value in mark.kwargs.items() if name not in ("reason", "condition")}
        if mark.kwargs.get("condition", True) and unwanted.items() <= request.node.callspec.params.items():
            pytest.skip(mark.kwargs["reason"])


class TestZarr(test_backends.TestZarrDirectoryStore):
    @contextlib.contextmanager
    def open(self, path, backend_kwargs=None, **options):
        options |= backend_kwargs or {}
        ours = {name: value for name, value in options.items() if name not in OF_ZARR}
        with xr.open_dataset(path, engine="intarsia", **ours) as dataset:
            yield dataset
