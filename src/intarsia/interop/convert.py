"""`convert` makes Zarr arrays logical arrays, in the encoding that suits them; `export` is the way back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import icechunk
import zarr
from zarr.errors import ContainsArrayError, ContainsGroupError
from zarr.storage import StorePath

from intarsia._compat import sync
from intarsia.codecs import CodecLike
from intarsia.display import one_line, place_text
from intarsia.engine.member_source import Source
from intarsia.engine.write import write_box
from intarsia.errors import OverwriteError, ReadOnlyError, ShapeError
from intarsia.interop.block_copies import AnyStored, Described, Found, chosen, copy_blocks, node_of, walked
from intarsia.logical.advice import Objective, advise
from intarsia.logical.hierarchy import is_logical, open_group
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.members import Encoding, create_member
from intarsia.logical.opening import create
from intarsia.logical.staging import clean_up, reserve_regions
from intarsia.progress import Progress, part_of, silent
from intarsia.versions.repository import check_name
from intarsia.versions.transaction import transaction
from intarsia.versions.version import Version, as_repository, open, resolve


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
    node = node_of(source, source_path)
    if not isinstance(node, zarr.Group) and not path.strip("/"):
        path = _name_of(node, source)
    where = as_repository(store)
    if where is None and isinstance(store, str):
        check_name(store)
    settings = {"codecs": codecs, "objective": objective, "chunks": chunks, "shards": shards}
    target: Any = nullcontext(None)
    if where is not None:
        target = transaction(where, branch=branch, message=message or f"convert {path or 'a group'}")
    with target as tx:
        store = resolve(store).store if tx is None else tx.store
        made = _converted(list(walked(node, path.strip("/"))), store, settings, progress)
    if where is not None:
        made = {name: open(where, name, branch=branch) for name in made}
    return made if isinstance(node, zarr.Group) else made[path.strip("/")]


def _name_of(array: AnyStored, source: Any) -> str:
    """The name of an array: the last part of its path, or of the store's path if it is at the root."""
    name = array.path or (os.fspath(source) if isinstance(source, str | os.PathLike) else "")
    name = name.rstrip("/").rsplit("/", 1)[-1].removesuffix(".zarr")
    if not name:
        raise ShapeError("the array has no name of its own: say where it goes: convert(source, repo, path)")
    return name


def _converted(
    found: list[Found], store: Any, settings: dict[str, Any], progress: Progress
) -> dict[str, LogicalArray]:
    """Convert all nodes into a store, and return the logical arrays by path."""
    whole = sum(each.node.nbytes for each in found if not isinstance(each.node, zarr.Group))
    made: dict[str, LogicalArray] = {}
    done = 0
    progress(0, whole)
    for each in found:
        if isinstance(each.node, zarr.Group):
            group = open_group(store, each.path, "a")
            if is_logical(group):
                raise OverwriteError(f"there is a logical array at {each.path or '/'!r}: choose another path")
            group.update_attributes(dict(each.node.attrs))
            continue
        part = part_of(progress, done, each.node.nbytes, whole)
        if len(found) > 1 and _is_coordinate(each):
            plain = open_group(store, each.path.rpartition("/")[0], "a")
            write_plain_array(each.node, plain.store_path / each.path.rpartition("/")[2], progress=part)
        else:
            made[each.path] = _logical(each.node, store, each.path, settings, part)
        done += each.node.nbytes
    progress(whole, whole)
    return made


def _is_coordinate(found: Found) -> bool:
    """Whether an array holds nothing but the coordinate of a dimension."""
    assert not isinstance(found.node, zarr.Group)
    names = Described.of(found.node).manifest.dimension_names
    return names == (found.path.rpartition("/")[2],)


def _logical(
    array: AnyStored, store: Any, path: str, settings: dict[str, Any], progress: Progress
) -> LogicalArray:
    """A logical array that holds the values of an array in one region."""
    described, chunks = Described.of(array), settings["chunks"]
    manifest = described.manifest
    codecs = settings["codecs"]
    if isinstance(codecs, str) and codecs == "auto":
        codecs = advise(array, settings["objective"]).codecs if array.size else None
    made = create(
        store,
        path,
        shape=array.shape,
        chunks=manifest.chunk_shape if chunks is None else chunks,
        dtype=manifest.data_type,
        fill_value=manifest.fill_value,
        dimension_names=manifest.dimension_names,
        attributes=described.attributes,
    )
    if array.size:
        _fill(array, made, chosen(described.encoding, codecs, chunks, settings["shards"]), progress)
    return made


def _fill(array: AnyStored, made: LogicalArray, encoding: Encoding, progress: Progress) -> None:
    logical = made._logical
    try:
        room = reserve_regions(logical, [([(0, n) for n in array.shape], encoding)])
        (name,) = room.made
        target = logical.target(name, room.options[name])
        copy_blocks(
            array, logical.members[name], lambda box, values: write_box(target, box, values), progress
        )
        room.settle(logical)
    except BaseException as error:  # a new array must not stay half-written
        clean_up(logical.group.store, error, lambda: sync(logical.group.store_path.delete_dir()))
        raise


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
    found = list(walked(node_of(source, source_path, Version(branch, tag, snapshot_id, as_of))))
    place = _free_place(store, path.strip("/"), found[0].node, overwrite=overwrite)
    whole = sum(each.node.nbytes for each in found if not isinstance(each.node, zarr.Group))
    progress(0, whole)
    done = 0
    try:
        for each in found:
            there = place / each.path if each.path else place
            if isinstance(each.node, zarr.Group):
                open_group(there.store, there.path, "w-").update_attributes(dict(each.node.attrs))
                continue
            write_plain_array(
                each.node, there, codecs, chunks, shards, part_of(progress, done, each.node.nbytes, whole)
            )
            done += each.node.nbytes
    except BaseException as error:
        clean_up(place.store, error, lambda: sync(place.delete_dir()))
        raise
    progress(whole, whole)
    return zarr.open(place, mode="r+")


def write_plain_array(
    array: AnyStored,
    place: StorePath,
    codecs: Iterable[CodecLike] | None = None,
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
    progress: Progress = silent,
) -> zarr.Array[Any]:
    """A plain Zarr v3 array with everything that is known about an array of any kind."""
    described = Described.of(array)
    encoding = replace(chosen(described.encoding, codecs, chunks, shards), fill_value=array.fill_value)
    made = create_member(place.store, place.path or None, described.manifest, array.shape, encoding)
    if described.attributes:
        made.update_attributes(described.attributes)
    target = Source.of(place.path or "/", made)
    copy_blocks(array, made, lambda box, values: write_box(target, box, values), progress)
    return made


def _free_place(target: Any, to: str, node: AnyStored | zarr.Group, *, overwrite: bool) -> StorePath:
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


def _check_apart(target: Any, to: str, node: AnyStored | zarr.Group) -> None:
    """Refuse to write an array over itself."""
    own = node.store_path if isinstance(node, zarr.Group) else node._ground.store_path
    root = getattr(own.store, "root", None)
    if root is None or not isinstance(target, str | Path):
        same = getattr(target, "store", target) is own.store and to == own.path
    else:
        here, there = Path(root, own.path).resolve(), Path(str(target).removeprefix("file://"), to).resolve()
        same = here == there or here in there.parents or there in here.parents
    if same:
        raise OverwriteError(f"{place_text(own)} cannot be exported onto or into itself")
