"""Commands about archives of files: `ingest`, `lint`, `sources`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

import intarsia
from intarsia.archives import IngestReport, from_attribute
from intarsia.archives.parsed import ParsedFile
from intarsia.cli import arguments as args
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, Exit, print_json, say, show_table, verb, waiting
from intarsia.words import bounds_text, count_text, size_text

PLACES = "Where files go"
TAKING = "What is taken, and how"
"""Headings of the options."""


def _several(name: str, metavar: str, text: str, panel: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel)


Files = Annotated[
    list[str],
    typer.Argument(metavar="FILES…", help="Paths, URLs or globs of NetCDF, HDF5, Zarr, N5, TIFF files."),
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
            "A dimension along which files follow; repeated. By default, where coordinates differ.", PLACES,
        ),
    ] = None  # fmt: skip
    dim: Annotated[
        list[str] | None,
        _several(
            "--dim",
            "NAME=WHERE",
            f"A dimension that files lack; WHERE is {args.TELLERS}. Repeated.",
            PLACES,
        ),
    ] = None
    coordinate: Annotated[
        str | None,
        typer.Option(
            "--coordinate", metavar="WHERE", help="The coordinate of files without one; as for --dim.",
            rich_help_panel=PLACES,
        ),
    ] = None  # fmt: skip
    overlap: Annotated[
        str,
        typer.Option(
            "--overlap", help="Files in one place: refuse, or show the first, last or newest.",
            rich_help_panel=PLACES,
        ),
    ] = "refuse"  # fmt: skip
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance", help="How far apart coordinates may be that count as one.", rich_help_panel=PLACES
        ),
    ] = None
    group: Annotated[
        str, typer.Option("--group", help="Group in the repository to put them in.", rich_help_panel=PLACES)
    ] = ""
    source_group: Annotated[
        str,
        typer.Option(
            "--source-group", help="Group of the files that holds the variables; * takes all groups.",
            rich_help_panel=PLACES,
        ),
    ] = ""  # fmt: skip
    variable: Annotated[
        list[str] | None, _several("--variable", "NAME", "Only this variable; repeated.", TAKING)
    ] = None
    rename: Annotated[
        list[str] | None,
        _several("--rename", "OLD=NEW", "What a variable or dimension of files is called; repeated.", TAKING),
    ] = None
    stack: Annotated[
        list[str] | None,
        _several(
            "--stack", "ARRAY=DIM:NAME,…",
            "Variables as one array, along a new dimension; 1=NAME,2=NAME numbers them. Repeated.", TAKING,
        ),
    ] = None  # fmt: skip
    load: Annotated[
        list[str] | None,
        _several("--load", "NAME", "Load this variable into a plain array; repeated.", TAKING),
    ] = None
    dtype: Annotated[
        list[str] | None,
        _several(
            "--dtype", "NAME=TYPE", "Data type of a variable; values are rounded to it. Repeated.", TAKING
        ),
    ] = None
    nulls: Annotated[
        bool,
        typer.Option("--nulls", help="Missing values become null instead of NaN.", rich_help_panel=TAKING),
    ] = False
    units: Annotated[
        str,
        typer.Option(
            "--units", help="Units that differ between files: equal refuses them, ignore trusts you.",
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
            "--combine-attrs", help="Attributes that differ, as in xarray, such as drop_conflicts.",
            rich_help_panel=TAKING,
        ),
    ] = "override"  # fmt: skip
    missing: Annotated[
        str,
        typer.Option("--missing", help="A file without a variable: raise, or fill.", rich_help_panel=TAKING),
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
            "--schema", metavar="FILE", help="Judge files against this one, instead of the first.",
            rich_help_panel=TAKING,
        ),
    ] = None  # fmt: skip
    copy: Annotated[
        str,
        typer.Option(
            "--copy", help="Copy what cannot be referenced (needed), everything (all), nothing (never).",
            rich_help_panel=TAKING,
        ),
    ] = "needed"  # fmt: skip
    replace: Annotated[
        bool, typer.Option("--replace", help="Take files again that changed.", rich_help_panel=TAKING)
    ] = False
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="How many threads parse files.")] = (
        None
    )
    source_option: SourceOption = None

    def options(self) -> dict[str, Any]:
        """All of it, as `intarsia.ingest` takes it."""
        by_coords = not self.concat_dim and not self.dim
        return {
            "concat_dim": self.concat_dim or None,
            "combine": "by_coords" if by_coords else None,
            "dims": args.parse_dims(self.dim or ()),
            "coordinate": None if self.coordinate is None else _by_url(self.coordinate),
            "overlap": self.overlap,
            "tolerance": self.tolerance,
            "group": self.group,
            "source_group": self.source_group,
            "variables": self.variable or None,
            "rename": args.parse_pairs(self.rename or (), "rename") or None,
            "stack": args.parse_stacks(self.stack or ()) or None,
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
            "workers": self.workers,
            "storage_options": args.parse_options(self.source_option or (), "source option") or None,
        }


def _by_url(text: str) -> Callable[[str], Any]:
    teller = args.parse_teller(text, "coordinate")
    if isinstance(teller, from_attribute):
        raise CommandError(f"coordinate: {text!r} is neither name:REGEX nor date:FORMAT:REGEX")
    return lambda url: teller(ParsedFile(url, None, "", {}))  # type: ignore[arg-type]  # only its name counts


@verb
def ingest(
    asked: args.Making,
    archive: Archive,
    skip_bad_files: Annotated[
        bool, typer.Option("--skip-bad-files", help="Leave out files that fail, instead of stopping.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show where and how the encoding changes.")
    ] = False,
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Open an archive of files as logical arrays: nothing copied, one commit; later calls add what is new.

    A dry run shows the runs of equal encoding, where compression, chunks or packing change, and what else
    differs between files.

    Example: intarsia ingest data/store '/archive/2002/*.nc' --concat-dim time --dry-run
    """
    options = archive.options() | {
        "errors": "skip" if skip_bad_files else "raise",
        "branch": asked.branch or "main",
        "message": message,
        "dry_run": dry_run,
    }
    repo = _repository(asked.store, asked.storage_option, create=not dry_run)
    with waiting("reading files") as progress:
        report = intarsia.ingest(archive.files, repo, progress=progress, **options)
    if as_json:
        print_json(
            store=asked.store,
            dry_run=dry_run,
            summary=report.summary,
            snapshot_id=report.snapshot_id,
            **_report_json(report),
        )
        return
    _show(report)
    say(*map(str, report.failed))
    say(("would be: " if dry_run else "") + report.summary)
    if report.snapshot_id:
        say(f"snapshot {report.snapshot_id}")


