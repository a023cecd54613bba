"""dask reads an array: `to_dask`, how the array is cut into blocks, and the Array API, which is dask's.

A dask array is a grid: its cuts go through the whole array. They are made at every bound of every region, so
that no block reads from two members. Between those, they are made at the chunk bounds of the members, so that
no chunk is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from math import lcm, prod
from types import ModuleType
from typing import Any

import numpy as np

from intarsia.engine.reader import Reader
from intarsia.engine.stored_array import StoredArray
from intarsia.errors import DataTypeError
from intarsia.extras import import_extra
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.member_metadata import read_member_metadata
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.region_table import NONE, Ints
from intarsia.nullable import OptionalDType

type Sizes = tuple[int, ...]

MAX_BLOCKS_PER_CHUNK = 8
"""Regions scattered over several axes cut a grid into far more blocks than there are chunks. Above this many
blocks per stored chunk, the bounds of regions are left out of the grid, and a block may read from several."""

MAX_COMMON_STEP = 4
"""Members with different chunks share cuts where both have a bound, if such bounds are at most this many of
the larger chunks apart. Otherwise the larger chunks decide, and the smaller ones are read twice at cuts."""

ALWAYS_ALLOWED_BLOCKS = 10_000
"""A grid of up to this many blocks is never too fine."""


def to_dask(array: StoredArray, chunks: Any = None) -> Any:
    """A `dask.array.Array` that reads a logical array or a reader; see `LogicalArray.to_dask`.

    >>> import numpy as np, intarsia
    >>> array = intarsia.create({}, "a", shape=(0,), chunks=(1,), dtype="i4")
    >>> array.append(np.arange(5), codecs=["gzip"], chunks=(2,))
    >>> array.append(np.arange(4), codecs=["zstd"], chunks=(4,))
    >>> lazy = to_dask(array)
    >>> lazy.chunks, lazy.sum().compute().item()
    (((2, 2, 1, 4),), 16)

    A nullable array becomes a dask array of masked arrays.
    """
    da, base = import_extra("dask.array", "dask"), import_extra("dask.base", "dask")
    previous = block_sizes(array)
    chunks = previous if chunks is None else chunks
    sizes = da.core.normalize_chunks(chunks, array.shape, dtype=array.dtype, previous_chunks=previous)
    nothing: Any = np.empty((0,) * array.ndim, dtype=array.dtype)
    data_type = array.data_type
    if isinstance(data_type, OptionalDType):
        if data_type.depth > 1:
            raise DataTypeError(
                f"the array is {data_type}: dask supports masked arrays, but not several levels of null"
            )
        nothing = np.ma.masked_array(nothing)
    return da.from_array(
        array,
        chunks=sizes,
        name=f"intarsia-{base.tokenize(array, sizes)}",
        asarray=False,  # the data read is an array already, and a mask would be lost
        meta=nothing,
    )


def block_sizes(array: StoredArray) -> tuple[Sizes, ...]:
    """The sizes of the blocks on every axis, as dask's `chunks`.

    >>> import numpy as np, intarsia
    >>> array = intarsia.create({}, "a", shape=(0, 6), chunks=(1, 6), dtype="u1")
    >>> array.append(np.ones((5, 6), "u1"), codecs=["gzip"], chunks=(2, 3))
    >>> array.append(np.ones((4, 6), "u1"), codecs=["zstd"], chunks=(3, 3))
    >>> block_sizes(array)
    ((2, 2, 1, 3, 1), (3, 3))
    """
    if isinstance(array, Reader):
        return tuple(sizes or (0,) for sizes in array.read_chunk_sizes)
    assert isinstance(array, LogicalArray)
    manifest = array.manifest.only(array.config.layer or 0)
    facts = read_member_metadata(array.group, manifest)  # much faster than opening many members
    return _grid(manifest, [None if fact.problem else fact.chunks for fact in facts])


def _grid(manifest: Manifest, shapes: Sequence[Sizes | None]) -> tuple[Sizes, ...]:
    """The grid for a manifest whose members have these chunk shapes; None if a member has no single one."""
    axes = range(manifest.ndim)
    chunks, borders = _chunk_grids(manifest, shapes)
    cuts = [_cuts(manifest, chunks, borders, axis) for axis in axes]
    blocks = prod(len(edges) - 1 for edges in cuts)
    if blocks > max(ALWAYS_ALLOWED_BLOCKS, MAX_BLOCKS_PER_CHUNK * _stored_chunks(manifest, chunks)):
        cuts = [_even_cuts(manifest.shape[d], _usual_chunk(manifest, chunks, d)) for d in axes]
    return tuple(tuple(np.diff(edges).tolist()) or (0,) for edges in cuts)


def _chunk_grids(manifest: Manifest, shapes: Sequence[Sizes | None]) -> tuple[Ints, Ints]:
    """The chunks of every region's member as the region sees them: sizes, and where the first begins."""
    table = manifest.regions
    pairs = list(zip(table.member.tolist(), table.view.tolist(), strict=True))
    grid_of = {pair: _chunk_grid(manifest, shapes[pair[0]], pair[1]) for pair in set(pairs)}
    shape = len(pairs), manifest.ndim, 2
    grids = np.array([grid_of[pair] for pair in pairs], dtype=np.int64).reshape(shape)
    return grids[..., 0], grids[..., 1]


