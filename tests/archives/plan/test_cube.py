"""Files that make a cube of several dimensions: tiles, ensembles, holes, overlaps; in any order."""

import os
import tempfile
import warnings
from itertools import pairwise, product
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia
from intarsia.archives import from_attribute, from_name
from intarsia.errors import IngestError
from tests.archives.files import netcdf
from tests.archives.test_cf import decoded_by_xarray
from tests.archives.test_machine import PACKINGS

NAMES = ("t", "m", "y", "x")


def write(path, coordinates, numbers, attrs=None, name="v", **options):
    """An HDF5 file with a dimension scale for every coordinate, in the order of the axes."""
    with h5py.File(path, "w") as file:
        for dim, values in coordinates.items():
            file[dim] = values
            file[dim].make_scale(dim)
        data = file.create_dataset(name, data=numbers, **options)
        data.attrs.update(attrs or {})
        for axis, dim in enumerate(coordinates):
            data.dims[axis].attach_scale(file[dim])
    return path


def opened(report):
    return xr.open_dataset(report.repository, engine="intarsia").load()


@st.composite
def tilings(draw):
    """Some of the tiles that an array is cut into, each with its own encoding and directions.

    The tiles make a grid, or were cut like a sheet of glass, each part in its own place: then they begin and
    end anywhere, and few pairs of them have an edge in common.
    """
    rank = draw(st.integers(2, 4))
    if draw(st.booleans()):
        cuts = []
        for _ in range(rank):
            sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3 if rank < 4 else 2))
            cuts.append(list(pairwise(np.cumsum([0, *sizes]).tolist())))
        tiles = list(product(*cuts))
    else:
        tiles = [tuple((0, draw(st.integers(2, 7))) for _ in range(rank))]
        for _ in range(draw(st.integers(1, 7))):
            tile = tiles.pop(draw(st.integers(0, len(tiles) - 1)))
            axis = draw(st.integers(0, rank - 1))
            low, high = tile[axis]
            cut = draw(st.integers(low, high))
            halves = [(low, cut), (cut, high)]
            tiles += [tile[:axis] + (half,) + tile[axis + 1 :] for half in halves if half[0] < half[1]]
    chosen = draw(st.sets(st.integers(0, len(tiles) - 1), min_size=1, max_size=8))
    described = []
    for i in sorted(chosen):
        bounds = tiles[i]
        shape = [b - a for a, b in bounds]
        chunks = draw(st.sampled_from([None, tuple(draw(st.integers(1, n)) for n in shape)]))
        filters = draw(st.sampled_from([{}, {"compression": "gzip", "shuffle": True}])) if chunks else {}
        flips = draw(st.lists(st.sampled_from([1, 1, 1, -1]), min_size=rank, max_size=rank))
        described.append((bounds, chunks, filters, draw(st.sampled_from(PACKINGS)), flips))
    return rank, described


def written(folder, i, dims, described):
    """One tile; returns its values as xarray reads them, in rising order."""
    bounds, chunks, filters, (dtype, attrs), flips = described
    numbers = np.random.default_rng(i).integers(0, 9, [b - a for a, b in bounds]).astype(dtype)
    turn = tuple(slice(None, None, flip) for flip in flips)
    coordinates = {
        dim: np.arange(a, b)[::flip] * 10.5 for dim, (a, b), flip in zip(dims, bounds, flips, strict=True)
    }
    write(folder / f"{i}.h5", coordinates, numbers[turn], attrs, chunks=chunks, **filters)
    return decoded_by_xarray(numbers.reshape(-1), attrs).reshape(numbers.shape).astype("f8")


def outer_join(dims, described, made):
    """The tiles on the axes of all of them, by NumPy."""
    axes = {
        dim: np.unique(np.concatenate([np.arange(*each[0][d]) for each in described]))
        for d, dim in enumerate(dims)
    }
    values = np.full([len(axis) for axis in axes.values()], np.nan)
    for (bounds, *_), own in zip(described, made, strict=True):
        where = [
            np.searchsorted(axis, np.arange(a, b)) for axis, (a, b) in zip(axes.values(), bounds, strict=True)
        ]
        values[np.ix_(*where)] = own
    return xr.Dataset({"v": (dims, values)}, {dim: axis * 10.5 for dim, axis in axes.items()})


