"""Meeting other programs: xarray, dask, and single Zarr arrays."""
