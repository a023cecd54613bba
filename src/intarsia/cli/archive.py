"""Commands about archives of files: `ingest`, `lint`, `sources`, `relocate`, `cache`."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import icechunk

import intarsia
from intarsia.archives import IngestReport, from_attribute, from_name, from_variable
from intarsia.archives.cache import Entry, cache_directory, cached_archives, clear_cache
from intarsia.archives.ingestion import RepositoryAddress
from intarsia.archives.parsed_file import ParsedFile
from intarsia.cli import arguments as args
from intarsia.cli.stores import BranchToCommit, NewStore, VersionToRead, expect_place
from intarsia.cli.verb import CommandError, Exit, Output, in_options, record, verb, waiting
from intarsia.display import Table, bounds_text, count_text, size_text
from intarsia.errors import RepositoryNotFoundError
from intarsia.versions.repository import is_plain_zarr

COORDINATE_SOURCES = "name:REGEX, date:FORMAT:REGEX, attribute:NAME or variable:NAME"
"""Where the coordinate of a file may be."""


@dataclass(frozen=True)
class Archive:
    """Files, and how they become a dataset: the arguments of `intarsia.ingest` as options.

    Args:
        files (FILES): Paths, URLs or globs of NetCDF, HDF5, Zarr, N5, TIFF files.
        workers (N): How many threads parse files.
        source_option (KEY=VALUE): For the files' storage, such as region or anonymous.

    Where files go:
        concat_dim (NAME): A dimension to concatenate files along. By default, those whose coordinates differ.
            May be repeated.
        dim (NAME=WHERE): A dimension that files lack; WHERE is name:REGEX, date:FORMAT:REGEX, attribute:NAME
            or variable:NAME. May be repeated.
        coordinate (WHERE): The coordinate of files, from their names; as for --dim.
        order_by (NAME): The variable that places files, instead of the coordinate.
        overlap (HOW): Files in one place: refuse, or show the first, last or newest.
        tolerance (X): Coordinates this close to each other count as equal.
        group (NAME): Group in the repository to put them in.
        source_group (NAME): Group of the files that holds the variables; * for all groups.

    What is ingested, and how:
        variable (NAME): Only this variable. May be repeated.
        rename (OLD=NEW): Another name for a variable or dimension. May be repeated.
        stack (A=DIM:NAME,…): Variables as one array, along a new dimension; 1=NAME,2=NAME numbers them.
            May be repeated.
        load (NAME): Load this variable into a plain array. May be repeated.
        dtype (NAME=TYPE): Data type of a variable; values are rounded. May be repeated.
        nulls: Missing values become null instead of NaN.
        units (HOW): Units that differ: 'equal' refuses them, 'ignore' keeps the numbers.
        convert_units: Convert units that differ, such as °C and K.
        combine_attrs (HOW): Attributes that differ, as in xarray: drop_conflicts and others.
        missing (HOW): A file without a variable: raise, or fill.
        add_variables: Add variables that the dataset does not have.
        schema (FILE): Judge files by this one instead of the first.
        copy (WHAT): Copy what cannot be referenced (needed), everything (all) or nothing (never).
        replace: Ingest changed files again.
        allow (PREFIX): Let files refer to what is below this path or URL, outside of their own folder or
            bucket; 'all' for everything. May be repeated.
    """

    files: list[str]
    concat_dim: list[str] | None = None
    dim: list[str] | None = None
    coordinate: str | None = None
    order_by: str | None = None
    overlap: str = "refuse"
    tolerance: float | None = None
    group: str = ""
    source_group: str = ""
    variable: list[str] | None = None
    rename: list[str] | None = None
    stack: list[str] | None = None
    load: list[str] | None = None
    dtype: list[str] | None = None
    nulls: bool = False
    units: str = "equal"
    convert_units: bool = False
    combine_attrs: str = "override"
    missing: str = "raise"
    add_variables: bool = False
    schema: str | None = None
    copy: str = "needed"
    replace: bool = False
    workers: args.Positive = None
    source_option: list[str] | None = None
    allow: list[str] | None = None

    def options(self) -> dict[str, Any]:
        """All options, as arguments of `intarsia.ingest`."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("files", "dim", "variable", "workers", "source_option", "allow"):
            del options[name]
        return options | {
            "concat_dim": self.concat_dim or None,
            "combine": "by_coords" if not self.concat_dim and not self.dim else None,
            "dims": parse_dims(self.dim or ()),
            "coordinate": None if self.coordinate is None else _by_url(self.coordinate),
            "variables": self.variable or None,
            "rename": args.parse_pairs(self.rename or (), "rename") or None,
            "stack": parse_stacks(self.stack or ()) or None,
            "load": self.load or (),
            "dtype": args.parse_pairs(self.dtype or (), "dtype") or None,
            "client": self.workers,
            "storage_options": _source_options(self.source_option),
            "authorize": "all" in (self.allow or ()) or self.allow or (),
        }


