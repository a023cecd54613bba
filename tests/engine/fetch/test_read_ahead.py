"""Telling the system of files before they are read: the same bytes, few files at a time, none left open."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.engine.fetch import local_files
from intarsia.engine.fetch.local_files import files_in_turn, is_in_memory
from intarsia.errors import ReadError

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no advice")


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def told(monkeypatch):
    """No file is in memory before the system was told of it: positions and lengths of what it was told."""
    heard = []

    def advise(file, offset, nbytes, advice):
        assert advice == os.POSIX_FADV_WILLNEED
        heard.append((os.readlink(f"/proc/self/fd/{file}"), offset, nbytes))

    monkeypatch.setattr(local_files, "is_in_memory", lambda file, offset=0: False)
    monkeypatch.setattr(os, "posix_fadvise", advise)
    return heard


def read_files(folder, count, *, nbytes=8, missing=()):
    """Files with their number in them, some not there, read from byte 1 on."""
    for number in range(count):
        if number not in missing:
            (folder / f"{number}").write_bytes(number.to_bytes(nbytes, "big"))
    return files_in_turn(
        lambda i: os.open(folder / f"{i}", os.O_RDONLY), [1] * count, [nbytes - 1] * count,
        SimpleNamespace(nbytes=nbytes, is_raw=False), lambda i, error: f"no {i}",
    )  # fmt: skip


def test_the_bytes_are_the_same_and_every_file_is_closed(tmp_path, told):
    before = open_files()
    got = list(read_files(tmp_path, 200, missing={0, 3, 64, 199}))
    expected = [n.to_bytes(7, "big") if n not in {0, 3, 64, 199} else f"no {n}" for n in range(200)]
    assert got == expected
    assert open_files() == before


def test_the_system_is_told_of_each_file_once_and_of_few_at_a_time(tmp_path, told):
    for read, _ in enumerate(read_files(tmp_path, 200), start=1):
        assert len(told) <= read + local_files.MAX_FILES
    expected = [n for n in range(200) if n % local_files.MAX_FILES]  # the others are read themselves
    assert [path for path, *_ in told] == [str(tmp_path / f"{n}") for n in expected]
    assert {(offset, nbytes) for _, offset, nbytes in told} == {(1, 8)}


def test_no_more_bytes_are_on_their_way_than_a_bound(tmp_path, told, monkeypatch):
    monkeypatch.setattr(local_files, "MAX_BYTES", 40)
    for read, _ in enumerate(read_files(tmp_path, 30), start=1):
        assert len(told) <= read + 5
    told.clear()
    monkeypatch.setattr(local_files, "MAX_BYTES", 4)
    list(read_files(tmp_path, 30))
    assert told == []


def test_nothing_is_told_where_files_are_in_memory(tmp_path, told, monkeypatch):
    asked = []
    monkeypatch.setattr(local_files, "is_in_memory", lambda file, offset=0: asked.append(file) or True)
    list(read_files(tmp_path, 100))
    assert told == []
    assert len(asked) == -(-100 // local_files.MAX_FILES)


def test_the_system_says_which_files_are_in_memory(tmp_path):
    (tmp_path / "file").write_bytes(bytes(100_000))
    file = os.open(tmp_path / "file", os.O_RDWR)
    try:
        os.pread(file, 100_000, 0)
        assert is_in_memory(file)
        assert is_in_memory(file, 10**9)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        if is_in_memory(file):
            pytest.skip("this file system keeps its files in memory")
        assert os.pread(file, 1, 0) == b"\0"
        assert is_in_memory(file)
    finally:
        os.close(file)


@pytest.mark.parametrize("threads", [1, 4])
def test_arrays_of_cold_files_read_the_same(tmp_path, told, threads, monkeypatch):
    monkeypatch.setattr("intarsia.engine.thread_pool.WORTH_A_READING_THREAD", 1 << 10)
    values = np.arange(200 * 64 * 64, dtype="f4").reshape(200, 64, 64)
    plain = zarr.create_array(tmp_path / "plain", data=values, chunks=(1, 64, 64))
    repo = intarsia.open_repository(tmp_path / "repository", create=True)
    with intarsia.transaction(repo) as tx:
        array = tx.create("a", shape=(0, 64, 64), chunks=(1, 64, 64), dtype="f4")
        array.append(values, codecs=["zstd"])
    before = open_files()
    for array in (intarsia.reader(plain), intarsia.open(repo, "a")):
        array = array.with_config(threads=threads)
        told.clear()
        np.testing.assert_array_equal(array[...], values)
        np.testing.assert_array_equal(array[::7, 3, ::5], values[::7, 3, ::5])
        assert told
    assert open_files() == before


def test_a_link_that_leads_out_is_refused_where_it_is_read(tmp_path, told):
    values = np.arange(12, dtype="i4").reshape(12, 1)
    plain = zarr.create_array(tmp_path / "plain", data=values, chunks=(1, 1))
    (tmp_path / "plain" / "c" / "5" / "0").unlink()
    (tmp_path / "plain" / "c" / "5" / "0").symlink_to("/etc/hosts")
    np.testing.assert_array_equal(intarsia.reader(plain)[:5], values[:5])
    with pytest.raises(ReadError, match="outside"):
        intarsia.reader(plain)[...]
