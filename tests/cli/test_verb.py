"""Messages of the program advise what a command line has, never Python."""

import contextlib
import io
import pickle
import re

import numpy as np
import pytest
import zarr

from intarsia import errors
from intarsia.cli.app import HOMES
from intarsia.cli.output import print_error
from tests.cli.program import run, succeed

PYTHON = re.compile(
    r"\b(?:intarsia|arr|array|tx|values|data|np)\.[a-z_]+\("
    r"|\b[a-z_]+=(?:True|False|None|'[^']*'|…|\.\.\.| )|mode '|w-'|datetime"
    # of ours and zarr's: packages that other tests import have codecs with such names in zarr.json
    r"|\b(?:Pad|Offset|Shuffle|PackBits|Conditional|Optional|Reshape|Sharding|Bytes|Zstd|Gzip|Blosc)Codec\b"
)
WRONG = [
    ("create", "STORE", "temperature", "--shape", "4", "--dtype", "f4"),
    ("append", "STORE", "temperature", "wide.npy"),
    ("append", "STORE", "temperature", "large.npy"),
    ("append", "STORE", "nothing", "wide.npy"),
    ("recode", "STORE", "--bounds", "1:5, :, :", "-c", "gzip"),
    ("recode", "STORE", "-c", "zsdt"),
    ("rewrite", "STORE", "temperature"),
    ("compact", "STORE", "temperature"),
    ("regions", "STORE", "nothing"),
    ("verify", "STORE", "nothing"),
    ("export", "STORE", "plain.zarr"),
    ("convert", "plain.zarr", "STORE", "temperature"),
    ("adopt", "STORE", "temperature", "plain.zarr", "--source-path", "a"),
    ("adopt", "STORE", "temperature", "plain.zarr"),
    ("ingest", "bad.nc", "new", "--concat-dim", "time"),
    ("ingest", "none*.nc", "new"),
    ("ingest", "new", "*.nc"),
    ("ingest", "STORE", "bad.nc"),
    ("info", "STORE", "--tag", "nothing"),
    ("compact", "plain.zarr", "a"),
    ("split", "plain.zarr", "a"),
    ("relocate", "STORE", "/old=/new"),
    ("vacuum", "STORE", "--forget-before", "yesterday"),
]
MISSPELT = [
    *(("compact", "plain.zarr", "aa"), ("rewrite", "plain.zarr", "aa"), ("view", "plain.zarr", "aa")),
    *(("serve", "plain.zarr", "aa"), ("export", "plain.zarr", "new", "aa"), ("read", "plain.zarr", "aa")),
    *(("log", "STORE", "temprature"), ("verify", "STORE", "temprature"), ("info", "STORE", "temprature")),
    *(("info", "STORE", "--branch", "mani"), ("append", "STORE", "temperature", "a.npy", "--branch", "mani")),
]


@pytest.mark.parametrize("arguments", WRONG, ids=lambda a: " ".join(a)[:40])
def test_no_python_is_advised(arguments, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("wide.npy", np.ones((4, 6, 9), "f4"))
    np.save("large.npy", np.full((4, 6, 8), 1e300))
    zarr.create_array("plain.zarr", name="a", data=np.zeros((2, 2)))
    (tmp_path / "bad.nc").write_bytes(b"no netcdf")
    ran = run(*(str(store) if argument == "STORE" else argument for argument in arguments))
    assert ran.code in (2, 3, 4), ran
    assert not PYTHON.search(ran.err), ran.err
    assert not (tmp_path / "*.nc").exists()


@pytest.mark.parametrize("arguments", MISSPELT, ids=lambda a: " ".join(a)[:40])
def test_a_name_that_is_nowhere_is_told_with_the_names_that_are(arguments, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((4, 6, 8), "f4"))
    zarr.create_array("plain.zarr", name="array", data=np.zeros((2, 2)))
    ran = run(*(str(store) if argument == "STORE" else argument for argument in arguments))
    assert ran.code == 3, ran
    assert re.search("there is only array|Branches: main; tags|did you mean 'temperature'", ran.err), ran.err


def test_an_error_says_what_to_do_at_a_command_line():
    said = []
    for error in (
        errors.IntarsiaError("no.\n  arr.f()", command="intarsia f"),
        errors.IntarsiaError("no.\n  Go"),
    ):
        with contextlib.redirect_stderr(io.StringIO()) as stream:
            print_error(error, as_json=False)
        said.append(stream.getvalue())
    assert said == ["intarsia: no.\n  intarsia f\n", "intarsia: no.\n  Go\n"]
    again = pickle.loads(pickle.dumps(errors.BoundsError("no", command="intarsia f")))
    assert (str(again), again.command) == ("no", "intarsia f")


def test_help_breaks_lines_where_the_terminal_does_and_nowhere_else(monkeypatch):
    monkeypatch.setenv("COLUMNS", "76")
    said = [line.strip() for line in run("serve", "--help").out.splitlines()]
    start = said.index("")
    text = said[said.index("", start + 1) + 1 :]
    paragraph = text[text.index("") + 1 :]
    lines = paragraph[: paragraph.index("")]
    assert len(lines) > 3
    assert all(len(line) > 60 for line in lines[:-1])


@pytest.mark.parametrize("verb", ["", *HOMES])
def test_help_cuts_no_name_in_a_narrow_terminal_and_speaks_no_python(verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    said = succeed(*([verb] if verb else []), "--help")
    assert not re.search(r"--[\w-]+…", said)
    assert not re.search(r"<(str|bool|int|float|path|list)|\{[A-Z]", said)
