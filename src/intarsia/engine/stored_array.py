"""An array in a store: what it is, and every way to read it. Logical arrays and readers are both this."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import prod
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.display import place_text
from intarsia.engine.accessors import LazyComputing
from intarsia.engine.config import DEFAULT_CONFIG, LogicalConfig
from intarsia.engine.request import Mode, Request, lazy_view, parse_selection
from intarsia.manifest.data_types import to_user_array, type_text
from intarsia.parallel import snapshot_of

if TYPE_CHECKING:
    from zarr.dtype import ZDType
    from zarr_indexing import LazyArray

    from intarsia.engine.array_handle import ArrayHandle
    from intarsia.engine.chunk_cache import ChunkCache
    from intarsia.manifest.manifest import Manifest


def expect_array(array: Any, function: str, opener: str = "intarsia.open(store, path)") -> None:
    """Refuse a path, or anything else that is no array, before a function uses it as one.

    >>> expect_array("data/store", "fuse")
    Traceback (most recent call last):
    ...
    TypeError: fuse takes an array, not a 'str'.
      For the array at a path: intarsia.fuse(intarsia.open(store, path))
    """
    if not hasattr(array, "shape"):
        raise TypeError(
            f"{function} takes an array, not a {type(array).__name__!r}.\n"
            f"  For the array at a path: intarsia.{function}({opener})"
        )


type Fields = str | Sequence[str] | None


def _elements(entry: Any, sizes: int | tuple[int, ...], length: int) -> slice:
    """The elements of an axis that lie in some of its blocks."""
    border: Callable[[int], int]
    if isinstance(sizes, int):  # an axis may have more blocks than fit into a list
        count, border = -(-length // sizes), lambda i: min(i * sizes, length)
    else:
        count, border = len(sizes), (0, *accumulate(sizes)).__getitem__
    first = (entry.start or 0) if isinstance(entry, slice) and entry.step in (None, 1) else entry
    if isinstance(first, bool) or not isinstance(first, int | np.integer):
        raise IndexError(f"blocks are chosen by whole numbers and slices without a step, not by {entry!r}")
    if first not in range(-count, count):
        raise IndexError(f"there is no block {first}: the axis has {count}")
    some = entry if isinstance(entry, slice) else slice(first, (int(first) + 1) or None)
    start, stop, _ = some.indices(count)
    return slice(border(start), border(max(start, stop)))


def _into(out: Any, values: Any) -> Any:
    """`values`, in `out` if it is given."""
    if out is None:
        return values
    target = out.as_ndarray_like() if hasattr(out, "as_ndarray_like") else out
    if not isinstance(target, np.ndarray):
        raise TypeError(f"out is a {type(out).__name__}: give a NumPy array, or a buffer of zarr's")
    if target.shape != np.shape(values):
        raise ValueError(f"out has the shape {target.shape}, but the selection has {np.shape(values)}")
    target[...] = values
    return target


def _with_fields(selection: Any, fields: Fields) -> Any:
    """A selection that also names fields, as written between brackets."""
    if fields is None:
        return selection
    entries = selection if isinstance(selection, tuple) else (selection,)
    return (*entries, *((fields,) if isinstance(fields, str) else fields))


def _coordinates(selection: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The coordinates of points: integers, or arrays of them, for every axis."""
    entries = selection if isinstance(selection, tuple) else (selection,)
    whole = (
        isinstance(entry, int | np.integer | list | np.ndarray) and np.asarray(entry).dtype.kind in "iu"
        for entry in entries
    )
    if len(entries) != len(shape) or not all(whole):
        raise IndexError(
            f"a coordinate selection has integers, or arrays of integers, for each of the {len(shape)} axes, "
            f"not {selection!r}"
        )
    return entries


def _mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    (only,) = mask if isinstance(mask, tuple) and len(mask) == 1 else (mask,)
    try:
        values: np.ndarray[Any, Any] = np.asarray(only)
    except ValueError:  # a tuple of several things
        values = np.empty(0)
    if values.dtype != bool or values.shape != shape:
        raise IndexError(
            f"a mask must have the shape of the array, {shape}, and type bool; this one is {values.dtype} "
            f"of shape {values.shape}"
        )
    return values


