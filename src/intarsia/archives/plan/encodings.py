"""The encoding of a file's chunks: it says which files are alike, and which member can hold them.

Members may have filters that unpack their numbers, for two things that a packing in the manifest cannot
express: missing values that become null, and a requested type that values are rounded to. Before manifests
had packings, `ingest` wrote filters for everything else, too.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec
from zarr.dtype import ZDType
from zarr.registry import get_codec_class

from intarsia.archives.cf import CFDecoding
from intarsia.archives.parsed_file import ParsedVariable
from intarsia.display import codecs_text
from intarsia.manifest.box import Box, chunk_grid
from intarsia.manifest.data_types import zarr_type
from intarsia.manifest.region_table import RegionTable
from intarsia.nullable import NULL, OptionalDType, Some


def filters_of(decoding: CFDecoding, logical: np.dtype[Any]) -> list[dict[str, Any]]:
    """The array → array codecs of a member whose values have the type `logical`.

    >>> attrs = {"scale_factor": 0.5, "_FillValue": np.int16(-1)}
    >>> [codec["name"] for codec in filters_of(CFDecoding.of(np.dtype("i2"), attrs), np.dtype("f8"))]
    ['scale_offset', 'cast_value']
    """
    codecs: list[dict[str, Any]] = []
    packing, unpacked = decoding.packing, decoding.values
    if decoding.is_scaled and unpacked.kind != "f":
        unpacked = np.dtype("f8")
    if logical != unpacked:
        codecs.append(_cast(unpacked))
    configuration: dict[str, Any] = {}
    if packing is not None and packing.offset:
        configuration["offset"] = float(packing.offset)
    if packing is not None and packing.scale not in (None, 1):
        configuration["scale"] = 1 / float(packing.scale)  # the codec divides where CF multiplies
    if configuration:
        codecs.append({"name": "scale_offset", "configuration": configuration})
    marks = [mark.item() for mark in decoding.missing]
    mapped = marks if decoding.is_scaled or not decoding.nulls else []
    if unpacked != decoding.numbers or mapped:
        codecs.append(_stored_as(decoding.numbers, mapped))
    if not decoding.gives_nulls:
        return codecs
    sentinel: dict[str, Any] = {"values": ["NaN"] if decoding.is_scaled else marks}
    if codecs:
        sentinel["codecs"] = codecs
    return [{"name": "intarsia.sentinel", "configuration": sentinel}]


def _stored_as(numbers: np.dtype[Any], mapped: list[Any]) -> dict[str, Any]:
    """The cast to the stored type, with NaN as the first of `mapped`."""
    cast = _cast(numbers)
    if numbers.kind in "iu":
        cast["configuration"]["out_of_range"] = "clamp"
    if mapped:
        cast["configuration"]["scalar_map"] = {
            "encode": [["NaN", mapped[0]]],
            "decode": [[mark, "NaN"] for mark in mapped],
        }
    return cast


def _cast(dtype: np.dtype[Any]) -> dict[str, Any]:
    name = zarr_type(dtype).to_json(zarr_format=3)
    return {"name": "cast_value", "configuration": {"data_type": name}}


GDAL_CODECS = frozenset(
    {
        "bytes", "transpose", "blosc", "gzip", "shuffle", "zstd", "numcodecs.blosc", "numcodecs.gzip",
        "numcodecs.lzma", "numcodecs.shuffle", "numcodecs.zlib", "numcodecs.zstd",
    }
)  # fmt: skip
"""Codecs that GDAL 3.12 decodes in kerchunk references, as rasterio brings it."""

COPY_CODEC = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
"""How copies are compressed."""


@dataclass(frozen=True, eq=False)
class SourceEncoding:
    """How the chunks of a source hold its numbers; sources with equal digests share a member."""

    chunks: tuple[int, ...]
    """The shape of a chunk, including the concatenation axis."""

    codecs: tuple[dict[str, Any], ...]
    """The source's own codecs."""

    stored: np.dtype[Any]
    """The type of the numbers that they decode to."""

    data_type: ZDType[Any, Any]
    """The type of the member: that of those numbers, or of the values that filters make of them."""

    fill_value: Any
    """What is read where a source stored no chunk."""

    filters: tuple[dict[str, Any], ...] = ()
    """Codecs before the source's own that unpack, if a packing in the manifest cannot."""

    def document(self, shape: tuple[int, ...], dims: tuple[str, ...]) -> dict[str, Any]:
        """The zarr.json of a member."""
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(shape),
            "data_type": self.data_type.to_json(zarr_format=3),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": self.data_type.to_json_scalar(self.fill_value, zarr_format=3),
            "codecs": [*self.filters, *self.codecs],
            "attributes": {},
            "dimension_names": list(dims),
            "storage_transformers": [],
        }

    @cached_property
    def digests(self) -> tuple[str, str]:
        """The same for equal encodings, also a year later: with the fill value, and without it."""
        document = self.document((), ())
        parts = {key: document[key] for key in ("data_type", "chunk_grid", "codecs")}
        return _digest(parts | {"fill_value": document["fill_value"]}), _digest(parts)

    @property
    def bare(self) -> "SourceEncoding":
        """The same chunks seen as stored numbers, to write a copy without packing it again."""
        data_type = zarr_type(self.stored)
        fill = self.fill_value if self.data_type == data_type else data_type.default_scalar()
        return replace(self, data_type=data_type, fill_value=fill, filters=())


