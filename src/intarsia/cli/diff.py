"""`intarsia diff`: what differs between two versions of an array."""

from typing import Annotated

import typer

import intarsia
from intarsia.cli.arguments import Json, OneArray, Reading
from intarsia.cli.output import change_json, print_json, say, show_table, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, verb
from intarsia.words import bounds_text, size_text


@verb
def diff(
    asked: Reading,
    array: OneArray,
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
            help="The later version, spelled likewise; else what the options below say.",
            show_default=False,
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Show what differs between two versions: regions added, dropped, recoded, written; attributes; bytes.

    Example: intarsia diff data/store temperature 2024-05-01 main
    """
    place = NamedStore.find(asked)
    if place.repo is None:
        raise CommandError(
            f"{asked.store} is a plain Zarr store, which keeps no versions; an Icechunk repository does"
        )
    if after and place.version.is_given:
        raise CommandError(
            "say the later version once: as AFTER, or by --branch, --tag, --snapshot or --as-of"
        )
    later = after or place.session().snapshot_id
    path = array.strip("/")
    with waiting("comparing versions", counted=False):
        change = intarsia.diff(place.repo, path, before, later)
    if change.shape_before is None and change.shape_after is None:
        raise intarsia.errors.NotLogicalArrayError(f"there is no logical array at {path!r} in either version")
    if as_json:
        print_json(
            {
                "store": asked.store,
                "path": path,
                "before": before,
                "after": later,
                "change": change_json(change),
            }
        )
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
            (region.kind, bounds_text(region.bounds), region.codecs_before or "", region.codecs_after or "")
            for region in change.regions
        ]
        show_table(("Change", "Region", "Codecs before", "Codecs after"), rows)
