"""Reading chunk files of a local Icechunk repository: only what is committed, and never wrongly."""

import gc
import os
import pickle
from types import SimpleNamespace

import icechunk
import numpy as np
import pytest
import zarr

import intarsia
from intarsia import _icechunk
from intarsia._icechunk import repository_folder, safe_store
from intarsia.engine.fetch.fetcher_choice import fetcher_for
from intarsia.engine.fetch.icechunk import IcechunkSession

VALUES = np.random.default_rng(0).normal(size=(6, 1000))


@pytest.fixture
def repository(tmp_path):
    """A repository with one logical array of two members, six chunks in files."""
    made = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "dépôt 1")))
    session = made.writable_session("main")
    array = intarsia.create(session.store, "a", shape=(6, 1000), chunks=(1, 1000), dtype="float64")
    array.add_region(((0, 3), (0, 1000)), codecs=["zstd"], data=VALUES[:3])
    array.add_region(((3, 6), (0, 1000)), codecs=[], data=VALUES[3:])
    session.commit("six rows")
    return made


def chunk_files(tmp_path):
    return sorted((tmp_path / "dépôt 1" / "chunks").iterdir())


def opened(repository):
    return intarsia.open(repository, "a")


def fetchers(array):
    return {part.fetcher for part in intarsia.explain(array).parts}


def test_the_path_of_a_repository_is_found_in_its_session(repository, tmp_path):
    store = repository.readonly_session("main").store
    assert repository_folder(store) == tmp_path / "dépôt 1"
    again = pickle.loads(pickle.dumps(store))
    assert fetcher_for(again).folder == tmp_path / "dépôt 1"


@pytest.mark.parametrize(
    "form", [b"", b"\xc0", b"\x93\x01\x02\x03", b"\xc1", b"\x95\xc0\xc0\x80\xc0\x92\x90\x80"]
)
def test_a_session_in_an_unknown_form_is_read_by_icechunk(repository, monkeypatch, form):
    array, session = opened(repository), SimpleNamespace(as_bytes=lambda: form)
    monkeypatch.setattr(_icechunk, "native_store", lambda store: SimpleNamespace(session=session))
    assert fetchers(array) == {"Icechunk, in batches"}
    np.testing.assert_array_equal(array[...], VALUES)


def test_all_arrays_of_an_immutable_session_share_one_fetcher(repository):
    store = safe_store(repository.readonly_session("main").store)
    assert fetcher_for(store) is fetcher_for(store.with_read_only(True))
    again = pickle.loads(pickle.dumps(store))
    assert fetcher_for(again) is not fetcher_for(store)
    writable = safe_store(repository.writable_session("main").store)
    assert fetcher_for(writable) is not fetcher_for(writable)


@pytest.mark.parametrize("place", ["files", "memory"])
def test_inlined_chunks_are_read_without_icechunk(tmp_path, monkeypatch, place):
    storages = icechunk.local_filesystem_storage(str(tmp_path / "small")), icechunk.in_memory_storage()
    repository = icechunk.Repository.create(storages[place == "memory"])
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", data=np.arange(6, dtype="u1"), chunks=(2,))
    session.commit("inlined")
    assert not (tmp_path / "small" / "chunks").exists()
    reader = intarsia.reader(zarr.open_array(repository.readonly_session("main").store, path="a", mode="r"))
    assert fetchers(reader) == {"Icechunk, inlined chunks"}
    monkeypatch.setattr(IcechunkSession, "get_all", None)
    monkeypatch.setattr(IcechunkSession, "get_now", None)
    assert reader[...].tolist() == [0, 1, 2, 3, 4, 5]


def test_other_storages_have_no_path():
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    store = repository.readonly_session("main").store
    assert repository_folder(store) is None
    assert fetcher_for(store).folder is None


def test_a_virtual_container_of_local_files_does_not_pass_for_the_repository(tmp_path):
    config = icechunk.RepositoryConfig.default()
    prefix = f"file://{tmp_path}/elsewhere/"
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(f"{tmp_path}/elsewhere"))
    )
    access = {prefix: icechunk.credentials.LocalFileSystemAccess}
    for storage in (icechunk.in_memory_storage(), icechunk.local_filesystem_storage(str(tmp_path / "r"))):
        made = icechunk.Repository.create(storage, config, authorize_virtual_chunk_access=access)
        found = repository_folder(made.readonly_session("main").store)
        assert found in (None, tmp_path / "r")


def test_committed_chunks_are_read_from_their_files(repository, monkeypatch):
    array = opened(repository)
    assert fetchers(array) == {"Icechunk, chunk files"}

    def refuse(*_, **__):
        raise AssertionError("Icechunk was asked for a chunk")

    monkeypatch.setattr(icechunk.IcechunkStore, "get", refuse)
    monkeypatch.setattr("intarsia.engine.fetch.icechunk.get_many", refuse)
    np.testing.assert_array_equal(array[...], VALUES)


