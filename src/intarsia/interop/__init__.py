"""Meeting other programs: xarray, dask, and single Zarr arrays.

`import intarsia` imports neither xarray nor dask: the modules that need them are imported when asked for.
"""
