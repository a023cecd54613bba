"""Commands that encode stored data again: `recode`, `rewrite`, `compact`."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any

import typer
import zarr

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, print_json, say, show_table, verb, waiting
from intarsia.display import bounds_text, size_text
from intarsia.errors import NotLogicalArrayError
from intarsia.inspect.survey import survey
from intarsia.logical.stored_members import MemberFacts, read_facts


@verb
def recode(
    asked: args.Changing,
    array: args.Array = "",
    codec: args.Codec = None,
    bounds: Annotated[
        str | None,
        typer.Option("--bounds", metavar="A:B,…", help="The box to encode again; everything if left out."),
    ] = None,
    chunks: args.Chunks = None,
    shards: args.Shards = None,
    packing: args.Packing = None,
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Encode a box of an array again: same values, other codecs, one new member.

    Packed regions stay packed; --packing none unpacks them, and another packing packs them again, with
    rounding. In a repository, older versions stay as they are.

    Example: intarsia recode data/store temperature --bounds '0:365, :, :' -c zstd:level=19
    """
    codecs = args.parse_codec_list(codec)
    if codecs is None:
        raise CommandError(
            "say how to encode it: --codec NAME, once for each codec; 'raw' for none, 'auto' for the best"
        )
    place = NamedStore.find(asked)
    options: dict[str, Any] = {
        "codecs": codecs,
        "chunks": args.parse_sizes(chunks, "chunks"),
        "shards": args.parse_sizes(shards, "shards"),
        **args.parse_packing(packing),
    }
    commit = None
    with waiting("recoding") as progress:
        options["progress"] = progress
        if place.repo is None:
            made = place.changeable(array)
            box = args.parse_bounds(bounds, made.shape)
            before = survey(made).total_stored
            made.recode(box, **options)
        else:
            old = place.open(array)
            box = args.parse_bounds(bounds, old.shape)
            before = survey(old).total_stored
            words = message or f"recode {old.path}"
            options |= {"branch": place.branch, "message": words}
            commit = intarsia.recode(place.repo, old.path, box, **options)
            made = place.open(old.path)
        after = survey(made).total_stored
    done = box if box is not None else tuple((0, n) for n in made.shape)
    if as_json:
        print_json(
            store=asked.store,
            path=made.path,
            bounds=[list(pair) for pair in done],
            nbytes_stored_before=before,
            nbytes_stored_after=after,
            snapshot_id=commit,
        )
        return
    say(
        f"recoded {bounds_text(done)} of {made.path or '/'}: the array stores {size_text(after)} now, "
        f"{size_text(before)} before"
    )
    if commit:
        say(f"snapshot {commit}")


@verb
def rewrite(
    asked: args.Changing,
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
            metavar="WHAT",
            help="Which chunks get which nested codecs: compress_if_smaller, smallest, sampled, "
            "always_apply, never_apply.",
        ),
    ] = "compress_if_smaller",
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Go over the chunks of arrays with a `conditional` codec and decide again, in place.

    It can be stopped at any moment and started again.

    Example: intarsia rewrite run42.zarr images --decision smallest
    """
    place = NamedStore.find(asked)
    commit, results = None, []
    changing: Any = nullcontext()
    if place.repo is not None:
        text = message or f"rewrite {array}"
        changing = intarsia.transaction(place.repo, branch=place.branch, message=text)
    else:
        place.store()  # refuses what such a store does not have
    with changing as transaction:
        target = place.writable if transaction is None else transaction.store
        path = array.strip("/")
        place.node(path)  # raises an error that says what there is
        arrays, members = _arrays_that(
            lambda fact: fact.conditional_codecs, target, path, "an array with a conditional codec"
        )
        if not arrays:
            raise intarsia.errors.CodecConfigurationError(
                f"cannot rewrite {path or '/'}: none of its {members} members has a conditional codec.\n"
                "  To give them other codecs: intarsia recode"
            )
        for path, member in arrays:
            with waiting(f"rewriting {path or '/'}") as progress:
                results.append((path, intarsia.codecs.rewrite(member, decision, progress=progress)))
    if transaction is not None:
        commit = transaction.snapshot_id
    if as_json:
        print_json(
            store=asked.store,
            decision=decision,
            arrays=[
                {
                    "path": path,
                    "chunks": done.chunks,
                    "rewritten": done.rewritten,
                    "nbytes_stored_before": done.bytes_before,
                    "nbytes_stored_after": done.bytes_after,
                }
                for path, done in results
            ],
            snapshot_id=commit,
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


@verb
def compact(
    asked: args.Existing,
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
            "--decision",
            "-d",
            metavar="WHAT",
            help="Also decide again which chunks get which nested codecs.",
        ),
    ] = None,
    any_filesystem: Annotated[
        bool,
        typer.Option(
            "--any-filesystem",
            help="Allow a file system that is not known to be local; no other machine may write there.",
        ),
    ] = False,
    as_json: args.Json = False,
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
            "  To join members of equal encoding: intarsia consolidate STORE PATH"
        )
    path = array.strip("/")
    place.node(path)  # raises an error that says what there is
    arrays, members = _arrays_that(lambda fact: fact.is_sharded, place.writable, path, "a sharded array")
    if not arrays:
        raise intarsia.errors.SlotsUnsupportedError(
            f"none of the {members} members of {path or '/'} has shards: there are no slots to compact.\n"
            "  To store it in shards: intarsia recode STORE PATH --codec … --shards …"
        )
    results = []
    for path, sharded in arrays:
        with waiting(f"compacting {path or '/'}") as progress:
            done = intarsia.shards.compact(
                sharded, decision=decision, any_filesystem=any_filesystem, progress=progress
            )
            results.append((path, done))
    if as_json:
        print_json(
            store=asked.store,
            arrays=[
                {
                    "path": path,
                    "shards": done.shards,
                    "replaced": done.replaced,
                    "bytes_before": done.bytes_before,
                    "bytes_after": done.bytes_after,
                }
                for path, done in results
            ],
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


def _arrays_that(
    suit: Callable[[MemberFacts], object], store: Any, path: str, what: str
) -> tuple[list[tuple[str, zarr.Array[Any]]], int]:
    """The Zarr array at a path, or the suitable members of a logical array; and how many were checked.

    `what` tells an error what should be there.
    """
    node = zarr.open(store, path=path, mode="r+", zarr_format=3)
    if isinstance(node, zarr.Array):
        return [(path, node)], 1
    try:
        logical = intarsia.open(node, mode="r+")
    except NotLogicalArrayError as error:
        raise CommandError(f"{path or '/'} is a group: name {what}, or a logical array") from error
    facts = read_facts(logical.group, logical.manifest)
    names = [fact.name for fact in facts if suit(fact)]
    return [(f"{logical.path}/{name}".lstrip("/"), logical.members[name]) for name in names], len(facts)
