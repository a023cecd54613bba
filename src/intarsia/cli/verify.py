"""`intarsia verify`: check an array from end to end."""

from typing import Annotated

import typer

import intarsia
from intarsia.cli.exits import Exit
from intarsia.cli.options import Array, AsOf, Branch, Json, Snapshot, StorageOption, Store, Tag
from intarsia.cli.output import print_json, say, show_table
from intarsia.cli.place import Place, Version
from intarsia.cli.verb import verb
from intarsia.cli.waiting import waiting
from intarsia.words import count_text

__all__ = ["verify"]


@verb
def verify(
    store: Store,
    array: Array = "",
    data: Annotated[
        bool, typer.Option("--data/--no-data", help="Read every stored chunk, or only the metadata.")
    ] = True,
    branch: Branch = None,
    tag: Tag = None,
    snapshot: Snapshot = None,
    as_of: AsOf = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> int:
    """Check manifest, members and every stored chunk; list all problems at once.

    Ends with exit code 1 if there are any, so that a script can act on it.

    Example: intarsia verify data/store temperature
    """
    version = Version(branch, tag, snapshot, as_of)
    place = Place.find(store, storage_option)
    path = place.one_array(array, version)
    with waiting("reading every chunk" if data else "checking", counted=False):
        problems = intarsia.verify(place.store(version), path, data=data)
    if as_json:
        print_json(
            {
                "store": store,
                "path": path,
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
        say(f"{path or '/'}: {count_text(len(problems), 'problem')}")
    else:
        say(f"{path or '/'}: no problem" + ("" if data else "; stored chunks were not read"))
    return Exit.PROBLEMS if problems else Exit.OK
