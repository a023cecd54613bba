"""What makes files alike: the encoding of their chunks, as the member that can hold them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec
from zarr.registry import get_codec_class

from intarsia.archives.cf import zarr_type
from intarsia.array.box import Box, chunk_grid
from intarsia.errors import IngestError
from intarsia.nullable import NULL, OptionalDType, Some

if TYPE_CHECKING:
    from intarsia.archives.cf import Packing
    from intarsia.archives.parsed import ParsedVariable


COPY_CODEC = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
"""How copies are compressed."""


@dataclass(frozen=True, eq=False)
class SourceEncoding:
    """How chunks of a source become values of the logical array; those of equal digest share a member."""

    chunks: tuple[int, ...]
    """Shape of a chunk, the concatenation axis included."""

    codecs: tuple[dict[str, Any], ...]
    """The member's codecs: the packing's filters, then the source's own."""

    dtype: np.dtype[Any]
    """Type of the values that the member decodes to."""

    fill_value: Any
    """What reads where a source stored no chunk."""

    packing: Packing
    """What the filters do, for tables and messages."""

    copy_reason: str = ""
    """Why the data are copied; empty when they are referenced."""

    is_bare: bool = False
    """Whether this shows the stored numbers, without the packing's filters."""

    def document(self, shape: tuple[int, ...], dims: tuple[str, ...]) -> dict[str, Any]:
        """The zarr.json of a member."""
        data_type = zarr_type(self.dtype)
        if self.packing.gives_nulls and self.dtype.kind in "iuf" and not self.is_bare:
            data_type = OptionalDType(inner=data_type)
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(shape),
            "data_type": data_type.to_json(zarr_format=3),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": data_type.to_json_scalar(self.fill_value, zarr_format=3),
            "codecs": list(self.codecs),
            "attributes": {},
            "dimension_names": list(dims),
            "storage_transformers": [],
        }

    @cached_property
    def digest(self) -> str:
        """Equal for equal encodings, also in another process or a year later."""
        document = self.document((), ())
        parts = {key: document[key] for key in ("data_type", "chunk_grid", "fill_value", "codecs")}
        return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def short_codecs(self) -> str:
        """The source's own codecs in a few words."""
        own = [codec for codec in self.codecs if codec["name"] != "bytes" and not _is_filter(codec["name"])]
        return "+".join(_short(codec) for codec in own) or "raw"


def _short(codec: dict[str, Any]) -> str:
    level = codec.get("configuration", {}).get("level")
    name = str(codec["name"]).removeprefix("numcodecs.")
    return name if level is None else f"{name}-{level}"


@lru_cache
def _is_filter(name: str) -> bool:
    return issubclass(get_codec_class(name), ArrayArrayCodec)


@lru_cache
def _is_bytes_codec(name: str) -> bool:
    return issubclass(get_codec_class(name), BytesBytesCodec)


def _fill_value(packing: Packing, stored_fill: Any, logical: np.dtype[Any]) -> Any:
    """The value of chunks that were never stored."""
    if logical.kind not in "biufc":
        return zarr_type(logical).default_scalar() if stored_fill is None else stored_fill
    if packing.gives_nulls:
        value = None if stored_fill is None else packing.value(_number(stored_fill, packing))
        return NULL if value is None else Some(logical.type(value))
    if stored_fill is None:
        return logical.type(np.nan) if logical.kind == "f" and packing.fills else logical.type(0)
    return logical.type(packing.value(_number(stored_fill, packing)))


def _number(stored_fill: Any, packing: Packing) -> Any:
    return np.array(stored_fill).astype(packing.stored).item()


def _referenced(
    variable: ParsedVariable, packing: Packing, logical: np.dtype[Any], skipped: int = 0
) -> SourceEncoding:
    """The encoding of a variable whose chunks are read where they are.

    `skipped` is HDF5's filter mask: bit i says that filter i was not applied.
    """
    own = list(variable.codecs)
    if skipped:  # HDF5's filters are the bytes → bytes codecs, in the same order
        steps = [codec for codec in own if _is_bytes_codec(codec["name"])]
        applied = [codec for i, codec in enumerate(steps) if not skipped >> i & 1]
        own = [codec for codec in own if codec not in steps] + applied
    return _encoding(variable, own, packing, logical, variable.reason)


