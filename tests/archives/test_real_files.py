"""Files of others: each is taken and equals what xarray, tifffile or GDAL reads, or is refused in words.

They come from the packages that are installed, and from INTARSIA_REAL_FILES: directories, and sdists as an
index of packages has them, separated as in PATH. `real_files.txt` lists those that were tried, and what
became of each; INTARSIA_REAL_FILES_WRITE=1 writes it anew.
"""

import collections
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from tests.archives.real_files import ALONE, GRIB, Outcome

SUFFIXES = {".nc", ".nc4", ".cdf", ".h5", ".hdf5", ".hdf", ".he5", ".tif", ".tiff", ".zarr", ".n5", *GRIB}
MAX_BYTES = 50_000_000
LIST = Path(__file__).with_name("real_files.txt")
VERSION = re.compile(r"[-_]v?\d[^/]*\Z")


def real_files(unpacked):
    """Every file of a kind that people put numbers into, by package and path in it."""
    roots = {"": Path(sysconfig.get_path("purelib"))}
    for name in filter(None, os.environ.get("INTARSIA_REAL_FILES", "").split(os.pathsep)):
        path = Path(name)
        if path.is_dir():
            roots[path.name] = path
            continue
        package = VERSION.sub("", path.name.removesuffix(".tar.gz")).lower().replace("_", "-")
        with tarfile.open(path) as archive:
            archive.extractall(unpacked / path.name, filter="data")
        roots[package] = next(unpacked.joinpath(path.name).glob("*/"))
    for package, root in roots.items():
        for path in sorted(root.rglob("*")):
            inside = any(parent.suffix in (".zarr", ".n5") for parent in path.relative_to(root).parents)
            size = path.stat().st_size if path.is_file() else 1
            if path.suffix.lower() in SUFFIXES and not inside and 0 < size < MAX_BYTES:
                yield f"{package}/{path.relative_to(root).as_posix()}".lstrip("/"), path


def outcomes(paths, folder):
    """What becomes of files; one that kills the program which reads it does not take the others with it."""
    left = [str(path) for path in paths]
    while left:
        asked = folder / "asked"
        asked.write_text("".join(f"{line}\n" for line in left))
        command = [sys.executable, "-m", "tests.archives.real_files"]
        with (
            asked.open() as lines,
            subprocess.Popen(
                command, stdin=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as program,
        ):
            for answer in program.stdout:
                if not answer.startswith("{"):  # libraries of others write there, too
                    continue
                yield Outcome(**json.loads(answer))
                del left[0]
        if left and left[0].startswith(ALONE):
            yield Outcome(left.pop(0).removeprefix(ALONE), "crash", "it kills the program")
        elif left:  # perhaps it is the others who do not survive it
            left[0] = ALONE + left[0]


@pytest.mark.torture
def test_real_files_are_read_as_others_read_them_or_refused_in_words(tmp_path, capsys):
    named = dict(real_files(tmp_path))
    found = dict(zip(named, outcomes(named.values(), tmp_path), strict=True))
    counts = collections.Counter(outcome.kind for outcome in found.values())
    with capsys.disabled():
        for name, outcome in sorted(found.items(), key=lambda item: (item[1].kind, item[0])):
            words = " ".join(outcome.words.split())[:160]
            print(f"{outcome.kind:8}  {name:70}  {words}", file=sys.__stdout__)
        print(dict(counts), file=sys.__stdout__)
    if os.environ.get("INTARSIA_REAL_FILES_WRITE"):
        LIST.write_text("".join(f"{found[name].kind:8}{name}\n" for name in sorted(found)))
    assert not [outcome for outcome in found.values() if outcome.kind in ("bare", "wrong", "crash")]
    listed = dict(line.split(maxsplit=1)[::-1] for line in LIST.read_text().splitlines())
    kinds = {name: {listed.get(name, "alone"), outcome.kind} for name, outcome in found.items()}
    # Whether a library of others survives a file depends on what it read before.
    assert {name: both for name, both in kinds.items() if len(both - {"alone"}) > 1} == {}
    assert counts["equal"] > 3
