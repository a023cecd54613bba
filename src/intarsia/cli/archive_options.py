"""The options of commands that take archives of files: which files, and how they become a dataset."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from intarsia.archives import from_attribute, from_name, from_variable
from intarsia.archives.parsed_file import ParsedFile
from intarsia.cli import arguments as args
from intarsia.cli.verb import CommandError

TELLERS = "name:REGEX, date:FORMAT:REGEX, attribute:NAME or variable:NAME"
"""Where a file's coordinate may be found."""

PLACES = "Where files go"
TAKING = "What is ingested, and how"
"""Headings of the options."""


def _several(name: str, metavar: str, text: str, panel: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel)


Files = Annotated[
    list[str],
    typer.Argument(metavar="FILES", help="Paths, URLs or globs of NetCDF, HDF5, Zarr, N5, TIFF files."),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source-option", metavar="KEY=VALUE", help="For the files' storage, such as region or anonymous."
    ),
]


@dataclass(frozen=True)
class Archive:
    """Arguments of commands that take files: which, and how they become a dataset."""

    files: Files
    concat_dim: Annotated[
        list[str] | None,
        _several(
            "--concat-dim", "NAME",
            "A dimension to concatenate files along. By default, those whose coordinates differ. May be "
            "repeated.",
            PLACES,
        ),
    ] = None  # fmt: skip
    dim: Annotated[
        list[str] | None,
        _several(
            "--dim",
            "NAME=WHERE",
            f"A dimension that files lack; WHERE is {TELLERS}. May be repeated.",
            PLACES,
        ),
    ] = None
    coordinate: Annotated[
        str | None,
        typer.Option(
            "--coordinate", metavar="WHERE", help="The coordinate of files, from their names; as for --dim.",
            rich_help_panel=PLACES,
        ),
    ] = None  # fmt: skip
    order_by: Annotated[
        str | None,
        typer.Option(
            "--order-by", metavar="NAME", help="The variable that places files, instead of the coordinate.",
            rich_help_panel=PLACES,
        ),
    ] = None  # fmt: skip
    overlap: Annotated[
        str,
        typer.Option(
            "--overlap", metavar="HOW", help="Files in one place: refuse, or show the first, last or newest.",
            rich_help_panel=PLACES,
        ),
    ] = "refuse"  # fmt: skip
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="X",
            help="Coordinates this close to each other count as equal.",
            rich_help_panel=PLACES,
        ),
    ] = None
    group: Annotated[
        str,
        typer.Option(
            "--group", metavar="NAME", help="Group in the repository to put them in.", rich_help_panel=PLACES
        ),
    ] = ""
    source_group: Annotated[
        str,
        typer.Option(
            "--source-group", metavar="NAME",
            help="Group of the files that holds the variables; * for all groups.", rich_help_panel=PLACES,
        ),
    ] = ""  # fmt: skip
    variable: Annotated[
        list[str] | None, _several("--variable", "NAME", "Only this variable. May be repeated.", TAKING)
    ] = None
    rename: Annotated[
        list[str] | None,
        _several("--rename", "OLD=NEW", "Another name for a variable or dimension. May be repeated.", TAKING),
    ] = None
    stack: Annotated[
        list[str] | None,
        _several(
            "--stack", "A=DIM:NAME,…",
            "Variables as one array, along a new dimension; 1=NAME,2=NAME numbers them. May be repeated.",
            TAKING,
        ),
    ] = None  # fmt: skip
    load: Annotated[
        list[str] | None,
        _several("--load", "NAME", "Load this variable into a plain array. May be repeated.", TAKING),
    ] = None
    dtype: Annotated[
        list[str] | None,
        _several(
            "--dtype", "NAME=TYPE", "Data type of a variable; values are rounded. May be repeated.", TAKING
        ),
    ] = None
    nulls: Annotated[
        bool,
        typer.Option("--nulls", help="Missing values become null instead of NaN.", rich_help_panel=TAKING),
    ] = False
    units: Annotated[
        str,
        typer.Option(
            "--units", metavar="HOW",
            help="Units that differ: 'equal' refuses them, 'ignore' keeps the numbers.",
            rich_help_panel=TAKING,
        ),
    ] = "equal"  # fmt: skip
    convert_units: Annotated[
        bool,
        typer.Option(
            "--convert-units", help="Convert units that differ, such as °C and K.", rich_help_panel=TAKING
        ),
    ] = False
    combine_attrs: Annotated[
        str,
        typer.Option(
            "--combine-attrs", metavar="HOW",
            help="Attributes that differ, as in xarray: drop_conflicts and others.",
            rich_help_panel=TAKING,
        ),
    ] = "override"  # fmt: skip
    missing: Annotated[
        str,
        typer.Option(
            "--missing",
            metavar="HOW",
            help="A file without a variable: raise, or fill.",
            rich_help_panel=TAKING,
        ),
    ] = "raise"
    add_variables: Annotated[
        bool,
        typer.Option(
            "--add-variables", help="Add variables that the dataset does not have.", rich_help_panel=TAKING
        ),
    ] = False
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="FILE", help="Judge files by this one instead of the first.",
            rich_help_panel=TAKING,
        ),
    ] = None  # fmt: skip
    copy: Annotated[
        str,
        typer.Option(
            "--copy", metavar="WHAT",
            help="Copy what cannot be referenced (needed), everything (all) or nothing (never).",
            rich_help_panel=TAKING,
        ),
    ] = "needed"  # fmt: skip
    replace: Annotated[
        bool, typer.Option("--replace", help="Ingest changed files again.", rich_help_panel=TAKING)
    ] = False
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="How many threads parse files.")
    ] = None
    source_option: SourceOption = None
    allow: Annotated[
        list[str] | None,
        _several(
            "--allow", "PREFIX",
            "Let files refer to what is below this path or URL, outside of their own folder or bucket; "
            "'all' for everything. May be repeated.",
            TAKING,
        ),
    ] = None  # fmt: skip

    def options(self) -> dict[str, Any]:
        """All options, as arguments of `intarsia.ingest`."""
        by_coords = not self.concat_dim and not self.dim
        return {
            "concat_dim": self.concat_dim or None,
            "combine": "by_coords" if by_coords else None,
            "dims": parse_dims(self.dim or ()),
            "coordinate": None if self.coordinate is None else _by_url(self.coordinate),
            "order_by": self.order_by,
            "overlap": self.overlap,
            "tolerance": self.tolerance,
            "group": self.group,
            "source_group": self.source_group,
            "variables": self.variable or None,
            "rename": args.parse_pairs(self.rename or (), "rename") or None,
            "stack": parse_stacks(self.stack or ()) or None,
            "load": self.load or (),
            "dtype": args.parse_pairs(self.dtype or (), "dtype") or None,
            "nulls": self.nulls,
            "units": self.units,
            "convert_units": self.convert_units,
            "combine_attrs": self.combine_attrs,
            "missing": self.missing,
            "add_variables": self.add_variables,
            "schema": self.schema,
            "copy": self.copy,
            "replace": self.replace,
            "client": self.workers,
            "storage_options": args.parse_options(self.source_option or (), "source option") or None,
            "authorize": "all" in (self.allow or ()) or self.allow or (),
        }


