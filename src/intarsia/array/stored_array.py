"""An array in a store: what it is, and every way to read it. Logical arrays and readers are both that."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.array.accessors import LazyComputing
from intarsia.array.chunk_cache import ChunkCache
from intarsia.array.config import LogicalConfig
from intarsia.array.read import read_request
from intarsia.array.read_async import read_request_async
from intarsia.array.request import Mode, Request, lazy_view, request
from intarsia.array.values import shown, type_text
from intarsia.array.zarr_selections import ZarrSelections
from intarsia.parallel import snapshot_of
from intarsia.words import place_text

if TYPE_CHECKING:
    from zarr.dtype import ZDType
    from zarr_indexing import LazyArray

    from intarsia.array.layout import Ground
    from intarsia.array.manifest import Manifest


class _Indexer:
    """`array.oindex` and `array.vindex`: one dialect of selections, for reading and writing."""

    def __init__(self, array: StoredArray, mode: Mode) -> None:
        self._array, self._mode = array, mode

    def __getitem__(self, selection: Any) -> np.ndarray[Any, Any]:
        return self._array.read(selection, self._mode)

    def __setitem__(self, selection: Any, value: Any) -> None:
        self._array.write_request(request(self._array.shape, selection, self._mode), value)


class StoredArray(ZarrSelections, LazyComputing):
    """What logical arrays and readers have in common.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> isinstance(array, StoredArray), array.ndim
    (True, 1)
    """

    def __init__(self, ground: Ground[Any], config: LogicalConfig | None = None) -> None:
        self._ground = ground
        self._config = config or LogicalConfig()
        self._cache = None if self._config.cache is None else ChunkCache(self._config.cache)

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of every axis."""
        return self.manifest.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy data type of what a read returns; of nullable arrays, that of the values."""
        return self.manifest.dtype

    @property
    def data_type(self) -> ZDType[Any, Any]:
        """The data type as zarr has it; it says whether values may be null."""
        return self.manifest.data_type

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in memory when read as a whole."""
        return self.size * self.dtype.itemsize

    @property
    @abstractmethod
    def chunks(self) -> tuple[Any, ...]:
        """Shape of a chunk."""

    @property
    def fill_value(self) -> Any:
        """What reads where nothing is stored."""
        return self.manifest.fill_value

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """A name or None for every axis."""
        return self.manifest.dimension_names

    @property
    def path(self) -> str:
        """Path within its store."""
        return self._ground.path

    @property
    def store(self) -> Any:
        """The zarr store that holds it."""
        return self._ground.store

    @property
    def manifest(self) -> Manifest:
        """The region table and what belongs to it, as last read or written."""
        return self._ground.manifest

    @property
    def config(self) -> LogicalConfig:
        """Run-time settings; change them with `with_config`."""
        return self._config

    @property
    def cached_bytes(self) -> int:
        """How many bytes of decoded chunks the handle keeps now; see `LogicalConfig.cache`."""
        return 0 if self._cache is None else self._cache.nbytes

    # Reading

    def read(self, selection: Any = ..., mode: Mode | None = None) -> np.ndarray[Any, Any]:
        """The values of a `selection`; `mode` says in which dialect, as `oindex` and `vindex` do.

        >>> import intarsia
        >>> array = intarsia.create({}, "a", shape=(0, 3), chunks=(2, 3), dtype="int32")
        >>> array.append([[0, 1, 2], [3, 4, 5]])
        >>> array.read(([0, 1], [1, 2]), "orthogonal").tolist()
        [[1, 2], [4, 5]]
        """
        fields, selection = _fields_apart(selection) if self.dtype.names else ((), selection)
        return _of_fields(self.read_request(request(self.shape, selection, mode)), fields)

    async def read_async(self, selection: Any = ..., mode: Mode | None = None) -> np.ndarray[Any, Any]:
        """As `read(selection, mode)`, but on an event loop, for services with many requests.

        No thread waits for bytes that are on their way. All such reads of a process share as many threads as
        there are cores: they decode chunks, read files, and look up where chunks lie in shards and snapshots.

        >>> import asyncio, intarsia
        >>> array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="int32")
        >>> array.append([0, 1, 2, 3])
        >>> asyncio.run(array.read_async(slice(1, 3))).tolist()
        [1, 2]
        """
        fields, selection = _fields_apart(selection) if self.dtype.names else ((), selection)
        asked = request(self.shape, selection, mode)
        values = shown(await read_request_async(self._ground, asked, self._config, self._cache))
        return _of_fields(values, fields)

    def read_request(self, asked: Request) -> np.ndarray[Any, Any]:
        """The values of `asked`, a selection that is resolved already."""
        values: np.ndarray[Any, Any] = shown(read_request(self._ground, asked, self._config, self._cache))
        return values

    def __getitem__(self, selection: Any) -> np.ndarray[Any, Any]:
        return self.read(selection)

    @property
    def oindex(self) -> _Indexer:
        """Outer (orthogonal) indexing: an index array for each axis."""
        return _Indexer(self, "orthogonal")

    @property
    def vindex(self) -> _Indexer:
        """Indexing by points: coordinate arrays, or a mask."""
        return _Indexer(self, "vectorized")

    @property
    def lazy(self) -> LazyArray:
        """A view that is indexed without reading; `.result()` reads."""
        return lazy_view(self)

    def refresh(self) -> None:
        """Take in what other handles changed since this one was opened."""
        self._ground.reload()

    # Writing

    @abstractmethod
    def write_request(self, asked: Request, value: Any) -> None:
        """Write where a selection that is resolved already says."""

    def __setitem__(self, selection: Any, value: Any) -> None:
        self.write_request(request(self.shape, selection), value)

    # What Python asks of it

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(
                f"a {type(self).__name__} is read from its store: it has no memory to share, so "
                "copy=False fails"
            )
        # Nullable data refuses here to make numbers of nulls.
        everything = read_request(self._ground, request(self.shape, ...), self._config)
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
        for size in self._slabs():  # a slab of chunks at a time, not a read an item
            yield from self[start : start + size]
            start += size

    @abstractmethod
    def _slabs(self) -> Iterator[int]:
        """How many items of the first axis to read at a time."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {place_text(self._ground.store_path)} {self._repr_fields()}>"

    def _repr_fields(self) -> str:
        return f"shape={self.shape} dtype={type_text(self.data_type)}"

    def __dask_tokenize__(self) -> tuple[str, str, str, int]:
        """What tells its values apart from others: equal for equal snapshots, unique where nobody knows."""
        snapshot = snapshot_of(self.store) or uuid.uuid4().hex
        return "intarsia", snapshot, self.path, self.manifest.generation


def _of_fields(values: Any, fields: tuple[str, ...]) -> np.ndarray[Any, Any]:
    """Some fields of structured values; all of what has none."""
    chosen: np.ndarray[Any, Any] = values
    return chosen[fields[0] if len(fields) == 1 else list(fields)] if fields else chosen


def _fields_apart(selection: Any) -> tuple[tuple[str, ...], Any]:
    """The names of fields in a selection of a structured array, and the rest of it."""
    entries = selection if isinstance(selection, tuple) else (selection,)
    fields = tuple(entry for entry in entries if isinstance(entry, str))
    if not fields:
        return (), selection
    return fields, tuple(entry for entry in entries if not isinstance(entry, str)) or ...
