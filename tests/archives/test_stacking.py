"""Variables that are stacked into one array, along a new dimension."""

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.archives.ingest_arguments import StackedVariables
from intarsia.errors import IngestError

BANDS = ["C01", "C02", "C03"]


def scene(path, time, bands=BANDS, chunks=(1, 4, 5), shape=(4, 6)):
    """A picture with a variable for each band, every one packed in its own way."""
    ds = xr.Dataset(coords={"time": [time], "y": np.arange(shape[0]), "x": np.arange(shape[1])})
    encoding = {}
    for band in bands:
        i = BANDS.index(band)
        numbers = np.random.default_rng([time, i]).integers(0, 99, (1, *shape)).astype("i2")
        packing = {"scale_factor": np.float32(0.25 * (i + 1)), "add_offset": np.float32(i), "_FillValue": -1}
        ds[band] = (("time", "y", "x"), numbers * packing["scale_factor"] + packing["add_offset"])
        ds[band].attrs = {"units": "1" if i else "K", "sensor": "ABI"}
        encoding[band] = {**packing, "dtype": "i2", "chunksizes": chunks, "zlib": True}
    ds.to_netcdf(path, encoding=encoding)
    return path


def stacked(path):
    with xr.open_dataset(path) as ds:
        return ds.load().to_dataarray("band", name="CMI")


def test_bands_with_their_own_packing_are_one_array(tmp_path):
    paths = [scene(tmp_path / f"{time}.nc", time, chunks=(1, 4, 5 - time % 2)) for time in range(4)]
    options = {"concat_dim": "time", "stack": {"CMI": ("band", BANDS)}, "copy": "never"}
    report = intarsia.ingest(paths[1:3], "memory://", **options)
    report = intarsia.ingest(paths, report.repository, **options)
    found = xr.open_dataset(report.repository, engine="intarsia").load()
    expected = xr.concat([stacked(path) for path in paths], "time").transpose("band", "time", "y", "x")
    np.testing.assert_array_equal(found.CMI, expected)
    assert found.CMI.dims == ("band", "time", "y", "x")
    assert found.band.values.tolist() == BANDS
    assert set(found.data_vars) == {"CMI"}
    assert found.CMI.attrs == {"sensor": "ABI"}
    array = intarsia.open(report.repository, "CMI")
    assert len(array.members) == 2
    assert not intarsia.verify(array)
    assert intarsia.ingest(paths, report.repository, **options).snapshot_id is None


def test_the_dataset_knows_what_it_stacks(tmp_path):
    paths = [scene(tmp_path / f"{time}.nc", time) for time in range(2)]
    stack = {"CMI": ("band", BANDS)}
    repo = intarsia.ingest(paths[0], "memory://", concat_dim="time", stack=stack).repository
    report = intarsia.ingest(paths[1], repo, concat_dim="time")
    found = xr.open_dataset(report.repository, engine="intarsia").load()
    assert set(found.data_vars) == {"CMI"}
    np.testing.assert_array_equal(found.CMI.isel(time=[1]), stacked(paths[1]))


def test_a_missing_band_is_a_hole_and_replaced_files_lose_theirs(tmp_path):
    paths = [scene(tmp_path / "0.nc", 0), scene(tmp_path / "1.nc", 1, BANDS[1:])]
    stack = {"CMI": ("band", {1: "C01", 2: "C02", 3: "C03"})}
    options = {"concat_dim": "time", "stack": stack, "missing": "fill"}
    with pytest.raises(IngestError, match="it has no variable 'C01'"):
        intarsia.ingest(paths, "memory://", concat_dim="time", stack=stack)
    report = intarsia.ingest(paths, "memory://", **options)
    found = xr.open_dataset(report.repository, engine="intarsia").load()
    assert found.band.values.tolist() == [1, 2, 3]
    assert np.isnan(found.CMI.sel(band=1, time=1)).all()
    np.testing.assert_array_equal(found.CMI.sel(band=3).isel(time=[1]), stacked(paths[1]).sel(band="C03"))
    scene(paths[0], 0, BANDS[:1])
    report = intarsia.ingest(paths, report.repository, replace=True, **options)
    found = xr.open_dataset(report.repository, engine="intarsia").load()
    assert np.isnan(found.CMI.sel(time=0, band=[2, 3])).all()
    assert not np.isnan(found.CMI.sel(time=0, band=1)).any()


def test_attributes_of_stacked_variables_are_combined_like_others(tmp_path):
    paths = [tmp_path / f"{day}.nc" for day in range(3)]
    for day, path in enumerate(paths):
        about = {"sensor": "ABI", "version": min(day, 1)}
        bands = {name: ("time", [float(day)], about | {"long_name": name}) for name in BANDS[:2]}
        xr.Dataset(bands, {"time": [day]}).to_netcdf(path)
    options = {"concat_dim": "time", "stack": {"CMI": ("band", BANDS[:2])}}
    for portions in ([paths], [paths[:1], paths[1:]], [[path] for path in paths]):
        repo = "memory://"
        for portion in portions:
            repo = intarsia.ingest(portion, repo, combine_attrs="drop_conflicts", **options).repository
        assert dict(intarsia.open(repo, "CMI").attrs) == {"sensor": "ABI"}
    with pytest.raises(IngestError, match=r"(?s)2 of 3 files.*'CMI' differs: attribute 'version' is 1"):
        intarsia.ingest(paths, "memory://", combine_attrs="identical", **options)
    report = intarsia.ingest(paths[1:], "memory://", combine_attrs="identical", **options)
    assert intarsia.open(report.repository, "CMI").attrs["version"] == 1


def test_what_cannot_be_stacked_is_refused(tmp_path):
    scene(tmp_path / "0.nc", 0)
    for wrong in ("band", ("band",), ("band", []), ("band", ["C01", "C01"]), (1, ["C01"])):
        with pytest.raises(IngestError, match="give a dimension and variables"):
            StackedVariables.of("CMI", wrong)
    stack = {"CMI": ("band", BANDS)}
    with pytest.raises(IngestError, match="'C01' appears in both 'CMI' and 'other'"):
        intarsia.ingest(
            tmp_path / "0.nc", "memory://", concat_dim="time", stack={**stack, "other": ("b", ["C01"])}
        )
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time", stack=stack)
    scene(tmp_path / "1.nc", 1)
    with pytest.raises(IngestError, match=r"the dataset stacks \['C01', 'C02', 'C03'\] along 'band'"):
        intarsia.ingest(
            tmp_path / "1.nc", report.repository, concat_dim="time", stack={"CMI": ("band", BANDS[:2])}
        )
    other = xr.Dataset({"C01": ("time", [1.0]), "C02": (("time", "z"), [[1.0, 2.0]])}, {"time": [0]})
    other.to_netcdf(tmp_path / "2.nc")
    with pytest.raises(
        IngestError, match=r"'C02' has the axes \(time=1, z=2\), but 'C01' of .*2\.nc has \(time=…\)"
    ):
        intarsia.ingest(
            tmp_path / "2.nc", "memory://", concat_dim="time", stack={"CMI": ("band", ["C01", "C02"])}
        )