def _by_url(text: str) -> Callable[[str], Any]:
    teller = parse_teller(text, "coordinate")
    if isinstance(teller, from_attribute | from_variable):
        raise CommandError(f"coordinate: {text!r} is neither name:REGEX nor date:FORMAT:REGEX")
    return lambda url: teller(ParsedFile(url, None, "", {}))  # type: ignore[arg-type]  # only its name counts


def parse_dims(texts: Sequence[str]) -> dict[str, Callable[[ParsedFile], Any]] | None:
    r"""Dimensions that are not in the files, and where to find their coordinates.

    >>> parse_dims([r"run=name:_r(\d+)_", "member=attribute:realization"])
    {'run': from_name(pattern='_r(\\d+)_', date=None), 'member': from_attribute(name='realization')}
    >>> parse_dims([r"start=date:%Y%m%d:\d{8}"])
    {'start': from_name(pattern='\\d{8}', date='%Y%m%d')}
    """
    return {
        name: parse_teller(where, "dim") for name, where in args.parse_pairs(texts, "dim").items()
    } or None


def parse_teller(text: str, what: str) -> Callable[[ParsedFile], Any]:
    kind, _, rest = text.partition(":")
    date, _, pattern = rest.partition(":") if kind == "date" else ("", "", rest)
    if kind in ("attribute", "variable") and rest:
        return from_attribute(rest) if kind == "attribute" else from_variable(rest)
    if kind not in ("name", "date") or not pattern or (kind == "date" and not date):
        raise CommandError(f"{what}: {text!r} is not one of {TELLERS}")
    try:
        re.compile(pattern)
    except re.error as error:
        raise CommandError(f"{what}: {pattern!r} is not a regular expression: {error}") from None
    return from_name(pattern, date or None)


def parse_stacks(texts: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Variables that become one array; by number or by name.

    >>> parse_stacks(["CMI=band:1=CMI_C01,2=CMI_C02", "D=kind:a,b"])
    {'CMI': ('band', {1: 'CMI_C01', 2: 'CMI_C02'}), 'D': ('kind', ['a', 'b'])}
    """
    stacks: dict[str, tuple[str, Any]] = {}
    for array, text in args.parse_pairs(texts, "stack").items():
        dim, colon, listed = text.partition(":")
        names = [name.strip() for name in listed.split(",") if name.strip()]
        if not colon or not dim or not names:
            raise CommandError(f"stack: {array}={text} is not of the form ARRAY=DIM:NAME,NAME…")
        if any("=" in name for name in names):
            numbered = args.parse_pairs(names, "stack")
            stacks[array] = dim, {_label(label): name for label, name in numbered.items()}
        else:
            stacks[array] = dim, names
    return stacks


def _label(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
