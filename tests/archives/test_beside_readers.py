"""`relocate`, `remove` and `replace` beside readers in threads and processes: one version, or an error."""

import os
import random
import shutil
import threading

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.archives import relocate, remove
from tests.archives.files import GRID, netcdf
from tests.versions.processes import CONTEXT, running

DAYS = 6


def write_day(folder, day, version):
    """A file of a day, whose values tell both; it takes the place of another one at once."""
    fresh = folder / f"{day}.partial"
    netcdf(fresh, day, values=np.full((1, *GRID), 1000 * version + day))
    os.utime(fresh, (1e9 + version, 1e9 + version))
    fresh.rename(folder / f"{day}.nc")


def look(repo, by_xarray):
    """Read all of one version: every day whole, and in its place. Gives whether it was there."""
    try:
        if by_xarray:
            with xr.open_dataset(repo, engine="intarsia", authorize=True, decode_times=False) as dataset:
                days, values = dataset.time.values, dataset.sst.values
        else:
            session = intarsia.open_repository(repo, authorize=True).readonly_session("main")
            days, values = intarsia.reader(session, "time")[...], intarsia.open(session, "sst")[...]
    except intarsia.errors.ReadError as error:  # a file of this version was replaced meanwhile
        if ".nc" not in str(error):
            raise
        return False
    assert len(days) == len(set(days.tolist())) == len(values)
    assert (values == values[:, :1, :1]).all(), "half of a file"
    assert (values[:, 0, 0] % 1000 == days).all(), f"{values[:, 0, 0]} on {days}"
    return True


def read_until(repo, seed, stop, begun=None):
    """Look again and again; returns how often, and how often a version could be read."""
    rng, counts = random.Random(seed), [0, 0]
    while not stop.is_set():
        counts[1] += look(repo, rng.random() < 0.3)
        counts[0] += 1
        if begun is not None:
            begun.set()
    return counts


def change(rng, tmp_path, at, number):
    """One of the three; gives where the files are now."""
    day, kind = rng.randrange(DAYS), rng.choice(["relocate", "remove", "replace"])
    if kind == "relocate":
        other = "two" if at == "one" else "one"
        shutil.copytree(tmp_path / at, tmp_path / other, dirs_exist_ok=True)  # with their times
        relocate(tmp_path / "r", {tmp_path / at: tmp_path / other})
        return kind, other
    if kind == "remove":
        remove(tmp_path / "r", tmp_path / at / f"{day}.nc")
    else:
        write_day(tmp_path / at, day, number)
    report = intarsia.ingest(
        tmp_path / at / f"{day}.nc", tmp_path / "r", concat_dim="time", replace=kind == "replace"
    )
    assert report.summary == ("1 added" if kind == "remove" else "1 replaced")
    return kind, at


@pytest.mark.parametrize("changes", [8, pytest.param(150, marks=pytest.mark.torture)])
def test_readers_see_one_version_of_an_archive_that_changes(changes, tmp_path):
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng, at, counts, failures = random.Random(seed), "one", [], []
    (tmp_path / "one").mkdir()
    for day in range(DAYS):
        write_day(tmp_path / "one", day, 0)
    intarsia.ingest(tmp_path / "one/*.nc", tmp_path / "r", concat_dim="time")
    stop, begun = CONTEXT.Event(), CONTEXT.Event()

    def read(number):
        try:
            counts.append(read_until(tmp_path / "r", f"{seed}-{number}", stop))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(2)]
    kinds = []
    with running(read_until, tmp_path / "r", seed, stop, begun) as worker:
        assert begun.wait(120)
        for thread in threads:
            thread.start()
        try:
            for number in range(1, changes + 1):
                kind, at = change(rng, tmp_path, at, number)
                kinds.append(kind)
        finally:
            stop.set()
        counts.append(worker.result())
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
    assert not failures, failures[0]
    reads, answered = (sum(each) for each in zip(*counts, strict=True))
    print({kind: kinds.count(kind) for kind in set(kinds)}, f"{reads} reads, {answered} of them answered")
    assert answered
    assert look(tmp_path / "r", by_xarray=False)
    assert intarsia.verify(intarsia.open_repository(tmp_path / "r", authorize=True)) == ()
