"""The options of commands that take archives of files: which files, and how they become a dataset.

Commands about archives of files: `ingest`, `lint`, `sources`; `relocate` and `cache`.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

import intarsia
from intarsia.archives import IngestReport, from_attribute, from_name, from_variable
from intarsia.archives.cache import Entry, cache_directory, cached_archives, clear_cache
from intarsia.archives.parsed_file import ParsedFile
from intarsia.cli import arguments as args
from intarsia.cli.arguments import parse_options, parse_pairs
from intarsia.cli.stores import NamedStore, expect_place
from intarsia.cli.verb import CommandError, Exit, in_options, print_json, say, show_table, verb, waiting
from intarsia.display import bounds_text, count_text, size_text
from intarsia.versions.repository import is_plain_zarr

COORDINATE_SOURCES = "name:REGEX, date:FORMAT:REGEX, attribute:NAME or variable:NAME"
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
            f"A dimension that files lack; WHERE is {COORDINATE_SOURCES}. May be repeated.",
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
    teller = parse_coordinate_source(text, "coordinate")
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
        name: parse_coordinate_source(where, "dim") for name, where in args.parse_pairs(texts, "dim").items()
    } or None


def parse_coordinate_source(text: str, what: str) -> Callable[[ParsedFile], Any]:
    kind, _, rest = text.partition(":")
    date, _, pattern = rest.partition(":") if kind == "date" else ("", "", rest)
    if kind in ("attribute", "variable") and rest:
        return from_attribute(rest) if kind == "attribute" else from_variable(rest)
    if kind not in ("name", "date") or not pattern or (kind == "date" and not date):
        raise CommandError(f"{what}: {text!r} is not one of {COORDINATE_SOURCES}")
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


@verb
def ingest(
    archive: Archive,
    asked: args.Ingesting,
    skip_bad_files: Annotated[
        bool, typer.Option("--skip-bad-files", help="Leave out files that fail, instead of stopping.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show where and how the encoding changes.")
    ] = False,
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", min=1, help="Commit at most N files at a time."),
    ] = None,
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Open an archive of files as logical arrays: nothing is copied, and later calls add what is new.

    Thousands of files are committed in batches. If it is interrupted, call it again: it continues after the
    last commit.

    A dry run shows the runs of equal encoding, where compression, chunks or packing change, and what else
    differs between files.

    The files come first, and the store last, as in Python: intarsia.ingest(files, store).

    Example: intarsia ingest '/archive/2002/*.nc' data/store --concat-dim time --dry-run
    """
    options = archive.options() | {
        "errors": "skip" if skip_bad_files else "raise",
        "branch": asked.branch or "main",
        "batch": batch,
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
    _show(report, options)
    say(*(in_options(str(file), options) for file in report.failed))
    say(report.forecast if dry_run else report.summary)
    if report.snapshot_id:
        say(f"snapshot {report.snapshot_id}")


@verb
def lint(
    archive: Archive,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="STORE", help="Compare them with the dataset in this repository."),
    ] = None,
    storage_option: args.StorageOption = None,
    branch: args.Branch = None,
    as_json: args.Json = False,
) -> Exit:
    """Show how files differ, what an ingest does about it, and which options accept what it refuses.

    Nothing is written. The exit code is 1 if a file would be refused.

    Example: intarsia lint '/archive/2002/*.nc' --concat-dim time
    """
    repo = None if into is None else _repository(into, storage_option, create=False)
    if into is not None and repo is None:
        raise intarsia.errors.RepositoryNotFoundError(f"there is no Icechunk repository at {into}")
    options = archive.options() | {"branch": branch or "main"}
    with waiting("reading files") as progress:
        report = intarsia.archives.lint(archive.files, repo, progress=progress, **options)
    refused = [drift for drift in report.drifts if drift.refused]
    if as_json:
        print_json(summary=report.summary, refused=len(report.failed), **_report_json(report))
    else:
        _show(report, options)
        if refused:
            rows = [(str(each.files), each.first, in_options(each.what, options)) for each in refused]
            show_table(("Files", "Such as", "Refused because"), rows)
        say(report.forecast)
    return Exit.PROBLEMS if report.failed else Exit.OK


def _repository(store: str, storage_option: Sequence[str] | None, *, create: bool) -> Any:
    """The repository to add to; None if there is none and none is to be made."""
    expect_place(store)
    if "://" not in store and is_plain_zarr(os.path.expanduser(store)):
        raise CommandError(
            f"STORE: {store} is a plain Zarr store, but files are ingested into an Icechunk repository: "
            "name one, or a new directory"
        )
    given = args.parse_options(storage_option or (), "storage option")
    try:
        return intarsia.open_repository(store, create=create, **given)
    except intarsia.errors.RepositoryNotFoundError:
        if not create:
            return None
        raise
    except TypeError as error:
        raise CommandError(str(error)) from error


