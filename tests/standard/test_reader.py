"""`standard/logical-array/reader.py` reads what intarsia writes, in a process without intarsia."""

import json
import subprocess
import sys

import numpy as np
import pytest
from standard.vectors.readers import REFERENCE

import intarsia

CODECS = (["gzip"], ["zstd"], [], ["numcodecs.shuffle", "zstd"], ["crc32c"])
TYPES = ("int16", "float32", "float64", "uint8", "bool")

READ = """
import importlib.metadata, importlib.util, json, sys

class NoIntarsia:  # as if it were not installed
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "intarsia":
            raise ModuleNotFoundError(name)

def others(**chosen):
    found = importlib.metadata.EntryPoints(all_of(**chosen))
    return importlib.metadata.EntryPoints(e for e in found if not e.value.startswith("intarsia"))

sys.meta_path.insert(0, NoIntarsia())
all_of, importlib.metadata.entry_points = importlib.metadata.entry_points, others
import numpy as np

spec = importlib.util.spec_from_file_location("reader", sys.argv[1])
reader = sys.modules["reader"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reader)
for line in sys.stdin:
    place, path, out, parts = json.loads(line)
    items = [... if part is None else slice(*part) if isinstance(part, list) else part for part in parts]
    np.save(out, reader.open_logical(place, path)[tuple(items)])
"""


def made(rng, store, name):
    """A random logical array: regions with codecs of their own, holes, packings, views, replicas."""
    ndim = int(rng.integers(0, 4))
    shape = tuple(int(n) for n in rng.integers(0, 9, ndim))
    chunks = tuple(int(n) for n in rng.integers(1, 5, ndim))
    dtype = str(rng.choice(TYPES))
    names = [f"d{axis}" for axis in range(ndim)] if rng.random() < 0.5 else None
    array = intarsia.create(store, name, shape=shape, chunks=chunks, dtype=dtype, dimension_names=names)
    lattice = [-(-length // size) for length, size in zip(shape, chunks, strict=True)]
    for corner in np.ndindex(*lattice):
        if rng.random() < 0.3:
            continue
        bounds = [(i * n, min((i + 1) * n, m)) for i, n, m in zip(corner, chunks, shape, strict=True)]
        own = [b - a for a, b in bounds]
        codecs = CODECS[rng.integers(len(CODECS))]
        options = {}
        if dtype.startswith("float") and rng.random() < 0.4:
            scale = float(rng.choice([0.5, 0.01]))
            options["packing"] = intarsia.Packing(
                "int16", scale=scale, offset=1.0, missing=[-1], values=dtype
            )
        values = rng.integers(0, 100, own).astype(dtype)
        if ndim and rng.random() < 0.3:  # a member that is there already, and upside down
            member = f"m-{len(array.regions)}-{name}"
            array.group.create_array(member, shape=own, chunks=own, dtype=dtype)[...] = values[::-1]
            view = intarsia.View.identity(ndim).flip(0, length=own[0])
            array.add_region(bounds, member=member, view=view)
        else:
            array.add_region(bounds, codecs=codecs, data=values, **options)
    if len(array.regions) and rng.random() < 0.3:
        region = array.regions[0]
        array.add_replica(region.bounds, codecs=["zstd"])
    return array


def selection(rng, shape):
    parts = []
    for length in shape:
        if length and rng.random() < 0.3:
            parts.append(int(rng.integers(-length, length)))
        else:
            a, b = (int(n) for n in rng.integers(-length - 1, length + 2, 2))
            parts.append(
                [a, b, int(rng.choice([-2, -1, 1, 2, 3]))] if rng.random() < 0.6 else [None, None, None]
            )
    return parts if rng.random() < 0.5 else [*parts, None]


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.torture)])
def test_random_arrays_are_read_as_by_intarsia(tmp_path, count):
    rng = np.random.default_rng(count)
    requests, expected = [], []
    for i in range(count):
        array = made(rng, tmp_path / "store", f"a{i}")
        parts = selection(rng, array.shape)
        taken = tuple(... if p is None else slice(*p) if isinstance(p, list) else p for p in parts)
        requests.append([str(tmp_path / "store"), f"a{i}", str(tmp_path / f"{i}.npy"), parts])
        expected.append(np.asarray(array[taken]))
    command = [sys.executable, "-W", "ignore", "-c", READ, str(REFERENCE)]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    ran = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    for (_, name, file, parts), values in zip(requests, expected, strict=True):
        np.testing.assert_array_equal(np.load(file), values, err_msg=f"{name} {parts}")


def test_a_table_of_regions_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("intarsia.logical.logical_array_handle.INLINE_REGIONS", 3)
    array = intarsia.create(tmp_path / "s", "t", shape=(0,), chunks=(1,), dtype="i4")
    for value in range(6):
        array.append([value], codecs=[], merge=False)
    assert isinstance(array.group.attrs["intarsia"]["regions"], str)
    request = [str(tmp_path / "s"), "t", str(tmp_path / "t.npy"), [None]]
    command = [sys.executable, "-W", "ignore", "-c", READ, str(REFERENCE)]
    subprocess.run(command, input=json.dumps(request) + "\n", text=True, check=True)
    assert np.load(tmp_path / "t.npy").tolist() == [0, 1, 2, 3, 4, 5]
