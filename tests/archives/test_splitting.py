"""Manifests of references are split along the dimension that grows, by rules that stay."""

import h5py
import icechunk
import numpy as np
import pytest
from icechunk import (
    ManifestConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
)

import intarsia
from intarsia.archives import splitting
from intarsia.archives.splitting import references_a_manifest
from tests.archives.files import netcdf


@pytest.fixture
def series(tmp_path):
    paths = [tmp_path / f"{day:02d}.nc" for day in range(9)]
    for day, path in enumerate(paths):
        netcdf(path, day, chunks=(1, 3, 4))  # four references
    return paths


def manifests(repo):
    return len(repo.list_manifest_files(repo.lookup_branch("main")))


def rules(repo):
    """As texts: the conditions of dimensions are not equal to their likes."""
    found = repo.config.manifest.splitting.to_dict()
    return {str(rule): {str(dim): size for dim, size in sizes.items()} for rule, sizes in found.items()}


def test_one_more_file_writes_one_manifest_of_many(series, tmp_path, monkeypatch):
    monkeypatch.setattr(splitting, "LEAST_REFERENCES", 8)
    monkeypatch.setattr(splitting, "MOST_REFERENCES", 8)
    report = intarsia.ingest(series[:8], tmp_path / "r", concat_dim="time", group="g")
    before, chosen = manifests(report.repository), rules(report.repository)
    (sizes,) = [sizes for rule, sizes in chosen.items() if "/g/" in rule]
    assert list(sizes.values()) == [2]
    report = intarsia.ingest(series[8:], report.repository, concat_dim="time", group="g")
    assert manifests(report.repository) == before + 1
    assert rules(report.repository) == chosen
    again = intarsia.open_repository(tmp_path / "r")
    assert rules(again) == chosen
    assert intarsia.open(report.repository, "g/sst").shape[0] == 9
    assert not intarsia.verify(intarsia.open(report.repository, "g/sst"))


def test_what_somebody_said_of_manifests_stays(series, tmp_path):
    config = icechunk.RepositoryConfig.default()
    own = ManifestSplitCondition.path_matches("^/mine$")
    split = ManifestSplittingConfig.from_dict({own: {ManifestSplitDimCondition.Axis(0): 7}})
    config.manifest = ManifestConfig(splitting=split)
    storage = icechunk.local_filesystem_storage(str(tmp_path / "r"))
    repo = icechunk.Repository.create(storage, config)
    report = intarsia.ingest(series, repo, concat_dim="time")
    found = rules(report.repository)
    assert list(found[str(own)].values()) == [7]
    assert len(found) == 3


def test_rules_are_as_many_as_sizes_whatever_the_number_of_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(splitting, "LEAST_REFERENCES", 2)
    monkeypatch.setattr(splitting, "ARRAYS", 100)
    for day in range(8):
        with h5py.File(tmp_path / f"{day}.h5", "w") as file:
            file["time (UTC)"] = [day]
            file["time (UTC)"].make_scale()
            for i in range(12):
                name, shape = f"v{i} (a|b)", (1, 4 if i < 2 else 1)
                file.create_dataset(name, data=np.full(shape, day + i), chunks=(1, 1))
                file[name].dims[0].attach_scale(file["time (UTC)"])
    report = intarsia.ingest(sorted(tmp_path.glob("[0-5].h5")), tmp_path / "r", concat_dim="time (UTC)")
    chosen = rules(report.repository)
    assert len(chosen) == 3  # those of four references a file, all others, and tables
    parts = manifests(report.repository)
    for day in (6, 7):
        report = intarsia.ingest(tmp_path / f"{day}.h5", report.repository, concat_dim="time (UTC)")
    assert rules(report.repository) == chosen
    assert (
        manifests(report.repository) == parts + 12
    )  # every third day of the large ones, every sixth of others
    assert intarsia.open(report.repository, "v3 (a|b)")[:, 0].tolist() == [*range(3, 11)]


def test_more_references_make_larger_manifests():
    sizes = [references_a_manifest(10**power) for power in range(3, 13)]
    assert sizes == sorted(sizes)
    assert sizes[0] == splitting.LEAST_REFERENCES
    assert sizes[-1] == splitting.MOST_REFERENCES