def combined_by_xarray(paths, dims):
    """What xarray makes of the files, with their axes in rising order; None if it cannot combine them."""
    parts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xr.SerializationWarning)  # of several missing values
        for path in paths:
            with xr.open_dataset(path, engine="h5netcdf") as part:
                parts.append(part.load().astype("f8").sortby(list(dims)))
    try:
        combined = xr.combine_by_coords(parts, join="outer", data_vars="all")
    except ValueError:  # no dimension to go by, or tiles that begin within one another
        return None
    # of tiles that begin within one another it may also repeat steps
    return combined if all(combined.indexes[dim].is_unique for dim in dims) else None


def check_tiles(tiling, data):
    """Any tiles, in any order and portions, are the outer join. Returns whether xarray could be asked."""
    rank, described = tiling
    dims = NAMES[:rank]
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        made = [written(folder, i, dims, each) for i, each in enumerate(described)]
        order = data.draw(st.permutations(range(len(described))))
        cuts = sorted(data.draw(st.sets(st.integers(1, 7), max_size=2)) & set(range(1, len(order))))
        repo = "memory://"
        for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True):
            names = [folder / f"{i}.h5" for i in order[a:b]]
            report = intarsia.ingest(names, repo, concat_dim=dims, dtype={"v": "f8"}, copy="never")
            repo = report.repository
        found = opened(report)
        found = found.sortby(list(dims))  # an axis falls if the first files that have a direction do
        xr.testing.assert_equal(found, outer_join(dims, described, made))
        theirs = combined_by_xarray([folder / f"{i}.h5" for i in range(len(described))], dims)
        if theirs is not None:
            xr.testing.assert_equal(found, theirs.transpose(*dims))
        assert not intarsia.verify(intarsia.open(repo, "v"))
        again = intarsia.ingest(folder / "*.h5", repo, concat_dim=dims)
        assert again.snapshot_id is None
    return theirs is not None


