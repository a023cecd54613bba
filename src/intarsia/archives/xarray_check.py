"""Whether xarray can open what was written, before it is committed.

The dataset is built from its metadata, by xarray's own rules: only the values of indexes are read. Variables
with which that fails are found one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from intarsia.archives.dataset import Dataset
from intarsia.display import one_line
from intarsia.extras import import_extra
from intarsia.logical.attributes import RESERVED, with_floats
from intarsia.logical.hierarchy import LEDGER, groups_below, is_logical, open_group
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
    dataset = Dataset.of(open_group(store, path, "r"))
    read = cache(lambda name: _variable(dataset, name))

    fitting: dict[str, Any] = {}

    def sift(names: Sequence[str]) -> dict[str, str]:
        """Find what does not fit, by bisection, because most of it fits."""
        try:
            both = fitting | {name: read(name) for name in names}
            _dataset(both)
        except Exception as error:
            half = len(names) // 2
            return sift(names[:half]) | sift(names[half:]) if half else {names[0]: one_line(error)}
        fitting.update(both)
        return {}

    there = {*dataset.plain, *dataset.logical_groups}
    return sift([name for name in dict.fromkeys((*existing, *new)) if name in there])


def tree_problem(store: Any, path: str) -> str:
    """Why the groups at and below a path of a store do not open as one tree; empty if they do."""
    root = open_group(store, path, "r")
    groups = [each for each in groups_below(root) if not (is_logical(each) or each.basename == LEDGER)]
    tree = {}
    try:
        for group in groups:
            dataset = Dataset.of(group)
            names = (*dataset.plain, *dataset.logical_groups)
            place = "/" + group.path.removeprefix(root.path).lstrip("/")
            tree[place] = _dataset({name: _variable(dataset, name) for name in names})
        import_extra("xarray", "virtual").DataTree.from_dict(tree)
    except Exception as error:
        return one_line(error)
    return ""


def _dataset(variables: Mapping[str, Any]) -> Any:
    """Decode variables as `xarray.open_dataset` does, except for times: undecodable ones stay numbers."""
    xr = import_extra("xarray", "virtual")
    decoded, attrs, coordinates = xr.conventions.decode_cf_variables(variables, {}, decode_times=False)
    return xr.Dataset(decoded, attrs=attrs).set_coords(coordinates & decoded.keys())


def _variable(dataset: Dataset, name: str) -> Any:
    """An array as an undecoded variable of xarray; only that of an index has values."""
    plain = dataset.plain.get(name)
    if plain is None:
        logical = dataset.logical_groups[name]
        manifest = logical.manifest
        names, shape, dtype = manifest.dimension_names, manifest.shape, values_dtype(manifest.data_type)
        attrs = {key: value for key, value in logical.group.attrs.items() if key not in RESERVED}
    else:
        names, shape, dtype = plain.metadata.dimension_names, plain.shape, plain.dtype
        attrs = dataset.attrs(name)
    dims = tuple(
        f"{name}_dim_{axis}" if dim is None else dim for axis, dim in enumerate(names or (None,) * len(shape))
    )
    is_index = plain is not None and dims == (name,)
    values = dataset.values(name) if is_index else np.broadcast_to(np.zeros((), dtype), shape)
    lazy = import_extra("xarray.core.indexing", "virtual").LazilyIndexedArray(values)
    return import_extra("xarray", "virtual").Variable(dims, lazy, with_floats(attrs))
