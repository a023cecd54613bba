"""Commands about versions of an array: `log`, `diff`, `restore`; and its upkeep: `verify`, `vacuum`."""

from dataclasses import replace
from typing import Annotated, Any

import icechunk
import typer

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, Exit, in_options, print_json, say, show_table, verb, waiting
from intarsia.display import bounds_text, count_text, size_text
from intarsia.logical.hierarchy import logical_arrays
from intarsia.progress import part_of
from intarsia.versions.collect import repository_leftovers
from intarsia.versions.diff import ArrayChange
from intarsia.versions.history import history
from intarsia.versions.version import moment


@verb
def log(
    asked: args.Reading,
    array: args.Array = "",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=0, help="Show only the newest ones.")
    ] = None,
    as_json: args.Json = False,
) -> None:
    """List the commits that changed an array, newest first, and what each of them did.

    Example: intarsia log data/store temperature --limit 10
    """
    place, repo = _versioned(asked, "history")
    tip = place.session().snapshot_id
    path = place.one_array(array)
    with waiting("comparing versions", counted=False):
        entries = history(repo, path, snapshot_id=tip, limit=limit)
    if not entries:
        place.node(path)  # raises an error that says what there is
    if as_json:
        print_json(
            store=asked.store,
            path=path,
            commits=[
                {
                    "snapshot_id": entry.snapshot_id,
                    "parent_id": entry.parent_id,
                    "written_at": entry.written_at.isoformat(),
                    "message": entry.message,
                    "change": _change_json(entry.changes[0]) if entry.changes else None,
                }
                for entry in entries
            ],
        )
        return
    rows = [
        (
            entry.snapshot_id,
            f"{entry.written_at:%Y-%m-%d %H:%M:%S}",
            entry.message,
            "; ".join(entry.changes[0].lines(most=3)) if entry.changes else "",
            size_text(entry.bytes_written),
        )
        for entry in entries
    ]
    if rows:
        show_table(("Snapshot", "Time (UTC)", "Message", "What changed", "Bytes"), rows)
    else:
        say(f"no commit changed {path or '/'}")


@verb
def diff(
    asked: args.Reading,
    array: args.SingleArrayHandle,
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE", help="The earlier version: a snapshot's id, a tag, a branch or a time."
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="AFTER",
            help="The later version, in the same form; if left out, the one that the options below name.",
            show_default=False,
        ),
    ] = "",
    as_json: args.Json = False,
) -> None:
    """Show what differs between two versions: regions added, dropped, recoded, written; attributes; bytes.

    Example: intarsia diff data/store temperature 2024-05-01 main
    """
    place, repo = _versioned(asked)
    if after and place.version.is_explicit:
        raise CommandError(
            "give the later version only once: as AFTER, or with --branch, --tag, --snapshot or --as-of"
        )
    later = after or place.session().snapshot_id
    path = array.strip("/")
    with waiting("comparing versions", counted=False):
        change = intarsia.diff(repo, path, before, later)
    if change.shape_before is None and change.shape_after is None:
        raise intarsia.errors.NotLogicalArrayError(f"there is no logical array at {path!r} in either version")
    if as_json:
        print_json(store=asked.store, path=path, before=before, after=later, change=_change_json(change))
        return
    if not change:
        say("no difference")
        return
    if change.shape_before != change.shape_after:
        was = "no array" if change.shape_before is None else str(change.shape_before)
        now = "no array" if change.shape_after is None else str(change.shape_after)
        say(f"Shape     : {was} before, {now} after")
    if change.attributes:
        say(f"Attributes: {', '.join(change.attributes)}")
    say(f"Written   : {size_text(change.bytes_written)}")
    if change.regions:
        rows = [
            (
                region.kind,
                bounds_text(region.bounds) + (f", layer {region.layer}" if region.layer else ""),
                region.codecs_before or "",
                region.codecs_after or "",
            )
            for region in change.regions
        ]
        show_table(("Change", "Region", "Codecs before", "Codecs after"), rows)


