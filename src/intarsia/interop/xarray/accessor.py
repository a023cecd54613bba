"""What xarray objects gain: `import intarsia.interop.xarray` registers `Dataset.intarsia`.

The backend lies in the same room, so the accessor is also there once xarray has opened any dataset with it.
"""

from collections.abc import Mapping
from typing import Any

from intarsia.array import LogicalArray
from intarsia.extras import extra
from intarsia.interop.dask.to_dask import asked_sizes, block_sizes, suited_blocks
from intarsia.interop.xarray.from_xarray import from_xarray

xr = extra("xarray", "xarray")


def to_xarray(array: LogicalArray, **options: Any) -> Any:
    """A logical array as an `xarray.DataArray`; see `LogicalArray.to_xarray`.

    >>> import intarsia
    >>> array = intarsia.create({}, "t", shape=(0,), chunks=(2,), dtype="i4", dimension_names=["time"])
    >>> array.append([1, 2, 3], codecs=["gzip"])
    >>> to_xarray(array).mean("time").item()
    2.0
    """
    from intarsia.interop.xarray.backend import variable_name  # needs xarray, which may be missing

    chunks = options.get("chunks")
    if isinstance(chunks, Mapping) and len(array.manifest.replicas) and "layer" not in options:
        options["layer"] = suited_layer(array, chunks)
    return xr.open_dataset(array, engine="intarsia", **options)[variable_name(array.path)]


def suited_layer(array: LogicalArray, chunks: Mapping[Any, Any]) -> int:
    """The layer that suits the chunks that somebody asks for, by dimension."""
    from intarsia.interop.xarray.variables import dimensions  # needs xarray, which may be missing

    dims = dimensions(array.path.rpartition("/")[2], array.ndim, array.dimension_names)
    asked = asked_sizes({axis: chunks.get(dim) for axis, dim in enumerate(dims)}, array.ndim)
    blocks = suited_blocks(array, asked)
    layers = array.manifest.layers
    return next(layer for layer in layers if block_sizes(array.with_config(layer=layer)) == blocks)


@xr.register_dataset_accessor("intarsia")
class DatasetAccessor:
    """`dataset.intarsia`: a dataset into logical arrays.

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

    def append_to(self, target: Any, dim: str | None = None, path: str = "", **options: Any) -> str | None:
        """Append to the dataset at `path` of a repository or store; creates it if it is not there.

        `dim` is the dimension to append along; by default the only unlimited one of the stored dataset. The
        options are those of `intarsia.from_xarray`. Returns the id of the snapshot.
        """
        return from_xarray(
            self._dataset, target, path, append_dim=dim or self._only_unlimited(target, path), **options
        )

    def _only_unlimited(self, target: Any, path: str) -> str:
        stored = xr.open_dataset(
            target, engine="intarsia", group=path, decode_cf=False, create_default_indexes=False
        )
        unlimited = sorted(stored.encoding.get("unlimited_dims", ()))
        if len(unlimited) != 1:
            raise ValueError(
                f"along which dimension? The stored dataset has {len(unlimited)} unlimited: {unlimited}.\n"
                "  dataset.intarsia.append_to(target, 'time')"
            )
        return str(unlimited[0])