def _digest(parts: dict[str, Any]) -> str:
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def source_codecs_text(codecs: Iterable[Mapping[str, Any]]) -> str:
    """Codecs as a report's runs name them: with their levels, without what follows from the data type.

    >>> source_codecs_text([{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 4}}])
    'gzip-4'
    """
    return codecs_text(codec for codec in codecs if not _is_filter(codec["name"]))


@lru_cache
def _is_filter(name: str) -> bool:
    return issubclass(get_codec_class(name), ArrayArrayCodec)


@lru_cache
def is_bytes_codec(name: str) -> bool:
    """Whether the codec of this name turns bytes into bytes."""
    return issubclass(get_codec_class(name), BytesBytesCodec)


def _stored_fill(decoding: CFDecoding, fill: Any, stored: np.dtype[Any]) -> Any:
    """The stored number that stands for chunks that were never stored."""
    if stored.kind not in "biufc":
        return zarr_type(stored).default_scalar() if fill is None else fill
    if fill is not None:
        return np.array(fill).astype(stored)[()]
    return decoding.missing[0].view(stored) if decoding.missing else stored.type(0)


def _filtered_fill(decoding: CFDecoding, fill: Any, logical: np.dtype[Any]) -> Any:
    """The value of chunks that were never stored, if filters unpack."""
    number = None if fill is None else np.array(fill).astype(decoding.numbers)
    if decoding.gives_nulls and (number is None or number in decoding.missing):
        return NULL
    if number is None:
        value = logical.type(np.nan if logical.kind == "f" and decoding.missing else 0)
    elif decoding.packing is None:
        value = logical.type(number)
    else:
        value = logical.type(decoding.packing.decode(number.view(decoding.stored))[()])
    return Some(value) if decoding.gives_nulls else value


def _applied_codecs(codecs: Sequence[dict[str, Any]], skipped: int) -> list[dict[str, Any]]:
    """The codecs of chunks that skipped some of HDF5's filters: if bit i is set, filter i was not applied.

    These filters are the bytes → bytes codecs, in the same order.
    """
    steps = [codec for codec in codecs if skipped and is_bytes_codec(codec["name"])]
    applied = [codec for i, codec in enumerate(steps) if not skipped >> i & 1]
    return [codec for codec in codecs if codec not in steps] + applied


def _copy_codecs(stored: np.dtype[Any]) -> list[dict[str, Any]]:
    """The codecs of stored numbers that are copied."""
    serializer: dict[str, Any] = {"name": "bytes"}
    if isinstance(stored, np.dtypes.StringDType):
        serializer = {"name": "vlen-utf8"}
    elif stored.itemsize > 1:
        serializer["configuration"] = {"endian": "little"}
    return [serializer, COPY_CODEC]


