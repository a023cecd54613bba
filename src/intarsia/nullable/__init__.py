"""Missing values without a sentinel: the `optional` data type, its codec, and arrays that use them.

- On disk: `dtype`, `codec`, `encoding` (a chunk's mask and values), `sentinel` (codecs in front of it).
- In memory: `values` (arrays), `elements` (`NULL`, `Some`), `buffer` (what zarr allocates).
- Computing: `computing`, `reductions`, `dask_blocks`.
- Other libraries: `conversions`, `tables` (Arrow, Polars, pandas), `missing_values` (no nulls there).
- `array` is what people create and open.

Every public name is imported when it is first used; `__init__.pyi` says where it lives.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
