"""Commands that put data into a store: `create`, `append`."""

import csv
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, print_json, say, verb, waiting
from intarsia.display import count_text, size_text


@verb
def create(
    asked: args.Making,
    array: Annotated[str, typer.Argument(metavar="PATH", help="Path of the new array in the store.")],
    shape: Annotated[str, typer.Option("--shape", metavar="N,N,…", help="Shape; an axis may start at 0.")],
    dtype: Annotated[str, typer.Option("--dtype", metavar="TYPE", help="Data type, such as float32.")],
    chunks: Annotated[
        str | None,
        typer.Option(
            "--chunks", metavar="N,N,…", help="The lattice that regions align to; zarr's choice if left out."
        ),
    ] = None,
    fill_value: Annotated[
        str | None,
        typer.Option(
            "--fill-value",
            metavar="VALUE",
            help="The value read where there is no region.",
            show_default="0",
        ),
    ] = None,
    dimension_names: Annotated[
        str | None, typer.Option("--dimension-names", metavar="NAME,…", help="A name for each axis.")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", "-a", metavar="KEY=VALUE", help="An attribute; the value may be JSON."),
    ] = None,
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Create an empty logical array, in a new Icechunk repository if there is no store yet.

    Example: intarsia create data/store temperature --shape 0,720,1440 --chunks 24,90,180 --dtype float32
    """
    fields: dict[str, Any] = {
        "shape": args.parse_sizes(shape, "shape"),
        "chunks": args.parse_sizes(chunks, "chunks"),
        "dtype": dtype,
        "fill_value": _fill_value(fill_value),
        "dimension_names": args.parse_names(dimension_names),
        "attributes": args.parse_options(attribute or (), "attribute"),
    }
    commit = None
    try:
        intarsia.create({}, array, **fields)  # in memory first, so that a refusal leaves no repository behind
        place = NamedStore.make(asked)
        if place.repo is None:
            place.store()  # refuses what such a store does not have
            made = intarsia.create(place.writable, array, **fields)
        else:
            text = message or f"create {array}"
            with intarsia.transaction(place.repo, branch=place.branch, message=text) as transaction:
                made = transaction.create(array, **fields)
            commit = transaction.snapshot_id
    except KeyError as error:  # an attribute that is not the user's
        raise CommandError(str(error.args[0])) from error
    except (TypeError, ValueError) as error:
        if isinstance(error, intarsia.IntarsiaError):
            raise
        given = f"dtype {dtype!r}" + (f" or fill value {fill_value!r}" if fill_value is not None else "")
        raise CommandError(f"{given}: {error}") from error
    if as_json:
        print_json(
            store=asked.store,
            path=made.path,
            shape=list(made.shape),
            dtype=str(made.dtype),
            chunks=list(made.chunks),
            snapshot_id=commit,
        )
        return
    say(f"created {made.path or '/'}: {made.dtype} of shape {made.shape}, lattice {made.chunks}")
    if commit:
        say(f"snapshot {commit}")


@verb
def append(
    asked: args.Changing,
    array: args.SingleArrayHandle,
    data: Annotated[Path, typer.Argument(metavar="FILE", help="The data: a .npy or .csv file.")],
    codec: args.Codec = None,
    axis: Annotated[
        str, typer.Option("--axis", metavar="AXIS", help="The axis that grows: a number, or a name.")
    ] = "0",
    chunks: args.Chunks = None,
    shards: args.Shards = None,
    packing: args.Packing = None,
    no_merge: Annotated[
        bool,
        typer.Option("--no-merge", help="Begin a new region even if the last one has the same encoding."),
    ] = False,
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Append data from a file; without codecs it is encoded like the region before it.

    Nothing is rounded unless you ask for a packing. In a repository this is one commit, safe alongside other
    writers.

    Example: intarsia append data/store temperature may.npy -c shuffle:element_size=4 -c zstd:level=9
    """
    place = NamedStore.find(asked)
    options: dict[str, Any] = {
        "codecs": args.parse_codec_list(codec),
        "chunks": args.parse_sizes(chunks, "chunks"),
        "shards": args.parse_sizes(shards, "shards"),
        "merge": not no_merge,
        **args.parse_packing(packing),
    }
    values, commit = load(data), None
    along = int(axis) if axis.lstrip("-").isdecimal() else axis
    with waiting(f"appending {size_text(values.nbytes)}", counted=False):
        if place.repo is None:
            made = place.changeable(array)
            made.append(values, along, **options)
        else:
            name = place.one_array(array)
            words = message or f"append {data.name} to {name}"
            options |= {"branch": place.branch, "message": words}
            commit = intarsia.append(place.repo, name, values, axis=along, **options)
            made = place.open(name)
    if as_json:
        print_json(
            store=asked.store,
            path=made.path,
            appended=list(values.shape),
            shape=list(made.shape),
            regions=len(made.manifest.regions),
            snapshot_id=commit,
        )
        return
    count = count_text(len(made.manifest.regions), "region")
    say(f"appended {values.shape} to {made.path or '/'}: now {made.shape} in {count}")
    if commit:
        say(f"snapshot {commit}")


def _fill_value(text: str | None) -> object:
    """A number if the text is one, for zarr to cast to the data type."""
    if text is None:
        return None
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


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
