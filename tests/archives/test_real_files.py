"""Files that others made: each is taken and equals what xarray reads, or is refused in words.

They come from the packages that are installed, and from INTARSIA_REAL_FILES: directories, and sdists as
`pip download --no-deps --no-binary NAME NAME` gets them, separated as in PATH.
"""

import collections
import os
import re
import sys
import sysconfig
import tarfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tifffile
import xarray as xr

import intarsia
from intarsia.errors import IngestError

SUFFIXES = {".nc", ".nc4", ".cdf", ".h5", ".hdf5", ".hdf", ".he5", ".tif", ".tiff", ".grib", ".grb", ".grib2"}
SUFFIXES |= {".grib1", ".grb2", ".zarr", ".n5"}
MOST_BYTES = 50_000_000
PROGRAMMERS_WORDS = re.compile(r"\b(Key|Index|Attribute|Type|Assertion|Recursion|Unbound\w*)Error\b")
ENGINES = ({}, {"engine": "h5netcdf", "phony_dims": "access"}, {"engine": "scipy"}, {"engine": "zarr"})


@dataclass(frozen=True)
class Outcome:
    path: Path
    kind: str
    """`equal`, `refused`, `wrong` or `bare`."""

    words: str


def real_files(unpacked):
    """Every file of a kind that people put numbers into."""
    roots = [Path(sysconfig.get_path("purelib"))]
    for name in filter(None, os.environ.get("INTARSIA_REAL_FILES", "").split(os.pathsep)):
        path = Path(name)
        if path.is_dir():
            roots.append(path)
            continue
        with tarfile.open(path) as archive:
            archive.extractall(unpacked / path.name, filter="data")
        roots.append(unpacked / path.name)
    for root in roots:
        for path in sorted(root.rglob("*")):
            inside = any(parent.suffix in (".zarr", ".n5") for parent in path.relative_to(root).parents)
            size = path.stat().st_size if path.is_file() else 1
            if path.suffix.lower() in SUFFIXES and not inside and 0 < size < MOST_BYTES:
                yield path


def as_others_read(path):
    """What xarray reads, or tifffile of a picture; None if nobody can."""
    if path.suffix.lower() in (".tif", ".tiff"):
        try:
            with tifffile.TiffFile(path) as file:
                page = file.pages[0]
                axes, values = page.axes, page.asarray()
        except Exception:
            return None
        names = {"Y": "y", "X": "x", "S": "band", "C": "band"}
        if not set(axes) <= set(names):
            return None
        return xr.Dataset({"0": ([names[axis] for axis in axes], values)})
    for options in ENGINES:
        try:
            return xr.open_dataset(path, decode_times=False, **options).load()
        except Exception:
            continue
    return None


def dimension_of(dataset):
    """A dimension to go along: one that is unlimited, or the first one; a new one where there is none."""
    if dataset is None or not dataset.sizes:
        return "step"
    unlimited = sorted(dataset.encoding.get("unlimited_dims", ()))
    longest = [dim for dim in dataset.sizes if dataset.sizes[dim]]
    return next(iter([*(dim for dim in unlimited if dataset.sizes.get(dim)), *longest, "step"]))


def differences(ours, theirs, dim, left_out):
    """Variables that are not what others read."""
    order = slice(None)
    if dim in theirs.variables and theirs[dim].ndim == 1:  # an axis is put in order
        order = np.argsort(theirs[dim].values, kind="stable")
        if len(order) > 1 and dim in ours and ours[dim].values[0] > ours[dim].values[-1]:
            order = order[::-1]
    for name in theirs.variables:
        expected = theirs[name]
        if name in left_out:
            continue
        if name not in ours.variables:
            yield f"{name} is missing"
            continue
        if dim in expected.dims:
            expected = expected.isel({dim: order})
        actual = ours[name]
        if dim not in expected.dims and dim in actual.dims:
            actual = actual.isel({dim: 0})
        if set(actual.dims) != set(expected.dims):
            yield f"{name} has the axes {actual.dims} instead of {expected.dims}"
            continue
        a, b = actual.transpose(*expected.dims).values, expected.values
        if a.shape != b.shape:
            yield f"{name} has the shape {a.shape} instead of {b.shape}"
        elif not same(a, b):
            yield f"{name} has other values"


def same(a, b):
    """Whether values are equal, but for the last bits of what was unpacked."""
    if a.dtype.kind == "c" and b.dtype.names:  # netCDF4 makes no complex numbers of pairs
        b = b[b.dtype.names[0]] + 1j * b[b.dtype.names[1]]
    if a.dtype.kind in "TOSU" or b.dtype.kind in "TOSU":
        # texts have no missing value; xarray has NaN there
        return all(theirs in ("nan", ours) for ours, theirs in zip(text(a), text(b), strict=True))
    if a.dtype.kind in "fc" or b.dtype.kind in "fc":
        return np.allclose(a, b, rtol=1e-6, atol=0, equal_nan=True)
    return np.array_equal(a, b)


def text(values):
    return [each.decode() if isinstance(each, bytes) else str(each) for each in values.ravel().tolist()]


def tried(path):
    """What becomes of one file."""
    theirs = as_others_read(path)
    dim = dimension_of(theirs)
    try:
        report = intarsia.ingest(path, "memory://", concat_dim=dim, errors="skip")
        if report.failed:
            words = report.failed[0].reason
            return Outcome(path, "bare" if PROGRAMMERS_WORDS.search(words) else "refused", words)
        ours = xr.open_dataset(report.repository, engine="intarsia", decode_times=False).load()
    except IngestError as error:
        return Outcome(path, "refused", str(error))
    except Exception as error:
        return Outcome(path, "bare", f"{type(error).__name__}: {error}")
    if theirs is None:
        return Outcome(path, "equal", "nobody else reads it")
    wrong = list(differences(ours, theirs, dim, report.left_out))
    words = "; ".join(wrong) or f"{len(ours.variables)} variables along {dim}"
    if report.left_out:
        words += f"; left out: {', '.join(report.left_out)}"
    return Outcome(path, "wrong" if wrong else "equal", words)


@pytest.mark.torture
def test_real_files_are_read_as_others_read_them_or_refused_in_words(tmp_path, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [tried(path) for path in real_files(tmp_path)]
    counts = collections.Counter(outcome.kind for outcome in outcomes)
    with capsys.disabled():
        for outcome in sorted(outcomes, key=lambda each: (each.kind, each.path)):
            place = "/".join(outcome.path.parts[-4:])
            print(
                f"{outcome.kind:8}  {place:70}  {' '.join(outcome.words.split())[:160]}", file=sys.__stdout__
            )
        print(dict(counts), file=sys.__stdout__)
    assert not [outcome for outcome in outcomes if outcome.kind in ("bare", "wrong")]
    assert counts["equal"] > 3
