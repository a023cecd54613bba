"""Ingest as people use it: once, every day, with bad files, twice at a time."""

import inspect
import multiprocessing
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import h5py
import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from intarsia.archives import ingestion
from intarsia.archives.formats import hdf5
from intarsia.errors import IngestError, MissingExtraError
from tests.archives.files import netcdf

PACKED = {"scale_factor": np.float64(0.01), "add_offset": np.float64(280)}


def series(folder, days, **options):
    """One file a day; returns the paths and the stored numbers."""
    paths = [folder / f"{day:03d}.nc" for day in days]
    return paths, [netcdf(path, day, **options) for path, day in zip(paths, days, strict=True)]


def plain(report, name):
    return zarr.open_array(report.repository.readonly_session("main").store, path=name, mode="r")


def commits(repo):
    return len(list(repo.ancestry(branch="main")))


def test_one_call_is_one_commit_and_nothing_is_copied(tmp_path):
    _, values = series(tmp_path, range(5))
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "repository", concat_dim="time")
    assert [file.status for file in report.files] == ["added"] * 5
    assert commits(report.repository) == 2  # the empty first one, and ours
    sst = intarsia.open(report.repository, "sst")
    assert np.array_equal(sst[...], np.concatenate(values))
    assert len(sst.members) == len(sst.regions) == 1
    assert sst.attrs["units"] == "kelvin"
    assert plain(report, "time")[...].tolist() == [0, 1, 2, 3, 4]
    assert plain(report, "lat").metadata.dimension_names == ("lat",)
    stored = sum(
        path.stat().st_size for path in (tmp_path / "repository/chunks").rglob("*") if path.is_file()
    )
    assert stored < 4000  # the ledger and coordinates


def test_files_are_put_in_the_order_of_time_whatever_order_they_are_named_in(tmp_path):
    paths, values = series(tmp_path, range(6))
    report = intarsia.ingest(paths[3:] + paths[:3], tmp_path / "repository", concat_dim="time")
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(values))


def test_the_same_files_again_change_nothing(tmp_path):
    paths, _ = series(tmp_path, range(3))
    first = intarsia.ingest(paths, tmp_path / "repository", concat_dim="time")
    again = intarsia.ingest([*paths, paths[0]], tmp_path / "repository", concat_dim="time")
    assert [file.status for file in again.files] == ["unchanged"] * 3
    assert again.snapshot_id is None
    assert again.summary == "nothing to do: 3 unchanged"
    assert commits(first.repository) == 2


def test_what_belongs_in_the_middle_is_put_there(tmp_path):
    paths, _ = series(tmp_path, range(9), kind="i2", fill=-1, attrs=PACKED)
    for chosen in ([0, 4, 8], [6], [1, 2, 5], [3, 7]):
        report = intarsia.ingest([paths[i] for i in chosen], tmp_path / "repository", concat_dim="time")
    sst = intarsia.open(report.repository, "sst")
    with xr.open_mfdataset(paths) as dataset:
        assert np.array_equal(sst[...], dataset.sst.values)
        assert plain(report, "time")[...].tolist() == list(range(9))
    assert len(sst.members) == 1
    first = intarsia.open(
        report.repository, "sst", snapshot_id=list(report.repository.ancestry(branch="main"))[-2].id
    )
    assert first.shape[0] == 3  # every state stays readable


def test_a_changed_file_is_refused_or_replaced(tmp_path):
    paths, values = series(tmp_path, range(4))
    intarsia.ingest(paths, tmp_path / "repository", concat_dim="time")
    values[1] = netcdf(paths[1], 1, values=np.full((1, 6, 8), 7), compression=None, chunks=(1, 2, 2))
    with pytest.raises(IngestError, match=r"001\.nc: it has changed since.*replace=True"):
        intarsia.ingest(paths, tmp_path / "repository", concat_dim="time")
    report = intarsia.ingest(paths, tmp_path / "repository", concat_dim="time", replace=True)
    assert [file.status for file in report.files] == ["unchanged", "replaced", "unchanged", "unchanged"]
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(values))
    assert intarsia.ingest(paths, report.repository, concat_dim="time").snapshot_id is None


