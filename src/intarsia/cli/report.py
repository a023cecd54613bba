"""`intarsia report`: one page that shows what was done to the data."""

from pathlib import Path
from typing import Annotated

import typer

from intarsia.cli.arguments import AnyArrays, Json, Reading
from intarsia.cli.output import print_json, say, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import verb
from intarsia.report.write import MOST_VERSIONS, write_report
from intarsia.words import size_text


@verb
def report(
    asked: Reading,
    array: AnyArrays = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    versions: Annotated[
        int, typer.Option("--versions", min=1, help="Show at most this many versions of each array.")
    ] = MOST_VERSIONS,
    data: Annotated[
        bool, typer.Option("--data/--no-data", help="Let the check read every stored chunk.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a page with the map over time, bytes by codec, ratio per chunk, masks, slots and problems.

    The page is one file that any browser opens from disk, without server or network.

    Example: intarsia report data/store -o report.html
    """
    place = NamedStore.find(asked)
    if place.repo is None:
        place.store()  # refuses versions that a plain store has not
    snapshot = None if place.repo is None else place.session().snapshot_id
    with waiting("writing the report") as progress:
        file = write_report(
            place.plain if place.repo is None else place.repo,
            output,
            array or None,
            versions=versions,
            read_data=data,
            title=f"{asked.store} {array}".strip(),
            snapshot_id=snapshot,
            progress=progress,
        )
    size = file.stat().st_size
    if as_json:
        print_json({"store": asked.store, "output": str(file), "nbytes": size})
        return
    say(f"{file} ({size_text(size)}): open it in a browser")