def _source_options(texts: Sequence[str] | None) -> dict[str, Any] | None:
    return args.parse_options(texts or (), "source option") or None


def _by_url(text: str) -> Callable[[str], Any]:
    source = parse_coordinate_source(text, "coordinate")
    if isinstance(source, from_attribute | from_variable):
        raise CommandError(f"coordinate: {text!r} is neither name:REGEX nor date:FORMAT:REGEX")
    return lambda url: source(ParsedFile(url, None, "", {}))  # type: ignore[arg-type]  # only its name counts


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


@dataclass(frozen=True)
class NewRepository(NewStore):
    """A repository that is made if there is none.

    Args:
        store (STORE): Path or URL of an Icechunk repository (s3://, gs://, az://). Created if it does not
            exist.
    """

    def find(self) -> icechunk.Repository | None:
        """The repository to add to; None if there is none."""
        expect_place(self.store)
        if "://" not in self.store and is_plain_zarr(os.path.expanduser(self.store)):
            raise CommandError(
                f"STORE: {self.store} is a plain Zarr store, but files are ingested into an Icechunk "
                "repository: name one, or a new directory"
            )
        try:
            return self._open_repository()
        except RepositoryNotFoundError:
            return None

    @property
    def address(self) -> RepositoryAddress:
        """Where it will be: it is made when the first file is accepted."""
        return RepositoryAddress(self.store, args.parse_options(self.storage_option or (), "storage option"))


@verb
def ingest(
    archive: Archive,
    place: NewRepository,
    *,
    skip_bad_files: bool = False,
    dry_run: bool = False,
    batch: args.Positive = None,
) -> Output:
    """Open an archive of files as logical arrays: nothing is copied, and later calls add what is new.

    Thousands of files are committed in batches. If it is interrupted, call it again: it continues after the
    last commit.

    A dry run shows the runs of equal encoding, where compression, chunks or packing change, and what else
    differs between files.

    The files come first, and the store last, as in Python: intarsia.ingest(files, store).

    Example: intarsia ingest '/archive/2002/*.nc' data/store --concat-dim time --dry-run

    Args:
        skip_bad_files: Leave out files that fail, instead of stopping.
        dry_run: Write nothing; show where and how the encoding changes.
        batch (N): Commit at most N files at a time.
    """
    options = archive.options() | {
        "errors": "skip" if skip_bad_files else "raise",
        "branch": place.branch_name,
        "batch": batch,
        "message": place.message,
        "dry_run": dry_run,
    }
    repo = place.find() or (None if dry_run else place.address)
    with waiting("reading files") as progress:
        report = intarsia.ingest(archive.files, repo, progress=progress, **options)
    return Output(
        *_report_lines(report, options),
        *(in_options(str(file), options) for file in report.failed),
        report.forecast if dry_run else report.summary,
        dry_run=dry_run,
        **record(report, "summary snapshot_id"),
        **_report_json(report),
    )


@verb
def lint(
    archive: Archive,
    *,
    into: str | None = None,
    storage_option: list[str] | None = None,
    branch: str | None = None,
) -> Output:
    """Show how files differ, what an ingest does about it, and which options accept what it refuses.

    Nothing is written. The exit code is 1 if a file would be refused.

    Example: intarsia lint '/archive/2002/*.nc' --concat-dim time

    Args:
        into (STORE): Compare them with the dataset in this repository.
        storage_option (KEY=VALUE): For the storage of the repository: endpoint_url, region, anonymous, ….
        branch (NAME): The branch of the repository; main if left out.
    """
    repo = None
    if into is not None:
        repo = NewRepository(into, storage_option).find()
        if repo is None:
            raise RepositoryNotFoundError(f"there is no Icechunk repository at {into}")
    options = archive.options() | {"branch": branch or "main"}
    with waiting("reading files") as progress:
        report = intarsia.archives.lint(archive.files, repo, progress=progress, **options)
    refused = [drift for drift in report.drifts if drift.refused]
    rows = [(str(each.files), each.first, in_options(each.what, options)) for each in refused]
    return Output(
        *_report_lines(report, options),
        *([Table(("Files", "Such as", "Refused because"), rows)] if rows else []),
        report.forecast,
        code=Exit.PROBLEMS if report.failed else Exit.OK,
        summary=report.summary,
        refused=len(report.failed),
        **_report_json(report),
    )


def _report_lines(report: IngestReport, options: Iterable[str]) -> Iterable[str | Table]:
    """The runs, what differs, and what was left out; advice names options of the command line."""
    if report.runs.rows:
        header, *rows = report.runs.table()
        yield Table(header, rows)
    drifts = [drift for drift in report.drifts if not drift.refused and drift.kind != "left out"]
    if drifts:
        listed = [[in_options(cell, options) for cell in drift.cells] for drift in drifts]
        yield ""
        yield Table(("Drift", "In", "Files", "First", "What", "What is done"), listed)
        yield ""
    for name, reason in report.left_out.items():
        yield in_options(f"left out   {name}: {reason}", options)


