"""Commands about archives of files: `ingest`, `lint`, `sources`, `relocate`, `cache`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Annotated, Any

import intarsia
from intarsia.archives import from_attribute, from_name, from_variable
from intarsia.archives.cache import CacheEntry, cache_directory, cached_archives, clear_cache
from intarsia.archives.ingest_arguments import number_or_text
from intarsia.archives.parsed_file import ParsedFile
from intarsia.cli import arguments as args
from intarsia.cli.output import CommandError, Exit, Output
from intarsia.cli.stores import BranchToCommit, NewStore, VersionToRead, expect_place
from intarsia.cli.verb import verb
from intarsia.display import Table, count_text, json_of, size_text

COORDINATE_SOURCES = "name:REGEX, date:FORMAT:REGEX, attribute:NAME or variable:NAME"
"""Where the coordinate of a file may be."""


def parse_coordinate(text: str, what: str) -> Callable[[str], Any]:
    """Where the coordinate of a file is, in a form that only needs the file's name."""
    source = parse_coordinate_source(text, what)
    if isinstance(source, from_attribute | from_variable):
        raise CommandError(f"{what}: {text!r} is neither name:REGEX nor date:FORMAT:REGEX")
    return lambda url: source(ParsedFile(url, None, "", {}))  # type: ignore[arg-type]  # only its name counts


def parse_dims(texts: Sequence[str], what: str = "dim") -> dict[str, Callable[[ParsedFile], Any]]:
    r"""Dimensions that are not in the files, and where to find their coordinates.

    >>> parse_dims([r"run=name:_r(\d+)_", "member=attribute:realization"])
    {'run': from_name(pattern='_r(\\d+)_', date=None), 'member': from_attribute(name='realization')}
    >>> parse_dims([r"start=date:%Y%m%d:\d{8}"])
    {'start': from_name(pattern='\\d{8}', date='%Y%m%d')}
    """
    pairs = args.parse_pairs(texts, what)
    return {name: parse_coordinate_source(where, what) for name, where in pairs.items()}


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


def parse_stacks(texts: Sequence[str], what: str = "stack") -> dict[str, tuple[str, Any]]:
    """Variables that become one array; by number or by name.

    >>> parse_stacks(["CMI=band:1=CMI_C01,2=CMI_C02", "D=kind:a,b"])
    {'CMI': ('band', {1: 'CMI_C01', 2: 'CMI_C02'}), 'D': ('kind', ['a', 'b'])}
    """
    stacks: dict[str, tuple[str, Any]] = {}
    for array, text in args.parse_pairs(texts, what).items():
        dim, colon, listed = text.partition(":")
        names = [name.strip() for name in listed.split(",") if name.strip()]
        if not colon or not dim or not names:
            raise CommandError(f"{what}: {array}={text} is not of the form ARRAY=DIM:NAME,NAME…")
        if any("=" in name for name in names):
            numbered = args.parse_pairs(names, what)
            stacks[array] = dim, {number_or_text(label): name for label, name in numbered.items()}
        else:
            stacks[array] = dim, names
    return stacks


@dataclass(frozen=True)
class NewRepository(NewStore):
    """A repository that is made if there is none.

    Args:
        store (STORE): Path or URL of an Icechunk repository (s3://, gs://, az://). Created if it does not
            exist.
    """

    @property
    def opener(self) -> Callable[..., Any]:
        """Opens or creates it: it is made when the first file is accepted."""
        expect_place(self.store)
        return partial(intarsia.open_repository, self.store, storage_options=self.storage_option)


