"""Every private name of zarr or icechunk that intarsia touches, each with the reason.

Nothing else in the package imports a private name; `tests/test_compat.py` pins them, so that
a release of zarr or icechunk that moves one fails in a single, obvious place.
"""

from __future__ import annotations

from zarr.core.buffer.cpu import as_numpy_array_wrapper
from zarr.core.common import JSON

__all__ = ["JSON", "as_numpy_array_wrapper"]

# JSON: the type that `Metadata.to_dict` and `from_dict` are annotated with; zarr exports no public alias.
# as_numpy_array_wrapper: how zarr's own codecs call numcodecs on a Buffer without a copy.
