"""Commands to and from other people's Zarr: `convert`, `adopt`, `export`, `fuse`, `split`."""

from typing import Any

import zarr

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.output import CommandError, Output
from intarsia.cli.stores import BranchToCommit, NewStore, VersionToRead, expect_place
from intarsia.cli.verb import verb
from intarsia.display import bounds_text, count_text, size_text
from intarsia.inspect.survey import survey
from intarsia.interop.node_copies import open_source, walk
from intarsia.logical.logical_array import LogicalArray
from intarsia.versions.repository import remove_new_store_on_failure


@verb(intarsia.convert, unit="bytes")
def convert(source: str, place: NewStore, path: args.NewPath = "", **options: Any) -> Output:
    """Copy a Zarr array, or a group of them, into logical arrays, in the encoding that suits the values.

    Without --codec, encodings are tried on samples, and the best for the objective is used. If there is no
    store yet, a new Icechunk repository is made. Memory does not grow with the array.

    Example: intarsia convert old.zarr data/store temperature --objective size

    Args:
        source (SOURCE): Path or URL of Zarr (v3 or v2) or of an Icechunk repository.
        path (PATH): Where it goes in the store; its own name if left out.
        source_path (PATH): The array or group in SOURCE; its root if left out.
        objective (WHAT): What 'auto' optimises for: size, balanced or speed.
    """
    with remove_new_store_on_failure(place.store):
        made = intarsia.convert(source, place.target, path, **place.commit, **options)
    arrays = {made.path: made} if isinstance(made, LogicalArray) else made
    lines, listed = [], []
    for name, array in arrays.items():
        seen = survey(array)
        labels = [pipeline.codecs for pipeline in seen.pipelines()]
        sizes = f"{size_text(array.nbytes)} stored in {size_text(seen.total_stored)}"
        how = ", ".join(labels) or "no values"
        lines.append(f"converted {name or '/'}: {array.dtype} of shape {array.shape}, {sizes} ({how})")
        facts = {"path": name, "nbytes_stored": seen.total_stored, "codecs": labels}
        listed.append(facts | {"shape": array.shape, "dtype": array.dtype, "nbytes": array.nbytes})
    return Output(*lines, source=source, arrays=listed, snapshot_id=_snapshot(*arrays.values()))


def _snapshot(*arrays: LogicalArray) -> str | None:
    """The version in which arrays were opened; None in a store without versions."""
    session = getattr(arrays[0].group.store, "session", None) if arrays else None
    return None if session is None else str(session.snapshot_id)


@verb(intarsia.adopt)
def adopt(
    place: BranchToCommit, array: args.OneArray, source: str, *, bounds: args.Bounds = None, **options: Any
) -> Output:
    """Turn an existing Zarr array into a region of a logical array; its chunks stay as they are stored.

    In a repository, chunks in files are referred to where they are. A store without versions gets a copy of
    the stored bytes. If there is nothing at PATH, the array is created, with the shape, data type, chunks,
    names and attributes of the source.

    Example: intarsia adopt data/store temperature old.zarr --bounds '0:365, :, :'

    Args:
        source (SOURCE): Path or URL of Zarr (v3 or v2) or of an Icechunk repository.
        source_path (PATH): The array or group in SOURCE; its root if left out.
        bounds (A:B,…): The box that it becomes; by default, it follows the end of the first axis.
        how (HOW): auto, or copy (as it is stored, also in a repository).
        source_option (KEY=VALUE): For the source's storage, such as region.
    """
    name = array.strip("/")
    made = intarsia.adopt(place.target, name, source, bounds, **place.commit, **options)
    region = next(each for each in made.regions if each.name == made.manifest.members[-1])
    return Output(
        f"adopted {source} as {bounds_text(region.bounds)} of {made.path or '/'}: now {made.shape}",
        path=made.path,
        shape=made.shape,
        source=source,
        bounds=region.bounds,
        member=region.name,
        snapshot_id=_snapshot(made),
    )


@verb(intarsia.export, without=["source_path"], unit="bytes")
def export(
    place: VersionToRead,
    target: str,
    array: args.AnyNode = "",
    *,
    target_path: args.NewPath = "",
    **options: Any,
) -> Output:
    """Write arrays as plain Zarr v3, for programs that know nothing else: values, names, attributes.

    Memory does not grow with the arrays. If anything fails, nothing is left behind. With --to virtual, an
    ingested dataset becomes ordinary arrays in an Icechunk repository, which refer to the source files.

    Example: intarsia export data/store plain.zarr temperature -c zstd:level=9

    Args:
        target (TARGET): Directory or URL of the new Zarr store, or of the repository of virtual arrays.
        target_path (PATH): Where in TARGET it goes.
        to (FORM): zarr (values are copied) or virtual (source files are referred to).
        overwrite: Replace what is there.
    """
    expect_place(target)
    path = array.strip("/")
    place.node(path)  # raises an error that says what there is
    source, version = place.at_version()
    options |= version
    if options.get("to") == "virtual":
        place.repository("refers to no source files")
    made = intarsia.export(source, target, target_path, source_path=path, **options)
    arrays = [each for each in walk(open_source(made)) if not isinstance(each.node, zarr.Group)]
    nbytes = sum(each.node.nbytes for each in arrays if not isinstance(each.node, zarr.Group))
    return Output(
        f"exported {count_text(len(arrays), 'array')}, {size_text(nbytes)}, to {target}",
        path=path,
        target=target,
        arrays=["/".join(filter(None, (target_path.strip("/"), each.path))) for each in arrays],
        nbytes=nbytes,
    )


@verb()
def fuse(place: BranchToCommit, array: args.Array = "", *, to: args.NewPath = "") -> Output:
    """Turn a logical array into one Zarr array with a `conditional` codec; stored chunks are copied.

    Example: intarsia fuse data/store temperature

    Args:
        to (PATH): Path of the new array; PATH-fused if left out.
    """
    name = place.open(array).path
    with place.change_array(name, f"fuse {name}") as (opened, change):
        made = intarsia.fuse(opened, opened.group.store, to or f"{name}-fused")
    said = f"{name or '/'} is one Zarr array at {made.path}"
    return Output(said, path=name, fused=made.path, snapshot_id=change.snapshot_id)


@verb()
def split(place: BranchToCommit, array: args.OneArray, *, to: args.NewPath = "") -> Output:
    """Turn a Zarr array with a `conditional` codec into a logical array; stored chunks are copied.

    Example: intarsia split data/store temperature-fused

    Args:
        to (PATH): Path of the new array; PATH-split if left out.
    """
    name = array.strip("/")
    with place.change(f"split {name}") as change:
        fused = place.array_to_change(change.store, name)
        if isinstance(fused, LogicalArray):
            raise CommandError(f"{name!r} is already a logical array: there is nothing to split")
        made = intarsia.split(fused, fused.store, to or f"{name}-split")
    regions = len(made.manifest.regions)
    return Output(
        f"{name} is a logical array of {count_text(regions, 'region')} at {made.path}",
        path=name,
        split=made.path,
        regions=regions,
        snapshot_id=change.snapshot_id,
    )
