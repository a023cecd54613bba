"""Icechunk's manifests of references, split along the dimension that grows: a file more writes one again.

A commit writes the manifest that it adds to, and the list of all manifests. With parts of `n` references and
`N` references in all, that is about `11 n / 2 + 36 N / n` bytes, as measured: least where `n` is the root of
`6.5 N`. So they grow with the root of `N`, and no choice of parts prevents it: Icechunk gives all parts of an
array one length, and where that changes, the next write to the array splits larger ones again. It compiles
every rule for every array again, so rules are few whatever the number of arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import isqrt, prod
from typing import TYPE_CHECKING, Any

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

ARRAYS = 4
"""Of a dataset that has manifests of so few references; with more arrays, as many manifests are larger."""

MOST_REFERENCES = 100_000
"""Of a manifest that is full: two megabytes, which a reader of one chunk has to read."""

TABLE_CHUNKS = 64
"""Chunks of a table of rows in a manifest, of which the last is written again by every append."""

TABLES = rf"^/(.*/)?(t-[0-9a-f]+|{LEDGER}/(sources|claims))$"
"""Paths of tables that grow by rows."""


def references_a_manifest(total: int, arrays: int = 1) -> int:
    """How many references a manifest of one of these arrays should have, which is to have so many in all.

    >>> references_a_manifest(1_000), references_a_manifest(10_000_000), references_a_manifest(1_000, 14)
    (2000, 8062, 6000)
    """
    least = LEAST_REFERENCES * max(1, arrays // ARRAYS)
    return min(max(isqrt(13 * max(total, 0) // 2), least), MOST_REFERENCES)


def with_splitting(
    config: icechunk.RepositoryConfig, group: str, arrays: Iterable[ArrayDraft], files: int
) -> bool:
    """Say in a configuration how the manifests of these arrays are split; whether it said otherwise.

    What it says already stays: splitting in another way would write all of them anew.
    """
    manifest = config.manifest or ManifestConfig()
    known = [] if manifest.splitting is None else list(manifest.splitting.split_sizes or ())
    rules = {condition: dict(sizes) for condition, sizes in known}
    rules |= _rules_of_arrays(group, list(arrays), files, [condition for condition, _ in known])
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


def _rules_of_arrays(
    group: str, arrays: Sequence[ArrayDraft], files: int, known: Sequence[ManifestSplitCondition]
) -> dict[ManifestSplitCondition, dict[Any, int]]:
    """A rule for each size among the arrays that no rule is known for; the last one names no array.

    Icechunk takes the first rule that fits. The last one is that of most arrays.
    """
    above = "".join(f"{re.escape(part)}/" for part in group.split("/") if part)
    patterns = [pattern for condition in known if (pattern := _pattern(condition))]
    names: dict[tuple[str, int], list[str]] = {}
    for array in arrays:
        member = f"/{group}/{array.name}/m-0".replace("//", "/")
        unknown = not any(pattern.search(member) for pattern in patterns)
        if unknown and (size := _steps_a_manifest(array, files, len(arrays))):
            names.setdefault((array.dims[array.growing[0]], size), []).append(array.name)
    rules = {}
    for last, (dim, size) in enumerate(
        sorted(names, key=lambda each: len(names[each])), start=1 - len(names)
    ):
        which = "[^/]+" if last == 0 else f"({'|'.join(map(re.escape, names[dim, size]))})"
        condition = ManifestSplitCondition.path_matches(f"^/{above}{which}/m-[0-9a-f]+$")
        rules[condition] = {ManifestSplitDimCondition.DimensionName(f"^{re.escape(dim)}$"): size}
    return rules


def _pattern(condition: ManifestSplitCondition) -> re.Pattern[str] | None:
    """What paths match, if the condition is about paths and says it as Python would."""
    kind: Any = condition  # the stubs do not know that conditions of paths and names are classes
    if type(kind).__name__ != "PathMatches":
        return None
    try:
        return re.compile(kind.regex)
    except re.error:
        return None


def _steps_a_manifest(array: ArrayDraft, files: int, arrays: int) -> int:
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
    return max(1, references_a_manifest(references * files // len(grids), arrays) * steps // references)
