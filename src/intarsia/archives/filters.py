"""Filters of members that unpack their numbers, for what a packing in the manifest cannot say.

That is: missing values that become null, and an asked-for type that values are rounded to. For everything
else `ingest` wrote them too before manifests had packings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.archives.cf import Decoding, zarr_type


def _unpacked(decoding: Decoding) -> np.dtype[Any]:
    """The type in which filters compute."""
    values = decoding.values
    return np.dtype("f8") if decoding.is_scaled and values.kind != "f" else values


def _factors(decoding: Decoding) -> tuple[float | None, float | None]:
    packing = decoding.packing
    given = (None, None) if packing is None else (packing.scale, packing.offset)
    scale, offset = (None if factor is None else float(factor) for factor in given)
    return scale, offset


def filters_of(decoding: Decoding, logical: np.dtype[Any]) -> list[dict[str, Any]]:
    """The array → array codecs of a member whose values are `logical`.

    >>> attrs = {"scale_factor": 0.5, "_FillValue": np.int16(-1)}
    >>> [codec["name"] for codec in filters_of(Decoding.of(np.dtype("i2"), attrs), np.dtype("f8"))]
    ['scale_offset', 'cast_value']
    """
    codecs: list[dict[str, Any]] = []
    (scale, offset), unpacked = _factors(decoding), _unpacked(decoding)
    if logical != unpacked:
        codecs.append(_cast(unpacked))
    configuration: dict[str, Any] = {}
    if offset is not None and offset != 0:
        configuration["offset"] = offset
    if scale is not None and scale != 1:
        configuration["scale"] = 1 / scale  # the codec divides where CF multiplies
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


def filtered(decoding: Decoding, number: Any) -> Any:
    """The value of one stored number, as the filters decode it; None for null."""
    if number in decoding.missing:
        return None if decoding.nulls else _unpacked(decoding).type(np.nan)
    (scale, offset), kind = _factors(decoding), _unpacked(decoding)
    value = kind.type(number)
    if scale is not None:
        value = kind.type(value / kind.type(1 / scale))
    return value if offset is None else kind.type(value + kind.type(offset))


def _stored_as(numbers: np.dtype[Any], mapped: list[Any]) -> dict[str, Any]:
    """The cast to what is stored, with NaN as the first of `mapped`."""
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
