"""Commands that keep a store in order: `verify`, `vacuum`, `replicate`, `maintain`."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.output import CommandError, Exit, Output
from intarsia.cli.stores import BranchToChange, BranchToCommit, VersionToRead, usage_errors
from intarsia.cli.verb import verb
from intarsia.display import Column, Table, bounds_text, count_text, size_text
from intarsia.errors import NotLogicalArrayError, ReadOnlyError, RepositoryError
from intarsia.inspect.survey import survey
from intarsia.logical.hierarchy import logical_arrays
from intarsia.manifest.box import element_bounds
from intarsia.progress import Progress
from intarsia.versions.maintain import MaintenanceStep
from intarsia.versions.verify_vacuum import unreferenced_objects


@verb()
def verify(
    place: VersionToRead,
    array: args.AnyArrays = "",
    *,
    no_data: bool = False,
    deep: bool = False,
    progress: Progress,
) -> Output:
    """Check the manifest, the members and every stored chunk; list all problems at once.

    Ends with exit code 1 if anything is damaged, so that a script can act on it. What writers left behind is
    mentioned, but it does no harm. Files that the repository refers to are read below what --allow names; if
    that is not enough, the code is 9.

    Example: intarsia verify data/store temperature

    Args:
        no_data: Check only the metadata; do not read stored chunks.
        deep: Also compare the values of replicas with those of layer 0.
    """
    (store, version), data = place.at_version(), not no_data
    paths = [array.strip("/")] if array else logical_arrays(place.resolved.store, inside_arrays=True)
    try:
        problems = intarsia.verify(store, array, data=data, deep=deep, progress=progress, **version)
    except NotLogicalArrayError:
        place.open(array)  # raises an error that says what is there instead
        raise
    if not paths:
        place.open("")  # as above
    columns: dict[str, Any] = {
        "Kind": "kind",
        "Where": "where",
        "What": lambda problem: problem.what + (f" ({problem.advice})" if problem.advice else ""),
    }
    checked = f"{count_text(len(paths), 'array')} checked" + ("" if data else ", stored chunks not read")
    kinds = {problem.kind for problem in problems}
    remains = [] if problems else _leftovers(place, array)
    return Output(
        *([Table.of(problems, columns)] if problems else []),
        f"{checked}: {count_text(len(problems), 'problem') if problems else 'no problems'}",
        *remains,
        arrays=paths,
        data=data,
        deep=deep,
        problems=problems,
        leftovers=remains,
        code=Exit.OK if not kinds else Exit.NOT_ALLOWED if kinds == {"access"} else Exit.PROBLEMS,
    )


def _leftovers(place: VersionToRead, array: str) -> list[str]:
    """What `vacuum` would remove, a line for each; it does no harm.

    The uploads of a writer at work look like those of one that was interrupted.
    """
    lines = [
        f"left over: {path} (intarsia vacuum removes it)"
        for path in intarsia.vacuum(place.resolved.store, array, dry_run=True)
    ]
    if place.repo is not None and not array:
        with suppress(RepositoryError, ReadOnlyError):  # storage that cannot be listed, as over HTTP
            remains = unreferenced_objects(place.repo)
            if not remains.is_empty:
                how = "intarsia vacuum --forget-before TIME removes them"
                lines.append(f"left over: {remains} that no version refers to ({how})")
    return lines


@verb()
def vacuum(
    place: BranchToChange,
    array: args.AnyNode = "",
    *,
    dry_run: bool = False,
    forget_before: str | None = None,
) -> Output:
    """Remove members that no region refers to; on request also old versions.

    Do not run it on a store without versions while somebody writes there.

    Example: intarsia vacuum data/store --dry-run

    Args:
        dry_run: Only list what would be removed.
        forget_before (TIME): In a repository: forget versions older than this, and remove what none refers
            to.
    """
    options: Any = {"dry_run": dry_run, "branch": place.branch, "forget_before": forget_before}
    with usage_errors():
        done: Any = intarsia.vacuum(place.target, array, **options)
    collected = done if forget_before else None
    removed = done.removed if forget_before else done
    words = "would be removed" if dry_run else "removed"
    forgotten = None if collected is None else len(collected.expired)
    return Output(
        *removed,
        f"{count_text(len(removed), 'leftover')} {words}" if removed else "nothing is left over",
        *([] if forgotten is None else [f"{count_text(forgotten, 'version')} forgotten: {collected}"]),
        dry_run=dry_run,
        removed=removed,
        forgotten=forgotten,
        nbytes_freed=None if collected is None else collected.nbytes,
    )


@verb(intarsia.add_replica, without=["layer", "packing"])
def replicate(
    place: BranchToCommit,
    array: args.Array = "",
    *,
    bounds: args.Bounds = None,
    drop: args.Positive = None,
    **options: Any,
) -> Output:
    """Store a box of an array a second time, in another layout: reads use the one that costs less.

    Layer 0 stays as it is; files that were ingested are not touched. A replica of everything is kept up to
    date by `intarsia maintain`.

    Example: intarsia replicate data/store temperature --chunks 1461,10,10 -c zstd

    Args:
        bounds (A:B,…): The box to store once more; everything if left out.
        drop (LAYER): Drop this replica instead.
    """
    old = place.open(array)
    if (drop is None) == (options.keys() == {"progress"}):
        raise CommandError("say how the replica is stored (--chunks, --codec, --shards), or --drop one")
    if drop is not None:
        message = f"drop the replica in layer {drop} of {old.path}"
        with place.change_array(old.path, message) as (opened, change):
            opened.drop_replica(bounds, layer=drop)
        made, layer, commit = opened, drop, change.snapshot_id
    else:
        made, commit = place.call("add_replica", old.path, bounds, **options)
        newest = made.manifest.members[-1]
        layer = next(replica.layer for replica in made.replicas if replica.name == newest)
    box = element_bounds(... if bounds is None else bounds, made.shape)
    stored = survey(made, layer=layer).total_stored if layer in made.manifest.layers else 0
    what = "dropped" if drop is not None else "replicated"
    return Output(
        f"{what} {bounds_text(box)} of {made.path or '/'}: layer {layer} stores {size_text(stored)} now",
        path=made.path,
        layer=layer,
        dropped=drop is not None,
        bounds=box,
        layers=made.manifest.layers,
        nbytes_stored=stored,
        snapshot_id=commit,
    )


MAINTAIN_COLUMNS: Mapping[str, Column[MaintenanceStep]] = {
    "What": "what", "Path": "path", "Layer": "layer", "Region": "bounds", "Snapshot": "snapshot_id",
}  # fmt: skip


@verb()
def maintain(
    place: BranchToChange, array: args.AnyArrays = "", *, dry_run: bool = False, progress: Progress
) -> Output:
    """Do what the policies of arrays ask for: update replicas, recode tails, join regions.

    Run it daily on an archive: it is safe alongside writers. It can be stopped at any moment and started
    again; if there is nothing to do, it does nothing. In a plain Zarr store, use recode, optimize,
    consolidate and vacuum.

    Example: intarsia maintain data/store

    Args:
        dry_run: Only list what there is to do.
    """
    repo, path = place.repository("is not maintained step by step"), array.strip("/")
    steps = intarsia.maintain(repo, path, branch=place.branch_name, dry_run=dry_run, progress=progress)
    done = f"{count_text(len(steps), 'step')} {'to do' if dry_run else 'done'}"
    if not steps:
        done = "nothing to do: every array is as its policy asks, or has none"
    table = [Table.of(steps, MAINTAIN_COLUMNS)] if steps else []
    return Output(*table, done, dry_run=dry_run, steps=steps)
