"""Differences between versions, for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intarsia.versions import ArrayChange

__all__ = ["change_json"]


def change_json(change: ArrayChange) -> dict[str, Any]:
    """What differs between two versions of an array, as `log --json` and `diff --json` print it."""
    return {
        "shape_before": None if change.shape_before is None else list(change.shape_before),
        "shape_after": None if change.shape_after is None else list(change.shape_after),
        "regions": [
            {
                "kind": region.kind,
                "bounds": [list(pair) for pair in region.bounds],
                "codecs_before": region.codecs_before,
                "codecs_after": region.codecs_after,
                "member_before": region.member_before,
                "member_after": region.member_after,
            }
            for region in change.regions
        ],
        "attributes": list(change.attributes),
        "bytes_written": change.bytes_written,
        "bytes_referenced": change.bytes_referenced,
    }