def test_a_replacement_may_have_another_length(tmp_path):
    for day, steps in ((0, 2), (2, 2), (6, 2)):
        netcdf(tmp_path / f"{day}.nc", day, steps=steps)
    paths = sorted(tmp_path.glob("*.nc"))
    intarsia.ingest(paths, tmp_path / "repository", concat_dim="time")
    longer = netcdf(paths[1], 2, steps=4)
    report = intarsia.ingest(paths[1], tmp_path / "repository", concat_dim="time", replace=True)
    sst = intarsia.open(report.repository, "sst")
    assert np.array_equal(sst[2:6], longer)
    assert plain(report, "time")[...].tolist() == list(range(8))
    netcdf(paths[1], 5, steps=3)
    with pytest.raises(IngestError, match="overlaps that of"):
        intarsia.ingest(paths[1], tmp_path / "repository", concat_dim="time", replace=True)


def test_daily_ingest_ends_with_as_few_members_as_encodings(tmp_path):
    days, values = 20, []
    for day in range(days):
        era = {"level": 4 if day < 10 else 7, "chunks": (1, 6, 8) if day % 5 else (1, 3, 8)}
        path = tmp_path / f"{day:03d}.nc"
        values.append(netcdf(path, day, kind="i2", fill=-1, attrs=PACKED, **era))
        report = intarsia.ingest(path, tmp_path / "repository", concat_dim="time")
    sst = intarsia.open(report.repository, "sst")
    assert len(sst.members) == 4
    assert len(sst.regions) == 8
    with xr.open_mfdataset(sorted(tmp_path.glob("*.nc"))) as dataset:
        assert np.array_equal(sst[...], dataset.sst.values)
    assert plain(report, "time").shape == (days,)


def test_years_of_different_length_share_a_member(tmp_path):
    first, paths, values = 0, [], []
    for year, steps in enumerate((5, 5, 6, 5)):  # as 365 and 366 days
        paths.append(tmp_path / f"{year}.nc")
        values.append(netcdf(paths[-1], first, steps=steps, chunks=(2, 6, 8)))
        first += steps
    report = intarsia.ingest(paths, tmp_path / "repository", concat_dim="time")
    sst = intarsia.open(report.repository, "sst")
    assert np.array_equal(sst[...], np.concatenate(values))
    assert sst.chunks == (1, 6, 8)
    assert len(sst.members) == 1
    assert np.array_equal(sst[3:12:2, 1], np.concatenate(values)[3:12:2, 1])


def test_mixed_types_and_packings_are_one_array(tmp_path):
    netcdf(tmp_path / "0.nc", 0, kind="i2", fill=-1, attrs=PACKED)
    netcdf(tmp_path / "1.nc", 1, kind="f4", fill=np.float32(1e20))
    netcdf(
        tmp_path / "2.nc", 2, kind="i1", attrs={"_Unsigned": "true", "scale_factor": np.float32(2)}, fill=-3
    )
    netcdf(tmp_path / "3.nc", 3, kind="f8")
    netcdf(tmp_path / "4.nc", 4, kind="i2", attrs={"missing_value": np.array([1, 2, 3], "i2")})
    netcdf(tmp_path / "5.nc", 5, kind="i4")
    paths = sorted(tmp_path.glob("*.nc"))
    report = intarsia.ingest(paths, tmp_path / "repository", concat_dim="time", copy="never")
    sst = intarsia.open(report.repository, "sst")
    with pytest.warns(xr.SerializationWarning):
        dataset = xr.open_mfdataset(paths)
    with dataset:
        theirs = dataset.sst.values
    assert sst.dtype == theirs.dtype == np.float64
    assert np.array_equal(sst[...], theirs, equal_nan=True)
    assert len(report.runs) == 6


def test_a_dry_run_shows_the_runs_and_writes_nothing(tmp_path):
    series(tmp_path, range(3), kind="i2", fill=-1, attrs=PACKED)
    series(tmp_path, range(3, 5), compression=None)
    report = intarsia.ingest(tmp_path / "*.nc", concat_dim="time", dry_run=True)
    assert [(run.first, run.last, run.files, run.codecs) for run in report.runs] == [
        ("2002-06-01", "2002-06-03", 3, "shuffle+zlib-4"),
        ("2002-06-04", "2002-06-05", 2, "raw"),
    ]
    assert "* 0.01 + 280; missing -1" in str(report)
    assert "float32" in str(report)
    to_be = tmp_path / "repository"
    assert intarsia.ingest(tmp_path / "*.nc", to_be, concat_dim="time", dry_run=True).runs == report.runs
    assert not to_be.exists()
    repo = intarsia.ingest(tmp_path / "00[0-2].nc", to_be, concat_dim="time").repository
    after = intarsia.ingest(tmp_path / "*.nc", repo, concat_dim="time", dry_run=True)
    assert [(run.start, run.files) for run in after.runs] == [(3, 2)]
    assert [file.status for file in after.files] == ["unchanged"] * 3 + ["added"] * 2


