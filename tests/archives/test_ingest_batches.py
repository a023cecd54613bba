"""Batches: the result is that of one go, whatever the batches are, and whoever parses."""

import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia
from intarsia.archives import ingestion
from intarsia.archives.formats import hdf5
from intarsia.errors import IngestError
from tests.archives.files import netcdf
from tests.archives.test_machine import files, write
from tests.grids import spread


def opened(repo):
    return xr.open_dataset(repo, engine="intarsia").load()


@pytest.fixture
def series(tmp_path):
    paths = [tmp_path / f"{day:02d}.nc" for day in range(9)]
    for day, path in enumerate(paths):
        packing = {"scale_factor": 0.01 * (day + 1), "add_offset": 280.0}
        netcdf(path, day, kind="i2", fill=7, attrs=packing)
    return paths


@pytest.mark.parametrize(("size", "inline"), spread([1, 2, 4, 100], [0, 5_000]))
def test_batches_of_any_size_are_as_one_go(series, tmp_path, monkeypatch, size, inline):
    monkeypatch.setattr("intarsia.logical.logical_array_handle.INLINE_REGIONS", inline)
    whole = intarsia.ingest(series, tmp_path / "whole", concat_dim="time")
    report = intarsia.ingest(series, tmp_path / "batched", concat_dim="time", batch=size)
    xr.testing.assert_identical(opened(report.repository), opened(whole.repository))
    assert report.files == whole.files
    assert report.runs == whole.runs
    assert report.summary == "9 added"
    history = intarsia.history(report.repository)
    assert len(history) == -(-9 // size)
    assert report.snapshot_id == history[0].snapshot_id
    assert not intarsia.verify(intarsia.open(report.repository, "sst"))


def test_files_in_any_order_are_reported_where_they_are_in_the_end(series, tmp_path):
    shuffled = [series[i] for i in (5, 2, 8, 0, 7, 1, 3, 6, 4)]
    whole = intarsia.ingest(shuffled, tmp_path / "whole", concat_dim="time")
    report = intarsia.ingest(shuffled, tmp_path / "batched", concat_dim="time", batch=2)
    assert report.files == whole.files
    assert report.runs == whole.runs
    xr.testing.assert_identical(opened(report.repository), opened(whole.repository))


def test_batches_become_larger_with_what_is_committed(series, tmp_path, monkeypatch):
    monkeypatch.setattr(ingestion, "BATCH_FILES", 1)
    monkeypatch.setattr(ingestion, "BATCH_SHARE", 1)
    report = intarsia.ingest(series[:8], tmp_path / "r", concat_dim="time")
    messages = [commit.message for commit in report.repository.ancestry(branch="main")]
    assert messages[:4] == [f"ingest: {count} added" for count in (4, 2, 1, 1)]


def test_a_batch_is_bounded_by_memory(series, tmp_path, monkeypatch):
    monkeypatch.setattr(ingestion, "BATCH_BYTES", 3 * ingestion.VARIABLE_BYTES)
    report = intarsia.ingest(series, tmp_path / "r", concat_dim="time")
    assert len(intarsia.history(report.repository)) == 9


def test_references_count_for_what_icechunk_holds_of_them(series, tmp_path, monkeypatch):
    monkeypatch.setattr(ingestion, "VARIABLE_BYTES", 0)
    monkeypatch.setattr(ingestion, "BATCH_BYTES", 2 * ingestion.REFERENCE_BYTES)
    report = intarsia.ingest(series, tmp_path / "r", concat_dim="time", batch=4)
    assert len(intarsia.history(report.repository)) == 5


def test_what_is_committed_is_not_parsed_again(series, tmp_path, monkeypatch):
    (tmp_path / "bad.nc").write_bytes(b"no NetCDF")
    with pytest.raises(IngestError, match="the 6 before it are committed"):
        intarsia.ingest([*series[:7], tmp_path / "bad.nc"], tmp_path / "r", concat_dim="time", batch=3)
    assert intarsia.open(tmp_path / "r", "sst").shape[0] == 6
    parsed, parse = [], hdf5.HDF5.parse
    monkeypatch.setattr(hdf5.HDF5, "parse", lambda *args: parsed.append(args[1]) or parse(*args))
    report = intarsia.ingest(series, tmp_path / "r", concat_dim="time", batch=3)
    assert [Path(url).name for url in parsed] == ["06.nc", "07.nc", "08.nc"]
    assert report.summary == "3 added, 6 unchanged"


def test_the_first_of_many_batches_may_fail_as_a_whole(series, tmp_path):
    bad = [tmp_path / f"bad{i}.nc" for i in range(3)]
    for path in bad:
        path.write_bytes(b"no NetCDF")
    report = intarsia.ingest([*bad, *series], tmp_path / "r", concat_dim="time", batch=2, errors="skip")
    assert report.summary == "9 added, 3 failed"
    assert [file.status for file in report.files] == ["failed"] * 3 + ["added"] * 9


def test_later_batches_may_widen_the_type_and_the_units_of_time(tmp_path):
    paths = [tmp_path / f"{i}.nc" for i in range(6)]
    for i, (path, kind) in enumerate(zip(paths, ("i2", "i2", "u2", "i4", "f4", "f8"), strict=True)):
        units = "days since 2002-06-01" if i < 4 else "hours since 2002-06-01"
        netcdf(path, i if i < 4 else i * 24, kind=kind, units=units)
    whole = intarsia.ingest(paths[:4], tmp_path / "whole", concat_dim="time")
    report = intarsia.ingest(paths[:4], tmp_path / "batched", concat_dim="time", batch=1)
    xr.testing.assert_identical(opened(report.repository), opened(whole.repository))
    assert opened(report.repository).sst.dtype == np.int32
    whole = intarsia.ingest(paths, tmp_path / "whole2", concat_dim="time")
    report = intarsia.ingest(paths, tmp_path / "batched2", concat_dim="time", batch=1)
    xr.testing.assert_identical(opened(report.repository), opened(whole.repository))


def test_a_fixed_variable_that_differs_in_a_later_batch_keeps_its_first_values(tmp_path):
    for i, last in enumerate((6.0, 6.0, 9.0)):
        ds = xr.Dataset({"v": (("t", "x"), [[1.0 * i, 2.0]]), "mask": ("x", [5.0, last])}, {"t": [i]})
        ds.to_netcdf(tmp_path / f"{i}.nc")
    whole = intarsia.ingest(tmp_path / "*.nc", tmp_path / "whole", concat_dim="t")
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "batched", concat_dim="t", batch=2)
    assert list(whole.left_out) == list(report.left_out) == ["mask"]
    batched = opened(report.repository)
    assert batched["mask"].values.tolist() == [5, 6]
    xr.testing.assert_identical(batched.drop_vars("mask"), opened(whole.repository))


