"""Icechunk's manifests of references, split along the dimension that grows: a file more writes one again.

A commit writes the manifest that it adds to, and the list of all manifests. With parts of `n` references and
`N` references in all, that is about `11 n / 2 + 36 N / n` bytes, as measured: least where `n` is the root of
`6.5 N`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isqrt, prod
from typing import TYPE_CHECKING

from icechunk import (
    ManifestConfig,
    ManifestPreloadCondition,
    ManifestPreloadConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
)

from intarsia.array.hierarchy import LEDGER

if TYPE_CHECKING:
    import icechunk

    from intarsia.archives.array_draft import ArrayDraft

LEAST_REFERENCES = 2_000
"""Of a manifest that is full; smaller ones would save nothing beside all else that a commit writes."""

MOST_REFERENCES = 100_000
"""Of a manifest that is full: two megabytes, which a reader of one chunk has to read."""

TABLE_CHUNKS = 256
"""Chunks of a table of rows, of which the last is written again by every append."""

TABLES = rf"^/(.*/)?(t-[0-9a-f]+|{LEDGER}/(sources|claims))$"
"""Paths of tables that grow by rows."""


def references_a_manifest(total: int) -> int:
    """How many references a manifest should have, of so many that are expected.

    >>> references_a_manifest(1_000), references_a_manifest(10_000_000)
    (2000, 8062)
    """
    return min(max(isqrt(13 * max(total, 0) // 2), LEAST_REFERENCES), MOST_REFERENCES)


def with_splitting(
    config: icechunk.RepositoryConfig, group: str, arrays: Iterable[ArrayDraft], files: int
) -> bool:
    """Say in a configuration how the manifests of these arrays are split; whether it said otherwise.

    What it says already stays: splitting in another way would write all of them anew.
    """
    manifest = config.manifest or ManifestConfig()
    known = [] if manifest.splitting is None else list(manifest.splitting.split_sizes or ())
    rules = {condition: dict(sizes) for condition, sizes in known}
    for array in arrays:
        path = "/".join(re.escape(part) for part in (*group.split("/"), array.name) if part)
        condition = ManifestSplitCondition.path_matches(f"^/{path}/m-[0-9a-f]+$")
        size = 0 if condition in rules else _steps_a_manifest(array, files)
        if size:
            dim = ManifestSplitDimCondition.DimensionName(array.dims[array.growing[0]])
            rules[condition] = {dim: size}
    rules.setdefault(
        ManifestSplitCondition.path_matches(TABLES), {ManifestSplitDimCondition.Axis(0): TABLE_CHUNKS}
    )
    if len(rules) == len(known):
        return False
    manifest.splitting = ManifestSplittingConfig.from_dict(rules)
    if manifest.preload is None:  # every session would read some of many small ones, which nobody asked for
        manifest.preload = ManifestPreloadConfig(
            max_total_refs=0, preload_if=ManifestPreloadCondition.false()
        )
    config.manifest = manifest
    return True


def _steps_a_manifest(array: ArrayDraft, files: int) -> int:
    """How many chunks along the dimension that grows; 0 if nothing is referred to."""
    dim = array.dims[array.growing[0]]
    grids = [
        (each.variable.ranges.grid, each.variable.dims.index(dim))
        for each in array.contributions
        if each.variable.ranges is not None and dim in each.variable.dims
    ]
    steps, references = sum(grid[axis] for grid, axis in grids), sum(prod(grid) for grid, _ in grids)
    if not references:
        return 0
    return max(1, references_a_manifest(references * files // len(grids)) * steps // references)
