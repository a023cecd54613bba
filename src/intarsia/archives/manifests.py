"""From VirtualiZarr's manifests to parsed variables: the one place that looks inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.cf import decoded_fill_attribute
from intarsia.archives.parsed import Description, ParsedVariable, References

if TYPE_CHECKING:
    from collections.abc import Mapping

    from intarsia.archives.parsed import Role

__all__ = ["arrays_of", "described", "parsed_variable"]

# The same bytes under the name that is specified for Zarr v3, so that more readers know it.
SPECIFIED_NAMES = {"numcodecs.shuffle": "shuffle", "numcodecs.zstd": "zstd", "numcodecs.gzip": "gzip"}


def arrays_of(store: Any, group: str = "") -> Mapping[str, Any]:
    """The manifest arrays of one group of a VirtualiZarr `ManifestStore`, by name."""
    node = store._group  # VirtualiZarr has no public way to the parsed arrays but through xarray
    for part in group.strip("/").split("/") if group.strip("/") else ():
        node = node.groups[part]
    arrays: Mapping[str, Any] = node.arrays
    return arrays


def described(array: Any, attrs: Mapping[str, Any] | None = None) -> Description:
    """What a manifest array is, before its references are looked at."""
    dtype = array.dtype.newbyteorder("=")
    names = array.metadata.dimension_names
    dims = tuple(name or f"dim_{axis}" for axis, name in enumerate(names or (None,) * len(array.shape)))
    attributes = dict(array.metadata.attributes if attrs is None else attrs)
    if attrs is None and "_FillValue" in attributes:
        attributes["_FillValue"] = decoded_fill_attribute(attributes["_FillValue"], dtype)
    return Description(dims, tuple(array.shape), attributes, dtype)


def _codec(document: dict[str, Any]) -> dict[str, Any]:
    name = SPECIFIED_NAMES.get(document["name"], document["name"])
    configuration = dict(document.get("configuration", {}))
    if name == "shuffle" and document["name"] != name:
        configuration = {"element_size": configuration["elementsize"]}
    elif name == "zstd" and document["name"] != name:
        configuration = {
            "level": configuration.get("level", 0),
            "checksum": configuration.get("checksum", False),
        }
    elif name == "gzip" and document["name"] != name:
        configuration = {"level": configuration.get("level", 5)}
    return {"name": name, "configuration": configuration} if "configuration" in document else {"name": name}


def parsed_variable(name: str, role: Role, array: Any, description: Description) -> ParsedVariable:
    """A manifest array with its references."""
    metadata, manifest = array.metadata, array.manifest
    chunks = tuple(int(size) for size in metadata.chunk_grid.chunk_shape)
    grid = tuple(-(-n // c) for n, c in zip(array.shape, chunks, strict=True))
    paths = manifest._paths
    if paths.shape == grid and paths.size:
        flat = paths.ravel()
        stored = flat != ""
        inlined = dict(manifest._inlined)
        lengths = np.where(stored.reshape(grid), manifest._lengths, np.uint64(0))
        for index in inlined:
            lengths[index] = 0
        single = _only(flat[stored & (lengths.ravel() > 0)])
        references = References(
            paths.copy() if single is None else single,
            np.ascontiguousarray(manifest._offsets),
            np.ascontiguousarray(lengths),
            inlined=inlined,
        )
    else:  # nothing of it was ever written; the parser then gives any shape
        references = References(
            "", np.zeros(grid, "u8"), np.zeros(grid, "u8"), inlined=dict(manifest._inlined)
        )
    return ParsedVariable(
        name,
        role,
        description.dims,
        description.shape,
        dict(description.attrs),
        description.dtype,
        chunks,
        tuple(_codec(codec.to_dict()) for codec in metadata.codecs),
        metadata.fill_value,
        references,
        reason="the parser had to decode it (it is not stored as chunks)" if references.inlined else "",
    )


def _only(urls: np.ndarray[Any, Any]) -> str | None:
    """The one URL that they all are, or None if they differ."""
    if not urls.size:
        return ""
    first = urls[0]
    return str(first) if bool((urls == first).all()) else None
