"""`intarsia create`: a new logical array, in a new or an existing repository."""

from typing import Annotated, Any

import typer

import intarsia
from intarsia.cli.arguments import (
    Json,
    Making,
    Message,
    parse_names,
    parse_options,
    parse_sizes,
)
from intarsia.cli.output import print_json, say
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, verb


@verb
def create(
    asked: Making,
    array: Annotated[str, typer.Argument(metavar="PATH", help="Path of the new array in the store.")],
    shape: Annotated[str, typer.Option("--shape", metavar="N,N,…", help="Shape; an axis may start at 0.")],
    dtype: Annotated[str, typer.Option("--dtype", help="Data type, such as float32.")],
    chunks: Annotated[
        str | None,
        typer.Option(
            "--chunks", metavar="N,N,…", help="The lattice that regions align to; zarr's choice if left out."
        ),
    ] = None,
    fill_value: Annotated[
        str | None, typer.Option("--fill-value", help="What reads where no region is.", show_default="0")
    ] = None,
    dimension_names: Annotated[
        str | None, typer.Option("--dimension-names", metavar="NAME,NAME,…", help="A name for every axis.")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", "-a", metavar="KEY=VALUE", help="An attribute; the value may be JSON."),
    ] = None,
    message: Message = None,
    as_json: Json = False,
) -> None:
    """Create a logical array without regions; where nothing is yet, in a new Icechunk repository.

    Example: intarsia create data/store temperature --shape 0,720,1440 --chunks 24,90,180 --dtype float32
    """
    fields: dict[str, Any] = {
        "shape": parse_sizes(shape, "shape"),
        "chunks": parse_sizes(chunks, "chunks"),
        "dtype": dtype,
        "fill_value": _fill_value(fill_value),
        "dimension_names": parse_names(dimension_names),
        "attributes": parse_options(attribute or (), "attribute"),
    }
    place = NamedStore.make(asked)
    commit = None
    try:
        if place.repo is None:
            place.store()  # refuses what such a store has not
            made = intarsia.create(place.writable, array, **fields)
        else:
            with intarsia.transaction(place.repo, place.branch, message or f"create {array}") as transaction:
                made = transaction.create(array, **fields)
            commit = transaction.snapshot_id
    except KeyError as error:  # an attribute that is not the user's
        raise CommandError(str(error.args[0])) from error
    except (TypeError, ValueError) as error:
        if isinstance(error, intarsia.IntarsiaError):
            raise
        raise CommandError(f"dtype {dtype!r} or fill value {fill_value!r}: {error}") from error
    if as_json:
        print_json(
            {
                "store": asked.store,
                "path": made.path,
                "shape": list(made.shape),
                "dtype": str(made.dtype),
                "chunks": list(made.chunks),
                "snapshot_id": commit,
            }
        )
        return
    say(f"created {made.path or '/'}: {made.dtype} of shape {made.shape}, lattice {made.chunks}")
    if commit:
        say(f"snapshot {commit}")


def _fill_value(text: str | None) -> object:
    """A number where it is one, for zarr to cast to the data type."""
    if text is None:
        return None
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
