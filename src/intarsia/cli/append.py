"""`intarsia append`: add data from a file after the end of an axis, in an encoding of its own."""

import csv
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import intarsia
from intarsia.cli.arguments import (
    Changing,
    Chunks,
    Codec,
    Json,
    Message,
    OneArray,
    Shards,
    parse_codec_list,
    parse_sizes,
)
from intarsia.cli.output import print_json, say, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, verb
from intarsia.words import count_text, size_text


@verb
def append(
    asked: Changing,
    array: OneArray,
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
    as_json: Json = False,
) -> None:
    """Append data from a file; without codecs it is encoded like the region before it.

    In a repository this is one commit, safe beside other writers.

    Example: intarsia append data/store temperature may.npy -c shuffle:element_size=4 -c zstd:level=9
    """
    place = NamedStore.find(asked)
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
            made = place.changeable(array)
            made.append(values, axis, **options)
        else:
            name = place.one_array(array)
            words = message or f"append {data.name} to {name}"
            options |= {"branch": place.branch, "message": words}
            commit = intarsia.append(place.repo, name, values, axis, **options)
            made = place.open(name)
    if as_json:
        print_json(
            {
                "store": asked.store,
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


def load(file: Path) -> np.ndarray[Any, Any]:
    """The array in a file; .npy files are mapped, not read.

    >>> load(Path("data.xlsx"))
    Traceback (most recent call last):
    ...
    intarsia.cli.verb.CommandError: data.xlsx: give a .npy or .csv file
    """
    if file.suffix not in (".npy", ".csv"):
        raise CommandError(f"{file}: give a .npy or .csv file")
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    try:
        if file.suffix == ".npy":
            mapped: np.ndarray[Any, Any] = np.load(file, mmap_mode="r", allow_pickle=False)
            return mapped
        return _load_csv(file)
    except (ValueError, EOFError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error


def _load_csv(file: Path) -> np.ndarray[Any, Any]:
    with file.open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.reader(stream) if row]
    if len({len(row) for row in rows}) > 1:
        raise ValueError("its rows have different lengths")
    table = np.array(rows, dtype=np.str_)
    for kind in (np.int64, np.float64):
        try:
            return table.astype(kind)
        except ValueError:
            continue
    raise ValueError("it holds something that is not a number")
