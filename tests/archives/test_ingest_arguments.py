"""What callers say of the places of files: names, attributes, other variables, functions."""

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.archives import from_variable
from intarsia.errors import IngestError


@pytest.fixture
def restarts(tmp_path):
    """As ocean models write them: no file knows its time, and names are in another order than steps."""
    for i in range(3):
        steps = ("time_counter", np.array([40 - 2 * i, 41 - 2 * i]), {"units": "days since 2000-01-01"})
        data = {"t": (("time_counter", "x"), np.full((2, 3), 10.0 * i)), "kt": steps, "run": ((), 7 - i)}
        xr.Dataset(data, {"time_counter": [0.0, 0.0]}).to_netcdf(tmp_path / f"r{i}.nc")
    return tmp_path


def opened(report):
    return xr.open_dataset(report.repository, engine="intarsia").load()


def test_files_whose_times_are_all_alike_are_refused_with_the_option(restarts):
    for path in restarts.glob("*.nc"):
        with xr.open_dataset(path) as ds:
            ds.isel(time_counter=[0]).to_netcdf(path.with_suffix(".one"))
    with pytest.raises(IngestError, match=r"r1\.one: its time_counter 0\.0 overlaps .* order_by= names"):
        intarsia.ingest(restarts / "*.one", "memory://", concat_dim="time_counter")


def test_another_variable_gives_the_order(restarts):
    whole = intarsia.ingest(restarts / "*.nc", "memory://", concat_dim="time_counter", order_by="kt")
    repo = "memory://"
    for i in (1, 2, 0):
        report = intarsia.ingest(restarts / f"r{i}.nc", repo, concat_dim="time_counter", order_by="kt")
        repo = report.repository
    for each in (whole, report):
        found = opened(each)
        assert found.t[:, 0].values.tolist() == [20, 20, 10, 10, 0, 0]
        days = np.datetime64("2000-01-01") + np.arange(36, 42)
        np.testing.assert_array_equal(found.time_counter, days)  # with its units
        np.testing.assert_array_equal(found.kt, days)
        assert found.run.values.tolist() == [5, 5, 6, 6, 7, 7]


def test_a_scalar_gives_the_order_of_files_of_one_step(restarts):
    for path in restarts.glob("*.nc"):
        with xr.open_dataset(path) as ds:
            ds.isel(time_counter=0, drop=True).to_netcdf(path.with_suffix(".one"))
    report = intarsia.ingest(restarts / "*.one", "memory://", dims={"n": from_variable("run")})
    assert opened(report).n.values.tolist() == [5, 6, 7]
    assert opened(report).t[:, 0].values.tolist() == [20, 10, 0]


def test_a_function_overrides_the_coordinate_of_a_file_or_leaves_it(restarts):
    xr.Dataset({"t": (("time_counter", "x"), np.ones((1, 3)))}, {"time_counter": [99]}).to_netcdf(
        restarts / "last.nc"
    )

    def place(url):
        return None if "last" in url else [2 * int(url[-4]), 2 * int(url[-4]) + 1]

    report = intarsia.ingest(
        restarts / "*.nc", "memory://", concat_dim="time_counter", coordinate=place, variables=["t"]
    )
    assert opened(report).time_counter.values.tolist() == [0, 1, 2, 3, 4, 5, 99]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order_by": "nothing"}, "its 'time_counter' cannot be determined: it has no variable 'nothing'"),
        ({"order_by": "t"}, "'t' has 2 axes"),
        ({"order_by": "kt", "dims": {"time_counter": from_variable("run")}}, "nothing else describes"),
        ({"order_by": "kt", "dims": {"other": from_variable("run")}}, "order_by= is for one dimension"),
        ({"order_by": "kt", "coordinate": len}, "one dimension that nothing else describes"),
        ({"coordinate": lambda url: None, "concat_dim": "n"}, "it has none, and None was given"),
    ],
)  # fmt: skip
def test_what_tells_no_place_is_refused(restarts, options, words):
    with pytest.raises(IngestError, match=words):
        intarsia.ingest(restarts / "*.nc", "memory://", **{"concat_dim": "time_counter"} | options)


def test_a_file_has_as_many_values_as_steps(restarts):
    for given, words in (
        ([1, 2, 3], "it has 2 steps along 'time_counter', but was given 3"),
        (5, "given 1 value"),
    ):
        with pytest.raises(IngestError, match=words):
            intarsia.ingest(
                restarts / "*.nc",
                "memory://",
                concat_dim="time_counter",
                coordinate=lambda _, given=given: given,
            )
    for path in restarts.glob("*.nc"):
        with xr.open_dataset(path) as ds:
            ds.assign_attrs(runs=[1, 2]).to_netcdf(path.with_suffix(".runs"))
    dims = {"run": intarsia.archives.from_attribute("runs")}
    with pytest.raises(IngestError, match="it has 1 step along 'run', but was given 2 values"):
        intarsia.ingest(restarts / "*.runs", "memory://", concat_dim="time_counter", dims=dims)
