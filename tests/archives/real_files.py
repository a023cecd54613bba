"""What becomes of one real file; as a program it reads paths, and writes outcomes as JSON.

It is run as one, because the libraries that others read files with crash on some of them.
"""

import json
import re
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import rasterio
import tifffile
import xarray as xr

import intarsia
from intarsia.errors import IngestError

PROGRAMMERS_WORDS = re.compile(r"\b(Key|Index|Attribute|Type|Assertion|Recursion|Unbound\w*)Error\b")
ENGINES = ({}, {"engine": "h5netcdf", "phony_dims": "access"}, {"engine": "scipy"}, {"engine": "zarr"})
GRIB = (".grib", ".grb", ".grib2", ".grib1", ".grb2")
ALONE = "alone "
"""Before the path of a file that others crash on: it is not compared."""


@dataclass(frozen=True)
class Outcome:
    path: str
    kind: str
    """`equal`, `alone` (nobody else reads it), `refused`, `wrong`, `bare`, or `crash`."""

    words: str


def as_others_read(path):
    """What xarray reads, or tifffile of a picture; None if nobody can."""
    if path.suffix.lower() in (".tif", ".tiff"):
        try:
            with tifffile.TiffFile(path) as file:
                page = file.pages[0]
                axes, values = page.axes, page.asarray()
                if "GDAL_NODATA" in page.tags and values.dtype.kind in "iuf":  # which means "missing"
                    missing = float(page.tags["GDAL_NODATA"].value)
                    missing = np.float32(missing) if values.dtype == np.float32 else missing
                    values = np.where(values == missing, np.nan, values)
        except Exception:
            return None
        names = {"Y": "y", "X": "x", "S": "band", "C": "band"}
        if not set(axes) <= set(names):
            return None
        return xr.Dataset({"0": ([names[axis] for axis in axes], values)})
    doubtful = None
    for options in ENGINES:
        try:
            found = xr.open_dataset(path, decode_times=False, **options).load()
        except Exception:
            continue
        if options or not any(str(dim).startswith("phony_dim") for dim in found.dims):
            return found
        doubtful = found  # in netCDF4, groups take part in the numbers of such dimensions
    return doubtful


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
        if name not in ours.variables and name in theirs.dims:  # a dimension that only looks like a variable
            continue
        if name not in ours.variables:
            yield f"{name} is missing"
            continue
        if dim in expected.dims:
            expected = expected.isel({dim: order})
        actual = ours[name]
        if dim not in expected.dims and dim in actual.dims:
            actual = actual.isel({dim: 0})
        if set(actual.dims) != set(expected.dims) and actual.shape == expected.shape:
            actual = actual.variable.copy()  # axes without a scale, or with two: nobody agrees
            actual.dims = expected.dims
        if set(actual.dims) != set(expected.dims):
            yield f"{name} has the axes {actual.dims} instead of {expected.dims}"
            continue
        a, b = actual.transpose(*expected.dims).values, expected.values
        if a.shape != b.shape:
            yield f"{name} has the shape {a.shape} instead of {b.shape}"
        elif not same(a, b):
            yield f"{name} has other values"


def other_metadata(ours, theirs, left_out=()):
    """Coordinates and attributes that are not what others read."""
    if set(ours.coords) ^ set(theirs.coords) - set(left_out):
        yield f"its coordinates are {sorted(ours.coords)} instead of {sorted(theirs.coords)}"
    for name in ("", *(name for name in theirs.variables if name in ours.variables)):
        found, expected = (dataset[name].attrs if name else dataset.attrs for dataset in (ours, theirs))
        for key in found.keys() | {key for key in expected if not key.lower().startswith("_nc")}:
            if key not in found:
                yield f"{name or 'the dataset'} has no attribute {key!r}"
            elif key not in expected:
                # bounds have units of their own, and netCDF4 knows no booleans
                if key not in ("units", "calendar") and not isinstance(found[key], bool):
                    yield f"{name or 'the dataset'} has the attribute {key!r} as well"
            elif as_json(found[key]) != as_json(expected[key]):
                yield f"{name or 'the dataset'} has {key!r} as {found[key]!r} instead of {expected[key]!r}"


def as_json(value):
    """An attribute as text, without the type of its numbers, which JSON does not keep."""
    return str(np.asarray(value).tolist())


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


def fields(path):
    """The fields of a GRIB file as GDAL reads them; None if it cannot."""
    try:
        with (
            rasterio.Env(GRIB_NORMALIZE_UNITS="NO", GRIB_ADJUST_LONGITUDE_RANGE="NO"),
            rasterio.open(path) as file,
        ):
            return list(file.read(masked=True).astype("f8").filled(np.nan))
    except (rasterio.errors.RasterioError, ValueError):
        return None


def tried_grib(path, *, alone):
    """What becomes of a GRIB file: each of its fields must be one that GDAL reads."""
    theirs = None if alone else fields(path)
    report = intarsia.ingest(path, "memory://", concat_dim="time", source_group="*")
    if theirs is None:
        return Outcome(str(path), "alone", "nobody else reads it")
    count, wrong = 0, []
    for node in xr.open_datatree(report.repository, engine="intarsia").subtree:
        for name, variable in node.data_vars.items():
            for field in variable.values.reshape(-1, *variable.shape[-2:]):
                count += 1
                turned = field, field[::-1]  # GDAL begins in the north
                if not any(own.shape == each.shape and same(own, each) for own in turned for each in theirs):
                    wrong.append(f"{node.path}/{name} is no field that GDAL reads")
    words = "; ".join(wrong) or f"{count} of {len(theirs)} fields"
    return Outcome(str(path), "wrong" if wrong else "equal", words)


def tried(path, *, alone=False):
    """What becomes of one file."""
    try:
        return (tried_grib if path.suffix.lower() in GRIB else tried_dataset)(path, alone=alone)
    except IngestError as error:
        words = str(error).rpartition(f"{path.name}: ")[2]
        return Outcome(str(path), "bare" if PROGRAMMERS_WORDS.search(words) else "refused", words)
    except Exception as error:
        return Outcome(str(path), "bare", f"{type(error).__name__}: {error}")


def tried_dataset(path, *, alone):
    """What becomes of a file of any other format."""
    theirs = None if alone else as_others_read(path)
    dim = dimension_of(theirs)
    report = intarsia.ingest(path, "memory://", concat_dim=dim)
    ours = xr.open_dataset(report.repository, engine="intarsia", decode_times=False).load()
    if theirs is None:
        return Outcome(str(path), "alone", "nobody else reads it")
    wrong = list(differences(ours, theirs, dim, report.left_out))
    if path.suffix.lower() not in (".tif", ".tiff"):  # of which only the values were read
        wrong += other_metadata(ours, theirs, report.left_out)
    words = "; ".join(wrong) or f"{len(ours.variables)} variables along {dim}"
    if report.left_out:
        words += f"; left out: {', '.join(report.left_out)}"
    return Outcome(str(path), "wrong" if wrong else "equal", words)


def main():
    warnings.simplefilter("ignore")  # of parsers and of those who are compared with
    for line in sys.stdin:
        path = Path(line.rstrip("\n").removeprefix(ALONE))
        print(json.dumps(asdict(tried(path, alone=line.startswith(ALONE)))), flush=True)


if __name__ == "__main__":
    main()
