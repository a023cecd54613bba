"""The ledger: written, read back, and refused when it is from another time."""

import pytest
import zarr

from intarsia.archives.dataset import LEDGER, MOST_MEMBERS, Ledger
from intarsia.errors import IngestError


def test_it_reads_back_as_it_was_written():
    group = zarr.create_group({})
    ledger = Ledger(["file:///é/a.nc", "s3://b/c"], ["1 x", "2 y"], [3, 4], {"sst": {"digest": "m-1"}})
    ledger.write(group, "time")
    assert Ledger.read(group) == ledger
    Ledger().write(group, "time")
    assert Ledger.read(group) == Ledger()
    assert group[LEDGER].attrs["concat_dim"] == "time"


def test_only_the_latest_encodings_are_remembered():
    group = zarr.create_group({})
    members = {f"digest-{i}": f"m-{i}" for i in range(MOST_MEMBERS + 5)}
    Ledger(members={"sst": members}).write(group, "time")
    assert next(iter(Ledger.read(group).members["sst"].values())) == "m-5"


def test_a_group_without_a_ledger_has_an_empty_one():
    assert Ledger.read(zarr.create_group({})) == Ledger()


def test_an_unknown_version_is_refused():
    group = zarr.create_group({})
    Ledger().write(group, "time")
    group[LEDGER].attrs["version"] = 99
    with pytest.raises(IngestError, match="version 99"):
        Ledger.read(group)
