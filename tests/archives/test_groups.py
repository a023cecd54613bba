"""All groups of files as a tree of datasets, held against xarray's trees of the files themselves."""

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.archives.formats import hdf5
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


def test_lint_says_what_differs_in_every_group(tmp_path):
    for day in range(2):
        tree(tmp_path / f"{day}.nc", day, steps=1)
        with netCDF4.Dataset(tmp_path / f"{day}.nc", "a") as file:
            for group in (file["PRODUCT"], file["PRODUCT/DETAILS"]):
                packed = group.createVariable("packed", "i2", ("time",))
                packed.scale_factor = 1.0 + day
                packed[:] = 6
    report = intarsia.archives.lint(tmp_path / "*.nc", concat_dim="time", source_group="*")
    found = {drift.variable for drift in report.drifts if drift.kind == "packing"}
    assert found == {"PRODUCT/packed", "PRODUCT/DETAILS/packed"}


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


OPTIONS = {"concat_dim": "step", "source_group": "*"}


def nameless(path, *, sizes=(9, 60, 3), value=0.0):
    """A file with groups in groups, and no names for axes."""
    with h5py.File(path, "w") as file:
        file["a"] = np.full((sizes[0], sizes[1], sizes[1]), value)
        file["g/b"] = np.full((sizes[2], sizes[1]), value)
        file["g/c"] = np.full(sizes[0], value)
        file["g/h/d"] = np.full((4, sizes[2]), value)
        file["other/e"] = np.full(5, value)


def test_axes_without_names_do_not_clash_with_those_of_groups_above(tmp_path):
    for step in range(2):
        nameless(tmp_path / f"{step}.h5", value=float(step))
    report = intarsia.ingest(f"{tmp_path}/*.h5", tmp_path / "r", **OPTIONS)
    opened = xr.open_datatree(report.repository, engine="intarsia")
    for step in range(2):
        own = xr.open_datatree(tmp_path / f"{step}.h5", engine="netcdf4")
        for node in own.subtree:
            for name, variable in node.data_vars.items():
                assert np.array_equal(opened[node.path][name][step], variable)


@pytest.mark.parametrize("group", ["*", "g"])
def test_an_archive_with_other_invented_names_is_extended(tmp_path, monkeypatch, group):
    for step in range(2):
        nameless(tmp_path / f"{step}.h5", value=float(step))
    options = OPTIONS | {"source_group": group}
    with monkeypatch.context() as patch:
        number = hdf5.phony_dimensions
        patch.setattr(
            hdf5, "phony_dimensions", lambda *args: {k: f"{name}7" for k, name in number(*args).items()}
        )
        report = intarsia.ingest(tmp_path / "0.h5", tmp_path / "r", **options)
    report = intarsia.ingest(f"{tmp_path}/*.h5", tmp_path / "r", **options)
    assert report.summary == "1 added, 1 unchanged"
    place = "g" if group == "*" else ""
    opened = xr.open_datatree(report.repository, engine="intarsia")[f"/{place}"]
    assert all(str(dim).endswith("7") for dim in opened["b"].dims[1:])
    assert opened["b"][:, 0, 0].values.tolist() == opened["c"][:, 0].values.tolist() == [0, 1]


def test_groups_that_are_no_tree_are_refused(tmp_path):
    with netCDF4.Dataset(tmp_path / "0.nc", "w") as file:
        for node, size in ((file, 3), (file.createGroup("g"), 4)):
            node.createDimension("x", size)
            node.createVariable("v", "f4", ("x",))[:] = 1
    with pytest.raises(ValueError, match="not aligned with its parents"):
        xr.open_datatree(tmp_path / "0.nc")
    with pytest.raises(IngestError, match=r"do not open as one tree, so nothing was written: group '/g' is"):
        intarsia.ingest(tmp_path / "0.nc", "memory://", **OPTIONS)


def test_a_group_that_only_some_files_have_is_refused_below_others(tmp_path):
    nameless(tmp_path / "0.h5")
    nameless(tmp_path / "1.h5")
    with h5py.File(tmp_path / "1.h5", "a") as file:
        file["later/f"] = np.ones(2)
    repository = intarsia.ingest(tmp_path / "0.h5", tmp_path / "r", **OPTIONS).repository
    before = repository.lookup_branch("main")
    with pytest.raises(IngestError, match="do not open as one tree, so nothing was written: group '/later'"):
        intarsia.ingest(f"{tmp_path}/*.h5", tmp_path / "r", **OPTIONS)
    assert intarsia.open_repository(tmp_path / "r").lookup_branch("main") == before


def damaged(path):
    """Overwrite what lists the members of a group."""
    content = bytearray(path.read_bytes())
    at = content.rindex(b"SNOD")
    content[at : at + 4] = b"XXXX"
    path.write_bytes(content)


def test_a_damaged_file_is_named(tmp_path):
    for step in range(2):
        nameless(tmp_path / f"{step}.h5")
    damaged(tmp_path / "1.h5")
    words = r"1\.h5: it is damaged or truncated: HDF5 cannot list what it holds"
    with pytest.raises(IngestError, match=words):
        intarsia.ingest(tmp_path / "1.h5", tmp_path / "r", **OPTIONS)
    with pytest.raises(IngestError, match=f"1 of 2 files cannot be ingested.*\n.*{words}"):
        intarsia.ingest(f"{tmp_path}/*.h5", tmp_path / "r", **OPTIONS)
    assert not (tmp_path / "r").exists()
    report = intarsia.ingest(f"{tmp_path}/*.h5", tmp_path / "r", **OPTIONS, errors="skip")
    assert report.summary == "1 added, 1 failed"
    opened = xr.open_datatree(report.repository, engine="intarsia")
    assert opened["g/h"].sizes["step"] == opened["other"].sizes["step"] == 1


def test_groups_without_data_are_no_groups_with_data(tmp_path):
    with h5py.File(tmp_path / "0.h5", "w") as file:
        file["g/table"] = np.zeros(3, dtype=[("x", "i4"), ("y", "f8")])
    words = r"0\.h5: none of its groups has variables that can be ingested \('g/table': values of type"
    with pytest.raises(IngestError, match=words):
        intarsia.ingest(tmp_path / "0.h5", tmp_path / "r", concat_dim="step", source_group="*")


def test_a_filter_that_is_not_installed_is_named(tmp_path):
    with h5py.File(tmp_path / "0.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(305, h5py.h5z.FLAG_OPTIONAL)
        space, kind = h5py.h5s.create_simple((4,)), h5py.h5t.NATIVE_INT32
        dataset = h5py.h5d.create(file.create_group("g").id, b"v", kind, space, plist)
        dataset.write_direct_chunk((0,), b"compressed bytes")
    with pytest.raises(
        IngestError, match=r"'g/v': it cannot be read: its HDF5 filter 305 .*is not installed"
    ):
        intarsia.ingest(tmp_path / "0.h5", "memory://", **OPTIONS)
