"""A plugin for pytest that gives other people's tests our arrays instead of zarr's.

The variable PEERS_DOOR says which arrays: `reader`, or `logical-2` for logical arrays of two members. Without
it nothing is changed. PEERS_DIFFERENCES is a list, in JSON, of patterns of test names, with a reason each:
these tests must fail. PEERS_RESULT is the file that the outcomes are written to.
"""

import json
import os
import uuid
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

import intarsia

DOOR = os.environ.get("PEERS_DOOR", "")
DIFFERENCES = json.loads(os.environ.get("PEERS_DIFFERENCES", "[]"))
CODECS = (["zstd"], ["gzip"], [])

READS = {f"get_{kind}_selection" for kind in ("basic", "orthogonal", "coordinate", "mask", "block")}
INDEXERS = {"oindex", "vindex", "blocks"}


class ReadByUs:
    """A Zarr array that `intarsia.reader` reads and zarr writes."""

    def __init__(self, array, through=None):
        self._array, self._through = array, through

    def _reader(self):
        reader = intarsia.reader(self._array)
        return getattr(reader, self._through) if self._through else reader

    def _writer(self):
        return getattr(self._array, self._through) if self._through else self._array

    def __getitem__(self, selection):
        return self._reader()[selection]

    def __setitem__(self, selection, value):
        self._writer()[selection] = value

    def __array__(self, *arguments, **options):
        return np.asarray(self._reader(), *arguments, **options)

    def __getattr__(self, name):
        if name in INDEXERS:
            return ReadByUs(self._array, name)
        return getattr(self._reader() if name in READS else self._array, name)


def logical(values, store, chunks, members):
    """A logical array of these values; the members share its chunks along the first axis."""
    chunks = (chunks,) if isinstance(chunks, int) else tuple(chunks or values.shape)
    chunks = tuple(max(size, 1) for size in chunks)
    name = f"a{uuid.uuid4().hex}"
    array = intarsia.create(store, name, shape=values.shape, chunks=chunks, dtype=values.dtype)
    if not values.ndim:
        array.add_region([], codecs=["zstd"], data=values)
        return array
    rows = -(-values.shape[0] // chunks[0])
    cuts = sorted({min(rows * part // members * chunks[0], values.shape[0]) for part in range(members)})
    for part, (start, stop) in enumerate(zip(cuts, [*cuts[1:], values.shape[0]], strict=True)):
        box = [(start, stop), *((0, size) for size in values.shape[1:])]
        if all(low < high for low, high in box):
            array.add_region(box, codecs=CODECS[part], data=values[start:stop])
    return array.with_config(cross_region_writes=True)


def replaced(name, original):
    """What a function of a test module becomes."""
    if name == "zarr_array_from_numpy_array" and DOOR == "reader":
        return lambda *arguments, **options: ReadByUs(original(*arguments, **options))
    if name == "zarr_array_from_numpy_array":

        def make(store, values, chunk_shape=None, shards=None):
            return logical(np.asarray(values), store.store, chunk_shape, int(DOOR[-1]))

        return make
    return lambda *arguments, **options: original(*arguments, **options).map(ReadByUs)


def pytest_configure():
    if DOOR:
        raises = pytest.raises
        # The words of our messages are our own.
        pytest.raises = lambda *arguments, match=None, **options: raises(*arguments, **options)


def pytest_collection_modifyitems(items):
    for item in items:
        for pattern, reason in DIFFERENCES:
            if fnmatchcase(item.nodeid, pattern):
                item.add_marker(pytest.mark.xfail(strict=True, reason=f"peers: {reason}"))
    names = {"zarr_array_from_numpy_array"} | ({"arrays", "simple_arrays"} if DOOR == "reader" else set())
    for module in {item.module for item in items} if DOOR else ():
        for name in names & vars(module).keys():
            setattr(module, name, replaced(name, getattr(module, name)))


outcomes = {}


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        differs = "peers: " in getattr(report, "wasxfail", "")
        outcomes[report.nodeid] = "difference" if differs else report.outcome


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):  # xdist's workers report to the one that started them
        Path(os.environ["PEERS_RESULT"]).write_text(json.dumps(outcomes))
