"""Creating and opening logical arrays, and opening any Zarr array for fast reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import icechunk
import zarr
from zarr.errors import ContainsArrayError, ContainsGroupError

from intarsia.display import names_text, place_text
from intarsia.engine.reader import Reader
from intarsia.errors import (
    IntarsiaError,
    ManifestError,
    MetadataError,
    NotLogicalArrayError,
    OverwriteError,
    ReadOnlyError,
    ShapeError,
)
from intarsia.logical.attributes import RESERVED
from intarsia.logical.hierarchy import (
    is_any_array,
    is_logical,
    names_below,
    nodes_below,
    not_logical,
    open_group,
    open_node,
    session_store,
    why_missing,
)
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.box import parse_shape
from intarsia.manifest.data_types import data_type_of, plain_type
from intarsia.manifest.document import MAX_ELEMENTS
from intarsia.manifest.manifest import Manifest


def create(
    store: Any,
    path: str = "",
    *,
    shape: Sequence[int] | int,
    chunks: Sequence[int] | int | None = None,
    dtype: Any,
    fill_value: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> LogicalArray:
    """Create a logical array without regions in any zarr store or group.

    `chunks` is the lattice that regions align to; members may have other chunks. By default, zarr chooses it
    by the shape.

    Args:
        store: A zarr store or group, a path or URL, a dictionary, or an open transaction.
        path: Where the array goes in the store.
        shape: The shape, in elements. An axis that will grow may begin with 0.
        chunks: The lattice, see above.
        dtype: The data type: anything that zarr takes, or an optional one such as `"optional[int32]"`.
        fill_value: What holes read as; by default the zero of the data type, or null.
        dimension_names: A name, or None, for every axis.
        attributes: Attributes of the array.
        overwrite: Whether to replace anything at this path. Otherwise it is an error if something is there.

    >>> import intarsia
    >>> intarsia.create({}, "t", shape=(0, 720, 1440), chunks=(24, 90, 180), dtype="float32").chunks
    (24, 90, 180)
    """
    sizes = parse_shape(shape, "shape")
    if chunks is None:
        values = plain_type(data_type_of(dtype))
        chunks = zarr.create_array({}, shape=[max(n, 1) for n in sizes], dtype=values).chunks
    names = None if dimension_names is None else tuple(dimension_names)
    reserved = RESERVED & set(attributes or {})
    if reserved:
        raise KeyError(f"the attribute {min(reserved)!r} belongs to intarsia's manifest and cannot be set")
    manifest = Manifest.empty(sizes, parse_shape(chunks, "chunks"), dtype, fill_value, names)
    try:
        manifest = Manifest.from_json(manifest.to_json())  # anything that a reader would refuse is refused
    except ManifestError as error:
        raise ShapeError(f"such an array is impossible: {'; '.join(error.problems)}") from error
    if isinstance(store, icechunk.Repository):
        raise TypeError(
            "a repository is changed in a transaction: with intarsia.transaction(repo) as tx: tx.create(…)"
        )
    try:
        group = open_group(session_store(store), path, "w" if overwrite else "w-")
    except (FileExistsError, ContainsArrayError, ContainsGroupError) as error:
        raise OverwriteError(
            f"there is already something at {path or '/'!r}.\n"
            "  Choose another path, or replace it: overwrite=True",
            command="Choose another path",
        ) from error
    logical = LogicalArrayHandle(group, manifest)
    logical.commit(manifest, attributes)
    return LogicalArray(logical)


def open(store: Any, path: str = "", *, mode: str = "r") -> LogicalArray:
    """Open a logical array for reading (`"r"`) or for reading and writing (`"r+"`).

    >>> import intarsia
    >>> store = {}
    >>> _ = intarsia.create(store, "t", shape=(4,), chunks=(2,), dtype="u1")
    >>> intarsia.open(store, "t").read_only
    True
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"mode {mode!r} is not 'r' or 'r+'; to make a new array use intarsia.create")
    try:
        group = open_group(store, path, mode)
    except (ManifestError, ReadOnlyError):
        raise
    except (FileNotFoundError, ValueError) as error:
        nothing = f"there is no logical array at {path!r}{why_missing(store, error)}{_others(store, path)}"
        raise not_logical(store, path, nothing) from error
    if not is_logical(group) and (names := _names(group)):
        raise NotLogicalArrayError(
            f"{place_text(group.store_path)} is a Zarr group, but not a logical array.\n"
            f"  Name an array in it: {names_text('', names)}"
        )
    return LogicalArray(LogicalArrayHandle.load(group))


def _others(store: Any, path: str) -> str:
    """What there is in the group that a path leads to, and what was probably meant."""
    above, _, name = path.strip("/").rpartition("/")
    try:
        sibling_names = _names(open_group(store, above, "r")) if name else []
    except (OSError, ValueError, IntarsiaError):
        return ""
    return f".\n  In {above or 'the root'}: {names_text(name, sibling_names)}" if sibling_names else ""


def _names(group: zarr.Group) -> list[str]:
    """The names below a group, except its own metadata."""
    return [name for name in names_below(group) if name not in ("zarr.json", "c") and name[:2] != ".z"]


type Readers = dict[str, Reader | LogicalArray]
"""Every array in a group and in the groups below it, by path."""


def reader(source: Any, path: str = "") -> Reader | LogicalArray | Readers:
    """Read any Zarr array as fast as a logical array: an open one, or what is at a path in a store or group.

    >>> import zarr
    >>> group = zarr.create_group({})
    >>> _ = group.create_array("a/x", shape=4, dtype="u1")
    >>> reader(group, "a/x").shape, sorted(reader(group))
    ((4,), ['a/x'])
    """
    from intarsia.nullable import NullableArray

    if isinstance(source, NullableArray):
        source = source.zarr_array
    elif isinstance(source, zarr.AsyncArray):
        source = zarr.Array(source)
    if isinstance(source, zarr.Array | Reader | LogicalArray):
        if path:
            raise TypeError(f"{source!r} is an array: there is nothing at {path!r} below it")
        return Reader.of(source) if isinstance(source, zarr.Array) else source
    node = open_node(source, path)
    if is_any_array(node):
        return _array_of(node)
    assert isinstance(node, zarr.Group)
    return {path: _array_of(below) for path, below in nodes_below(node) if is_any_array(below)}


def _array_of(node: zarr.Array[Any] | zarr.Group) -> Reader | LogicalArray:
    if isinstance(node, zarr.Array):
        longest = max(node.shape, default=0)
        if longest >= MAX_ELEMENTS:
            place = place_text(node.store_path)
            raise MetadataError(f"the metadata of {place} cannot be right: an axis has {longest} elements")
        return Reader.of(node)
    return LogicalArray(LogicalArrayHandle.load(node))
