"""`intarsia vacuum`: remove what an interrupted change left behind."""

from typing import Annotated

import typer

import intarsia
from intarsia.cli.options import AsOf, Branch, Json, Snapshot, StorageOption, Store, Tag
from intarsia.cli.output import print_json, say
from intarsia.cli.place import Place, Version
from intarsia.cli.verb import verb
from intarsia.words import count_text

__all__ = ["vacuum"]


@verb
def vacuum(
    store: Store,
    array: Annotated[
        str,
        typer.Argument(
            metavar="[PATH]", help="Array or group to look at; everything if left out.", show_default=False
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    branch: Branch = None,
    tag: Tag = None,
    snapshot: Snapshot = None,
    as_of: AsOf = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Remove members that no region refers to.

    Do not run it on a store without versions while somebody writes there.

    Example: intarsia vacuum data/store --dry-run
    """
    version = Version(branch, tag, snapshot, as_of)
    place = Place.find(store, storage_option)
    commit = None
    if dry_run or place.repo is None:
        removed = intarsia.vacuum(place.store(version), array, dry_run=dry_run)
    else:
        with intarsia.transaction(place.repo, version.for_writing(), "vacuum") as transaction:
            removed = intarsia.vacuum(transaction.store, array)
        commit = transaction.snapshot_id
    if as_json:
        print_json({"store": store, "dry_run": dry_run, "removed": list(removed), "snapshot_id": commit})
        return
    say(*removed)
    words = "would be removed" if dry_run else "removed"
    say(f"{count_text(len(removed), 'leftover')} {words}" if removed else "nothing is left over")
    if commit:
        say(f"snapshot {commit}")
