"""Bad things during an ingest: files that change or vanish, servers that fail, buckets without a listing."""

import os
import random

import numpy as np
import obstore
import pytest
import xarray as xr

import intarsia
from intarsia.archives import source_files
from intarsia.errors import IngestError, ReadError
from tests.archives.bad_bucket import proxy_before
from tests.archives.files import netcdf

COUNT = 12


@pytest.fixture
def series(tmp_path):
    paths = [tmp_path / f"{day:02d}.nc" for day in range(COUNT)]
    for day, path in enumerate(paths):
        netcdf(path, day, values=np.full((1, 6, 8), float(day)))
    return paths


@pytest.fixture
def served(s3, bucket, series):
    """The series in a bucket behind a proxy; the names, the options, and the proxy."""
    for path in series:
        obstore.put(bucket, f"a/{path.name}", path.read_bytes())
    with proxy_before(s3["endpoint_url"]) as proxy:
        options = {
            "endpoint_url": proxy.endpoint, "region": s3["region"], "allow_http": True,
            "access_key_id": s3["access_key_id"], "secret_access_key": s3["secret_access_key"],
        }  # fmt: skip
        yield [f"s3://archive/a/{path.name}" for path in series], options, proxy


def steps(repo):
    return intarsia.open(repo, "sst").shape[0]


def test_a_file_that_changes_after_it_was_parsed_is_never_read_as_it_was(series, tmp_path):
    def change(done, total):
        if done == 2:
            netcdf(series[1], 1, values=np.full((1, 6, 8), 99.0))
            os.utime(series[1], (4e9, 4e9))

    report = intarsia.ingest(series, tmp_path / "r", concat_dim="time", batch=4, progress=change)
    assert report.summary == f"{COUNT} added"
    sst = intarsia.open(report.repository, "sst")
    assert sst[2:, 0, 0].tolist() == [float(day) for day in range(2, COUNT)]
    with pytest.raises(ReadError, match=r"01\.nc"):
        sst[1]
    with pytest.raises(IngestError, match="it has changed since it was ingested"):
        intarsia.ingest(series, report.repository, concat_dim="time")
    report = intarsia.ingest(series, report.repository, concat_dim="time", replace=True)
    assert report.summary == f"1 replaced, {COUNT - 1} unchanged"
    assert intarsia.open(report.repository, "sst")[1, 0, 0] == 99


def test_a_source_that_vanishes_before_it_is_parsed_fails_its_batch_and_no_other(series, tmp_path):
    def remove(done, total):
        if done == 2:
            series[9].unlink(missing_ok=True)

    with pytest.raises(IngestError, match=r"(?s)the 8 before it are committed.*09\.nc"):
        intarsia.ingest(series, tmp_path / "r", concat_dim="time", batch=4, progress=remove)
    assert steps(tmp_path / "r") == 8
    report = intarsia.ingest(series, tmp_path / "r", concat_dim="time", batch=4, errors="skip")
    assert report.summary == "3 added, 8 unchanged, 1 failed"
    values = intarsia.open(report.repository, "sst")[:, 0, 0]
    assert values.tolist() == [float(day) for day in range(COUNT) if day != 9]


def test_a_source_that_vanishes_afterwards_is_an_error_and_no_fill_value(series, tmp_path):
    report = intarsia.ingest(series, tmp_path / "r", concat_dim="time", batch=5)
    series[3].unlink()
    with pytest.raises(ReadError, match=r"03\.nc"):
        intarsia.open(report.repository, "sst")[3]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.torture)])
@pytest.mark.parametrize("kind", ["busy", "cut"])
def test_servers_that_fail_now_and_then_cost_no_more_than_a_batch(served, tmp_path, kind, seed):
    urls, options, proxy = served
    rng = random.Random(seed)
    proxy.fault = lambda method, path: kind if method != "HEAD" and rng.random() < 0.1 else None
    target, done = tmp_path / "r", 0
    for _ in range(20):
        try:
            report = intarsia.ingest(
                urls, target, concat_dim="time", batch=3, storage_options=options, client=2
            )
            break
        except IngestError:  # the file, after all retries
            pass
        if target.exists():
            assert steps(target) % 3 == 0
            assert steps(target) >= done
            done = steps(target)
    proxy.fault = lambda method, path: None
    assert steps(report.repository) == COUNT
    values = xr.open_dataset(report.repository, engine="intarsia").sst.values[:, 0, 0]
    np.testing.assert_array_equal(values, np.arange(COUNT))


def test_what_is_known_is_listed_and_not_asked_for_one_by_one(served, tmp_path, monkeypatch):
    urls, options, proxy = served
    monkeypatch.setattr(source_files, "MIN_LISTED", 5)
    intarsia.ingest(urls, tmp_path / "r", concat_dim="time", storage_options=options)
    proxy.requests.clear()
    report = intarsia.ingest(urls, tmp_path / "r", concat_dim="time", storage_options=options)
    assert report.summary == f"nothing to do: {COUNT} unchanged"
    assert dict(proxy.requests) == {"LIST": 1}


def test_a_bucket_without_a_listing_will_do(served, bucket, tmp_path, monkeypatch):
    urls, options, proxy = served
    monkeypatch.setattr(source_files, "MIN_LISTED", 5)
    proxy.fault = lambda kind, path: "refuse" if kind == "LIST" else None
    report = intarsia.ingest(urls, tmp_path / "r", concat_dim="time", storage_options=options, batch=5)
    assert report.summary == f"{COUNT} added"
    obstore.put(bucket, "a/03.nc", obstore.get(bucket, "a/04.nc").bytes())
    report = intarsia.ingest(urls, tmp_path / "r", concat_dim="time", storage_options=options, errors="skip")
    assert report.summary == f"nothing added: {COUNT - 1} unchanged, 1 failed"
    with pytest.raises(IngestError, match="cannot be listed"):
        intarsia.ingest("s3://archive/a/*.nc", tmp_path / "r", concat_dim="time", storage_options=options)