@settings(max_examples=max(6, settings().max_examples // 4))
@given(tilings(), st.data())
def test_any_tiles_in_any_order_and_portions_are_the_outer_join(tiling, data):
    check_tiles(tiling, data)


@pytest.mark.torture
def test_five_hundred_tilings_are_what_xarray_combines():
    asked = []

    @settings(max_examples=600)  # some of them xarray cannot combine
    @given(tilings(), st.data())
    def check(tiling, data):
        asked.append(check_tiles(tiling, data))

    check()
    print(f"{len(asked)} tilings, {sum(asked)} of them combined by xarray too")
    assert sum(asked) >= 500


def tile(folder, label, y, x, value=None, **options):
    y, x = np.atleast_1d(y), np.atleast_1d(x)
    numbers = np.add.outer(100.0 * y, x) if value is None else np.full((len(y), len(x)), float(value))
    return write(folder / f"{label}.h5", {"y": y, "x": x}, numbers, **options)


def test_a_sparse_mosaic_is_what_xarray_combines(tmp_path):
    for row, column in ((0, 0), (0, 2), (1, 1), (2, 0)):
        y, x = np.arange(4) + 4 * row, np.arange(3) + 3 * column
        tile(tmp_path, f"{row}{column}", y, x, chunks=(3, 2), compression="gzip")
    paths = sorted(tmp_path.glob("*.h5"))
    report = intarsia.ingest(paths, tmp_path / "r", concat_dim=["y", "x"], copy="never")
    with xr.open_mfdataset(paths, combine="by_coords", join="outer", engine="h5netcdf") as theirs:
        xr.testing.assert_equal(opened(report), theirs.load())
    array = intarsia.open(report.repository, "v")
    assert len(array.members) == 1
    assert array.chunks == (1, 1)
    assert [run.files for run in report.runs] == [4]


def test_interleaved_and_unordered_steps_are_put_where_they_belong(tmp_path):
    tile(tmp_path, "even", [0, 2, 4], [0, 1])
    tile(tmp_path, "odd", [5, 1, 3], [0, 1])
    for concat_dim in ("y", ["y", "x"]):
        report = intarsia.ingest(tmp_path / "*.h5", "memory://", concat_dim=concat_dim, copy="never")
        ds = opened(report)
        assert ds.y.values.tolist() == [0, 1, 2, 3, 4, 5]
        assert (ds.v.values == np.add.outer(100.0 * np.arange(6), [0, 1])).all()


def test_an_axis_falls_if_it_falls_in_every_file(tmp_path):
    for part, first in enumerate((9, 6, 3)):
        tile(tmp_path, part, np.arange(first, first - 3, -1), [0, 1])
    report = intarsia.ingest(tmp_path / "[12].h5", "memory://", concat_dim="y")
    report = intarsia.ingest(tmp_path / "*.h5", report.repository, concat_dim="y")
    ds = opened(report)
    assert ds.y.values.tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert (ds.v.values == np.add.outer(100.0 * ds.y.values, [0, 1])).all()
    assert len(intarsia.open(report.repository, "v").regions) == 2
    assert not intarsia.open(report.repository, "v").manifest.views


def test_a_file_that_lacks_a_dimension_is_one_step_of_it(tmp_path):
    for member in range(3):
        for year in range(2):
            times = np.arange(4) + 4 * year
            ds = xr.Dataset(
                {"tas": (("time", "x"), np.add.outer(times, np.arange(5.0)) + 100 * member)},
                {"time": times, "member": member},
            )
            if (member, year) != (2, 1):
                ds.to_netcdf(tmp_path / f"{member}-{year}.nc")
    paths = sorted(tmp_path.glob("*.nc"))
    report = intarsia.ingest(paths, "memory://", concat_dim=["time", "member"], copy="never")
    ours = opened(report)
    theirs = xr.combine_by_coords(
        [xr.open_dataset(path).expand_dims("member") for path in paths], join="outer"
    )
    xr.testing.assert_equal(ours, theirs.transpose(*ours.tas.dims))
    assert ours.tas.dims == ("member", "time", "x")


def test_the_same_place_is_taken_by_one_file_of_a_variable(tmp_path):
    tile(tmp_path, "a", [0, 1], [0, 1, 2], 1)
    tile(tmp_path, "b", [1, 2], [1, 2, 3], 2)
    tile(tmp_path, "c", [0, 1], [0, 1, 2], 3, name="w")
    a, b, c = (tmp_path / f"{name}.h5" for name in "abc")
    options = {"concat_dim": ["y", "x"], "missing": "fill"}
    with pytest.raises(
        IngestError, match=r"b\.h5: its y 1 … 2, x 1 … 3 overlaps that of .*a\.h5.*overlap='first'"
    ):
        intarsia.ingest([a, b], "memory://", **options)
    with pytest.raises(IngestError, match="overlap='any' is not one of"):
        intarsia.ingest([a, b], "memory://", overlap="any", **options)
    nan = np.nan
    shown = {
        "first": [[1, 1, 1, nan], [1, 1, 1, 2], [nan, 2, 2, 2]],
        "last": [[1, 1, 1, nan], [1, 2, 2, 2], [nan, 2, 2, 2]],
    }
    for policy, expected in shown.items():
        report = intarsia.ingest([a, b, c], "memory://", overlap=policy, **options)
        np.testing.assert_array_equal(opened(report).v, expected)
        assert (opened(report).w.values[:2, :3] == 3).all()
        report = intarsia.ingest(a, "memory://", overlap=policy, **options)
        report = intarsia.ingest([b, c], report.repository, overlap=policy, **options)
        np.testing.assert_array_equal(opened(report).v, expected)
        assert not intarsia.verify(intarsia.open(report.repository, "v"))
        assert intarsia.ingest([a, b, c], report.repository, overlap=policy, **options).snapshot_id is None


def test_the_newest_file_wins_in_whatever_order_they_come(tmp_path):
    tile(tmp_path, "a", [0, 1], [0, 1], 1)
    tile(tmp_path, "b", [1, 2], [0, 1], 2)
    os.utime(tmp_path / "b.h5", (1e9, 1e9))
    for order in ("ab", "ba"):
        repo = "memory://"
        for name in order:
            report = intarsia.ingest(tmp_path / f"{name}.h5", repo, concat_dim="y", overlap="newest")
            repo = report.repository
        assert opened(report).v.values.tolist() == [[1, 1], [1, 1], [2, 2]]


def test_a_replaced_file_leaves_a_hole_and_steps_that_nobody_has_go(tmp_path):
    for row in range(2):
        for column in range(2):
            tile(tmp_path, f"{row}{column}", np.arange(2) + 2 * row, np.arange(2) + 2 * column)
    report = intarsia.ingest(tmp_path / "*.h5", "memory://", concat_dim=["y", "x"])
    tile(tmp_path, "11", [3, 8], [2, 7], 5)
    report = intarsia.ingest(tmp_path / "*.h5", report.repository, concat_dim=["y", "x"], replace=True)
    assert [file.status for file in report.files] == ["unchanged"] * 3 + ["replaced"]
    paths = sorted(tmp_path.glob("*.h5"))
    found = opened(report)
    for path in paths:
        with xr.open_dataset(path) as own:
            np.testing.assert_array_equal(found.v.sel(y=own.y, x=own.x), own.v)
    assert found.y.values.tolist() == [0, 1, 2, 3, 8]
    assert found.x.values.tolist() == [0, 1, 2, 3, 7]
    assert int(found.v.notnull().sum()) == 16
    tile(tmp_path, "11", [2, 3], [2, 3])
    report = intarsia.ingest(tmp_path / "11.h5", report.repository, concat_dim=["y", "x"], replace=True)
    assert opened(report).sizes == {"y": 4, "x": 4}


def test_files_that_cannot_be_replaced_keep_their_places(tmp_path):
    for row in range(3):
        tile(tmp_path, str(row), row, [0, 1], row)
    repo = intarsia.ingest(tmp_path / "*.h5", "memory://", concat_dim="y").repository
    tile(tmp_path, "0", 1, [0, 1], 8)  # the place of the next one, which keeps it
    tile(tmp_path, "1", 2, [0, 1], 9)
    tile(tmp_path, "3", 3, [0, 1], 3)
    for name in "01":
        os.utime(tmp_path / f"{name}.h5", (1e9, 1e9))
    options = {"concat_dim": "y", "replace": True, "errors": "skip"}
    report = intarsia.ingest(tmp_path / "*.h5", repo, **options)
    assert [file.status for file in report.files] == ["failed", "failed", "unchanged", "added"]
    assert ["overlaps that of" in file.reason for file in report.failed] == [True, True]
    array = intarsia.open(report.repository, "v")
    assert array.shape == (4, 2)
    assert array[2:].tolist() == [[2, 2], [3, 3]]
    shown = intarsia.archives.sources(report.repository, check=False)
    assert [file.parts[0].bounds for file in shown] == [((row, row + 1),) for row in range(4)]


def test_coordinates_along_several_dimensions_are_assembled(tmp_path):
    for i, (y, x) in enumerate(((0, 0), (0, 2), (2, 2))):
        rows, columns = np.arange(2) + y, np.arange(2) + x
        ds = xr.Dataset(
            {"v": (("y", "x"), np.add.outer(10.0 * rows, columns))},
            {
                "y": rows,
                "x": columns,
                "lat": (("y", "x"), np.add.outer(rows, 0.1 * columns)),
                "row": ("y", rows * 7),
            },
        )
        ds.to_netcdf(tmp_path / f"{i}.nc")
    paths = sorted(tmp_path.glob("*.nc"))
    report = intarsia.ingest(paths[1:], "memory://", concat_dim=["y", "x"])
    report = intarsia.ingest(paths, report.repository, concat_dim=["y", "x"])
    theirs = xr.combine_by_coords([xr.open_dataset(path) for path in paths], join="outer")
    xr.testing.assert_equal(opened(report), theirs.load())


def test_files_that_contradict_each_other_about_a_coordinate_lose_it(tmp_path):
    for i in range(2):
        ds = xr.Dataset(
            {"v": (("y", "x"), np.ones((2, 2)))}, {"y": [0, 1], "x": [2 * i, 2 * i + 1], "row": ("y", [i, 1])}
        )
        ds.to_netcdf(tmp_path / f"{i}.nc")
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim=["y", "x"])
    assert "files in the same place differ in it" in report.left_out["row"]
    assert "row" not in opened(report)


def test_texts_are_coordinates_too(tmp_path):
    for name in ("r2", "r10", "r1"):
        values = np.full((1, 3), float(name[1:]))
        xr.Dataset({"v": (("member", "x"), values)}, {"member": [name]}).to_netcdf(tmp_path / f"{name}.nc")
    report = intarsia.ingest(tmp_path / "r?.nc", "memory://", concat_dim="member")
    report = intarsia.ingest(tmp_path / "*.nc", report.repository, concat_dim="member")
    ds = opened(report)
    assert ds.member.values.tolist() == ["r1", "r10", "r2"]
    assert ds.v.values[:, 0].tolist() == [1, 10, 2]


def test_a_dataset_keeps_its_dimensions(tmp_path):
    tile(tmp_path, "a", [0], [0])
    tile(tmp_path, "b", [1], [0])
    report = intarsia.ingest(tmp_path / "a.h5", "memory://", concat_dim=["y", "x"])
    with pytest.raises(IngestError, match="grows along 'y' and 'x', not along 'y'"):
        intarsia.ingest(tmp_path / "b.h5", report.repository, concat_dim="y")
    report = intarsia.ingest(tmp_path / "b.h5", report.repository, concat_dim=["x", "y"])
    assert opened(report).sizes == {"y": 2, "x": 1}
    with pytest.raises(IngestError, match="name one dimension or several different ones"):
        intarsia.ingest(tmp_path / "b.h5", "memory://", concat_dim=["x", "x"])


def test_a_value_that_stands_twice_in_a_file_is_refused(tmp_path):
    tile(tmp_path, "a", [0, 1, 0], [0])
    with pytest.raises(IngestError, match="its y holds 0 more than once"):
        intarsia.ingest(tmp_path / "a.h5", "memory://", concat_dim="y")


def test_missing_values_are_no_coordinates(tmp_path):
    tile(tmp_path, "a", [0.0, np.nan], [0], 1)
    with pytest.raises(IngestError, match=r"a\.h5: its y holds missing values"):
        intarsia.ingest(tmp_path / "a.h5", "memory://", concat_dim="y")


def test_float_noise_in_coordinates_does_not_make_steps(tmp_path):
    x = np.linspace(0, 1, 5)
    tile(tmp_path, "a", [0, 1], x, 1)
    tile(tmp_path, "b", [2, 3], np.nextafter(x, 2), 2)
    report = intarsia.ingest(tmp_path / "*.h5", "memory://", concat_dim=["y", "x"])
    assert opened(report).sizes == {"y": 4, "x": 5}
    report = intarsia.ingest(tmp_path / "*.h5", "memory://", concat_dim=["y", "x"], tolerance=0)
    assert opened(report).sizes == {"y": 4, "x": 10}
    tile(tmp_path, "b", [2, 3], x + 1e-4, 2)
    report = intarsia.ingest(tmp_path / "*.h5", "memory://", concat_dim=["y", "x"], tolerance=1e-3)
    assert opened(report).sizes == {"y": 4, "x": 5}


def test_dimensions_that_stand_in_names_and_attributes(tmp_path):
    for member in range(2):
        for date in ("20020601", "20020602"):
            ds = xr.Dataset({"v": ("x", [float(member), float(date[-1])])}, attrs={"realization": member})
            ds.to_netcdf(tmp_path / f"forecast_{date}_{member}.nc")
    dims = {"init": from_name(r"_(\d{8})_", date="%Y%m%d"), "member": from_attribute("realization")}
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", dims=dims, copy="never")
    ds = opened(report)
    assert ds.v.dims == ("init", "member", "x")
    assert ds.init.values.astype("M8[D]").astype(str).tolist() == ["2002-06-01", "2002-06-02"]
    assert ds.member.values.tolist() == [0, 1]
    assert ds.v.values.tolist() == [[[0, 1], [1, 1]], [[0, 2], [1, 2]]]
    (tmp_path / "forecast_20020601_0.nc").rename(tmp_path / "forecast.nc")
    with pytest.raises(
        IngestError, match=r"forecast\.nc: its 'init' cannot be determined: its name does not match"
    ):
        intarsia.ingest(tmp_path / "forecast.nc", "memory://", dims=dims)


def test_nested_lists_give_the_order_where_there_are_no_coordinates(tmp_path):
    paths = [[write_bare(tmp_path / f"{i}{j}.nc", 10 * i + j) for j in range(3)] for i in range(2)]
    report = intarsia.ingest(paths, "memory://", concat_dim=["y", "x"])
    with xr.open_mfdataset(paths, combine="nested", concat_dim=["y", "x"]) as theirs:
        np.testing.assert_array_equal(opened(report).v, theirs.v)
    with pytest.raises(IngestError, match=r"it has no coordinate 'y'.*nested lists"):
        intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim=["y", "x"])
    write_bare(tmp_path / "new.nc", 7)
    with pytest.raises(IngestError, match="'y' has no coordinate, so its place is unknown"):
        intarsia.ingest([[tmp_path / "new.nc"]], report.repository, concat_dim=["y", "x"])
    with pytest.raises(IngestError, match="appears twice"):
        intarsia.ingest([paths[0], paths[0]], "memory://", concat_dim=["y", "x"])


