"""Fused views: logical arrays as other programs expect arrays, without copying anything."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import zarr

from intarsia._icechunk import safe_store
from intarsia.array import LogicalArray
from intarsia.array.document import MANIFEST_KEY
from intarsia.codecs.configuration import parse_codec
from intarsia.errors import NotLogicalArrayError, ShapeError
from intarsia.interop.views.view_store import ViewStore
from intarsia.versions.version import LATEST, Version, resolve
from intarsia.words import one_line

if TYPE_CHECKING:
    from intarsia.codecs import CodecLike


def fused_view(
    source: Any,
    path: str = "",
    *,
    codecs: Iterable[CodecLike] | None = None,
    chunks: Sequence[int] | None = None,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
) -> zarr.Group | zarr.Array[Any]:
    """What is at `path`, read-only, with every logical array as one ordinary Zarr array.

    `source` is a repository (where `branch`, `tag`, `snapshot_id` and `as_of` count), a session, a store, a
    group, a path or URL, or a logical array. The result is zarr's own: an array or a group, whose `store`
    can be given to whatever takes a zarr store. Members do not show; groups and plain arrays are as they
    are. A chunk is read from its members when it is asked for, and encoded with `codecs`, by default fast
    zstd; `codecs=[]` does not compress. The chunk grid is the logical one; for one array, `chunks` may ask
    for another, such as larger chunks where the lattice is finer than the members' chunks.

    >>> import intarsia
    >>> array = intarsia.create({}, "t", shape=(0,), chunks=(2,), dtype="i4")
    >>> array.append([1, 2, 3, 4], codecs=["gzip"])
    >>> array.append([5], codecs=["zstd"])
    >>> view = intarsia.fused_view(array)
    >>> type(view).__module__, view[1:].tolist()
    ('zarr.core.array', [2, 3, 4, 5])
    """
    version = Version(branch, tag, snapshot_id, as_of)
    return zarr.open(view_store(source, path, codecs, chunks, version=version), mode="r", zarr_format=3)


def view_store(
    source: Any,
    path: str = "",
    codecs: Iterable[CodecLike] | None = None,
    chunks: Sequence[int] | None = None,
    *,
    consolidated: bool = False,
    version: Version = LATEST,
) -> ViewStore:
    """The store of a view, with what is at `path` as its root."""
    chosen = None if codecs is None else tuple(parse_codec(codec) for codec in codecs)
    store = resolve(source.group if isinstance(source, LogicalArray) else source, version).store
    inside = path.strip("/")
    if isinstance(store, zarr.Group):
        inside = f"{store.path}/{inside}".strip("/")
        store = safe_store(store.store_path.store)
    try:
        node = zarr.open(store, path=inside or None, mode="r", zarr_format=3)
    except FileNotFoundError as error:
        raise NotLogicalArrayError(
            f"there is no array and no group at {path or '/'!r}: {one_line(error)}"
        ) from error
    if chunks is not None and MANIFEST_KEY not in node.attrs:
        raise ShapeError(
            f"chunks {tuple(chunks)} are for the view of one logical array, and {path or '/'!r} is none"
        )
    grid = None if chunks is None else tuple(int(n) for n in chunks)
    return ViewStore(node.store_path.store, inside, chosen, grid, consolidated=consolidated)
