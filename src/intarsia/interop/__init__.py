"""Meeting other programs: xarray, dask, and views for any program that knows Zarr, each in its own room.

`import intarsia` imports neither xarray nor dask: the modules that need them are imported on demand.
"""