def write_bare(path, value):
    xr.Dataset({"v": (("y", "x"), np.full((2, 2), float(value)))}).to_netcdf(path)
    return path


def test_the_dimensions_are_those_whose_coordinates_differ(tmp_path):
    for i, (t, y) in enumerate(((0, 0), (1, 0), (0, 3))):
        ds = xr.Dataset(
            {"v": (("t", "y", "x"), np.full((1, 3, 2), float(i))), "area": (("y", "x"), np.full((3, 2), y))},
            {"t": [t], "y": np.arange(3) + y, "x": [0.5, 1.5]},
        )
        ds.to_netcdf(tmp_path / f"{i}.nc")
    paths = sorted(tmp_path.glob("*.nc"))
    report = intarsia.ingest(paths[1:], "memory://", combine="by_coords")
    report = intarsia.ingest(paths, report.repository, combine="by_coords")
    theirs = xr.combine_by_coords(
        [xr.open_dataset(path) for path in paths], join="outer", data_vars="minimal", compat="no_conflicts"
    )
    xr.testing.assert_equal(opened(report), theirs.load())
    for dry_run in (True, False):  # nothing is new, so no file tells the dimensions
        again = intarsia.ingest(paths, report.repository, combine="by_coords", dry_run=dry_run)
        assert again.summary == "nothing to do: 3 unchanged"
    with pytest.raises(IngestError, match="no coordinate differs"):
        intarsia.ingest(paths[0], "memory://", combine="by_coords")
    (tmp_path / "bad.nc").write_bytes(b"nonsense")
    with pytest.raises(
        IngestError, match=r"bad\.nc: it is none of .*\n  no coordinate differs between the other"
    ):
        intarsia.ingest([paths[0], tmp_path / "bad.nc"], "memory://", combine="by_coords")
    with pytest.raises(IngestError, match="combine='by_name' is not one of"):
        intarsia.ingest(paths[0], "memory://", combine="by_name")
    with pytest.raises(IngestError, match="name one dimension"):
        intarsia.ingest(paths[0], "memory://")


