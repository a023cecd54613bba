"""Plain files, read directly."""

import os

import numpy as np
import pytest
from zarr.storage import LocalStore, LoggingStore

import intarsia
from intarsia.engine.fetch.fetcher_choice import fetcher_for
from intarsia.engine.fetch.local_files import LocalFiles
from intarsia.engine.fetch.store import FileSpan
from intarsia.errors import ChunkDecodeError


@pytest.fixture
def store(tmp_path):
    store = LocalStore(tmp_path / "nâme with spaces")
    array = intarsia.create(store, "group/a", shape=(40,), chunks=(10,), dtype="int64")
    array.add_region(((0, 40),), codecs=[], data=np.arange(40))
    return store


def test_files_are_read_where_the_store_is_one_of_files(store):
    assert isinstance(fetcher_for(store), LocalFiles)
    assert not isinstance(fetcher_for(LoggingStore(store)), LocalFiles)
    assert intarsia.open(store, "group/a")[5:35].tolist() == list(range(5, 35))


def test_a_file_that_cannot_be_opened_is_an_error_and_one_that_is_not_there_is_not(store):
    array = intarsia.open(store, "group/a")
    folder = store.root / "group/a" / array.regions[0].name / "c"
    (folder / "1").unlink()
    assert array[8:22].tolist() == [8, 9] + [0] * 10 + [20, 21]
    (folder / "1").mkdir()
    with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(1,\)"):
        array[:]


def test_changes_by_others_are_seen(store):
    reader = intarsia.open(store, "group/a")
    reader[:]
    intarsia.open(store, "group/a", mode="r+")[5:15] = -1
    assert reader[4:16].tolist() == [4] + [-1] * 10 + [15]


def test_a_span_past_the_end_is_an_error(tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    file = os.open(tmp_path / "f", os.O_RDONLY)
    try:
        assert FileSpan(file, 2, 3).read() == b"234"
        with pytest.raises(ChunkDecodeError, match="has 2 of 3 bytes"):
            FileSpan(file, 8, 3).read()
        memory = bytearray(3)
        FileSpan(file, 7, 3).read_into(memoryview(memory))
        assert memory == b"789"
        with pytest.raises(ChunkDecodeError, match="has 1 of 3 bytes"):
            FileSpan(file, 9, 3).read_into(memoryview(memory))
    finally:
        os.close(file)


@pytest.mark.parametrize("codecs", [[], ["crc32c"], ["gzip"]])
def test_what_the_system_reads_in_pieces_is_read_whole(tmp_path, codecs, monkeypatch):
    """Linux reads no more than 2 GiB at a time; here it is 1,000 bytes."""
    array = intarsia.create(tmp_path, "a", shape=(5000,), chunks=(5000,), dtype="int64")
    values = np.random.default_rng(0).integers(0, 2**62, 5000)
    array.add_region(((0, 5000),), codecs=codecs, data=values)
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda file, n, at: pread(file, min(n, 1000), at))
    monkeypatch.setattr(os, "preadv", lambda file, into, at, *how: preadv(file, [into[0][:1000]], at, *how))
    assert array[:].tolist() == values.tolist()
    assert array[4990:].tolist() == values[4990:].tolist()
    (chunk,) = (tmp_path / "a" / array.regions[0].name / "c").iterdir()
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(intarsia.errors.ReadError):
        array[:]
