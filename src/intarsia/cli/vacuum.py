"""`intarsia vacuum`: remove what an interrupted change left behind."""

from typing import Annotated

import typer

import intarsia
from intarsia.cli.arguments import Changing, Json
from intarsia.cli.output import print_json, say
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, verb
from intarsia.words import count_text


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
