"""The files of VirtualiZarr's tests of its parsers: ingested, they have the values that xarray reads."""

import inspect
from urllib.parse import urlsplit

import h5py
import numpy as np
import pytest
import xarray as xr
from virtualizarr.tests.test_parsers import conftest

import intarsia

ELSEWHERE = {"chunked_roundtrip_hdf5_s3_file", "filter_encoded_roundtrip_hdf5_file"}
"""One is on a server that is started with Docker, and one is downloaded."""


def check(path, folder):
    with h5py.File(path) as file:
        groups = ["", *(key for key in file if isinstance(file[key], h5py.Group))]
    compared = 0
    for number, group in enumerate(groups):
        with xr.open_dataset(path, engine="h5netcdf", group=group or None, phony_dims="sort") as expected:
            if not expected.sizes:
                continue
            dimension = next(iter(expected.sizes))
            report = intarsia.ingest(
                [path],
                folder / f"repository{number}",
                concat_dim=dimension,
                combine="nested",
                source_group=group,
            )
            session = report.repository.readonly_session("main")
            with xr.open_dataset(session, engine="intarsia") as actual:
                if dimension in expected.coords:  # an ingest sorts by it
                    actual, expected = actual.sortby(dimension), expected.sortby(dimension)
                for variable in expected.variables:
                    values = expected[variable].values
                    assert values.dtype.kind in "OU" or actual[variable].dtype == values.dtype
                    np.testing.assert_array_equal(actual[variable].values, values)
                    compared += 1
    if not compared:
        pytest.skip("no variable with a dimension")


def test_of(fixture):
    def test(tmp_path, **fixtures):
        place = fixtures[fixture]
        check(urlsplit(place["url"] if isinstance(place, dict) else str(place)).path, tmp_path)

    names = ("tmp_path", fixture)
    kind = inspect.Parameter.KEYWORD_ONLY
    test.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return test


test_of.__test__ = False
for name in sorted(vars(conftest)):
    if name.endswith(("_url", "_file", "non_coord_dim")) and name not in ELSEWHERE:
        globals()[f"test_{name}"] = test_of(name)
