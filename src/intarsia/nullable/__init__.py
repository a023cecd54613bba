"""Missing values without a sentinel: the `optional` data type, its codec, and arrays that use them.

- `array` is what people create and open; `representation` is the Python type of its selections.
- On disk: `dtype` and `codec` (a chunk's mask and values). `present_values` holds codecs in front
  of it, and `sentinel` a codec for files that mark missing values by a number.
- In memory: `nullable_values` (arrays), `elements` (`NULL`, `Some`), `buffer` (what zarr allocates).
- Computing: `computing`, `dask_blocks`.
- Other libraries: `conversions` (NumPy and lists), `dataframes` (Arrow, Polars, pandas), `geff`,
  `without_nulls` (for libraries that have none).

Every public name is imported when it is first used; `__init__.pyi` says where it lives.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
