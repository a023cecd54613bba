"""`intarsia explain`: what a read would do, without doing it."""

import intarsia
from intarsia.cli.arguments import Array, Json, Reading, Selection, parse_selection
from intarsia.cli.output import print_json, say, show_table, waiting
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import verb
from intarsia.errors import BoundsError
from intarsia.words import EXPLAIN_COLUMNS


@verb
def explain(
    asked: Reading,
    array: Array = "",
    selection: Selection = "",
    as_json: Json = False,
) -> None:
    """Show the plan of a read: which regions, chunks and bytes it takes, and how they are fetched.

    Example: intarsia explain data/store temperature '0:24, 10, :'
    """
    chosen = parse_selection(selection)
    opened = NamedStore.find(asked).open(array)
    outer = any(isinstance(entry, list) for entry in chosen)
    with waiting("planning", counted=False):
        try:
            plan = intarsia.explain(opened, chosen, mode="orthogonal" if outer else None)
        except IndexError as error:
            raise BoundsError(f"selection {selection!r} of shape {opened.shape}: {error}") from error
    if as_json:
        print_json(
            {"store": asked.store, "path": opened.path, "selection": selection, "plan": plan.to_json()}
        )
        return
    say(*plan.summary())
    if plan.parts:
        show_table(EXPLAIN_COLUMNS, [part.cells() for part in sorted(plan.parts, key=lambda p: p.bounds)])
