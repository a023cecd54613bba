"""Commands that choose encodings and tidy regions: `advise`, `optimize`, `consolidate`."""

import shlex
from typing import Annotated, Any

import typer

import intarsia
from intarsia.array import LogicalArray
from intarsia.cli import arguments as args
from intarsia.cli import spelling
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, print_json, say, show_table, verb, waiting
from intarsia.listing import terminal_width, wrapped
from intarsia.tune.advice import ADVICE_COLUMNS, BANDWIDTH
from intarsia.tune.optimization import CHANGE_COLUMNS
from intarsia.words import count_text, names_text, size_text

Objective = Annotated[
    str,
    typer.Option(
        "--objective", "-o", help="What counts: size, balanced (object storage) or speed (a fast disk)."
    ),
]


def _objective(text: str) -> Any:
    if text not in BANDWIDTH:
        raise CommandError(f"objective {text!r}: {names_text(text, BANDWIDTH)}")
    return text


@verb
def advise(
    asked: args.Reading,
    array: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="Any Zarr array; may be left out if there is only one.", show_default=False
        ),
    ] = "",
    objective: Objective = "balanced",
    bounds: Annotated[
        str | None, typer.Option("--bounds", metavar="A:B,…", help="Only this box of the array.")
    ] = None,
    as_json: args.Json = False,
) -> None:
    """Try encodings on samples of an array and list them, the best first; nothing is changed.

    Example: intarsia advise data/store temperature --objective size
    """
    wanted = _objective(objective)
    opened = NamedStore.find(asked).readable(array)
    with waiting("trying encodings", counted=False):
        advice = intarsia.advise(opened, wanted, bounds=spelling.parse_bounds(bounds, opened.shape))
    if as_json:
        print_json(
            store=asked.store,
            path=opened.path,
            objective=objective,
            encodings=[
                {
                    "name": trial.name,
                    "ratio": trial.ratio,
                    "encode_seconds": trial.encode_seconds,
                    "decode_seconds": trial.decode_seconds,
                    "nbytes": trial.raw_bytes,
                    "nbytes_stored": trial.stored_bytes,
                    "options": spelling.codec_options(trial.codecs),
                }
                for trial in advice.trials
            ],
        )
        return
    say(*wrapped(advice.summary, terminal_width()))
    show_table(ADVICE_COLUMNS, advice.rows(), colours={1: ["bold", *[""] * (len(advice.trials) - 1)]})
    say(*_how_to_take(asked.store, opened, bounds, spelling.codec_options(advice.codecs)))


def _how_to_take(store: str, opened: Any, bounds: str | None, codecs: list[str]) -> list[str]:
    """The command that takes the best encoding, in one line where there is room for it."""
    path = [shlex.quote(opened.path)] if opened.path else []
    command = ["intarsia recode", shlex.quote(store), *path]
    options = codecs if bounds is None else [f"--bounds {shlex.quote(bounds)}", *codecs]
    if not isinstance(opened, LogicalArray):
        options = codecs
        inside = ["--source-path", *path] if path else []
        command = ["intarsia convert", shlex.quote(store), "NEW_STORE", *inside]
    line, width = " ".join(["To take it:", *command, *options]), terminal_width()
    if width is None or len(line) <= width:
        return [line]
    return ["To take it:", *" \\\n    ".join(["  " + " ".join(command), *options]).split("\n")]


@verb
def optimize(
    asked: args.Changing,
    array: args.Array = "",
    objective: Objective = "balanced",
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Recode every region for which another encoding is clearly better; same values, and one commit.

    With the objective size, no region gets larger. In a repository, older versions stay as they are.

    Example: intarsia optimize data/store temperature --objective size
    """
    wanted = _objective(objective)
    place = NamedStore.find(asked)
    name = place.one_array(array)

    def work(opened: LogicalArray) -> Any:
        with waiting("optimizing", unit="bytes") as progress:
            return opened.optimize(wanted, progress=progress)

    changes, commit = changed(place, name, message or f"optimize {name} for {objective}", work)
    if as_json:
        print_json(
            store=asked.store,
            path=name,
            objective=objective,
            changes=[
                {
                    "bounds": [list(pair) for pair in change.bounds],
                    "codecs_before": change.before,
                    "codecs_after": change.after,
                    "nbytes_stored_before": change.bytes_before,
                    "nbytes_stored_after": change.bytes_after,
                }
                for change in changes
            ],
            snapshot_id=commit,
        )
        return
    if not changes:
        say(f"{name or '/'}: {changes.empty}")
        return
    show_table(CHANGE_COLUMNS, [changes.cells(change) for change in changes])
    saved = sum(change.saved for change in changes)
    how = "saved" if saved >= 0 else "more, for speed"
    say(f"{count_text(len(changes), 'region')} recoded: {size_text(abs(saved))} {how}")
    if commit:
        say(f"snapshot {commit}")


@verb
def consolidate(
    asked: args.Changing, array: args.Array = "", message: args.Message = None, as_json: args.Json = False
) -> None:
    """Join neighbouring regions of equal encoding; stored chunks are copied as they are.

    Example: intarsia consolidate data/store temperature
    """
    place = NamedStore.find(asked)
    name = place.one_array(array)

    def work(opened: LogicalArray) -> tuple[int, int]:
        with waiting("joining regions", counted=False):
            gone = opened.consolidate()
        return gone, len(opened.manifest.regions)

    (gone, left), commit = changed(place, name, message or f"consolidate {name}", work)
    if as_json:
        print_json(store=asked.store, path=name, joined=gone, regions=left, snapshot_id=commit)
        return
    say(f"{name or '/'}: {count_text(gone, 'region')} joined to others, {left} left")
    if commit:
        say(f"snapshot {commit}")


def changed(place: NamedStore, path: str, message: str, work: Any) -> tuple[Any, str | None]:
    """What some work does to an array, and its commit if the store has versions."""
    if place.repo is None:
        return work(place.changeable(path)), None
    place.open(path)  # says what there is instead, where nothing is
    with intarsia.transaction(place.repo, place.branch, message) as tx:
        done = work(tx.open(path))
    return done, tx.snapshot_id
