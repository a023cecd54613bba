"""`intarsia.adopt`: an existing array becomes a region of a logical array; its chunks stay as they are.

In a repository, chunks in files are referred to where they are. Elsewhere the stored bytes are copied.
Nothing is decoded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import icechunk
import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore, StorePath

from intarsia._compat import ArrayV3Metadata, is_regular, sync
from intarsia.archives.formats.virtualizarr import ranges_of, specified_codec
from intarsia.archives.formats.zarr import v2_to_v3_metadata
from intarsia.archives.parsed_file import ChunkRanges
from intarsia.archives.source_files import Sources, combined_identity, local_path, url_of
from intarsia.archives.write_plan import write_references
from intarsia.codecs.stored_chunks import stored_indices
from intarsia.display import bounds_text
from intarsia.engine.fetch.symlinks import refuse_links_out
from intarsia.engine.prepared_member import object_shape
from intarsia.engine.reader import Reader
from intarsia.errors import (
    AdoptionError,
    AlignmentError,
    NotLogicalArrayError,
    OverwriteError,
    ReadOnlyError,
    ShapeError,
    argument,
)
from intarsia.interop.node_copies import ArrayDescription, open_source
from intarsia.logical import opening
from intarsia.logical.chunk_copies import ChunkMove, copy_chunks
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.staging import clean_up, removed_on_failure
from intarsia.manifest.box import BoundsLike, chunk_grid, element_bounds
from intarsia.manifest.document import new_name
from intarsia.manifest.packing import Packing
from intarsia.manifest.view import View
from intarsia.versions.authorization import with_containers
from intarsia.versions.storage_options import source_options
from intarsia.versions.transaction import transaction
from intarsia.versions.version import as_repository, open, resolve_store


def adopt(
    store: Any,
    path: str,
    source: Any,
    bounds: BoundsLike | None = None,
    *,
    source_path: str = "",
    packing: Packing | Mapping[str, Any] | None = None,
    view: View | Mapping[str, Any] | None = None,
    how: Literal["auto", "copy"] = "auto",
    storage_options: Mapping[str, Any] | None = None,
    branch: str = "main",
    message: str | None = None,
) -> LogicalArray:
    """Make an existing array a region of the logical array at `path`, without decoding its chunks.

    `source` is a Zarr array of format 3 or 2, or the path, URL, store or group that has one at `source_path`,
    or chunks in other files as a `virtualizarr` `ManifestArray`. `bounds` is the box that it becomes. Without
    `bounds`, a source of the array's shape fills an array that has no regions yet; any other source goes
    after the end of the first axis. It must decode to the array's data type, or have a `packing` that does;
    a `view` turns its axes (as in `LogicalArray.add_region`).

    If there is nothing at `path`, the array is created, with the shape, data type, chunks, fill value,
    dimension names and attributes of the source.

    In a repository, chunks in files are referred to, in one commit. The returned array may read them, since
    you named them. Other chunks, and those for a store without versions, are copied as stored.

    Args:
        store: A repository, or the path or URL of one; or any other zarr store.
        how: `"copy"` copies chunks in files too.
        storage_options: The keys of the bucket that the source is in, as in `ingest`.
        branch: The branch of a repository that the commit goes to.
        message: The commit message; by default it says what was done.

    >>> import intarsia, numpy as np, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> old = zarr.create_array(f"{folder}/old.zarr", data=np.arange(4, dtype="f4"), chunks=2, zarr_format=2)
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> array = intarsia.adopt(repo, "t", f"{folder}/old.zarr")
    >>> array[...].tolist(), intarsia.explain(array).parts[0].fetched
    ([0.0, 1.0, 2.0, 3.0], 2)
    """
    if how not in ("auto", "copy"):
        raise ValueError(f"how={how!r} is not 'auto' or 'copy'")
    repo, backing = as_repository(store), {"packing": packing, "view": view}
    origin = _source_array(
        source, source_path, Sources(storage_options), refer=repo is not None and how == "auto"
    )
    if repo is None:
        return _put(resolve_store(store).store, path, origin, bounds, backing)
    if origin.ranges is not None:
        urls = origin.ranges.urls()
        repo, _ = with_containers(repo, urls, urls, source_options(storage_options))
    with transaction(repo, branch=branch, message=message or f"adopt {origin.text} into {path}") as tx:
        _put(tx.store, path, origin, bounds, backing)
    return open(repo, path, branch=branch)


@dataclass(frozen=True)
class _SourceArray:
    """An array to be adopted: what it is, and where its chunks are."""

    text: str
    """Its name in messages."""

    document: dict[str, Any]
    """Its metadata, in the form of a Zarr v3 member."""

    description: ArrayDescription
    """What a logical array for it looks like."""

    stored: zarr.Array[Any] | None = None
    """The array, to be copied; None if only references to its chunks are known."""

    ranges: ChunkRanges | None = None
    """Where its chunks are, if they are to be referred to."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.document["shape"])


