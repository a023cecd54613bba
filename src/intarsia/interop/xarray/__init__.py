"""xarray opens groups and writes datasets; importing this package registers `Dataset.intarsia`.

- `backend` opens, and `variables` makes lazy variables.
- `from_xarray` is the function, and `dataset_writer` writes what it was given.

The backend is in this package, so the accessor also exists once xarray has opened any dataset with it.
"""

from contextlib import suppress
from typing import Any

from intarsia.errors import MissingExtraError
from intarsia.extras import import_extra


def to_xarray(array: Any, **options: Any) -> Any:
    """A logical array as an `xarray.DataArray`; see `LogicalArray.to_xarray`.

    >>> import intarsia
    >>> array = intarsia.create({}, "t", shape=(0,), chunks=(2,), dtype="i4", dimension_names=["time"])
    >>> array.append([1, 2, 3], codecs=["gzip"])
    >>> to_xarray(array).mean("time").item()
    2.0
    """
    xr = import_extra("xarray", "xarray")
    from intarsia.interop.xarray.backend import variable_name

    return xr.open_dataset(array, engine="intarsia", **options)[variable_name(array.path)]


class DatasetAccessor:
    """`dataset.intarsia`: writes a dataset into logical arrays.

    >>> import numpy as np, xarray as xr, intarsia
    >>> import intarsia.interop.xarray
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> day = xr.Dataset({"t": (("time", "x"), np.ones((1, 3), "f4"))})
    >>> for codecs in (["gzip"], ["zstd"]):
    ...     snapshot = day.intarsia.append_to(repo, "time", codecs={"t": codecs})
    >>> intarsia.open(repo, "t").shape
    (2, 3)
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def append_to(self, target: Any, dim: str, path: str = "", **options: Any) -> str | None:
        """Append along `dim` to the dataset at `path` in a repository or store, which need not exist yet.

        The options are those of `intarsia.from_xarray`. Returns the snapshot id.
        """
        from intarsia.interop.xarray.from_xarray import from_xarray

        return from_xarray(self._dataset, target, path, append_dim=dim, **options)


# Without xarray, importing what is in this package still works; calling it says what to install.
with suppress(MissingExtraError):
    import_extra("xarray", "xarray").register_dataset_accessor("intarsia")(DatasetAccessor)
