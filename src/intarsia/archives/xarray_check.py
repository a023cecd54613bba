"""Whether xarray can open what was written, before it is committed.

The dataset is built from its metadata, by xarray's own rules: only the values of indexes are read. Variables
with which that fails are found one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import zarr

from intarsia.archives.cf import decoded_fill_attribute
from intarsia.display import one_line
from intarsia.engine.zarr_fallback import read_by_zarr
from intarsia.extras import import_extra
from intarsia.logical.attributes import RESERVED, with_floats
from intarsia.logical.hierarchy import LEDGER, groups_below, is_logical, open_group
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.data_types import values_dtype


def variable_problems(store: Any, path: str, existing: Iterable[str], new: Iterable[str]) -> dict[str, str]:
    """Variables that keep the dataset at a path of a store from opening, and why.

    Those in `existing` existed before: a new variable that conflicts with them is to blame.

    >>> import intarsia, zarr
    >>> store = zarr.storage.MemoryStore()
    >>> for name, size in (("a", 2), ("b", 3)):
    ...     axis = {"shape": (size,), "chunks": (1,), "dimension_names": ["x"]}
    ...     _ = intarsia.create(store, name, **axis, dtype="i4")
    >>> variable_problems(store, "", ["a"], ["b"])
    {'b': "conflicting sizes for dimension 'x': length 3 on 'b' and length 2 on {'x': 'a'}"}
    """
    children = dict(open_group(store, path, "r").members())
    read = cache(lambda name: _variable(children[name]))

    def sift(fitting: Sequence[str], names: Sequence[str]) -> tuple[Sequence[str], dict[str, str]]:
        """Find what fits, and what does not, by bisection, because most of it fits."""
        try:
            _dataset({name: read(name) for name in (*fitting, *names)})
        except Exception as error:
            if len(names) < 2:
                return (), dict.fromkeys(names, one_line(error))
        else:
            return names, {}
        half = len(names) // 2
        first, problems = sift(fitting, names[:half])
        second, more = sift((*fitting, *first), names[half:])
        return (*first, *second), problems | more

    return sift((), [name for name in dict.fromkeys((*existing, *new)) if name in children])[1]


def tree_problem(store: Any, path: str) -> str:
    """Why the groups at and below a path of a store do not open as one tree; empty if they do."""
    root = open_group(store, path, "r")
    try:
        import_extra("xarray", "virtual").DataTree.from_dict(
            {
                "/" + group.path.removeprefix(root.path).lstrip("/"): _dataset(
                    {name: _variable(child) for name, child in group.members() if _is_array(child)}
                )
                for group in groups_below(root)
                if group is root or not (is_logical(group) or group.basename == LEDGER)
            }
        )
    except Exception as error:
        return one_line(error)
    return ""


def _is_array(node: Any) -> bool:
    return isinstance(node, zarr.Array) or is_logical(node)


def _dataset(variables: Mapping[str, Any]) -> Any:
    """Decode variables as `xarray.open_dataset` does, except for times: undecodable ones stay numbers."""
    xr = import_extra("xarray", "virtual")
    decoded, attrs, coordinates = xr.conventions.decode_cf_variables(variables, {}, decode_times=False)
    return xr.Dataset(decoded, attrs=attrs).set_coords(coordinates & decoded.keys())


def _variable(node: Any) -> Any:
    """An array as an undecoded variable of xarray; only that of an index has values."""
    name = node.basename
    if is_logical(node):
        manifest = LogicalArrayHandle.load(node).manifest
        names, shape, dtype = manifest.dimension_names, manifest.shape, values_dtype(manifest.data_type)
        attrs = {key: value for key, value in node.attrs.items() if key not in RESERVED}
    else:
        names, shape, dtype = node.metadata.dimension_names, node.shape, node.dtype
        attrs = dict(node.attrs)
        if "_FillValue" in attrs:
            attrs["_FillValue"] = decoded_fill_attribute(attrs["_FillValue"], dtype)
    dims = tuple(
        f"{name}_dim_{axis}" if dim is None else dim for axis, dim in enumerate(names or (None,) * len(shape))
    )
    values = np.broadcast_to(np.zeros((), dtype), shape)
    if dims == (name,) and isinstance(node, zarr.Array):
        values = read_by_zarr(node)
    lazy = import_extra("xarray.core.indexing", "virtual").LazilyIndexedArray(values)
    return import_extra("xarray", "virtual").Variable(dims, lazy, with_floats(attrs))
