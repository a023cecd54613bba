"""`Reader`: any Zarr array, read like a logical array, as one region over one member."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import zarr

from intarsia._compat import ArrayV2Metadata, ArrayV3Metadata
from intarsia._icechunk import safe_store
from intarsia.codecs.context import switch_pipeline_for
from intarsia.codecs.runtime_options import with_codecs
from intarsia.display import Table, one_line, place_text
from intarsia.engine.array_handle import ArrayHandle, ArrayState
from intarsia.engine.config import DEFAULT_CONFIG, LogicalConfig
from intarsia.engine.stored_array import StoredArray
from intarsia.errors import ReadError, ReadOnlyError
from intarsia.manifest.box import Box
from intarsia.manifest.data_types import type_text
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.region_table import RegionTable, Row

if TYPE_CHECKING:
    from zarr.storage import StorePath

    from intarsia.engine.prepared_member import AnyArray, PreparedMember
    from intarsia.engine.request import Request

SETTINGS = frozenset(("cache", "threads", "window_bytes"))
"""The settings of `LogicalConfig` that matter to a reader."""


class OneMember(dict[str, "AnyArray"]):
    """A Zarr array that stands for itself, by its name."""

    def __init__(self, name: str, array: AnyArray) -> None:
        super().__init__({name: array})
        self.array = array

    def open_together(self, names: Iterable[str]) -> None:
        """It is open."""


def _state(array: AnyArray) -> ArrayState[OneMember]:
    """The state of a Zarr array: its metadata, as a region over all of it."""
    from intarsia.engine.prepared_member import fill_value_of

    name, corner = array.path or "/", (0,) * array.ndim
    row = Row(0, Box(corner, (1,) * array.ndim), corner)
    manifest = Manifest(
        0,
        array.shape,
        tuple(max(n, 1) for n in array.shape),
        array.metadata.dtype,
        fill_value_of(array),
        getattr(array.metadata, "dimension_names", None),
        (name,),
        RegionTable.from_rows([row], array.ndim),
    )
    return ArrayState(manifest, OneMember(name, array))


def _description(metadata: Any) -> dict[str, Any]:
    """Everything that the metadata says about how values are stored."""
    names = (field.name for field in fields(metadata) if not field.name.startswith(("_", "attributes")))
    # A fill value of NaN equals itself only as text.
    return {name: getattr(metadata, name) for name in names} | {"fill_value": repr(metadata.fill_value)}


class SingleArrayHandle(ArrayHandle[OneMember]):
    """A Zarr array that stands for itself."""

    def __init__(self, array: AnyArray) -> None:
        self.state = _state(_on_safe_store(array))

    @property
    def store_path(self) -> StorePath:
        return self.state.members.array.store_path

    def chunk_text(
        self, state: ArrayState[OneMember], row: int, source: PreparedMember, index: tuple[int, ...] | None
    ) -> str:
        chunk = "" if index is None else f"chunk {index} of "
        return f"{chunk}the array at {place_text(self.store_path)}"

    @property
    def document_key(self) -> str:
        is_format_3 = self.state.members.array.metadata.zarr_format == 3
        return super().document_key if is_format_3 else f"{self.path}/.zarray".lstrip("/")

    def is_described_by(self, document: bytes, state: ArrayState[OneMember]) -> bool:
        metadata: Any = state.members.array.metadata
        kind = ArrayV3Metadata if metadata.zarr_format == 3 else ArrayV2Metadata
        described: Any = None
        try:
            described = json.loads(document)
            found = _description(kind.from_dict(described))
            # zarr.json does not say in which byte order values are in memory.
            return found == _description(metadata) or found == _description(
                kind.from_dict(metadata.to_dict())
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            # Also for chunks that zarr reads only when told to.
            own = json.loads(json.dumps(metadata.to_dict(), default=str))
            return bool(described == own)

    def still_backs(self, state: ArrayState[OneMember], rows: Sequence[int]) -> bool:
        return _description(state.members.array.metadata) == _description(self.state.members.array.metadata)

    def reload(self) -> None:
        array: Any = self.state.members.array
        try:
            fresh: Any = zarr.open_array(self.store_path, mode="r")
        except FileNotFoundError as error:
            place = place_text(self.store_path)
            raise ReadError(f"the array at {place} is gone: {one_line(error)}") from error
        config, metadata, before = array.async_array.config, copy(fresh.metadata), array.metadata
        if {metadata.zarr_format, before.zarr_format} == {3} and (
            metadata.data_type.to_json(zarr_format=3) == before.data_type.to_json(zarr_format=3)
        ):
            object.__setattr__(metadata, "data_type", before.data_type)  # with its byte order in memory
        again: AnyArray = zarr.Array(
            zarr.AsyncArray(metadata=metadata, store_path=self.store_path, config=config)
        )
        if _description(fresh.metadata).get("codecs") == _description(array.metadata).get("codecs", ()):
            again = with_codecs(again, array.metadata.codecs)  # keeps their run-time options
        self.state = _state(again)
        self._fetcher = None


def _on_safe_store(array: AnyArray) -> AnyArray:
    """The array, independent of changes through other handles."""
    metadata: Any = array.metadata
    place, config = safe_store(array.store_path), array.async_array.config
    switch_pipeline_for(array)
    return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=place, config=config))


class Reader(StoredArray):
    """Any Zarr array, read as fast as a logical array. Make one with `intarsia.reader`.

    You can select as in zarr, between brackets and in `oindex`, `vindex`, `blocks` and `get_…_selection`, and
    also with negative steps; `lazy` defers the read. What intarsia cannot read itself, it leaves to zarr;
    `intarsia.explain(reader)` says where. A reader keeps the shape and codecs that the array had when the
    reader was made, until `refresh`, or until it finds chunks missing because the array was replaced. The
    values are those that the store holds when they are read.

    >>> import numpy as np, zarr, intarsia
    >>> z = zarr.create_array({}, shape=(4, 6), chunks=(2, 3), dtype="int32")
    >>> z[...] = np.arange(24).reshape(4, 6)
    >>> reader = intarsia.reader(z)
    >>> reader[::-2, 1], reader.blocks[1, 0].tolist()
    (array([19,  7], dtype=int32), [[12, 13, 14], [18, 19, 20]])
    >>> reader.to_dask().sum().compute().item()
    276
    """

    __eq__ = object.__eq__  # by identity, not by content
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    _handle: SingleArrayHandle

    @classmethod
    def of(cls, array: AnyArray, config: LogicalConfig = DEFAULT_CONFIG) -> Reader:
        """A reader of a zarr `array` as it is now, with the settings in `config`."""
        return cls(SingleArrayHandle(array), config)

    @property
    def zarr_array(self) -> AnyArray:
        """The underlying zarr array."""
        return self._handle.state.members.array

    @property
    def metadata(self) -> Any:
        """The metadata of the zarr array."""
        return self.zarr_array.metadata

    @property
    def chunks(self) -> tuple[Any, ...]:
        """The chunk shape, inside shards if there are any; if chunks differ, all sizes along each axis, as in
        dask."""
        try:
            return self.zarr_array.chunks
        except NotImplementedError:  # raised by zarr if chunks have different shapes
            return self.read_chunk_sizes

    @property
    def shards(self) -> tuple[Any, ...] | None:
        """The shard shape, or None if there are none; if shards differ, all sizes along each axis."""
        try:
            return self.zarr_array.shards
        except NotImplementedError:
            return self.write_chunk_sizes

    @property
    def read_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of all chunks along each axis, even if they differ, as in zarr."""
        return self.zarr_array.read_chunk_sizes

    @property
    def write_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of all stored objects, chunks or shards, along each axis, as in zarr."""
        return self.zarr_array.write_chunk_sizes

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes, read-only."""
        return MappingProxyType(dict(self.metadata.attributes))

    def with_config(self, **settings: Any) -> Reader:
        """A new handle with other `settings`: `threads`, `window_bytes` and `cache` of `LogicalConfig`.

        >>> import zarr, intarsia
        >>> reader = intarsia.reader(zarr.create_array({}, shape=4, dtype="u1"))
        >>> reader.with_config(threads=1).config.threads
        1
        """
        unknown = sorted(settings.keys() - SETTINGS)
        if unknown:
            raise TypeError(
                f"{unknown[0]!r} is not a setting of a reader: there are {', '.join(sorted(SETTINGS))}"
            )
        return Reader(self._handle, replace(self._config, **settings))

    def write_request(self, request: Request, value: Any) -> NoReturn:
        """Refuse to write `value` to `request`: a reader only reads."""
        raise ReadOnlyError(
            f"a reader only reads: write to the array at {place_text(self._handle.store_path)} through zarr"
        )

    def _slabs(self) -> Iterator[int]:
        return iter(self.read_chunk_sizes[0])

    def _block_grid(self) -> tuple[tuple[int, ...], ...]:
        return self.write_chunk_sizes

    def _repr_fields(self) -> str:
        return f"{super()._repr_fields()} chunks={self.chunks}"

    def _repr_html_(self) -> str:
        place, kind = place_text(self._handle.store_path), type_text(self.data_type)
        facts = (place, str(self.shape), kind, str(self.chunks))
        return Table(("Reader", "Shape", "Data type", "Chunks"), [facts])._repr_html_()

    def __reduce__(self) -> tuple[Any, ...]:
        return Reader.of, (self.zarr_array, self._config.for_reading)


def chunk_shape(array: StoredArray) -> tuple[int, ...]:
    """The chunk shape of an array; if chunks differ, that of the largest.

    >>> import zarr, intarsia
    >>> chunk_shape(intarsia.reader(zarr.create_array({}, shape=4, chunks=2, dtype="u1")))
    (2,)
    """
    return tuple(size if isinstance(size, int) else max(size, default=1) for size in array.chunks)
