"""Commands that look at arrays: `info`, `regions`, `read`, `explain`, `report`."""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.output import CommandError, Output
from intarsia.cli.stores import VersionToRead
from intarsia.cli.verb import verb
from intarsia.display import Table, count_text, size_text, terminal_width
from intarsia.engine.reader import Reader
from intarsia.errors import BoundsError, NotLogicalArrayError
from intarsia.inspect.sample import split_nulls
from intarsia.inspect.survey import REGION_COLUMNS, info_blocks, survey_layers
from intarsia.inspect.write_report import MAX_VERSIONS, whole_file, write_report
from intarsia.logical.logical_array import LogicalArray
from intarsia.progress import Progress

type Values = np.ndarray[Any, Any]


@verb()
def info(place: VersionToRead, array: args.Array = "") -> Output:
    """Show what an array is: shape, data type, regions, and how much each codec pipeline stores.

    Example: intarsia info data/store temperature --as-of 2024-05-01
    """
    try:
        opened = place.open(array)
    except NotLogicalArrayError:
        plain = place.readable(array)
        if not isinstance(plain, Reader):
            raise
        return _plain_info(plain)
    layers = survey_layers(opened)
    seen = layers[0]
    return Output(
        *info_blocks(opened, layers),
        **_identity(opened),
        generation=opened.generation,
        members=len(seen.facts),
        layers=[
            {
                "layer": layer,
                "regions": len(each),
                "nbytes": each.total_nbytes,
                "nbytes_stored": each.total_stored,
                "nbytes_not_shown": each.total_unused,
            }
            for layer, each in zip(opened.manifest.layers, layers, strict=True)
        ],
        pipelines=seen.pipelines(),
        problems=seen.problems,
    )


def _identity(array: LogicalArray | Reader) -> dict[str, Any]:
    """What any array is, for JSON."""
    names = ("path", "shape", "dtype", "chunks", "dimension_names", "nbytes")
    return {name: getattr(array, name) for name in names} | {"fill_value": str(array.fill_value)}


def _plain_info(array: Reader) -> Output:
    """What a plain Zarr array is, in zarr's words."""
    return Output(
        f"{array.path or '/'} is a plain Zarr array",
        *str(array.zarr_array.info).splitlines(),
        "To read it: intarsia read, or intarsia.reader in Python.",
        "To make it a logical array: intarsia convert copies its values, intarsia adopt takes its chunks.",
        **_identity(array),
    )


@verb()
def regions(place: VersionToRead, array: args.Array = "", *, limit: args.Count = None) -> Output:
    """List the regions of an array: bounds, codecs, packing, view, chunks, size, stored size, member.

    Replicas follow layer 0, layer by layer.

    Example: intarsia regions data/store temperature --tag v1

    Args:
        limit (-n N): Show only the first ones.
    """
    opened = place.open(array)
    layers = survey_layers(opened)
    every = [(seen, i) for seen in layers for i in seen.manifest.regions.in_order().tolist()]
    rows = [seen.row(i) for seen, i in every[:limit]]
    columns = {**({"Layer": "layer"} if len(layers) > 1 else {}), **REGION_COLUMNS}
    shown: list[str | Table] = [Table.of(rows, columns)]
    if len(rows) < len(every):
        shown.append(f"… and {count_text(len(every) - len(rows), 'more region')}")
    if not every:
        shown = [f"{opened.path or '/'} has no regions yet: all of it reads as {opened.fill_value}"]
    return Output(*shown, path=opened.path, shape=opened.shape, count=len(every), regions=rows)


@verb()
def read(
    place: VersionToRead,
    array: args.Array = "",
    selection: str = "",
    *,
    output: Path | None = None,
) -> Output:
    """Read a selection: print it, or save it as .npy or .csv.

    The array may be any Zarr array; if it is the only one, its PATH may be left out. Lists select every
    combination of the listed indices. A selection that begins with a minus sign comes after --.

    Example: intarsia read data/store temperature '0:24, ::10, ::10' -o day.npy

    Args:
        selection (SELECTION): As between brackets: '0:10, -1, ::2', '[3, 5], ...'; everything if left out.
        output (-o FILE): Save to this .npy or .csv file instead of printing.
    """
    with _selected(place, array, selection) as (opened, text, chosen, outer):
        values, null = split_nulls(opened.oindex[chosen] if outer else opened[chosen])
    if output is not None:
        save(output, values, null)
        shown = [f"{output}: {values.dtype} of shape {values.shape}, {size_text(values.nbytes)}"]
    else:
        with np.printoptions(threshold=1000, linewidth=terminal_width() or 75):
            shown = str(np.ma.masked_array(values, null) if null.any() else values).split("\n")
    return Output(
        *shown,
        path=opened.path,
        selection=text,
        shape=values.shape,
        dtype=values.dtype,
        output=output,
        values=None if output is not None else _cells(values, null, None).tolist(),
    )