def bad_files(folder):
    """Files that are wrong in every way that files are."""
    good = folder / "000.nc"
    content = good.read_bytes()
    (folder / "100-truncated.nc").write_bytes(content[: len(content) // 2])
    (folder / "101-empty.nc").write_bytes(b"")
    (folder / "102-text.nc").write_text("<html>404 not found</html>")
    netcdf(folder / "103-overlap.nc", 1, steps=2)
    netcdf(folder / "104-lacks.nc", 50, name="other")
    netcdf(folder / "105-grid.nc", 51, lat=np.linspace(0, 1, 6))
    netcdf(folder / "106-shape.nc", 52, grid=(5, 8))
    netcdf(folder / "107-units.nc", 53, attrs={"units": "degC"})
    netcdf(folder / "108-scale.nc", 54, kind="i2", attrs={"scale_factor": 0.0})
    netcdf(folder / "109-no-steps.nc", 55, steps=0)
    with h5py.File(folder / "110-nothing.h5", "w") as file:
        file["unrelated"] = [1, 2]
    return {
        "100-truncated.nc": "truncated",
        "101-empty.nc": "the file is empty",
        "102-text.nc": "none of HDF5",
        "103-overlap.nc": r"its time 2002-06-02 … 2002-06-03 overlaps that of .*00[12]\.nc",
        "104-lacks.nc": "no variable 'sst'.*missing='fill'",
        "105-grid.nc": "its 'lat' differs from that of .*000.nc: values from 0 to 1 instead of -10 to 10",
        "106-shape.nc": "shape|axes",
        "107-units.nc": "units 'degC'.*units='ignore'",
        "108-scale.nc": "scale_factor is 0.0",
        "109-no-steps.nc": "no step along 'time'",
        "110-nothing.h5": "no variable|no step",
        "gone.nc": "no such file|nothing at",
    }


def test_bad_files_are_named_with_the_reason_and_the_others_taken(tmp_path):
    _, values = series(tmp_path, range(4))
    expected = bad_files(tmp_path)
    files = [*sorted(tmp_path.glob("*.[nh]*")), tmp_path / "gone.nc"]
    with pytest.raises(IngestError, match=r"12 of 16 files cannot be ingested, so nothing was written"):
        intarsia.ingest(files, tmp_path / "repository", concat_dim="time")
    assert not (tmp_path / "repository").exists()
    report = intarsia.ingest(files, tmp_path / "repository", concat_dim="time", errors="skip")
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(values))
    failed = {file.url.rsplit("/", 1)[1]: file.reason for file in report.failed}
    assert failed.keys() == expected.keys()
    for name, pattern in expected.items():
        assert re.search(pattern, failed[name]), (name, failed[name])


WITHOUT_PERMISSION = """
import os, sys
import intarsia

def fates(name):
    report = intarsia.ingest(name, "memory://", concat_dim="time", errors="skip")
    return [(file.status, file.reason) for file in report.files]

fates(sys.argv[1])  # so that everything is imported
if os.getuid() == 0:
    os.setuid(65534)
print(fates(sys.argv[2]))
"""


def test_a_file_without_permission_is_named():
    folder = Path(tempfile.mkdtemp())  # where other users may look, unlike pytest's
    try:
        folder.chmod(0o755)
        paths, _ = series(folder, range(2))
        paths[1].chmod(0)
        command = [sys.executable, "-c", WITHOUT_PERMISSION, paths[0], folder / "*.nc"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "('added', '')" in done.stdout, done.stderr
        assert "PermissionError" in done.stdout
    finally:
        shutil.rmtree(folder)


def test_variables_that_come_and_go(tmp_path):
    series(tmp_path, range(2))
    netcdf(tmp_path / "002.nc", 2, extra=("anomaly",))
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "first", concat_dim="time")
    assert "anomaly" in report.left_out
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "second", concat_dim="time", missing="fill")
    anomaly = intarsia.open(report.repository, "anomaly")
    assert np.isnan(anomaly[:2]).all()
    assert not np.isnan(anomaly[2]).any()
    netcdf(tmp_path / "000.nc", 3, name="ice")
    report = intarsia.ingest(
        tmp_path / "000.nc", tmp_path / "third", concat_dim="time", missing="fill", variables=["ice", "sst"]
    )
    report = intarsia.ingest(tmp_path / "00[12].nc", report.repository, concat_dim="time", missing="fill")
    ice, sst = (intarsia.open(report.repository, name) for name in ("ice", "sst"))
    assert ice.shape == sst.shape
    assert np.isnan(ice[:2]).all()
    assert np.isnan(sst[2]).all()