class ArchiveOptions:
    """What `ingest` and `lint` take, in the words of their help.

    Args:
        files (FILES): Paths, URLs or globs of NetCDF, HDF5, GRIB, Zarr, N5, TIFF files.
        concat_dim (NAME): A dimension to concatenate files along. By default, those whose coordinates differ.
            May be repeated.
        allow (PREFIX): Let files refer to what is below this path or URL, outside of their own folder or
            bucket; 'all' for everything. May be repeated.
        dim (NAME=WHERE): A dimension that files lack; WHERE is name:REGEX, date:FORMAT:REGEX, attribute:NAME
            or variable:NAME. May be repeated.
        stack (A=DIM:NAME,…): Variables as one array, along a new dimension; 1=NAME,2=NAME numbers them. May
            be repeated.
        coordinate (WHERE): The coordinate of files, from their names; as for --dim.
        rename (OLD=NEW): Another name for a variable or dimension.
        dtype (NAME=TYPE): Data type of a variable; values are rounded.
        schema (FILE): Judge files by this one instead of the first.
        workers (N): How many threads parse files.
        skip_bad_files: Leave out files that fail, instead of stopping.
    """


ARCHIVE: dict[str, args.OptionSyntax] = {
    "dims": args.OptionSyntax(parse_dims, kind=args.MANY, option="dim"),
    "stack": args.OptionSyntax(parse_stacks, kind=args.MANY),
    "coordinate": args.OptionSyntax(parse_coordinate),
    "variables": args.OptionSyntax(None, "NAME", args.MANY, "variable"),
    "rename": args.OptionSyntax(args.parse_pairs, kind=args.MANY),
    "dtype": args.OptionSyntax(args.parse_pairs, kind=args.MANY),
    "schema": args.OptionSyntax(),
    "client": args.OptionSyntax(kind=int | None, option="workers", limits={"min": 1}),
    "batch": args.OptionSyntax(None, "N", int | None, limits={"min": 1}),
    "errors": args.OptionSyntax(lambda _is_set, _: "skip", kind=bool, option="skip_bad_files"),
}
"""The arguments of `intarsia.ingest` that are written in a way of their own."""


def _by_coordinates(options: dict[str, Any]) -> dict[str, Any]:
    """Files go where their coordinates say, unless options say otherwise."""
    is_known = options.keys() & {"concat_dim", "dims"}
    return options if is_known else {"combine": "by_coords", **options}


@verb(intarsia.ingest, without=["combine"], words=ArchiveOptions, unit="steps", **ARCHIVE)
def ingest(files: list[str], place: NewRepository, *, dry_run: bool = False, **options: Any) -> Output:
    """Open an archive of files as logical arrays: nothing is copied, and later calls add what is new.

    Thousands of files are committed in batches. If it is interrupted, call it again: it continues after the
    last commit.

    A dry run shows the runs of equal encoding, where compression, chunks or packing change, and what else
    differs between files.

    The files come first, and the store last, as in Python: intarsia.ingest(files, store).

    Example: intarsia ingest '/archive/2002/*.nc' data/store --concat-dim time --dry-run

    Args:
        dry_run: Write nothing; show where and how the encoding changes.
    """
    options |= {"dry_run": dry_run, **place.commit}
    report = intarsia.ingest(files, place.opener, **_by_coordinates(options))
    return Output(report, dry_run=dry_run, **json_of(report))


WRITING = ["combine", "errors", "batch", "dry_run"]
"""The arguments of `intarsia.ingest` that `lint` decides itself."""


@verb(intarsia.ingest, without=WRITING, words=ArchiveOptions, unit="steps", **ARCHIVE)
def lint(
    files: list[str],
    *,
    into: str | None = None,
    storage_option: args.Pairs = None,
    branch: str = "main",
    **options: Any,
) -> Output:
    """Show how files differ, what an ingest does about it, and which options accept what it refuses.

    Nothing is written. The exit code is 1 if a file would be refused.

    Example: intarsia lint '/archive/2002/*.nc' --concat-dim time

    Args:
        into (STORE): Compare them with the dataset in this repository.
        storage_option (KEY=VALUE): For the storage of the repository: endpoint_url, region, anonymous, ….
        branch (NAME): The branch of the repository.
    """
    repo = None if into is None else intarsia.open_repository(into, storage_options=storage_option)
    report = intarsia.archives.lint(files, repo, branch=branch, **_by_coordinates(options))
    return Output(
        report,
        code=Exit.PROBLEMS if report.failed else Exit.OK,
        refused=len(report.failed),
        **json_of(report),
    )


