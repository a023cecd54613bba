"""Manifests of references are split along the dimension that grows, by rules that stay."""

import h5py
import icechunk
import netCDF4
import numpy as np
import pytest
from icechunk import (
    ManifestConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
)

import intarsia
from intarsia.archives import write_plan
from intarsia.archives.plan import ingest_plan
from intarsia.archives.write_plan import references_a_manifest
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
    monkeypatch.setattr(write_plan, "MIN_REFERENCES", 8)
    report = intarsia.ingest(series[:8], tmp_path / "r", concat_dim="time", group="g")
    before, chosen = manifests(report.repository), rules(report.repository)
    (sizes,) = [sizes for rule, sizes in chosen.items() if "/g/" in rule and "m-" in rule]
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
    assert len(found) == 4


def test_rules_are_as_many_as_sizes_whatever_the_number_of_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(write_plan, "MIN_REFERENCES", 6)
    monkeypatch.setattr(write_plan, "ARRAYS", 100)
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
    assert len(chosen) == 4  # those of four references a file, all others, tables, and coordinates
    parts = manifests(report.repository)
    for day in (6, 7):
        report = intarsia.ingest(tmp_path / f"{day}.h5", report.repository, concat_dim="time (UTC)")
    assert rules(report.repository) == chosen
    assert (
        manifests(report.repository) == parts + 2 * 2 + 10
    )  # every day of the large ones, every sixth of others
    assert intarsia.open(report.repository, "v3 (a|b)")[:, 0].tolist() == [*range(3, 11)]


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_a_full_member_has_one_manifest_that_nobody_writes_again(series, tmp_path, monkeypatch, batch):
    monkeypatch.setattr(write_plan, "MIN_REFERENCES", 4)
    monkeypatch.setattr(ingest_plan, "FULL", 16)
    report = intarsia.ingest(series[:7], tmp_path / "r", concat_dim="time", batch=batch)
    older = report.repository.lookup_branch("main")
    report = intarsia.ingest(series, report.repository, concat_dim="time", batch=batch)
    repo = report.repository
    sst = intarsia.open(repo, "sst")
    assert [member.shape[0] for member in sst.members.values()] == [4, 4, 1]
    assert [region.bounds[0] for region in sst.regions] == [(0, 4), (4, 8), (8, 9)]
    parts = {each.id: each.num_chunk_refs for each in repo.list_manifest_files(repo.lookup_branch("main"))}
    assert sorted(parts.values())[-3:] == [4, 16, 16]
    first = intarsia.open(repo, "sst", snapshot_id=older)
    assert np.array_equal(first[...], sst[:7])
    values = np.concatenate([netCDF4.Dataset(path)["sst"][...] for path in series])
    assert np.array_equal(sst[...], values)
    assert not intarsia.verify(sst)
    report = intarsia.ingest(netcdf_after(series), repo, concat_dim="time")
    later = {each.id for each in repo.list_manifest_files(repo.lookup_branch("main"))}
    assert {name for name, count in parts.items() if count == 16} <= later
    assert rules(report.repository) == rules(repo)  # that of the commits which filled them is not kept


def test_what_follows_a_full_member_is_split_by_the_same_commit(series, tmp_path, monkeypatch):
    monkeypatch.setattr(write_plan, "MIN_REFERENCES", 4)
    monkeypatch.setattr(ingest_plan, "FULL", 16)
    repo = intarsia.ingest(series[:6], tmp_path / "r", concat_dim="time").repository
    parts = {each.id: each.num_chunk_refs for each in repo.list_manifest_files(repo.lookup_branch("main"))}
    assert sorted(parts.values())[-3:] == [4, 4, 16]
    repo = intarsia.ingest(series[6], repo, concat_dim="time").repository
    later = {each.id for each in repo.list_manifest_files(repo.lookup_branch("main"))}
    assert {name for name, count in parts.items() if count >= 4} <= later


def netcdf_after(series):
    """One more file."""
    path = series[0].with_name("99.nc")
    netcdf(path, 99, chunks=(1, 3, 4))
    return path


def test_the_manifest_of_a_coordinate_is_split_too(series, tmp_path, monkeypatch):
    monkeypatch.setattr(write_plan, "TABLE_CHUNKS", 2)
    monkeypatch.setattr(write_plan, "COORDINATE_CHUNK", 1)
    monkeypatch.setattr(write_plan, "MIN_REFERENCES", 1000)
    report = intarsia.ingest(series[:8], tmp_path / "r", concat_dim="time")
    before = manifests(report.repository)
    assert before > 4
    report = intarsia.ingest(series[8:], tmp_path / "r", concat_dim="time")
    assert manifests(report.repository) == before + 1


def test_more_arrays_make_larger_manifests():
    sizes = [references_a_manifest(10**power) for power in range(6)]
    assert sizes == sorted(sizes)
    assert sizes[0] == write_plan.MIN_REFERENCES
    assert sizes[-1] == write_plan.MAX_REFERENCES