def test_months_that_share_a_step_with_the_next_are_all_taken(tmp_path):
    """Each file ends with the first step of the one after it, as in many archives of models."""
    months = [netcdf(tmp_path / f"{i}.nc", 3 * i, steps=4) for i in range(4)]
    options = {"concat_dim": "time", "copy": "never"}
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", errors="skip", **options)
    assert [file.url[-4:] for file in report.failed] == ["1.nc", "3.nc"]
    assert all("overlap='first', 'last' or 'newest' says which" in file.reason for file in report.failed)
    for policy in ("first", "last"):
        report = intarsia.ingest(tmp_path / "*.nc", "memory://", overlap=policy, **options)
        assert not report.failed
        kept = [
            m[1 if i else 0 :] if policy == "first" else m[: None if i == 3 else 3]
            for i, m in enumerate(months)
        ]
        np.testing.assert_array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(kept))
        times = xr.open_dataset(report.repository, engine="intarsia", decode_times=False).time
        assert times.values.tolist() == list(range(13))


def sweeps(folder, count=3):
    """Files of radar sweeps: rays share a time, and sweeps go back in azimuth."""
    paths = []
    for number in range(count):
        time = np.array([0.0, 0.5, 0.5, 0.25]) + number
        data = {"v": (("time", "range"), np.arange(12, dtype="f4").reshape(4, 3) + 100 * number)}
        coords = {"time": time, "azimuth": ("time", np.array([0, 90, 180, 0]) + number)}
        xr.Dataset(data, coords).to_netcdf(folder / f"{number}.nc")
        paths.append(folder / f"{number}.nc")
    return paths


