"""`intarsia append`: add data from a file after the end of an axis, in an encoding of its own."""

from pathlib import Path
from typing import Annotated, Any

import typer

import intarsia
from intarsia.cli.datafile import load
from intarsia.cli.options import (
    Allow,
    AsOf,
    Branch,
    Chunks,
    Codec,
    Json,
    Message,
    Shards,
    Snapshot,
    StorageOption,
    Store,
    Tag,
)
from intarsia.cli.output import print_json, say
from intarsia.cli.place import Place, Version
from intarsia.cli.spelling import parse_codec_list, parse_sizes
from intarsia.cli.verb import verb
from intarsia.cli.waiting import waiting
from intarsia.words import count_text, size_text

__all__ = ["append"]


@verb
def append(
    store: Store,
    array: Annotated[str, typer.Argument(metavar="PATH", help="Path of the array in the store.")],
    data: Annotated[Path, typer.Argument(metavar="FILE", help="The data: a .npy or .csv file.")],
    codec: Codec = None,
    axis: Annotated[int, typer.Option("--axis", help="The axis that grows.")] = 0,
    chunks: Chunks = None,
    shards: Shards = None,
    merge: Annotated[
        bool,
        typer.Option("--merge/--no-merge", help="Let the region before grow if it is encoded equally."),
    ] = True,
    message: Message = None,
    branch: Branch = None,
    tag: Tag = None,
    snapshot: Snapshot = None,
    as_of: AsOf = None,
    storage_option: StorageOption = None,
    allow: Allow = None,
    as_json: Json = False,
) -> None:
    """Append data from a file; without codecs it is encoded like the region before it.

    In a repository this is one commit, safe beside other writers.

    Example: intarsia append data/store temperature may.npy -c shuffle:element_size=4 -c zstd:level=9
    """
    version = Version(branch, tag, snapshot, as_of)
    place = Place.find(store, storage_option, allow)
    options: dict[str, Any] = {
        "codecs": parse_codec_list(codec),
        "chunks": parse_sizes(chunks, "chunks"),
        "shards": parse_sizes(shards, "shards"),
        "merge": merge,
    }
    values = load(data)
    commit = None
    with waiting(f"appending {size_text(values.nbytes)}", counted=False):
        if place.repo is None:
            with place.changing(array, version, "") as edit:
                edit.array.append(values, axis, **options)
            made = edit.array
        else:
            to = version.for_writing()
            name = place.one_array(array, Version(branch=to))
            words = message or f"append {data.name} to {name}"
            commit = intarsia.append(place.repo, name, values, axis, branch=to, message=words, **options)
            made = place.open(name, Version(branch=to))
    if as_json:
        print_json(
            {
                "store": store,
                "path": made.path,
                "appended": list(values.shape),
                "shape": list(made.shape),
                "regions": len(made.manifest.regions),
                "snapshot_id": commit,
            }
        )
        return
    count = count_text(len(made.manifest.regions), "region")
    say(f"appended {values.shape} to {made.path or '/'}: now {made.shape} in {count}")
    if commit:
        say(f"snapshot {commit}")
