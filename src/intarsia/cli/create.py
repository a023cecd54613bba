"""Commands that put data into a store: `create`, `append`."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.output import CommandError, Output
from intarsia.cli.stores import BranchToCommit, NewStore, usage_errors
from intarsia.cli.verb import verb
from intarsia.display import count_text
from intarsia.versions.repository import remove_new_store_on_failure


def _fill_value(text: str, _what: str) -> object:
    """A number if the text is one, for zarr to cast to the data type."""
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


@verb(
    intarsia.create,
    without=["overwrite"],
    shape=args.OptionSyntax(args.parse_sizes, kind=str),
    dtype=args.OptionSyntax(kind=str),
    fill_value=args.OptionSyntax(_fill_value),
    dimension_names=args.OptionSyntax(args.parse_names),
    attributes=args.OptionSyntax(args.parse_options, kind=args.MANY, option="attribute"),
)
def create(place: NewStore, array: args.NewPath, **fields: Any) -> Output:
    """Create an empty logical array, in a new Icechunk repository if there is no store yet.

    Example: intarsia create data/store temperature --shape 0,720,1440 --chunks 24,90,180 --dtype float32

    Args:
        shape (N,N,…): Shape; an axis may start at 0.
        dtype (TYPE): Data type, such as float32.
        chunks (N,N,…): The lattice that regions align to; zarr's choice if left out.
        fill_value (VALUE): The value read where there is no region; 0 if left out.
        dimension_names (NAME,…): A name for each axis.
        attribute (-a KEY=VALUE): An attribute; the value may be JSON.
    """
    with remove_new_store_on_failure(place.store), usage_errors(), place.change(f"create {array}") as change:
        made = intarsia.create(change.store, array, **fields)
    return Output(
        f"created {made.path or '/'}: {made.dtype} of shape {made.shape}, lattice {made.chunks}",
        path=made.path,
        shape=made.shape,
        dtype=made.dtype,
        chunks=made.chunks,
        snapshot_id=change.snapshot_id,
    )


NUMBER = re.compile(r"-?\d+")


@verb(
    intarsia.append,
    without=["casting"],
    axis=args.OptionSyntax(lambda text, _: int(text) if NUMBER.fullmatch(text) else text),
)
def append(place: BranchToCommit, array: args.OneArray, data: Path, **options: Any) -> Output:
    """Append data from a file; without codecs it is encoded like the region before it.

    Nothing is rounded unless you ask for a packing. In a repository this is one commit, safe alongside other
    writers.

    Example: intarsia append data/store temperature may.npy -c shuffle:element_size=4 -c zstd:level=9

    Args:
        data (FILE): The data: a .npy or .csv file.
        axis (AXIS): The axis that grows: a number, or a name; the first if left out.
        no_merge: Begin a new region even if the last one has the same encoding.
    """
    name = place.open(array).path  # an error about the store comes first
    values = load(data)
    made, commit = place.call("append", name, values, **options)
    regions = len(made.manifest.regions)
    return Output(
        f"appended {values.shape} to {made.path or '/'}: now {made.shape} in {count_text(regions, 'region')}",
        path=made.path,
        shape=made.shape,
        appended=values.shape,
        regions=regions,
        snapshot_id=commit,
    )


def load(file: Path) -> np.ndarray[Any, Any]:
    """The array in a file; .npy files are mapped, not read.

    >>> load(Path("data.xlsx"))
    Traceback (most recent call last):
    ...
    intarsia.cli.output.CommandError: data.xlsx: give a .npy or .csv file
    """
    if file.suffix not in (".npy", ".csv"):
        raise CommandError(f"{file}: give a .npy or .csv file")
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    try:
        return open_memmap(file, mode="r") if file.suffix == ".npy" else _load_csv(file)
    except (ValueError, EOFError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error


def _load_csv(file: Path) -> np.ndarray[Any, Any]:
    """Integers if all of it are integers, otherwise floats; always with two dimensions."""
    read = partial(np.loadtxt, file, delimiter=",", comments=None, quotechar='"', encoding="utf-8", ndmin=2)
    try:
        return read(dtype=np.int64)
    except ValueError:
        return read(dtype=np.float64)
