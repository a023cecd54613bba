"""Meeting other programs: xarray, dask, TensorStore, and plain Zarr.

- `xarray/` is the backend and `from_xarray`; `dask/` reads and writes with clusters.
- `fused_view` shows a logical array as one Zarr array; `fuse` makes one; `tensorstore` writes a spec.
- `convert`, `adopt` and export go to and from Zarr as others have it; `block_copies` copies for all of them.

`import intarsia` imports neither xarray nor dask: the modules that need them are imported on demand.
"""
