"""Commands about encodings and layouts: `advise`, `optimize`, `consolidate`, `replicate`, `maintain`."""

import shlex
from typing import Annotated, Any

import typer

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, print_json, say, show_table, verb, waiting
from intarsia.display import bounds_text, count_text, names_text, size_text, terminal_width, wrapped
from intarsia.inspect.survey import survey
from intarsia.logical.advice import ADVICE_COLUMNS, BANDWIDTH
from intarsia.logical.hierarchy import logical_arrays
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.optimization import CHANGE_COLUMNS
from intarsia.logical.policy import Policy
from intarsia.logical.replicas import gaps
from intarsia.progress import Progress
from intarsia.versions.replicate import Upkeep

Objective = Annotated[
    str,
    typer.Option(
        "--objective",
        "-o",
        metavar="WHAT",
        help="What counts: size, balanced (object storage) or speed (a fast disk).",
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
    """Try encodings on samples of an array and list them, best first; nothing is changed.

    Example: intarsia advise data/store temperature --objective size
    """
    wanted = _objective(objective)
    opened = NamedStore.find(asked).readable(array)
    with waiting("trying encodings", counted=False):
        advice = intarsia.advise(opened, wanted, bounds=args.parse_bounds(bounds, opened.shape))
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
                    "options": args.codec_options(trial.codecs),
                }
                for trial in advice.trials
            ],
        )
        return
    say(*wrapped(advice.summary, terminal_width()))
    show_table(ADVICE_COLUMNS, advice.rows(), colours={1: ["bold", *[""] * (len(advice.trials) - 1)]})
    say(*_how_to_take(asked.store, opened, bounds, args.codec_options(advice.codecs)))


def _how_to_take(store: str, opened: Any, bounds: str | None, codecs: list[str]) -> list[str]:
    """The command that uses the best encoding, on one line if it fits."""
    path = [shlex.quote(opened.path)] if opened.path else []
    command = ["intarsia recode", shlex.quote(store), *path]
    options = codecs if bounds is None else [f"--bounds {shlex.quote(bounds)}", *codecs]
    if not isinstance(opened, LogicalArray):
        options = codecs
        inside = ["--source-path", *path] if path else []
        command = ["intarsia convert", shlex.quote(store), "NEW_STORE", *inside]
    line, width = " ".join(["To use it:", *command, *options]), terminal_width()
    if width is None or len(line) <= width:
        return [line]
    return ["To use it:", *" \\\n    ".join(["  " + " ".join(command), *options]).split("\n")]


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
    joined = f"{count_text(gone, 'region')} joined to others, {left} left"
    say(f"{name or '/'}: {joined if gone else f'nothing to join in {count_text(left, "region")}'}")
    if commit:
        say(f"snapshot {commit}")


def changed(place: NamedStore, path: str, message: str, work: Any) -> tuple[Any, str | None]:
    """What `work` returns for an array, and its commit if the store has versions."""
    if place.repo is None:
        return work(place.changeable(path)), None
    place.open(path)  # raises an error that says what is there instead
    with intarsia.transaction(place.repo, branch=place.branch, message=message) as tx:
        done = work(tx.open(path))
    return done, tx.snapshot_id


