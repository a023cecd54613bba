"""Programs that read the vectors, each behind one function: values, and levels of null where there are some.

A reader that does not implement what a vector is about raises `NotKnownError`. Whatever else it raises is a
refusal.
"""

import atexit
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np


class NotKnownError(Exception):
    """The program does not implement this; that is no mistake."""


def _is_nullable(vector):
    return isinstance(vector.metadata.get("data_type"), dict)


def intarsia(vector):
    """intarsia, on zarr-python."""
    import zarr

    import intarsia
    from intarsia import nullable

    with warnings.catch_warnings(action="ignore"):
        if vector.kind == "logical":
            found = intarsia.open(vector.node, mode="r")[...]
        elif _is_nullable(vector):
            found = nullable.open_array(vector.node, mode="r")[...]
        else:
            found = zarr.open_array(vector.node, mode="r")[...]
    if isinstance(found, nullable.NullableValues):
        missing = np.asarray(found.missing).astype("u1")
        return np.asarray(found.values), np.where(missing, found.depth + 1 - missing, 0)
    if isinstance(found, np.ma.MaskedArray):
        return found.data, np.ma.getmaskarray(found).astype("u1")
    # One element that is there comes as it is.
    return np.asarray(found), np.zeros(np.shape(found), "u1") if _is_nullable(vector) else None


def zarrs(vector):
    """zarrs, through zarrista. It knows what may be null by names of its own, which it is given here."""
    import zarrista
    from zarrista.store import FilesystemStore

    if vector.kind == "logical":
        raise NotKnownError("logical arrays")
    if _is_nullable(vector) and not vector.refused and vector.expected[1].max(initial=0) > 1:
        raise NotKnownError("zarrista panics over more than one level of null")
    with tempfile.TemporaryDirectory() as folder:
        node = Path(folder) / "zarr"
        shutil.copytree(vector.node, node)
        if _is_nullable(vector):
            text = (node / "zarr.json").read_text()
            (node / "zarr.json").write_text(text.replace('"optional"', '"zarrs.optional"'))
        try:
            return _of_zarrs(zarrista.Array.open(FilesystemStore(str(node)), "/")[...], vector)
        except zarrista.exceptions.ZarristaError as error:
            words = "is not supported", "Unsupported data type"
            if not vector.refused and any(word in str(error) for word in words):
                raise NotKnownError(str(error)) from None
            raise
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # what pyo3 makes of a panic is no Exception
                raise
            raise RuntimeError(f"zarrs panics: {error}") from None


def _of_zarrs(found, vector):
    shape, data_type, nulls = vector.metadata["shape"], vector.metadata["data_type"], None
    if _is_nullable(vector):
        if not hasattr(found, "mask"):
            raise NotKnownError("zarrista gives texts that may be null in another form")
        nulls = 1 - np.frombuffer(found.mask.buffer(), dtype="u1").reshape(shape)
        found, data_type = found.data, data_type["configuration"]["name"]
    return np.frombuffer(found.buffer(), dtype=data_type).reshape(shape), nulls


def tensorstore(vector):
    """TensorStore; logical arrays by the spec that intarsia makes for it."""
    import tensorstore

    import intarsia
    from intarsia.errors import UnreachableMembersError

    try:
        if vector.kind == "logical":
            with warnings.catch_warnings(action="ignore"):
                spec = intarsia.tensorstore_spec(intarsia.open(vector.node, mode="r"))
        else:
            spec = {"driver": "zarr3", "kvstore": f"file://{vector.node}/"}
        return tensorstore.open(json.loads(json.dumps(spec))).result().read().result(), None
    except UnreachableMembersError as error:
        raise NotKnownError(str(error)) from None
    except ValueError as error:
        words = "not registered", "not one of the supported data types", "not compatible with subsequent"
        if any(word in str(error) for word in words):
            raise NotKnownError(str(error)) from None
        raise


GDAL = """
import sys, numpy, rasterio
for line in sys.stdin:
    node, target = line.rstrip("\\n").split("\\t")
    try:
        with rasterio.open(f'ZARR:"{node}"') as opened:
            numpy.save(target, opened.read())
        print("", flush=True)
    except rasterio.errors.RasterioIOError as error:
        print(" ".join(str(error).split()), flush=True)
"""


@cache
def _gdal():
    """A process that reads with GDAL, which brings libraries that others here bring, too."""
    command = [sys.executable, "-W", "ignore", "-c", GDAL]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    atexit.register(process.communicate)  # which ends it
    return process


def gdal(vector):
    """GDAL, through rasterio: rasters of the last two axes, one for each step of those before."""
    if vector.kind == "logical":
        raise NotKnownError("logical arrays")
    process = _gdal()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "values.npy"
        process.stdin.write(f"{vector.node}\t{target}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer.endswith("\n"):
            raise RuntimeError("GDAL ended")
        if answer == "\n":
            return np.load(target).reshape(vector.metadata["shape"]), None
    if not vector.refused and "nsupported" in answer:
        raise NotKnownError(answer)
    raise ValueError(answer)


REFERENCE = Path(__file__).parent.parent / "logical-array" / "reader.py"


@cache
def _reference():
    """The module `reader.py`, whose folder is no package."""
    spec = importlib.util.spec_from_file_location("logical_array_reader", REFERENCE)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference(vector):
    """The specification of logical arrays, executable: zarr and NumPy alone."""
    if vector.kind != "logical":
        raise NotKnownError("arrays that are not logical")
    with warnings.catch_warnings(action="ignore"):
        try:
            return np.asarray(_reference().open_logical(vector.node)[...]), None
        except NotImplementedError as error:
            raise NotKnownError(str(error)) from None


READERS = {
    "intarsia": intarsia,
    "reader.py": reference,
    "zarrs": zarrs,
    "TensorStore": tensorstore,
    "GDAL": gdal,
}
