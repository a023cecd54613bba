"""Commands that keep a store whole: `verify` and `vacuum`."""

from typing import Annotated

import typer

import intarsia
from intarsia.array.hierarchy import logical_arrays
from intarsia.cli.arguments import AnyArrays, Changing, Json, Reading
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, Exit, print_json, say, show_table, verb, waiting
from intarsia.versions.upkeep import repository_leftovers
from intarsia.words import count_text


@verb
def verify(
    asked: Reading,
    array: AnyArrays = "",
    data: Annotated[
        bool, typer.Option("--data/--no-data", help="Read every stored chunk, or only the metadata.")
    ] = True,
    as_json: Json = False,
) -> int:
    """Check manifest, members and every stored chunk; list all problems at once.

    Ends with exit code 1 if anything is damaged, so that a script can act on it; leftovers do no harm.

    Example: intarsia verify data/store temperature
    """
    place = NamedStore.find(asked)
    opened = place.store()
    paths = [array.strip("/")] if array else logical_arrays(opened, inside_arrays=True)
    if not paths:
        raise intarsia.errors.NotLogicalArrayError(f"there is no logical array in {asked.store}")
    with waiting("reading every chunk" if data else "checking") as progress:
        problems: list[intarsia.types.Problem] = []
        for done, path in enumerate(paths):
            progress(done, len(paths))
            problems += intarsia.verify(opened, path, data=data)
        if place.repo is not None and not array:
            problems += repository_leftovers(place.repo)
    if as_json:
        print_json(
            {
                "store": asked.store,
                "arrays": paths,
                "data": data,
                "problems": [
                    {"kind": p.kind, "where": p.where, "what": p.what, "advice": p.advice or None}
                    for p in problems
                ],
            }
        )
    elif problems:
        rows = [(p.kind, p.where, p.what + (f" ({p.advice})" if p.advice else "")) for p in problems]
        show_table(("Kind", "Where", "What"), rows)
    if not as_json:
        checked = f"{count_text(len(paths), 'array')} checked" + ("" if data else ", stored chunks not read")
        say(f"{checked}: {count_text(len(problems), 'problem') if problems else 'no problem'}")
    return Exit.PROBLEMS if any(problem.kind != "leftover" for problem in problems) else Exit.OK


@verb
def vacuum(
    asked: Changing,
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
    as_json: Json = False,
) -> None:
    """Remove members that no region refers to; on request also old versions.

    Do not run it on a store without versions while somebody writes there.

    Example: intarsia vacuum data/store --dry-run
    """
    place = NamedStore.find(asked)
    if forget_before:
        _check_forget(place, dry_run=dry_run)
    commit = None
    removed = intarsia.vacuum(place.store(), array, dry_run=True)
    if not as_json:
        say(*removed)  # before it happens
    if place.repo is None and not dry_run:
        removed = intarsia.vacuum(place.writable, array)
    elif place.repo is not None and not dry_run:
        with intarsia.transaction(place.repo, place.branch, "vacuum") as transaction:
            removed = intarsia.vacuum(transaction.store, array)
        commit = transaction.snapshot_id
    collected = None
    if forget_before and place.repo is not None:
        collected = intarsia.expire_and_collect(place.repo, forget_before)
    if as_json:
        print_json(
            {
                "store": asked.store,
                "dry_run": dry_run,
                "removed": list(removed),
                "snapshot_id": commit,
                "forgotten": None if collected is None else len(collected.expired),
                "nbytes_freed": None if collected is None else collected.nbytes,
            }
        )
        return
    words = "would be removed" if dry_run else "removed"
    say(f"{count_text(len(removed), 'leftover')} {words}" if removed else "nothing is left over")
    if commit:
        say(f"snapshot {commit}")
    if collected is not None:
        say(f"{count_text(len(collected.expired), 'version')} forgotten: {collected}")


def _check_forget(place: NamedStore, *, dry_run: bool) -> None:
    if place.repo is None:
        raise CommandError("--forget-before needs an Icechunk repository; a plain Zarr store has no versions")
    if dry_run:
        raise CommandError("--forget-before cannot be tried: leave out --dry-run")