def test_chosen_variables_come_with_their_coordinates_only(tmp_path):
    netcdf(tmp_path / "0.nc", 0, extra=("ice", "wind"))
    report = intarsia.ingest(tmp_path / "0.nc", tmp_path / "r", concat_dim="time", variables=["ice"])
    root = zarr.open_group(report.repository.readonly_session("main").store, mode="r")
    assert sorted(root.keys()) == ["ice", "intarsia-sources", "lat", "time"]


def test_times_counted_from_different_days_are_joined_exactly(tmp_path):
    for day in range(3):
        netcdf(tmp_path / f"{day}.nc", 0, units=f"days since 2002-06-0{day + 1} 12:00")
    netcdf(tmp_path / "3.nc", 90, units="hours since 2002-06-01")
    paths = sorted(tmp_path.glob("*.nc"))
    report = intarsia.ingest(paths[1:], tmp_path / "r", concat_dim="time")
    report = intarsia.ingest(paths[0], report.repository, concat_dim="time")
    time = plain(report, "time")
    decoded = xr.conventions.decode_cf_variable("time", xr.Variable(("time",), time[...], dict(time.attrs)))
    with xr.open_mfdataset(paths) as dataset:
        assert (decoded.values == dataset.time.values).all()


def test_a_wider_type_than_the_datasets_is_rounded_if_that_is_asked_for(tmp_path):
    netcdf(tmp_path / "0.nc", 0)
    values = netcdf(tmp_path / "1.nc", 1, kind="f8")
    intarsia.ingest(tmp_path / "0.nc", tmp_path / "r", concat_dim="time")
    report = intarsia.ingest(tmp_path / "1.nc", tmp_path / "r", concat_dim="time", dtype={"sst": "float32"})
    assert intarsia.open(report.repository, "sst").dtype == np.float32
    assert np.array_equal(intarsia.open(report.repository, "sst")[1:], values.astype("f4"))


def test_units_may_be_ignored(tmp_path):
    netcdf(tmp_path / "0.nc", 0)
    netcdf(tmp_path / "1.nc", 1, attrs={"units": "K"})
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time", units="ignore")
    assert intarsia.open(report.repository, "sst").shape[0] == 2


def test_a_group_holds_a_dataset_of_its_own(tmp_path):
    series(tmp_path, range(2))
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time", group="ocean/daily")
    assert intarsia.open(report.repository, "ocean/daily/sst").shape[0] == 2
    report = intarsia.ingest(tmp_path / "*.nc", report.repository, concat_dim="time", group="ocean/daily")
    assert report.snapshot_id is None
    with pytest.raises(IngestError, match="is itself a logical array"):
        intarsia.ingest(tmp_path / "*.nc", report.repository, concat_dim="time", group="ocean/daily/sst")
    netcdf(tmp_path / "009.nc", 9)
    with pytest.raises(IngestError, match="grows along 'time'"):
        intarsia.ingest(tmp_path / "009.nc", report.repository, concat_dim="lat", group="ocean/daily")


def test_the_axis_need_not_be_the_first(tmp_path):
    for part in range(3):
        values = np.arange(24, dtype="f4").reshape(4, 6) + 100 * part
        dataset = xr.Dataset({"sst": (("y", "x"), values)}, {"x": np.arange(6) + 6 * part})
        dataset.to_netcdf(tmp_path / f"{part}.nc", encoding={"sst": {"chunksizes": (2, 4), "zlib": True}})
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="x")
    sst = intarsia.open(report.repository, "sst")
    with xr.open_mfdataset(sorted(tmp_path.glob("*.nc")), combine="nested", concat_dim="x") as dataset:
        assert np.array_equal(sst[...], dataset.sst.values)
    assert len(sst.members) == 1


@pytest.mark.parametrize("workers", [1, 3])
def test_parallel_parsing_changes_nothing(tmp_path, workers):
    _, values = series(tmp_path, range(6))
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time", client=workers)
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(values))


