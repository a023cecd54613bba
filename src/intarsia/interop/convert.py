"""`convert` copies Zarr arrays into logical arrays; `export` copies arrays of any kind to plain Zarr.

Both go over the nodes of a source and copy values block by block, so that memory does not grow with arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import icechunk
import zarr
from zarr.errors import ContainsArrayError, ContainsGroupError
from zarr.storage import StorePath

from intarsia._compat import ArrayV3Metadata, sync
from intarsia.codecs import CodecLike
from intarsia.display import one_line, place_text
from intarsia.engine.member_source import Source, grain
from intarsia.engine.read import read_request
from intarsia.engine.reader import Reader, chunk_shape
from intarsia.engine.request import parse_selection
from intarsia.engine.write import write_box
from intarsia.errors import NotLogicalArrayError, OverwriteError, ReadOnlyError, ShapeError
from intarsia.interop.write_jobs import Job, new_array, run_jobs
from intarsia.logical.advice import Objective, advise
from intarsia.logical.hierarchy import is_any_array, is_logical, nodes_below, open_group, open_node
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.members import Encoding, create_member, encoding_of
from intarsia.logical.opening import reader
from intarsia.logical.staging import clean_up, nothing_left
from intarsia.manifest.box import Box, blocks
from intarsia.manifest.coercion import data_type_of
from intarsia.manifest.manifest import Manifest
from intarsia.progress import Progress, part_of, silent
from intarsia.versions.repository import check_name
from intarsia.versions.transaction import transaction
from intarsia.versions.version import LATEST, Version, as_repository, open, resolve

DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The attribute where xarray keeps dimension names in Zarr v2, which has no place for them."""

MOST_COMPARED = 50
"""How many members are compared to see whether they are encoded alike."""

type AnyArray = Reader | LogicalArray


def convert(
    source: Any,
    store: Any,
    path: str = "",
    *,
    source_path: str = "",
    codecs: Iterable[CodecLike] | Literal["auto"] | None = "auto",
    objective: Objective = "balanced",
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
    branch: str = "main",
    message: str | None = None,
    progress: Progress = silent,
) -> LogicalArray | dict[str, LogicalArray]:
    """Copy a Zarr array of format 3 or 2, or a group with all its arrays, into logical arrays.

    `source` is an array, or a store, group, path, URL or repository with one or a group at `source_path`.
    `store` is a repository, or the path or URL of one, where everything becomes one commit; or any other zarr
    store. `path` is the place in it; without it, an array keeps its name.

    `codecs="auto"` tries encodings on samples and takes the best for the `objective`, as `intarsia.advise`
    does; `None` keeps the codecs of an array of format 3. Chunks keep their shape unless you give another.
    Values are copied block by block, so that memory does not grow with the array. In a group, 1-d coordinates
    become plain arrays, as in xarray.

    Args:
        chunks: The chunk shape to store; by default that of the source.
        shards: The shape of the shards, a whole number of chunks along each axis; by default there are none.
        branch: The branch of a repository that the commit goes to.
        message: The commit message; by default it says what was done.
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`. Steps are bytes of values.

    >>> import numpy as np, intarsia
    >>> old = zarr.create_array({}, shape=(4, 6), chunks=(2, 6), dtype="f4", zarr_format=2)
    >>> old[...] = 1
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> array = intarsia.convert(old, repo, "field", codecs=["zstd"])
    >>> array.chunks, array.regions[0].codec_names, float(array[...].sum())
    ((2, 6), 'zstd', 24.0)
    """
    node = open_source(source, source_path)
    path = path.strip("/")
    if not isinstance(node, zarr.Group) and not path:
        path = _name_of(node, source)
    nodes = walk(node, path)
    repo = as_repository(store)
    if repo is None and isinstance(store, str):
        check_name(store)
    settings = {"codecs": codecs, "objective": objective, "chunks": chunks, "shards": shards}
    target: Any = nullcontext(None)
    if repo is not None:
        target = transaction(repo, branch=branch, message=message or f"convert {path or 'a group'}")
    with target as tx:
        store = resolve(store).store if tx is None else tx.store
        with nothing_left(store):
            arrays = _convert_nodes(nodes, store, settings, progress)
    if repo is not None:
        arrays = {name: open(repo, name, branch=branch) for name in arrays}
    return arrays if isinstance(node, zarr.Group) else arrays[path]


def _name_of(array: AnyArray, source: Any) -> str:
    """The name of an array: the last part of its path, or of the store's path if it is at the root."""
    name = array.path or (os.fspath(source) if isinstance(source, str | os.PathLike) else "")
    name = name.rstrip("/").rsplit("/", 1)[-1].removesuffix(".zarr")
    if not name:
        raise ShapeError("the array has no name of its own: say where it goes: convert(source, repo, path)")
    return name