def _source_array(source: Any, source_path: str, sources: Sources, *, refer: bool) -> _SourceArray:
    if hasattr(source, "manifest") and hasattr(source, "metadata") and not hasattr(source, "regions"):
        return _from_manifest(source, sources)
    node = open_source(source, source_path)
    if isinstance(node, zarr.Group):
        raise AdoptionError(
            f"a group cannot become a region: name one of its arrays with {argument('source_path')}"
        )
    if isinstance(node, LogicalArray):
        raise AdoptionError(
            "a logical array cannot become a region of another: adopt its members, or append its values"
        )
    stored = node.zarr_array
    url = _url_of(stored, source, source_path)
    text = url or stored.path or "an array"
    document, description = _document(stored), ArrayDescription.of(node)
    folder = None if url is None else local_path(url)
    if folder is not None and folder.is_dir():
        refuse_links_out(folder)
    ranges = None if url is None or not refer else _list_chunks(stored, url, sources)
    return _SourceArray(text, document, description, stored, ranges)


def _document(stored: zarr.Array[Any]) -> dict[str, Any]:
    """The zarr.json of a member that reads the chunks of an array; refused if v3 has no name for a codec."""
    metadata: Any = stored.metadata
    if metadata.zarr_format == 2:
        try:
            as_v2 = json.loads(metadata.to_buffer_dict(default_buffer_prototype())[".zarray"].to_bytes())
            metadata = v2_to_v3_metadata(as_v2, {})
        except (ValueError, TypeError, KeyError, NotImplementedError) as error:
            raise AdoptionError(
                f"the Zarr v2 array {stored.path or '/'!r}, as stored, cannot be read as v3: {error}.\n"
                "  intarsia.convert copies its values instead"
            ) from error
    return _as_member(metadata)


