"""Nullable arrays for xarray, which has no null: NaN, NaT, a second variable, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from intarsia.array import LogicalArray
from intarsia.nullable import NullableArray, OptionalDType, as_nullable, dtype_without_nulls, without_nulls

if TYPE_CHECKING:
    from collections.abc import Callable

    from intarsia.nullable.nulls import NullsChoice

__all__ = ["Missing", "WithoutNulls", "is_nullable"]


def is_nullable(array: LogicalArray | zarr.Array[Any]) -> bool:
    """Whether elements of an array may be null.

    >>> import zarr
    >>> is_nullable(zarr.create_array({}, shape=4, dtype="f4"))
    False
    """
    data_type = array.manifest.data_type if isinstance(array, LogicalArray) else array.metadata.dtype
    return isinstance(data_type, OptionalDType)


class _Converted:
    """An array whose reads pass through a function."""

    def __init__(self, array: Any, name: str, dtype: np.dtype[Any]) -> None:
        self._array, self._name = array, name
        self.shape, self.dtype = tuple(array.shape), dtype

    @property
    def store(self) -> Any:
        array = self._array.zarr_array if isinstance(self._array, NullableArray) else self._array
        return array.store

    def convert(self, values: Any) -> np.ndarray[Any, Any]:
        raise NotImplementedError

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        return self.convert(self._array[key])

    @property
    def oindex(self) -> _Indexer:
        return _Indexer(self, self._array.oindex.__getitem__)

    @property
    def vindex(self) -> _Indexer:
        return _Indexer(self, self._array.vindex.__getitem__)


class _Indexer:
    def __init__(self, converted: _Converted, read: Callable[[Any], Any]) -> None:
        self._converted, self._read = converted, read

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        return self._converted.convert(self._read(key))


def _reader(array: Any) -> Any:
    """Something whose every read keeps the nulls."""
    return NullableArray(array) if isinstance(array, zarr.Array) else array


def _inner(array: Any) -> np.dtype[Any]:
    data_type: Any = array.manifest.data_type if isinstance(array, LogicalArray) else array.metadata.dtype
    dtype: np.dtype[Any] = data_type.element.dtype
    return dtype


class WithoutNulls(_Converted):
    """The values of a nullable array, nulls as `nulls` says."""

    def __init__(self, array: Any, name: str, nulls: NullsChoice | None) -> None:
        # With a second variable to say which are missing, the values stay as they are.
        super().__init__(_reader(array), name, dtype_without_nulls(_inner(array), nulls))
        self._nulls = nulls

    def convert(self, values: Any) -> np.ndarray[Any, Any]:
        found = as_nullable(values)
        if self._nulls == "masked":
            return np.asarray(found.values)
        return without_nulls(found, self._nulls, what=f"the variable {self._name!r}")


class Missing(_Converted):
    """Which elements of a nullable array are null."""

    def __init__(self, array: Any, name: str) -> None:
        super().__init__(_reader(array), name, np.dtype(bool))

    def convert(self, values: Any) -> np.ndarray[Any, Any]:
        return np.asarray(as_nullable(values).is_null())
