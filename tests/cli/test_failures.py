"""What goes wrong for every verb alike: nothing there, something else there, damage, the past."""

import json
import shutil

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.cli.app import HOMES, app
from tests.archives.files import netcdf
from tests.cli.program import failure, run

LOOK = {
    "info": (),
    "regions": (),
    "read": ("temperature",),
    "explain": ("temperature",),
    "sources": ("temperature",),
    "log": ("temperature",),
    "ls": (),
    "advise": ("temperature",),
    "export": ("new.zarr", "temperature"),
    "diff": ("temperature", "main"),
    "report": ("temperature", "-o", "out.html"),
    "verify": ("temperature",),
    "serve": (),
    "view": (),
}
CHANGE = {
    "append": ("temperature", "one.npy"),
    "recode": ("temperature", "-c", "gzip"),
    "rewrite": ("temperature",),
    "compact": ("temperature",),
    "restore": ("temperature", "main"),
    "relocate": ("/old=/new",),
    "vacuum": (),
    "replicate": ("temperature", "--chunks", "50,3,4"),
    "maintain": ("temperature",),
    "optimize": ("temperature",),
    "consolidate": ("temperature",),
    "fuse": ("temperature",),
    "split": ("temperature",),
    "adopt": ("temperature", "there.zarr"),
    "tag": (),
    "branch": (),
}
EVERY = LOOK | CHANGE
NAMES = list(HOMES)


@pytest.fixture(scope="module")
def around(tmp_path_factory):
    """What verbs are given beside a store."""
    folder = tmp_path_factory.mktemp("around")
    np.save(folder / "one.npy", np.ones((10, 6, 8), dtype="f4"))
    zarr.create_array(folder / "there.zarr", data=np.ones((10, 6, 8), dtype="f4"))
    return folder


@pytest.fixture(autouse=True)
def here(around, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(around, tmp_path, dirs_exist_ok=True)


def test_every_verb_is_tested_here():
    listed = set(NAMES)
    assert listed - set(EVERY) == {"cache", "convert", "create", "demo", "ingest", "lint"}


@pytest.mark.parametrize("verb", EVERY)
def test_nothing_is_there(verb):
    assert "nowhere does not exist" in failure(verb, "nowhere", *EVERY[verb], code=3)


@pytest.mark.parametrize("verb", EVERY)
def test_something_else_is_there(verb, tmp_path):
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").touch()
    assert "else is a directory, not a store" in failure(verb, "else", *EVERY[verb], code=3)


@pytest.mark.parametrize("names", [[], ["a.png"], ["1.nc"], ["one.zarr/zarr.json"]])
def test_a_directory_that_is_no_store(names, tmp_path):
    (tmp_path / "place").mkdir()
    for name in names:
        (tmp_path / "place" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "place" / name).touch()
    for told in (failure("info", "place", code=3), failure("convert", "place", "new", code=3)):
        assert "place is a directory, not a store" in told
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_no_store(tmp_path):
    (tmp_path / "a.txt").touch()
    assert "a.txt is a file, not a store" in failure("info", "a.txt", code=3)


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "place", "t", "--shape", "4", "--dtype", "f4"),
        ("ingest", "*.nc", "place"),
        ("convert", "there.zarr", "place"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_nothing_new_is_put_among_other_files(arguments, tmp_path):
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "a.png").touch()
    assert "place holds other things" in failure(*arguments, code=2)
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["a.png"]


def test_files_go_into_a_repository_that_is_there():
    for day in range(2):
        netcdf(f"{day}.nc", day)
    assert "there.zarr holds something else" in failure("ingest", "*.nc", "there.zarr", code=8)
    assert "is a plain Zarr store" in failure("lint", "*.nc", "--into", "there.zarr", code=3)
    assert "no Icechunk repository at" in failure("lint", "*.nc", "--into", "nowhere", code=3)


@pytest.mark.parametrize(
    "verb",
    sorted(
        EVERY.keys()
        - {"adopt", "compact", "diff", "vacuum", "restore", "rewrite", "log", "tag", "branch", "relocate"}
    ),
)
def test_there_is_no_such_array(verb, store):
    arguments = ["nothing" if a == "temperature" else a for a in EVERY[verb]] or ["nothing"]
    failure(verb, store, *arguments, code=3)


@pytest.mark.parametrize("verb", LOOK)
def test_there_is_no_such_version(verb, made):
    failure(verb, made[0], *LOOK[verb], "--tag", "v9", code=3)


NEW = {
    "create": ("new", "--shape", "4", "--dtype", "f4"),
    "ingest": ("--concat-dim", "time"),
}


@pytest.mark.parametrize("verb", CHANGE | NEW)
@pytest.mark.parametrize(
    "version", [("--tag", "v1"), ("--snapshot", "A" * 20), ("--as-of", "2020-01-01")], ids=lambda v: v[0]
)
def test_the_past_cannot_be_changed(verb, version, store):
    before = intarsia.open_repository(store).lookup_branch("main")
    files = ("01.nc",) if verb == "ingest" else ()
    ran = run(verb, *files, store, *(CHANGE | NEW)[verb], *version)
    assert (ran.code, ran.out) == (2, "")
    assert "No such option" in ran.err
    assert intarsia.open_repository(store).lookup_branch("main") == before


