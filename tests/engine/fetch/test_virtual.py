"""Chunks in files of others are read and refused as Icechunk does it, but neighbours together."""

import os
import pickle
from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.engine.fetch import icechunk as icechunk_fetcher
from intarsia.engine.fetch.icechunk import IcechunkSession
from intarsia.engine.fetch.symlinks import CheckedFolders
from intarsia.errors import ReadError
from intarsia.versions.authorization import store_of
from tests.engine.fetch.virtual_arrays import CHUNK, expected, refer, repository

CONTENT = np.random.default_rng(0).integers(0, 255, 4000, dtype="u1").tobytes()
LATER = datetime(2100, 1, 1, tzinfo=UTC)
FILES = ["1.nc", "2 with spaces.nc", "3%.nc"]


def url_of(path):
    return path.as_uri()


def made(folder, *, authorised=True, storage=None):
    """A repository that may read the files of a folder, and their contents by URL."""
    contents = {}
    (folder / "files").mkdir(exist_ok=True)
    for k, name in enumerate(FILES):
        path = folder / "files" / name
        path.write_bytes(CONTENT[k:] + CONTENT[:k])
        contents[url_of(path)] = path.read_bytes()
    prefix = f"{url_of(folder)}/files/"
    storage = storage or icechunk.local_filesystem_storage(str(folder / "repository"))
    access = {prefix: icechunk.credentials.LocalFileSystemAccess} if authorised else None
    store = icechunk.local_filesystem_store(str(folder / "files"))
    return repository(storage, {prefix: store}, access), contents


def reader(store, name="a"):
    return intarsia.reader(zarr.open_array(store, path=name, mode="r"))


def how(array):
    return {part.fetcher for part in intarsia.explain(array).parts}


@pytest.fixture
def refuse_icechunk(monkeypatch):
    """From now on, no chunk may be read through Icechunk."""

    def forbid():
        def refuse(*_, **__):
            raise AssertionError("Icechunk was asked for a chunk")

        monkeypatch.setattr(icechunk.IcechunkStore, "get", refuse)
        monkeypatch.setattr("intarsia.engine.fetch.icechunk.get_many", refuse)

    return forbid


places = st.tuples(st.integers(0, 2), st.integers(0, 4000 - CHUNK), st.sampled_from([None, LATER]))


@given(
    st.dictionaries(st.integers(0, 19), places, max_size=20),
    st.sets(st.integers(0, 19), max_size=4),
    st.data(),
)
def test_any_chunks_read_as_they_lie_in_their_files(tmp_path_factory, chosen, written, data):
    folder = tmp_path_factory.mktemp("archive")
    repo, contents = made(folder)
    urls = list(contents)
    written = {w for w in written if w not in chosen}
    references = {k: (urls[n], offset, checksum) for k, (n, offset, checksum) in chosen.items()}
    array = reader(refer(repo, references, chunks=20, written=written))
    whole = expected(references, contents, 20, written)
    np.testing.assert_array_equal(array[...], whole)
    first = data.draw(st.integers(0, 799))
    some = slice(first, data.draw(st.integers(first, 800)), data.draw(st.integers(1, 90)))
    np.testing.assert_array_equal(array[some], whole[some])
    points = data.draw(st.lists(st.integers(0, 799), min_size=1, max_size=9))
    np.testing.assert_array_equal(array.vindex[points], whole[points])


def test_a_file_is_opened_once_for_all_of_its_chunks(tmp_path, refuse_icechunk, monkeypatch):
    repo, contents = made(tmp_path)
    (url, other, _) = contents
    references = {k: (url if k % 3 else other, k * CHUNK, LATER) for k in range(20)}
    store = refer(repo, references)
    array = reader(store)
    assert how(array) == {"source files"}
    refuse_icechunk()
    opened = []
    open_file = CheckedFolders.open
    monkeypatch.setattr(CheckedFolders, "open", lambda self, key: opened.append(key) or open_file(self, key))
    array = array.with_config(threads=1)
    np.testing.assert_array_equal(array[...], expected(references, contents, 20))
    assert len(opened) == 2