def test_a_writable_session_goes_through_icechunk_and_sees_its_own_changes(repository):
    session = repository.writable_session("main")
    for mode in ("r", "r+"):  # opened for reading, the session can be written to all the same
        assert fetchers(intarsia.open(session.store, "a", mode=mode)) == {"Icechunk, in batches"}
    reader = intarsia.open(session.store, "a")
    np.testing.assert_array_equal(reader[...], VALUES)
    writer = intarsia.open(session.store, "a", mode="r+").with_config(cross_region_writes=True)
    writer[2:4] = 5
    writer[4] = 0  # a chunk of fill values is removed
    expected = VALUES.copy()
    expected[2:4], expected[4] = 5, 0
    for array in (reader, writer):
        np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(opened(repository)[...], VALUES)
    session.commit("changed")
    for array in (reader, writer):  # the session became read-only with the commit
        np.testing.assert_array_equal(array[...], expected)
        assert fetchers(array) == {"Icechunk, chunk files"}
    np.testing.assert_array_equal(opened(repository)[...], expected)


def test_what_is_remembered_belongs_to_one_snapshot(repository):
    before = opened(repository)
    before[...]
    session = repository.writable_session("main")
    array = intarsia.open(session.store, "a", mode="r+")
    array[0] = 7
    array.append(np.ones((2, 1000)), codecs=["zstd"])
    session.commit("more")
    np.testing.assert_array_equal(before[...], VALUES)
    after = opened(repository)
    assert after.shape == (8, 1000)
    assert after[0, 0] == 7
    np.testing.assert_array_equal(after[1:6], VALUES[1:])


def test_forks_go_through_icechunk(repository):
    session = repository.writable_session("main")
    fork = pickle.loads(pickle.dumps(session.fork()))
    array = intarsia.open(fork.store, "a", mode="r+")
    assert fetchers(array) == {"Icechunk, in batches"}
    array[1] = 3
    assert array[1, 5] == 3
    session.merge(fork)
    assert intarsia.open(session.store, "a")[1, 5] == 3


@pytest.mark.parametrize("codec", [0, 3], ids=["zstd", "raw"])
def test_a_chunk_file_that_is_gone_is_an_error(repository, tmp_path, codec):
    for file in chunk_files(tmp_path):
        file.rename(file.with_suffix(".away"))
    array = opened(repository)
    for _ in range(2):
        with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(0, 0\): .*not found"):
            array[codec]
    for file in chunk_files(tmp_path):
        file.rename(file.with_suffix(""))
    np.testing.assert_array_equal(array[...], VALUES)


def test_a_chunk_file_that_is_cut_off_is_an_error(repository, tmp_path):
    for file in chunk_files(tmp_path):
        os.truncate(file, file.stat().st_size // 2)
    array = opened(repository)
    with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(1, 0\): its file is cut off"):
        array[1]
    with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(2, 0\): its file is cut off"):
        array[5]


def test_a_repository_that_moved_is_read_through_icechunk(repository, tmp_path):
    """The path in the session is where the repository was; without it Icechunk decides what happens."""
    array = opened(repository)
    array[0]
    (tmp_path / "dépôt 1").rename(tmp_path / "elsewhere")
    with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(0, 0\)"):
        array[0]


def test_no_file_stays_open(repository):
    array = opened(repository)
    array[...]
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        array[...]
        array[::2, 5]
    assert len(os.listdir("/proc/self/fd")) <= before


def test_virtual_chunks_are_read_beside_native_ones(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data.bin").write_bytes(b"head" + VALUES[:2].tobytes())
    config = icechunk.RepositoryConfig.default()
    prefix = f"file://{outside}/"
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(outside)))
    )
    access = {prefix: icechunk.credentials.LocalFileSystemAccess}
    repository = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(tmp_path / "r")), config, authorize_virtual_chunk_access=access
    )
    session = repository.writable_session("main")
    array = intarsia.create(session.store, "a", shape=(6, 1000), chunks=(1, 1000), dtype="float64")
    array.add_region(((0, 3), (0, 1000)), codecs=[])
    member = array.regions[0].name
    for i in range(2):
        session.store.set_virtual_ref(
            f"a/{member}/c/{i}/0", f"{prefix}data.bin", offset=4 + 8000 * i, length=8000
        )
    array.add_region(((3, 6), (0, 1000)), codecs=["zstd"], data=VALUES[3:])
    array[2] = VALUES[2]  # a native chunk in the same member
    np.testing.assert_array_equal(array[...], VALUES)
    session.commit("virtual")
    array = opened(repository)
    assert {part.fetcher for part in intarsia.explain(array).parts} == {
        "source files",
        "Icechunk, chunk files",
    }
    np.testing.assert_array_equal(array[...], VALUES)
    np.testing.assert_array_equal(array[1:5, ::7], VALUES[1:5, ::7])
    (outside / "data.bin").unlink()
    with pytest.raises(intarsia.errors.ReadError, match=r"chunk \(0, 0\)"):
        array[0]
    np.testing.assert_array_equal(array[2:], VALUES[2:])