class _Indexer:
    """`array.oindex`, `array.vindex` and `array.blocks`: one kind of selection, for reading and writing."""

    def __init__(
        self, array: StoredArray, mode: Mode, convert: Callable[[Any], Any] = lambda selection: selection
    ) -> None:
        self._array, self._mode, self._convert = array, mode, convert

    def __getitem__(self, selection: Any) -> np.ndarray[Any, Any]:
        return self._array.read(self._convert(selection), self._mode)

    def __setitem__(self, selection: Any, value: Any) -> None:
        request = parse_selection(self._array.shape, self._convert(selection), self._mode)
        self._array.write_request(request, value)


class StoredArray(LazyComputing):
    """What logical arrays and readers have in common.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> isinstance(array, StoredArray), array.ndim
    (True, 1)
    >>> array.append([1, 2, 3])
    >>> array.blocks[2].tolist(), array.get_coordinate_selection(([0, 5],)).tolist()
    ([1.0, 2.0], [0.0, 2.0])
    """

    def __init__(self, handle: ArrayHandle[Any], config: LogicalConfig = DEFAULT_CONFIG) -> None:
        self._handle = handle
        self._config = config
        self._cache: ChunkCache | None = None
        if self._config.cache is not None:
            from intarsia.engine.chunk_cache import ChunkCache

            self._cache = ChunkCache(self._config.cache)

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of every axis."""
        return self.manifest.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy data type of what a read returns; for nullable arrays, that of the values."""
        return self.manifest.dtype

    @property
    def data_type(self) -> ZDType[Any, Any]:
        """The zarr data type, which says whether values may be null."""
        return self.manifest.data_type

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in memory when read as a whole."""
        return self.size * self.dtype.itemsize

    @property
    @abstractmethod
    def chunks(self) -> tuple[Any, ...]:
        """The chunk shape."""

    @property
    def fill_value(self) -> Any:
        """What the array reads as where nothing is stored."""
        return self.manifest.fill_value

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """A name, or None, for every axis."""
        return self.manifest.dimension_names

    @property
    def path(self) -> str:
        """The path in its store."""
        return self._handle.path

    @property
    def store(self) -> Any:
        """The zarr store that holds it."""
        return self._handle.store

    @property
    def manifest(self) -> Manifest:
        """The manifest, as last read or written."""
        return self._handle.state.manifest

    @property
    def config(self) -> LogicalConfig:
        """The run-time settings; change them with `with_config`."""
        return self._config

    @property
    def cached_bytes(self) -> int:
        """How many bytes of decoded chunks the handle currently keeps; see `LogicalConfig.cache`."""
        return 0 if self._cache is None else self._cache.nbytes

    # Reading

    def read(self, selection: Any = ..., mode: Mode | None = None) -> np.ndarray[Any, Any]:
        """The values of a `selection`; `mode` says how it is meant, as `oindex` and `vindex` do.

        >>> import intarsia
        >>> array = intarsia.create({}, "a", shape=(0, 3), chunks=(2, 3), dtype="int32")
        >>> array.append([[0, 1, 2], [3, 4, 5]])
        >>> array.read(([0, 1], [1, 2]), "orthogonal").tolist()
        [[1, 2], [4, 5]]
        """
        manifest = self.manifest
        if manifest.dtype.names:
            fields, rest = _fields_apart(selection)
            return _of_fields(self.read_request(parse_selection(manifest.shape, rest, mode)), fields)
        return self.read_request(parse_selection(manifest.shape, selection, mode))

    async def read_async(self, selection: Any = ..., mode: Mode | None = None) -> np.ndarray[Any, Any]:
        """Like `read(selection, mode)`, but on an event loop, for services with many requests.

        No thread waits for bytes that are on their way. All such reads in a process share as many threads as
        there are cores. These decode chunks, read files, and look up where chunks lie in shards and
        snapshots. If something fails, one of them reads once more.

        >>> import asyncio, intarsia
        >>> array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="int32")
        >>> array.append([0, 1, 2, 3])
        >>> asyncio.run(array.read_async(slice(1, 3))).tolist()
        [1, 2]
        """
        from intarsia.engine.read import read_request_async

        fields, rest = _fields_apart(selection) if self.dtype.names else ((), selection)
        request = parse_selection(self.shape, rest, mode)
        values = to_user_array(await read_request_async(self._handle, request, self._config, self._cache))
        return _of_fields(values, fields)

    def read_request(self, request: Request) -> np.ndarray[Any, Any]:
        """The values of `request`, a selection that is already resolved."""
        from intarsia.engine.read import read_request  # opening an array does not need it

        values = read_request(self._handle, request, self._config, self._cache)
        of_user: np.ndarray[Any, Any] = to_user_array(values)
        return of_user

    def __getitem__(self, selection: Any) -> np.ndarray[Any, Any]:
        return self.read(selection)

    @property
    def oindex(self) -> _Indexer:
        """Outer (orthogonal) indexing, with an index array for each axis."""
        return _Indexer(self, "orthogonal")

    @property
    def vindex(self) -> _Indexer:
        """Indexing by points, with coordinate arrays or a mask."""
        return _Indexer(self, "vectorized")

    @property
    def blocks(self) -> _Indexer:
        """Indexing by whole chunks, as in zarr: `array.blocks[0, 1:3]`. In a logical array, these are the
        chunks of the lattice; in a plain array with shards, the shards."""
        return _Indexer(self, "basic", self._of_blocks)

    @property
    def lazy(self) -> LazyArray:
        """A view that can be indexed without reading; `.result()` reads."""
        return lazy_view(self)

    def refresh(self) -> None:
        """Pick up what other handles have changed since this one was opened."""
        self._handle.reload()

    # Writing

    @abstractmethod
    def write_request(self, request: Request, value: Any) -> None:
        """Write `value` to `request`, a selection that is already resolved."""

    def __setitem__(self, selection: Any, value: Any) -> None:
        self.write_request(parse_selection(self.shape, selection), value)

    # What code written for a `zarr.Array` calls. `out`, an array or a buffer of zarr's of the right shape,
    # gets the values; `fields` chooses fields of structured values.

    def get_basic_selection(self, selection: Any = ..., *, out: Any = None, fields: Fields = None) -> Any:
        """Like `array[selection]` with integers and slices.

        The result is put into `out` if given; of structs, it has only these `fields` if they are named.
        """
        return _into(out, self.read(_with_fields(selection, fields), "basic"))

    def get_orthogonal_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Like `array.oindex[selection]`.

        The result is put into `out` if given; of structs, it has only these `fields` if they are named.
        """
        return _into(out, self.read(_with_fields(selection, fields), "orthogonal"))

    def get_coordinate_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Like `array.vindex[selection]` with coordinates in `selection`, an array for each axis.

        The result is put into `out` if given; of structs, it has only these `fields` if they are named.
        """
        return _into(out, self.read(_with_fields(_coordinates(selection, self.shape), fields), "vectorized"))

    def get_mask_selection(self, mask: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Like `array.vindex[mask]` with a `mask` in the shape of the array.

        The result is put into `out` if given; of structs, it has only these `fields` if they are named.
        """
        return _into(out, self.read(_with_fields(_mask(mask, self.shape), fields), "vectorized"))

    def get_block_selection(self, selection: Any, *, out: Any = None, fields: Fields = None) -> Any:
        """Like `array.blocks[selection]`.

        The result is put into `out` if given; of structs, it has only these `fields` if they are named.
        """
        return _into(out, self.read(_with_fields(self._of_blocks(selection), fields), "basic"))

    def set_basic_selection(self, selection: Any, value: Any) -> None:
        """Like `array[selection] = value` with integers and slices."""
        self.write_request(parse_selection(self.shape, selection, "basic"), value)

    def set_orthogonal_selection(self, selection: Any, value: Any) -> None:
        """Like `array.oindex[selection] = value`."""
        self.write_request(parse_selection(self.shape, selection, "orthogonal"), value)

    def set_coordinate_selection(self, selection: Any, value: Any) -> None:
        """Like `array.vindex[selection] = value` with coordinates in `selection`, an array for each axis."""
        points = _coordinates(selection, self.shape)
        self.write_request(parse_selection(self.shape, points, "vectorized"), value)

    def set_mask_selection(self, mask: Any, value: Any) -> None:
        """Like `array.vindex[mask] = value` with a `mask` in the shape of the array."""
        self.write_request(parse_selection(self.shape, _mask(mask, self.shape), "vectorized"), value)

    def set_block_selection(self, selection: Any, value: Any) -> None:
        """Like `array.blocks[selection] = value`."""
        self.write_request(parse_selection(self.shape, self._of_blocks(selection), "basic"), value)

    def _of_blocks(self, selection: Any) -> Any:
        """The elements of some blocks, as slices."""
        grid, shape = self._block_grid(), self.shape
        entries = selection if isinstance(selection, tuple) else (selection,)
        count = len(entries) - sum(isinstance(entry, EllipsisType) for entry in entries)
        if count > len(shape) or len(entries) > count + 1:
            raise IndexError(f"blocks of {len(shape)} axes cannot be chosen by {selection!r}")
        rest = (slice(None),) * (len(shape) - count)
        at = next((i for i, entry in enumerate(entries) if isinstance(entry, EllipsisType)), None)
        entries = (*entries, *rest) if at is None else (*entries[:at], *rest, *entries[at + 1 :])
        return tuple(map(_elements, entries, grid, shape)) or ...

    # What Python expects of it

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(
                f"a {type(self).__name__} is read from its store: it has no memory to share, so "
                "copy=False fails"
            )
        from intarsia.engine.read import read_request

        # Here nullable data refuses to turn nulls into numbers.
        everything = read_request(self._handle, parse_selection(self.shape, ...), self._config)
        values: np.ndarray[Any, Any] = np.asarray(everything)
        return values if dtype is None else values.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        if not self.shape:
            raise TypeError("iteration over an array without dimensions")
        start = 0
        for size in self._slabs():  # a slab of chunks at a time, not one read per item
            yield from self[start : start + size]
            start += size

    @abstractmethod
    def _block_grid(self) -> Sequence[int | tuple[int, ...]]:
        """The size of a block along each axis, or the sizes of all blocks if they differ."""

    @abstractmethod
    def _slabs(self) -> Iterator[int]:
        """How many items of the first axis to read at a time."""

    def __repr__(self) -> str:
        place = place_text(self._handle.store_path)
        return f"<{type(self).__name__} {place} {self._repr_fields()}>"

    def _repr_fields(self) -> str:
        return f"shape={self.shape} dtype={type_text(self.data_type)}"

    def __dask_tokenize__(self) -> tuple[str, str, str, int]:
        """A token for its values: equal for equal snapshots, unique if they may change."""
        snapshot = snapshot_of(self.store) or uuid.uuid4().hex
        return "intarsia", snapshot, self.path, self.manifest.generation


def _of_fields(values: Any, fields: tuple[str, ...]) -> np.ndarray[Any, Any]:
    """Some fields of structured values; everything if no fields are named."""
    chosen: np.ndarray[Any, Any] = values
    return chosen[fields[0] if len(fields) == 1 else list(fields)] if fields else chosen


def _fields_apart(selection: Any) -> tuple[tuple[str, ...], Any]:
    """The field names in a selection of a structured array, and the rest of the selection."""
    entries = selection if isinstance(selection, tuple) else (selection,)
    fields = tuple(entry for entry in entries if isinstance(entry, str))
    if not fields:
        return (), selection
    return fields, tuple(entry for entry in entries if not isinstance(entry, str)) or ...