def _cells(values: Values, null: Values, instead: object) -> Values:
    """Values as Python objects, with something `instead` of nulls."""
    cells = values.astype(object)
    if values.dtype.kind in "mMV":  # times in nanoseconds would be mere numbers, records are no lists
        cells.flat = [str(value) for value in values.flat]
    cells[null] = instead
    return cells


@contextmanager
def _selected(place: VersionToRead, array: str, selection: str) -> Iterator[tuple[Any, str, Any, bool]]:
    """An array, and a selection of it as text and as an index; and whether that is orthogonal.

    An error says which selection lies outside of the array.
    """
    path, text = place.array_and_selection(array, selection)
    chosen, opened = args.parse_selection_text(text), place.readable(path)
    try:
        yield opened, text, chosen, any(isinstance(entry, list) for entry in chosen)
    except IndexError as error:
        raise BoundsError(f"selection {text!r} of shape {opened.shape}: {error}") from error


@verb()
def explain(place: VersionToRead, array: args.Array = "", selection: str = "") -> Output:
    """Show the plan of a read: which regions, chunks and bytes it needs, and how they are fetched.

    Example: intarsia explain data/store temperature '0:24, 10, :'

    Args:
        selection (SELECTION): As between brackets: '0:10, -1, ::2', '[3, 5], ...'; everything if left out.
    """
    with _selected(place, array, selection) as (opened, text, chosen, outer):
        plan = intarsia.explain(opened, chosen, mode="orthogonal" if outer else None)
    return Output(plan, path=opened.path, selection=text, plan=plan)


@verb()
def report(
    place: VersionToRead,
    array: args.AnyArrays = "",
    *,
    output: Path = Path("report.html"),
    versions: args.Positive = MAX_VERSIONS,
    data: bool = False,
    progress: Progress,
) -> Output:
    """Write a page with the map over time, bytes by codec, ratio per chunk, masks, slots and problems.

    The page is one file that any browser opens from disk, without a server or network.

    Example: intarsia report data/store -o report.html

    Args:
        output (-o FILE): The HTML file to write.
        versions (N): Show at most this many versions of each array.
        data: Let the check read every stored chunk.
    """
    store, version = place.at_version()
    file = write_report(
        store,
        array or None,
        output,
        versions=versions or MAX_VERSIONS,
        read_data=data,
        title=f"{place.store} {array}".strip(),
        progress=progress,
        **version,
    )
    size = file.stat().st_size
    return Output(f"{file} ({size_text(size)}): open it in a browser", output=file, nbytes=size)


def save(file: Path, values: Values, null: Values) -> None:
    """Write an array completely or not at all; .csv takes one or two dimensions, with nulls as empty cells.

    >>> save(Path("cube.csv"), np.zeros((2, 2, 2)), np.zeros((2, 2, 2), bool))
    Traceback (most recent call last):
    ...
    intarsia.cli.output.CommandError: cube.csv: a table has at most two dimensions, but the selection has 3...
    """
    problem = None
    if file.suffix not in (".npy", ".csv"):
        problem = "the name must end in .npy or .csv"
    elif file.suffix == ".csv" and values.ndim > 2:
        problem = f"a table has at most two dimensions, but the selection has {values.ndim}; write .npy"
    elif file.suffix == ".npy" and (values.dtype.hasobject or null.any()):
        problem = "a .npy file holds neither nulls nor texts of any length; write .csv"
    if problem is not None:
        raise CommandError(f"{file}: {problem}")
    with whole_file(file) as stream:
        if file.suffix == ".npy":
            np.save(stream, values, allow_pickle=False)
        else:
            cells = _cells(values, null, "")
            rows = cells.reshape(-1, 1) if cells.ndim < 2 else cells
            text = io.TextIOWrapper(stream, "utf-8", newline="")
            csv.writer(text, lineterminator="\n").writerows(rows.tolist())
            text.detach()