def _as_member(metadata: ArrayV3Metadata) -> dict[str, Any]:
    if not is_regular(metadata.chunk_grid):
        raise AdoptionError("its chunks differ in size: intarsia.convert copies its values instead")
    document: dict[str, Any] = dict(metadata.to_dict())
    document["codecs"] = [specified_codec(codec.to_dict()) for codec in metadata.codecs]
    # Icechunk has no other keys, and members of plain stores should look alike.
    document["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "/"}}
    document["attributes"] = {}
    return document


def _url_of(stored: zarr.Array[Any], source: Any, source_path: str) -> str | None:
    """Where the array's files are; None if they are not files, or it is unknown."""
    if isinstance(source, str | os.PathLike) and as_repository(source) is None:
        url = url_of(source).rstrip("/")
        return "/".join([url, *map(quote, filter(None, source_path.split("/")))])
    store: Any = stored.store
    if isinstance(store, LocalStore):
        return url_of(Path(store.root, stored.path).resolve())
    return None


def _list_chunks(stored: zarr.Array[Any], url: str, sources: Sources) -> ChunkRanges:
    metadata: Any = stored.metadata
    sizes, grid = sources.sizes_below(url), chunk_grid(stored.shape, object_shape(stored))
    keys = [metadata.encode_chunk_key(index) for index in np.ndindex(grid)]
    lengths = np.array([sizes.get(key, 0) for key in keys], dtype=np.uint64).reshape(grid)
    locations = np.array([f"{url}/{key}" if sizes.get(key) else "" for key in keys]).reshape(grid)
    return ChunkRanges(locations, np.zeros_like(lengths), lengths, identity=sources.identity(url))


def _from_manifest(source: Any, sources: Sources) -> _SourceArray:
    """References in the form of VirtualiZarr."""
    ranges = ranges_of(source)
    if ranges.inlined:
        raise AdoptionError("some of its chunks are not part of a file: write them as an array first")
    if urls := ranges.urls():
        ranges.identity = combined_identity([sources.identity(url) for url in urls])
    like = zarr.Array.from_dict(StorePath(MemoryStore()), source.metadata.to_dict())
    description, document = ArrayDescription.of(Reader.of(like)), _as_member(source.metadata)
    return _SourceArray("a manifest of chunks", document, description, ranges=ranges)


def _put(
    store: Any, path: str, origin: _SourceArray, bounds: BoundsLike | None, backing: Mapping[str, Any]
) -> LogicalArray:
    """Make a source a region of the array at a path; if there is nothing, the array is made for it."""
    guard: AbstractContextManager[None] = nullcontext()
    try:
        array = opening.open(store, path, mode="r+")
    except NotLogicalArrayError as error:
        if bounds is not None or any(value is not None for value in backing.values()):
            raise
        try:
            array = origin.description.create_logical(store, path)
        except OverwriteError:
            raise error from None  # it says what is there
        guard = removed_on_failure(array.group.store_path)
    with guard:
        _add(array, origin, bounds, backing)
    return array


def _add(
    array: LogicalArray, origin: _SourceArray, bounds: BoundsLike | None, backing: Mapping[str, Any]
) -> None:
    """Make a source a member, and add its region."""
    array._logical.begin_edit()
    before = array.shape
    if bounds is None:
        box = _next_box(array, origin, is_turned=backing["view"] is not None)
    else:
        box = element_bounds(bounds, before)
        if backing["view"] is None and tuple(b - a for a, b in box) != origin.shape:
            raise ShapeError(
                f"{origin.text} has shape {origin.shape}, but the bounds {bounds_text(box)} have another "
                "shape"
            )
    name = new_name()

    def undo() -> None:
        array._logical.discard(name)
        if array.shape != before:
            array.resize(before)

    try:
        _write_member(array, origin, name)
        if bounds is None:
            array.resize([max(n, b) for n, (_, b) in zip(before, box, strict=True)])
        array.add_region(box, member=name, **backing)
    except BaseException as error:
        clean_up(array.group.store, error, undo)
        raise


def _next_box(array: LogicalArray, origin: _SourceArray, *, is_turned: bool) -> list[tuple[int, int]]:
    """The box that a source becomes without bounds: all of an empty array, or one after its end."""
    shape = origin.shape
    if is_turned:
        raise ShapeError(f"a view needs {argument('bounds')}, which say what box the source becomes")
    if not len(array.manifest.regions) and array.shape == shape:
        return [(0, n) for n in shape]
    if len(shape) != array.ndim or shape[1:] != array.shape[1:]:
        raise ShapeError(
            f"{origin.text} has shape {shape} and does not fit after the array of shape {array.shape}: "
            f"say with {argument('bounds')} where it goes"
        )
    end = array.shape[0]
    if end % array.chunks[0]:
        raise AlignmentError(
            f"the array ends at {end}, in the middle of a logical chunk of {array.chunks[0]}: stored "
            "chunks cannot follow there.\n  Append values instead: array.append(source[...])",
            command="Append values instead: intarsia append",
        )
    return [(end, end + shape[0]), *((0, n) for n in shape[1:])]


def _write_member(array: LogicalArray, origin: _SourceArray, name: str) -> None:
    """A new member with the chunks of the source: references, or copies of the stored bytes."""
    store_path = array.group.store_path / name
    document = json.dumps(origin.document).encode()
    sync((store_path / "zarr.json").set(default_buffer_prototype().buffer.from_bytes(document)))
    if origin.ranges is not None:
        if not isinstance(store_path.store, icechunk.IcechunkStore):
            raise ReadOnlyError("only a repository can refer to chunks elsewhere: adopt into one")
        if write_references(store_path.store, store_path.path, origin.ranges):
            raise AdoptionError(
                f"{origin.text} has chunks in a place that the repository may not refer to: "
                "adopt into the repository, not into a session of it, so that the place can be added to it"
            )
        return
    assert origin.stored is not None
    indices: Iterable[tuple[int, ...]] = np.ndindex(chunk_grid(origin.shape, object_shape(origin.stored)))
    if origin.stored.metadata.zarr_format == 3:
        indices = stored_indices(origin.stored)
    copy_chunks(origin.stored, array.members.child(name), [ChunkMove(index, index) for index in indices])