def test_of_a_pickled_session(tmp_path, refuse_icechunk):
    repo, contents = made(tmp_path)
    references = {k: (url, 7 * k, LATER) for k, url in enumerate(contents)}
    store = pickle.loads(pickle.dumps(refer(repo, references)))
    array = reader(store)
    refuse_icechunk()
    np.testing.assert_array_equal(array[...], expected(references, contents, 3))


@pytest.mark.parametrize("change", ["touched", "another", "cut", "gone"])
def test_a_file_that_is_not_the_same_any_more_is_refused(tmp_path, change):
    repo, contents = made(tmp_path)
    url = next(iter(contents))
    file = tmp_path / "files" / FILES[0]
    moment = datetime.fromtimestamp(int(file.stat().st_mtime) + 1, tz=UTC)
    store = refer(repo, {k: (url, 3000 + k * CHUNK, moment) for k in range(9)})
    np.testing.assert_array_equal(reader(store)[:CHUNK], np.frombuffer(CONTENT, "u1", CHUNK, 3000))
    after = moment.timestamp() + 5
    if change == "gone":
        file.unlink()
    elif change == "another":
        (tmp_path / "other").write_bytes(bytes(4000))
        os.utime(tmp_path / "other", (after, after))
        (tmp_path / "other").rename(file)
    elif change == "cut":
        before = file.stat().st_mtime
        os.truncate(file, 3100)
        os.utime(file, (before, before))
    else:
        os.utime(file, (after, after))
    for selection in (slice(None), slice(5 * CHUNK, 6 * CHUNK)):
        with pytest.raises(ReadError, match=r"1\.nc"):
            reader(store)[selection]


def test_nobody_authorised_it(tmp_path):
    repo, contents = made(tmp_path, authorised=False)
    store = refer(repo, {0: (next(iter(contents)), 0, LATER)})
    with pytest.raises(ReadError, match="may not be read"):
        reader(store)[...]
    assert how(reader(store)) == {"Icechunk, in batches"}


def test_marks_that_cannot_be_told_are_left_to_icechunk(tmp_path):
    repo, contents = made(tmp_path, storage=icechunk.in_memory_storage())
    references = {k: (url, k, LATER) for k, url in enumerate(contents)}
    array = reader(refer(repo, references))
    assert how(array) == {"Icechunk, in batches"}
    np.testing.assert_array_equal(array[...], expected(references, contents, 3))


def test_an_etag_of_a_local_file_is_left_to_icechunk(tmp_path):
    repo, contents = made(tmp_path)
    store = refer(repo, {0: (next(iter(contents)), 0, "not its checksum")})
    with pytest.raises(ReadError, match=r"1\.nc"):
        reader(store)[...]


def test_a_path_out_of_the_container_is_never_opened(tmp_path):
    (tmp_path / "secret").write_bytes(CONTENT)
    repo, contents = made(tmp_path)
    url = next(iter(contents))
    elsewhere = url.rsplit("/", 1)[0] + "/../secret"
    store = refer(repo, {0: (elsewhere, 0, None), 1: (url, 0, None)})
    array = reader(store)
    with pytest.raises(ReadError):
        array[:CHUNK]
    np.testing.assert_array_equal(array[CHUNK:], np.frombuffer(CONTENT, "u1", CHUNK))


