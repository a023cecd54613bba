"""Checking a logical array from end to end, and listing all that is wrong at once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import zarr
from zarr.errors import ZarrUserWarning

from intarsia.array.blocks import blocks
from intarsia.array.frame import Frame, open_group
from intarsia.array.logical import LogicalArray
from intarsia.array.manifest import MANIFEST_KEY
from intarsia.array.member import member_problem
from intarsia.array.plan import request
from intarsia.array.read import read_request
from intarsia.array.region import Region
from intarsia.array.table import Box
from intarsia.errors import IntarsiaError, ManifestError, NotLogicalArrayError
from intarsia.shards.check import check_shards

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Problem", "children", "referenced", "verify"]

type ProblemKind = Literal["manifest", "member", "data", "leftover"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a logical array.

    >>> print(Problem("leftover", "a/m-1", "no region refers to it", "intarsia.vacuum removes it"))
    leftover  a/m-1: no region refers to it (intarsia.vacuum removes it)
    """

    kind: ProblemKind
    """What it concerns: the manifest, a member, stored data, or something left over that does no harm."""

    where: str
    """Path in the store, with bounds where that helps."""

    what: str
    """What is true."""

    advice: str = ""
    """What to do."""

    def __str__(self) -> str:
        advice = f" ({self.advice})" if self.advice else ""
        return f"{self.kind:<8}  {self.where}: {self.what}{advice}"


def verify(target: Any, path: str = "", *, data: bool = True) -> tuple[Problem, ...]:
    """Everything that is wrong with a logical array: its manifest, its members, every stored chunk.

    Takes an array, or a store and a path, so that an array that does not open can be looked at too.
    `data=False` leaves out reading the chunks. An empty result means that all is well.

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
    if isinstance(target, LogicalArray):
        group = open_group(target.group, "", "r")
    else:
        try:
            group = open_group(target, path, "r")
        except FileNotFoundError as error:
            raise NotLogicalArrayError(f"there is no Zarr group at {path!r}: {error}") from error
    try:
        frame = Frame.load(group)
    except ManifestError as error:
        where = f"{group.path or '/'} attribute {MANIFEST_KEY!r}"
        found = error.problems or [str(error)]
        return tuple(Problem("manifest", where, problem) for problem in found)
    return (*_member_problems(frame), *(_data_problems(frame) if data else ()), *_leftovers(frame))


def _member_problems(frame: Frame) -> Iterator[Problem]:
    manifest = frame.manifest
    start, stop = manifest.region_bounds()
    chunk = np.array(manifest.chunk_shape, dtype=np.int64)
    needed = manifest.regions.member_start * chunk + (stop - start)
    for position, name in enumerate(manifest.members):
        where = f"{frame.group.path}/{name}".lstrip("/")
        try:
            member = frame.members[name]
        except IntarsiaError as error:
            yield Problem("member", where, str(error).split("\n")[0])
            continue
        rows = np.flatnonzero(manifest.regions.member == position)
        problem = member_problem(member, manifest, tuple(needed[rows].max(axis=0).tolist()))
        if problem:
            yield Problem("member", where, problem)


def _data_problems(frame: Frame) -> Iterator[Problem]:
    """Reads every region block by block; goes on after a failure, so that all damage is listed."""
    manifest = frame.manifest
    for i in range(len(manifest.regions)):
        region = Region.of(frame, i)
        try:
            member = region.member
        except IntarsiaError:
            continue  # listed as a problem of the member
        inside = (
            Box(*(tuple(edge) for edge in zip(*region.member_bounds, strict=True)))
            if manifest.ndim
            else Box((), ())
        )
        shift = [a - m for (a, _), m in zip(region.bounds, inside.start, strict=True)]
        for block in blocks(inside, member.chunks, member.dtype.itemsize, most_bytes=1):
            selection = tuple(slice(a + s, b + s) for a, b, s in zip(*block, shift, strict=True))
            try:
                read_request(frame, request(manifest.shape, selection, "basic"))
            except IntarsiaError as error:
                yield Problem("data", f"{frame.group.path}/{region.name}".lstrip("/"), str(error))


def children(group: zarr.Group) -> list[str]:
    """Names of the arrays and groups right below a group."""
    with warnings.catch_warnings():
        # Of a directory without metadata zarr only warns; if the manifest names it, the member is missing.
        warnings.simplefilter("ignore", ZarrUserWarning)
        return sorted(name for name, _ in group.members(max_depth=0))


def referenced(frame: Frame) -> set[str]:
    """Names of the children that the manifest needs: its members, and its table if it has one."""
    document: Any = frame.group.metadata.attributes[MANIFEST_KEY]
    table = document["regions"]
    return {*frame.manifest.members, *([table] if isinstance(table, str) else [])}


def _leftovers(frame: Frame) -> Iterator[Problem]:
    for name in sorted(set(children(frame.group)) - referenced(frame)):
        where = f"{frame.group.path}/{name}".lstrip("/")
        yield Problem("leftover", where, "no region refers to it", "intarsia.vacuum removes it")