def _show(report: IngestReport, options: Iterable[str]) -> None:
    """Show the runs, what differs, and what was left out; advice names options of the command line."""

    def told(text: str) -> str:
        return in_options(text, options)

    if report.runs.rows:
        header, *rows = report.runs.table()
        show_table(header, rows)
    drifts = (drift for drift in report.drifts if not drift.refused and drift.kind != "left out")
    taken = [tuple(map(told, drift.cells)) for drift in drifts]
    if taken:
        say("")
        show_table(("Drift", "In", "Files", "First", "What", "What is done"), taken)
        say("")
    say(*(told(f"left out   {name}: {reason}") for name, reason in report.left_out.items()))


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
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not check whether files are unchanged.")
    ] = False,
    source_option: SourceOption = None,
    as_json: args.Json = False,
) -> Exit:
    """List which file holds which part of an ingested dataset, and whether the file changed or is gone.

    With a selection of an array, it also lists the chunks that hold it. The exit code is 1 if a file has
    changed or cannot be reached.

    Example: intarsia sources data/store sst '100, 20, 30'
    """
    at = args.parse_selection(selection) if selection else None
    place = NamedStore.find(asked)
    options = args.parse_options(source_option or (), "source option") or None
    with waiting("asking for files", counted=False):
        found = intarsia.archives.sources(
            place.store(), path, at=at, check=not no_check, storage_options=options
        )
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
        lost = f", {len(found.missing)} of them changed or gone" if found.missing else ""
        say(count_text(len(found), "file") + lost)
    return Exit.PROBLEMS if found.missing else Exit.OK


EVERY_ENTRY = "all"


@verb
def relocate(
    asked: args.Changing,
    moves: Annotated[
        list[str],
        typer.Argument(
            metavar="OLD=NEW", help="Paths or URL prefixes: where files were, and where they are."
        ),
    ],
    source_option: SourceOption = None,
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Tell a repository that its source files have moved: one commit, and nothing is parsed again.

    Files must have the sizes that were recorded for them. OLD=OLD accepts files that were restored without
    their times.

    Example: intarsia relocate data/store s3://old-bucket/daily=s3://new-bucket/daily
    """
    pairs = parse_pairs(moves, "move", "OLD=NEW")
    place = NamedStore.find(asked)
    if place.repo is None:
        raise CommandError(f"{asked.store} is a plain Zarr store, which does not refer to other files")
    options = parse_options(source_option or (), "source option") or None
    with waiting("asking for files", counted=False):
        done = intarsia.archives.relocate(
            place.repo, pairs, branch=place.branch, storage_options=options, message=message
        )
    if as_json:
        print_json(
            store=asked.store,
            files=done.files,
            chunks=done.chunks,
            unmarked=done.unmarked,
            snapshot_id=done.snapshot_id,
        )
        return
    say(f"relocated: {done}", f"snapshot {done.snapshot_id}")


@verb
def cache(
    clear: Annotated[
        list[str] | None,
        typer.Option("--clear", metavar="KEY", help="Remove this archive from the cache; 'all' for all."),
    ] = None,
    as_json: args.Json = False,
) -> None:
    """List the archives that xarray opened in one line and that are kept in the cache, or remove some.

    The cache is where the environment variable INTARSIA_CACHE says, or where the platform keeps caches. The
    source files are never touched.

    Example: intarsia cache --clear all
    """
    removed = 0
    if clear:
        keys = None if EVERY_ENTRY in clear else clear
        known = {entry.path.name for entry in cached_archives()}
        unknown = [key for key in keys or () if key not in known]
        if unknown:
            raise FileNotFoundError(f"the cache has no archive {unknown[0]!r}; intarsia cache lists them")
        removed = clear_cache(keys)
    entries = [_described(entry) for entry in cached_archives()]
    if as_json:
        print_json(directory=str(cache_directory()), removed=removed, archives=entries)
        return
    if entries:
        rows = [
            (
                each["key"],
                f"{each['files']:,}",
                size_text(each["nbytes"]),
                each["made"],
                ", ".join(each["names"]),
            )
            for each in entries
        ]
        show_table(("Key", "Files", "Size", "Time (UTC)", "Sources"), rows)
    if clear:
        say(f"{count_text(removed, 'archive')} removed")
    say(f"{count_text(len(entries), 'archive')} in {cache_directory()}")


def _described(entry: Entry) -> dict[str, Any]:
    note = entry.note()
    assert note is not None  # only such are listed
    return {
        "key": entry.path.name,
        "names": [str(name) for name in note.sources],
        "options": dict(note.options),
        "files": note.files,
        "nbytes": entry.nbytes,
        "made": note.made,
    }
