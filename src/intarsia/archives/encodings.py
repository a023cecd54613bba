"""What makes two files equal: the encoding of a variable, as the member that can hold it."""

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
from intarsia.errors import IngestError
from intarsia.nullable import NULL, OptionalDType, Some

if TYPE_CHECKING:
    from intarsia.archives.cf import Packing
    from intarsia.archives.parsed import ParsedVariable

__all__ = ["SourceEncoding", "copied", "depends_on_axes", "referenced", "without_filters"]

COPY_CODECS = ({"name": "zstd", "configuration": {"level": 3, "checksum": False}},)
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


def _member_codecs(
    codecs: tuple[dict[str, Any], ...], packing: Packing, logical: np.dtype[Any]
) -> tuple[dict[str, Any], ...]:
    filters = packing.filters(logical)
    if filters and (packing.stored.kind not in "iuf" or logical.kind not in "iuf"):
        raise IngestError(f"values of the type {packing.stored} cannot become {logical}")
    return (*filters, *codecs)


def referenced(
    variable: ParsedVariable, packing: Packing, logical: np.dtype[Any], skipped: int = 0
) -> SourceEncoding:
    """The encoding of a variable whose chunks are read where they are.

    `skipped` is HDF5's filter mask: bit i says that filter i was not applied.
    """
    own = list(variable.codecs)
    if skipped:
        steps = [codec for codec in own if _is_bytes_codec(codec["name"])]
        own = [codec for codec in own if codec not in steps] + [
            codec for i, codec in enumerate(steps) if not skipped >> i & 1
        ]
    return SourceEncoding(
        variable.chunks,
        _member_codecs(tuple(own), packing, logical),
        logical,
        _fill_value(packing, variable.fill, logical),
        packing,
        variable.reason,
    )


def copied(variable: ParsedVariable, packing: Packing, logical: np.dtype[Any], reason: str) -> SourceEncoding:
    """The encoding of a variable whose stored numbers are copied: the same numbers, compressed anew."""
    if isinstance(packing.stored, np.dtypes.StringDType):
        serializer: dict[str, Any] = {"name": "vlen-utf8"}
    elif packing.stored.itemsize > 1:
        serializer = {"name": "bytes", "configuration": {"endian": "little"}}
    else:
        serializer = {"name": "bytes"}
    return SourceEncoding(
        variable.chunks,
        _member_codecs((serializer, *COPY_CODECS), packing, logical),
        logical,
        _fill_value(packing, variable.fill, logical),
        packing,
        reason,
    )


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
