"""Logical arrays: one array out of many Zarr arrays."""

from intarsia.array.config import LogicalConfig
from intarsia.array.logical import LogicalArray
from intarsia.array.manifest import Manifest
from intarsia.array.opening import create, open, reader
from intarsia.array.reader import Reader
from intarsia.array.region import Region
from intarsia.array.stored_array import StoredArray

__all__ = [
    "LogicalArray",
    "LogicalConfig",
    "Manifest",
    "Reader",
    "Region",
    "StoredArray",
    "create",
    "open",
    "reader",
]
