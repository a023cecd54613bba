"""`intarsia verify`: check an array from end to end."""

from typing import Annotated

import typer

import intarsia
from intarsia.array.hierarchy import logical_arrays
from intarsia.cli.arguments import AnyArrays, Json, Reading
from intarsia.cli.output import print_json, say, show_table, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import Exit, verb
from intarsia.versions.verify import repository_leftovers
from intarsia.words import count_text


@verb
def verify(
    asked: Reading,
    array: AnyArrays = "",
    data: Annotated[
        bool, typer.Option("--data/--no-data", help="Read every stored chunk, or only the metadata.")
    ] = True,
    as_json: Json = False,
) -> int:
    """Check manifest, members and every stored chunk; list all problems at once.

    Ends with exit code 1 if anything is damaged, so that a script can act on it; leftovers do no harm.

    Example: intarsia verify data/store temperature
    """
    place = NamedStore.find(asked)
    opened = place.store()
    paths = [array.strip("/")] if array else logical_arrays(opened, inside_arrays=True)
    if not paths:
        raise intarsia.errors.NotLogicalArrayError(f"there is no logical array in {asked.store}")
    with waiting("reading every chunk" if data else "checking") as progress:
        problems: list[intarsia.types.Problem] = []
        for done, path in enumerate(paths):
            progress(done, len(paths))
            problems += intarsia.verify(opened, path, data=data)
        if place.repo is not None and not array:
            problems += repository_leftovers(place.repo)
    if as_json:
        print_json(
            {
                "store": asked.store,
                "arrays": paths,
                "data": data,
                "problems": [
                    {"kind": p.kind, "where": p.where, "what": p.what, "advice": p.advice or None}
                    for p in problems
                ],
            }
        )
    elif problems:
        rows = [(p.kind, p.where, p.what + (f" ({p.advice})" if p.advice else "")) for p in problems]
        show_table(("Kind", "Where", "What"), rows)
    if not as_json:
        checked = f"{count_text(len(paths), 'array')} checked" + ("" if data else ", stored chunks not read")
        say(f"{checked}: {count_text(len(problems), 'problem') if problems else 'no problem'}")
    return Exit.PROBLEMS if any(problem.kind != "leftover" for problem in problems) else Exit.OK
