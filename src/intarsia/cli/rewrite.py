"""`intarsia rewrite`: write fast, compress later, in place."""

from contextlib import nullcontext
from typing import Annotated, Any

import typer
import zarr

import intarsia
from intarsia.array.frame import open_group
from intarsia.array.manifest import MANIFEST_KEY
from intarsia.cli.arguments import Allow, Branch, Json, Message, StorageOption, Store
from intarsia.cli.output import print_json, say, show_table, waiting
from intarsia.cli.stores import NamedStore, Version
from intarsia.cli.verb import CommandError, verb
from intarsia.report.member_sections import conditional_codecs
from intarsia.report.members import read_facts
from intarsia.words import size_text

__all__ = ["rewrite"]


@verb
def rewrite(
    store: Store,
    array: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="A Zarr array with a conditional codec, or a logical array with such members.",
            show_default=False,
        ),
    ] = "",
    decision: Annotated[
        str,
        typer.Option(
            "--decision",
            "-d",
            help="Which chunks get which nested codecs: compress_if_smaller, smallest, sampled, "
            "always_apply, never_apply.",
        ),
    ] = "compress_if_smaller",
    message: Message = None,
    branch: Branch = None,
    storage_option: StorageOption = None,
    allow: Allow = None,
    as_json: Json = False,
) -> None:
    """Go over the chunks of arrays with a `conditional` codec and decide anew, in place.

    It can be stopped at any moment and started again.

    Example: intarsia rewrite run42.zarr images --decision smallest
    """
    place = NamedStore.find(store, storage_option, allow)
    commit, results = None, []
    changing: Any = nullcontext()
    if place.repo is not None:
        changing = intarsia.transaction(place.repo, branch or "main", message or f"rewrite {array}")
    else:
        place.store(Version(branch))  # refuses what such a store has not
    with changing as transaction:
        target = place.writable if transaction is None else transaction.store
        for path, member in _conditional_arrays(target, array.strip("/")):
            with waiting(f"rewriting {path or '/'}") as progress:
                results.append((path, intarsia.rewrite(member, decision, progress=progress)))
    if transaction is not None:
        commit = transaction.snapshot_id
    if as_json:
        print_json(
            {
                "store": store,
                "decision": decision,
                "arrays": [
                    {
                        "path": path,
                        "chunks": done.chunks,
                        "rewritten": done.rewritten,
                        "nbytes_stored_before": done.bytes_before,
                        "nbytes_stored_after": done.bytes_after,
                    }
                    for path, done in results
                ],
                "snapshot_id": commit,
            }
        )
        return
    rows = [
        (
            path or "/",
            f"{done.rewritten:,} of {done.chunks:,}",
            size_text(done.bytes_before),
            size_text(done.bytes_after),
        )
        for path, done in results
    ]
    show_table(("Array", "Rewritten", "Stored before", "Stored"), rows)
    if commit:
        say(f"snapshot {commit}")


def _conditional_arrays(store: Any, path: str) -> list[tuple[str, zarr.Array[Any]]]:
    """The array at a path, or the members with a conditional codec of the logical array there."""
    try:
        return [(path, zarr.open_array(store, path=path, mode="r+", zarr_format=3))]
    except (FileNotFoundError, ValueError):  # a group, or nothing
        pass
    try:
        group = open_group(store, path, "r+")
    except FileNotFoundError as error:
        raise intarsia.errors.NotLogicalArrayError(
            f"there is neither an array nor a group at {path!r}"
        ) from error
    if MANIFEST_KEY not in group.metadata.attributes:
        raise CommandError(
            f"{path or '/'} is a group: name an array with a conditional codec, or a logical array"
        )
    logical = intarsia.open(group, mode="r+")
    facts = read_facts(group, logical.manifest.members, logical.ndim)
    found = [fact.name for fact in facts if conditional_codecs(fact)]
    if not found:
        raise intarsia.errors.CodecConfigurationError(
            f"cannot rewrite {path or '/'}: none of its {len(facts)} members has a conditional codec.\n"
            "  To give them other codecs: intarsia recode"
        )
    return [(f"{logical.path}/{name}".lstrip("/"), logical.members[name]) for name in found]
