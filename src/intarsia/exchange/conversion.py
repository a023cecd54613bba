"""`intarsia.convert`: arrays of Zarr become logical arrays, in the encoding that suits their values."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, Literal

import zarr

from intarsia._compat import sync
from intarsia.array import LogicalArray, create
from intarsia.array.hierarchy import is_logical, open_group
from intarsia.array.member import Encoding
from intarsia.array.reserve import clean_up, reserve_regions
from intarsia.array.write import write_box
from intarsia.codecs import CodecLike
from intarsia.errors import OverwriteError, ShapeError
from intarsia.exchange.block_copies import AnyStored, Described, Found, chosen, copy_blocks, node_of, walked
from intarsia.exchange.exporting import write_plain_array
from intarsia.progress import Progress, part_of, silent
from intarsia.tune import Objective, advise
from intarsia.versions.repository import check_name
from intarsia.versions.transaction import transaction
from intarsia.versions.version import as_repository, open, resolve


def convert(
    source: Any,
    repo: Any,
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
    """Copy a Zarr array of format 3 or 2, or a group with all arrays in it, into logical arrays.

    `source` is an array, or a store, group, path, URL or repository with something at `source_path`. `repo`
    is a repository, or the path or URL of one, where everything becomes one commit; or any other zarr store.
    `path` is the place in it; without it, an array keeps its name.

    `codecs="auto"` tries encodings on samples and takes the best for the `objective`, as `intarsia.advise`
    does; `None` keeps the codecs of an array of format 3. Chunks keep their shape unless you give another.
    Values are copied block by block, so that memory does not grow with the array. In a group, 1-d coordinates
    become plain arrays, as xarray has them. Steps of the progress are bytes of values.

    Args:
        chunks: The chunk shape to store; by default that of the source.
        shards: The shape of the shards, a whole number of chunks along each axis; by default there are none.
        branch: The branch of a repository that the commit goes to.
        message: The message of the commit; by default it says what was done.
        progress: A function that is called with the number of steps done and of all steps, see
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
    where = as_repository(repo)
    if where is None and isinstance(repo, str):
        check_name(repo)
    settings = {"codecs": codecs, "objective": objective, "chunks": chunks, "shards": shards}
    target: Any = nullcontext(None)
    if where is not None:
        target = transaction(where, branch, message or f"convert {path or 'a group'}")
    with target as tx:
        store = resolve(repo).store if tx is None else tx.store
        made = _converted(list(walked(node, path.strip("/"))), store, settings, progress)
    if where is not None:
        made = {name: open(where, name, branch=branch) for name in made}
    return made if isinstance(node, zarr.Group) else made[path.strip("/")]


def _name_of(array: AnyStored, source: Any) -> str:
    """What an array is called where it is: the last part of its path, or of the store's if it is alone."""
    name = array.path or (os.fspath(source) if isinstance(source, str | os.PathLike) else "")
    name = name.rstrip("/").rsplit("/", 1)[-1].removesuffix(".zarr")
    if not name:
        raise ShapeError("the array has no name of its own: say where it goes, convert(source, repo, path)")
    return name


def _converted(
    found: list[Found], store: Any, settings: dict[str, Any], progress: Progress
) -> dict[str, LogicalArray]:
    """All nodes, in a store; the logical arrays by path."""
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
    """Whether an array holds the coordinate of a dimension, and nothing else."""
    assert not isinstance(found.node, zarr.Group)
    names = Described.of(found.node).manifest.dimension_names
    return names == (found.path.rpartition("/")[2],)


def _logical(
    array: AnyStored, store: Any, path: str, settings: dict[str, Any], progress: Progress
) -> LogicalArray:
    """A logical array of one region with the values of an array."""
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
    except BaseException as error:  # an array that was not there before must not stay half-written
        clean_up(logical.group.store, error, lambda: sync(logical.group.store_path.delete_dir()))
        raise
