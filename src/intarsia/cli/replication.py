"""Commands for arrays that are stored in several layouts: `replicate`, `maintain`."""

from typing import Annotated, Any

import typer

import intarsia
from intarsia.array.hierarchy import logical_arrays
from intarsia.array.policy import Policy
from intarsia.array.replicas import gaps
from intarsia.cli import arguments as args
from intarsia.cli import spelling
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, print_json, say, show_table, verb, waiting
from intarsia.progress import Progress
from intarsia.report.survey import survey
from intarsia.versions.maintenance import Upkeep
from intarsia.words import bounds_text, count_text, size_text


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
    """Store a box of an array once more, in another layout: reads take the one that costs less.

    Layer 0 stays as it is; files that were ingested are not touched. A replica of everything is kept up to
    date by `intarsia maintain`.

    Example: intarsia replicate data/store temperature --chunks 1461,10,10 -c zstd
    """
    place = NamedStore.find(asked)
    options: dict[str, Any] = {
        "codecs": spelling.parse_codec_list(codec),
        "chunks": spelling.parse_sizes(chunks, "chunks"),
        "shards": spelling.parse_sizes(shards, "shards"),
    }
    if drop is not None and any(value is not None for value in options.values()):
        raise CommandError("--drop takes a replica away: give no --codec, --chunks or --shards with it")
    old = place.open(array)
    box = None if bounds is None else spelling.parse_bounds(bounds, old.shape)
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
    """The layer that a replica went to: a new one, or one of the same encoding."""
    new = [layer for layer in made.manifest.layers if layer not in before]
    if new:
        return int(new[0])
    chunks = options["chunks"] or made.chunks
    alike = [replica.layer for replica in made.replicas if replica.chunks == tuple(chunks)]
    return int(alike[0]) if alike else int(made.manifest.layers[-1])


def _refreshed(place: NamedStore, path: str, dry_run: bool, progress: Progress) -> tuple[Upkeep, ...]:
    """The same in a plain store, where nobody else may write meanwhile: replicas are brought up to date."""
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

    The daily job of an archive; in a repository it is safe beside writers. It can be stopped at any moment
    and started again; where there is nothing to do, it does nothing. In a plain store it brings replicas up
    to date.

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
    say(f"{count_text(len(steps), 'step')} {done}" if steps else "nothing to do")
