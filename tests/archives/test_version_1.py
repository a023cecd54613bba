"""Datasets from before manifests had packings: their members unpack by filters of their own."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer.cpu import Buffer

import intarsia
from intarsia._compat import sync
from intarsia.archives.cf import Decoding
from intarsia.archives.ledger import read_ledger, write_ledger
from intarsia.archives.plan.encodings import filters_of
from intarsia.logical.logical_state import LogicalArrayHandle
from intarsia.manifest.region_table import NONE
from tests.archives.files import netcdf
from tests.archives.test_packings import same_bits

FIXTURE = Path(__file__).parent / "data" / "version-1.zip"


@pytest.fixture
def old(tmp_path):
    """The folder with two old datasets, and what xarray read from the files of one."""
    shutil.unpack_archive(FIXTURE, tmp_path / "old")
    return tmp_path / "old"


def test_an_old_dataset_reads_as_before(old):
    sst = intarsia.open(old / "wide", "sst")
    assert sst.manifest.version == 1
    assert len(sst.members) == 4
    assert np.allclose(sst[...], np.load(old / "values.npy"), rtol=1e-15, atol=0, equal_nan=True)
    assert not intarsia.verify(sst)


def test_an_old_dataset_takes_further_files_into_new_members(old, tmp_path):
    before = intarsia.open(old / "wide", "sst")
    values = before[...]
    paths = [tmp_path / f"{day}.nc" for day in range(6, 10)]
    for day, path in enumerate(paths, start=6):
        attrs = {"scale_factor": 0.01 + (day - 6), "add_offset": 280.0}  # the first as the old ones
        netcdf(path, day, kind="i2", fill=7, attrs=attrs)
    report = intarsia.ingest(paths[1:], old / "wide", concat_dim="time")
    assert report.summary == "3 added"
    report = intarsia.ingest(paths, report.repository, concat_dim="time")  # one into the middle
    assert report.summary == "1 added, 3 unchanged"
    sst = intarsia.open(report.repository, "sst")
    assert same_bits(sst[:6], values)
    with xr.open_mfdataset(paths) as dataset:
        assert same_bits(sst[6:], dataset.sst.values)
    assert set(before.members) < set(sst.members)
    assert len(sst.members) == len(before.members) + 1
    assert sst.manifest.version == 2
    assert not intarsia.verify(sst)


def test_copies_of_the_same_kind_are_unpacked_by_the_manifest_too(old, tmp_path):
    netcdf(tmp_path / "6.nc", 6, kind="i2", fill=7, attrs={"scale_factor": 0.01, "add_offset": 280.0})
    report = intarsia.ingest(tmp_path / "6.nc", old / "wide", concat_dim="time", copy="all")
    sst = intarsia.open(report.repository, "sst")
    with xr.open_dataset(tmp_path / "6.nc") as dataset:
        assert same_bits(sst[6:], dataset.sst.values)


def test_an_old_dataset_is_widened_without_touching_its_members(old, tmp_path):
    before = intarsia.open(old / "narrow", "sst")
    assert before.dtype == np.float32
    netcdf(tmp_path / "5.nc", 5, kind="f8")
    netcdf(tmp_path / "6.nc", 6, kind="f4", fill=np.float32(1e20))
    paths = [tmp_path / "5.nc", tmp_path / "6.nc"]
    report = intarsia.ingest(paths, old / "narrow", concat_dim="time")
    sst = intarsia.open(report.repository, "sst")
    assert sst.dtype == np.float64
    assert same_bits(sst[:1], before[...].astype("f8"))
    with xr.open_mfdataset(paths) as dataset:
        assert same_bits(sst[1:], dataset.sst.values)
    for name, member in before.members.items():
        assert sst.members[name].metadata == member.metadata
    assert not intarsia.verify(sst)


def as_it_was(repo, attrs):
    """Make an array of one packing what it was in version 1: filters and `shuffle` in its member."""
    with repo.transaction("main", message="as it was") as store:
        root = zarr.open_group(store, mode="r+")
        logical = LogicalArrayHandle.load(root["sst"])
        manifest = logical.manifest
        (name,) = manifest.members
        document = logical.members[name].metadata.to_dict()
        own = [
            {"name": "shuffle", "configuration": {"element_size": 2}} if "shuffle" in codec["name"] else codec
            for codec in document["codecs"]
        ]
        filters = filters_of(Decoding.of(np.dtype("i2"), attrs), np.dtype("f8"))
        document |= {"data_type": "float64", "fill_value": "NaN", "codecs": [*filters, *own]}
        sync(store.set(f"sst/{name}/zarr.json", Buffer.from_bytes(json.dumps(document).encode())))
        plain = replace(manifest.regions, packing=np.full(len(manifest.regions), NONE))
        logical.commit(manifest.changed(regions=plain))
        ledger = read_ledger(root)
        ledger.members = {"sst": {"a digest of filters, too": name}}
        write_ledger(ledger, root)


def test_references_under_filters_and_shuffle_go_on(tmp_path):
    attrs = {"scale_factor": 0.01, "add_offset": 280.0}
    paths = [tmp_path / f"{day}.nc" for day in range(5)]
    for day, path in enumerate(paths):
        netcdf(path, day, kind="i2", fill=7, attrs=attrs)
    made = intarsia.ingest(paths[:2], tmp_path / "r", concat_dim="time")
    expected = intarsia.open(made.repository, "sst")[...]
    as_it_was(made.repository, attrs | {"_FillValue": np.int16(7)})
    old = intarsia.open(made.repository, "sst")
    assert old.manifest.version == 1
    assert [codec.to_dict()["name"] for codec in next(iter(old.members.values())).metadata.codecs] == [
        "scale_offset", "cast_value", "bytes", "shuffle", "numcodecs.zlib",
    ]  # fmt: skip
    assert np.allclose(old[...], expected, rtol=1e-15, atol=0, equal_nan=True)
    for some in (paths[3:], paths):
        report = intarsia.ingest(some, made.repository, concat_dim="time", copy="never")
    sst = intarsia.open(report.repository, "sst")
    assert same_bits(sst[:2], old[...])
    with xr.open_mfdataset(paths[2:]) as dataset:
        assert same_bits(sst[2:], dataset.sst.values)
    assert len(sst.members) == 2
    assert not intarsia.verify(sst)
