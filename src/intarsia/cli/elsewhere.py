"""Commands about files elsewhere: `relocate`, for those that moved; `cache`, for those opened in one line."""

from typing import Annotated, Any

import typer

import intarsia
from intarsia.archives.cached_archives import Entry, cache_directory, cached_archives, clear_cache
from intarsia.cli import arguments as args
from intarsia.cli.archive_options import SourceOption
from intarsia.cli.spelling import parse_options, parse_pairs
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, print_json, say, show_table, verb, waiting
from intarsia.words import count_text, size_text

ALL = "all"


@verb
def relocate(
    asked: args.Changing,
    moves: Annotated[
        list[str],
        typer.Argument(
            metavar="OLD=NEW…", help="Paths or URL prefixes: where files were, and where they are."
        ),
    ],
    source_option: SourceOption = None,
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Tell a repository that its source files are elsewhere now: one commit, and nothing is parsed again.

    Files must have the sizes that were known of them. OLD=OLD takes files again that were restored without
    their times.

    Example: intarsia relocate data/store s3://old-bucket/daily=s3://new-bucket/daily
    """
    pairs = parse_pairs(moves, "move")
    place = NamedStore.find(asked)
    if place.repo is None:
        raise CommandError(f"{asked.store} is a plain Zarr store, which refers to no other files")
    options = parse_options(source_option or (), "source option") or None
    with waiting("asking for files", counted=False):
        done = intarsia.relocate(
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
    """List the archives that were opened in one line with xarray, and are kept in the cache; or remove some.

    The cache is where the environment variable INTARSIA_CACHE says, or where the platform keeps caches. The
    source files are never touched.

    Example: intarsia cache --clear all
    """
    removed = 0
    if clear:
        keys = None if ALL in clear else clear
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
