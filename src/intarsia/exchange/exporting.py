"""`intarsia.export`: arrays as plain Zarr v3, for programs that know nothing of logical arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import icechunk
import zarr
from zarr.errors import ContainsArrayError, ContainsGroupError
from zarr.storage import StorePath

from intarsia._compat import sync
from intarsia.array.hierarchy import open_group
from intarsia.array.member import create_member
from intarsia.array.reserve import clean_up
from intarsia.array.source import Source
from intarsia.array.write import write_box
from intarsia.codecs import CodecLike
from intarsia.errors import OverwriteError, ReadOnlyError
from intarsia.exchange.block_copies import AnyStored, Described, chosen, copy_blocks, node_of, walked
from intarsia.progress import Progress, part_of, silent
from intarsia.versions.repository import check_name
from intarsia.versions.version import Version, as_repository
from intarsia.words import one_line, place_text


def export(
    source: Any,
    target: Any,
    path: str = "",
    *,
    to: str = "",
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
    """Write arrays as plain Zarr v3: values, names of dimensions, attributes, fill value.

    `source` is an array, or a repository, store, group, path or URL with an array or a group at `path`; a
    group is written with everything in it. In a repository, `branch`, `tag`, `snapshot_id` or `as_of` chooses
    the version. `target` is a zarr store or a path, and `to` the place in it.

    Values are copied block by block, so that memory does not grow with the arrays; packed values are
    unpacked, and holes are not stored. An array with the same encoding everywhere keeps its codecs, chunks
    and shards. Others get the chunks of their largest region and zarr's own codecs, unless `codecs`, `chunks`
    or `shards` say otherwise. Nullable arrays stay nullable. What is at the target is kept, unless
    `overwrite=True`; if anything fails, nothing is left there. Steps of the progress are bytes of values.

    Args:
        progress: A function that is called with the number of steps done and of all steps, see
            `intarsia.types.Progress`. Steps are bytes of values.

    >>> import intarsia
    >>> array = intarsia.create({}, "t", shape=(0,), chunks=(2,), dtype="i4", dimension_names=["x"])
    >>> array.append([1, 2], codecs=["gzip"])
    >>> array.append([3, 4], codecs=["zstd"])
    >>> z = intarsia.export(array, zarr.storage.MemoryStore(), to="plain/t")
    >>> z[...].tolist(), z.metadata.dimension_names
    ([1, 2, 3, 4], ('x',))
    """
    found = list(walked(node_of(source, path, Version(branch, tag, snapshot_id, as_of))))
    place = _free_place(target, to.strip("/"), found[0].node, overwrite=overwrite)
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
    """A plain array of Zarr v3 with all that an array of any kind is."""
    described = Described.of(array)
    encoding = replace(chosen(described.encoding, codecs, chunks, shards), fill_value=array.fill_value)
    made = create_member(place.store, place.path or None, described.manifest, array.shape, encoding)
    if described.attributes:
        made.update_attributes(described.attributes)
    target = Source.of(place.path or "/", made)
    copy_blocks(array, made, lambda box, values: write_box(target, box, values), progress)
    return made


def _free_place(target: Any, to: str, node: AnyStored | zarr.Group, *, overwrite: bool) -> StorePath:
    """The place to write to: nothing is there, or it may go."""
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
        # A group is made first, as zarr then says what is in the way; what comes takes its place.
        group = zarr.open_group(target, path=to or None, mode=mode, zarr_format=3)
    except (ContainsArrayError, ContainsGroupError, FileExistsError) as error:
        raise OverwriteError(
            f"there is something at {to or str(target)!r} already: choose another place, "
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
        raise OverwriteError(f"{place_text(own)} cannot be exported into itself, or to where it lies")