def _convert_nodes(
    nodes: list[Node], store: Any, settings: dict[str, Any], progress: Progress
) -> dict[str, LogicalArray]:
    """Convert all nodes into a store, and return the logical arrays by path."""
    arrays: dict[str, LogicalArray] = {}

    def convert_group(path: str, source: zarr.Group) -> None:
        group = open_group(store, path, "a")
        if is_logical(group):
            raise OverwriteError(f"there is a logical array at {path or '/'!r}: choose another path")
        group.update_attributes(dict(source.attrs))

    def convert_array(path: str, source: AnyArray, part: Progress) -> None:
        parent, _, name = path.rpartition("/")
        if len(nodes) > 1 and ArrayDescription.of(source).manifest.dimension_names == (name,):
            place = open_group(store, parent, "a").store_path / name
            _write_plain_array(source, place, progress=part)  # the coordinate of a dimension
        else:
            arrays[path] = _write_logical_array(source, store, path, settings, part)

    _copy_nodes(nodes, convert_group, convert_array, progress)
    return arrays


def _write_logical_array(
    source: AnyArray, store: Any, path: str, settings: dict[str, Any], progress: Progress
) -> LogicalArray:
    """A logical array that holds the values of an array in one region."""
    codecs = settings["codecs"]
    if isinstance(codecs, str) and codecs == "auto":
        codecs = advise(source, settings["objective"]).codecs if source.size else None
    job = _reserve(source, store, path, codecs, settings["chunks"], settings["shards"])
    room = job.reservation
    logical = room.logical

    def copy() -> None:
        for name in room.new_members:
            copy_blocks(source, logical.members[name], logical.target(name, room.options[name]), progress)

    run_jobs([job], None, copy)
    return LogicalArray(logical)


def _reserve(source: AnyArray, store: Any, path: str, codecs: Any, chunks: Any, shards: Any) -> Job:
    """Room for the values of an array, in one region of a new logical array."""
    description = ArrayDescription.of(source)
    manifest = description.manifest
    return new_array(
        source,
        store,
        path,
        description.encoding_with(codecs, chunks, shards),
        lattice=chunks or manifest.chunk_shape,
        dtype=manifest.data_type,
        fill_value=manifest.fill_value,
        dimension_names=manifest.dimension_names,
        attributes=description.attributes,
    )


def check_conversion(source: Any, source_path: str, codecs: Any, chunks: Any, shards: Any) -> None:
    """Refuse what `convert` would refuse about a source and its encoding, before there is a place for it."""
    nodes = walk(open_source(source, source_path))
    for _, node in nodes:
        if not isinstance(node, zarr.Group):
            _reserve(node, {}, "a", None if isinstance(codecs, str) else codecs, chunks, shards)


def export(
    source: Any,
    store: Any,
    path: str = "",
    *,
    source_path: str = "",
    codecs: Iterable[CodecLike] | None = None,
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
    overwrite: bool = False,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: Any = None,
    progress: Progress = silent,
) -> zarr.Array[Any] | zarr.Group:
    """Write arrays as plain Zarr v3: values, dimension names, attributes and fill value.

    `source` is an array, or a repository, store, group, path or URL with an array or a group at
    `source_path`; a group is written with everything in it. In a repository, `branch`, `tag`, `snapshot_id`
    or `as_of` chooses the version. `store` is a zarr store or a path, and `path` the place in it.

    Values are copied block by block, so that memory does not grow with the arrays; packed values are
    unpacked, and holes are not stored. An array with the same encoding everywhere keeps its codecs, chunks
    and shards. Others get the chunks of their largest region and zarr's own codecs, unless `codecs`, `chunks`
    or `shards` say otherwise. Nullable arrays stay nullable. Anything at the target is kept, unless
    `overwrite=True`; if the export fails, it leaves nothing behind.

    Args:
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`. Steps are bytes of values.

    >>> import intarsia
    >>> array = intarsia.create({}, "t", shape=(0,), chunks=(2,), dtype="i4", dimension_names=["x"])
    >>> array.append([1, 2], codecs=["gzip"])
    >>> array.append([3, 4], codecs=["zstd"])
    >>> z = intarsia.export(array, zarr.storage.MemoryStore(), "plain/t")
    >>> z[...].tolist(), z.metadata.dimension_names
    ([1, 2, 3, 4], ('x',))
    """
    nodes = walk(open_source(source, source_path, Version(branch, tag, snapshot_id, as_of)))
    with nothing_left(store):
        return _export_nodes(nodes, store, path, overwrite, (codecs, chunks, shards), progress)


