"""Reading the `missing` masks of GEFF, the graph exchange format of cell tracking."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import zarr

from intarsia._icechunk import safe_store
from intarsia.errors import DataTypeError
from intarsia.nullable.values import NullableValues

__all__ = ["from_geff"]


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
        found: Any = root[where]
        stored: Any = found["values"]
    except KeyError:
        parent = root.get(f"{of}/props")
        known = sorted(parent.group_keys()) if isinstance(parent, zarr.Group) else []
        raise KeyError(f"no property {prop!r} of {of}; there are: {', '.join(known) or 'none'}") from None
    if "data" in found:
        raise DataTypeError(
            f"{where} holds arrays of a different shape for every one of its {of}, which is no "
            "n-dimensional array: read it with geff.GeffReader"
        )
    values = stored[...]
    if values.dtype.kind == "U":
        values = values.astype(np.dtypes.StringDType())
    if "missing" not in found:
        return NullableValues(values)
    missing = np.asarray(found["missing"][...], dtype=np.bool_)
    if missing.shape != values.shape[:1]:
        raise DataTypeError(f"{where}: {missing.shape} elements of missing for values of {values.shape}")
    spread = missing.reshape(missing.shape + (1,) * (values.ndim - 1))
    return NullableValues(values, np.ascontiguousarray(np.broadcast_to(spread, values.shape)))
