"""Stores and file systems without slots are refused, and the message says why."""

from pathlib import Path

import icechunk
import pytest
import zarr
from zarr.storage import LocalStore, LoggingStore, MemoryStore, ZipStore

import intarsia
from intarsia.shards import locks
from tests.shards import fleet

SHARDED = {"shape": 64, "chunks": 8, "shards": 32, "dtype": "u2", "compressors": None}


def test_memory_and_archives_are_refused(tmp_path):
    archive = ZipStore(tmp_path / "a.zip", mode="w")
    for store in (MemoryStore(), archive, LoggingStore(LocalStore(tmp_path / "a"))):
        array = zarr.create_array(store, **SHARDED)
        with pytest.raises(
            intarsia.errors.SlotsUnsupportedError, match=f"{type(store).__name__}.*as a whole"
        ):
            intarsia.shards.slotted(array)
        with pytest.raises(intarsia.errors.SlotsUnsupportedError):
            intarsia.shards.compact(array)
    archive.close()


def test_object_stores_are_refused(tmp_path):
    obstore = pytest.importorskip("obstore")
    store = zarr.storage.ObjectStore(obstore.store.MemoryStore())
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match=r"ObjectStore.*object stores"):
        intarsia.shards.slotted(zarr.create_array(store, **SHARDED))


def test_icechunk_is_refused_with_a_pointer_to_append():
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    array = zarr.create_array(repository.writable_session("main").store, **SHARDED)
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match=r"IcechunkStore(.|\n)*intarsia.append"):
        intarsia.shards.slotted(array)


@pytest.mark.parametrize(
    "kind", ["nfs4", "cifs", "fuse.ceph-fuse", "fuse", "dvs", "vmhgfs", "lustre", "of-tomorrow"]
)
def test_network_file_systems_are_refused(tmp_path, monkeypatch, kind):
    array = fleet.make_array(tmp_path / "mounted here/a", shape=64, chunks=8, shards=32)
    mounts = tmp_path / "mountinfo"
    place = str(tmp_path / "mounted here").replace(" ", r"\040")
    mounts.write_text(
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        f"23 22 0:40 / {place} rw,relatime shared:2 - {kind} server:/data rw,vers=4.2\n"
    )
    monkeypatch.setattr(locks, "MOUNTS", mounts)
    with pytest.raises(
        intarsia.errors.SlotsUnsupportedError, match=f"on a {kind} file system.*locks"
    ) as caught:
        intarsia.shards.slotted(array)
    assert "local disk" in str(caught.value)
    for action in (intarsia.shards.compact, intarsia.shards.reslot):
        with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="any_filesystem=True"):
            action(array)
    slots = intarsia.shards.slotted(array, any_filesystem=True)
    slots[:8] = 1
    assert intarsia.shards.compact(slots).replaced == 1  # it has been said
    assert intarsia.shards.reslot(array, any_filesystem=True) == 1
    assert intarsia.shards.compact(array, any_filesystem=True).replaced == 1
    assert intarsia.shards.slot_stats(array).shards == 1  # who only looks is not asked
    assert intarsia.verify(array) == ()
    other = fleet.make_array(tmp_path / "elsewhere", shape=64, chunks=8, shards=32)
    intarsia.shards.slotted(other)[:8] = 1


def test_the_mount_that_counts_is_the_innermost_and_the_last(tmp_path, monkeypatch):
    mounts = tmp_path / "mountinfo"
    lines = ["/ ext4", "/data nfs4", "/data/local xfs", "/again nfs4", "/again ext4"]
    mounts.write_text(
        "".join(f"1 1 0:1 / {line.split()[0]} rw - {line.split()[1]} source rw\n" for line in lines)
    )
    monkeypatch.setattr(locks, "MOUNTS", mounts)
    kinds = {
        path: locks.filesystem_type(Path(path)) for path in ("/x", "/data/x", "/data/local/x/y", "/again/x")
    }
    assert kinds == {"/x": "ext4", "/data/x": "nfs4", "/data/local/x/y": "xfs", "/again/x": "ext4"}


def test_without_a_list_of_mounts_nothing_is_known(monkeypatch):
    monkeypatch.setattr(locks, "MOUNTS", Path("/no/such/file"))
    assert locks.filesystem_type(Path("/")) is None
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="an unknown file system"):
        locks.refuse_network(Path("/"))
