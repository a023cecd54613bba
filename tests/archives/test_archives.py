"""The generated archives: what other tools make of them, and what we do."""

import datetime
import time

import icechunk
import numpy as np
import pytest
import virtualizarr
import xarray as xr
from examples.archives import ERAS, aodn_like, mur_day, mur_like, temperature
from virtualizarr.parsers import HDFParser

import intarsia
from intarsia.archives.source_files import Sources, url_of


def virtual_concat(paths):
    """The series as VirtualiZarr itself concatenates it."""
    sources = Sources()
    parts = []
    for path in paths:
        url = url_of(path)
        sources.resolve(url)
        parts.append(
            virtualizarr.open_virtual_dataset(
                url, parser=HDFParser(), registry=sources.registry, loadable_variables=["time", "lat", "lon"]
            )
        )
    return xr.concat(
        parts, dim="time", coords="minimal", compat="override", join="override", data_vars="minimal"
    )


def as_xarray_reads(paths):
    """Every variable of the series."""
    options = {"data_vars": "all", "coords": "minimal", "compat": "override"}
    with xr.open_mfdataset(paths, combine="nested", concat_dim="time", **options) as dataset:
        return {name: variable.values for name, variable in dataset.data_vars.items()}


@pytest.fixture(scope="module")
def mur(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mur")
    paths = mur_like(folder, days=2)
    report = intarsia.ingest(paths, folder / "repository", concat_dim="time", missing="fill")
    return paths, report, as_xarray_reads(paths)


@pytest.fixture(scope="module")
def aodn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aodn")
    paths = aodn_like(folder, days=40)
    report = intarsia.ingest(paths, folder / "repository", concat_dim="time")
    return paths, report, as_xarray_reads(paths)


def test_virtualizarr_refuses_the_mur_like_series(mur):
    with pytest.raises(NotImplementedError, match=r"different codecs"):
        virtual_concat(mur[0][::2])  # one of every era


@pytest.mark.parametrize("name", ["analysed_sst", "analysis_error", "mask", "sst_anomaly"])
def test_the_mur_like_series_is_one_array_that_equals_the_files(mur, name):
    _, report, theirs = mur
    array = intarsia.open(report.repository, name)
    ours = array[...]
    assert ours.dtype == theirs[name].dtype
    assert np.array_equal(ours, theirs[name], equal_nan=True)


def test_the_runs_of_the_mur_like_series_are_its_eras(mur):
    _, report, _ = mur
    runs = [run for run in report.runs if run.variable == "analysed_sst"]
    starts = [run.first[:10] for run in runs]
    assert starts == [str(era.first) for i, era in enumerate(ERAS) if i != 4]  # that one only adds a variable
    assert not report.of("failed")
    sst = intarsia.open(report.repository, "analysed_sst")
    assert len(sst.regions) == len(runs) == 7
    assert len(sst.members) == 6  # one encoding came back


def test_xarray_opens_the_dataset_as_it_opens_the_files(mur):
    paths, report, theirs = mur
    with xr.open_dataset(report.repository, engine="intarsia") as dataset:
        assert set(dataset.data_vars) == set(theirs)
        with xr.open_dataset(paths[0]) as first:
            assert dataset.time.values[0] == first.time.values[0]
            assert dataset.attrs == first.attrs
            assert dataset.lat.equals(first.lat)
            assert dataset.analysed_sst.attrs == first.analysed_sst.attrs
        sample = dataset.analysed_sst.isel(time=slice(2, 20, 5)).values
    assert np.array_equal(sample, theirs["analysed_sst"][2:20:5], equal_nan=True)


def test_virtualizarr_gives_wrong_values_for_the_aodn_like_series(aodn, tmp_path):
    paths, _, theirs = aodn
    prefix = f"file://{paths[0].parent}/"
    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(str(paths[0].parent))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
    repo = icechunk.Repository.create(
        icechunk.in_memory_storage(),
        config,
        authorize_virtual_chunk_access={prefix: icechunk.credentials.LocalFileSystemAccess},
    )
    session = repo.writable_session("main")
    virtual_concat(paths).vz.to_icechunk(session.store)
    with xr.open_zarr(session.store, consolidated=False) as dataset:
        wrong = dataset.sea_surface_temperature.values
    assert np.nanmax(np.abs(wrong - theirs["sea_surface_temperature"])) > 0.5  # kelvin, and nothing was said


def test_the_aodn_like_series_is_exact_though_every_file_is_packed_differently(aodn):
    paths, report, theirs = aodn
    sst = intarsia.open(report.repository, "sea_surface_temperature")
    assert len(sst.members) == 1
    assert len(sst.regions) == len(paths)
    ours, expected = sst[...], theirs["sea_surface_temperature"]
    assert np.array_equal(ours, expected, equal_nan=True)
    truth = np.stack([temperature(datetime.date(2002, 6, 1 + i), ours.shape[1:]) for i in range(30)])
    assert np.nanmax(np.abs(ours[:30] - truth)) < 1e-3
    quality = intarsia.open(report.repository, "quality_level")
    assert len(quality.members) == len(quality.regions) == 1


def many_regions(folder, days):
    """A series of tiny files, each with its own scale, in which some random days are checked."""
    name = "sea_surface_temperature"
    paths = aodn_like(folder, days=days, grid=(4, 5))
    report = intarsia.ingest(paths, folder / "repository", concat_dim="time")
    sst = intarsia.open(report.repository, name)
    assert sst.shape[0] == len(sst.manifest.regions) == len(sst.manifest.packings) == days
    assert len(sst.members) == len(intarsia.open(report.repository, "quality_level").members) == 1
    # Those of both members, to which each batch of files adds one, of coordinates, the ledger and, where
    # there are many regions, their tables.
    newest = report.repository.lookup_branch("main")
    assert len(report.repository.list_manifest_files(newest)) <= 10 + days // 1_000
    for day in np.random.default_rng(0).integers(0, days, 5).tolist():
        with xr.open_dataset(paths[day]) as dataset:
            expected = dataset[name].values[0]
        assert np.array_equal(sst[day], expected, equal_nan=True)
    return paths, report


def test_hundreds_of_one_file_regions(tmp_path):
    many_regions(tmp_path, 300)


@pytest.mark.torture
def test_twelve_thousand_one_file_regions(tmp_path):
    days = 12_000
    begun = time.perf_counter()
    _, report = many_regions(tmp_path, days)
    print(f"made and ingested {days} files in {time.perf_counter() - begun:.0f} s")
    begun = time.perf_counter()
    sst = intarsia.open(report.repository, "sea_surface_temperature")
    opening = time.perf_counter() - begun
    begun = time.perf_counter()
    sst[7_000]
    print(f"open {opening * 1e3:.0f} ms, a day {(time.perf_counter() - begun) * 1e3:.0f} ms")
    manifest = sst.group.metadata.attributes["intarsia"]
    assert isinstance(manifest["regions"], str)  # the table form


@pytest.mark.torture
def test_four_hundred_days_one_by_one(tmp_path):
    eras = (ERAS[0], ERAS[5])
    first = datetime.date(2020, 1, 1)
    for i in range(400):
        day = first + datetime.timedelta(days=i)
        path = tmp_path / f"{day:%Y%m%d}.nc"
        mur_day(path, day, eras[i >= 250])
        report = intarsia.ingest(path, tmp_path / "repository", concat_dim="time", missing="fill")
    sst = intarsia.open(report.repository, "analysed_sst")
    assert sst.shape[0] == 400
    assert len(sst.members) == len(sst.regions) == 2
    theirs = as_xarray_reads(sorted(tmp_path.glob("*.nc")))
    assert np.array_equal(sst[...], theirs["analysed_sst"], equal_nan=True)
