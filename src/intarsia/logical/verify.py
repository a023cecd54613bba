"""Finding everything that is wrong with a logical array: its manifest, its members, every stored chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any, Literal

import numpy as np
import zarr
from zarr.errors import ContainsArrayError

from intarsia._compat import is_regular
from intarsia.codecs.stored_chunks import stored_indices
from intarsia.display import one_line
from intarsia.engine.prepared_member import AnyArray, member_problem, object_shape
from intarsia.errors import (
    IntarsiaError,
    ManifestError,
    NotAuthorizedError,
    NotLogicalArrayError,
    advice,
)
from intarsia.logical.hierarchy import not_logical, open_group, why_missing
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.logical.recode import first_difference, read_box
from intarsia.logical.region import Region
from intarsia.manifest.box import Box, tile_in_blocks
from intarsia.manifest.data_types import Values
from intarsia.manifest.document import MANIFEST_KEY
from intarsia.progress import Progress, part_of, silent
from intarsia.shards.inspection import check_shards

type ProblemKind = Literal["manifest", "member", "data", "layer", "access"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a logical array.

    >>> print(Problem("member", "a/m-1", "it does not exist", "restore it from a copy"))
    member    a/m-1: it does not exist (restore it from a copy)
    """

    kind: ProblemKind
    """What it concerns: the manifest, a member, stored data, a layer that differs from layer 0, or files
    that the repository may not read."""

    where: str
    """The path in the store, with bounds if that helps."""

    what: str
    """What is wrong."""

    advice: str = ""
    """What to do."""

    def __str__(self) -> str:
        advice = f" ({self.advice})" if self.advice else ""
        return f"{self.kind:<8}  {self.where}: {self.what}{advice}"


def verify(
    target: Any, path: str = "", *, data: bool = True, deep: bool = False, progress: Progress = silent
) -> tuple[Problem, ...]:
    """Everything that is wrong with a logical array: its manifest, its members, every stored chunk.

    Takes an array, or a store and a path, so that an array that does not open can be checked too.
    `data=False` does not read the chunks; `deep=True` also compares the values of replicas with those of
    layer 0, chunk by chunk. An empty result means that all is well; leftovers are no problem, and
    `vacuum(…, dry_run=True)` lists them. Steps of the progress are bytes of values.

    A sharded `zarr.Array` in a local directory is checked shard by shard, slotted or not.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> intarsia.verify(array)
    ()
    """
    if isinstance(target, zarr.Array):
        return tuple(
            Problem("data", problem.where, problem.what, problem.advice)
            for problem in check_shards(target, data=data)
        )
    where = path or "/"
    try:
        group = open_group(target.group if isinstance(target, LogicalArray) else target, path, "r")
        where = f"{group.path or '/'} attribute {MANIFEST_KEY!r}"
        logical = LogicalArrayHandle.load(group)
        len(logical.manifest.regions)  # a table in a snapshot is read when it is first used
    except FileNotFoundError as error:
        why = why_missing(target, error)
        raise NotLogicalArrayError(f"there is no Zarr group at {path or '/'!r}{why}") from error
    except ManifestError as error:
        problems = error.problems or [str(error)]
        return tuple(Problem("manifest", where, problem) for problem in problems)
    except ContainsArrayError as error:
        raise not_logical(target, path, one_line(error)) from error
    except ValueError as error:  # raised by zarr for a document that is not JSON, or not of this format
        if isinstance(error, IntarsiaError):
            raise
        return (Problem("manifest", where, f"the metadata cannot be understood: {one_line(error)}"),)
    members = tuple(member_problems(logical))
    reported = {problem.where for problem in members}
    found = _data_problems(logical, reported, progress, deep=deep) if data or deep else ()
    return (*members, *found)


