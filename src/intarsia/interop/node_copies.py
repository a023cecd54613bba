"""Copies of Zarr nodes: everything about an array but its values, and its values block by block.

`open_source` finds the node that a caller means, `walk` all nodes below it, and `copy_nodes` copies them,
each array as a plain array or as a logical one. `logical.chunk_copies` copies encoded chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

import zarr
from zarr.storage import StorePath

from intarsia.engine.prepared_member import PreparedMember, object_shape
from intarsia.engine.read import read_request
from intarsia.engine.reader import Reader, chunk_shape
from intarsia.engine.request import parse_selection
from intarsia.engine.write import write_box
from intarsia.errors import OverwriteError
from intarsia.interop.write_jobs import reserve_all
from intarsia.logical.append import NO_CHOICE
from intarsia.logical.attributes import DIMENSIONS_KEY
from intarsia.logical.encoding import Encoding, chunk_codecs, create_member, encoding_of, keep_layout
from intarsia.logical.hierarchy import is_any_array, is_logical, nodes_below, open_node
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.opening import create, reader
from intarsia.logical.staging import removed_on_failure
from intarsia.manifest.box import Box, tile_in_blocks
from intarsia.manifest.data_types import data_type_of
from intarsia.manifest.manifest import Manifest
from intarsia.progress import Progress, part_of
from intarsia.versions.version import LATEST, Version, resolve_store

type AnyArray = Reader | LogicalArray


def open_source(source: Any, path: str = "", version: Version = LATEST) -> AnyArray | zarr.Group:
    """The node that a caller means: an array, ready to be read, or a group of them.

    >>> open_source(zarr.create_array({}, shape=4, dtype="u1")).shape
    (4,)
    """
    if not isinstance(source, LogicalArray | Reader | zarr.Array) and not hasattr(source, "zarr_array"):
        source, path = open_node(resolve_store(source, version).store, path.strip("/")), ""
        if isinstance(source, zarr.Group) and not is_logical(source):
            return source
    array = reader(source, path)
    assert not isinstance(array, dict)
    return array


class SourceNode(NamedTuple):
    """A node of a hierarchy, with its path below the start of the walk."""

    path: str
    node: AnyArray | zarr.Group


def walk(node: AnyArray | zarr.Group, path: str = "") -> list[SourceNode]:
    """A node and all nodes below it, groups before their contents, without those of intarsia itself."""
    nodes = [SourceNode(path, node)]
    if isinstance(node, zarr.Group):
        for below, child in nodes_below(node):
            readable: Any = reader(child) if is_any_array(child) else child
            nodes.append(SourceNode(f"{path}/{below}".lstrip("/"), readable))
    return nodes


def copy_nodes(
    nodes: Sequence[SourceNode],
    open_target: Callable[[str], zarr.Group],
    write_array: Callable[[str, AnyArray, Progress], None],
    progress: Progress,
) -> None:
    """Copy every node: groups with their attributes into the group that `open_target` opens or creates.

    Steps of the progress are bytes of values.
    """
    total = sum(node.nbytes for _, node in nodes if not isinstance(node, zarr.Group))
    done = 0
    progress(0, total)
    for path, node in nodes:
        if isinstance(node, zarr.Group):
            group = open_target(path)
            if is_logical(group):
                raise OverwriteError(f"there is a logical array at {path or '/'!r}: choose another path")
            group.update_attributes(dict(node.attrs))
        else:
            write_array(path, node, part_of(progress, done, node.nbytes, total))
            done += node.nbytes
    progress(total, total)


@dataclass(frozen=True)
class ArrayDescription:
    """Everything about an array but its values, in the terms of Zarr v3."""

    manifest: Manifest
    """Shape, data type, fill value and dimension names."""

    attributes: dict[str, Any]

    encoding: Encoding
    """How it is stored, if that is the same everywhere; otherwise only its chunks."""

    @classmethod
    def of(cls, array: AnyArray) -> ArrayDescription:
        """The description of an array of any format."""
        names, attributes = array.dimension_names, dict(array.attrs)
        names_2 = attributes.get(DIMENSIONS_KEY)
        if names is None and isinstance(names_2, list) and len(names_2) == array.ndim:
            names = tuple(attributes.pop(DIMENSIONS_KEY))
        encoding = _encoding_of(array)
        lattice = tuple(max(1, c) for c in encoding.chunks or ())
        data_type = data_type_of(array.data_type)
        manifest = Manifest.empty(array.shape, lattice, data_type, array.fill_value, names)
        return cls(manifest, attributes, encoding)

    def encoding_with(self, choice: Encoding) -> Encoding:
        """The array's own encoding, except for what the caller chose; other chunks come without shards."""
        own, same_chunks = self.encoding, choice.chunks is None and choice.shards is None
        return replace(
            own,
            codecs=own.codecs if choice.codecs is None else choice.codecs,
            chunks=choice.chunks or own.chunks,
            shards=own.shards if same_chunks else choice.shards,
        )

    def create_logical(self, store: Any, path: str, chunks: tuple[int, ...] | None = None) -> LogicalArray:
        """A logical array like this, without regions."""
        like = self.manifest
        return create(
            store,
            path,
            shape=like.shape,
            chunks=chunks or like.chunk_shape,
            dtype=like.data_type,
            fill_value=like.fill_value,
            dimension_names=like.dimension_names,
            attributes=self.attributes,
        )


