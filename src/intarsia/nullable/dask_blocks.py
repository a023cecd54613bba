"""Nullable arrays for dask, with blocks of `NullableValues`, so that dask too gives Arrow's answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.extras import import_extra
from intarsia.nullable.array import NullableArray
from intarsia.nullable.nullable_values import NullableValues, check_one_level


def to_dask(array: Any, chunks: Any = None) -> Any:
    """A `dask.array.Array` with blocks of `NullableValues`, from a nullable array or dask's masked arrays.

    It also takes `NullableValues`, and a logical array by its own `to_dask`. The blocks are the stored chunks
    or shards, unless `chunks` asks for others, as in dask. The array is read when something is computed.

    >>> from intarsia import nullable
    >>> a = nullable.create_array({}, data=[[True, None], [None, False]], chunks=(1, 2))
    >>> lazy = nullable.to_dask(a)
    >>> (lazy & False).compute()
    NullableValues([[False, False],
                    [False, False]], dtype=bool)
    >>> lazy.sum(axis=0).compute()
    NullableValues([1, 0], dtype=int64)
    """
    da = import_extra("dask.array", "dask")
    register_with_dask()
    if isinstance(array, NullableValues):
        return da.from_array(array, chunks=chunks or "auto", asarray=False, meta=_empty_block(array))
    if not isinstance(array, NullableArray):
        masked = array if isinstance(array, da.Array) else array.to_dask(chunks)
        return masked.map_blocks(NullableValues.of, dtype=masked.dtype, meta=_empty_block(masked))
    check_one_level(array.depth)
    return da.from_array(
        _Blocks(array),
        chunks=chunks or array.shards or array.chunks,
        name=False,  # a name made from the content would have to read it, and the array may be written to
        asarray=False,
        meta=_empty_block(array),
    )


def _empty_block(array: Any) -> NullableValues:
    return NullableValues(np.empty((0,) * array.ndim, dtype=array.dtype))


class _Blocks:
    """A nullable array that reads as `NullableValues`."""

    def __init__(self, array: NullableArray) -> None:
        self.array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __getitem__(self, selection: Any) -> NullableValues:
        register_with_dask()  # a worker meets the type here
        return self.array.read_nullable(selection)


def register_with_dask() -> None:
    """Make dask count the present elements: means and variances divide by their number."""
    dispatch = import_extra("dask.array.dispatch", "dask")
    dispatch.numel_lookup.register(NullableValues, _count_present)
    dispatch.divide_lookup.register(NullableValues, _divide)


def _count_present(
    x: NullableValues, *, dtype: Any = "f8", axis: Any = None, keepdims: bool = False, **_: Any
) -> Any:
    return np.asarray(x.count(axis, keepdims=keepdims)).astype(dtype)


def _divide(a: Any, b: Any, dtype: Any = None) -> Any:
    """A division by a number of elements, which is null if there are none."""
    return np.true_divide(a, np.where(NullableValues.of(b) > 0, b, None), dtype=dtype)
