"""`convert` copies Zarr arrays into logical arrays; `export` writes arrays of any kind as plain Zarr, by a
copy of their values or by references to the files that hold them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import zarr
from zarr.errors import ContainsArrayError, ContainsGroupError
from zarr.storage import StorePath

from intarsia._compat import sync
from intarsia.archives.references.to_virtual_zarr import VirtualParts
from intarsia.codecs import CodecLike
from intarsia.display import one_line, place_text
from intarsia.errors import OverwriteError, ReadOnlyError, ShapeError, argument
from intarsia.interop.node_copies import (
    AnyArray,
    ArrayDescription,
    copy_nodes,
    open_source,
    walk,
    write_logical_array,
    write_plain_array,
)
from intarsia.interop.write_jobs import write_to
from intarsia.logical.advice import Objective, advise
from intarsia.logical.encoding import Encoding
from intarsia.logical.hierarchy import open_group, session_store
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.staging import removed_on_failure
from intarsia.progress import Progress, silent
from intarsia.versions.authorization import with_containers_of
from intarsia.versions.repository import check_name, describe, open_repository, remove_new_store_on_failure
from intarsia.versions.transaction import transaction
from intarsia.versions.version import ResolvedStore, Version, as_repository, open, resolve_store


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
    arrays: dict[str, LogicalArray] = {}

    def convert_array(target: Any, path: str, array: AnyArray, part: Progress) -> None:
        parent, _, name = path.rpartition("/")
        if len(nodes) > 1 and ArrayDescription.of(array).manifest.dimension_names == (name,):
            place = open_group(target, parent, "a").store_path / name  # the coordinate of a dimension
            write_plain_array(array, place, Encoding(), part)
            return
        chosen = codecs
        if isinstance(codecs, str) and codecs == "auto":
            chosen = advise(array, objective).codecs if array.size else None
        choice = Encoding(chosen, chunks, shards)
        arrays[path] = write_logical_array(array, target, path, choice, part)

    def write(target: Any) -> None:
        open_target = partial(open_group, target, mode="a")
        copy_nodes(nodes, open_target, partial(convert_array, target), progress)

    write_to(repo or store, write, branch=branch, message=message or f"convert {path or 'a group'}")
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


def export(
    source: Any,
    store: Any,
    path: str = "",
    *,
    source_path: str = "",
    to: Literal["zarr", "virtual"] = "zarr",
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

    With `to="virtual"`, no values are copied. `source` is then the repository of an ingested dataset, at
    `source_path`, and `store` an Icechunk repository, or its path or URL, which is created if it does not
    exist. Each part of the dataset in which no variable changes its encoding becomes a group of ordinary Zarr
    arrays, whose chunks are ranges of the source files. If there are several, they are groups below `path`,
    named after their indices, such as `time0-30`. Packed values keep their packing as attributes, which
    xarray decodes. Reversed or transposed regions and codecs of intarsia are refused before anything is
    created; if the export fails later, an empty repository may stay in a bucket.
    `intarsia.archives.to_kerchunk` writes the same parts as kerchunk references.

    Args:
        to: `"zarr"` copies the values; `"virtual"` refers to the source files of an ingested dataset.
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`. Steps are bytes of values, or variables of virtual parts.

    >>> import intarsia
    >>> array = intarsia.create({}, "t", shape=(0,), chunks=(2,), dtype="i4", dimension_names=["x"])
    >>> array.append([1, 2], codecs=["gzip"])
    >>> array.append([3, 4], codecs=["zstd"])
    >>> z = intarsia.export(array, zarr.storage.MemoryStore(), "plain/t")
    >>> z[...].tolist(), z.metadata.dimension_names
    ([1, 2, 3, 4], ('x',))

    >>> import tempfile, h5py, numpy as np
    >>> folder = tempfile.mkdtemp()
    >>> for day in range(3):
    ...     with h5py.File(f"{folder}/{day}.h5", "w") as file:
    ...         file["time"] = np.array([day])
    ...         gzip = None if day < 2 else "gzip"
    ...         _ = file.create_dataset("sst", data=np.ones((1, 4), "f4"), chunks=(1, 2), compression=gzip)
    ...         file["time"].make_scale("time")
    ...         file["sst"].dims[0].attach_scale(file["time"])
    >>> report = intarsia.ingest(f"{folder}/*.h5", f"{folder}/repository", concat_dim="time")
    >>> parts = intarsia.export(report.repository, f"{folder}/plain", to="virtual")
    >>> [(name, part["sst"].shape) for name, part in sorted(parts.groups())]
    [('time0-2', (2, 4)), ('time2-3', (1, 4))]
    """
    choice, version = Encoding(codecs, chunks, shards), Version(branch, tag, snapshot_id, as_of)
    if to == "virtual":
        if choice != Encoding():
            raise TypeError("virtual arrays keep the encoding of the files: give no codecs, chunks or shards")
        return _export_virtual(
            resolve_store(source, version), source_path, store, path, overwrite=overwrite, progress=progress
        )
    if to != "zarr":
        raise ValueError(f"to={to!r} is not 'zarr' or 'virtual'")
    nodes = walk(open_source(source, source_path, version))
    with remove_new_store_on_failure(store):
        place = _free_place(store, path.strip("/"), nodes[0].node, overwrite=overwrite)

        def open_target(path: str) -> zarr.Group:
            return open_group(place.store, (place / path).path, "a")

        def export_array(path: str, array: AnyArray, part: Progress) -> None:
            write_plain_array(array, place / path, choice, part)

        with removed_on_failure(place):
            copy_nodes(nodes, open_target, export_array, progress)
        return zarr.open(place, mode="r+")