def _export_nodes(
    nodes: list[Node],
    store: Any,
    path: str,
    overwrite: bool,
    encoding: tuple[Any, Any, Any],
    progress: Progress,
) -> zarr.Array[Any] | zarr.Group:
    place = _free_place(store, path.strip("/"), nodes[0].node, overwrite=overwrite)

    def export_group(path: str, group: zarr.Group) -> None:
        target = place / path
        open_group(target.store, target.path, "w-").update_attributes(dict(group.attrs))

    def export_array(path: str, array: AnyArray, part: Progress) -> None:
        _write_plain_array(array, place / path, *encoding, part)

    try:
        _copy_nodes(nodes, export_group, export_array, progress)
    except BaseException as error:
        clean_up(place.store, error, lambda: sync(place.delete_dir()))
        raise
    return zarr.open(place, mode="r+")


def _write_plain_array(
    source: AnyArray,
    place: StorePath,
    codecs: Any = None,
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
    progress: Progress = silent,
) -> None:
    """A plain Zarr v3 array with everything that is known about an array of any kind."""
    description = ArrayDescription.of(source)
    encoding = replace(description.encoding_with(codecs, chunks, shards), fill_value=source.fill_value)
    array = create_member(place.store, place.path or None, description.manifest, source.shape, encoding)
    if description.attributes:
        array.update_attributes(description.attributes)
    copy_blocks(source, array, Source.of(place.path or "/", array), progress)


def _free_place(target: Any, to: str, node: AnyArray | zarr.Group, *, overwrite: bool) -> StorePath:
    """The place to write to, which is empty or may be overwritten."""
    if isinstance(target, str | Path):
        check_name(target)
    if isinstance(target, icechunk.Repository) or (isinstance(target, str | Path) and as_repository(target)):
        raise ReadOnlyError(
            "a repository is changed by commits: export to a directory or a store, or into a transaction, "
            "intarsia.export(source, tx.store).\n  To have the array in the repository: intarsia.convert"
        )
    if isinstance(target, icechunk.Session) or (hasattr(target, "session") and hasattr(target, "create")):
        target = target.store
    _check_apart(target, to, node)
    mode: Any = "w" if overwrite else "w-"
    try:
        # A group is made first, because zarr then says what is in the way; the export replaces it.
        group = zarr.open_group(target, path=to or None, mode=mode, zarr_format=3)
    except (ContainsArrayError, ContainsGroupError, FileExistsError) as error:
        raise OverwriteError(
            f"there is already something at {to or str(target)!r}: choose another place, "
            "or replace it with overwrite=True"
        ) from error
    except ValueError as error:
        raise OverwriteError(f"nothing can be written to {to or str(target)!r}: {one_line(error)}") from error
    place = group.store_path
    sync(place.delete_dir())
    return place


def _check_apart(target: Any, to: str, node: AnyArray | zarr.Group) -> None:
    """Refuse to write an array over itself."""
    own = node.store_path if isinstance(node, zarr.Group) else node._handle.store_path
    root = getattr(own.store, "root", None)
    if root is None or not isinstance(target, str | Path):
        same = getattr(target, "store", target) is own.store and to == own.path
    else:
        here, there = Path(root, own.path).resolve(), Path(str(target).removeprefix("file://"), to).resolve()
        same = here == there or here in there.parents or there in here.parents
    if same:
        raise OverwriteError(f"{place_text(own)} cannot be exported onto or into itself")


def open_source(source: Any, path: str = "", version: Version = LATEST) -> AnyArray | zarr.Group:
    """The node that a caller means: an array, ready to be read, or a group of them.

    >>> open_source(zarr.create_array({}, shape=4, dtype="u1")).shape
    (4,)
    """
    if isinstance(source, LogicalArray | Reader | zarr.Array) or hasattr(source, "zarr_array"):
        node: Any = source
    else:
        store: Any = resolve(source, version).store
        if isinstance(store, zarr.Group):
            store, path = store.store_path.store, f"{store.path}/{path}"
        try:
            node, path = open_node(store, path.strip("/")), ""
        except (FileNotFoundError, ValueError) as error:
            raise NotLogicalArrayError(one_line(error)) from error
        if isinstance(node, zarr.Group) and not is_logical(node):
            return node
    array = reader(node, path)
    assert not isinstance(array, dict)
    return array


class Node(NamedTuple):
    """A node of a hierarchy, with its path below the start of the walk."""

    path: str
    node: AnyArray | zarr.Group


