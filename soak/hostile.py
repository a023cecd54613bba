"""Untrusted archives, each opened through every door.

Nothing outside of them is read or written, nothing of theirs runs, and no name in them reaches a terminal or
a page as more than text.
"""

import contextlib
import io
import json
import os
import pickle
import shutil
import urllib.request
from pathlib import Path

import icechunk
import numpy as np
import xarray as xr
import zarr
from tests.cli.program import run

import intarsia
from intarsia.errors import IntarsiaError
from soak.damage.chunks import quiet
from soak.target import Target, Wrong

SECRET = b"nobody outside may see this"
NAME = '\x1b[31mred\x1b[0m\u202e<script>alert("x")</script>'
"""What a stranger calls things."""


class Payload:
    """What runs when it is unpickled."""

    def __init__(self, file):
        self._file = str(file)

    def __reduce__(self):
        return Path.touch, (Path(self._file),)


def a_pickle(folder, canary, *, as_compressor=False):
    """An array of texts of format 2 whose last filter is a pickle."""
    zarr.create_array(str(folder), shape=2, chunks=2, dtype="u1", zarr_format=2, compressors=None)
    document = json.loads((folder / ".zarray").read_text())
    pickled, texts = {"id": "pickle", "protocol": 5}, {"id": "vlen-utf8"}
    document |= {"dtype": "|O", "filters": [texts, pickled], "fill_value": ""}
    if as_compressor:
        document |= {"filters": [texts], "compressor": pickled}
    (folder / ".zarray").write_text(json.dumps(document))
    (folder / "0").write_bytes(pickle.dumps(Payload(canary)))


def a_pickled_compressor(folder, canary):
    """The same where a compressor stands."""
    a_pickle(folder, canary, as_compressor=True)


def links(folder, canary):
    """A chunk that is a link to a file of whoever opens the archive."""
    logical(folder)
    (chunk,) = folder.rglob("c/0")
    chunk.unlink()
    chunk.symlink_to(canary.parent / "secret" / "raw.bin")


def linked_folders(folder, canary):
    """The folder of an array's chunks is one of whoever opens the archive."""
    logical(folder)
    (chunk,) = folder.rglob("c/0")
    chunk.rename(canary.parent / "secret" / "0")
    (canary.parent / "secret" / "0").write_bytes(SECRET[:2])
    shutil.rmtree(chunk.parent)
    chunk.parent.symlink_to(canary.parent / "secret")


def links_in_a_repository(folder, canary):
    """The same in a repository of Icechunk's."""
    repo = intarsia.open_repository(folder, create=True)
    with intarsia.transaction(repo, message="x") as tx:
        array = tx.create("a", shape=(2000,), chunks=(2000,), dtype="u1")
        array.add_region([(0, 2000)], codecs=[], data=np.arange(2000) % 251)
    (chunk,) = (folder / "chunks").iterdir()
    chunk.unlink()
    chunk.symlink_to(canary.parent / "secret" / "raw.bin")


def a_group_with_a_pickle(folder, canary):
    """The same, one array of a dataset."""
    zarr.create_group(str(folder), zarr_format=2)
    a_pickle(folder / "a", canary)


def logical(folder, **options):
    array = intarsia.create(str(folder), "a", shape=(4,), chunks=(2,), dtype="u1", **options)
    array.add_region([(0, 4)], codecs=[], data=np.arange(4))
    return array


def edited(folder, change):
    """A logical array whose manifest a stranger has edited."""
    logical(folder)
    file = folder / "a" / "zarr.json"
    document = json.loads(file.read_text())
    change(document["attributes"]["intarsia"])
    file.write_text(json.dumps(document))


def names_that_lead_out(folder, _canary):
    """Members that are elsewhere."""
    edited(folder, lambda m: m.update(members=["../../secret"]))


def absolute_names(folder, canary):
    edited(folder, lambda m: m.update(members=[str(canary.parent / "secret")]))


def a_table_elsewhere(folder, _canary):
    edited(folder, lambda m: m.update(regions="../../secret"))


def virtual_references(folder, canary):
    """A repository that refers to files of whoever opens it, and says that it may."""
    secret = canary.parent / "secret" / "raw.bin"
    url = f"file://{secret.parent}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(url, icechunk.local_filesystem_store(str(secret.parent)))
    )
    repo = intarsia.open_repository(folder, create=True, config=config)
    with intarsia.transaction(repo, message="x") as tx:
        array = tx.create("a", shape=(len(SECRET),), chunks=(len(SECRET),), dtype="u1")
        name = "m-" + "0" * 32
        zarr.create_array(
            tx.store, name=f"a/{name}", shape=array.shape, chunks=array.shape, dtype="u1", compressors=None
        )
        array.store.set_virtual_ref(f"a/{name}/c/0", f"file://{secret}", offset=0, length=len(SECRET))
        array.add_region([(0, len(SECRET))], member=name)
    repo.save_config()


