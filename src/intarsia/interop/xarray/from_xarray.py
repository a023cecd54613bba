"""`from_xarray`: datasets into groups, all in one commit."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from intarsia.extras import import_extra
from intarsia.interop.write_jobs import Cluster, write_to
from intarsia.logical.hierarchy import open_group
from intarsia.progress import Progress, silent


def from_xarray(
    data: Any,
    store: Any,
    path: str = "",
    *,
    append_dim: str | None = None,
    codecs: Mapping[str, Any] | Iterable[Any] | Literal["auto"] | None = None,
    lattice: Mapping[str, Any] | None = None,
    encoding: Mapping[str, Mapping[str, Any]] | None = None,
    unlimited_dims: Iterable[str] | None = None,
    overwrite: bool = False,
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    client: Any = None,
    retries: int = 2,
    progress: Progress = silent,
) -> str | None:
    """Write a dataset (or a DataArray with a name, or a DataTree) into a group of a repository or store.

    Numeric data variables become logical arrays; coordinates, scalars and strings become plain Zarr arrays,
    as xarray writes them. Values are encoded as in CF, by xarray's own encoders: `encoding` takes `dtype`,
    `scale_factor`, `units` and so on, and the `chunks` and `shards` to store.

    Give `codecs` and `lattice` by variable; a single codec list applies to all logical arrays.
    `append_dim` puts the dataset after the end of that dimension, with its own codecs. Variables with this
    dimension grow, in their stored CF encoding. The others stay as they are, and coordinates must be equal.
    `unlimited_dims` are remembered, as in netCDF. `overwrite` replaces variables of the same names.

    In a repository, everything becomes one commit, and its snapshot id is returned; others may append at the
    same time. dask arrays are written where they are computed, as with `store_dask`.

    Args:
        data: An `xarray.Dataset`, a DataArray with a name, or a DataTree.
        store: A repository, or the path or URL of one; or a transaction, a writable session or any other
            zarr store.
        path: The group to write to.
        branch: The branch of a repository that the commit goes to.
        message: The commit message; by default it says what was done.
        metadata: A dictionary that is kept with the commit.
        client: A `dask.distributed.Client` that computes dask arrays; by default the current one, or dask's
            local scheduler.
        retries: How often a block that fails is retried.
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`.

    >>> import numpy as np, xarray as xr, intarsia
    >>> days = xr.date_range("2024-01-01", periods=4)
    >>> dataset = xr.Dataset({"t": (("time", "x"), np.ones((4, 3), "f4"))}, {"time": days})
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> snapshot = intarsia.from_xarray(dataset[{"time": slice(2)}], repo, codecs={"t": ["gzip"]})
    >>> snapshot = intarsia.from_xarray(
    ...     dataset[{"time": slice(2, 4)}], repo, append_dim="time", codecs={"t": ["zstd"]})
    >>> xr.open_dataset(repo, engine="intarsia").identical(dataset)
    True
    """
    xr = import_extra("xarray", "xarray")
    from intarsia.interop.xarray.dataset_writer import Choices, DatasetWriter

    nodes = list(_nodes(xr, data, path.strip("/")))
    choices = Choices(
        append_dim=append_dim,
        codecs=codecs if codecs is None or isinstance(codecs, str | Mapping) else tuple(codecs),
        lattice=dict(lattice or {}),
        encoding=dict(encoding or {}),
        unlimited_dims=None if unlimited_dims is None else tuple(unlimited_dims),
        overwrite=overwrite,
    )
    choices.check_names({name for _, dataset in nodes for name in dataset.variables})
    cluster = Cluster(client, retries, progress)

    def write(store: Any) -> None:
        for group, dataset in nodes:
            DatasetWriter(dataset, open_group(store, group, "a"), choices, cluster).write()

    verb = "write" if append_dim is None else "append to"
    text = message or f"{verb} {path.strip('/') or '/'}"
    return write_to(store, write, branch=branch, message=text, metadata=metadata)


def _nodes(xr: Any, data: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every dataset and the group that it goes to."""
    if isinstance(data, xr.DataTree):
        for node in data.subtree:
            parts = (path, node.path.strip("/"))
            yield "/".join(part for part in parts if part), node.to_dataset(inherit=False)
    elif isinstance(data, xr.DataArray):
        if data.name is None:
            raise ValueError("the DataArray has no name: data.rename('name') gives it one")
        yield path, data.to_dataset(name=data.name)
    elif isinstance(data, xr.Dataset):
        yield path, data
    else:
        raise TypeError(f"{type(data).__name__!r} is not an xarray Dataset, DataArray or DataTree")