def _chunk_grid(manifest: Manifest, shape: Sizes | None, number: int) -> Sequence[tuple[int, int]]:
    view = None if number == NONE else manifest.views[number]
    if shape is None:
        return [(n, 0) for n in manifest.chunk_shape]  # reading will complain about a wrong member
    sizes = [max(n, 1) for n in shape]
    return [(n, 0) for n in sizes] if view is None else view.grid(sizes)


def _cuts(manifest: Manifest, chunks: Ints, borders: Ints, axis: int) -> Ints:
    """Where the grid is cut on an axis: both ends, the bounds of regions, and their chunks in between."""
    size = manifest.shape[axis]
    start, stop = (bounds[:, axis] for bounds in manifest.region_bounds())
    edges = np.unique(np.concatenate([start, stop, np.array([0, size], dtype=np.int64)]))
    chunk = chunks[:, axis]
    # A chunk starts wherever an element is a multiple of the chunk size after the first border.
    phase = (start - manifest.member_starts()[:, axis] + borders[:, axis]) % chunk
    grids = np.unique(
        np.stack([chunk, phase, np.searchsorted(edges, start), np.searchsorted(edges, stop)], axis=1), axis=0
    )
    if int((grids[:, 3] - grids[:, 2]).sum()) > ALWAYS_ALLOWED_BLOCKS * MAX_BLOCKS_PER_CHUNK + len(edges):
        return edges  # regions across regions: far too many bounds for a grid, even without the chunks
    between: list[set[tuple[int, int]]] = [set() for _ in range(len(edges) - 1)]
    for step, first, i, j in grids.tolist():
        for k in range(i, j):
            between[k].add((step, first))
    hole = (_usual_chunk(manifest, chunks, axis), 0)
    inner = [
        _inner_cuts(low, high, *_common(steps or {hole}))
        for low, high, steps in zip(edges[:-1].tolist(), edges[1:].tolist(), between, strict=True)
    ]
    return np.unique(np.concatenate([edges, *inner]))


def _common(grids: set[tuple[int, int]]) -> tuple[int, int]:
    """Step and first cut that suit all of these (chunk, phase) pairs, or else the largest chunks."""
    largest, phases = max(grids), {phase for _, phase in grids}
    step = lcm(*(chunk for chunk, _ in grids))
    return (step, largest[1]) if len(phases) == 1 and step <= MAX_COMMON_STEP * largest[0] else largest


def _inner_cuts(low: int, high: int, step: int, phase: int) -> Ints:
    first = low + (phase - low) % step  # the first place from `low` on that is `phase` modulo `step`
    return np.arange(first, high, step, dtype=np.int64)


def _even_cuts(size: int, step: int) -> Ints:
    return np.append(np.arange(0, size, step, dtype=np.int64), size)


def _usual_chunk(manifest: Manifest, chunks: Ints, axis: int) -> int:
    """The median of the regions' chunk sizes on an axis; without regions, that of the lattice."""
    if not len(manifest.regions):
        return manifest.chunk_shape[axis]
    return int(np.sort(chunks[:, axis])[len(chunks) // 2])


def _stored_chunks(manifest: Manifest, chunks: Ints) -> int:
    start, stop = manifest.region_bounds()
    return int(np.prod(-(-(stop - start) // chunks), axis=1).sum())


def as_dask(value: Any) -> Any:
    """An argument for a call of dask: logical arrays become dask arrays, also in lists."""
    if isinstance(value, StoredArray):
        return value.to_dask()
    if isinstance(value, list | tuple):
        return type(value)(map(as_dask, value))
    return value


class DaskNamespace:
    """The functions of a namespace for dask arrays, which also take logical arrays and answer lazily.

    >>> import numpy as np, intarsia
    >>> array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="i4")
    >>> array.append(np.arange(4))
    >>> xp = array.__array_namespace__()
    >>> xp.sum(xp.multiply(array, 2)).compute().item()
    12
    """

    def __init__(self, functions: ModuleType) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._functions, name)
        if isinstance(value, ModuleType):
            return DaskNamespace(value)
        return _taking_logical_arrays(value) if callable(value) and not isinstance(value, type) else value


def _taking_logical_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*map(as_dask, args), **{name: as_dask(value) for name, value in options.items()})

    return call


_namespace = cache(DaskNamespace)  # one for all arrays, as programs that compare them expect


def array_namespace(api_version: str | None) -> DaskNamespace:
    """The namespace of logical arrays; an unknown version of the standard is an error."""
    lazy = import_extra("dask.array", "dask").empty(())
    functions = import_extra("array_api_compat", "dask").array_namespace(lazy, api_version=api_version)
    return _namespace(functions)


def apply_ufunc(ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """The result of a NumPy ufunc, as a dask array."""
    if any(isinstance(out, StoredArray) for out in options.get("out", ())):
        raise TypeError(
            f"{ufunc.__name__} cannot write into a stored array in place: that would read and rewrite "
            "all of it.\n  Write what you mean: array[selection] = array[selection] + 1"
        )
    return getattr(ufunc, method)(*map(as_dask, inputs), **options)
