"""Commands that look at arrays: `info`, `regions`, `read`, `explain`, `report`."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, print_json, say, show_facts, show_table, verb, waiting
from intarsia.display import (
    EXPLAIN_COLUMNS,
    PIPELINE_COLUMNS,
    count_text,
    ratio_text,
    size_text,
    terminal_width,
)
from intarsia.errors import BoundsError
from intarsia.inspect.drawing import COLOURS
from intarsia.inspect.survey import harmonise, survey
from intarsia.inspect.write_report import MOST_VERSIONS, whole_file, write_report


@verb
def info(asked: args.Reading, array: args.Array = "", as_json: args.Json = False) -> None:
    """Show what an array is: shape, data type, regions, and how much each codec pipeline stores.

    Example: intarsia info data/store temperature --as-of 2024-05-01
    """
    opened = NamedStore.find(asked).open(array)
    with waiting("measuring stored chunks", counted=False):
        layers = {layer: survey(opened, layer=layer) for layer in opened.manifest.layers}
        seen = layers[0]
    pipelines = seen.pipelines()
    if as_json:
        print_json(
            store=asked.store,
            path=opened.path,
            shape=list(opened.shape),
            dtype=str(opened.dtype),
            chunks=list(opened.chunks),
            fill_value=str(opened.fill_value),
            dimension_names=None if opened.dimension_names is None else list(opened.dimension_names),
            regions=len(seen),
            members=len(seen.facts),
            generation=opened.generation,
            nbytes=opened.nbytes,
            nbytes_stored=seen.total_stored,
            nbytes_not_shown=seen.total_unused,
            layers=[
                {
                    "layer": layer,
                    "regions": len(each),
                    "nbytes": each.total_nbytes,
                    "nbytes_stored": each.total_stored,
                }
                for layer, each in layers.items()
            ],
            pipelines=[
                {
                    "codecs": pipeline.label,
                    "regions": pipeline.regions,
                    "nbytes": pipeline.nbytes,
                    "nbytes_stored": pipeline.stored,
                }
                for pipeline in pipelines
            ],
            problems=list(seen.problems),
        )
        return
    unused = [("Stored, not shown", size_text(seen.total_unused))] if seen.total_unused else []
    stored = ("Stored", size_text(seen.total_stored))
    ratio = ("Ratio", ratio_text(seen.total_nbytes, seen.total_stored))
    replicas = [
        (
            f"Layer {layer}",
            f"{count_text(len(each), 'region')}, {size_text(each.total_nbytes)} stored in "
            f"{size_text(each.total_stored)}",
        )
        for layer, each in layers.items()
        if layer
    ]
    show_facts([*opened.info.fields, stored, ratio, *unused, *replicas])
    if pipelines:
        say("")
        rows = [pipeline.cells() for pipeline in pipelines]
        show_table(PIPELINE_COLUMNS, rows, colours={0: [COLOURS[p.place] for p in pipelines]})
    say(*seen.problems)


@verb
def regions(
    asked: args.Reading,
    array: args.Array = "",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=0, help="Show only the first ones.")
    ] = None,
    as_json: args.Json = False,
) -> None:
    """List the regions of an array: bounds, codecs, packing, view, chunks, size, stored size, member.

    Replicas follow layer 0, layer by layer.

    Example: intarsia regions data/store temperature --tag v1
    """
    opened = NamedStore.find(asked).open(array)
    with waiting("measuring stored chunks", counted=False):
        layers = harmonise([survey(opened, layer=layer) for layer in opened.manifest.layers])
    every = [(seen, i) for seen in layers for i in seen.manifest.regions.in_order().tolist()]
    shown = every[:limit]
    rows = [seen.row(i) for seen, i in shown]
    if as_json:
        print_json(
            store=asked.store,
            path=opened.path,
            shape=list(opened.shape),
            count=len(every),
            regions=[row.to_json() for row in rows],
        )
        return
    if not every:
        say(f"{opened.path or '/'} has no regions yet: all of it reads as {opened.fill_value}")
        return
    columns: tuple[str, ...] = tuple(dict.fromkeys(name for seen in layers for name in seen.columns))
    if len(layers) > 1:
        columns = ("Layer", *columns)
    colours = {columns.index("Codecs"): [COLOURS[int(seen.group[i])] for seen, i in shown]}
    show_table(columns, [row.cells(columns) for row in rows], colours=colours)
    if len(rows) < len(every):
        say(f"… and {count_text(len(every) - len(rows), 'more region', 'more regions')}")


@verb
def read(
    asked: args.Reading,
    array: args.Array = "",
    selection: args.Selection = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Save to this .npy or .csv file instead of printing."
        ),
    ] = None,
    as_json: args.Json = False,
) -> None:
    """Read a selection: print it, or save it as .npy or .csv.

    The array may be any Zarr array; if it is the only one, its PATH may be left out. Lists select every
    combination of the listed indices. A selection that begins with a minus sign comes after --.

    Example: intarsia read data/store temperature '0:24, ::10, ::10' -o day.npy
    """
    place = NamedStore.find(asked)
    array, selection = place.array_and_selection(array, selection)
    chosen = args.parse_selection(selection)
    opened = place.readable(array)
    with waiting("reading", counted=False):
        outer = any(isinstance(entry, list) for entry in chosen)
        try:
            values = np.ma.asanyarray(opened.oindex[chosen] if outer else opened[chosen])
        except IndexError as error:
            raise BoundsError(f"selection {selection!r} of shape {opened.shape}: {error}") from error
    if output is not None:
        save(output, values)
    if as_json:
        print_json(
            store=asked.store,
            path=opened.path,
            selection=selection,
            shape=list(values.shape),
            dtype=str(values.dtype),
            output=None if output is None else str(output),
            values=None if output is not None else _jsonable(values),
        )
    elif output is not None:
        say(f"{output}: {values.dtype} of shape {values.shape}, {size_text(values.nbytes)}")
    else:
        with np.printoptions(threshold=1000, linewidth=terminal_width() or 75):
            say(*str(values if np.ma.is_masked(values) else values.data).split("\n"))


@verb
def explain(
    asked: args.Reading, array: args.Array = "", selection: args.Selection = "", as_json: args.Json = False
) -> None:
    """Show the plan of a read: which regions, chunks and bytes it needs, and how they are fetched.

    Example: intarsia explain data/store temperature '0:24, 10, :'
    """
    place = NamedStore.find(asked)
    array, selection = place.array_and_selection(array, selection)
    chosen = args.parse_selection(selection)
    opened = place.readable(array)
    outer = any(isinstance(entry, list) for entry in chosen)
    with waiting("planning", counted=False):
        try:
            plan = intarsia.explain(opened, chosen, mode="orthogonal" if outer else None)
        except IndexError as error:
            raise BoundsError(f"selection {selection!r} of shape {opened.shape}: {error}") from error
    if as_json:
        print_json(store=asked.store, path=opened.path, selection=selection, plan=plan.to_json())
        return
    say(*plan.lines(terminal_width()))
    if plan.parts:
        show_table(EXPLAIN_COLUMNS, [part.cells() for part in plan.parts])


@verb
def report(
    asked: args.Reading,
    array: args.AnyArrays = "",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")
    ] = Path("report.html"),
    versions: Annotated[
        int,
        typer.Option("--versions", metavar="N", min=1, help="Show at most this many versions of each array."),
    ] = MOST_VERSIONS,
    data: Annotated[bool, typer.Option("--data", help="Let the check read every stored chunk.")] = False,
    as_json: args.Json = False,
) -> None:
    """Write a page with the map over time, bytes by codec, ratio per chunk, masks, slots and problems.

    The page is one file that any browser opens from disk, without a server or network.

    Example: intarsia report data/store -o report.html
    """
    place = NamedStore.find(asked)
    if place.repo is None:
        place.store()  # refuses versions that a plain store does not have
        if not array:
            place.logical_arrays()  # raises an error that says what is there instead
    snapshot = None if place.repo is None else place.session().snapshot_id
    with waiting("writing the report") as progress:
        file = write_report(
            place.plain if place.repo is None else place.repo,
            array or None,
            output,
            versions=versions,
            read_data=data,
            title=f"{asked.store} {array}".strip(),
            snapshot_id=snapshot,
            progress=progress,
        )
    size = file.stat().st_size
    if as_json:
        print_json(store=asked.store, output=str(file), nbytes=size)
        return
    say(f"{file} ({size_text(size)}): open it in a browser")


def _jsonable(values: np.ma.MaskedArray[Any, Any]) -> object:
    """Values for JSON, which lacks NaN, times and complex numbers: those become text."""
    if values.dtype.kind in "biu" or (values.dtype.kind == "f" and bool(np.isfinite(values.data).all())):
        return values.tolist()
    told = np.vectorize(_number, otypes=[object])(values.data) if values.size else values.data
    return np.ma.masked_array(told, values.mask).tolist()


def _number(value: object) -> object:
    if isinstance(value, float) and np.isfinite(value):
        return float(value)
    return str(value)


def save(file: Path, values: np.ma.MaskedArray[Any, Any]) -> None:
    """Write an array completely or not at all; .csv takes one or two dimensions, with nulls as empty cells.

    >>> save(Path("cube.csv"), np.ma.zeros((2, 2, 2)))
    Traceback (most recent call last):
    ...
    intarsia.cli.verb.CommandError: cube.csv: a table has at most two dimensions, but the selection has 3...
    """
    if file.suffix not in (".npy", ".csv"):
        raise CommandError(f"{file}: the name must end in .npy or .csv")
    if file.suffix == ".csv" and values.ndim > 2:
        raise CommandError(
            f"{file}: a table has at most two dimensions, but the selection has {values.ndim}; "
            "select less, or write .npy"
        )
    nulls = int(np.ma.count_masked(values))
    if file.suffix == ".npy" and nulls:
        raise CommandError(
            f"{file}: {nulls:,} of {values.size:,} values are null, but .npy files cannot hold nulls; write "
            ".csv"
        )
    with whole_file(file) as stream:
        if file.suffix == ".npy":
            np.save(stream, values.data, allow_pickle=False)
        else:
            table = values.reshape(-1, 1) if values.ndim < 2 else values
            rows = (("" if cell is None else str(cell) for cell in row) for row in table.tolist())
            lines = (",".join(row) + "\n" for row in rows)
            stream.writelines(line.encode() for line in lines)