@verb(intarsia.archives.sources, without=["at"])
def sources(place: VersionToRead, path: str = "", selection: str = "", **options: Any) -> Output:
    """List which file holds which part of an ingested dataset, and whether the file changed or is gone.

    With a selection of an array, it also lists the chunks that hold it. The exit code is 1 if a file has
    changed or cannot be reached.

    Example: intarsia sources data/store sst '100, 20, 30'

    Args:
        path (PATH): A dataset, or an array in it; the root if left out.
        selection (SELECTION): Only what holds this, as between brackets: '3, 0:10'.
        no_check: Do not check whether files are unchanged.
    """
    at = args.parse_selection_text(selection) if selection else None
    files = intarsia.archives.sources(place.resolved.store, path, at=at, **options)
    chunks = [chunk for file in files for chunk in file.chunks]
    gone = f", {len(files.missing)} of them changed or gone" if files.missing else ""
    return Output(
        files,
        *(("", Table.of(chunks, CHUNK_COLUMNS)) if chunks else ()),
        count_text(len(files), "file") + gone,
        code=Exit.PROBLEMS if files.missing else Exit.OK,
        path=path.strip("/"),
        selection=selection or None,
        files=files,
    )


CHUNK_COLUMNS: dict[str, Any] = {
    "Chunk": "bounds", "In": lambda chunk: chunk.url or "copied", "Offset": "offset", "Size": "nbytes",
}  # fmt: skip


Moves = Annotated[
    dict[str, str], args.OptionSyntax(partial(args.parse_pairs, form="OLD=NEW"), kind=list[str])
]


@verb(intarsia.archives.relocate)
def relocate(place: BranchToCommit, moves: Moves, **options: Any) -> Output:
    """Tell a repository that its source files have moved: one commit, and nothing is parsed again.

    Files must have the sizes that were recorded for them. OLD=OLD accepts files that were restored without
    their times.

    Example: intarsia relocate data/store s3://old-bucket/daily=s3://new-bucket/daily

    Args:
        moves (OLD=NEW): Paths or URL prefixes: where files were, and where they are.
    """
    repo = place.repository("does not refer to other files")
    done = intarsia.archives.relocate(repo, moves, **place.commit, **options)
    return Output(f"relocated: {done}", **json_of(done))


@verb()
def cache(*, clear: list[str] | None = None) -> Output:
    """List the archives in the cache, which xarray opened as files without a repository; or remove some.

    The cache is where the environment variable INTARSIA_CACHE says, or else in ~/.cache/intarsia. The source
    files are never touched.

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
    return Output(
        *([Table.of(entries, CACHE_COLUMNS)] if entries else []),
        *([f"{count_text(removed, 'archive')} removed"] if clear else []),
        f"{count_text(len(entries), 'archive')} in {cache_directory()}",
        directory=cache_directory(),
        removed=removed,
        archives=entries,
    )


CACHE_COLUMNS: dict[str, Any] = {
    "Key": itemgetter("key"), "Files": itemgetter("files"), "Size": lambda entry: size_text(entry["nbytes"]),
    "Time (UTC)": itemgetter("made"), "Sources": lambda entry: ", ".join(entry["names"]),
}  # fmt: skip


def _entry_json(entry: CacheEntry) -> dict[str, Any]:
    record = entry.record()
    assert record is not None  # only such are listed
    names = [str(name) for name in record.sources]
    facts = {"key": entry.path.name, "names": names, "nbytes": entry.nbytes}
    return facts | {"options": record.options, "files": record.files, "made": record.made}
