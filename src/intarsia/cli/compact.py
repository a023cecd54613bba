"""`intarsia compact`: shards without slots, as small as they can be."""

from typing import Annotated, Any

import typer
import zarr

import intarsia
from intarsia.cli.arguments import Allow, Json, StorageOption, Store
from intarsia.cli.output import print_json, show_table, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, verb
from intarsia.report.members import read_facts
from intarsia.words import size_text

__all__ = ["compact"]


@verb
def compact(
    store: Store,
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
    storage_option: StorageOption = None,
    allow: Allow = None,
    as_json: Json = False,
) -> None:
    """Rewrite slotted shards without slots, shard by shard, while others go on writing.

    For arrays in a local Zarr store. It can be stopped at any moment and started again.

    Example: intarsia compact run42.zarr images --decision compress_if_smaller
    """
    place = NamedStore.find(store, storage_option, allow)
    if place.repo is not None:
        raise intarsia.errors.SlotsUnsupportedError(
            f"{store} is an Icechunk repository, whose chunks never change: there are no slots to compact.\n"
            "  To join members of equal encoding: array.consolidate()"
        )
    results = []
    for path, sharded in _sharded_arrays(place.writable, array.strip("/")):
        with waiting(f"compacting {path or '/'}") as progress:
            done = intarsia.compact(
                sharded, decision=decision, any_filesystem=any_filesystem, progress=progress
            )
            results.append((path, done))
    if as_json:
        print_json(
            {
                "store": store,
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


def _sharded_arrays(store: Any, path: str) -> list[tuple[str, zarr.Array[Any]]]:
    """The array at a path, or the sharded members of the logical array there."""
    try:
        found = zarr.open(store, path=path, mode="r+", zarr_format=3)
    except FileNotFoundError as error:
        raise intarsia.errors.NotLogicalArrayError(
            f"there is neither an array nor a group at {path!r}"
        ) from error
    if isinstance(found, zarr.Array):
        return [(path, found)]
    try:
        logical = intarsia.open(found, mode="r+")
    except intarsia.errors.NotLogicalArrayError as error:
        raise CommandError(f"{path or '/'} is a group: name a sharded array, or a logical array") from error
    facts = read_facts(logical.group, logical.manifest.members, logical.ndim)
    names = [fact.name for fact in facts if fact.is_sharded]
    if not names:
        raise intarsia.errors.SlotsUnsupportedError(
            f"none of the {len(facts)} members of {path or '/'} has shards"
        )
    return [(f"{logical.path}/{name}".lstrip("/"), logical.members[name]) for name in names]
