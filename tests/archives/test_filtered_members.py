"""Datasets whose members unpack by filters of their own, as before manifests had packings."""

import json
from dataclasses import replace

import numpy as np
import xarray as xr
import zarr
from zarr.core.buffer.cpu import Buffer

import intarsia
from intarsia._compat import sync
from intarsia.archives.cf import CFDecoding
from intarsia.archives.ledger import read_ledger, write_ledger
from intarsia.archives.plan.encodings import filters_of
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.region_table import NONE
from tests.archives.files import netcdf
from tests.archives.test_packings import same_bits


def as_it_was(repo, attrs):
    """Make an array of one packing what manifest 1 had: filters and `shuffle` in its member."""
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
        filters = filters_of(CFDecoding.of(np.dtype("i2"), attrs), np.dtype("f8"))
        document |= {"data_type": "float64", "fill_value": "NaN", "codecs": [*filters, *own]}
        sync(store.set(f"sst/{name}/zarr.json", Buffer.from_bytes(json.dumps(document).encode())))
        plain = replace(manifest.regions, packing=np.full(len(manifest.regions), NONE))
        logical.commit(manifest.changed(plain))
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