def walk(node: AnyArray | zarr.Group, path: str = "") -> list[Node]:
    """A node and all nodes below it, groups before their contents, without those of intarsia itself."""
    nodes = [Node(path, node)]
    if isinstance(node, zarr.Group):
        for below, child in nodes_below(node):
            readable: Any = reader(child) if is_any_array(child) else child
            nodes.append(Node(f"{path}/{below}".lstrip("/"), readable))
    return nodes


def _copy_nodes(
    nodes: Sequence[Node],
    copy_group: Callable[[str, zarr.Group], None],
    copy_array: Callable[[str, AnyArray, Progress], None],
    progress: Progress,
) -> None:
    """Copy every node; steps of the progress are bytes of values."""
    total = sum(node.nbytes for _, node in nodes if not isinstance(node, zarr.Group))
    done = 0
    progress(0, total)
    for path, node in nodes:
        if isinstance(node, zarr.Group):
            copy_group(path, node)
        else:
            copy_array(path, node, part_of(progress, done, node.nbytes, total))
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
        names_2 = attributes.get(DIMENSIONS)
        if names is None and isinstance(names_2, list) and len(names_2) == array.ndim:
            names = tuple(attributes.pop(DIMENSIONS))
        chunks, encoding = _encoding_of(array)
        lattice = tuple(max(1, c) for c in chunks)
        data_type = data_type_of(array.data_type)
        manifest = Manifest.empty(array.shape, lattice, data_type, array.fill_value, names)
        return cls(manifest, attributes, encoding)

    @classmethod
    def of_metadata(cls, metadata: ArrayV3Metadata) -> ArrayDescription:
        """The description of an array of which only the metadata is known."""
        lattice = tuple(max(1, c) for c in metadata.chunks)
        about = metadata.fill_value, metadata.dimension_names
        manifest = Manifest.empty(metadata.shape, lattice, data_type_of(metadata.data_type), *about)
        return cls(manifest, dict(metadata.attributes), Encoding(chunks=lattice))

    def encoding_with(self, codecs: Any, chunks: Any, shards: Any) -> Encoding:
        """The array's own encoding, except for what the caller chose; other chunks come without shards."""
        own = self.encoding if chunks is None and shards is None else replace(self.encoding, shards=None)
        choice = {"codecs": codecs, "chunks": chunks, "shards": shards}
        return replace(own, **{name: value for name, value in choice.items() if value is not None})


def _encoding_of(array: AnyArray) -> tuple[tuple[int, ...], Encoding]:
    """The shape of an array's chunks, and how they are stored if all are alike."""
    if isinstance(array, Reader):
        chunks = chunk_shape(array)
        is_v2 = array.metadata.zarr_format == 2
        return chunks, Encoding(chunks=chunks) if is_v2 else _encoding_like(array.zarr_array, chunks)
    regions = array.regions
    if not regions:
        return array.chunks, Encoding(chunks=array.chunks)
    largest = max(regions, key=lambda region: region.nbytes)
    view = largest.view
    chunks = largest.chunks if view is None else tuple(size for size, _ in view.grid(largest.chunks))
    plain = all(region.packing is None and region.view is None for region in regions)
    names = {region.name for region in regions}
    if plain and len(names) <= MOST_COMPARED:
        members = [array.members[name] for name in names]
        if all(encoding_of(member.metadata) == encoding_of(members[0].metadata) for member in members):
            return chunks, _encoding_like(members[0], chunks)
    return chunks, Encoding(chunks=chunks)


def _encoding_like(stored: zarr.Array[Any], chunks: tuple[int, ...]) -> Encoding:
    codecs: Any = list(stored.metadata.codecs)  # type: ignore[union-attr]  # of Zarr v3
    if stored.shards is not None:
        codecs = list(codecs[0].codecs)
    return Encoding(codecs, chunks, None if stored.shards is None else tuple(stored.shards))


def copy_blocks(array: AnyArray, stored: zarr.Array[Any], target: Source, progress: Progress) -> None:
    """Write the values of an array to `target`, in blocks of whole chunks of `stored`; holes are left out.

    Steps of the progress are bytes of values.
    """
    whole, itemsize = Box.sized(array.shape), max(1, array.dtype.itemsize)
    manifest, done = array.manifest, 0
    progress(0, array.nbytes)
    for block in blocks(whole, grain(stored), itemsize):
        if not isinstance(array, LogicalArray) or manifest.regions.touching(manifest.cells(block)).size:
            values = read_request(array._handle, parse_selection(array.shape, block.slices or ..., "basic"))
            write_box(target, block, values)
        done += itemsize * prod(block.shape)
        progress(done, array.nbytes)
