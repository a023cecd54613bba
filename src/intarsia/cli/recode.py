"""`intarsia recode`: the same values, encoded anew."""

from typing import Annotated, Any

import typer

import intarsia
from intarsia.cli.arguments import (
    Array,
    Changing,
    Chunks,
    Codec,
    Json,
    Message,
    Shards,
    parse_bounds,
    parse_codec_list,
    parse_sizes,
)
from intarsia.cli.output import print_json, say, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, verb
from intarsia.report.survey import survey
from intarsia.words import bounds_text, size_text


@verb
def recode(
    asked: Changing,
    array: Array = "",
    codec: Codec = None,
    bounds: Annotated[
        str | None,
        typer.Option("--bounds", metavar="A:B,…", help="The box to encode anew; everything if left out."),
    ] = None,
    chunks: Chunks = None,
    shards: Shards = None,
    message: Message = None,
    as_json: Json = False,
) -> None:
    """Encode a box of an array anew: same values, other codecs, one new member.

    In a repository older versions stay as they are.

    Example: intarsia recode data/store temperature --bounds '0:365, :, :' -c zstd:level=19
    """
    codecs = parse_codec_list(codec)
    if codecs is None:
        raise CommandError("say how to encode: --codec NAME, repeated; 'raw' for none, 'auto' for what suits")
    place = NamedStore.find(asked)
    options: dict[str, Any] = {
        "codecs": codecs,
        "chunks": parse_sizes(chunks, "chunks"),
        "shards": parse_sizes(shards, "shards"),
    }
    commit = None
    with waiting("recoding", counted=False):
        if place.repo is None:
            made = place.changeable(array)
            box = parse_bounds(bounds, made.shape)
            before = survey(made).total_stored
            made.recode(box, **options)
        else:
            old = place.open(array)
            box = parse_bounds(bounds, old.shape)
            before = survey(old).total_stored
            words = message or f"recode {old.path}"
            options |= {"branch": place.branch, "message": words}
            commit = intarsia.recode(place.repo, old.path, box, **options)
            made = place.open(old.path)
        after = survey(made).total_stored
    done = box if box is not None else tuple((0, n) for n in made.shape)
    if as_json:
        print_json(
            {
                "store": asked.store,
                "path": made.path,
                "bounds": [list(pair) for pair in done],
                "nbytes_stored_before": before,
                "nbytes_stored_after": after,
                "snapshot_id": commit,
            }
        )
        return
    say(
        f"recoded {bounds_text(done)} of {made.path or '/'}: the array stores {size_text(after)} now, "
        f"{size_text(before)} before"
    )
    if commit:
        say(f"snapshot {commit}")
