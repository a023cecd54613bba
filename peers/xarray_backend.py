"""xarray's own tests of CF encodings, for datasets that `from_xarray` wrote and `engine="intarsia"` opens."""

import contextlib
import tempfile
from pathlib import Path

import xarray as xr
from xarray.tests.test_backends import CFEncodedBase

import intarsia


class TestIntarsia(CFEncodedBase):
    engine = "intarsia"

    @contextlib.contextmanager
    def roundtrip(self, data, save_kwargs=None, open_kwargs=None, allow_cleanup_failure=False):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "repository"
            intarsia.from_xarray(data, path, **(save_kwargs or {}))
            with xr.open_dataset(path, engine="intarsia", **(open_kwargs or {})) as dataset:
                yield dataset

    @contextlib.contextmanager
    def roundtrip_append(self, data, save_kwargs=None, open_kwargs=None, allow_cleanup_failure=False):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "repository"
            for name in data.variables:
                intarsia.from_xarray(data[[name]], path, overwrite=True, **(save_kwargs or {}))
            with xr.open_dataset(path, engine="intarsia", **(open_kwargs or {})) as dataset:
                yield dataset
