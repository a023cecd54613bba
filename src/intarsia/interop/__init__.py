"""Meeting other programs: xarray, dask, TensorStore, and plain Zarr.

- `xarray/` is the backend and `from_xarray`; `dask/` reads and writes with clusters.
- `write_jobs` is how all of them write a logical array: reserve members, write, and show everything at once.
- `fused_view` shows a logical array as one Zarr array; `fuse` makes one; `tensorstore` writes a spec.
- `convert` copies values from and to plain Zarr (`convert`, `export`), or refers to them; `adopt` takes over
  stored chunks. They and `fuse` describe, create and fill arrays with `node_copies`.

`import intarsia` imports neither xarray nor dask: the modules that need them are imported on demand.
"""