@verb
def lint(
    archive: Archive,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="STORE", help="Hold them against the dataset in this repository."),
    ] = None,
    storage_option: args.StorageOption = None,
    branch: args.Branch = None,
    as_json: args.Json = False,
) -> Exit:
    """Say what differs between files, what an ingest does about it, and which options take what it refuses.

    Nothing is written. The exit code is 1 if a file would be refused.

    Example: intarsia lint '/archive/2002/*.nc' --concat-dim time
    """
    repo = None if into is None else _repository(into, storage_option, create=False)
    options = archive.options() | {"branch": branch or "main"}
    with waiting("reading files") as progress:
        report = intarsia.lint(archive.files, repo, progress=progress, **options)
    refused = [drift for drift in report.drifts if drift.refused]
    if as_json:
        print_json(summary=report.summary, refused=len(report.failed), **_report_json(report))
    else:
        _show(report)
        if refused:
            rows = [(str(each.files), each.first, each.what) for each in refused]
            show_table(("Files", "Such as", "Refused because"), rows)
        say(f"would be: {report.summary}")
    return Exit.PROBLEMS if report.failed else Exit.OK


def _repository(store: str, storage_option: Sequence[str] | None, *, create: bool) -> Any:
    """The repository to add to; None if it is not there and not to be made."""
    given = args.parse_options(storage_option or (), "storage option")
    try:
        return intarsia.open_repository(store, create=create, **given)
    except intarsia.errors.RepositoryNotFoundError:
        if not create:
            return None
        raise
    except TypeError as error:
        raise CommandError(str(error)) from error


