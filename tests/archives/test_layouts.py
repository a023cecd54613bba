"""Replicas of archives: files stay untouched, and new ones are read from the files until maintain ran."""

import numpy as np
import pytest

import intarsia
from intarsia.array import logical_group
from tests.archives.files import netcdf

DAYS = 24


def write_day(folder, day, scale):
    attrs = {"scale_factor": scale, "add_offset": 280.0}
    netcdf(folder / f"{day:03d}.nc", day, kind="i2", fill=-1, attrs=attrs)


def state(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.glob("*.nc")}


def layers(array, selection):
    parts = intarsia.explain(array, selection).parts
    return {layer: sum(part.elements for part in parts if part.layer == layer) for layer in (0, 1)}


@pytest.mark.parametrize("in_table", [False, True])
def test_a_replica_of_daily_files(tmp_path, monkeypatch, in_table):
    if in_table:
        monkeypatch.setattr(logical_group, "INLINE_REGIONS", 3)
    folder = tmp_path / "files"
    folder.mkdir()
    for day in range(DAYS):  # every file is packed in its own way
        write_day(folder, day, 0.01 * (1 + day % 5))
    before = state(folder)
    repo = intarsia.ingest(str(folder / "*.nc"), str(tmp_path / "repo"), concat_dim="time").repository
    name = "sst"
    truth = intarsia.open(repo, name)[...]
    shape = truth.shape
    intarsia.add_replica(repo, name, chunks=(shape[0], 2, 2), codecs=["zstd"])
    array = intarsia.open(repo, name)
    assert state(folder) == before
    assert layers(array, np.s_[:, 1, 1]) == {0: 0, 1: shape[0]}
    assert layers(array, np.s_[3]) == {0: truth[3].size, 1: 0}
    np.testing.assert_array_equal(array.with_config(layer=1)[...], truth)
    for more in range(2):
        day = DAYS + more
        write_day(folder, day, 0.5)
        before = state(folder)
        intarsia.ingest(str(folder / "*.nc"), repo, concat_dim="time")
        array = intarsia.open(repo, name)
        assert layers(array, np.s_[:, 1, 1])[0] == len(array) - DAYS
        np.testing.assert_array_equal(array.with_config(layer=1)[: shape[0]], truth)
        assert intarsia.verify(repo, deep=True) == ()
        truth = array.with_config(layer=0)[...]
        assert [step.what for step in intarsia.maintain(repo)][:1] == ["replica"]
        array, shape = intarsia.open(repo, name), array.shape
        assert sum(b - a for (a, b), *_ in (replica.bounds for replica in array.replicas)) == shape[0]
        np.testing.assert_array_equal(array.with_config(layer=1)[...], truth)
        assert intarsia.maintain(repo) == ()
        assert state(folder) == before
    intarsia.write(repo, name, np.s_[2, 0, 0], truth[5, 0, 0])
    array = intarsia.open(repo, name)
    assert array.with_config(layer=1)[2, 0, 0] == array[2, 0, 0]
    assert intarsia.verify(repo, deep=True) == ()
