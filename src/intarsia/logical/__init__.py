"""Logical arrays: one array out of many Zarr arrays."""

from intarsia.engine.config import LogicalConfig
from intarsia.engine.reader import Reader
from intarsia.engine.stored_array import StoredArray
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.opening import create, open, reader
from intarsia.logical.region import Region
from intarsia.manifest.manifest import Manifest

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