def _encoding_of(array: AnyArray) -> Encoding:
    """How an array is stored, if that is the same everywhere; otherwise the chunks of its largest part."""
    if isinstance(array, Reader):
        stored, chunks = array.zarr_array, chunk_shape(array)
        if array.metadata.zarr_format == 2:
            return Encoding(chunks=chunks)
        return Encoding(chunk_codecs(stored, None), chunks, stored.shards)
    layout = keep_layout(array._logical, Box.sized(array.manifest.lattice), NO_CHOICE)
    regions = array.regions
    if not regions or any(region.packing is not None or region.view is not None for region in regions):
        return Encoding(chunks=layout.chunks or array.chunks)
    array.members.open_together(array.manifest.members)
    first, *others = [array.members[name] for name in {region.name for region in regions}]
    if any(encoding_of(member.metadata) != encoding_of(first.metadata) for member in others):
        return Encoding(chunks=layout.chunks)
    return replace(layout, codecs=tuple(chunk_codecs(first, None)))


def write_logical_array(
    source: AnyArray, store: Any, path: str, choice: Encoding, progress: Progress
) -> LogicalArray:
    """A logical array that holds the values of an array in one region."""
    description = ArrayDescription.of(source)
    array = description.create_logical(store, path, choice.chunks)
    logical = array._logical
    with removed_on_failure(logical.group.store_path):
        reservation = reserve_all(array, description.encoding_with(choice))
        for name in reservation.new_members:
            target = logical.target(name, reservation.options[name])
            copy_blocks(source, logical.members[name], target, progress)
        reservation.commit()
    return array


def write_plain_array(source: AnyArray, store_path: StorePath, choice: Encoding, progress: Progress) -> None:
    """A plain Zarr v3 array with everything that is known about an array of any kind."""
    description = ArrayDescription.of(source)
    encoding = replace(description.encoding_with(choice), fill_value=source.fill_value)
    array = create_member(
        store_path.store, store_path.path or None, description.manifest, source.shape, encoding
    )
    array.update_attributes(description.attributes)
    copy_blocks(source, array, PreparedMember.of(store_path.path or "/", array), progress)


def copy_blocks(array: AnyArray, stored: zarr.Array[Any], target: PreparedMember, progress: Progress) -> None:
    """Write the values of an array to `target`, in blocks of whole chunks of `stored`; holes are left out.

    Steps of the progress are bytes of values.
    """
    whole, itemsize = Box.sized(array.shape), max(1, array.dtype.itemsize)
    manifest, done = array.manifest, 0
    progress(0, array.nbytes)
    for block in tile_in_blocks(whole, object_shape(stored), itemsize):
        if not isinstance(array, LogicalArray) or manifest.regions.touching(manifest.cells(block)).size:
            values = read_request(array._handle, parse_selection(array.shape, block.slices or ..., "basic"))
            write_box(target, block, values)
        done += itemsize * prod(block.shape)
        progress(done, array.nbytes)