@pytest.mark.parametrize("batch", [None, 1])
def test_steps_that_repeat_in_a_file_stay_in_its_order_if_that_is_requested(tmp_path, batch):
    paths = sweeps(tmp_path)
    for options in ({"concat_dim": "time"}, {"combine": "by_coords"}):
        with pytest.raises(IngestError, match=r"its time holds 0.5 more than once \(combine='nested' takes"):
            intarsia.ingest(paths, tmp_path / "r", **options)
    options = {"concat_dim": "time", "combine": "nested"}
    intarsia.ingest(paths[:2], tmp_path / "r", **options, batch=batch)
    report = intarsia.ingest(paths, tmp_path / "r", **options)
    assert report.summary == "1 added, 2 unchanged"
    ours = xr.open_dataset(report.repository, engine="intarsia").load()
    theirs = xr.open_mfdataset(paths, **options)
    xr.testing.assert_equal(ours, theirs.load())
    assert not intarsia.verify(intarsia.open(report.repository, "v"), data=True)


def test_a_file_comes_after_steps_in_file_order_or_is_refused_with_that_advice(tmp_path):
    paths = sweeps(tmp_path, 2)
    options = {"concat_dim": "time", "combine": "nested"}
    intarsia.ingest(paths, tmp_path / "r", **options)
    later = xr.Dataset({"v": (("time", "range"), np.ones((1, 3), "f4"))}, {"time": [1.3]})
    later.assign_coords(azimuth=("time", [7])).to_netcdf(tmp_path / "later.nc")
    with pytest.raises(IngestError, match=r"in no order.*combine='nested' puts them after the others"):
        intarsia.ingest(tmp_path / "later.nc", tmp_path / "r", concat_dim="time")
    report = intarsia.ingest(tmp_path / "later.nc", tmp_path / "r", **options)
    assert intarsia.open(report.repository, "v").shape == (9, 3)
    ours = xr.open_dataset(report.repository, engine="intarsia").load()
    xr.testing.assert_equal(ours, xr.open_mfdataset([*paths, tmp_path / "later.nc"], **options).load())
