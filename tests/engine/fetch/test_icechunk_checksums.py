"""Checksums of virtual chunks are what was recorded; files that are not as they should be are refused."""

import re
from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.engine.fetch.icechunk_checksums import (
    HEADER,
    FormatError,
    Snapshot,
    body_of,
    object_name,
    read_checksums,
)
from intarsia.errors import ReadError

MOMENT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
CHECKSUMS = ["9a0364b9e99bb480dd25e1f0284c8555", "abc-12", int(MOMENT.timestamp()), None, "ümlaut"]


def made(path, config=None, shape=(4, 5)):
    """A repository with an array of virtual chunks, with checksums of all kinds, and what they are."""
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)), config)
    session = repo.writable_session("main")
    zarr.create_group(session.store)
    for name in ("a", "a-b", "b/c"):
        zarr.create_array(session.store, name=name, shape=shape, chunks=(1, 1), dtype="u1", compressors=None)
    expected = {}
    for k, index in enumerate(np.ndindex(shape)):
        if k % 7 == 6:
            continue
        checksum = CHECKSUMS[k % len(CHECKSUMS)]
        stored_checksum = datetime.fromtimestamp(checksum, tz=UTC) if isinstance(checksum, int) else checksum
        key = "b/c/c/" + "/".join(map(str, index))
        session.store.set_virtual_ref(
            key, f"s3://b/{k}.nc", offset=k, length=1, checksum=stored_checksum, validate_container=False
        )
        expected[index] = checksum
    zarr.open_array(session.store, path="a")[0] = 7
    session.commit("checksums")
    return repo.readonly_session("main"), expected


def found(path, session, name="b/c"):
    def read(file):
        return (path / file).read_bytes()

    checksums = read_checksums(read, Snapshot(read(f"snapshots/{session.snapshot_id}")), name, 2)
    return dict(zip(map(tuple, checksums.chunk.tolist()), checksums.checksum, strict=True))


def test_marks_are_what_was_recorded(tmp_path):
    session, expected = made(tmp_path)
    assert found(tmp_path, session) == expected


def test_of_an_array_in_several_manifests(tmp_path):
    condition, along = icechunk.ManifestSplitCondition.AnyArray(), icechunk.ManifestSplitDimCondition.Axis(0)
    config = icechunk.RepositoryConfig.default()
    config.manifest = icechunk.ManifestConfig(
        splitting=icechunk.ManifestSplittingConfig.from_dict({condition: {along: 1}})
    )
    session, expected = made(tmp_path, config)
    assert len(list((tmp_path / "manifests").iterdir())) >= 4
    assert found(tmp_path, session) == expected


def test_where_locations_are_compressed(tmp_path):
    session, expected = made(tmp_path, shape=(60, 60))
    assert found(tmp_path, session) == expected


def test_native_chunks_have_none(tmp_path):
    session, _ = made(tmp_path)
    assert set(found(tmp_path, session, "a").values()) == {None}
    assert found(tmp_path, session, "a-b") == {}
    for nothing in ("b", "nowhere", ""):
        with pytest.raises(FormatError):
            found(tmp_path, session, nothing)


def test_names_of_objects_are_those_of_icechunk(tmp_path):
    session, _ = made(tmp_path)
    raw = b"\x0b\x1c\xc8\xd6xu\x80\xf0\xe3:e4"
    assert len(object_name(raw)) == len(session.snapshot_id)
    names = {file.name for file in (tmp_path / "manifests").iterdir()}
    snapshot = Snapshot((tmp_path / "snapshots" / session.snapshot_id).read_bytes())
    assert set(snapshot.node("b/c")[1]) <= names


@pytest.mark.parametrize("at", [0, 36, 37, 38])
def test_another_header_is_refused(tmp_path, at):
    session, _ = made(tmp_path)
    content = bytearray((tmp_path / "snapshots" / session.snapshot_id).read_bytes())
    content[at] = 99
    with pytest.raises(FormatError):
        Snapshot(bytes(content))
    with pytest.raises(FormatError):
        body_of(b"", 1)


@pytest.fixture(scope="module")
def bodies(tmp_path_factory):
    path = tmp_path_factory.mktemp("repository")
    session, _ = made(path)
    _, (manifest,) = Snapshot((path / "snapshots" / session.snapshot_id).read_bytes()).node("b/c")
    files = {"snapshots": session.snapshot_id, "manifests": manifest}
    plain = {}
    for kind, (folder, name) in enumerate(files.items(), 1):
        content = (path / folder / name).read_bytes()
        plain[folder] = content[:38] + b"\0" + body_of(content, kind)
    return plain


@given(st.data())
def test_damage_is_refused_or_harmless(bodies, data):
    damaged = dict(bodies)
    which = data.draw(st.sampled_from(sorted(bodies)))
    content = bytearray(bodies[which])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(39, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged[which] = bytes(content[: data.draw(st.integers(39, len(content)))])
    try:
        checksums = read_checksums(
            lambda name: damaged["manifests"], Snapshot(damaged["snapshots"]), "b/c", 2
        )
    except (FormatError, IndexError):
        return
    assert len(checksums.checksum) == len(checksums.chunk)


@pytest.mark.parametrize("how_many", [1, 4])
def test_chunks_with_indices_of_a_wrong_length_are_refused(tmp_path, how_many):
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    session = repo.writable_session("main")
    array = intarsia.create(session.store, "d", shape=(0, 2), dtype="u1", chunks=(1, 1), fill_value=9)
    array.append(np.arange(4, dtype="u1").reshape(2, 2))
    session.commit("four chunks")
    (file,) = (tmp_path / "manifests").iterdir()
    content = file.read_bytes()
    # an index after its length, 2; Icechunk knows how long the file is
    damaged, found = re.subn(
        rb"\x02(\0\0\0[\0\x01]\0\0\0[\0\x01]\0\0\0)", rb"\001\1", body_of(content, 2), count=how_many
    )
    assert found == how_many
    stored = zstandard.ZstdCompressor(level=22).compress(damaged)
    left = len(content) - HEADER - len(stored) - 8
    file.write_bytes(
        content[:HEADER] + stored + b"\x50\x2a\x4d\x18" + left.to_bytes(4, "little") + bytes(left)
    )
    with pytest.raises(ReadError, match="are damaged: "):
        intarsia.open(tmp_path, "d")[:]
