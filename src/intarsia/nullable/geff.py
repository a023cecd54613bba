"""Properties of GEFF files, the graph exchange format of cell tracking, which may be missing."""

from typing import Any, Literal

import numpy as np
import zarr

from intarsia.errors import DataTypeError
from intarsia.nullable.array import to_store
from intarsia.nullable.nullable_values import NullableValues


def from_geff(
    source: Any, prop: str, *, of: Literal["nodes", "edges"] = "nodes", path: str | None = None
) -> NullableValues:
    """Read the property `prop` of the nodes or edges of a GEFF; it is null where it is missing.

    `source` is a path, a store or a group, and `path` says where the GEFF is in it; `of` says whether the
    property belongs to nodes or edges. A property of several dimensions is missing for a node as a whole.

    >>> group = zarr.group({})
    >>> values = group.create_array("nodes/props/score/values", data=np.array([0.5, 0.0]))
    >>> missing = group.create_array("nodes/props/score/missing", data=np.array([False, True]))
    >>> from_geff(group, "score")
    NullableValues([0.5, NULL], dtype=float64)
    """
    root: Any = zarr.open_group(to_store(source), mode="r", path=path or "")
    where = f"{of}/props/{prop}"
    group = root[where]
    if "data" in group:
        raise DataTypeError(
            f"{where} holds an array of its own shape for each of the {of}, which do not form one "
            "n-dimensional array: read it with geff.GeffReader"
        )
    values = group["values"][...]
    if values.dtype.kind == "U":
        values = values.astype(np.dtypes.StringDType())
    if "missing" not in group:
        return NullableValues(values)
    missing = np.asarray(group["missing"][...], dtype=np.bool_)
    if missing.shape != values.shape[:1]:
        raise DataTypeError(f"{where}: missing has shape {missing.shape}, but values has {values.shape}")
    rows = missing.reshape(missing.shape + (1,) * (values.ndim - 1))
    return NullableValues(values, np.ascontiguousarray(np.broadcast_to(rows, values.shape)))
