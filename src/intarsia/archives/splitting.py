"""Icechunk's manifests of references, split along the dimension that grows: a new file rewrites only one.

A commit writes the manifest that it adds to, and the list of all manifests: with parts of `n` references and
`N` references in all, about `11 n / 2 + 36 N / n` bytes, as measured. All parts of an array have one length
in Icechunk, and if that changes, the next write to the array splits larger parts again. So members have a
maximum size, and their parts are small. The commit that fills a member uses a rule of its own, which is not
saved: it names that member, and puts all its references into one part. They stay that way, since nothing more
is written to the member.

Icechunk compiles every rule again for every array, so there are few rules, whatever the number of arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from icechunk import (
    ManifestConfig,
    ManifestPreloadCondition,
    ManifestPreloadConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
)

from intarsia.archives.plan.member_allocation import FULL
from intarsia.logical.hierarchy import LEDGER

if TYPE_CHECKING:
    import icechunk

    from intarsia.archives.plan.ingest_plan import ArrayDraft

LEAST_REFERENCES = 2_000
"""The fewest references in a full manifest; smaller ones save nothing next to the rest of a commit."""

ARRAYS = 4
"""Datasets with up to this many arrays have manifests that small; with more arrays, they are larger."""

MOST_REFERENCES = 100_000
"""The most references in a manifest that is added to, in datasets with many arrays."""

TABLE_CHUNKS = 64
"""How many chunks of a table or coordinate are in a manifest; every append rewrites the last manifest."""

MEMBER = "m-[0-9a-f]+"
"""The pattern of members' names."""

TABLES = rf"^/(.*/)?(t-[0-9a-f]+|{LEDGER}/(sources|claims))$"
"""The pattern of the paths of tables that grow by rows."""


def references_a_manifest(arrays: int) -> int:
    """How many references one manifest of a growing member holds, in a dataset of `arrays` arrays.

    >>> references_a_manifest(1), references_a_manifest(14), references_a_manifest(2_000)
    (2000, 6000, 100000)
    """
    return min(LEAST_REFERENCES * max(1, arrays // ARRAYS), MOST_REFERENCES)


def with_splitting(
    config: icechunk.RepositoryConfig, group: str, arrays: Iterable[ArrayDraft], dims: Sequence[str]
) -> bool:
    """Put into a configuration how the manifests of these arrays are split; returns whether it changed.

    This includes those of tables, and of coordinates along the dimensions that grow.

    Existing rules stay: splitting differently would rewrite all manifests.
    """
    manifest = config.manifest or ManifestConfig()
    known = [] if manifest.splitting is None else list(manifest.splitting.split_sizes or ())
    rules = {condition: dict(sizes) for condition, sizes in known}
    rules |= _rules_of_arrays(group, list(arrays), [condition for condition, _ in known])
    rules.setdefault(
        ManifestSplitCondition.path_matches(TABLES), {ManifestSplitDimCondition.Axis(0): TABLE_CHUNKS}
    )
    rules.setdefault(_path(group, "[^/]+"), _along("|".join(map(re.escape, dims)), TABLE_CHUNKS))
    if len(rules) == len(known):
        return False
    manifest.splitting = ManifestSplittingConfig.from_dict(rules)
    if manifest.preload is None:  # otherwise every session would read some of the many small ones
        manifest.preload = ManifestPreloadConfig(
            max_total_refs=0, preload_if=ManifestPreloadCondition.false()
        )
    config.manifest = manifest
    return True


def with_whole_members(
    config: icechunk.RepositoryConfig, group: str, full: Sequence[tuple[ArrayDraft, Sequence[str]]]
) -> icechunk.RepositoryConfig:
    """The configuration for a commit that fills these members of arrays: each of them gets one manifest.

    Icechunk applies the first rule that fits, so this one goes before the known ones. It names the members:
    others stay split, including the one after a full one, which the next file adds to.
    """
    manifest = config.manifest or ManifestConfig()
    known = {} if manifest.splitting is None else manifest.splitting.to_dict()
    # the last file may have made it longer; a part is written as a whole
    names = _by_size([array for array, _ in full], 2 * FULL)
    members = {array.name: own for array, own in full}
    rules = {
        _path(group, _any_of(f"{name}/{own}" for name in names[each] for own in members[name])): _along(
            re.escape(each[0]), each[1]
        )
        for each in names
    }
    manifest.splitting = ManifestSplittingConfig.from_dict(rules | known)
    config.manifest = manifest
    return config


def _path(group: str, below: str) -> ManifestSplitCondition:
    """Everything below a group, as a regular expression."""
    above = "".join(f"{re.escape(part)}/" for part in group.split("/") if part)
    return ManifestSplitCondition.path_matches(f"^/{above}{below}$")


def _any_of(names: Iterable[str]) -> str:
    return f"({'|'.join(map(re.escape, names))})"


def _along(dims: str, size: int) -> dict[Any, int]:
    return {ManifestSplitDimCondition.DimensionName(f"^({dims})$"): size}


def _rules_of_arrays(
    group: str, arrays: Sequence[ArrayDraft], known: Sequence[ManifestSplitCondition]
) -> dict[ManifestSplitCondition, dict[Any, int]]:
    """A rule for each size among the arrays without a known rule; the last rule names no array.

    Icechunk applies the first rule that fits. The last one is for most arrays.
    """
    patterns = [pattern for condition in known if (pattern := _pattern(condition))]
    new = [
        array
        for array in arrays
        if not any(pattern.search(f"/{group}/{array.name}/m-0".replace("//", "/")) for pattern in patterns)
    ]
    names = _by_size(new, references_a_manifest(len(arrays)))
    rules = {}
    for last, each in enumerate(sorted(names, key=lambda each: len(names[each])), start=1 - len(names)):
        which = "[^/]+" if last == 0 else _any_of(names[each])
        rules[_path(group, f"{which}/{MEMBER}")] = _along(re.escape(each[0]), each[1])
    return rules


def _pattern(condition: ManifestSplitCondition) -> re.Pattern[str] | None:
    """The pattern of paths, if the condition is about paths and Python can compile it."""
    kind: Any = condition  # the stubs do not know that conditions on paths and names are classes
    if type(kind).__name__ != "PathMatches":
        return None
    try:
        return re.compile(kind.regex)
    except re.error:
        return None


def _by_size(arrays: Iterable[ArrayDraft], references: int) -> dict[tuple[str, int], list[str]]:
    """The names of arrays, by the dimension that grows and how many chunks along it have `references`."""
    names: dict[tuple[str, int], list[str]] = {}
    for array in arrays:
        if size := _steps_of(array, references):
            names.setdefault((array.dims[array.growing[0]], size), []).append(array.name)
    return names


def _steps_of(array: ArrayDraft, wanted: int) -> int:
    """How many chunks along the dimension that grows have `wanted` references; 0 if there are none."""
    dim = array.dims[array.growing[0]]
    grids = [
        (each.variable.ranges.grid, each.variable.dims.index(dim))
        for each in array.contributions
        if each.variable.ranges is not None and dim in each.variable.dims
    ]
    steps, references = sum(grid[axis] for grid, axis in grids), sum(prod(grid) for grid, _ in grids)
    return max(1, wanted * steps // references) if references else 0
