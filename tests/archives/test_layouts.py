"""Replicas of archives: files stay untouched, and new ones are read from the files until maintain ran."""

import datetime
import hashlib

import numpy as np
import pytest
from examples.archives import ERAS, mur_day, packed, temperature

import intarsia
from intarsia.errors import ReadError
from intarsia.logical import logical_array_handle
from tests.archives.files import netcdf

DAYS = 8


def write_day(folder, day, scale):
    attrs = {"scale_factor": scale, "add_offset": 280.0}
    netcdf(folder / f"{day:03d}.nc", day, kind="i2", fill=-1, attrs=attrs)


def state(folder):
    return {
        path.name: (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns)
        for path in folder.glob("*.nc")
    }


def layers(array, selection):
    parts = intarsia.explain(array, selection).parts
    return {layer: sum(part.elements for part in parts if part.layer == layer) for layer in (0, 1)}


@pytest.mark.parametrize("in_table", [False, True])
def test_a_replica_of_daily_files(tmp_path, monkeypatch, in_table):
    if in_table:
        monkeypatch.setattr(logical_array_handle, "INLINE_REGIONS", 3)
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
        assert layers(array, np.s_[:, 1, 1])[0] == 1  # the day that maintain has not seen
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


FIRST = ERAS[0].first
TWENTY_YEARS = (datetime.date(2022, 6, 1) - FIRST).days
AROUND_CHANGES = [(era.first - FIRST).days + i for era in ERAS[:-1] for i in (-1, 0)][1:]


def mur(folder, days):
    for number in days:
        day = FIRST + datetime.timedelta(days=number)
        era = max((era for era in ERAS if era.first <= day), key=lambda era: era.first)
        mur_day(folder / f"{day:%Y%m%d}.nc", day, era)


def series_of(days, lat, lon):
    """What the example writes at one place."""
    maps = (temperature(FIRST + datetime.timedelta(days=number)) for number in days)
    stored = np.array([packed(values, 0.001, 298.15, -32768)[lat, lon] for values in maps])
    return stored * 0.001 + 298.15


@pytest.mark.parametrize(
    "days",
    [
        pytest.param(AROUND_CHANGES, id="around the changes"),
        pytest.param(list(range(TWENTY_YEARS)), id="all", marks=pytest.mark.torture),
    ],
)
def test_a_replica_of_twenty_years_of_daily_files(tmp_path, days):
    folder, place, name = tmp_path / "files", np.s_[:, 22, 40], "analysed_sst"
    folder.mkdir()
    mur(folder, days)
    before = state(folder)
    how = {"concat_dim": "time", "missing": "fill"}
    repo = intarsia.ingest(str(folder / "*.nc"), str(tmp_path / "repo"), **how).repository
    intarsia.add_replica(repo, name, chunks=(len(days), 5, 10), codecs=["zstd"])
    array = intarsia.open(repo, name)
    assert layers(array, place) == {0: 0, 1: len(days)}
    assert layers(array, np.s_[3])[1] == 0
    assert state(folder) == before

    away = folder.rename(tmp_path / "away")  # a series needs no file any more; a map does
    np.testing.assert_allclose(intarsia.open(repo, name)[place], series_of(days, 22, 40))
    with pytest.raises(ReadError):
        intarsia.open(repo, name)[3]
    away.rename(folder)

    more = [days[-1] + 1, days[-1] + 2]
    mur(folder, more)
    before = state(folder)
    intarsia.ingest(str(folder / "*.nc"), repo, **how)
    array = intarsia.open(repo, name)
    assert layers(array, place) == {0: len(more), 1: len(days)}
    np.testing.assert_allclose(array[place], series_of(days + more, 22, 40))
    assert "replica" in [step.what for step in intarsia.maintain(repo)]
    array = intarsia.open(repo, name)
    assert layers(array, place) == {0: 0, 1: len(days + more)}
    np.testing.assert_allclose(array[place], series_of(days + more, 22, 40))
    np.testing.assert_array_equal(array.with_config(layer=1)[...], array.with_config(layer=0)[...])
    assert intarsia.maintain(repo) == ()
    assert state(folder) == before
