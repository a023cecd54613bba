"""Packed, turned and nullable regions, holes and plain ones, by every door: the same values, or a refusal."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorstore
import xarray as xr
import zarr
from standard.vectors.readers import REFERENCE

import intarsia
from intarsia import Packing, View, nullable
from tests.inspect.test_server import by_tensorstore, by_zarr
from tests.standard import javascript
from tests.standard.test_reader import READ

SELECTIONS = 6
PACKINGS = (
    Packing("int16", scale=0.5, offset=3.0, missing=-1),
    Packing("int8", unsigned=True, scale=0.25),
    Packing("uint8", missing=(255, 254), scale=2.0),
)


def turned(rng, shape):
    """A view that shows `shape` upside down, with its axes swapped, or both."""
    view = View.identity(len(shape)).transpose(*map(int, rng.permutation(len(shape))))
    for axis, length in enumerate(shape):
        if rng.random() < 0.5:
            view = view.flip(axis, length=length)
    return view


def made(rng, store, name, *, nulls, packed):
    """A logical array of random regions, and what it must equal: a masked array."""
    ndim = int(rng.integers(1, 4))
    shape, chunks = tuple(map(int, rng.integers(3, 9, ndim))), tuple(map(int, rng.integers(1, 5, ndim)))
    dtype = str(rng.choice(["int16", "float64"])) if nulls else "float64"
    names = [f"d{axis}" for axis in range(ndim)]
    array = intarsia.create(
        store, name, shape=shape, chunks=chunks, dtype=f"optional[{dtype}]" if nulls else dtype,
        fill_value=None if nulls else -5, dimension_names=names,
    )  # fmt: skip
    model = np.ma.MaskedArray(np.full(shape, -5, dtype), mask=nulls)
    for number, corner in enumerate(np.ndindex(*(-(-n // c) for n, c in zip(shape, chunks, strict=True)))):
        bounds = [(i * c, min((i + 1) * c, n)) for i, c, n in zip(corner, chunks, shape, strict=True)]
        here, own = tuple(slice(*each) for each in bounds), tuple(high - low for low, high in bounds)
        values = np.ma.MaskedArray(
            rng.integers(0, 100, own).astype(dtype), mask=nulls & (rng.random(own) < 0.3)
        )
        packing = None if not packed or rng.random() < 0.4 else PACKINGS[rng.integers(len(PACKINGS))]
        kind = rng.random()
        if kind < 0.15:
            continue  # a hole
        if kind < 0.45:
            if packing is not None:
                values = np.ma.MaskedArray(packing.decode(values.data.astype(packing.stored)))
            array.add_region(bounds, data=values if nulls else values.data, packing=packing, codecs=["gzip"])
        else:
            view, member = turned(rng, own), f"m{number}"
            there = tuple(own[axis.source] for axis in view.axes)
            if nulls:
                held = np.ma.MaskedArray(
                    rng.integers(0, 100, there).astype(dtype), mask=rng.random(there) < 0.3
                )
                nullable.create_array(array.group.store_path, name=member, data=held)
                values = np.ma.MaskedArray(view.seen(held.data), mask=view.seen(held.mask))
            else:
                stored = np.dtype(dtype) if packing is None else packing.stored
                held = rng.integers(0, 100, there).astype(stored)
                array.group.create_array(member, data=held, chunks=tuple(max(1, n // 2) for n in there))
                shown = view.seen(held)
                values = np.ma.MaskedArray(shown if packing is None else packing.decode(shown))
            array.add_region(bounds, member=member, packing=packing, view=view)
        model[here] = values
    return model


def selection(rng, shape):
    parts = []
    for length in shape:
        low, high = sorted(map(int, rng.integers(0, length + 1, 2)))
        parts.append(
            int(rng.integers(0, length)) if rng.random() < 0.3 else [low, high, int(rng.integers(1, 4))]
        )
    return parts


def taken(parts):
    return tuple(slice(*part) if isinstance(part, list) else part for part in parts)


def same(found, expected, what):
    found = np.ma.asarray(found if isinstance(found, np.ndarray | np.generic) else nullable.as_masked(found))
    assert found.shape == expected.shape, what
    assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected)), what
    np.testing.assert_array_equal(found.compressed(), expected.compressed(), err_msg=what)


def masked(values, missing):
    return np.ma.MaskedArray(np.asarray(values), mask=np.asarray(missing))


def by_xarray(store, name, parts, chunks):
    options = {
        "engine": "intarsia",
        "group": name,
        "nulls": "masked",
        "mask_and_scale": False,
        "chunks": chunks,
    }
    with xr.open_dataset(store, **options) as dataset:
        names = [each for each in (name, f"{name}_missing") if each in dataset]
        found = [dataset[each][taken(parts)].values for each in names]
    return masked(*found) if len(found) == 2 else found[0]


def by_view(store, name, parts):
    return intarsia.fused_view(store, name)[taken(parts)]


def by_tensorstore_here(store, name, parts):
    return (
        tensorstore.open(intarsia.tensorstore_spec(intarsia.open(store, name)))
        .result()[taken(parts)]
        .read()
        .result()
    )


HERE = {
    "open": lambda store, name, parts: intarsia.open(store, name)[taken(parts)],
    "reader": lambda store, name, parts: intarsia.reader(store, name)[taken(parts)],
    "oindex": lambda store, name, parts: intarsia.open(store, name).oindex[taken(parts)],
    "xarray": lambda store, name, parts: by_xarray(store, name, parts, None),
    "dask": lambda store, name, parts: by_xarray(store, name, parts, {}),
    "fused_view": by_view,
    "tensorstore": by_tensorstore_here,
}
MAY_REFUSE = {
    "turned": (),
    "packed": ("tensorstore",),
    "nullable": ("tensorstore", "TensorStore over HTTP"),
}
"""What cannot show them: TensorStore knows neither packings nor a data type with nulls."""
REFUSALS = (intarsia.IntarsiaError, ValueError)


@pytest.fixture(scope="module", params=[9, pytest.param(150, marks=pytest.mark.torture)])
def cases(request, tmp_path_factory):
    """A store, and what to read there: the array, its kind, a selection, and what must come."""
    store = tmp_path_factory.mktemp("doors") / "store"
    rng, found = np.random.default_rng(request.param), []
    for number in range(request.param):
        kind = list(MAY_REFUSE)[number % len(MAY_REFUSE)]
        model = made(rng, store, f"a{number}", nulls=kind == "nullable", packed=kind == "packed")
        for _ in range(SELECTIONS):
            parts = selection(rng, model.shape)
            found.append((f"a{number}", kind, parts, np.ma.asarray(model[taken(parts)])))
    return store, found


def counted(cases, door, read):
    """Compare all that a door shows; returns how much that was, and how much it refused."""
    shown = refused = 0
    for name, kind, parts, expected in cases:
        try:
            found = read(name, parts)
        except REFUSALS:
            assert door in MAY_REFUSE[kind], f"{door} refuses {name} {parts}"
            refused += 1
            continue
        same(found, expected, f"{door}, {name} {parts}")
        shown += 1
    return shown, refused


@pytest.mark.parametrize("door", HERE)
def test_every_door_in_this_process(door, cases):
    store, wanted = cases
    shown, refused = counted(wanted, door, lambda name, parts: HERE[door](store, name, parts))
    print(f"{door}: {shown} right, {refused} refused")
    assert shown


@pytest.mark.parametrize(("door", "client"), [("HTTP", by_zarr), ("TensorStore over HTTP", by_tensorstore)])
def test_every_door_over_http(door, client, cases):
    store, wanted = cases

    with intarsia.serve(store, port=0) as server:

        def read(name, parts):
            if door == "HTTP":
                return zarr.open_array(client(server.url), path=name, mode="r")[taken(parts)]
            return client(f"{server.url}/{name}")[taken(parts)].read().result()

        shown, refused = counted(wanted, door, read)
    print(f"{door}: {shown} right, {refused} refused")
    assert shown


def test_the_reader_of_the_specification(cases, tmp_path):
    store, wanted = cases
    asked = [each for each in wanted if each[1] != "nullable"]
    lines = [
        json.dumps([str(store), name, str(tmp_path / f"{i}.npy"), parts])
        for i, (name, _, parts, _) in enumerate(asked)
    ]
    command = [sys.executable, "-W", "ignore", "-c", READ, str(REFERENCE)]
    ran = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, timeout=250, check=False
    )
    assert ran.returncode == 0, ran.stderr
    for i, (name, _, parts, expected) in enumerate(asked):
        same(np.load(tmp_path / f"{i}.npy"), expected, f"reader.py, {name} {parts}")
    nulls = next(name for name, kind, _, _ in wanted if kind == "nullable")
    line = json.dumps([str(store), nulls, str(tmp_path / "none.npy"), [None]])
    ran = subprocess.run(command, input=line, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode, "without intarsia nobody knows the data type"
    assert not (tmp_path / "none.npy").exists()


SCRIPT = """
import { DirectoryStore } from "./src/directory.js";
import { open } from "./src/index.js";
import { readFileSync } from "node:fs";

for (const [place, path, parts] of JSON.parse(readFileSync(0, "utf8"))) {
  const selection = parts.map((p) => (Array.isArray(p) ? { start: p[0], stop: p[1], step: p[2] } : p));
  const { data, shape } = await (await open(new DirectoryStore(place), path)).get(selection);
  const plain = Array.from(data, (x) => (Array.isArray(x) ? x[0] ?? null : Number.isNaN(x) ? "NaN" : x));
  console.log(JSON.stringify({ data: plain, shape }));
}
"""


def test_the_reader_in_javascript(cases):
    store, wanted = cases
    questions = json.dumps([[str(store), f"/{name}", parts] for name, _, parts, _ in wanted])
    printed = javascript.node("--input-type=module", "-e", SCRIPT, input=questions).splitlines()
    for (name, _, parts, expected), line in zip(wanted, printed, strict=True):
        found = json.loads(line)
        data = [np.nan if x == "NaN" else x for x in found["data"]]
        missing = np.array([x is None for x in data], dtype=bool).reshape(found["shape"])
        kind = expected.dtype if expected.size else float
        values = np.array([0 if x is None else x for x in data], dtype=kind).reshape(found["shape"])
        same(masked(values, missing), expected, f"JavaScript, {name} {parts}")
