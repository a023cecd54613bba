"""Logical arrays: one array out of many Zarr arrays."""

from intarsia.array.config import LogicalConfig
from intarsia.array.logical import LogicalArray
from intarsia.array.manifest import Manifest
from intarsia.array.opening import create, open
from intarsia.array.region import Region

__all__ = [
    "LogicalArray",
    "LogicalConfig",
    "Manifest",
    "Region",
    "create",
    "open",
]
