"""Methods of arrays that rooms above this one provide: found by name when they are called.

Nothing here imports those rooms, so code that only reads an array never loads them, and imports point one
way.
"""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from numpy.lib.mixins import NDArrayOperatorsMixin

from intarsia.progress import Progress, silent

if TYPE_CHECKING:
    from intarsia.logical.optimization import OptimizedRegion
    from intarsia.versions.forks import WriteShare


PROVIDERS = {
    "apply_ufunc": "intarsia.interop.dask.to_dask:apply_ufunc",
    "array_namespace": "intarsia.interop.dask.to_dask:array_namespace",
    "fork_for": "intarsia.versions.forks:fork_for",
    "info_blocks": "intarsia.inspect.survey:info_blocks",
    "notebook_html": "intarsia.inspect.region_map:notebook_html",
    "optimize": "intarsia.logical.optimization:optimize",
    "region_blocks": "intarsia.inspect.survey:region_blocks",
    "to_dask": "intarsia.interop.dask.to_dask:to_dask",
    "to_xarray": "intarsia.interop.xarray:to_xarray",
}
"""Where each function lives."""

LAZY = frozenset(
    ("T", "all", "any", "argmax", "argmin", "astype", "clip", "cumprod", "cumsum", "dot", "flatten", "imag",
     "max", "mean", "min", "moment", "prod", "ravel", "real", "reshape", "round", "squeeze", "std", "sum",
     "swapaxes", "topk", "trace", "transpose", "var")
)  # fmt: skip
"""Methods of both dask and NumPy arrays: a logical array passes them on to its dask array, lazily."""


def provided_by_higher_package(name: str, /, *args: Any, **options: Any) -> Any:
    """Call one of `PROVIDERS`, which is imported now."""
    return resolve_name(PROVIDERS[name])(*args, **options)


class LazyComputing(NDArrayOperatorsMixin):
    """Computing with an array in a store.

    Operators, NumPy's ufuncs and methods such as `mean` compute lazily: they return dask arrays.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> array.to_dask().shape
    (4,)
    >>> ((array + 1) * 2).mean().compute().item()
    2.0
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return provided_by_higher_package("apply_ufunc", ufunc, method, *inputs, **options)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions of the Array API, computed lazily by dask, in array-api-compat's version of it."""
        return provided_by_higher_package("array_namespace", api_version)

    if not TYPE_CHECKING:  # so that a type checker still finds misspelt names

        def __getattr__(self, name: str) -> Any:
            if name in LAZY:
                return getattr(self.to_dask(), name)
            raise AttributeError(
                f"a {type(self).__name__} has no {name!r}; for the methods of dask arrays: array.to_dask()"
            )

    def to_dask(self, chunks: Any = None) -> Any:
        """A `dask.array.Array` that reads this array, with one task per chunk.

        In a logical array, these are the chunks of members: no block crosses the bounds of a region. `chunks`
        asks for other blocks, as in dask: `"auto"` for larger ones, or their sizes. Arrays of one snapshot
        have one name, so that dask shares work.
        """
        return provided_by_higher_package("to_dask", self, chunks)


class Accessors:
    """The methods of a logical array that rooms above provide.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4", dimension_names=["x"])
    >>> array.to_xarray().dims
    ('x',)
    """

    def to_xarray(self, **options: Any) -> Any:
        """An `xarray.DataArray` that reads this array on demand, with the coordinates beside it.

        The `options` are those of `xarray.open_dataset`, such as `chunks` and `decode_cf`.
        """
        return provided_by_higher_package("to_xarray", self, **options)

    def optimize(
        self, objective: Literal["size", "balanced", "speed"] = "balanced", *, progress: Progress = silent
    ) -> tuple[OptimizedRegion, ...]:
        """Recode every region for which another encoding is better, and return the changes.

        `objective` is one of those of `intarsia.advise`; with `"size"`, no region gets larger. `progress` is
        called with the number of steps done and the total.
        [Storing data again](../../explanation/storing-again.md) compares it with other operations.
        """
        changes: tuple[OptimizedRegion, ...] = provided_by_higher_package(
            "optimize", self, objective, progress=progress
        )
        return changes

    def fork_for(self, workers: int, bounds: Sequence[tuple[int, int]] | None = None) -> list[WriteShare]:
        """Divide the chunks of an array in a transaction, or of the box `bounds`, among `workers`.

        Each share can be pickled. One worker writes to it, and `tx.merge(*shares)` merges it back.
        """
        shares: list[WriteShare] = provided_by_higher_package(
            "fork_for", self, workers, None if bounds is None else tuple(bounds)
        )
        return shares

    def _repr_html_(self) -> str:
        text: str = provided_by_higher_package("notebook_html", self)
        return text
