"""Logical arrays and dask: reading one block by block, writing one from a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import DataTypeError
from intarsia.extras import extra
from intarsia.interop.dask.grid import block_sizes
from intarsia.nullable import OptionalDType

if TYPE_CHECKING:
    from intarsia.array import LogicalArray

__all__ = ["to_dask"]


def to_dask(array: LogicalArray, chunks: Any = None) -> Any:
    """A `dask.array.Array` that reads a logical array; see `LogicalArray.to_dask`.

    >>> import numpy as np, intarsia
    >>> array = intarsia.create({}, "a", shape=(0,), chunks=(1,), dtype="i4")
    >>> array.append(np.arange(5), codecs=["gzip"], chunks=(2,))
    >>> array.append(np.arange(4), codecs=["zstd"], chunks=(4,))
    >>> lazy = to_dask(array)
    >>> lazy.chunks, lazy.sum().compute().item()
    (((2, 2, 1, 4),), 16)

    A nullable array becomes a dask array of masked arrays.
    """
    da, base = extra("dask.array", "dask"), extra("dask.base", "dask")
    previous = block_sizes(array)
    wanted = previous if chunks is None else chunks
    sizes = da.core.normalize_chunks(wanted, array.shape, dtype=array.dtype, previous_chunks=previous)
    nothing: Any = np.empty((0,) * array.ndim, dtype=array.dtype)
    data_type = array.manifest.data_type
    if isinstance(data_type, OptionalDType):
        if data_type.depth > 1:
            raise DataTypeError(
                f"the array is {data_type}: dask knows masked arrays, but not several levels of null"
            )
        nothing = np.ma.masked_array(nothing)
    return da.from_array(
        array,
        chunks=sizes,
        name=f"intarsia-{base.tokenize(array, sizes)}",
        asarray=False,  # what is read is an array already, and a mask would be lost
        meta=nothing,
    )
