"""The public signatures as a type checker sees them: mypy checks this file, and pytest runs it."""

from pathlib import Path
from typing import Any, assert_type

import icechunk
import numpy as np
import zarr

import intarsia
from intarsia.types import Reader, Transaction
from intarsia.versions.maintain import MaintenanceStep


def test_arrays_in_any_store() -> None:
    array = intarsia.create({}, "a", shape=(0, 4), chunks=(2, 4), dtype="float32")
    assert_type(array, intarsia.LogicalArray)
    assert_type(array.append(np.ones((4, 4), "f4"), codecs=["zstd"]), None)
    assert_type(array[1:3], np.ndarray[Any, Any])
    assert_type(array.nchunks, int)
    assert_type(array.regions[0], intarsia.Region)
    assert_type(array.regions[0].packing, intarsia.Packing | None)
    assert_type(array.regions[0].view, intarsia.View | None)
    assert_type(array.region_at((0, 0)), intarsia.Region | None)
    assert_type(array.add_replica(chunks=(4, 1)), int)
    assert_type(array.consolidate(), int)
    assert_type(array.group, zarr.Group)
    array[0, 0] = 1
    assert_type(array.with_config(casting="unsafe"), intarsia.LogicalArray)


def test_repositories(tmp_path: Path) -> None:
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    assert_type(repo, icechunk.Repository)
    with intarsia.transaction(repo) as tx:
        assert_type(tx, Transaction)
        assert_type(tx.create("t", shape=(0,), chunks=(2,), dtype="i4"), intarsia.LogicalArray)
    assert_type(intarsia.append(repo, "t", [1, 2], codecs=["zstd"], message=None), str)
    assert_type(intarsia.write(repo, "t", 0, 9, message=None), str)
    assert_type(intarsia.recode(repo, "t", codecs=["gzip"], message=None), str)
    assert_type(intarsia.add_replica(repo, "t", chunks=(1,), message=None), str)
    assert_type(intarsia.retry(repo, lambda tx: tx.open("t").append([3]), message=None), str)
    assert_type(intarsia.maintain(repo), tuple[MaintenanceStep, ...])
    array = intarsia.open(repo, "t")
    assert_type(array, intarsia.LogicalArray)
    assert_type(intarsia.open(repo, "t", as_of=None), intarsia.LogicalArray)
    readers = intarsia.reader(repo, "t")
    assert_type(readers, Reader | intarsia.LogicalArray | dict[str, Reader | intarsia.LogicalArray])
