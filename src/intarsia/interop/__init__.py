"""Meeting other programs: xarray, dask, and views for whoever knows Zarr, a room each.

`import intarsia` imports neither xarray nor dask: the modules that need them are imported when asked for.
"""
