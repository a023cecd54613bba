"""Reading missing values as other formats of Zarr keep them.

anndata stores nullable columns as values and a mask, GEFF (the graph exchange format of cell tracking)
properties as values and `missing`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import zarr

from intarsia._icechunk import safe_store
from intarsia.errors import DataTypeError
from intarsia.nullable.values import NullableValues

ANNDATA_ENCODINGS = ("nullable-integer", "nullable-boolean", "nullable-string-array")


def from_geff(
    source: Any, prop: str, *, of: Literal["nodes", "edges"] = "nodes", path: str | None = None
) -> NullableValues:
    """The property `prop` of the nodes or edges of a GEFF: its values, null where it is missing.

    `source` is a path, a store or a group, `path` where in it the GEFF lies. A property of more than one
    dimension is missing for a node as a whole.

    >>> group = zarr.group({})
    >>> values = group.create_array("nodes/props/score/values", data=np.array([0.5, 0.0]))
    >>> missing = group.create_array("nodes/props/score/missing", data=np.array([False, True]))
    >>> from_geff(group, "score")
    NullableValues([0.5, NULL], dtype=float64)
    """
    if of not in ("nodes", "edges"):
        raise ValueError(f"of={of!r}: a GEFF has properties of 'nodes' and of 'edges'")
    if not isinstance(source, zarr.Group):
        root = zarr.open_group(safe_store(source), mode="r", path=path or "")
    else:
        root = source[path] if path else source  # type: ignore[assignment]
    where = f"{of}/props/{prop}"
    try:
        group: Any = root[where]
        stored: Any = group["values"]
    except KeyError:
        parent = root.get(f"{of}/props")
        known = sorted(parent.group_keys()) if isinstance(parent, zarr.Group) else []
        raise KeyError(f"no property {prop!r} of {of}; there are: {', '.join(known) or 'none'}") from None
    if "data" in group:
        raise DataTypeError(
            f"{where} holds arrays of a different shape for every one of its {of}, which is no "
            "n-dimensional array: read it with geff.GeffReader"
        )
    values = stored[...]
    if values.dtype.kind == "U":
        values = values.astype(np.dtypes.StringDType())
    if "missing" not in group:
        return NullableValues(values)
    missing = np.asarray(group["missing"][...], dtype=np.bool_)
    if missing.shape != values.shape[:1]:
        raise DataTypeError(f"{where}: {missing.shape} elements of missing for values of {values.shape}")
    spread = missing.reshape(missing.shape + (1,) * (values.ndim - 1))
    return NullableValues(values, np.ascontiguousarray(np.broadcast_to(spread, values.shape)))


def from_anndata(source: Any, path: str | None = None) -> NullableValues:
    """A nullable column as anndata stores it: integers, bools or strings, null where it is masked.

    `source` is a path, a store or a group, `path` where in it the column lies, for example
    "obs/cell_count".

    >>> group = zarr.group({}, attributes={"encoding-type": "nullable-integer"})
    >>> values = group.create_array("values", data=np.array([3, 1]))
    >>> mask = group.create_array("mask", data=np.array([False, True]))
    >>> from_anndata(group)
    NullableValues([3, NULL], dtype=int64)
    """
    root: Any = source if isinstance(source, zarr.Group) else zarr.open_group(safe_store(source), mode="r")
    column = root[path] if path else root
    encoding = column.attrs.get("encoding-type")
    if encoding not in ANNDATA_ENCODINGS:
        raise DataTypeError(
            f"{path or 'the group'} has the anndata encoding {encoding!r}; "
            f"nullable are {', '.join(ANNDATA_ENCODINGS)}"
        )
    values = column["values"][...]
    mask = np.asarray(column["mask"][...], dtype=np.bool_)
    if mask.shape != values.shape:
        raise DataTypeError(f"{path or 'the group'}: a mask of {mask.shape} for values of {values.shape}")
    if encoding == "nullable-string-array":
        values = np.asarray(values, dtype=object).astype(np.dtypes.StringDType())
    return NullableValues(values, mask)
