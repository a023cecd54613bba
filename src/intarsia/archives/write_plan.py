"""Writing a plan into a session: members, references, manifests, coordinates, the ledger.

Icechunk's manifests of references are split along the dimension that grows, so that a new file rewrites only
one. A commit writes the manifest that it adds to, and the list of all manifests: with parts of `n` references
and `N` references in all, about `11 n / 2 + 36 N / n` bytes, as measured. All parts of an array have one
length in Icechunk, and if that changes, the next write to the array splits larger parts again. So members
have a maximum size, and their parts are small. The commit that fills a member uses a rule of its own, which
is not saved: it names that member, and puts all its references into one part. They stay that way, since
nothing more is written to the member.

Icechunk compiles every rule again for every array, so there are few rules, whatever the number of arrays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import icechunk
import numpy as np
import zarr
from icechunk import (
    ManifestConfig,
    ManifestPreloadCondition,
    ManifestPreloadConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
)
from zarr.codecs import ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.group import GroupMetadata

from intarsia._compat import concurrent_map, sync
from intarsia.archives.cf import encoded_fill_attribute, json_attributes
from intarsia.archives.ledger import write_ledger
from intarsia.archives.parse import format_of
from intarsia.archives.parsed_file import ChunkRanges, ParseRequest, read_stored
from intarsia.archives.plan.coordinates import PlainArray
from intarsia.archives.plan.ingest_plan import ArrayPlan, Contribution, GrowingMember, IngestPlan
from intarsia.archives.source_files import Sources
from intarsia.display import one_line
from intarsia.errors import IngestError, IntarsiaError, argument
from intarsia.logical.attributes import RESERVED, UNLIMITED_KEY, with_floats
from intarsia.logical.hierarchy import LEDGER, open_group
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.box import Box, chunk_grid, tile_in_blocks
from intarsia.manifest.data_types import values_dtype, zarr_type
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.packing import Packing
from intarsia.manifest.region_table import NONE
from intarsia.nullable import optional_dtype

COORDINATE_CHUNK = 1 << 12
"""The most elements in a chunk of a coordinate array: quick to append to, and few chunks to open."""

AT_ONCE = 256
"""How many documents or chunks are written at once."""


@dataclass(frozen=True)
class UncommittedChange:
    """A change to a dataset that is written, but not committed."""

    session: icechunk.Session

    def rebase(self) -> list[str]:
        """Where files go depends on everything there: after any other commit, a new plan is needed."""
        return ["the dataset may have changed"]


@dataclass(frozen=True)
class PlanWriter:
    """Puts everything in a plan into one session; the caller commits it."""

    store: Any
    path: str
    """The group that holds the dataset."""

    plan: IngestPlan
    sources: Sources
    """Where copies are read from."""

    request: ParseRequest
    """How they are parsed."""

    def write(self) -> dict[str, str]:
        """Write arrays first, then coordinates, then the ledger: a session commits them as one.

        Returns what cannot be written or would not be readable, and why: it must not be committed.
        """
        plan, group = self.plan, open_group(self.store, self.path, "a")
        for name in (*plan.arrays, *plan.plain):
            if name == LEDGER or "/" in name:
                raise IngestError(f"a variable named {name!r} cannot be part of a dataset")
        if plan.dataset.is_new:
            group.update_attributes({UNLIMITED_KEY: list(plan.cube.dims)})
        problems: dict[str, str] = {}
        arrays: dict[str, LogicalArrayHandle] = {}
        documents: list[tuple[str, Any]] = []
        for name, array in plan.arrays.items():
            with _noted(problems, name):
                arrays[name] = self._grow_members(group, array, documents)
        sync(concurrent_map(documents, self.store.set, AT_ONCE))
        for name, logical in arrays.items():
            with _noted(problems, name):
                self._write_array(plan.arrays[name], logical)
        for name, plain in plan.plain.items():
            with _noted(problems, name):
                write_plain(group, name, plain, plan.cube.axes[0].origin)
        for name, attrs in plan.attrs.items():
            if plan.dataset.is_new:  # the group may have attributes of its own
                attrs = with_floats(dict(group.attrs)) | attrs
            if name not in problems:
                _put_attributes(group[name] if name else group, attrs)
        write_ledger(plan.ledger, group)
        return problems

    def _grow_members(
        self, group: zarr.Group, array: ArrayPlan, documents: list[tuple[str, Any]]
    ) -> LogicalArrayHandle:
        """Make the members of an array large enough; documents of new ones are added to those to write."""
        logical = self._open(group, array)
        for member in array.members.values():
            if member.is_new:
                described = json.loads(json.dumps(member.encoding.document(tuple(member.shape), member.dims)))
                # made with zarr, so that it is valid
                created = zarr.Array.from_dict(logical.store_path / member.name, described)
                logical.members.adopt(member.name, created)
                document = created.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"]
                documents.append((f"{created.path}/zarr.json", document))
            else:
                logical.members[member.name].resize(tuple(member.shape))
        return logical

    def _write_array(self, array: ArrayPlan, logical: LogicalArrayHandle) -> None:
        """Fill the members of an array, and show them."""
        for member in array.members.values():
            for contribution in member.contributions:
                self._fill(f"{logical.group.path}/{member.name}", member, contribution)
        self._show(array, logical)
        names = set(logical.manifest.members)
        members = {digest: name for digest, name in array.encodings.items() if name in names}
        self.plan.ledger.members[array.name] = members

    def _show(self, array: ArrayPlan, logical: LogicalArrayHandle) -> None:
        """Give an array the regions that show its members, in its new shape."""
        manifest, axis, cube = logical.manifest, array.growing[0], self.plan.cube
        new = [region for member in array.members.values() for region in member.regions(array)]
        is_wider = values_dtype(manifest.data_type) != array.dtype
        may_extend = cube.axes[0].origin and not is_wider and manifest.chunk_shape == array.lattice
        if may_extend and logical.extend(axis, array.shape, new):
            return
        manifest = _with_wider_type(manifest, array) if is_wider else manifest
        manifest = manifest.refine(array.lattice)
        table = manifest.regions
        if not cube.axes[0].origin:
            for grown, place in zip(cube.axes, array.growing, strict=True):
                table = table.move(place, grown.existing_positions)
            holes = ((part, cell) for part in array.parts for cell in cube.holes(part))
            table = table.subtract(*(array.box(cell, part).in_units(array.lattice) for part, cell in holes))
        manifest, fresh = manifest.including(new)
        table = table.concat(fresh).merge_neighbours(axis)
        logical.commit(manifest.changed(table, shape=array.shape))

    def _open(self, group: zarr.Group, array: ArrayPlan) -> LogicalArrayHandle:
        """A logical array to write to; without regions if it is new, and then nothing of it is stored yet."""
        dataset = self.plan.dataset
        known = dataset.logical_groups.get(array.name)
        if known is not None:
            metadata, manifest = known.group.metadata, known.manifest
        elif array.name in dataset.plain or array.name in dataset.groups:
            kind = "plain array" if array.name in dataset.plain else "group"
            raise IngestError(f"{array.name!r} is a {kind} of the dataset: it cannot become a logical array")
        else:
            data_type = optional_dtype(array.dtype) if array.nulls else zarr_type(array.dtype)
            manifest = Manifest.empty(array.shape, array.lattice, data_type, array.fill_value, array.dims)
            metadata = GroupMetadata(attributes=json_attributes(array.attrs))
        return LogicalArrayHandle(
            zarr.Group(zarr.AsyncGroup(metadata, group.store_path / array.name)), manifest
        )

    def _fill(self, path: str, member: GrowingMember, contribution: Contribution) -> None:
        """Fill part of a member: with references, with chunks that the parser made, or with a copy."""
        ranges = contribution.variable.ranges
        if ranges is None:
            self._copy(path, member, contribution)
            return
        offset = chunk_grid(contribution.start, member.encoding.chunks)
        referred = ranges
        if ranges.masks is not None:
            applies = ranges.masks == contribution.chunks.skipped
            referred = replace(ranges, lengths=np.where(applies, ranges.lengths, np.uint64(0)))
        if ranges.identity is None:
            referred = replace(referred, identity=contribution.file.identity)
        if refused := write_references(self.store, path, referred, offset):
            raise IngestError(
                f"{len(refused)} references of {path} were refused: no container covers them.\n"
                f"  The parser named chunks outside the directories of the sources; "
                f"{argument('copy', 'all')} copies them"
            )
        if ranges.inlined:
            chunks = []
            for index, data in ranges.inlined.items():
                key = "/".join(str(a + b) for a, b in zip(index, offset, strict=True))
                chunks.append((f"{path}/c/{key}", default_buffer_prototype().buffer.from_bytes(data)))
            sync(concurrent_map(chunks, self.store.set, AT_ONCE))

    def _copy(self, path: str, member: GrowingMember, contribution: Contribution) -> None:
        """Copy the stored numbers of a contribution, block by block, past any filters that unpack them."""
        file, variable = contribution.file, contribution.variable
        new = len(file.new_dims)  # axes that the file lacks, before its own
        plain = member.encoding.bare
        document = plain.document(tuple(member.shape), member.dims)
        target: zarr.Array[Any] = zarr.Array.from_dict(zarr.storage.StorePath(self.store, path), document)
        target = target.with_config({"write_empty_chunks": True})
        whole = Box.sized(variable.shape)
        format = format_of(file.url, self.sources, self.request)
        try:
            with format.opened(file.url, self.sources, variable.name) as source:
                for block in tile_in_blocks(whole, plain.chunks, max(plain.stored.itemsize, 1)):
                    values = read_stored(source, block.slices[new:], plain.stored)
                    values = (
                        values if values.dtype == plain.stored else values.view(plain.stored)
                    )  # _Unsigned
                    target[block.shifted(contribution.start).slices] = values[(None,) * new]
        except (OSError, RuntimeError) as error:
            text = f"{file.url}: {variable.name!r} cannot be copied, so nothing was committed: {error}"
            raise IngestError(text) from error
        if self.sources.identity(file.url) != file.identity:
            raise IngestError(f"{file.url} changed while it was copied; nothing was committed: ingest again")


def write_references(
    store: icechunk.IcechunkStore, path: str, ranges: ChunkRanges, offset: tuple[int, ...] | None = None
) -> Sequence[Any]:
    """Let chunks of an array be ranges of files, from `offset` on in its grid.

    Returns the chunks that are in places which the repository may not refer to.
    """
    stored = (ranges.lengths > 0).ravel()
    if not stored.any():
        return ()
    urls = ranges.locations
    listed = [urls] * stored.size if isinstance(urls, str) else urls.ravel().tolist()
    locations = [url if each else "" for url, each in zip(listed, stored.tolist(), strict=True)]
    offsets, lengths = (np.ascontiguousarray(each.ravel()) for each in (ranges.offsets, ranges.lengths))
    checksum = None if ranges.identity is None else ranges.identity.checksum
    failed = store.set_virtual_refs_arr(
        path, ranges.grid, locations, offsets, lengths, arr_offset=offset, checksum=checksum
    )
    return failed or ()


def _with_wider_type(manifest: Manifest, array: ArrayPlan) -> Manifest:
    """The same array with a wider data type: members stay, and a packing widens what they hold, exactly."""
    regions = manifest.regions
    plain = Packing(values_dtype(manifest.data_type), values=array.dtype)
    packings, (number,) = manifest.packings.with_([plain])
    numbers = np.where(regions.packing == NONE, number, regions.packing)
    data_type = zarr_type(array.dtype)
    return replace(
        manifest, data_type=data_type, fill_value=data_type.cast_scalar(array.fill_value), packings=packings,
        regions_and_replicas=replace(regions, packing=numbers),
    )  # fmt: skip


def _put_attributes(node: Any, attrs: dict[str, Any]) -> None:
    """Replace the attributes of a node; those of manifests stay."""
    before = dict(node.attrs)
    new = dict(attrs)
    if "_FillValue" in new:  # plain arrays have it in xarray's form
        new["_FillValue"] = before.get("_FillValue", new["_FillValue"])
    ours = RESERVED | {UNLIMITED_KEY}
    attributes = {key: value for key, value in before.items() if key in ours} | json_attributes(new)
    if attributes != before:
        node.attrs.put(attributes)


@contextmanager
def _noted(problems: dict[str, str], name: str) -> Iterator[None]:
    """Note why a variable cannot be written instead of raising; errors about the whole dataset are raised."""
    try:
        yield
    except (IntarsiaError, icechunk.IcechunkError):
        raise
    except Exception as error:
        problems[name] = f"it cannot be written: {one_line(error)}"


def write_plain(group: zarr.Group, name: str, plain: PlainArray, origin: int = 0) -> None:
    """Write a plain array of a dataset, or its new part; along the axis that grows, it begins at `origin`."""
    axis, values = plain.axis, plain.values
    if axis is not None and plain.unchanged_steps is not None:
        target: Any = group[name]
        target.resize(tuple(n + origin if d == axis else n for d, n in enumerate(values.shape)))
        before, first = (slice(None),) * axis, plain.unchanged_steps
        target[(*before, slice(origin + first, None))] = values[(*before, slice(first, None))]
        return
    others = max(1, prod(n for d, n in enumerate(values.shape) if d != axis))
    steps = max(1, COORDINATE_CHUNK // others)
    attributes = dict(plain.attrs)
    if values.dtype.kind in "iu" and not float(attributes.get("_FillValue", 0)).is_integer():
        del attributes["_FillValue"]  # such as NaN, which is not an integer
    if "_FillValue" in attributes:
        attributes["_FillValue"] = encoded_fill_attribute(attributes["_FillValue"], values.dtype)
    group.create_array(
        name, data=values,
        chunks=tuple(steps if d == axis else max(n, 1) for d, n in enumerate(values.shape)),
        dimension_names=plain.dims, attributes=json_attributes(attributes), compressors=ZstdCodec(level=3),
        overwrite=True,
    )  # fmt: skip


# How Icechunk splits the manifests of references

MIN_REFERENCES = 2_000
"""The fewest references in a full manifest; smaller ones save nothing next to the rest of a commit."""

ARRAYS = 4
"""Datasets with up to this many arrays have manifests that small; with more arrays, they are larger."""

MAX_REFERENCES = 100_000
"""The most references in a manifest that is added to, in datasets with many arrays."""

TABLE_CHUNKS = 64
"""How many chunks of a table or coordinate are in a manifest; every append rewrites the last manifest."""

WHOLE = (1 << 32) - 1
"""More chunks than any member has along an axis: the largest number that Icechunk takes."""

MEMBER = "m-[0-9a-f]+"
"""The pattern of members' names."""