def _free_place(target: Any, to: str, node: AnyArray | zarr.Group, *, overwrite: bool) -> StorePath:
    """The place to write to, which is empty or may be overwritten."""
    if isinstance(target, str | Path):
        check_name(target)
    if as_repository(target) is not None:
        raise ReadOnlyError(
            "a repository is changed by commits: export to a directory or a store, or into a transaction, "
            "intarsia.export(source, tx.store).\n  To have the array in the repository: intarsia.convert"
        )
    target = session_store(target)
    _check_apart(target, to, node)
    # A group is made first, because zarr then says what is in the way; the export replaces it.
    place = _new_group(target, to, overwrite=overwrite).store_path
    sync(place.delete_dir())
    return place


def _new_group(target: Any, to: str, *, overwrite: bool) -> zarr.Group:
    """An empty group at a place that is empty or may be overwritten."""
    mode: Any = "w" if overwrite else "w-"
    try:
        return zarr.open_group(target, path=to or None, mode=mode, zarr_format=3)
    except (ContainsArrayError, ContainsGroupError, FileExistsError) as error:
        raise OverwriteError(
            f"there is already something at {to or str(target)!r}: choose another place, "
            f"or replace it with {argument('overwrite', True)}"
        ) from error
    except ValueError as error:
        raise OverwriteError(f"nothing can be written to {to or str(target)!r}: {one_line(error)}") from error


def _export_virtual(
    source: ResolvedStore, source_path: str, store: Any, path: str, *, overwrite: bool, progress: Progress
) -> zarr.Group:
    if source.repo is None:
        raise TypeError("only a dataset in an Icechunk repository can be exported as virtual arrays")
    source_path, path = source_path.strip("/"), path.strip("/")
    parts = VirtualParts(source.store, source_path)  # refuses what cannot be expressed
    with remove_new_store_on_failure(store):
        repo = with_containers_of(open_repository(store, create=True), source.repo)
        replaces_source = overwrite and f"{source_path}/".startswith(f"{path}/" if path else "")
        if replaces_source and describe(repo) == describe(source.repo):
            raise OverwriteError(f"{source_path or '/'!r} cannot be exported onto itself")
        with transaction(repo, message=f"export {source_path or 'a dataset'} as virtual arrays") as tx:
            parts.write(_new_group(tx.store, path, overwrite=overwrite), progress)
    return open_group(resolve_store(repo).store, path, "r")


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