@verb
def replicate(
    asked: args.Changing,
    array: args.Array = "",
    codec: args.Codec = None,
    bounds: Annotated[
        str | None,
        typer.Option("--bounds", metavar="A:B,…", help="The box to store once more; everything if left out."),
    ] = None,
    chunks: args.Chunks = None,
    shards: args.Shards = None,
    drop: Annotated[
        int | None, typer.Option("--drop", metavar="LAYER", min=1, help="Drop this replica instead.")
    ] = None,
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Store a box of an array a second time, in another layout: reads use the one that costs less.

    Layer 0 stays as it is; files that were ingested are not touched. A replica of everything is kept up to
    date by `intarsia maintain`.

    Example: intarsia replicate data/store temperature --chunks 1461,10,10 -c zstd
    """
    place = NamedStore.find(asked)
    options: dict[str, Any] = {
        "codecs": args.parse_codec_list(codec),
        "chunks": args.parse_sizes(chunks, "chunks"),
        "shards": args.parse_sizes(shards, "shards"),
    }
    if drop is not None and any(value is not None for value in options.values()):
        raise CommandError("--drop removes a replica: leave out --codec, --chunks and --shards")
    if drop is None and all(value is None for value in options.values()):
        raise CommandError("say how the replica is stored: --chunks, --codec or --shards")
    old = place.open(array)
    box = None if bounds is None else args.parse_bounds(bounds, old.shape)
    layers, commit = set(old.manifest.layers), None
    with waiting("dropping" if drop is not None else "copying") as progress:
        if place.repo is None:
            made = place.changeable(array)
            if drop is None:
                layer = made.add_replica(box, progress=progress, **options)
            else:
                made.drop_replica(box, layer=drop)
        else:
            words: dict[str, Any] = {"branch": place.branch, "message": message or ""}
            if drop is None:
                commit = intarsia.add_replica(
                    place.repo, old.path, box, progress=progress, **options, **words
                )
            else:
                words["message"] = message or f"drop the replica in layer {drop} of {old.path}"
                commit = intarsia.retry(
                    place.repo, lambda tx: tx.open(old.path).drop_replica(box, layer=drop), **words
                )
            made = place.open(old.path)
            layer = _layer(made, options, layers)
    layer = layer if drop is None else drop
    done = box if box is not None else tuple((0, n) for n in made.shape)
    stored = survey(made, layer=layer).total_stored if layer in made.manifest.layers else 0
    if as_json:
        print_json(
            store=asked.store,
            path=made.path,
            layer=layer,
            dropped=drop is not None,
            bounds=[list(pair) for pair in done],
            layers=list(made.manifest.layers),
            nbytes_stored=stored,
            snapshot_id=commit,
        )
        return
    what = "dropped" if drop is not None else "replicated"
    say(f"{what} {bounds_text(done)} of {made.path or '/'}: layer {layer} stores {size_text(stored)} now")
    if commit:
        say(f"snapshot {commit}")


def _layer(made: Any, options: dict[str, Any], before: set[int]) -> int:
    """The layer that a replica went into: a new one, or one of the same encoding."""
    new = [layer for layer in made.manifest.layers if layer not in before]
    if new:
        return int(new[0])
    chunks = options["chunks"] or made.chunks
    alike = [replica.layer for replica in made.replicas if replica.chunks == tuple(chunks)]
    return int(alike[0]) if alike else int(made.manifest.layers[-1])


def _refreshed(place: NamedStore, path: str, dry_run: bool, progress: Progress) -> tuple[Upkeep, ...]:
    """What `maintain` does in a plain store, while nobody else may write: bring replicas up to date."""
    steps = []
    for each in [path] if path else logical_arrays(place.store()):
        made = place.open(each) if dry_run else place.changeable(each)
        for replica in Policy.of(made._logical).replicas:
            for gap in gaps(made.manifest, replica, least=replica.after):
                bounds = made.manifest.elements(gap).bounds
                steps.append(Upkeep(each.strip("/"), "replica", replica.layer, bounds))
        if steps and not dry_run:
            made.refresh_replicas(progress=progress)
    return tuple(steps)


@verb
def maintain(
    asked: args.Changing,
    array: args.AnyArrays = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what there is to do.")] = False,
    as_json: args.Json = False,
) -> None:
    """Do what the policies of arrays ask for: update replicas, recode tails, join regions.

    Run it daily on an archive; in a repository it is safe alongside writers. It can be stopped at any moment
    and started again; if there is nothing to do, it does nothing. In a plain Zarr store it only updates
    replicas: use recode, optimize, consolidate and vacuum there.

    Example: intarsia maintain data/store
    """
    place, path = NamedStore.find(asked), array.strip("/")
    with waiting("looking" if dry_run else "copying") as progress:
        if place.repo is None:
            steps = _refreshed(place, path, dry_run, progress)
        else:
            steps = intarsia.maintain(
                place.repo, path, branch=place.branch, dry_run=dry_run, progress=progress
            )
    if as_json:
        print_json(store=asked.store, dry_run=dry_run, steps=[step.to_json() for step in steps])
        return
    if steps:
        rows = [
            (step.what, step.path, str(step.layer), bounds_text(step.bounds), step.snapshot_id or "")
            for step in steps
        ]
        show_table(("What", "Path", "Layer", "Region", "Snapshot"), rows)
    done = "to do" if dry_run else "done"
    if steps:
        say(f"{count_text(len(steps), 'step')} {done}")
    elif place.repo is not None:
        say("nothing to do: every array is as its policy asks, or has none")
    else:
        say(
            f"nothing to do: {asked.store} is a plain Zarr store, where maintain only updates replicas, and "
            "none needs it.",
            "To encode regions again or join them there: intarsia recode, optimize, consolidate.",
            "To remove what is left over: intarsia vacuum.",
        )