def test_the_regions_of_a_logical_array_share_a_file(tmp_path, refuse_icechunk):
    repo, contents = made(tmp_path)
    url = next(iter(contents))
    session = repo.writable_session("main")
    array = intarsia.create(session.store, "b", shape=(4 * CHUNK,), chunks=(CHUNK,), dtype="u1")
    for k in range(2):
        array.add_region(((2 * k * CHUNK, 2 * (k + 1) * CHUNK),), codecs=[])
    for k, region in enumerate(array.regions):
        for i in range(2):
            key = f"b/{region.name}/c/{i}"
            session.store.set_virtual_ref(key, url, offset=(2 * k + i) * CHUNK, length=CHUNK, checksum=LATER)
    session.commit("two members")
    array = intarsia.open(repo, "b").with_config(threads=1)
    assert intarsia.explain(array).requests == 4
    refuse_icechunk()
    np.testing.assert_array_equal(array[...], np.frombuffer(CONTENT, "u1", 4 * CHUNK))


def test_inner_chunks_of_a_shard_that_is_a_file_of_others(tmp_path, refuse_icechunk):
    repo, _ = made(tmp_path)
    values = np.arange(6400, dtype="u2").reshape(80, 80)
    file = tmp_path / "files" / "shard"
    layout = {"shape": (80, 80), "shards": (80, 80), "chunks": (10, 10), "dtype": "u2"}
    zarr.create_array(tmp_path / "plain", **layout)[...] = values
    content = (tmp_path / "plain" / "c" / "0" / "0").read_bytes()
    file.write_bytes(b"head" + content + b"tail")
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="s", **layout)
    url = url_of(file)
    session.store.set_virtual_ref("s/c/0/0", url, offset=4, length=len(content), checksum=LATER)
    session.commit("a shard")
    array = reader(store_of(repo.readonly_session("main"), repo), "s")
    refuse_icechunk()
    np.testing.assert_array_equal(array[...], values)
    np.testing.assert_array_equal(array[35:62:3, 7], values[35:62:3, 7])


def test_a_thread_that_lists_chunks_late_takes_no_marks_away(tmp_path, monkeypatch):
    """Another one had begun to read by them, and met a table that says nothing of files: ReadError, "3"."""
    repo, contents = made(tmp_path)
    (url, *_) = contents
    references = {k: (url, 60 * k, LATER) for k in range(4)}
    array = reader(refer(repo, references))
    whole = expected(references, contents, 4)
    quick, tables = [], []
    listed, complete = icechunk_fetcher.chunk_table, IcechunkSession._with_checksums

    def late(*arguments):
        found = listed(*arguments)
        if not quick:
            quick.append(None)
            quick[0] = array[...]  # as another thread, that began later, and is done
        return found

    def with_checksums(*arguments):
        tables.append(complete(*arguments))
        return tables[-1]

    monkeypatch.setattr(icechunk_fetcher, "chunk_table", late)
    monkeypatch.setattr(IcechunkSession, "_with_checksums", with_checksums)
    np.testing.assert_array_equal(array[...], whole)
    np.testing.assert_array_equal(quick[0], whole)
    (kept,) = array._handle.fetcher()._references.values()
    assert kept is tables[0]


@pytest.mark.parametrize("is_plain_store", [False, True], ids=["read directly", "left to Icechunk"])
def test_a_link_out_is_refused_by_reads_that_need_it_and_by_no_other(tmp_path, is_plain_store):
    repo, contents = made(tmp_path)
    references = {k: (url, 7 * k, None) for k, url in enumerate(contents)}
    store = refer(repo, references)
    if is_plain_store:  # it is not known what the repository may read
        store = repo.readonly_session("main").store
    (tmp_path / "files" / FILES[1]).unlink()
    (tmp_path / "elsewhere").write_bytes(CONTENT)
    (tmp_path / "files" / FILES[1]).symlink_to(tmp_path / "elsewhere")
    values, array = expected(references, contents, 3), reader(store)
    for k in (0, 2):
        np.testing.assert_array_equal(array[k * CHUNK : (k + 1) * CHUNK], values[k * CHUNK : (k + 1) * CHUNK])
    for selection in (slice(CHUNK, 2 * CHUNK), slice(None)):
        with pytest.raises(ReadError, match="is a link to"):
            array[selection]
