"""`intarsia ingest`: an archive of files as one dataset, without copying."""

from typing import Annotated, Any

import typer

import intarsia
from intarsia.cli.arguments import (
    Json,
    Making,
    Message,
    parse_options,
)
from intarsia.cli.output import print_json, say, show_table, waiting
from intarsia.cli.verb import CommandError, verb


@verb
def ingest(
    asked: Making,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILES…", help="Paths, URLs or globs of NetCDF, HDF5, Zarr, N5, TIFF files."),
    ],
    concat_dim: Annotated[
        str, typer.Option("--concat-dim", metavar="NAME", help="The dimension along which the files follow.")
    ],
    variable: Annotated[
        list[str] | None, typer.Option("--variable", metavar="NAME", help="Only this variable; repeated.")
    ] = None,
    group: Annotated[str, typer.Option("--group", help="Group in the repository to put them in.")] = "",
    copy: Annotated[
        str,
        typer.Option(
            "--copy", help="Copy what cannot be referenced (needed), everything (all), nothing (never)."
        ),
    ] = "needed",
    skip_bad_files: Annotated[
        bool, typer.Option("--skip-bad-files", help="Leave out files that fail, instead of stopping.")
    ] = False,
    missing: Annotated[
        str, typer.Option("--missing", help="A file without a variable: raise, or fill.")
    ] = "raise",
    replace: Annotated[bool, typer.Option("--replace", help="Take files again that changed.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show where and how the encoding changes.")
    ] = False,
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            "--source-option",
            metavar="KEY=VALUE",
            help="For the files' storage, such as region or anonymous.",
        ),
    ] = None,
    message: Message = None,
    as_json: Json = False,
) -> None:
    """Open an archive of files as logical arrays: nothing copied, one commit; later calls add what is new.

    A dry run shows the runs of equal encoding: where compression, chunks or packing change.

    Example: intarsia ingest data/store '/archive/2002/*.nc' --concat-dim time --dry-run
    """
    options: dict[str, Any] = {
        "concat_dim": concat_dim,
        "variables": variable or None,
        "group": group,
        "copy": copy,
        "errors": "skip" if skip_bad_files else "raise",
        "missing": missing,
        "replace": replace,
        "storage_options": parse_options(source_option or (), "source option") or None,
        "branch": asked.branch or "main",
        "message": message,
        "dry_run": dry_run,
    }
    repo = _repository(asked, dry_run=dry_run)
    with waiting("reading files") as progress:
        report = intarsia.ingest(files, repo, progress=progress, **options)
    if as_json:
        print_json(
            {
                "store": asked.store,
                "dry_run": dry_run,
                "summary": report.summary,
                "snapshot_id": report.snapshot_id,
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
                "files": [
                    {"url": file.url, "status": file.status, "reason": file.reason or None}
                    for file in report.files
                ],
                "left_out": dict(report.left_out),
            }
        )
        return
    if report.runs.rows:
        header, *rows = report.runs.table()
        show_table([name.capitalize() for name in header], rows)
    say(*map(str, report.failed))
    say(*(f"left out   {name}: {reason}" for name, reason in report.left_out.items()))
    say(("would be: " if dry_run else "") + report.summary)
    if report.snapshot_id:
        say(f"snapshot {report.snapshot_id}")


def _repository(asked: Making, *, dry_run: bool) -> Any:
    """The repository to add to; a dry run does without one that is not there."""
    given = parse_options(asked.storage_option or (), "storage option")
    try:
        return intarsia.open_repository(asked.store, create=not dry_run, **given)
    except intarsia.errors.RepositoryNotFoundError:
        if dry_run:
            return None
        raise
    except TypeError as error:
        raise CommandError(str(error)) from error
