"""`intarsia restore`: an older state of an array becomes the newest."""

from typing import Annotated

import typer

import intarsia
from intarsia.cli.exits import CommandError
from intarsia.cli.options import Allow, AsOf, Branch, Json, Message, Snapshot, StorageOption, Store, Tag
from intarsia.cli.output import print_json, say
from intarsia.cli.place import Place, Version
from intarsia.cli.verb import verb
from intarsia.cli.waiting import waiting

__all__ = ["restore"]


@verb
def restore(
    store: Store,
    array: Annotated[str, typer.Argument(metavar="PATH", help="Path of the array in the store.")],
    to: Annotated[
        str, typer.Argument(metavar="VERSION", help="A snapshot's id, a tag, a branch or a time (ISO 8601).")
    ],
    message: Message = None,
    branch: Branch = None,
    tag: Tag = None,
    snapshot: Snapshot = None,
    as_of: AsOf = None,
    storage_option: StorageOption = None,
    allow: Allow = None,
    as_json: Json = False,
) -> None:
    """Give an array the layout, values and attributes it had in a version, as a new commit.

    Nothing of the history is lost.

    Example: intarsia restore data/store temperature 2024-05-01
    """
    version = Version(branch, tag, snapshot, as_of)
    place = Place.find(store, storage_option, allow)
    if place.repo is None:
        raise CommandError(f"{store} is a plain Zarr store, which keeps no versions")
    path = array.strip("/")
    with waiting("restoring", counted=False):
        commit = intarsia.restore(
            place.repo, path, to, branch=version.for_writing(), message=message or f"restore {path} to {to}"
        )
    if as_json:
        print_json({"store": store, "path": path, "version": to, "snapshot_id": commit})
        return
    say(f"{path} is as it was in {to}", f"snapshot {commit}")
