"""Commands to and from other people's Zarr: `convert`, `adopt`, `export`, `fuse`, `split`."""

from typing import Annotated, Any

import typer
import zarr

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.stores import NamedStore, expect_place, expect_store
from intarsia.cli.verb import CommandError, print_json, say, verb, waiting
from intarsia.display import bounds_text, count_text, size_text
from intarsia.errors import NotLogicalArrayError
from intarsia.inspect.survey import survey
from intarsia.interop.convert import open_source, walk
from intarsia.logical.logical_array import LogicalArray

Source = Annotated[
    str,
    typer.Argument(metavar="SOURCE", help="Path or URL of Zarr (v3 or v2) or of an Icechunk repository."),
]
SourcePath = Annotated[
    str,
    typer.Option("--source-path", metavar="PATH", help="The array or group in SOURCE; its root if left out."),
]
Objective = Annotated[
    str,
    typer.Option("--objective", metavar="WHAT", help="What 'auto' optimises for: size, balanced or speed."),
]
NewPath = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="Where it goes in the store; its own name if left out.", show_default=False
    ),
]


@verb
def convert(
    source: Source,
    asked: args.Making,
    path: NewPath = "",
    source_path: SourcePath = "",
    codec: args.Codec = None,
    objective: Objective = "balanced",
    chunks: args.Chunks = None,
    shards: args.Shards = None,
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Copy a Zarr array, or a group of them, into logical arrays, in the encoding that suits the values.

    Without --codec, encodings are tried on samples, and the best for the objective is used. If there is no
    store yet, a new Icechunk repository is made. Memory does not grow with the array.

    Example: intarsia convert old.zarr data/store temperature --objective size
    """
    _expect_source(source)
    place = NamedStore.make(asked)
    codecs = args.parse_codec_list(codec)
    with waiting("converting", unit="bytes") as progress:
        made = intarsia.convert(
            source,
            place.writable if place.repo is None else place.repo,
            path,
            source_path=source_path,
            codecs="auto" if codecs is None else codecs,
            objective=objective,  # type: ignore[arg-type]  # checked there
            chunks=args.parse_sizes(chunks, "chunks"),
            shards=args.parse_sizes(shards, "shards"),
            branch=place.branch,
            message=message,
            progress=progress,
        )
    arrays = {made.path: made} if isinstance(made, LogicalArray) else made
    rows = [(name, array, survey(array)) for name, array in arrays.items()]
    if as_json:
        print_json(
            store=asked.store,
            source=source,
            arrays=[
                {
                    "path": name,
                    "shape": list(array.shape),
                    "dtype": str(array.dtype),
                    "nbytes": array.nbytes,
                    "nbytes_stored": seen.total_stored,
                    "codecs": [pipeline.label for pipeline in seen.pipelines()],
                }
                for name, array, seen in rows
            ],
            snapshot_id=_snapshot(*arrays.values()),
        )
        return
    for name, array, seen in rows:
        how = ", ".join(pipeline.label for pipeline in seen.pipelines()) or "no values"
        sizes = f"{size_text(array.nbytes)} stored in {size_text(seen.total_stored)}"
        say(f"converted {name or '/'}: {array.dtype} of shape {array.shape}, {sizes} ({how})")
    if commit := _snapshot(*arrays.values()):
        say(f"snapshot {commit}")


def _snapshot(*arrays: LogicalArray) -> str | None:
    """The version in which arrays were opened; None in a store without versions."""
    session = getattr(arrays[0].group.store, "session", None) if arrays else None
    return None if session is None else str(session.snapshot_id)


@verb
def adopt(
    asked: args.Changing,
    array: args.SingleArrayHandle,
    source: Source,
    source_path: SourcePath = "",
    bounds: Annotated[
        str | None,
        typer.Option(
            "--bounds",
            metavar="A:B,…",
            help="The box that it becomes; by default, it follows the end of the first axis.",
        ),
    ] = None,
    packing: args.Packing = None,
    how: Annotated[
        str,
        typer.Option(
            "--how", metavar="HOW", help="auto, reference (where it is), copy (as it is stored) or move."
        ),
    ] = "auto",
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            "--source-option", metavar="KEY=VALUE", help="For the source's storage, such as region."
        ),
    ] = None,
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Turn an existing Zarr array into a region of a logical array; its chunks stay as they are stored.

    In a repository, chunks in files are referred to where they are. A store without versions gets a copy of
    the stored bytes, or, with --how move, the directory itself.

    Example: intarsia adopt data/store temperature old.zarr --bounds '0:365, :, :'
    """
    _expect_source(source)
    place = NamedStore.find(asked)
    name = place.one_array(array)
    before = place.open(name)
    if how not in ("auto", "reference", "copy", "move"):
        raise CommandError(f"how {how!r}: choose auto, reference, copy or move")
    with waiting("adopting", counted=False):
        made = intarsia.adopt(
            place.writable if place.repo is None else place.repo,
            name,
            source,
            args.parse_bounds(bounds, before.shape),
            source_path=source_path,
            how=how,  # type: ignore[arg-type]  # checked above
            storage_options=args.parse_options(source_option or (), "source option") or None,
            branch=place.branch,
            message=message,
            **args.parse_packing(packing),
        )
    region = next(each for each in made.regions if each.name == made.manifest.members[-1])
    if as_json:
        print_json(
            store=asked.store,
            path=made.path,
            source=source,
            bounds=[list(pair) for pair in region.bounds],
            shape=list(made.shape),
            member=region.name,
            snapshot_id=_snapshot(made),
        )
        return
    say(f"adopted {source} as {bounds_text(region.bounds)} of {made.path or '/'}: now {made.shape}")
    if commit := _snapshot(made):
        say(f"snapshot {commit}")


@verb
def export(
    asked: args.Reading,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Directory or URL of the new Zarr store.")],
    array: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="Array or group to export; everything if left out.", show_default=False
        ),
    ] = "",
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="Where in TARGET it goes.")] = "",
    codec: args.Codec = None,
    chunks: Annotated[str | None, typer.Option("--chunks", metavar="N,N,…", help="Chunk shape.")] = None,
    shards: Annotated[str | None, typer.Option("--shards", metavar="N,N,…", help="Shard shape.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: args.Json = False,
) -> None:
    """Write arrays as plain Zarr v3, for programs that know nothing else: values, names, attributes.

    Memory does not grow with the arrays. If anything fails, nothing is left behind.

    Example: intarsia export data/store plain.zarr temperature -c zstd:level=9
    """
    expect_place(target)
    codecs: Any = args.parse_codec_list(codec)
    if codecs == "auto":
        raise CommandError("codec 'auto' is for logical arrays; name the codecs, or leave them to zarr")
    place, inside = NamedStore.find(asked), array.strip("/")
    place.node(inside)  # raises an error that says what there is
    with waiting("exporting", unit="bytes") as progress:
        made = intarsia.export(
            place.store(),
            target,
            to,
            source_path=inside,
            codecs=codecs,
            chunks=args.parse_sizes(chunks, "chunks"),
            shards=args.parse_sizes(shards, "shards"),
            overwrite=overwrite,
            progress=progress,
        )
    arrays = [each for each in walk(open_source(made)) if not isinstance(each.node, zarr.Group)]
    nbytes = sum(each.node.nbytes for each in arrays if not isinstance(each.node, zarr.Group))
    if as_json:
        paths = ["/".join(filter(None, (to.strip("/"), each.path))) for each in arrays]
        print_json(store=asked.store, path=inside, target=target, arrays=paths, nbytes=nbytes)
        return
    say(f"exported {count_text(len(arrays), 'array')}, {size_text(nbytes)}, to {target}")


@verb
def fuse(
    asked: args.Changing,
    array: args.Array = "",
    to: Annotated[
        str, typer.Option("--to", metavar="PATH", help="Path of the new array.", show_default="PATH-fused")
    ] = "",
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Turn a logical array into one Zarr array with a `conditional` codec; stored chunks are copied.

    Example: intarsia fuse data/store temperature
    """
    place = NamedStore.find(asked)
    name = place.one_array(array)
    place.open(name)

    def work(store: Any) -> Any:
        return intarsia.fuse(intarsia.open(store, name, mode="r+"), store, to or f"{name}-fused")

    made, commit = _changed(place, message or f"fuse {name}", work)
    if as_json:
        print_json(store=asked.store, path=name, fused=made.path, snapshot_id=commit)
        return
    say(f"{name or '/'} is one Zarr array at {made.path}")
    if commit:
        say(f"snapshot {commit}")


@verb
def split(
    asked: args.Changing,
    array: args.SingleArrayHandle,
    to: Annotated[
        str, typer.Option("--to", metavar="PATH", help="Path of the new array.", show_default="PATH-split")
    ] = "",
    message: args.Message = None,
    as_json: args.Json = False,
) -> None:
    """Turn a Zarr array with a `conditional` codec into a logical array; stored chunks are copied.

    Example: intarsia split data/store temperature-fused
    """
    place, name = NamedStore.find(asked), array.strip("/")

    def work(store: Any) -> Any:
        try:
            z = zarr.open_array(store, path=name, mode="r+")
        except (FileNotFoundError, ValueError) as error:
            if any(each.path == name for each in place.found()):
                raise CommandError(
                    f"{name!r} is already a logical array: there is nothing to split"
                ) from error
            raise NotLogicalArrayError(f"there is no Zarr array at {name!r} in {asked.store}") from error
        return intarsia.split(z, store, to or f"{name}-split")

    made, commit = _changed(place, message or f"split {name}", work)
    if as_json:
        print_json(
            store=asked.store,
            path=name,
            split=made.path,
            regions=len(made.manifest.regions),
            snapshot_id=commit,
        )
        return
    say(f"{name} is a logical array of {count_text(len(made.manifest.regions), 'region')} at {made.path}")
    if commit:
        say(f"snapshot {commit}")


def _changed(place: NamedStore, message: str, work: Any) -> tuple[Any, str | None]:
    """What `work` makes in a store, and its commit if the store has versions."""
    if place.repo is None:
        place.store()  # refuses what such a store does not have
        return work(zarr.open_group(place.writable, mode="r+").store), None
    with intarsia.transaction(place.repo, branch=place.branch, message=message) as tx:
        made = work(tx.store)
    return made, tx.snapshot_id


def _expect_source(source: str) -> None:
    if "://" not in source:
        expect_store(source)
