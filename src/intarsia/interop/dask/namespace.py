"""The Array API of logical arrays: dask's functions, which take them as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from types import ModuleType
from typing import Any

from intarsia.array import StoredArray
from intarsia.extras import extra


def as_dask(value: Any) -> Any:
    """What stands for an argument in a call of dask's: the dask array of a logical array, also in lists."""
    if isinstance(value, StoredArray):
        return value.to_dask()
    if isinstance(value, list | tuple):
        return type(value)(map(as_dask, value))
    return value


class Namespace:
    """The functions of a namespace of dask arrays, which take logical arrays too and answer lazily.

    >>> import numpy as np, intarsia
    >>> array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="i4")
    >>> array.append(np.arange(4))
    >>> xp = array.__array_namespace__()
    >>> xp.sum(xp.multiply(array, 2)).compute().item()
    12
    """

    def __init__(self, functions: ModuleType) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._functions, name)
        if isinstance(value, ModuleType):
            return Namespace(value)
        return _taking_logical_arrays(value) if callable(value) and not isinstance(value, type) else value

    def __dir__(self) -> list[str]:
        return dir(self._functions)

    def __repr__(self) -> str:
        return f"<the Array API of logical arrays, computed by {self._functions.__name__}>"


def _taking_logical_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*map(as_dask, args), **{name: as_dask(value) for name, value in options.items()})

    return call


_namespace = cache(Namespace)  # one for all arrays, as programs expect that compare them


def array_namespace(api_version: str | None) -> Namespace:
    """The namespace of logical arrays; a version of the standard that nobody knows is an error."""
    lazy = extra("dask.array", "dask").empty(())
    functions = extra("array_api_compat", "dask").array_namespace(lazy, api_version=api_version)
    return _namespace(functions)


def apply_ufunc(ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """What NumPy's ufunc makes of these, as a dask array."""
    if any(isinstance(out, StoredArray) for out in options.get("out", ())):
        raise TypeError(
            f"{ufunc.__name__} cannot write into a stored array in place: that would read and rewrite "
            "all of it.\n  Write what you mean: array[selection] = array[selection] + 1"
        )
    return getattr(ufunc, method)(*map(as_dask, inputs), **options)
