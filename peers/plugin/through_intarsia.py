"""A plugin for pytest that gives other people's tests our arrays instead of zarr's.

The variable PEERS_DOOR says which arrays: with `reader`, `intarsia.reader` reads every array of zarr; with
`logical-2`, a logical array of two members that have its values and codecs does. Where tests make arrays of
values, these become logical arrays that are also written. Without it nothing is changed; `absent` hides
intarsia.

PEERS_DIFFERENCES is a list, in JSON, of patterns of test names, with a reason each: these tests may fail.
PEERS_RESULT is the file that the outcomes are written to.
"""

import asyncio
import functools
import importlib.metadata
import json
import os
import sys
import uuid
from contextvars import ContextVar
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

DOOR = os.environ.get("PEERS_DOOR", "")
if DOOR == "absent":
    sys.modules["intarsia"] = None
    every = importlib.metadata.entry_points
    importlib.metadata.entry_points = lambda **options: importlib.metadata.EntryPoints(
        each for each in every(**options) if each.dist.name != "intarsia"
    )
else:
    import intarsia
DIFFERENCES = json.loads(os.environ.get("PEERS_DIFFERENCES", "[]"))
CODECS = (["zstd"], ["gzip"], [])

KINDS = ("basic", "orthogonal", "coordinate", "mask", "block")
ACCESSORS = ("oindex", "vindex", "blocks")
READS = ("__getitem__", *(f"get_{kind}_selection" for kind in KINDS))


def logical(values, store, lattice, members, **encoding):
    """A logical array of these values; the members share its lattice along the first axis."""
    lattice = (lattice,) if isinstance(lattice, int) else tuple(lattice or values.shape)
    lattice = tuple(max(size, 1) for size in lattice)
    name = f"a{uuid.uuid4().hex}"
    array = intarsia.create(store, name, shape=values.shape, chunks=lattice, dtype=values.dtype)
    if not values.ndim:
        array.add_region([], data=values, **{"codecs": ["zstd"]} | encoding)
        return array
    rows = -(-values.shape[0] // lattice[0])
    cuts = sorted({min(rows * part // members * lattice[0], values.shape[0]) for part in range(members)})
    for part, (start, stop) in enumerate(zip(cuts, [*cuts[1:], values.shape[0]], strict=True)):
        box = [(start, stop), *((0, size) for size in values.shape[1:])]
        if all(low < high for low, high in box):
            array.add_region(box, data=values[start:stop], **{"codecs": CODECS[part]} | encoding)
    return array.with_config(cross_region_writes=True)


_reading = ContextVar("reading", default=False)


def stand_in(array, values):
    """Our array with the values of one of zarr's, which `values` reads."""
    if DOOR == "reader":
        return intarsia.reader(array)
    codecs = getattr(array.metadata, "codecs", ())
    encoding = {"chunks": array.chunks, "shards": array.shards} if codecs else {}
    if codecs:
        encoding["codecs"] = getattr(codecs[0], "codecs", codecs)  # those inside of shards
    return logical(np.asarray(values(array)), {}, array.shards or array.chunks, int(DOOR[-1]), **encoding)


def read_through_ours():
    """Let our arrays read where tests read with an array of zarr's."""
    import zarr
    from zarr.core.indexing import BlockIndex, OIndex, VIndex

    def is_read_by_ours(array):
        codecs = getattr(array.metadata, "codecs", ())
        inner = [each for codec in codecs for each in getattr(codec, "codecs", [codec])]
        return any(type(codec).__name__ == "_CheckedChain" for codec in inner)

    def is_regular(array):
        """Whether its chunks have one shape, as those of logical arrays have."""
        return array.metadata.zarr_format == 2 or array.metadata.chunk_grid.to_dict()["name"] == "regular"

    def through_ours(name, of_zarr, values):
        @functools.wraps(of_zarr)
        def read(self, *arguments, **options):
            array = getattr(self, "array", self)  # of an accessor
            left_to_zarr = DOOR != "reader" and not is_regular(array)
            left_to_zarr |= options.get("prototype") is not None or is_read_by_ours(array)
            if left_to_zarr or _reading.get():
                return of_zarr(self, *arguments, **options)
            options.pop("prototype", None)
            before = _reading.set(True)  # what ours does with arrays of zarr's is left to them
            try:
                ours = stand_in(array, values)
                if name in ACCESSORS:
                    return getattr(ours, name)[arguments[0]]
                return getattr(ours, name)(*arguments, **options)
            finally:
                _reading.reset(before)

        return read

    values = zarr.Array.get_basic_selection
    for name in READS:
        setattr(zarr.Array, name, through_ours(name, getattr(zarr.Array, name), values))
    for accessor, kind in zip(ACCESSORS, (OIndex, VIndex, BlockIndex), strict=True):
        kind.__getitem__ = through_ours(accessor, kind.__getitem__, values)
    getitem = zarr.AsyncArray.getitem

    async def read_async(self, selection, *, prototype=None):
        if prototype is not None or _reading.get():
            return await getitem(self, selection, prototype=prototype)
        return await asyncio.to_thread(lambda: zarr.Array(self)[selection])

    zarr.AsyncArray.getitem = read_async


def make_logical(store, values, chunk_shape=None, shards=None):
    """What `zarr_array_from_numpy_array` of zarr's tests becomes, so that logical arrays are written, too."""
    return logical(np.asarray(values), store.store, chunk_shape, int(DOOR[-1]))


def pytest_configure():
    if DOOR == "reader" or DOOR.startswith("logical"):
        read_through_ours()
    if DOOR not in ("", "absent"):
        raises = pytest.raises
        # The words of our messages are our own.
        pytest.raises = lambda *arguments, match=None, **options: raises(*arguments, **options)


def pytest_collection_modifyitems(items):
    for item in items:
        for pattern, reason in DIFFERENCES:
            if fnmatchcase(item.nodeid, pattern):
                item.add_marker(pytest.mark.xfail(reason=f"peers: {reason}"))
    for module in {item.module for item in items} if DOOR.startswith("logical") else ():
        if hasattr(module, "zarr_array_from_numpy_array"):
            module.zarr_array_from_numpy_array = make_logical


outcomes = {}


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        differs = report.skipped and "peers: " in getattr(report, "wasxfail", "")
        outcomes[report.nodeid] = "difference" if differs else report.outcome


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):  # xdist's workers report to the one that started them
        Path(os.environ["PEERS_RESULT"]).write_text(json.dumps(outcomes))
