"""Archives of thousands of files, each packed in its own way; benchmarks/packed_archive.py measures them."""

import icechunk
import numpy as np
import pytest
from benchmarks.packed_archive import NAMES, Parser, series

import intarsia
from intarsia.archives import dataset, ingestion
from intarsia.versions.authorization import reopen_without_cache
from tests.archives.files import netcdf

FILES = [30, pytest.param(12_000, marks=pytest.mark.torture)]
MAX_MANIFESTS = 60


@pytest.mark.parametrize("count", FILES)
def test_every_file_has_a_packing_and_every_variable_one_member(tmp_path, count):
    scales, rng = [], np.random.default_rng(0)

    def scale():
        scales.append(rng.uniform(0.001, 0.1))
        return scales[-1]

    repo = intarsia.open_repository(tmp_path / "repository", create=True)
    paths = series(tmp_path / "files", count)
    report = intarsia.ingest(paths, repo, concat_dim="time", copy="never", parser=Parser(scale))
    assert report.summary == f"{count} added"
    repo = report.repository
    assert len(repo.list_manifest_files(repo.lookup_branch("main"))) <= MAX_MANIFESTS
    days = rng.choice(count, min(count, 200), replace=False)
    for i, name in enumerate(NAMES):
        array = intarsia.open(repo, name)
        assert (len(array.manifest.regions), len(array.members)) == (count, 1)
        # one point of every file: its number is 28, and xarray multiplies first
        own = np.array(scales).reshape(count, len(NAMES))[days, i]
        np.testing.assert_array_equal(array.oindex[days, 3, 4], 28.0 * own + 273.15)


def test_one_more_file_opens_the_repository_once_and_is_looked_up_once(tmp_path, monkeypatch):
    for day in range(4):
        netcdf(tmp_path / f"{day}.nc", day)
    files = sorted(tmp_path.glob("*.nc"))
    intarsia.ingest(files[:3], tmp_path / "repository", concat_dim="time")
    asked, entries_of, opened, open_one = [], dataset.entries_of, [], icechunk.Repository.open
    for module in (dataset, ingestion):
        monkeypatch.setattr(
            module, "entries_of", lambda group, urls: asked.extend(urls) or entries_of(group, urls)
        )
    monkeypatch.setattr(
        icechunk.Repository, "open", lambda *args, **more: opened.append(args) or open_one(*args, **more)
    )
    report = intarsia.ingest(files[3:], tmp_path / "repository", concat_dim="time")
    assert report.summary == "1 added"
    assert (len(asked), len(opened)) == (1, 1)


def test_later_batches_have_a_handle_that_keeps_nothing_and_reads_the_same(tmp_path):
    values = [netcdf(tmp_path / f"{day}.nc", day) for day in range(3)]
    first = intarsia.ingest(tmp_path / "0.nc", tmp_path / "repository", concat_dim="time").repository
    anew = reopen_without_cache(first)
    assert anew is not first
    assert anew.authorized_virtual_container_prefixes == first.authorized_virtual_container_prefixes
    report = intarsia.ingest(sorted(tmp_path.glob("*.nc")), anew, concat_dim="time", batch=1)
    assert report.repository is not anew
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(values))
    assert np.array_equal(intarsia.open(anew, "sst")[...], np.concatenate(values))
