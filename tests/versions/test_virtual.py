"""Chunks that lie in other files: joined and restored as references, never copied, still guarded."""

import datetime
import os

import icechunk
import numpy as np
import pytest
import zarr

import intarsia
from intarsia.logical.chunk_copies import VIRTUAL, chunk_refs

CHUNK = 100
THEN = datetime.datetime(2005, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def place(tmp_path):
    """A repository that may refer to files in a directory of their own."""
    files = tmp_path / "files"
    files.mkdir()
    url = f"file://{files}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(url, icechunk.local_filesystem_store(str(files)))
    )
    repo = intarsia.open_repository(tmp_path / "r", create=True, config=config, authorize=True)
    return repo, files


def refer(array, files, day, since=THEN):
    """A day's file of raw numbers, as a region of its own."""
    file = files / f"{day}.bin"
    (np.arange(CHUNK, dtype="<i8") + CHUNK * day).tofile(file)
    if since == THEN:
        os.utime(file, (1_000_000_000, 1_000_000_000))
    name = f"m-{day:032x}"
    zarr.create_array(
        array.store, name=f"t/{name}", shape=(CHUNK,), chunks=(CHUNK,), dtype="int64", compressors=None
    )
    array.store.set_virtual_ref(f"t/{name}/c/0", f"file://{file}", offset=0, length=8 * CHUNK, checksum=since)
    array.resize((CHUNK * (day + 1),))
    array.add_region([(CHUNK * day, CHUNK * (day + 1))], member=name)


def kinds(repo):
    array = intarsia.open(repo, "t")
    return {
        place[0] for name in array.manifest.members for place in chunk_refs(array.store, f"t/{name}").values()
    }


@pytest.fixture
def series(place):
    repo, files = place
    with intarsia.transaction(repo, message="three days") as tx:
        array = tx.create("t", shape=(0,), chunks=(CHUNK,), dtype="int64")
        for day in range(3):
            refer(array, files, day)
    return repo, files


def test_virtual_members_are_joined_without_copying(series):
    repo, _ = series
    assert kinds(repo) == {VIRTUAL}
    intarsia.retry(repo, lambda tx: tx.open("t").consolidate())
    array = intarsia.open(repo, "t")
    assert len(array.members) == 1
    assert kinds(repo) == {VIRTUAL}
    assert array[...].tolist() == list(range(3 * CHUNK))


def test_a_file_that_changes_afterwards_is_an_error_as_before(series):
    repo, files = series
    intarsia.retry(repo, lambda tx: tx.open("t").consolidate())
    (files / "1.bin").write_bytes(b"\1" * 8 * CHUNK)
    os.utime(files / "1.bin", (4_000_000_000, 4_000_000_000))
    with pytest.raises(intarsia.errors.ReadError, match=r"(?i)modified|changed"):
        intarsia.open(repo, "t")[...]


def test_a_file_of_this_very_second_can_be_joined(place):
    repo, files = place
    with intarsia.transaction(repo, message="two days") as tx:
        array = tx.create("t", shape=(0,), chunks=(CHUNK,), dtype="int64")
        for day in range(2):
            refer(array, files, day, datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1))
        array.consolidate()
    assert kinds(repo) == {VIRTUAL}
    assert intarsia.open(repo, "t")[...].tolist() == list(range(2 * CHUNK))


def test_a_file_that_changed_before_cannot_be_joined(series):
    repo, files = series
    os.utime(files / "1.bin", None)
    with pytest.raises(intarsia.errors.RepositoryError, match=r"(?i)modified|changed"):
        intarsia.retry(repo, lambda tx: tx.open("t").consolidate())
    assert len(intarsia.open(repo, "t").members) == 3


def test_a_virtual_member_that_was_dropped_comes_back_as_a_reference(series):
    repo, _ = series
    first = repo.lookup_branch("main")
    intarsia.recode(repo, "t", [(CHUNK, 2 * CHUNK)], codecs=["zstd"])
    assert kinds(repo) != {VIRTUAL}
    intarsia.restore(repo, "t", first)
    assert kinds(repo) == {VIRTUAL}
    assert intarsia.open(repo, "t")[...].tolist() == list(range(3 * CHUNK))


def test_history_counts_what_is_referred_to_apart(series):
    repo, _ = series
    (change,) = intarsia.history(repo, "t")[0].changes
    assert (change.bytes_written, change.bytes_referenced) == (0, 3 * 8 * CHUNK)
