"""`intarsia log`: the commits that changed an array."""

from typing import Annotated

import typer

from intarsia.cli.arguments import Array, Json, Reading
from intarsia.cli.output import change_json, print_json, say, show_table, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, verb
from intarsia.report.write import change_lines
from intarsia.versions.history import history
from intarsia.words import size_text


@verb
def log(
    asked: Reading,
    array: Array = "",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, help="Show only the newest ones.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the commits that changed an array, the newest first, and what each of them did.

    Example: intarsia log data/store temperature --limit 10
    """
    place = NamedStore.find(asked)
    if place.repo is None:
        raise CommandError(
            f"{asked.store} is a plain Zarr store, which keeps no history; an Icechunk repository does"
        )
    tip = place.session().snapshot_id
    path = place.one_array(array)
    with waiting("comparing versions", counted=False):
        entries = history(place.repo, path, snapshot_id=tip, limit=limit)
    if as_json:
        print_json(
            {
                "store": asked.store,
                "path": path,
                "commits": [
                    {
                        "snapshot_id": entry.snapshot_id,
                        "parent_id": entry.parent_id,
                        "written_at": entry.written_at.isoformat(),
                        "message": entry.message,
                        "change": change_json(entry.changes[0]) if entry.changes else None,
                    }
                    for entry in entries
                ],
            }
        )
        return
    rows = [
        (
            entry.snapshot_id,
            f"{entry.written_at:%Y-%m-%d %H:%M:%S}",
            entry.message,
            "; ".join(change_lines(entry.changes[0], most=3)) if entry.changes else "",
            size_text(entry.bytes_written),
        )
        for entry in entries
    ]
    show_table(("Snapshot", "Time (UTC)", "Message", "What changed", "Bytes"), rows)
    if not rows:
        say(f"no commit changed {path or '/'}")
