"""Who parses: a cluster of dask with processes, also when its workers die; in order, and never far ahead."""

import os
import signal
from concurrent.futures import Future

import pytest
import xarray as xr
from distributed import Client, LocalCluster

import intarsia
from intarsia.archives.workforce import parsed_by
from intarsia.errors import IngestError
from tests.archives.files import netcdf


@pytest.fixture(scope="module")
def cluster():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def series(tmp_path):
    paths = [tmp_path / f"{day:02d}.nc" for day in range(24)]
    for day, path in enumerate(paths):
        netcdf(path, day)
    return paths


@pytest.mark.parametrize("argument", ["client", "workers"])
def test_a_cluster_parses(cluster, series, tmp_path, argument):
    here = intarsia.ingest(series, tmp_path / "here", concat_dim="time")
    there = intarsia.ingest(series, tmp_path / "there", concat_dim="time", batch=7, **{argument: cluster})
    assert there.files == here.files
    mine, theirs = (xr.open_dataset(each.repository, engine="intarsia").load() for each in (here, there))
    xr.testing.assert_identical(theirs, mine)


def test_workers_may_die(cluster, series, tmp_path):
    killed = []

    def kill(done, total):
        if done in (3, 12) and len(killed) < 2:
            pid = next(iter(cluster.run(os.getpid).values()))
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    report = intarsia.ingest(
        series, tmp_path / "r", concat_dim="time", batch=5, client=cluster, progress=kill
    )
    assert len(killed) == 2
    assert report.summary == "24 added"
    whole = intarsia.ingest(series, tmp_path / "whole", concat_dim="time")
    mine, theirs = (xr.open_dataset(each.repository, engine="intarsia").load() for each in (report, whole))
    xr.testing.assert_identical(mine, theirs)


class Slow:
    """An executor that runs nothing before somebody waits for it."""

    def __init__(self):
        self.given = 0

    def submit(self, function, /, *args):
        self.given += 1
        future = Future()
        future.set_result(function(*args))
        return future


def test_nobody_parses_far_ahead():
    engine = Slow()
    results = parsed_by(engine, lambda urls: list(urls), [str(i) for i in range(10_000)], remote=False)
    assert [next(results) for _ in range(3)] == ["0", "1", "2"]
    assert engine.given < 30
    assert list(results)[-1] == "9999"


class Broken:
    def submit(self, function, /, *args):
        from concurrent.futures.process import BrokenProcessPool

        future = Future()
        future.set_exception(BrokenProcessPool("a child process terminated abruptly"))
        return future


def test_a_dead_pool_is_told(series, tmp_path):
    with pytest.raises(IngestError, match=r"(?s)00\.nc.*ingest again to go on"):
        intarsia.ingest(series, tmp_path / "r", concat_dim="time", client=Broken())
    assert not (tmp_path / "r").exists()
