"""`intarsia restore`: an older state of an array becomes the newest."""

from typing import Annotated

import typer

import intarsia
from intarsia.cli.arguments import Changing, Json, Message, OneArray
from intarsia.cli.output import print_json, say, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, verb


@verb
def restore(
    asked: Changing,
    array: OneArray,
    to: Annotated[
        str, typer.Argument(metavar="VERSION", help="A snapshot's id, a tag, a branch or a time (ISO 8601).")
    ],
    message: Message = None,
    as_json: Json = False,
) -> None:
    """Give an array the layout, values and attributes it had in a version, as a new commit.

    Nothing of the history is lost.

    Example: intarsia restore data/store temperature 2024-05-01
    """
    place = NamedStore.find(asked)
    if place.repo is None:
        raise CommandError(f"{asked.store} is a plain Zarr store, which keeps no versions")
    path = array.strip("/")
    with waiting("restoring", counted=False):
        commit = intarsia.restore(
            place.repo, path, to, branch=place.branch, message=message or f"restore {path} to {to}"
        )
    if as_json:
        print_json({"store": asked.store, "path": path, "version": to, "snapshot_id": commit})
        return
    say(f"{path} is as it was in {to}", f"snapshot {commit}")
