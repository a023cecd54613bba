"""A directory whose links lead out of it is not served: they may lead to files of whoever serves it."""

import os
import urllib.request

import pytest

import intarsia
from intarsia.errors import ReadError


@pytest.fixture
def place(tmp_path):
    array = intarsia.create(str(tmp_path / "z"), "a", shape=(0,), chunks=(4,), dtype="u1")
    array.append([1, 2, 3, 4], codecs=[])
    (tmp_path / "secret").write_bytes(b"\7" * 4)
    return tmp_path / "z"


def chunk_of(place):
    (chunk,) = place.rglob("c/0")
    return chunk


@pytest.mark.parametrize("what", ["chunk", "folder"])
@pytest.mark.parametrize(
    "how", [str, lambda place: intarsia.open(str(place), "a"), lambda place: f"file://{place}"]
)
def test_a_link_that_leads_out_is_refused(place, what, how):
    chunk = chunk_of(place)
    link, target = (chunk, place.parent / "secret") if what == "chunk" else (chunk.parent, place.parent)
    source = how(place)
    if what == "chunk":
        chunk.unlink()
    else:
        chunk.parent.rename(place.parent / "moved")
    link.symlink_to(target)
    with pytest.raises(ReadError, match=r"is a link to .*, which is outside"):
        intarsia.serve(source)


def test_a_repository_is_looked_at_too(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo, message="x") as tx:
        tx.create("a", shape=(0,), chunks=(4,), dtype="u1").append([1, 2, 3, 4], codecs=[])
    os.symlink("/etc/hostname", tmp_path / "r" / "more")
    for source in (str(tmp_path / "r"), repo):
        with pytest.raises(ReadError, match="is a link to /etc/hostname"):
            intarsia.serve(source)


def test_links_inside_and_a_link_to_all_of_it_are_served(place, tmp_path):
    chunk = chunk_of(place)
    chunk.rename(chunk.with_name("moved"))
    chunk.symlink_to("moved")
    (tmp_path / "link").symlink_to(place)
    with intarsia.serve(str(tmp_path / "link"), "a", codecs=[], port=0) as server:
        assert urllib.request.urlopen(f"{server.url}/c/0").read() == b"\1\2\3\4"
