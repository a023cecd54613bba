"""dask reads logical arrays block by block, and writes them from many processes."""