def _copied(
    variable: ParsedVariable, packing: Packing, logical: np.dtype[Any], reason: str
) -> SourceEncoding:
    """The encoding of a variable whose stored numbers are copied: the same numbers, compressed anew."""
    serializer: dict[str, Any] = {"name": "bytes"}
    if isinstance(packing.stored, np.dtypes.StringDType):
        serializer = {"name": "vlen-utf8"}
    elif packing.stored.itemsize > 1:
        serializer["configuration"] = {"endian": "little"}
    return _encoding(variable, [serializer, COPY_CODEC], packing, logical, reason)


def _encoding(
    variable: ParsedVariable,
    codecs: list[dict[str, Any]],
    packing: Packing,
    logical: np.dtype[Any],
    reason: str,
) -> SourceEncoding:
    filters = packing.filters(logical)
    if filters and (packing.stored.kind not in "iuf" or logical.kind not in "iuf"):
        raise IngestError(f"values of the type {packing.stored} cannot become {logical}")
    fill = _fill_value(packing, variable.fill, logical)
    return SourceEncoding(variable.chunks, (*filters, *codecs), logical, fill, packing, reason)


def without_filters(encoding: SourceEncoding) -> SourceEncoding:
    """The same chunks seen as stored numbers: to write a copy without packing it again."""
    packing = encoding.packing
    own = encoding.codecs[len(packing.filters(encoding.dtype)) :]
    fill = zarr_type(packing.stored).default_scalar()
    return SourceEncoding(encoding.chunks, own, packing.stored, fill, packing, is_bare=True)


def depends_on_axes(variable: ParsedVariable) -> str:
    """Why the chunks of a variable cannot be read with one more axis; empty if they can."""
    for codec in variable.codecs:
        if codec["name"] != "bytes" and not _is_bytes_codec(codec["name"]):
            return f"the file has no such axis, and its codec {codec['name']!r} depends on the number of axes"
    return ""


@dataclass(frozen=True, slots=True)
class ChunkSet:
    """Chunks of one file that have one encoding."""

    encoding: SourceEncoding
    boxes: tuple[Box, ...]
    """Which they are, as boxes of the file's chunk grid; together with the other sets they tile it."""

    skipped: int = 0
    """The filter mask that they share."""

    by_copy: bool = False
    """Whether the numbers are copied; otherwise they are referenced."""


def boxes_of(chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> list[Box]:
    """Few boxes that cover exactly the chosen cells of a grid.

    Boxes of one row that stand in the next row too grow into it: not the fewest boxes, but few for filter
    masks, where whole rows are alike.
    """
    if not chosen.ndim:
        return [Box((), ())] if chosen else []
    if chosen.all():
        return [Box.sized(chosen.shape)]
    if chosen.ndim == 1:  # where the cells change between chosen and not, a run begins or ends
        edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]])))
        return [Box((a,), (b,)) for a, b in edges.reshape(-1, 2).tolist()]
    boxes: list[Box] = []
    open_boxes: dict[Box, int] = {}  # boxes of the row before that still grow, and the row they began in
    for row in range(len(chosen) + 1):
        here = boxes_of(chosen[row]) if row < len(chosen) else []
        ended = [box for box in open_boxes if box not in here]
        boxes += [Box((open_boxes.pop(box), *box.start), (row, *box.stop)) for box in ended]
        for box in here:
            open_boxes.setdefault(box, row)
    return sorted(boxes)


def chunk_sets_of(
    variable: ParsedVariable, packing: Packing, logical: np.dtype[Any], copy: str
) -> list[ChunkSet]:
    """How the chunks of one file are backed: by reference, by a copy, or in parts. There may be none."""
    if 0 in variable.shape:
        return []
    grid = chunk_grid(variable.shape, variable.chunks)
    whole = (Box.sized(grid),)
    ranges = variable.ranges
    by_copy = ranges is None or bool(ranges.inlined)
    if by_copy and copy == "never":
        raise IngestError(f"{variable.name!r}: {variable.reason}; and copy='never' was asked for")
    if ranges is None or copy == "all":
        reason = variable.reason or "copy='all' was asked for"
        return [ChunkSet(_copied(variable, packing, logical, reason), whole, by_copy=True)]
    if ranges.masks is None:
        return [ChunkSet(_referenced(variable, packing, logical), whole)]
    return [
        ChunkSet(_referenced(variable, packing, logical, mask), tuple(boxes_of(ranges.masks == mask)), mask)
        for mask in np.unique(ranges.masks).tolist()
    ]
