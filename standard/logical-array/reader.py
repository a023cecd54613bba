"""Reads logical arrays with zarr and NumPy alone: the specification, executable.

This file implements `docs/spec/manifest.md` and nothing else. It is written to be read: to support logical
arrays in another program, it is all one has to read. It has no threads, no caches and no short cuts.

    array = open_logical("archive.zarr", "temperature")      # or icechunk's session.store, or any zarr store
    array[10:20, ..., ::-1]

Members are opened by zarr, so their codecs and data types are those that zarr's registry knows. Replicas are
ignored, as the specification allows. What the specification forbids is refused with `ManifestError`.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.dtype import parse_dtype
from zarr.errors import NodeTypeValidationError

KEY = "intarsia"  # the attribute of the group
LIMIT = 2**62  # positions of elements stay below it
MAX_AXES, MAX_LAYERS, MAX_REGIONS, MAX_MISSING = 64, 64, 10_000_000, 1_000
NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,255}\Z")  # one path segment, neither "." nor ".."
NUMBERS = {np.dtype(f"{kind}int{bits}").name for kind in ("", "u") for bits in (8, 16, 32, 64)}
NUMBERS |= {"float16", "float32", "float64"}  # the data types that packings know

FIELDS = {"version", "generation", "shape", "chunk_shape", "data_type", "fill_value", "dimension_names"}
FIELDS |= {"members", "regions"}
COLUMNS = ("member", "start", "stop", "member_start")


class ManifestError(ValueError):
    """The manifest, or a member, is not as the specification says."""


def require(condition: Any, problem: str) -> None:
    if not condition:
        raise ManifestError(problem)


def integer(value: Any, least: float, what: str) -> int:
    """A number that counts something: no float, no bool."""
    require(type(value) is int and value >= least, f"{what}: {value!r} is not an integer of at least {least}")
    return int(value)


def exactly(document: Any, required: set[str], allowed: set[str], what: str) -> dict[str, Any]:
    """An object with these fields: unknown fields are an error."""
    require(isinstance(document, dict), f"{what} is not an object")
    missing, unknown = required - document.keys(), document.keys() - required - allowed
    require(not missing, f"{what} lacks {sorted(missing)}")
    require(not unknown, f"{what} has unknown fields {sorted(unknown)}")
    return dict(document)


# ---------------------------------------------------------------------------------------------- packings


def number_type(name: Any, what: str) -> np.dtype[Any]:
    require(isinstance(name, str) and name in NUMBERS, f"{what}: {name!r} is no data type of packings")
    return np.dtype(name)


def from_bits(text: Any, dtype: np.dtype[Any], what: str) -> Any:
    """A number from its bits: `0x`, and two digits per byte, the most significant first."""
    require(
        isinstance(text, str) and re.fullmatch(rf"0x[0-9a-f]{{{2 * dtype.itemsize}}}", text),
        f"{what}: {text!r} is not the bits of a {dtype}",
    )
    return np.frombuffer(bytes.fromhex(text[2:]), dtype.newbyteorder(">"))[0].astype(dtype)


def holds(outer: np.dtype[Any], inner: np.dtype[Any]) -> bool:
    """Whether a data type holds all values of another one exactly."""
    if outer.kind not in "iuf":
        return False
    if inner.kind == "f":
        return outer.kind == "f" and outer.itemsize >= inner.itemsize
    low, high = int(np.iinfo(inner).min), int(np.iinfo(inner).max)
    if outer.kind == "f":
        return max(-low, high) <= 2 ** (np.finfo(outer).nmant + 1)
    return int(np.iinfo(outer).min) <= low and high <= int(np.iinfo(outer).max)


@dataclass(frozen=True)
class Kind:
    """What packings have in common: everything but the two numbers."""

    stored: np.dtype[Any]
    read_as: np.dtype[Any]  # `stored`, or the type of the same size with the other sign
    values: np.dtype[Any]
    missing: tuple[Any, ...]
    scale: np.dtype[Any] | None
    offset: np.dtype[Any] | None

    @classmethod
    def parse(cls, document: Any, what: str) -> Kind:
        names = {"stored", "unsigned", "values", "missing", "scale", "offset"}
        kind = exactly(document, names, set(), what)
        stored = number_type(kind["stored"], f"{what}.stored")
        values = number_type(kind["values"], f"{what}.values")
        read_as, unsigned = stored, kind["unsigned"]
        require(unsigned is None or type(unsigned) is bool, f"{what}.unsigned: {unsigned!r}")
        if unsigned is not None:
            require(stored.kind == ("i" if unsigned else "u"), f"{what}.unsigned: {unsigned} with {stored}")
            read_as = np.dtype(f"{'u' if unsigned else 'i'}{stored.itemsize}")
        listed = kind["missing"]
        short = isinstance(listed, list) and len(listed) <= MAX_MISSING
        require(short, f"{what}.missing is not a list of up to {MAX_MISSING}")
        require(not listed or values.kind == "f", f"{what}.missing: {values} has no NaN")
        missing = tuple(cls._missing(entry, read_as, f"{what}.missing") for entry in listed)
        types = []
        for field in ("scale", "offset"):
            dtype = None if kind[field] is None else number_type(kind[field], f"{what}.{field}")
            if dtype is not None and values.kind != "f":
                wide = np.result_type(values, dtype)
                fits = wide.kind == "u" if values.kind == "u" else wide.kind in "iu"
                require(fits, f"{what}.{field}: {dtype} with values of {values}")
            types.append(dtype)
        return cls(stored, read_as, values, missing, *types)

    @staticmethod
    def _missing(entry: Any, dtype: np.dtype[Any], what: str) -> Any:
        if dtype.kind == "f":
            number = from_bits(entry, dtype, what)
            require(not np.isnan(number), f"{what}: NaN is always missing, and never listed")
            return number
        require(type(entry) is int, f"{what}: {entry!r} is not an integer")
        require(np.iinfo(dtype).min <= entry <= np.iinfo(dtype).max, f"{what}: {entry} is no {dtype}")
        return dtype.type(entry)


@dataclass(frozen=True)
class Packing:
    """How the stored numbers of a region become values."""

    kind: Kind
    scale: Any
    offset: Any

    def unpack(self, numbers: np.ndarray[Any, Any], data_type: np.dtype[Any]) -> np.ndarray[Any, Any]:
        kind, values = self.kind, self.kind.values
        with np.errstate(all="ignore"):
            x = np.ascontiguousarray(numbers).view(kind.read_as).reshape(numbers.shape).astype(values)  # 1
            if kind.missing:  # 2
                x[np.isin(x, np.array(kind.missing, kind.read_as).astype(values))] = np.nan
            for number, operation in ((self.scale, np.multiply), (self.offset, np.add)):  # 3 and 4
                if number is not None:
                    wide = np.result_type(values, number.dtype)
                    x = operation(x.astype(wide), number.astype(wide)).astype(values)
            return x.astype(data_type)  # 5


def parse_packings(document: Any, table: np.ndarray[Any, Any] | None) -> list[Packing]:
    """The packings, in the attributes or in the last three columns of the region table."""
    fields = {"kinds", "count"} if table is not None else {"kinds", "kind", "scale", "offset"}
    packings = exactly(document, fields, set(), "packings")
    require(isinstance(packings["kinds"], list), "packings.kinds is not a list")
    kinds = [Kind.parse(kind, f"packings.kinds[{i}]") for i, kind in enumerate(packings["kinds"])]
    require(len(set(kinds)) == len(kinds), "packings.kinds: one is listed twice")
    if table is not None:
        count = integer(packings["count"], 1, "packings.count")
        require(count <= len(table), f"packings.count: {count}, but the table has {len(table)} rows")
        numbers, rest = table[:count, -3:].tolist(), table[count:, -3:]
        require(not rest.any(), "regions: rows of the table behind the packings are not zeros")
        rows = [(kind, *map(_table_bits, (scale, offset))) for kind, scale, offset in numbers]
    else:
        columns = [packings[name] for name in ("kind", "scale", "offset")]
        require(all(isinstance(column, list) for column in columns), "packings: a column is not a list")
        require(len({len(column) for column in columns}) == 1, "packings: columns of different lengths")
        rows = list(zip(*columns, strict=True))
    found = []
    for i, (number, scale, offset) in enumerate(rows):
        integer(number, 0, f"packings.kind[{i}]")
        require(number < len(kinds), f"packings.kind[{i}]: there are {len(kinds)} kinds")
        kind = kinds[number]
        sizes = ((scale, kind.scale, "scale"), (offset, kind.offset, "offset"))
        numbers = [_number(bits, dtype, f"packings.{name}[{i}]") for bits, dtype, name in sizes]
        found.append(Packing(kind, *numbers))
    require({row[0] for row in rows} == set(range(len(kinds))), "packings.kinds: one is not used")
    return found


def _table_bits(number: int) -> str:
    return f"0x{number & (2**64 - 1):016x}"


def _number(bits: Any, dtype: np.dtype[Any] | None, what: str) -> Any:
    """A scale or an offset, or None if the kind has none. In a table, zeros fill its bits up to 64."""
    if dtype is None:
        require(bits in (None, _table_bits(0)), f"{what}: {bits!r}, but the kind has none")
        return None
    if isinstance(bits, str) and len(bits) == 18 and dtype.itemsize < 8:
        padding = "0x" + "0" * (16 - 2 * dtype.itemsize)
        require(bits.startswith(padding), f"{what}: more bits than a {dtype} has")
        bits = "0x" + bits[18 - 2 * dtype.itemsize :]
    number = from_bits(bits, dtype, what)
    require(np.isfinite(number), f"{what}: {number} is not finite")
    return number


# ------------------------------------------------------------------------------------------------- views


@dataclass(frozen=True)
class View:
    """Where the elements of a region lie in its member: an entry (axis, offset, stride) for each member axis.

    The axis is the logical axis that the member's axis follows, or None if it is dropped.
    """

    output: tuple[tuple[int | None, int, int], ...]

    @classmethod
    def parse(cls, document: Any, ndim: int, what: str) -> View:
        view = exactly(document, {"input_rank", "output"}, set(), what)
        rank = integer(view["input_rank"], 0, f"{what}.input_rank")
        require(rank == ndim, f"{what}.input_rank is {rank}, but the array has {ndim} axes")
        require(isinstance(view["output"], list), f"{what}.output is not a list")
        require(len(view["output"]) <= MAX_AXES, f"{what}.output: at most {MAX_AXES} axes are possible")
        output: list[tuple[int | None, int, int]] = []
        for i, entry in enumerate(view["output"]):
            name = f"{what}.output[{i}]"
            fields = exactly(entry, set(), {"offset", "stride", "input_dimension"}, name)
            offset = integer(fields.get("offset", 0), -LIMIT, f"{name}.offset")
            require(offset < LIMIT, f"{name}.offset: {offset} is further out than any member")
            if "input_dimension" not in fields:
                require("stride" not in fields, f"{name}: a stride on an axis that is dropped")
                output.append((None, integer(offset, 0, f"{name}.offset"), 1))
                continue
            axis = integer(fields["input_dimension"], 0, f"{name}.input_dimension")
            require(axis < ndim, f"{name}.input_dimension: {axis}, but there are {ndim} axes")
            stride = integer(fields.get("stride", 1), -1, f"{name}.stride")
            require(stride in (1, -1), f"{name}.stride: {stride}")
            output.append((axis, offset, stride))
        followed = [axis for axis, _, _ in output if axis is not None]
        require(len(set(followed)) == len(followed), f"{what}: one axis is followed twice")
        return cls(tuple(output))

    def new_axes(self, ndim: int) -> list[int]:
        """The logical axes that the member does not have."""
        return [axis for axis in range(ndim) if axis not in {followed for followed, _, _ in self.output}]

    def in_member(self, places: list[range]) -> list[range]:
        """The indices in the member, by its axes, of a box of places; ranges downwards are reversed axes."""
        found = []
        for axis, offset, stride in self.output:
            box = range(1) if axis is None else places[axis]
            first, last = offset + stride * box.start, offset + stride * (box.stop - 1)
            found.append(range(first, last + stride, stride))
        return found

    def turned(self, values: np.ndarray[Any, Any], ndim: int) -> np.ndarray[Any, Any]:
        """Values by the member's axes, as values by the array's axes."""
        kept = [axis for axis, _, _ in self.output if axis is not None]
        values = values[tuple(0 if axis is None else slice(None) for axis, _, _ in self.output)]
        values = np.transpose(values, np.argsort(kept)) if kept else values
        return np.expand_dims(values, tuple(self.new_axes(ndim)))


# ---------------------------------------------------------------------------------------------- manifest


@dataclass(frozen=True)
class Region:
    """A box of the array, in logical chunks, and what backs it."""

    member: int
    start: tuple[int, ...]
    stop: tuple[int, ...]
    member_start: tuple[int, ...]
    packing: int = -1
    view: int = -1
    layer: int = 0

    def overlap(self, other: Region) -> int:
        """How many logical chunks are in both."""
        corners = zip(self.start, self.stop, other.start, other.stop, strict=True)
        return math.prod(max(0, min(b, d) - max(a, c)) for a, b, c, d in corners)

    @property
    def size(self) -> int:
        return math.prod(b - a for a, b in zip(self.start, self.stop, strict=True))


@dataclass(frozen=True)
class Manifest:
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    data_type: Any
    """zarr's data type."""
    fill_value: Any
    dimension_names: tuple[str | None, ...] | None
    members: tuple[str, ...]
    regions: tuple[Region, ...]
    packings: tuple[Packing, ...]
    views: tuple[View, ...]

    @property
    def lattice(self) -> tuple[int, ...]:
        """The number of logical chunks on every axis."""
        return tuple(-(-length // size) for length, size in zip(self.shape, self.chunk_shape, strict=True))

    def elements(self, region: Region) -> list[range]:
        """The elements that a region backs."""
        axes = zip(region.start, region.stop, self.chunk_shape, self.shape, strict=True)
        return [range(start * size, min(stop * size, length)) for start, stop, size, length in axes]

    def in_member(self, region: Region, box: list[range]) -> list[range]:
        """Where elements of a region lie in its member, by the member's axes."""
        axes = zip(box, region.start, region.member_start, self.chunk_shape, strict=True)
        moves = [(own, (to - start) * size) for own, start, to, size in axes]
        places = [range(own.start + move, own.stop + move) for own, move in moves]
        return places if region.view < 0 else self.views[region.view].in_member(places)

    @classmethod
    def parse(cls, group: zarr.Group) -> Manifest:
        """The manifest in the attributes of a group, checked."""
        document = group.attrs.asdict().get(KEY)
        require(isinstance(document, dict), f"{group.path or '/'!r} is not a logical array")
        version = document.get("version")
        known = type(version) is int and version in (1, 2)
        require(known, f"version {version!r} is not known to this reader")
        fields = exactly(document, FIELDS, {"packings", "views"} if version == 2 else set(), "the manifest")
        integer(fields["generation"], 0, "generation")
        shape, chunk_shape = (_sizes(fields[name], least, name) for name, least in SIZES)
        ndim = len(shape)
        require(len(chunk_shape) == ndim, "chunk_shape and shape have different numbers of axes")
        try:
            data_type = parse_dtype(fields["data_type"], zarr_format=3)
            fill_value = data_type.from_json_scalar(fields["fill_value"], zarr_format=3)
        except (TypeError, ValueError, OverflowError) as error:
            raise ManifestError(f"data_type, fill_value: {error}") from error
        names = _names(fields["dimension_names"], ndim)
        members = fields["members"]
        require(isinstance(members, list), "members is not a list")
        for name in members:
            require(isinstance(name, str) and NAME.match(name), f"members: {name!r} is not one path segment")
        require(len(set(members)) == len(members), "members: one is listed twice")
        table = None
        if isinstance(fields["regions"], str):
            table = _table(group, fields["regions"], ndim, version)
            regions = _rows(table, ndim, version)
        else:
            regions = _columns(fields["regions"], ndim, version)
        packings = parse_packings(fields["packings"], table) if "packings" in fields else []
        listed = fields.get("views", [])
        require(isinstance(listed, list), "views is not a list")
        views = [View.parse(view, ndim, f"views[{i}]") for i, view in enumerate(listed)]
        manifest = cls(
            *(shape, chunk_shape, data_type, fill_value, names, tuple(members)),
            *(tuple(regions), tuple(packings), tuple(views)),
        )
        manifest._check()
        return manifest

    def _check(self) -> None:
        """What regions, packings and views have to be to one another."""
        far = [size * chunks for size, chunks in zip(self.chunk_shape, self.lattice, strict=True)]
        require(max(far, default=0) < LIMIT, "shape, chunk_shape: more elements than can be counted")
        for name, entries in (("member", self.members), ("packing", self.packings), ("view", self.views)):
            used = {getattr(region, name) for region in self.regions} - {-1}
            listed = set(range(len(entries)))
            require(used == listed, f"regions.{name}: {len(entries)} are listed, and {used} are used")
        native = self.data_type.to_native_dtype()
        for packing in self.packings:
            values = packing.kind.values
            require(holds(native, values), f"packings: {native} does not hold {values}")
        for region in self.regions:
            self._check_region(region)
        for layer in sorted({region.layer for region in self.regions}):
            _check_overlaps([region for region in self.regions if region.layer == layer])
        base = [region for region in self.regions if region.layer == 0]
        for region in self.regions:
            covered = region.size if not region.layer else sum(region.overlap(below) for below in base)
            require(covered == region.size, f"regions: {region} is a replica of what layer 0 does not cover")

    def _check_region(self, region: Region) -> None:
        require(region.member >= 0, f"regions: {region} has no member")
        require(0 <= region.layer < MAX_LAYERS, f"regions: {region} is in no layer")
        require(min(region.member_start, default=0) >= 0, f"regions: {region} starts before its member")
        corners = zip(region.start, region.stop, self.lattice, strict=True)
        inside = all(0 <= start < stop <= length for start, stop, length in corners)
        require(inside, f"regions: {region} is empty, or not within the lattice {self.lattice}")
        if region.view >= 0:
            for axis in self.views[region.view].new_axes(len(self.shape)):
                length = region.stop[axis] - region.start[axis]
                own = length, region.member_start[axis], self.chunk_shape[axis]
                require(own == (1, 0, 1), f"regions: {region} on the new axis {axis}")
        ends = [(box[0], box[-1]) for box in self.in_member(region, self.elements(region)) if len(box)]
        reached = [end for pair in ends for end in pair]
        require(all(0 <= end < LIMIT for end in reached), f"regions: {region} lies where no member can be")


SIZES = (("shape", 0), ("chunk_shape", 1))


def _sizes(value: Any, least: int, what: str) -> tuple[int, ...]:
    require(isinstance(value, list) and len(value) <= MAX_AXES, f"{what} is not a list of up to {MAX_AXES}")
    return tuple(integer(size, least, what) for size in value)


def _names(value: Any, ndim: int) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    require(isinstance(value, list) and len(value) == ndim, f"dimension_names: {value!r} for {ndim} axes")
    require(all(name is None or isinstance(name, str) for name in value), f"dimension_names: {value!r}")
    return tuple(value)


def _columns(value: Any, ndim: int, version: int) -> list[Region]:
    """The region table in the attributes, by columns."""
    more = ("packing", "view", "layer") if version == 2 else ()
    columns = exactly(value, set(COLUMNS), set(more), "regions")
    for name, column in columns.items():
        require(isinstance(column, list), f"regions.{name} is not a list")
        require(len(column) == len(columns["member"]), f"regions.{name}: columns of different lengths")
        for entry in column:
            corner = name in COLUMNS[1:]
            sound = not corner or (isinstance(entry, list) and len(entry) == ndim)
            require(sound, f"regions.{name}: {entry!r} is not a corner of {ndim} axes")
            for number in entry if corner else [entry]:
                integer(number, -LIMIT, f"regions.{name}")
    defaults = {"packing": -1, "view": -1, "layer": 0}
    listed = [columns[name] for name in COLUMNS]
    listed += [columns.get(name, itertools.repeat(defaults[name], len(listed[0]))) for name in more]
    rows = (tuple(tuple(x) if isinstance(x, list) else x for x in row) for row in zip(*listed, strict=True))
    return [Region(*row) for row in rows]


def _table(group: zarr.Group, name: str, ndim: int, version: int) -> np.ndarray[Any, Any]:
    """The region table in an array beside the members."""
    require(NAME.match(name), f"regions: {name!r} is not one path segment")
    try:
        table = zarr.open_array(group.store_path / name, mode="r", zarr_format=3)
    except (FileNotFoundError, ValueError) as error:
        raise ManifestError(f"regions: the table {name!r} cannot be opened: {error}") from error
    width = 1 + 3 * ndim + (6 if version == 2 else 0)
    sound = table.dtype == np.int64 and table.ndim == 2 and table.shape[1] == width
    require(sound, f"regions: a table of {table.dtype} {table.shape}, not of int64 with {width} columns")
    require(table.shape[0] <= MAX_REGIONS, f"regions: the table has {table.shape[0]} rows")
    require(table.nchunks_initialized == table.nchunks, "regions: a chunk of the table is not stored")
    rows: np.ndarray[Any, Any] = np.asarray(table[...])
    return rows


def _rows(table: np.ndarray[Any, Any], ndim: int, version: int) -> list[Region]:
    found = []
    for row in table.tolist():
        corners = [tuple(row[1 + i * ndim : 1 + (i + 1) * ndim]) for i in range(3)]
        found.append(Region(row[0], *corners, *(row[1 + 3 * ndim : 4 + 3 * ndim] if version == 2 else ())))
    return found


def _check_overlaps(regions: list[Region]) -> None:
    """Regions of one layer never overlap: compared along the first axis, from its start to its end."""
    active: list[Region] = []
    for region in sorted(regions, key=lambda region: region.start):
        if region.start:
            active = [other for other in active if other.stop[0] > region.start[0]]
        for other in active:
            require(not region.overlap(other), f"regions: {region} and {other} overlap")
        active.append(region)


# ----------------------------------------------------------------------------------------------- reading


class LogicalArray:
    """A logical array, for reading basic selections: integers, slices with any step, and an ellipsis."""

    def __init__(self, group: zarr.Group) -> None:
        self.manifest = Manifest.parse(group)
        self.shape = self.manifest.shape
        self.ndim = len(self.shape)
        self.dtype = self.manifest.data_type.to_native_dtype()
        self.dimension_names = self.manifest.dimension_names
        try:
            np.full((), self.manifest.fill_value, self.dtype)
        except (TypeError, ValueError) as error:
            text = f"values of the data type {self.manifest.data_type} are more than NumPy holds"
            raise NotImplementedError(text) from error
        self._group = group
        self._members: dict[str, Any] = {}

    def __getitem__(self, selection: Any) -> Any:
        wanted, dropped = _normalised(selection, self.shape)
        box = [range(min(own), max(own) + 1) if len(own) else range(0) for own in wanted]
        values = np.full([len(own) for own in box], self.manifest.fill_value, self.dtype)
        for region in self.manifest.regions:
            if region.layer == 0:
                self._read(region, box, values)
        turned = [slice(None, None, own.step) if len(own) else slice(0) for own in wanted]
        values = values[tuple(turned)]
        return values[tuple(0 if axis in dropped else slice(None) for axis in range(self.ndim))]

    def _read(self, region: Region, box: list[range], values: np.ndarray[Any, Any]) -> None:
        """Put the elements of a box that a region backs where they belong."""
        backed = self.manifest.elements(region)
        pairs = zip(backed, box, strict=True)
        common = [range(max(a.start, b.start), min(a.stop, b.stop)) for a, b in pairs]
        if not all(map(len, common)):
            return
        member, places = self._member(region), self.manifest.in_member(region, common)
        upwards = tuple(slice(min(place), max(place) + 1) for place in places)
        stored = np.asarray(member[upwards]).reshape([len(place) for place in places])
        stored = stored[tuple(slice(None, None, place.step) for place in places)]
        if region.view >= 0:
            stored = self.manifest.views[region.view].turned(stored, self.ndim)
        if region.packing >= 0:
            stored = self.manifest.packings[region.packing].unpack(stored, self.dtype)
        there = zip(common, box, strict=True)
        values[tuple(slice(a.start - b.start, a.stop - b.start) for a, b in there)] = stored

    def _member(self, region: Region) -> Any:
        """The member of a region; refused if it cannot back it."""
        name = self.manifest.members[region.member]
        if name not in self._members:
            try:
                self._members[name] = zarr.open_array(self._group.store_path / name, mode="r", zarr_format=3)
            except (FileNotFoundError, NodeTypeValidationError) as error:
                raise ManifestError(f"the member {name!r} is missing") from error
        member = self._members[name]
        needed = self.manifest.in_member(region, self.manifest.elements(region))
        large = len(member.shape) == len(needed)
        large = large and all(size > max(own) for size, own in zip(member.shape, needed, strict=True))
        require(large, f"the member {name!r} of shape {member.shape} is too small for {region}")
        dtype = self.dtype if region.packing < 0 else self.manifest.packings[region.packing].kind.stored
        same = member.dtype.newbyteorder("=") == dtype.newbyteorder("=")
        require(same, f"the member {name!r} decodes to {member.dtype}, not to {dtype}")
        return member


def _normalised(selection: Any, shape: tuple[int, ...]) -> tuple[list[range], set[int]]:
    """The indices that a basic selection takes from every axis, and the axes that it drops."""
    items = selection if isinstance(selection, tuple) else (selection,)
    if Ellipsis not in items:
        items = (*items, Ellipsis)
    at = items.index(Ellipsis)
    rest = len(shape) - len(items) + 1
    if rest < 0 or items.count(Ellipsis) > 1:
        raise IndexError(f"{selection!r} for {len(shape)} axes")
    items = (*items[:at], *[slice(None)] * rest, *items[at + 1 :])
    wanted, dropped = [], set()
    for axis, (item, length) in enumerate(zip(items, shape, strict=True)):
        if isinstance(item, slice):
            wanted.append(range(length)[item])
            continue
        wanted.append(range(range(length)[item], range(length)[item] + 1))
        dropped.add(axis)
    return wanted, dropped


def open_logical(store: Any, path: str = "") -> LogicalArray:
    """Open the logical array at `path` in anything that zarr takes as a store."""
    return LogicalArray(zarr.open_group(store, path=path or None, mode="r", zarr_format=3))