def test_an_axis_that_falls_in_the_first_batch_goes_on_falling(tmp_path):
    for i, days in enumerate(([9, 8], [10, 11])):
        xr.Dataset({"v": ("t", np.array(days, "f8"))}, {"t": days}).to_netcdf(tmp_path / f"{i}.nc")
    whole = intarsia.ingest(tmp_path / "*.nc", tmp_path / "whole", concat_dim="t")
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "batched", concat_dim="t", batch=1)
    batched = opened(report.repository)
    assert batched["t"].values.tolist() == [11, 10, 9, 8]
    xr.testing.assert_identical(batched.sortby("t"), opened(whole.repository))


@settings(max_examples=max(5, settings().max_examples // 6))
@given(files(), st.integers(1, 3), st.data())
def test_any_archive_in_batches_is_as_in_one_go(described, size, data):
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        for i, each in enumerate(described):
            write(folder / f"{i}.h5", *each)
        order = data.draw(st.permutations(range(len(described))))
        paths = [folder / f"{i}.h5" for i in order]
        whole = intarsia.ingest(paths, "memory://", concat_dim="time")
        report = intarsia.ingest(paths, "memory://", concat_dim="time", batch=size)
        xr.testing.assert_identical(opened(report.repository), opened(whole.repository))
        assert [(file.url, file.status) for file in report.files] == [
            (file.url, file.status) for file in whole.files
        ]
        assert not intarsia.verify(intarsia.open(report.repository, "v"))


@pytest.mark.parametrize("kind", ["number", "threads", "processes"])
def test_anybody_may_parse(series, tmp_path, kind):
    expected = intarsia.ingest(series, tmp_path / "whole", concat_dim="time")
    if kind == "number":
        report = intarsia.ingest(series, tmp_path / "r", concat_dim="time", client=3, batch=4)
    else:
        spawned = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        with ThreadPoolExecutor(2) if kind == "threads" else spawned as pool:
            report = intarsia.ingest(series, tmp_path / "r", concat_dim="time", client=pool, batch=4)
    assert report.files == expected.files
    xr.testing.assert_identical(opened(report.repository), opened(expected.repository))


def test_who_cannot_parse_is_refused(series, tmp_path):
    for given_ in ({"client": "cluster"}, {"client": object()}, {"client": True}):
        with pytest.raises(IngestError, match="cannot parse files: give a number of threads"):
            intarsia.ingest(series, tmp_path / "r", concat_dim="time", **given_)
    with pytest.raises(IngestError, match="at least one file"):
        intarsia.ingest(series, tmp_path / "r", concat_dim="time", batch=0)
    assert not (tmp_path / "r").exists()


def test_groups_of_files_go_together_in_every_batch(tmp_path):
    paths = [tmp_path / f"{day}.h5" for day in range(5)]
    for day, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            for group in ("A", "B/C"):
                file[f"{group}/time"] = np.array([float(day)])
                file[f"{group}/time"].make_scale("time")
                file[f"{group}/v"] = np.full((1, 3), day, "f4")
                file[f"{group}/v"].dims[0].attach_scale(file[f"{group}/time"])
    options = {"concat_dim": "time", "source_group": "*"}
    whole = intarsia.ingest(paths, tmp_path / "whole", **options)
    report = intarsia.ingest(paths, tmp_path / "batched", batch=2, **options)
    assert report.summary == whole.summary
    assert len(intarsia.history(report.repository)) == 3
    for group in ("A", "B/C"):
        own, other = (
            xr.open_dataset(each.repository, engine="intarsia", group=group) for each in (report, whole)
        )
        xr.testing.assert_identical(own.load(), other.load())
