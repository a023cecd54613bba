"""What xarray objects and logical arrays gain from each other."""

import subprocess
import sys

import numpy as np
import xarray as xr

import intarsia
import intarsia.interop.xarray
from tests.interop.datasets import stored_in_parts, weather


def test_an_array_becomes_a_data_array_with_the_coordinates_beside_it():
    store, dataset = {}, weather()
    stored_in_parts(dataset, store, "daily")
    lazy = intarsia.open(store, "daily/t").to_xarray()
    assert not lazy.variable._in_memory
    xr.testing.assert_identical(lazy.load(), dataset["t"])
    chunked = intarsia.open(store, "daily/t").to_xarray(chunks={})
    assert chunked.chunks is not None
    xr.testing.assert_identical(chunked.compute(), dataset["t"])
    assert "units" in intarsia.open(store, "daily/t").to_xarray(decode_cf=False)["time"].attrs


def test_an_array_without_names_or_at_the_root_becomes_a_data_array_too():
    array = intarsia.create({}, "a", shape=(2,), chunks=(2,), dtype="u1")
    assert array.to_xarray().dims == ("a_dim_0",)
    root = intarsia.create({}, shape=(2,), chunks=(2,), dtype="u1", dimension_names=["x"])
    assert root.to_xarray().name == "array"


def test_an_array_that_is_open_for_writing_shows_what_was_just_written():
    array = intarsia.create({}, "a", shape=(2,), chunks=(2,), dtype="u1", dimension_names=["x"])
    array.add_region(((0, 2),), codecs=[])
    array[...] = [3, 4]
    assert array.to_xarray().values.tolist() == [3, 4]


def test_append_to_creates_and_appends(tmp_path):
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    dataset = weather()
    first = dataset[{"time": slice(5)}].intarsia.append_to(repo, "time", path="daily", codecs=["gzip"])
    assert first == repo.lookup_branch("main")
    dataset[{"time": slice(5, None)}].intarsia.append_to(repo, "time", path="daily", codecs=["zstd"])
    opened = xr.open_dataset(repo, engine="intarsia", group="daily")
    xr.testing.assert_identical(opened.load(), dataset)
    assert len(intarsia.open(repo, "daily/t").regions) == 2


def test_the_accessor_is_there_after_xarray_opened_anything(tmp_path):
    xr.Dataset({"v": ("x", np.arange(3))}).to_netcdf(tmp_path / "a.nc")
    program = "import sys, xarray as xr; print(xr.open_dataset(sys.argv[1]).intarsia.append_to.__name__)"
    command = [sys.executable, "-c", program, str(tmp_path / "a.nc")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "append_to"


def test_importing_intarsia_imports_neither_xarray_nor_dask():
    program = (
        "import sys, intarsia; print(sorted({'xarray', 'dask', 'distributed', 'rich'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
