"""Several processes that ingest into one repository at the same time."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import intarsia
from tests.archives.files import netcdf


def ingest_one_by_one(paths, repository):
    for path in paths:
        intarsia.ingest(path, repository, concat_dim="time")


@pytest.mark.torture
def test_no_file_is_lost_or_doubled(tmp_path):
    days, processes = 40, 4
    paths = [tmp_path / f"{day:03d}.nc" for day in range(days)]
    values = [netcdf(path, day, level=4 + day % 2) for day, path in enumerate(paths)]
    order = np.random.default_rng(3).permutation(days)  # seed 3
    shares = [[paths[i] for i in order[k::processes]] for k in range(processes)]
    shares[0] += shares[1][:5]  # some are ingested by two
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(ingest_one_by_one, share, tmp_path / "r") for share in shares]:
            done.result()
    report = intarsia.ingest(paths, tmp_path / "r", concat_dim="time")
    assert report.summary == f"nothing to do: {days} unchanged"
    sst = intarsia.open(report.repository, "sst")
    assert np.array_equal(sst[...], np.concatenate(values))
    assert len(sst.members) == 2
    assert len(list(report.repository.ancestry(branch="main"))) == days + 1
    assert not intarsia.verify(sst)