@pytest.mark.parametrize(
    "verb",
    sorted(
        EVERY.keys() - {"verify", "log", "diff", "restore", "tag", "branch", "split", "relocate", "maintain"}
    ),
)
@pytest.mark.parametrize(
    ("change", "words"),
    [({"version": 99}, "version 99"), ({"members": ["../x"]}, "members"), ({"shape": None}, "shape")],
    ids=["wrong version", "bad name", "bad shape"],
)
def test_a_manifest_that_cannot_be_read(verb, plain, change, words):
    file = plain / "temperature" / "zarr.json"
    document = json.loads(file.read_text())
    document["attributes"]["intarsia"] |= change
    file.write_text(json.dumps(document))
    assert words in failure(verb, plain, *EVERY[verb], code=5)


@pytest.mark.parametrize("verb", EVERY)
def test_a_damaged_repository(verb, store):
    for file in (store / "repo", *(store / "snapshots").iterdir()):
        file.write_bytes(b"garbage")
    ran = run(verb, store, *EVERY[verb])
    assert ran.code in (3, 5, 8), ran
    assert ran.err.startswith("intarsia: ")
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("verb", NAMES)
def test_every_verb_has_help_with_an_example(verb):
    ran = run(verb, "--help")
    assert ran.code == 0
    assert f"Example: intarsia {verb}" in ran.out


@pytest.mark.parametrize("verb", [verb for verb in NAMES if verb not in ("cache", "demo")])
def test_verbs_that_look_take_every_version_and_those_that_change_take_a_branch(verb):
    text = " ".join(run(verb, "--help").out.split())
    assert "--json" in text
    assert "--storage-option" in text
    # One is for stores without versions, the others for all that a repository has.
    assert ("--branch" in text) == (verb not in ("compact", "tag", "branch"))
    for option in ("--tag", "--snapshot", "--as-of"):
        assert (option in text) == (verb in LOOK)


def test_the_examples_of_the_help_are_understood():
    """Every option that an example uses exists; arguments are as many as there may be."""
    from typer.main import get_command

    group = get_command(app)
    for verb in NAMES:
        command = group.get_command(None, verb)
        example = command.help.split("Example: intarsia ")[1].split("\n")[0].split()
        known = {name for parameter in command.params for name in parameter.opts + parameter.secondary_opts}
        used = {word for word in example if word.startswith("-") and not word.lstrip("-")[0].isdigit()}
        assert used <= known, verb


PLAIN = ("create", "store", "a", "--shape", "4", "--chunks", "2", "--dtype", "f4")
MISTAKES = {
    "a path out of the store": (("create", "s", "../a", *PLAIN[3:]), 2, "PATH: The path '../a' is invalid"),
    "a file as the store": (("create", "one.npy", *PLAIN[2:]), 2, "one.npy is a file, and a store is a dir"),
    "a wrong data type": (("create", "s", *PLAIN[2:-1], "flot"), 2, "data type 'flot' not understood"),
    "an array in an array": (
        ("append", "there.zarr", "x", "one.npy"),
        3,
        "'x' in there.zarr: there is only /",
    ),
    "a tag as the branch": (
        ("append", "store", "a", "one.npy", "--branch", "v1"),
        3,
        "has no branch or tag 'v1'.\n  Branches: main; tags: v1",
    ),
    "a branch as the tag": (("read", "store", "a", "--tag", "main"), 3, "has no branch or tag 'main'."),
    "shards of no whole chunks": (
        ("append", "store", "a", "four.npy", "-c", "zstd", "--chunks", "2", "--shards", "3"),
        4,
        "is not divisible by the shard's inner chunk size 2",
    ),
    "plain Zarr without members": (("vacuum", "there.zarr"), 3, "but a plain Zarr array of format 3"),
    "an unknown protocol": (
        ("ls", "s4://bucket/x"),
        3,
        "there is nothing at '/' of s4://bucket/x: Protocol not",
    ),
    "a bucket without a name": (("ls", "s3://"), 2, "give a bucket and a prefix in it"),
    "a slice without steps": (("read", "store", "a", "0:1:0"), 2, "write integers, slices and lists"),
    "a fill value out of range": (
        ("create", "store", "b", "--shape", "1", "--chunks", "1", "--dtype", "i1", "--fill-value", "300"),
        2,
        "300 out of bounds",
    ),
    "a copy onto itself": (("fuse", "store", "a", "--to", "a"), 4, "there is already something at 'a'"),
    "a copy out of the store": (
        ("fuse", "store", "a", "--to", "../b"),
        2,
        "PATH: The path '../b' is invalid",
    ),
    "several arrays in one file": (("append", "store", "a", "several.npy"), 2, "cannot be read: the magic"),
    "virtual arrays of plain Zarr": (
        ("export", "there.zarr", "new", "--to", "virtual"),
        2,
        "is a plain Zarr store, which refers to no source files",
    ),
    "a directory as the page": (("report", "store", "-o", "."), 8, ". is a directory: name a file in it"),
    "a file to check that is gone": (("lint", "gone.nc"), 1, ""),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_natural_mistake_is_named_and_leaves_nothing_behind(mistake, tmp_path):
    assert run(*PLAIN).code == 0
    assert run("tag", "store", "v1").code == 0
    np.save("four.npy", np.ones(4, dtype="f4"))
    with open("several.npy", "wb") as stream:
        np.savez(stream, a=np.ones(4), b=np.ones(4))
    before = sorted(tmp_path.rglob("*"))
    arguments, code, words = MISTAKES[mistake]
    if words:
        assert words in failure(*arguments, code=code)
    else:
        assert "nothing added: 1 failed" in run(*arguments).out
    assert sorted(tmp_path.rglob("*")) == before
