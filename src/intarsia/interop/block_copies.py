"""Copying values from any array to another, block by block: memory does not grow with the array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import zarr

from intarsia.display import one_line
from intarsia.engine.member_source import grain
from intarsia.engine.read import read_request
from intarsia.engine.reader import Reader, chunk_shape
from intarsia.engine.request import request
from intarsia.errors import NotLogicalArrayError
from intarsia.logical.hierarchy import is_any_array, is_logical, nodes_below
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.members import Encoding, encoding_of
from intarsia.logical.opening import reader
from intarsia.manifest.box import Box, blocks
from intarsia.manifest.coercion import Values, data_type_of
from intarsia.manifest.manifest import Manifest
from intarsia.progress import Progress
from intarsia.versions.version import LATEST, Version, resolve

DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The attribute where xarray keeps dimension names in Zarr v2, which has no place for them."""

MOST_COMPARED = 50
"""How many members are compared to see whether they are encoded alike."""

type AnyStored = Reader | LogicalArray


def node_of(source: Any, path: str = "", version: Version = LATEST) -> AnyStored | zarr.Group:
    """The node that a caller means: an array, ready to be read, or a group of them.

    >>> node_of(zarr.create_array({}, shape=4, dtype="u1")).shape
    (4,)
    """
    if isinstance(source, LogicalArray | Reader | zarr.Array) or hasattr(source, "zarr_array"):
        found = reader(source, path)
        assert not isinstance(found, dict)
        return found
    opened: Any = resolve(source, version).store
    if isinstance(opened, zarr.Group):
        opened, path = opened.store_path.store, "/".join(part for part in (opened.path, path) if part)
    try:
        node = zarr.open(opened, path=path.strip("/") or None, mode="r")
    except (FileNotFoundError, ValueError) as error:
        raise NotLogicalArrayError(
            f"there is no Zarr array or group at {path or source!r}: {one_line(error)}"
        ) from error
    if isinstance(node, zarr.Group) and not is_logical(node):
        return node
    found = reader(node) if isinstance(node, zarr.Array) else reader(node, "")
    assert not isinstance(found, dict)
    return found


@dataclass(frozen=True)
class Found:
    """A node of a hierarchy, with its path below the start of the walk."""

    path: str
    node: AnyStored | zarr.Group


def walked(node: AnyStored | zarr.Group, path: str = "") -> Iterator[Found]:
    """A node and all nodes below it, groups before their contents, without those of intarsia itself."""
    yield Found(path, node)
    if isinstance(node, zarr.Group):
        for below, child in nodes_below(node):
            found: Any = reader(child) if is_any_array(child) else child
            yield Found(f"{path}/{below}".lstrip("/"), found)


@dataclass(frozen=True)
class Described:
    """Everything about an array but its values, in the terms of Zarr v3."""

    manifest: Manifest
    """Shape, data type, fill value and dimension names."""

    attributes: dict[str, Any]

    encoding: Encoding
    """How it is stored, if that is the same everywhere; otherwise only its chunks."""

    @classmethod
    def of(cls, array: AnyStored) -> Described:
        """The description of an array of any format."""
        names, attributes = array.dimension_names, dict(array.attrs)
        said = attributes.get(DIMENSIONS)
        if names is None and isinstance(said, list) and len(said) == array.ndim:
            names = tuple(attributes.pop(DIMENSIONS))
        chunks, encoding = _stored_as(array)
        lattice = tuple(max(1, c) for c in chunks)
        data_type = data_type_of(array.data_type)
        manifest = Manifest.empty(array.shape, lattice, data_type, array.fill_value, names)
        return cls(manifest, attributes, encoding)


def _stored_as(array: AnyStored) -> tuple[tuple[int, ...], Encoding]:
    """The shape of an array's chunks, and how they are stored if all are alike."""
    if isinstance(array, Reader):
        if array.metadata.zarr_format == 2:
            return chunk_shape(array), Encoding(chunks=chunk_shape(array))
        return chunk_shape(array), _encoding_like(array.zarr_array, chunk_shape(array))
    regions = array.regions
    if not regions:
        return array.chunks, Encoding()
    largest = max(regions, key=lambda region: region.nbytes)
    view = largest.view
    chunks = largest.chunks if view is None else tuple(size for size, _ in view.grid(largest.chunks))
    plain = all(region.packing is None and region.view is None for region in regions)
    names = {region.name for region in regions}
    if plain and len(names) <= MOST_COMPARED:
        members = [array.members[name] for name in names]
        if all(encoding_of(member) == encoding_of(members[0]) for member in members):
            return chunks, _encoding_like(members[0], chunks)
    return chunks, Encoding(chunks=chunks)


def _encoding_like(stored: zarr.Array[Any], chunks: tuple[int, ...]) -> Encoding:
    codecs: Any = list(stored.metadata.codecs)  # type: ignore[union-attr]  # of Zarr v3
    if stored.shards is not None:
        codecs = list(codecs[0].codecs)
    return Encoding(codecs, chunks, None if stored.shards is None else tuple(stored.shards))


def chosen(own: Encoding, codecs: Any, chunks: Any, shards: Any) -> Encoding:
    """What was asked for, and the array's own encoding for the rest."""
    if chunks is not None or shards is not None:
        own = replace(own, shards=None)
    given = {"codecs": codecs, "chunks": chunks, "shards": shards}
    asked = Encoding(**{name: value for name, value in given.items() if value is not None})
    return Encoding(
        own.codecs if codecs is None else asked.codecs, asked.chunks or own.chunks, asked.shards or own.shards
    )


def copy_blocks(
    array: AnyStored,
    stored: zarr.Array[Any],
    write: Callable[[Box, Values], None],
    progress: Progress,
) -> None:
    """Pass on the values of an array in blocks of whole chunks of `stored`; holes are left out.

    Steps of the progress are bytes of values.
    """
    whole, itemsize = Box.sized(array.shape), max(1, array.dtype.itemsize)
    manifest, done = array.manifest, 0
    progress(0, array.nbytes)
    for block in blocks(whole, grain(stored), itemsize):
        if not isinstance(array, LogicalArray) or manifest.regions.touching(manifest.cells(block)).size:
            asked = request(array.shape, block.slices or ..., "basic")
            write(block, read_request(array._ground, asked))
        done += itemsize * prod(block.shape)
        progress(done, array.nbytes)
