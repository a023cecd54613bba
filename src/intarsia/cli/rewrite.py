"""`intarsia rewrite`: write fast, compress later, in place."""

from contextlib import nullcontext
from typing import Annotated, Any

import typer

import intarsia
from intarsia.cli.arguments import Changing, Json, Message
from intarsia.cli.output import print_json, say, show_table, waiting
from intarsia.cli.stores import NamedStore, arrays_that
from intarsia.cli.verb import verb
from intarsia.report.member_sections import conditional_codecs
from intarsia.words import size_text


@verb
def rewrite(
    asked: Changing,
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
    as_json: Json = False,
) -> None:
    """Go over the chunks of arrays with a `conditional` codec and decide anew, in place.

    It can be stopped at any moment and started again.

    Example: intarsia rewrite run42.zarr images --decision smallest
    """
    place = NamedStore.find(asked)
    commit, results = None, []
    changing: Any = nullcontext()
    if place.repo is not None:
        changing = intarsia.transaction(place.repo, place.branch, message or f"rewrite {array}")
    else:
        place.store()  # refuses what such a store has not
    with changing as transaction:
        target = place.writable if transaction is None else transaction.store
        path = array.strip("/")
        arrays, members = arrays_that(conditional_codecs, target, path, "an array with a conditional codec")
        if not arrays:
            raise intarsia.errors.CodecConfigurationError(
                f"cannot rewrite {path or '/'}: none of its {members} members has a conditional codec.\n"
                "  To give them other codecs: intarsia recode"
            )
        for path, member in arrays:
            with waiting(f"rewriting {path or '/'}") as progress:
                results.append((path, intarsia.rewrite(member, decision, progress=progress)))
    if transaction is not None:
        commit = transaction.snapshot_id
    if as_json:
        print_json(
            {
                "store": asked.store,
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
