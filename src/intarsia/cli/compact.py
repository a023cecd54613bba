"""`intarsia compact`: shards without slots, as small as they can be."""

from typing import Annotated

import typer

import intarsia
from intarsia.cli.arguments import Existing, Json
from intarsia.cli.output import print_json, show_table, waiting
from intarsia.cli.stores import NamedStore, arrays_that
from intarsia.cli.verb import verb
from intarsia.words import size_text


@verb
def compact(
    asked: Existing,
    array: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="A sharded Zarr array, or a logical array with sharded members.",
            show_default=False,
        ),
    ] = "",
    decision: Annotated[
        str | None,
        typer.Option(
            "--decision", "-d", help="On the way, decide anew which chunks get which nested codecs."
        ),
    ] = None,
    any_filesystem: Annotated[
        bool,
        typer.Option(
            "--any-filesystem",
            help="Also on a file system that is not known to be local: no other machine writes there.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Rewrite slotted shards without slots, shard by shard, while others go on writing.

    For arrays in a local Zarr store. It can be stopped at any moment and started again.

    Example: intarsia compact run42.zarr images --decision compress_if_smaller
    """
    place = NamedStore.find(asked)
    if place.repo is not None:
        raise intarsia.errors.SlotsUnsupportedError(
            f"{asked.store} is an Icechunk repository, whose chunks never change: "
            "there are no slots to compact.\n"
            "  To join members of equal encoding: array.consolidate()"
        )
    path = array.strip("/")
    arrays, members = arrays_that(lambda fact: fact.is_sharded, place.writable, path, "a sharded array")
    if not arrays:
        raise intarsia.errors.SlotsUnsupportedError(
            f"none of the {members} members of {path or '/'} has shards"
        )
    results = []
    for path, sharded in arrays:
        with waiting(f"compacting {path or '/'}") as progress:
            done = intarsia.compact(
                sharded, decision=decision, any_filesystem=any_filesystem, progress=progress
            )
            results.append((path, done))
    if as_json:
        print_json(
            {
                "store": asked.store,
                "arrays": [
                    {
                        "path": path,
                        "shards": done.shards,
                        "replaced": done.replaced,
                        "bytes_before": done.bytes_before,
                        "bytes_after": done.bytes_after,
                    }
                    for path, done in results
                ],
            }
        )
        return
    rows = [
        (
            path or "/",
            f"{done.replaced:,} of {done.shards:,}",
            size_text(done.bytes_before),
            size_text(done.bytes_after),
        )
        for path, done in results
    ]
    show_table(("Array", "Shards replaced", "On disk before", "On disk"), rows)
