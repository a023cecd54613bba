"""All groups of files as a tree of datasets, held against xarray's trees of the files themselves."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.errors import IngestError


def tree(path, first, *, steps=2, root_data=True, broken=False):
    """A file with groups in groups; they share the time, and a grid, of the groups above."""
    with netCDF4.Dataset(path, "w") as file:
        file.title = "a tree"
        file.createDimension("time", None)
        file.createDimension("lat", 3)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2002-06-01"
        time[:] = np.arange(first, first + steps)
        file.createVariable("lat", "f4", ("lat",))[:] = [10, 20, 30]
        if root_data:
            file.createVariable("index", "i4", ("time",))[:] = np.arange(first, first + steps)
            file.createVariable("flag", "i4", ("time", "lat"))[:] = 1
        product = file.createGroup("PRODUCT")
        product.level = 2
        product.createVariable("sst", "f4", ("time", "lat"), zlib=True)[:] = first + np.zeros((steps, 3))
        details = product.createGroup("DETAILS")
        details.createDimension("layer", 4 if not broken else 5)
        shape = (steps, details.dimensions["layer"].size)
        error = details.createVariable("error", "i2", ("time", "layer"))
        error[:] = np.arange(shape[0] * shape[1]).reshape(shape) + first
        metadata = file.createGroup("METADATA")
        metadata.made_by = "somebody"
        metadata.createDimension("word", 2)
        metadata.createVariable("weights", "f8", ("word",))[:] = [1, 2]


def trees_of(paths):
    """What the files hold together, group by group."""
    trees = [xr.open_datatree(path) for path in paths]
    nodes = {}
    for node in trees[0].subtree:
        parts = [each[node.path].to_dataset(inherit=False) for each in trees]
        options = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
        grows = any("time" in part.dims for part in parts)
        nodes[node.path] = xr.concat(parts, "time", **options) if grows else parts[0]
    return xr.DataTree.from_dict(nodes)


@pytest.mark.parametrize("root_data", [True, False])
def test_a_tree_of_groups_is_a_tree_of_datasets(tmp_path, root_data):
    paths = [tmp_path / f"{day}.nc" for day in range(0, 6, 2)]
    for path in paths:
        tree(path, int(path.stem), root_data=root_data)
    options = {"concat_dim": "time", "source_group": "*"}
    report = intarsia.ingest(paths[0], tmp_path / "r", **options)
    assert report.summary == "1 added"
    opened = xr.open_datatree(report.repository, engine="intarsia")
    xr.testing.assert_identical(opened, xr.open_datatree(paths[0]))
    report = intarsia.ingest(paths, report.repository, **options)  # a second one extends them all
    assert report.summary == "2 added, 1 unchanged"
    opened = xr.open_datatree(report.repository, engine="intarsia")
    xr.testing.assert_identical(opened, trees_of(paths))
    assert {run.variable for run in report.runs} >= {"PRODUCT/sst", "PRODUCT/DETAILS/error"}
    assert intarsia.ingest(paths, report.repository, **options).summary == "nothing to do: 3 unchanged"
    history = list(report.repository.ancestry(branch="main"))
    assert len(history) == 3  # two ingests, and the beginning


def test_a_tree_goes_below_a_group(tmp_path):
    tree(tmp_path / "0.nc", 0)
    report = intarsia.ingest(
        tmp_path / "0.nc", "memory://", concat_dim="time", source_group="*", group="level/two"
    )
    opened = xr.open_datatree(report.repository, engine="intarsia", group="level/two")
    xr.testing.assert_identical(opened, xr.open_datatree(tmp_path / "0.nc"))


def test_a_file_that_one_group_refuses_goes_into_none(tmp_path):
    for day in (0, 2, 4):
        tree(tmp_path / f"{day}.nc", day, broken=day == 2)
    paths = sorted(tmp_path.glob("*.nc"))
    options = {"concat_dim": "time", "source_group": "*"}
    with pytest.raises(IngestError, match=r"2\.nc: 'error' has the axes"):
        intarsia.ingest(paths, tmp_path / "r", **options)
    report = intarsia.ingest(paths, tmp_path / "r", **options, errors="skip")
    assert report.summary == "2 added, 1 failed"
    opened = xr.open_datatree(report.repository, engine="intarsia")
    xr.testing.assert_identical(opened, trees_of([paths[0], paths[2]]))


def test_a_dry_run_shows_all_groups(tmp_path):
    tree(tmp_path / "0.nc", 0)
    report = intarsia.ingest(tmp_path / "0.nc", concat_dim="time", source_group="*", dry_run=True)
    names = {run.variable for run in report.runs}
    assert names == {"index", "flag", "PRODUCT/sst", "PRODUCT/DETAILS/error"}
