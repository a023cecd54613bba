"""An ingest that is killed at any moment goes on: nothing half, nothing twice, the same in the end."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import intarsia
from tests.archives.files import netcdf

FILES, BATCH = 12, 3
ROOT = Path(__file__).parents[2]


def run(folder, repository, log, seconds=0.0):
    """Ingest in another process; the seconds of the processor that it took, or None if it was killed."""
    arguments = [str(each) for each in (folder, repository, log, BATCH, seconds)]
    command = [sys.executable, "-m", "tests.archives.killed_ingest", *arguments]
    ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.returncode in (0, -signal.SIGPROF), ran.stderr
    return float(ran.stdout) if ran.returncode == 0 else None


def parsed(log):
    return log.read_text().split() if log.exists() else []


def committed(repository):
    """The files that readers see, after looking at all that they show."""
    try:
        repo = intarsia.archives.authorize(intarsia.open_repository(repository))
        sources = intarsia.archives.sources(repo, check=False)
    except (intarsia.errors.RepositoryNotFoundError, intarsia.errors.IngestError, FileNotFoundError):
        return []
    except intarsia.errors.NotLogicalArrayError:
        return []
    sst = intarsia.open(repo, "sst")
    assert len(sources) == sst.shape[0] == intarsia.open(repo, "other").shape[0]
    assert len(sources) % BATCH == 0
    days = xr.open_dataset(repo, engine="intarsia", decode_times=False).time.values
    np.testing.assert_array_equal(days, np.arange(len(sources)))
    np.testing.assert_array_equal(sst[:, 0, 0], 1.0 + np.arange(len(sources)))
    assert not intarsia.verify(sst)
    return [file.url for file in sources]


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.torture)])
def test_a_killed_ingest_goes_on_where_it_was(tmp_path, kills):
    folder = tmp_path / "files"
    folder.mkdir()
    for day in range(FILES):
        values = np.full((1, 6, 8), 1.0 + day)
        attrs = {"scale_factor": 1.0 + day % 2 * 0.0}
        netcdf(folder / f"{day:02d}.nc", day, values=values, attrs=attrs, extra=("other",))
    took = run(folder, tmp_path / "whole", tmp_path / "whole.log")
    whole = xr.open_dataset(intarsia.archives.authorize(tmp_path / "whole"), engine="intarsia").load()
    assert len(intarsia.open(tmp_path / "whole", "sst").members) == 3
    rng = random.Random(kills)
    number, done = 0, 0
    while done < kills:
        number += 1
        repository, log = tmp_path / f"r{number}", tmp_path / f"{number}.log"
        for _ in range(4):
            before, known = len(parsed(log)), committed(repository)
            killed = run(folder, repository, log, rng.uniform(0.01, took)) is None
            assert not set(parsed(log)[before:]) & set(known)
            done += killed
            if not killed or done == kills:
                break
        before, known = len(parsed(log)), committed(repository)
        assert run(folder, repository, log) is not None
        assert set(parsed(log)[before:]) == set(parsed(tmp_path / "whole.log")) - set(known)
        assert len(committed(repository)) == FILES
        again = xr.open_dataset(intarsia.archives.authorize(repository), engine="intarsia").load()
        xr.testing.assert_identical(again, whole)