def member_problems(logical: LogicalArrayHandle) -> Iterator[Problem]:
    """What is wrong with the members of an array: they do not open, or do not hold what regions need."""
    manifest, table = logical.manifest, logical.manifest.regions_and_replicas
    for position, name in enumerate(manifest.members):
        where = f"{logical.group.path}/{name}".lstrip("/")
        try:
            member = logical.members[name]
        except IntarsiaError as error:
            yield Problem("member", where, str(error).split("\n")[0])
            continue
        for i in np.flatnonzero(table.member == position).tolist():
            problem = member_problem(member, manifest, table.row(i))
            if problem:
                yield Problem("member", where, problem)
                break


def _data_problems(
    logical: LogicalArrayHandle, reported: set[str], progress: Progress, *, deep: bool
) -> Iterator[Problem]:
    """Read every stored chunk of every region; a failure does not end it, so that all damage is listed.

    If `deep`, all of the replicas is read and compared with layer 0, up to the first difference in each.
    """
    stored: dict[str, Sequence[tuple[int, ...]]] = {}
    refused: set[str] = set()
    regions = [Region.of(logical, i) for i in range(len(logical.manifest.regions_and_replicas))]
    whole, done = sum(region.nbytes for region in regions), 0
    progress(0, whole)
    for region in regions:
        part, done = part_of(progress, done, region.nbytes, whole), done + region.nbytes
        where, compares = f"{logical.group.path}/{region.name}".lstrip("/"), False
        try:
            member, boxes = region.member, [Box.of(region.bounds)]
            if is_regular(member.metadata.chunk_grid):
                compares = deep and region.layer > 0
                if region.name not in stored:
                    stored[region.name] = stored_indices(member)
                boxes = list(_boxes_by_chunk(region, member, None if compares else stored[region.name]))
        except Exception as error:
            if where not in reported:
                reported.add(where)
                yield Problem("member", where, str(error).split("\n")[0])
            continue
        for i, box in enumerate(boxes if region.name not in refused else ()):
            part(i, len(boxes))
            try:
                values = read_box(logical, box, region.layer)
            except NotAuthorizedError as error:  # nor can this member's other files be read
                if not refused:
                    yield access_problem(error.prefix)
                refused.add(region.name)
                break
            except Exception as error:
                yield Problem("data", where, str(error) or repr(error))
                continue
            if compares and (different := _difference(logical, region, box, values)) is not None:
                in_python = "arr.drop_replica(bounds), arr.add_replica(…)"
                how = advice(in_python, "intarsia replicate --drop LAYER, intarsia replicate")
                yield Problem("layer", where, different, f"drop it and make it again: {how}")
                compares = False
        part(1, 1)


def _difference(logical: LogicalArrayHandle, region: Region, box: Box, values: Values) -> str | None:
    """What is wrong with values of a replica that are not those of layer 0."""
    try:
        expected = read_box(logical, box)
    except Exception:
        return None  # that is reported with the data of layer 0
    at = first_difference(expected, values)
    if at is None:
        return None
    element = tuple(a + k for a, k in zip(box.start, at, strict=True))
    index = logical.manifest.to_member(region.row, box).in_units(region.chunks).start
    return (
        f"chunk {index}, {box.text()} in layer {region.layer}, does not hold the values of layer "
        f"0: at {element} it is {values[at]!r} instead of {expected[at]!r}"
    )


def _boxes_by_chunk(
    region: Region, member: AnyArray, stored: Sequence[tuple[int, ...]] | None
) -> Iterator[Box]:
    """The region chunk by chunk, in elements of the logical array; only those of stored objects, if given."""
    inside, unit = Box.of(region.member_bounds), object_shape(member)
    for index in inside.in_units(unit).indices() if stored is None else stored:
        shared = Box.sized(unit, tuple(map(mul, index, unit))).intersect(inside)
        if shared is not None:
            for block in tile_in_blocks(shared, member.chunks, member.dtype.itemsize, most_bytes=1):
                yield region.shown_from(block)


def access_problem(prefix: str) -> Problem:
    """The problem that a repository may not read its sources: reported once for all chunks."""
    how = advice(f"open it with authorize=[{prefix!r}]", f"say --allow {prefix}")
    what = f"the repository is not authorised to read below {prefix}"
    return Problem("access", "/", what, f"if you trust it, {how}")
