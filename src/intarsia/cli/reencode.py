"""Commands that encode stored data again, or say how: `recode`, `advise`, `optimize`, `rewrite`, …"""

from typing import Any, Literal

import zarr

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.output import CommandError, Output
from intarsia.cli.stores import BranchToCommit, ExistingStore, VersionToRead
from intarsia.cli.verb import verb
from intarsia.codecs import parse_codecs
from intarsia.display import Table, bounds_text, count_text, json_of, size_text
from intarsia.errors import SlotsUnsupportedError
from intarsia.inspect.survey import survey
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.box import element_bounds
from intarsia.progress import Progress


@verb(intarsia.recode)
def recode(
    place: BranchToCommit, array: args.Array = "", *, bounds: args.Bounds = None, **options: Any
) -> Output:
    """Encode a box of an array again: same values, other codecs, one new member.

    Packed regions stay packed; --packing none unpacks them, and another packing packs them again, with
    rounding. In a repository, older versions stay as they are.

    Example: intarsia recode data/store temperature --bounds '0:365, :, :' -c zstd:level=19

    Args:
        bounds (A:B,…): The box to encode again; everything if left out.
    """
    if "codecs" not in options:
        raise CommandError(
            "say how to encode it: --codec NAME, once for each codec; 'raw' for none, 'auto' for the best"
        )
    old = place.open(array)
    before = survey(old).total_stored
    made, commit = place.call("recode", old.path, bounds, **options)
    after = survey(made).total_stored
    box = element_bounds(... if bounds is None else bounds, made.shape)
    return Output(
        f"recoded {bounds_text(box)} of {old.path or '/'}: the array stores {size_text(after)} now, "
        f"{size_text(before)} before",
        path=old.path,
        bounds=box,
        nbytes_stored_before=before,
        nbytes_stored_after=after,
        snapshot_id=commit,
    )


type Objective = Literal["size", "balanced", "speed"]


@verb()
def advise(
    place: VersionToRead,
    array: str = "",
    *,
    objective: Objective = "balanced",
    bounds: args.Bounds = None,
) -> Output:
    """Try encodings on samples of an array and list them, best first; nothing is changed.

    Example: intarsia advise data/store temperature --objective size

    Args:
        array (PATH): Any Zarr array; may be left out if there is only one.
        objective (-o WHAT): What counts: size, balanced (object storage) or speed (a fast disk).
        bounds (A:B,…): Only this box of the array.
    """
    opened = place.readable(array)
    advice = intarsia.advise(opened, objective, bounds=bounds)
    verb = "optimize STORE PATH" if isinstance(opened, LogicalArray) else "convert STORE NEW_STORE"
    encodings = [
        json_of(trial) | {"codecs": [codec.to_dict() for codec in parse_codecs(trial.codecs)]}
        for trial in advice.trials
    ]
    return Output(
        advice,
        f"To use the best: intarsia {verb} --objective {objective}",
        path=opened.path,
        objective=objective,
        encodings=encodings,
    )


@verb(unit="bytes")
def optimize(
    place: BranchToCommit, array: args.Array = "", *, objective: Objective = "balanced", progress: Progress
) -> Output:
    """Recode every region for which another encoding is clearly better; same values, and one commit.

    With the objective size, no region gets larger. In a repository, older versions stay as they are.

    Example: intarsia optimize data/store temperature --objective size

    Args:
        objective (-o WHAT): What counts: size, balanced (object storage) or speed (a fast disk).
    """
    name = place.open(array).path
    with place.change_array(name, f"optimize {name} for {objective}") as (opened, change):
        changes: Any = opened.optimize(objective, progress=progress)
    saved = sum(change.saved for change in changes)
    how = "saved" if saved >= 0 else "more, for speed"
    shown = [changes, f"{count_text(len(changes), 'region')} recoded: {size_text(abs(saved))} {how}"]
    return Output(
        *(shown if changes else [f"{name or '/'}: {changes.empty}"]),
        path=name,
        objective=objective,
        changes=changes,
        snapshot_id=change.snapshot_id,
    )


@verb()
def consolidate(place: BranchToCommit, array: args.Array = "") -> Output:
    """Join neighbouring regions of equal encoding; stored chunks are copied as they are.

    Example: intarsia consolidate data/store temperature
    """
    name = place.open(array).path
    with place.change_array(name, f"consolidate {name}") as (opened, change):
        gone, left = opened.consolidate(), len(opened.manifest.regions)
    words = f"{count_text(gone, 'region')} joined to others, {left} left"
    if not gone:
        words = f"nothing to join in {count_text(left, 'region')}"
    said = f"{name or '/'}: {words}"
    return Output(said, path=name, joined=gone, regions=left, snapshot_id=change.snapshot_id)


@verb()
def rewrite(
    place: BranchToCommit, array: str = "", *, decision: str = "compress_if_smaller", progress: Progress
) -> Output:
    """Go over the chunks of arrays with a `conditional` codec and decide again, in place.

    It can be stopped at any moment and started again.

    Example: intarsia rewrite run42.zarr images --decision smallest

    Args:
        array (PATH): A Zarr array with a conditional codec, or a logical array with such members.
        decision (-d WHAT): Which chunks get which nested codecs: compress_if_smaller, smallest, sampled,
            always_apply, never_apply.
    """
    path = array.strip("/")
    with place.change(f"rewrite {path}") as change:
        done = intarsia.codecs.rewrite(place.array_to_change(change.store, path), decision, progress=progress)
    said, commit = f"{path or '/'}: {done}", change.snapshot_id
    return Output(said, path=path, decision=decision, **json_of(done), snapshot_id=commit)


@verb()
def compact(
    place: ExistingStore,
    array: str = "",
    *,
    decision: str | None = None,
    any_filesystem: bool = False,
    progress: Progress,
) -> Output:
    """Rewrite slotted shards without slots, shard by shard, while others go on writing.

    For arrays in a local Zarr store. It can be stopped at any moment and started again.

    Example: intarsia compact run42.zarr images --decision compress_if_smaller

    Args:
        array (PATH): A sharded Zarr array, or a logical array with sharded members.
        decision (-d WHAT): Also decide again which chunks get which nested codecs.
        any_filesystem: Allow a file system that is not known to be local; no other machine may write there.
    """
    if place.repo is not None:
        raise SlotsUnsupportedError(
            f"{place.store} is an Icechunk repository, whose chunks never change: "
            "there are no slots to compact.\n"
            "  To join members of equal encoding: intarsia consolidate STORE PATH"
        )
    path = array.strip("/")
    node = place.array_to_change(place.target, path)
    named = {path: node} if isinstance(node, zarr.Array) else node.members
    arrays = {name: member for name, member in named.items() if member.shards or member is node}
    if not arrays:
        raise SlotsUnsupportedError(
            f"none of the {len(named)} members of {path or '/'} has shards: there are no slots to compact.\n"
            "  To store it in shards: intarsia recode STORE PATH --codec … --shards …"
        )
    results = []
    for name, each in arrays.items():
        done = intarsia.shards.compact(
            each, decision=decision, any_filesystem=any_filesystem, progress=progress
        )
        results.append({"path": name, **json_of(done)})
    columns: dict[str, Any] = {
        "Array": lambda done: done["path"] or "/",
        "Shards replaced": lambda done: f"{done['replaced']:,} of {done['shards']:,}",
        "On disk before": lambda done: size_text(done["bytes_before"]),
        "On disk": lambda done: size_text(done["bytes_after"]),
    }
    return Output(Table.of(results, columns), arrays=results)