def _show(report: IngestReport) -> None:
    """The runs, what differs, and what was left out."""
    if report.runs.rows:
        header, *rows = report.runs.table()
        show_table([name.capitalize() for name in header], rows)
    taken = [drift.cells for drift in report.drifts if not drift.refused and drift.kind != "left out"]
    if taken:
        say("")
        show_table(("Drift", "In", "Files", "First", "What", "What is done"), taken)
        say("")
    say(*(f"left out   {name}: {reason}" for name, reason in report.left_out.items()))


def _report_json(report: IngestReport) -> dict[str, Any]:
    return {
        "runs": [
            {
                "variable": run.variable,
                "start": run.start,
                "stop": run.stop,
                "first": run.first,
                "last": run.last,
                "files": run.files,
                "chunks": list(run.chunks),
                "codecs": run.codecs,
                "stored": run.stored,
                "packing": run.packing,
                "copied": run.copied or None,
            }
            for run in report.runs
        ],
        "drifts": [
            {
                "kind": drift.kind,
                "variable": drift.variable or None,
                "what": drift.what,
                "done": drift.done,
                "files": drift.files,
                "first": drift.first,
                "options": list(drift.options),
            }
            for drift in report.drifts
        ],
        "files": [
            {"url": file.url, "status": file.status, "reason": file.reason or None} for file in report.files
        ],
        "left_out": dict(report.left_out),
    }


@verb
def sources(
    asked: args.Reading,
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="A dataset, or an array in it; the root if left out."),
    ] = "",
    selection: Annotated[
        str, typer.Argument(metavar="SELECTION", help="Only what holds this, as between brackets: '3, 0:10'.")
    ] = "",
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Ask for every file whether it is still what it was.")
    ] = True,
    source_option: SourceOption = None,
    as_json: args.Json = False,
) -> Exit:
    """List which file holds which part of an ingested dataset, and whether it changed or is gone.

    With a selection of an array, also the chunks that hold it. The exit code is 1 if a file is not what it
    was, or cannot be reached.

    Example: intarsia sources data/store sst '100, 20, 30'
    """
    at = args.parse_selection(selection) if selection else None
    place = NamedStore.find(asked)
    options = args.parse_options(source_option or (), "source option") or None
    with waiting("asking for files", counted=False):
        found = intarsia.sources(place.store(), path, at=at, check=check, storage_options=options)
    if as_json:
        print_json(
            store=asked.store,
            path=path.strip("/"),
            selection=selection or None,
            files=[
                {
                    "url": file.url,
                    "state": file.state,
                    "parts": [
                        {"variables": list(part.variables), "bounds": [list(ends) for ends in part.bounds]}
                        for part in file.parts
                    ],
                    "chunks": [
                        {
                            "url": chunk.url or None,
                            "offset": chunk.offset,
                            "nbytes": chunk.nbytes,
                            "bounds": [list(ends) for ends in chunk.bounds],
                            "member": chunk.member,
                            "index": list(chunk.index),
                        }
                        for chunk in file.chunks
                    ],
                }
                for file in found
            ],
        )
    else:
        show_table(("State", "File", "Shows", "Of"), [file.cells for file in found])
        chunks = [chunk for file in found for chunk in file.chunks]
        if chunks:
            say("")
            rows = [
                (bounds_text(c.bounds), c.url or "copied", str(c.offset), size_text(c.nbytes)) for c in chunks
            ]
            show_table(("Chunk", "In", "Offset", "Size"), rows)
        lost = f", {len(found.missing)} of them not as they were" if found.missing else ""
        say(count_text(len(found), "file") + lost)
    return Exit.PROBLEMS if found.missing else Exit.OK
