"""Logical arrays: one array out of many Zarr arrays."""

from intarsia.array.config import LogicalConfig
from intarsia.array.explain import Explanation, PartExplanation, explain
from intarsia.array.logical import LogicalArray, create, open
from intarsia.array.manifest import Manifest
from intarsia.array.region import Region
from intarsia.array.vacuum import vacuum
from intarsia.array.verify import Problem, verify

__all__ = [
    "Explanation",
    "LogicalArray",
    "LogicalConfig",
    "Manifest",
    "PartExplanation",
    "Problem",
    "Region",
    "create",
    "explain",
    "open",
    "vacuum",
    "verify",
]
