"""Nullable arrays for dask: blocks of `NullableValues`, so that dask's answers are Arrow's too."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.errors import DataTypeError
from intarsia.extras import extra
from intarsia.nullable.array import NullableArray
from intarsia.nullable.nullable_values import NullableValues


def to_dask(array: Any, chunks: Any = None) -> Any:
    """A `dask.array.Array` with blocks of `NullableValues`: of a nullable array, or of masked arrays in dask.

    A logical array is taken as well, by its own `to_dask`, and `NullableValues`. Blocks are the chunks, or
    the shards, of what is stored, unless `chunks` asks for others as dask does. The array is read when
    something is computed.

    >>> from intarsia import nullable
    >>> a = nullable.create_array({}, data=[[True, None], [None, False]], chunks=(1, 2))
    >>> lazy = nullable.to_dask(a)
    >>> (lazy & False).compute()
    NullableValues([[False, False], [False, False]], dtype=bool)
    >>> lazy.sum(axis=0).compute()
    NullableValues([1, 0], dtype=int64)
    """
    da = extra("dask.array", "dask")
    teach_dask()
    if isinstance(array, NullableValues):
        return da.from_array(array, chunks=chunks or "auto", asarray=False, meta=_nothing(array))
    if not isinstance(array, NullableArray):
        masked = array if isinstance(array, da.Array) else array.to_dask(chunks)
        return masked.map_blocks(NullableValues.of, dtype=masked.dtype, meta=_nothing(masked))
    if array.depth > 1:
        raise DataTypeError(
            f"the array is {array.data_type}: computing knows one level of null, not {array.depth}"
        )
    return da.from_array(
        _Blocks(array),
        chunks=chunks or array.shards or array.chunks,
        name=False,  # a name made of the content would have to read it, and the array may be written to
        asarray=False,
        meta=_nothing(array),
    )


def _nothing(array: Any) -> NullableValues:
    return NullableValues(np.empty((0,) * array.ndim, dtype=array.dtype))


class _Blocks:
    """A nullable array whose reads are `NullableValues`."""

    def __init__(self, array: NullableArray) -> None:
        self.array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __getitem__(self, selection: Any) -> NullableValues:
        teach_dask()  # a worker meets the type here
        return self.array.read_nullable(selection)


def teach_dask() -> None:
    """Means and variances divide by the number of elements: dask has to count those that are present."""
    dispatch = extra("dask.array.dispatch", "dask")
    dispatch.numel_lookup.register(NullableValues, _present)
    dispatch.divide_lookup.register(NullableValues, _divided)


def _present(
    x: NullableValues, *, dtype: Any = "f8", axis: Any = None, keepdims: bool = False, **_: Any
) -> Any:
    return np.asarray(x.count(axis, keepdims=keepdims)).astype(dtype)


def _divided(a: Any, b: Any, dtype: Any = None) -> Any:
    """What is divided by a number of elements is null if there are none."""
    return np.true_divide(a, np.where(NullableValues.of(b) > 0, b, None), dtype=dtype)