def _encoding(
    variable: ParsedVariable,
    codecs: list[dict[str, Any]],
    decoding: CFDecoding,
    logical: np.dtype[Any],
) -> SourceEncoding:
    chunks, own = variable.chunks, tuple(codecs)
    # without a packing, the sign that `_Unsigned` gives is that of the member's type
    stored = decoding.numbers if decoding.nulls else decoding.stored
    if not decoding.needs_filters(logical):
        fill = _stored_fill(decoding, variable.fill, stored)
        return SourceEncoding(chunks, own, stored, zarr_type(stored), fill)
    data_type = zarr_type(logical)
    if decoding.gives_nulls:
        data_type = OptionalDType(inner=data_type)
    fill = _filtered_fill(decoding, variable.fill, logical)
    filters = tuple(filters_of(decoding, logical))
    return SourceEncoding(chunks, own, decoding.numbers, data_type, fill, filters)


KNOW_THE_LAST_AXES = ("bytes", "transpose", "HorizontalDeltaCodec")
"""Codecs of arrays that work the same if another axis, of length 1, comes before the others."""


def depends_on_axes(variable: ParsedVariable) -> str:
    """Why the chunks of a variable cannot be read with one more axis; empty if they can."""
    for codec in variable.codecs:
        name = codec["name"]
        if name not in KNOW_THE_LAST_AXES and not is_bytes_codec(name):
            return f"the file has no such axis, and its codec {name!r} depends on the number of axes"
    return ""


def with_axis_before(codecs: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The codecs of chunks that get another axis, of length 1, before the others.

    >>> with_axis_before([{"name": "transpose", "configuration": {"order": [1, 0]}}])
    ({'name': 'transpose', 'configuration': {'order': [0, 2, 1]}},)
    """
    return tuple(
        {**codec, "configuration": {"order": [0, *(axis + 1 for axis in codec["configuration"]["order"])]}}
        if codec["name"] == "transpose"
        else codec
        for codec in codecs
    )


@dataclass(frozen=True, slots=True)
class ChunkSet:
    """Chunks of one file that share an encoding."""

    encoding: SourceEncoding
    boxes: tuple[Box, ...]
    """The chunks, as boxes of the file's chunk grid; together with the other sets they tile it."""

    skipped: int = 0
    """The filter mask that they share."""

    complete: bool = True
    """Whether every chunk is stored, so that no fill value is visible."""


def boxes_of(chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> list[Box]:
    """A small number of boxes that cover exactly the chosen cells of a grid.

    These are not the fewest boxes, but few for filter masks, where whole rows are alike.
    """
    cells = np.argwhere(chosen)
    table = RegionTable.of(np.zeros(len(cells), dtype=np.int64), cells, cells + 1, cells)
    for axis in reversed(range(chosen.ndim)):
        table = table.merge_neighbours(axis)
    return [table.row(i).box for i in range(len(table))]


def chunk_sets_of(variable: ParsedVariable, decoding: CFDecoding, logical: np.dtype[Any]) -> list[ChunkSet]:
    """How the chunks of one file are backed: by reference, or without ranges by a copy. There may be none."""
    if 0 in variable.shape:
        return []
    grid = chunk_grid(variable.shape, variable.chunks)
    whole = (Box.sized(grid),)
    ranges = variable.ranges
    if ranges is None:
        return [ChunkSet(_encoding(variable, _copy_codecs(decoding.stored), decoding, logical), whole)]
    complete = int((ranges.lengths > 0).sum()) + len(ranges.inlined) == ranges.lengths.size
    boxes: dict[int, tuple[Box, ...]] = {0: whole}
    if ranges.masks is not None:
        boxes = {mask: tuple(boxes_of(ranges.masks == mask)) for mask in np.unique(ranges.masks).tolist()}
    sets = []
    for mask, own in boxes.items():
        codecs = _applied_codecs(variable.codecs, mask)
        encoding = _encoding(variable, codecs, decoding, logical)
        sets.append(ChunkSet(encoding, own, mask, complete=complete))
    return sets
