"""`intarsia regions`: the table of an array's regions."""

from typing import Annotated

import typer

from intarsia.cli.arguments import Array, Json, Reading
from intarsia.cli.output import print_json, say, show_table, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import verb
from intarsia.report.drawing import COLOURS
from intarsia.report.survey import survey
from intarsia.words import REGION_COLUMNS, count_text


@verb
def regions(
    asked: Reading,
    array: Array = "",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, help="Show only the first ones.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the regions of an array: bounds, codecs, chunks, size, stored size, member.

    Example: intarsia regions data/store temperature --tag v1
    """
    opened = NamedStore.find(asked).open(array)
    with waiting("measuring stored chunks", counted=False):
        seen = survey(opened)
    order = seen.in_order()[:limit].tolist()
    rows = [seen.row(i) for i in order]
    if as_json:
        print_json(
            {
                "store": asked.store,
                "path": opened.path,
                "shape": list(opened.shape),
                "count": len(seen),
                "regions": [row.to_json() for row in rows],
            }
        )
        return
    if not len(seen):
        say(f"{opened.path or '/'} has no regions yet: all of it reads as {opened.fill_value}")
        return
    colours = {1: [COLOURS[int(seen.group[i])] for i in order]}
    show_table(REGION_COLUMNS, [row.cells() for row in rows], colours=colours)
    if len(rows) < len(seen):
        say(f"… and {count_text(len(seen) - len(rows), 'more region', 'more regions')}")