def _report_json(report: IngestReport) -> dict[str, Any]:
    runs = "variable start stop first last files chunks codecs stored packing"
    return {
        "runs": [record(run, runs) | {"copied": run.copied or None} for run in report.runs],
        "drifts": [
            record(drift, "kind what done files first options") | {"variable": drift.variable or None}
            for drift in report.drifts
        ],
        "files": [record(file, "url status") | {"reason": file.reason or None} for file in report.files],
        "left_out": report.left_out,
    }


@verb
def sources(
    place: VersionToRead,
    path: str = "",
    selection: str = "",
    *,
    no_check: bool = False,
    source_option: list[str] | None = None,
) -> Output:
    """List which file holds which part of an ingested dataset, and whether the file changed or is gone.

    With a selection of an array, it also lists the chunks that hold it. The exit code is 1 if a file has
    changed or cannot be reached.

    Example: intarsia sources data/store sst '100, 20, 30'

    Args:
        path (PATH): A dataset, or an array in it; the root if left out.
        selection (SELECTION): Only what holds this, as between brackets: '3, 0:10'.
        no_check: Do not check whether files are unchanged.
        source_option (KEY=VALUE): For the files' storage, such as region or anonymous.
    """
    at = args.parse_selection(selection) if selection else None
    store, options = place.zarr_store(), _source_options(source_option)
    with waiting("asking for files", counted=False):
        files = intarsia.archives.sources(store, path, at=at, check=not no_check, storage_options=options)
    chunks = [chunk for file in files for chunk in file.chunks]
    rows = [(bounds_text(c.bounds), c.url or "copied", str(c.offset), size_text(c.nbytes)) for c in chunks]
    gone = f", {len(files.missing)} of them changed or gone" if files.missing else ""
    return Output(
        Table(("State", "File", "Shows", "Of"), [file.cells for file in files]),
        *(("", Table(("Chunk", "In", "Offset", "Size"), rows)) if rows else ()),
        count_text(len(files), "file") + gone,
        code=Exit.PROBLEMS if files.missing else Exit.OK,
        path=path.strip("/"),
        selection=selection or None,
        files=[
            record(file, "url state parts")
            | {
                "chunks": [
                    record(chunk, "offset nbytes bounds member index") | {"url": chunk.url or None}
                    for chunk in file.chunks
                ]
            }
            for file in files
        ],
    )


@verb
def relocate(place: BranchToCommit, moves: list[str], *, source_option: list[str] | None = None) -> Output:
    """Tell a repository that its source files have moved: one commit, and nothing is parsed again.

    Files must have the sizes that were recorded for them. OLD=OLD accepts files that were restored without
    their times.

    Example: intarsia relocate data/store s3://old-bucket/daily=s3://new-bucket/daily

    Args:
        moves (OLD=NEW): Paths or URL prefixes: where files were, and where they are.
        source_option (KEY=VALUE): For the files' storage, such as region or anonymous.
    """
    pairs = args.parse_pairs(moves, "move", "OLD=NEW")
    repo, options = place.repository("does not refer to other files"), _source_options(source_option)
    with waiting("asking for files", counted=False):
        done = intarsia.archives.relocate(
            repo, pairs, branch=place.branch_name, storage_options=options, message=place.message
        )
    return Output(f"relocated: {done}", **record(done, "files chunks unmarked snapshot_id"))


@verb
def cache(*, clear: list[str] | None = None) -> Output:
    """List the archives that xarray opened in one line and that are kept in the cache, or remove some.

    The cache is where the environment variable INTARSIA_CACHE says, or where the platform keeps caches. The
    source files are never touched.

    Example: intarsia cache --clear all

    Args:
        clear (KEY): Remove this archive from the cache; 'all' for all.
    """
    removed = 0
    if clear:
        keys = None if "all" in clear else clear
        known = {entry.path.name for entry in cached_archives()}
        unknown = [key for key in keys or () if key not in known]
        if unknown:
            raise FileNotFoundError(f"the cache has no archive {unknown[0]!r}; intarsia cache lists them")
        removed = clear_cache(keys)
    entries = [_entry_json(entry) for entry in cached_archives()]
    rows = [
        (e["key"], f"{e['files']:,}", size_text(e["nbytes"]), e["made"], ", ".join(e["names"]))
        for e in entries
    ]
    return Output(
        *([Table(("Key", "Files", "Size", "Time (UTC)", "Sources"), rows)] if rows else []),
        *([f"{count_text(removed, 'archive')} removed"] if clear else []),
        f"{count_text(len(entries), 'archive')} in {cache_directory()}",
        directory=cache_directory(),
        removed=removed,
        archives=entries,
    )


def _entry_json(entry: Entry) -> dict[str, Any]:
    note = entry.note()
    assert note is not None  # only such are listed
    names = [str(name) for name in note.sources]
    return {"key": entry.path.name, "names": names, "nbytes": entry.nbytes} | record(
        note, "options files made"
    )
