"""`intarsia read`: print a selection, or save it to a file."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from intarsia.cli.arguments import Array, Json, Reading, Selection, parse_selection
from intarsia.cli.output import print_json, say, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, verb
from intarsia.errors import BoundsError
from intarsia.report.write import whole_file
from intarsia.words import size_text


@verb
def read(
    asked: Reading,
    array: Array = "",
    selection: Selection = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Save to this .npy or .csv file instead of printing."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read a selection: print it, or save it as .npy or .csv.

    Lists select as in array.oindex: every combination of the listed indices. A selection that begins with
    a minus sign comes after --.

    Example: intarsia read data/store temperature '0:24, ::10, ::10' -o day.npy
    """
    chosen = parse_selection(selection)
    opened = NamedStore.find(asked).open(array)
    with waiting("reading", counted=False):
        outer = any(isinstance(entry, list) for entry in chosen)
        try:
            values = np.asarray(opened.oindex[chosen] if outer else opened[chosen])
        except IndexError as error:
            raise BoundsError(f"selection {selection!r} of shape {opened.shape}: {error}") from error
    if output is not None:
        save(output, values)
    if as_json:
        print_json(
            {
                "store": asked.store,
                "path": opened.path,
                "selection": selection,
                "shape": list(values.shape),
                "dtype": str(values.dtype),
                "output": None if output is None else str(output),
                "values": None if output is not None else _jsonable(values),
            }
        )
    elif output is not None:
        say(f"{output}: {values.dtype} of shape {values.shape}, {size_text(values.nbytes)}")
    else:
        say(*np.array2string(values, separator=" ", threshold=1000).split("\n"))


def _jsonable(values: np.ndarray[Any, Any]) -> object:
    """Values for JSON, in which NaN, times and complex numbers have no place: those become text."""
    if values.dtype.kind in "biu" or (values.dtype.kind == "f" and bool(np.isfinite(values).all())):
        return values.tolist()
    return np.vectorize(_number, otypes=[object])(values).tolist() if values.size else []


def _number(value: object) -> object:
    if isinstance(value, float) and np.isfinite(value):
        return float(value)
    return str(value)


def save(file: Path, values: np.ndarray[Any, Any]) -> None:
    """Write an array, whole or not at all; .csv takes one or two dimensions.

    >>> save(Path("cube.csv"), np.zeros((2, 2, 2)))
    Traceback (most recent call last):
    ...
    intarsia.cli.verb.CommandError: cube.csv: a table has at most two dimensions, and the selection has 3...
    """
    if file.suffix not in (".npy", ".csv"):
        raise CommandError(f"{file}: the name must end in .npy or .csv")
    if file.suffix == ".csv" and values.ndim > 2:
        raise CommandError(
            f"{file}: a table has at most two dimensions, and the selection has {values.ndim}; "
            "select less, or write .npy"
        )
    with whole_file(file) as stream:
        if file.suffix == ".npy":
            np.save(stream, values, allow_pickle=False)
        else:
            table = values.reshape(-1, 1) if values.ndim < 2 else values
            lines = (",".join(map(str, row)) + "\n" for row in table.tolist())
            stream.writelines(line.encode() for line in lines)