TABLES = rf"^/(.*/)?(t-[0-9a-f]+|{LEDGER}/(sources|claims))$"
"""The pattern of the paths of tables that grow by rows."""


def references_a_manifest(arrays: int) -> int:
    """How many references one manifest of a growing member holds, in a dataset of `arrays` arrays.

    >>> references_a_manifest(1), references_a_manifest(14), references_a_manifest(2_000)
    (2000, 6000, 100000)
    """
    return min(MIN_REFERENCES * max(1, arrays // ARRAYS), MAX_REFERENCES)


def with_splitting(config: icechunk.RepositoryConfig, plans: Iterable[tuple[str, IngestPlan]]) -> bool:
    """Put into a configuration how manifests are split, for plans by group; returns whether it changed.

    This includes those of tables, and of coordinates along the dimensions that grow. Existing rules stay:
    splitting differently would rewrite all manifests.
    """
    manifest = config.manifest or ManifestConfig()
    rules = {} if manifest.splitting is None else manifest.splitting.to_dict()
    existing = len(rules)
    for group, plan in plans:
        if _path(group, f"[^/]+/{MEMBER}") not in rules:
            fresh = _rules_of_arrays(group, plan.arrays.values(), plan.cube.dims[0])
            tables = ManifestSplitCondition.path_matches(TABLES)
            fresh[tables] = {ManifestSplitDimCondition.Axis(0): TABLE_CHUNKS}
            fresh[_path(group, "[^/]+")] = _along(TABLE_CHUNKS, *plan.cube.dims)
            rules = rules | fresh | rules
    if len(rules) == existing:
        return False
    manifest.splitting = ManifestSplittingConfig.from_dict(rules)
    if manifest.preload is None:  # otherwise every session would read some of the many small ones
        manifest.preload = ManifestPreloadConfig(
            max_total_refs=0, preload_if=ManifestPreloadCondition.false()
        )
    config.manifest = manifest
    return True


def with_whole_members(
    config: icechunk.RepositoryConfig, plans: Iterable[tuple[str, IngestPlan]]
) -> icechunk.RepositoryConfig | None:
    """The configuration for a commit that fills members: each gets one manifest. None if none is filled.

    Icechunk applies the first rule that fits, so these come before the known ones. They name the members:
    others stay split, including the one after a full one, which the next file adds to.
    """
    rules: dict[ManifestSplitCondition, dict[Any, int]] = {}
    for group, plan in plans:
        full = [
            f"{array.name}/{member.name}"
            for array in plan.arrays.values() for member in array.members.values() if member.is_full
        ]  # fmt: skip
        if full:
            rules[_path(group, _any_of(full))] = _along(WHOLE, plan.cube.dims[0])
    if not rules:
        return None
    manifest = config.manifest or ManifestConfig()
    existing = {} if manifest.splitting is None else manifest.splitting.to_dict()
    manifest.splitting = ManifestSplittingConfig.from_dict(rules | existing)
    config.manifest = manifest
    return config


def _path(group: str, below: str) -> ManifestSplitCondition:
    """Everything below a group, as a regular expression."""
    above = "".join(f"{re.escape(part)}/" for part in group.split("/") if part)
    return ManifestSplitCondition.path_matches(f"^/{above}{below}$")


def _any_of(names: Iterable[str]) -> str:
    return f"({'|'.join(map(re.escape, names))})"


def _along(size: int, *dims: str) -> dict[Any, int]:
    return {ManifestSplitDimCondition.DimensionName(f"^{_any_of(dims)}$"): size}


def _rules_of_arrays(
    group: str, arrays: Collection[ArrayPlan], dim: str
) -> dict[ManifestSplitCondition, dict[Any, int]]:
    """A rule for each size among the arrays; the last rule names no array.

    Icechunk applies the first rule that fits. The last one is for most arrays, and for those that come later.
    """
    names: dict[int, list[str]] = {}
    for array in arrays:
        steps = references = 0
        for each in array.contributions:
            if each.variable.ranges is not None and dim in each.variable.dims:
                grid = each.variable.ranges.grid
                steps, references = steps + grid[each.variable.dims.index(dim)], references + prod(grid)
        if references:
            size = max(1, references_a_manifest(len(arrays)) * steps // references)
            names.setdefault(size, []).append(array.name)
    rules = {}
    for last, size in enumerate(sorted(names, key=lambda size: len(names[size])), start=1 - len(names)):
        which = "[^/]+" if last == 0 else _any_of(names[size])
        rules[_path(group, f"{which}/{MEMBER}")] = _along(size, dim)
    return rules