def evil_names(folder, _canary):
    """Everything that can have a name has a bad one."""
    store = str(folder)
    array = intarsia.create(
        store, "a", shape=(4, 4), chunks=(2, 2), dtype="f4", dimension_names=[NAME, "x"],
        attributes={"units": NAME, "long_name": NAME, NAME: NAME},
    )  # fmt: skip
    array.add_region([(0, 4), (0, 4)], codecs=["gzip"], data=np.ones((4, 4)))
    intarsia.create(store, "b" + NAME.replace("/", ""), shape=(2,), chunks=(2,), dtype="u1")


def decisions_by_name(folder, _canary):
    """A decision that is called as a function of Python's."""
    z = zarr.create_array(
        str(folder), name="a", shape=4, chunks=2, dtype="u1", filters=None,
        compressors=[intarsia.codecs.ConditionalCodec(codecs=["gzip"], decision="always_apply")],
        attributes={"intarsia": {"decision": "os.system"}, "intarsia.decision": "builtins.exec"},
    )  # fmt: skip
    z[...] = 1


ARCHIVES = (
    a_pickle, a_pickled_compressor, a_group_with_a_pickle, names_that_lead_out, absolute_names,
    a_table_elsewhere,
    virtual_references, evil_names, decisions_by_name, links, linked_folders, links_in_a_repository,
)  # fmt: skip


def by_reader(folder):
    found = intarsia.reader(str(folder))
    for array in found.values() if isinstance(found, dict) else [found]:
        if np.asarray(array[...]).tobytes()[:2] == SECRET[:2]:
            raise Wrong("values of a file outside were read")


def by_xarray(folder):
    with xr.open_dataset(str(folder), engine="intarsia") as dataset:
        for variable in dataset.load().data_vars.values():
            if variable.values.tobytes()[:2] == SECRET[:2]:
                raise Wrong("values of a file outside were read")


def by_ingest(folder):
    intarsia.ingest(str(folder), "memory://", concat_dim="time")


def by_program(*verb):
    def door(folder):
        ran = run(*verb, str(folder), *(() if verb[0] == "ls" else ("a",)))
        return ran.out + ran.err

    door.__name__ = " ".join(verb)
    return door


def by_report(folder):
    page = folder.parent / "report.html"
    ran = run("report", str(folder), "--output", str(page))
    text = page.read_text() if page.exists() else ""
    if "<script>alert" in text or "\x1b" in text:
        raise Wrong("a name became a part of the page")
    return ran.out + ran.err


def by_server(folder):
    said = []
    with intarsia.serve(str(folder)) as server:
        for path in (
            "",
            "/zarr.json",
            "/a/zarr.json",
            "/a/c/0",
            "/c/0",
            "/../secret/raw.bin",
            "/%2e%2e/secret/raw.bin",
        ):
            with contextlib.suppress(OSError):
                said.append(urllib.request.urlopen(server.url + path).read())
    if any(SECRET in each for each in said):
        raise Wrong("the server gave a file away")


DOORS = (
    by_reader, by_xarray, by_ingest, by_report, by_server, by_program("info"), by_program("verify"),
    by_program("ls"),
    by_program("info", "--json"),
)  # fmt: skip


class Strangers:
    """One case: an archive, a door."""

    def __init__(self, folder):
        self._folder = folder
        self._opened = []

    def __call__(self, number, _rng):
        archive = ARCHIVES[number % len(ARCHIVES)]
        door = DOORS[number // len(ARCHIVES) % len(DOORS)]
        home = self._folder / str(number)
        (home / "secret").mkdir(parents=True)
        (home / "secret" / "raw.bin").write_bytes(SECRET)
        zarr.create_array(str(home / "secret"), shape=4, chunks=2, dtype="u1")[...] = 7
        canary = home / "it-ran"
        archive(home / "archive", canary)
        before = {p for p in home.rglob("*") if "archive" not in p.relative_to(home).parts}
        what = f"{archive.__name__} by {door.__name__}"
        said, outcome = io.StringIO(), "opened"
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                text = door(home / "archive") or ""
            except (IntarsiaError, OSError, SystemExit) as error:
                text, outcome = str(error), "refused"
            except Exception as error:
                text, outcome = str(error), f"refused by {type(error).__name__}"
        text += said.getvalue()
        if canary.exists():
            raise Wrong(f"{what}: code of the archive ran")
        after = {p for p in home.rglob("*") if "archive" not in p.relative_to(home).parts}
        if more := after - before - {home / "report.html", home / "archive.intarsia.lock"}:
            raise Wrong(f"{what}: {sorted(map(str, more))[:3]} was written")
        if SECRET.decode() in text or "110 111 98 111 100 121" in text:
            raise Wrong(f"{what}: a file outside was read: {text[:300]}")
        if "\x1b[31m" in text or "\u202e" in text:
            raise Wrong(f"{what}: a name reached the terminal: {text[:500]!r}")
        return outcome


@quiet
def prepare(folder, _seed):
    os.environ.pop("FORCE_COLOR", None)
    return Strangers(folder)


TARGETS = [Target("hostile", "archives and doors", prepare, memory=None, stretch=1000)]
CASES = len(ARCHIVES) * len(DOORS)
