"""Reading the nullable columns that anndata writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr

from intarsia._icechunk import safe_store
from intarsia.errors import DataTypeError
from intarsia.nullable.values import NullableValues

__all__ = ["from_anndata"]

ENCODINGS = ("nullable-integer", "nullable-boolean", "nullable-string-array")


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
    found = root[path] if path else root
    encoding = found.attrs.get("encoding-type")
    if encoding not in ENCODINGS:
        raise DataTypeError(
            f"{path or 'the group'} has the anndata encoding {encoding!r}; "
            f"nullable are {', '.join(ENCODINGS)}"
        )
    values = found["values"][...]
    mask = np.asarray(found["mask"][...], dtype=np.bool_)
    if mask.shape != values.shape:
        raise DataTypeError(f"{path or 'the group'}: a mask of {mask.shape} for values of {values.shape}")
    if encoding == "nullable-string-array":
        values = np.asarray(values, dtype=object).astype(np.dtypes.StringDType())
    return NullableValues(values, mask)