def test_parsing_in_another_process(tmp_path):
    _, values = series(tmp_path, range(4))
    (tmp_path / "bad.nc").write_bytes(b"bad")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        report = intarsia.ingest(
            tmp_path / "*.nc", tmp_path / "r", concat_dim="time", client=pool, errors="skip"
        )
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(values))
    assert len(report.failed) == 1


def test_progress_counts_files_and_the_commit(tmp_path):
    series(tmp_path, range(3))
    seen = []
    intarsia.ingest(
        tmp_path / "*.nc",
        tmp_path / "r",
        concat_dim="time",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]


def test_two_that_ingest_at_once_both_succeed(tmp_path, monkeypatch):
    paths, values = series(tmp_path, range(4))
    repo = intarsia.ingest(paths[0], tmp_path / "r", concat_dim="time").repository
    from intarsia.archives.write_plan import PlanWriter

    original, meanwhile = PlanWriter.write, iter([paths[2:]])

    def interrupted(writer):
        problems = original(writer)
        for others in meanwhile:  # another process is faster
            intarsia.ingest(others, tmp_path / "r", concat_dim="time")
        return problems

    monkeypatch.setattr(PlanWriter, "write", interrupted)
    report = intarsia.ingest([paths[1], paths[3]], repo, concat_dim="time")
    assert [file.status for file in report.files] == ["added", "unchanged"]
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(values))


def test_a_commit_while_the_repository_is_configured_makes_another_plan(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    (first, third), values = series(tmp_path, (0, 2))
    (second,), more = series(tmp_path / "other", (1,))  # of a folder that the repository does not know yet
    repo = intarsia.ingest(first, tmp_path / "r", concat_dim="time").repository
    original, meanwhile = ingestion.with_containers, iter([third])

    def interrupted(*arguments):
        configured = original(*arguments)
        for other in meanwhile:  # another process is faster
            intarsia.ingest(other, tmp_path / "r", concat_dim="time")
        return configured

    monkeypatch.setattr(ingestion, "with_containers", interrupted)
    report = intarsia.ingest(second, repo, concat_dim="time")
    assert [file.status for file in report.files] == ["added"]
    expected = np.concatenate([values[0], more[0], values[1]])
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], expected)


def test_a_failure_while_writing_commits_nothing(tmp_path, monkeypatch):
    series(tmp_path, range(2))
    repo = intarsia.open_repository(tmp_path / "r", create=True)

    def fails(*_):
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("intarsia.archives.write_plan.write_ledger", fails)
        with pytest.raises(OSError, match="disk is full"):
            intarsia.ingest(tmp_path / "*.nc", repo, concat_dim="time")
    assert commits(repo) == 1
    assert intarsia.ingest(tmp_path / "*.nc", repo, concat_dim="time").summary == "2 added"


def test_the_array_stays_a_logical_array_like_any_other(tmp_path):
    _, values = series(tmp_path, range(3))
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time")
    expected = np.concatenate(values)
    with intarsia.transaction(report.repository, message="copy the first days") as tx:
        tx.open("sst").recode([(0, 2), (0, 6), (0, 8)], codecs=["zstd"])
    sst = intarsia.open(report.repository, "sst")
    assert np.array_equal(sst[...], expected)
    assert not intarsia.verify(sst)
    netcdf(tmp_path / "003.nc", 3)
    report = intarsia.ingest(tmp_path / "*.nc", report.repository, concat_dim="time")
    assert np.array_equal(intarsia.open(report.repository, "sst")[:3], expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"copy": "sometimes"}, "copy='sometimes' is not one of"),
        ({"copy": None}, "copy=None is not one of 'needed', 'all', 'never'"),
        ({"errors": "ignore"}, "errors="),
        ({"missing": "nan"}, "missing="),
        ({"units": "any"}, "units="),
        ({"dtype": "f4"}, "give the types of variables"),
    ],
)
def test_options_are_checked_first(tmp_path, options, message):
    with pytest.raises(IngestError, match=message):
        intarsia.ingest("*.nc", tmp_path / "r", concat_dim="time", **options)
    assert not (tmp_path / "r").exists()