@verb
def restore(
    asked: args.Changing,
    array: args.SingleArrayHandle,
    to: Annotated[
        str, typer.Argument(metavar="VERSION", help="A snapshot's id, a tag, a branch or a time (ISO 8601).")
    ],
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Give an array the layout, values and attributes it had in a version, as a new commit.

    No history is lost.

    Example: intarsia restore data/store temperature 2024-05-01
    """
    place, repo = _versioned(asked)
    path = array.strip("/")
    with waiting("restoring", counted=False):
        commit = intarsia.restore(
            repo, path, to, branch=place.branch, message=message or f"restore {path} to {to}"
        )
    if as_json:
        print_json(store=asked.store, path=path, version=to, snapshot_id=commit)
        return
    say(f"{path} is as it was in {to}", f"snapshot {commit}")


def _change_json(change: ArrayChange) -> dict[str, Any]:
    """What differs between two versions of an array, as printed by `log --json` and `diff --json`."""
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
                "layer": region.layer,
            }
            for region in change.regions
        ],
        "attributes": list(change.attributes),
        "bytes_written": change.bytes_written,
        "bytes_referenced": change.bytes_referenced,
    }


def _versioned(asked: args.Existing, what: str = "versions") -> tuple[NamedStore, icechunk.Repository]:
    """The store that the command line names, if it has versions."""
    place = NamedStore.find(asked)
    if place.repo is None:
        raise CommandError(
            f"{asked.store} is a plain Zarr store, which keeps no {what}; an Icechunk repository does"
        )
    return place, place.repo


@verb
def verify(
    asked: args.Reading,
    array: args.AnyArrays = "",
    no_data: Annotated[
        bool, typer.Option("--no-data", help="Check only the metadata; do not read stored chunks.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also compare the values of replicas with those of layer 0.")
    ] = False,
    as_json: args.Json = False,
) -> int:
    """Check the manifest, the members and every stored chunk; list all problems at once.

    Ends with exit code 1 if anything is damaged, so that a script can act on it; leftovers do no harm. Files
    that the repository refers to are read below what --allow names; if that is not enough, the code is 9.

    Example: intarsia verify data/store temperature
    """
    place = NamedStore.find(asked)
    opened = place.store()
    paths = [array.strip("/")] if array else logical_arrays(opened, inside_arrays=True)
    if not paths:
        raise intarsia.errors.NotLogicalArrayError(f"there is no logical array in {asked.store}")
    data = not no_data
    with waiting("reading every chunk" if data else "checking", unit="bytes", counted=data) as progress:
        problems: list[intarsia.types.Problem] = []
        sizes = [_size(opened, path) for path in paths]
        whole = sum(sizes)
        for i, path in enumerate(paths):
            part = part_of(progress, sum(sizes[:i]), sizes[i], whole)
            try:
                found = intarsia.verify(opened, path, data=data, deep=deep, progress=part)
            except intarsia.errors.NotLogicalArrayError:
                place.open(path)  # raises an error that says what is there instead
                raise
            problems += [each for each in found if each.kind != "access" or each not in problems]
        if place.repo is not None and not array:
            problems += repository_leftovers(place.repo)
        problems = [replace(each, advice=in_options(each.advice, ())) for each in problems]
    if as_json:
        print_json(
            store=asked.store,
            arrays=paths,
            data=data,
            deep=deep,
            problems=[
                {"kind": p.kind, "where": p.where, "what": p.what, "advice": p.advice or None}
                for p in problems
            ],
        )
    elif problems:
        rows = [(p.kind, p.where, p.what + (f" ({p.advice})" if p.advice else "")) for p in problems]
        show_table(("Kind", "Where", "What"), rows)
    if not as_json:
        checked = f"{count_text(len(paths), 'array')} checked" + ("" if data else ", stored chunks not read")
        say(f"{checked}: {count_text(len(problems), 'problem') if problems else 'no problems'}")
    kinds = {problem.kind for problem in problems} - {"leftover"}
    return Exit.OK if not kinds else Exit.NOT_ALLOWED if kinds == {"access"} else Exit.PROBLEMS


def _size(store: Any, path: str) -> int:
    """The bytes of values, for the progress; 0 for an array that cannot be opened."""
    try:
        return intarsia.open(store, path).nbytes
    except intarsia.IntarsiaError:
        return 0


@verb
def vacuum(
    asked: args.Changing,
    array: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="Array or group to look at; everything if left out.", show_default=False
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    forget_before: Annotated[
        str | None,
        typer.Option(
            "--forget-before",
            metavar="TIME",
            help="In a repository: forget versions older than this, and remove what none refers to.",
        ),
    ] = None,
    as_json: args.Json = False,
) -> None:
    """Remove members that no region refers to; on request also old versions.

    Do not run it on a store without versions while somebody writes there.

    Example: intarsia vacuum data/store --dry-run
    """
    place = NamedStore.find(asked)
    if forget_before:
        _check_forget(place, forget_before, dry_run=dry_run)
    commit = None
    removed = intarsia.vacuum(place.store(), array, dry_run=True)
    if not as_json:
        say(*removed)  # before it happens
    if place.repo is None and not dry_run:
        removed = intarsia.vacuum(place.writable, array)
    elif place.repo is not None and not dry_run:
        with intarsia.transaction(place.repo, branch=place.branch, message="vacuum") as transaction:
            removed = intarsia.vacuum(transaction.store, array)
        commit = transaction.snapshot_id
    collected = None
    if forget_before and place.repo is not None:
        collected = intarsia.vacuum(place.repo, array, branch=place.branch, forget_before=forget_before)
    if as_json:
        print_json(
            store=asked.store,
            dry_run=dry_run,
            removed=list(removed),
            snapshot_id=commit,
            forgotten=None if collected is None else len(collected.expired),
            nbytes_freed=None if collected is None else collected.nbytes,
        )
        return
    words = "would be removed" if dry_run else "removed"
    say(f"{count_text(len(removed), 'leftover')} {words}" if removed else "nothing is left over")
    if commit:
        say(f"snapshot {commit}")
    if collected is not None:
        say(f"{count_text(len(collected.expired), 'version')} forgotten: {collected}")


def _check_forget(place: NamedStore, before: str, *, dry_run: bool) -> None:
    if place.repo is None:
        raise CommandError("--forget-before needs an Icechunk repository; a plain Zarr store has no versions")
    if dry_run:
        raise CommandError("--forget-before has no dry run: leave out --dry-run")
    try:
        moment(before)
    except ValueError as error:
        raise CommandError(f"--forget-before: {error}") from error
