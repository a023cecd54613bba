"""Who parses: a cluster of dask, or processes of its own, also when some die; in order, never far ahead."""

import os
import signal
import sys
from concurrent.futures import Future
from functools import partial

import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster

import intarsia
from intarsia.archives import parse_pool
from intarsia.archives.parse import _parse_some
from intarsia.archives.parse_pool import ParseWorkers, can_be_started, parse_with
from intarsia.archives.parsed_file import ParseRequest
from intarsia.archives.source_files import Sources, url_of
from intarsia.errors import IngestError
from tests.archives.files import netcdf


@pytest.fixture(scope="module")
def cluster():
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
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


def test_a_cluster_parses(cluster, series, tmp_path):
    here = intarsia.ingest(series, tmp_path / "here", concat_dim="time")
    there = intarsia.ingest(series, tmp_path / "there", concat_dim="time", batch=7, client=cluster)
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
    results = parse_with(engine, lambda urls: list(urls), [str(i) for i in range(10_000)], remote=False)
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
    with pytest.raises(IngestError, match=r"(?s)00\.nc.*ingest again to continue"):
        intarsia.ingest(series, tmp_path / "r", concat_dim="time", client=Broken())
    assert not (tmp_path / "r").exists()


PARSE = partial(_parse_some, sources=Sources(), request=ParseRequest(("time",)))


@pytest.fixture
def urls(tmp_path):
    for day in range(4):
        netcdf(tmp_path / f"{day}.nc", day)
    (tmp_path / "4.nc").write_bytes(b"no file at all")
    return [url_of(path) for path in sorted(tmp_path.glob("*.nc"))]


def what(results):
    """Of parsed files: what identifies them, and where their chunks are."""
    return [
        each.reason if hasattr(each, "reason") else (
            each.url, each.identity, each.attrs,
            [(name, v.dims, v.codecs, None if v.ranges is None else v.ranges.offsets.tolist())
             for name, v in each.variables.items()],
        )
        for each in results
    ]  # fmt: skip


def test_a_process_answers_as_this_one_and_files_outlive_it(urls):
    workers = ParseWorkers(PARSE, 1)
    try:
        here = what(PARSE(urls))
        assert what(workers.parse(urls)) == here
        (process,) = workers._started
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert what(workers.parse(urls)) == here
    finally:
        workers.close()
    assert workers.parse(urls) == []  # nobody wants them any more


def test_where_no_process_starts_files_are_parsed_here(urls, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python-that-is-gone"))
    workers = ParseWorkers(PARSE, 2)
    assert what(workers.parse(urls)) == what(PARSE(urls))
    workers.close()


@pytest.mark.parametrize("executable", [None, "", "/usr/sbin/uwsgi"])
def test_an_interpreter_inside_another_program_is_not_started(executable, monkeypatch):
    assert can_be_started()
    monkeypatch.setattr(sys, "executable", executable)
    assert not can_be_started()


@pytest.mark.parametrize(("paying", "expected"), [(0.0, [100, 16, 4]), (np.inf, [])])
def test_processes_are_started_where_they_pay(paying, expected, monkeypatch):
    given = []

    class Workers:
        def __init__(self, parse, count):
            given.append(parse_pool.TRIED)
            self.parse = lambda urls: given.append(len(urls)) or parse(urls)

        def close(self):
            given.sort(reverse=True)

    monkeypatch.setattr(parse_pool, "ParseWorkers", Workers)
    monkeypatch.setattr(parse_pool, "PAYING", paying)
    monkeypatch.setattr(parse_pool, "cores", lambda: 2)
    urls = [str(i) for i in range(120)]
    assert list(parse_pool.parse_with(None, list, urls, remote=False)) == urls
    assert given == expected


def test_whether_they_pay_is_asked_once_for_all_batches(tmp_path, monkeypatch):
    given = []

    class Workers:
        def __init__(self, parse, count):
            self.parse = lambda urls: given.append(len(urls)) or parse(urls)

        def close(self):
            pass

    monkeypatch.setattr(parse_pool, "ParseWorkers", Workers)
    monkeypatch.setattr(parse_pool, "cores", lambda: 2)
    monkeypatch.setattr(parse_pool, "PAYING", 0.0)
    monkeypatch.setattr(parse_pool, "TRIED", 3)
    for day in range(9):
        netcdf(tmp_path / f"{day}.nc", day)
    report = intarsia.ingest(tmp_path / "*.nc", tmp_path / "r", concat_dim="time", batch=2)
    assert report.summary == "9 added"
    assert given == [6]