def test_a_glob_that_matches_nothing_is_an_error(tmp_path):
    with pytest.raises(IngestError, match="no file matches"):
        intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time")


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    series(tmp_path, range(1))
    monkeypatch.setattr(hdf5, "_codecs", {})
    monkeypatch.setitem(sys.modules, "virtualizarr.codecs", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\S+\[virtual\]'"):
        intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time")


def test_an_open_repository_keeps_its_other_settings(tmp_path):
    series(tmp_path, range(1))
    config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=77)
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "r")), config)
    report = intarsia.ingest(tmp_path / "*.nc", repo, concat_dim="time")
    again = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "r")))
    assert report.repository.config.inline_chunk_threshold_bytes == 77
    assert list(again.config.virtual_chunk_containers) == [f"file://{tmp_path}/"]


def test_files_as_xarray_writes_them(tmp_path):
    for part in range(3):
        times = xr.date_range("2002-06-01", periods=6, unit="ns")[2 * part : 2 * part + 2]
        bounds = np.stack([times.values, times.values + np.timedelta64(12, "h")], axis=1)
        dataset = xr.Dataset(
            {"sst": (("time", "x"), np.full((2, 3), part, "f4"))},
            {"time": times, "x": [0.0, 1.0, 2.0], "time_bnds": (("time", "nv"), bounds)},
        )
        dataset.time.attrs["bounds"] = "time_bnds"
        units = f"days since 2002-06-0{part + 1}"  # each file counts from another day
        encoding = {"units": units, "dtype": "f8", "_FillValue": np.nan}
        dataset.to_netcdf(tmp_path / f"{part}.nc", encoding={"time": encoding, "time_bnds": {"dtype": "f8"}})
    paths = sorted(tmp_path.glob("*.nc"))
    report = intarsia.ingest(paths[0], tmp_path / "r", concat_dim="time")
    for path in paths[1:]:
        report = intarsia.ingest(path, report.repository, concat_dim="time")
    with (
        xr.open_dataset(report.repository, engine="intarsia", decode_coords="all") as ours,
        xr.open_mfdataset(paths, decode_coords="all") as theirs,
    ):
        assert (ours.time.values == theirs.time.values).all()
        assert (ours.time_bnds.values == theirs.time_bnds.values).all()
        assert np.array_equal(ours.sst.values, theirs.sst.values)
    assert (
        intarsia.ingest(paths, report.repository, concat_dim="time").summary == "nothing to do: 3 unchanged"
    )


def test_the_repository_of_a_report_can_read_what_was_named_also_if_nothing_was_new(tmp_path):
    _, values = series(tmp_path, range(2))
    intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time")
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time")
    assert report.snapshot_id is None
    assert report.containers == (f"file://{tmp_path}/",)
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(values))


def test_a_long_table_of_runs_is_shortened_when_printed():
    run = intarsia.types.EncodingRun("sst", 0, 1, "a", "b", 1, (1,), "raw", "int16", "")
    text = str(intarsia.types.EncodingRuns((run,) * 500))
    assert len(text.splitlines()) == 62
    assert "… and 440 more rows" in text


def ingest_one_by_one(paths, repository):
    for path in paths:
        intarsia.ingest(path, repository, concat_dim="time")


@pytest.mark.torture
def test_no_file_is_lost_or_doubled(tmp_path):
    days, processes = 40, 4
    paths = [tmp_path / f"{day:03d}.nc" for day in range(days)]
    values = [netcdf(path, day, level=4 + day % 2) for day, path in enumerate(paths)]
    order = np.random.default_rng(3).permutation(days)  # seed 3
    portions = [[paths[i] for i in order[k::processes]] for k in range(processes)]
    portions[0] += portions[1][:5]  # some are ingested by two
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(ingest_one_by_one, portion, tmp_path / "r") for portion in portions]:
            done.result()
    report = intarsia.ingest(paths, tmp_path / "r", concat_dim="time")
    assert report.summary == f"nothing to do: {days} unchanged"
    sst = intarsia.open(report.repository, "sst")
    assert np.array_equal(sst[...], np.concatenate(values))
    assert len(sst.members) == 2
    assert len(list(report.repository.ancestry(branch="main"))) == days + 1
    assert not intarsia.verify(sst)


def test_lint_takes_the_arguments_of_ingest_except_those_of_a_commit():
    functions = (intarsia.ingest, intarsia.archives.lint)
    ingest, lint = (inspect.signature(function).parameters for function in functions)
    assert ingest.keys() - lint.keys() == {"message", "dry_run"}
    assert [str(ingest[name]) for name in lint] == [str(lint[name]) for name in lint]
