"""What a parser found in one source file: plain data that one process can hand to another."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from intarsia.display import is_misspelt, names_text
from intarsia.errors import IngestError, argument

if TYPE_CHECKING:
    from intarsia.archives.plan.axis_union import Span
    from intarsia.archives.source_files import ContentIdentity


type Role = Literal["data", "concat", "static"]

SUPPORTED_KINDS = "biufcT"
"""The supported kinds of NumPy data types: numbers, bools and texts of any length."""

MENTIONS = ("coordinates", "bounds", "climatology", "grid_mapping")
"""Attributes in which CF names other variables."""

MAPPING_KEYS = frozenset(("grid_mapping_name", "crs_wkt", "spatial_ref"))
"""Attributes that make a variable a grid mapping."""

PHONY = "phony_dim_"
"""The beginning of names for axes that have none in HDF5 files, as in NetCDF; a number follows."""

LOAD_LIMIT = 64 << 20
"""A variable without the concatenation dimension is loaded from every file, up to this size."""


def is_grid_mapping(attrs: Mapping[str, Any]) -> bool:
    """Whether a variable exists for its attributes only, and its value means nothing."""
    return not MAPPING_KEYS.isdisjoint(attrs)


@dataclass(frozen=True, slots=True)
class ParseRequest:
    """What the caller wants from every file."""

    dims: tuple[str, ...]
    """The dimensions that grow from file to file."""

    variables: tuple[str, ...] | None = None
    """The data variables to take; None for all of them."""

    load: tuple[str, ...] = ()
    """Variables to load into plain arrays although they would be data."""

    rename: tuple[tuple[str, str], ...] = ()
    """Names of variables and dimensions in files, and their names in the dataset."""

    group: str = ""
    """The group in every file that holds the variables."""

    preprocess: Any = None
    """The caller's function from the metadata of a file to what should be ingested."""

    whole_tree: bool = False
    """Whether all groups are wanted: names that are invented in one then differ from those above it."""

    parser: Any = None
    """The caller's own parser, if given."""

    def renamed(self, variables: Mapping[str, ParsedVariable]) -> dict[str, ParsedVariable]:
        """The variables of a file by the names of the dataset, which they take for their axes, too."""
        names = {dim for variable in variables.values() for dim in variable.dims} | set(variables)
        now = {old: new for old, new in self.rename if old in names and old != new}
        for old, new in now.items():
            if new in names:
                raise IngestError(
                    f"it has {old!r} and {new!r}, which {argument('rename')} would give the same name"
                )
        for variable in variables.values() if now else ():
            variable.rename_dims(now)
            variable.attrs = rename_mentions(variable.attrs, now)
        return {now.get(name, name): variable for name, variable in variables.items()}


@dataclass(slots=True)
class ChunkRanges:
    """Where the chunks of a variable are, over its chunk grid."""

    locations: str | np.ndarray[Any, Any]
    """One URL for all chunks, or one for each; an empty one means that the chunk is not stored."""

    offsets: np.ndarray[Any, np.dtype[np.uint64]]
    """The first byte of each chunk."""

    lengths: np.ndarray[Any, np.dtype[np.uint64]]
    """The number of bytes of each chunk; 0 means that the chunk is not stored."""

    masks: np.ndarray[Any, np.dtype[np.uint32]] | None = None
    """If bit i is set, this chunk skipped filter i (HDF5's filter mask). None: no chunk skipped any."""

    inlined: Mapping[tuple[int, ...], bytes] = field(default_factory=dict)
    """Encoded chunks that the parser made itself, because the file does not hold them in that form."""

    identity: ContentIdentity | None = None
    """Identifies the content of the files that hold the chunks; None if that is the source itself."""

    @property
    def grid(self) -> tuple[int, ...]:
        grid: tuple[int, ...] = self.offsets.shape
        return grid

    @property
    def end(self) -> int:
        """The first byte after the last chunk."""
        return int((self.offsets + self.lengths)[self.lengths > 0].max(initial=0))

    def urls(self) -> list[str]:
        """All distinct locations."""
        if isinstance(self.locations, str):
            return [self.locations] if bool(self.lengths.any()) else []
        return [url for url in np.unique(self.locations).tolist() if url]

    def select(self, key: Any) -> ChunkRanges:
        """The chunks that a subscript of the chunk grid selects."""
        located, masks = self.locations, self.masks
        return replace(
            self, locations=located if isinstance(located, str) else located[key], offsets=self.offsets[key],
            lengths=self.lengths[key], masks=None if masks is None else masks[key],
        )  # fmt: skip

    def move(self, moved: Mapping[str, str]) -> None:
        """Refer to other locations, by the present ones."""
        if isinstance(self.locations, str):
            self.locations = moved.get(self.locations, self.locations)
        elif moved:
            flat = [moved.get(url, url) for url in self.locations.ravel().tolist()]
            self.locations = np.array(flat, dtype=self.locations.dtype).reshape(self.locations.shape)


@dataclass(slots=True)
class ParsedVariable:
    """One variable of one file: how it is stored, and either its ranges or its values.

    Before anything of it is read, it has neither, and its role is not decided.
    """

    name: str
    """Its name in the file."""

    role: Role
    """`data` becomes a logical array; `concat` is loaded and runs along the dimension; `static` is loaded."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    attrs: dict[str, Any]
    """Its attributes; numbers have the type that they have in the file."""

    dtype: np.dtype[Any]
    """The stored type, in this machine's byte order."""

    chunks: tuple[int, ...] = ()
    """The shape of the part that one reference holds."""

    codecs: tuple[dict[str, Any], ...] = ()
    """How the bytes of a chunk become an array of `dtype`."""

    fill: Any = None
    """The stored number that stands for chunks that are not stored."""

    ranges: ChunkRanges | None = None
    """Where the chunks are; None if only a copy will do."""

    parts: tuple[VariablePart, ...] = ()
    """What it is made of, if its chunks do not have one shape, encoding or file; it then has no ranges."""

    absent: tuple[str, ...] = ()
    """Sources of a virtual dataset that do not exist: HDF5 shows its fill value there."""

    reason: str = ""
    """Why only a copy will do."""

    values: np.ndarray[Any, Any] | None = None
    """The loaded values."""

    is_text: bool = False
    """Whether it is stored as characters, or as texts of a fixed length, and loaded as strings."""

    encoding: str = ""
    """The encoding of its characters, if the file names it."""

    seen: tuple[str, ...] | None = None
    """The visible axes, in their order; None for all, as they are stored."""

    picks: Mapping[str, Any] = field(default_factory=dict)
    """For partly visible axes, which stored elements are visible; for a dropped axis, its one index."""

    @property
    def loaded(self) -> np.ndarray[Any, Any]:
        """The values of a loaded variable."""
        assert self.values is not None
        return self.values

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the visible axes."""
        return self.dims if self.seen is None else self.seen

    @property
    def nbytes(self) -> int:
        """The size of what is visible."""
        return math.prod(self.sizes.values()) * self.dtype.itemsize

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the visible axes, by name."""
        stored = dict(zip(self.dims, self.shape, strict=True))
        if self.seen is None:
            return stored
        return {dim: len(self.picks[dim]) if dim in self.picks else stored[dim] for dim in self.seen}

    def rename_dims(self, now: Mapping[str, str]) -> None:
        """Give its axes new names, by their present ones."""
        self.dims = tuple(now.get(dim, dim) for dim in self.dims)
        self.picks = {now.get(dim, dim): picked for dim, picked in self.picks.items()}
        self.parts = rename_parts(self.parts, now)
        if self.seen is not None:
            self.seen = tuple(now.get(dim, dim) for dim in self.seen)

    def dropped_index(self, axis: int) -> int:
        """The one index on a stored axis that is not visible."""
        return int(self.picks.get(self.dims[axis], 0))

    def all_ranges(self) -> list[ChunkRanges]:
        """Where its chunks are, and those of its parts."""
        found = (self.ranges, *(part.stored.ranges for part in self.parts))
        return [ranges for ranges in found if ranges is not None]

    def crop(self, bounds: Sequence[tuple[int, int]]) -> ParsedVariable:
        """The chunks between these elements, which are borders of chunks or ends of axes, as a variable."""
        cut = tuple(slice(a // c, -(-b // c)) for (a, b), c in zip(bounds, self.chunks, strict=True))
        ranges = None if self.ranges is None else self.ranges.select(cut)
        return replace(self, shape=tuple(b - a for a, b in bounds), ranges=ranges)

    def pieces(self, dims: Collection[str]) -> Iterator[tuple[dict[str, tuple[Span, ...]], ParsedVariable]]:
        """Its parts, for an array with these dimensions: where each is on its axes, and what is stored there.

        Without parts, it is everywhere itself.
        """
        if not self.parts:
            yield {}, self
        hidden = {dim: int(self.picks.get(dim, 0)) for dim in self.dims if dim not in dims}
        for stored, places in self.parts:
            cuts = {dim: [span.cut(at, at + 1) for span in places[dim]] for dim, at in hidden.items()}
            found = {dim: cut.first for dim, own in cuts.items() for cut in own if cut is not None}
            if found.keys() == hidden.keys():
                picks = {dim: at for dim, at in found.items() if dim in stored.dims}
                yield places, replace(stored, name=self.name, picks={**stored.picks, **picks})


class VariablePart(NamedTuple):
    """A part of a variable that is stored as an array of its own: strips of a TIFF, a source of HDF5."""

    stored: ParsedVariable
    """That array. Its axes have the names of the variable's; of others, one index is seen, which it picks."""

    places: dict[str, tuple[Span, ...]]
    """For every axis of the variable: where the part is, and which stored elements are there."""


def rename_parts(parts: Iterable[VariablePart], now: Mapping[str, str]) -> tuple[VariablePart, ...]:
    """Parts of a variable whose axes have new names, by the present ones."""
    renamed = []
    for stored, places in parts:
        dims = tuple(now.get(dim, dim) for dim in stored.dims)
        own = {now.get(dim, dim): spans for dim, spans in places.items()}
        renamed.append(VariablePart(replace(stored, dims=dims), own))
    return tuple(renamed)


@dataclass(slots=True)
class ParsedFile:
    """One source file."""

    url: str
    identity: ContentIdentity
    """Identifies the content that it had when it was parsed."""

    format: str
    """The kind of file, in a word."""

    variables: dict[str, ParsedVariable]
    attrs: dict[str, Any] = field(default_factory=dict)
    """The attributes of the file as a whole."""

    left_out: dict[str, str] = field(default_factory=dict)
    """Variables that were not taken, and why."""

    new_dims: tuple[str, ...] = ()
    """Dimensions that grow from file to file and that this file lacks: it is one step of each."""

    groups: tuple[str, ...] = ()
    """The groups below that hold variables; listed if there is no data along the dimensions."""

    def lengths(self, dim: str) -> dict[str, int]:
        """How many steps each variable along a dimension has."""
        return {
            name: sizes[dim]
            for name, variable in self.variables.items()
            if variable.role != "static" and dim in (sizes := variable.sizes)
        }

    @property
    def left_out_text(self) -> str:
        """The first variables that are left out, and why; empty if there are none."""
        left_out = "; ".join(f"{name!r}: {why}" for name, why in list(self.left_out.items())[:3])
        return f" ({left_out})" if left_out else ""

    def steps(self, dim: str) -> int:
        """How many steps the file has: those of its coordinate, or of its longest variable.

        The missing part of a shorter variable is a hole, as in a NetCDF file with an unlimited dimension.
        """
        lengths = self.lengths(dim)
        return lengths.get(dim, max(lengths.values(), default=0))


def rename_mentions(attrs: Mapping[str, Any], now: Mapping[str, str]) -> dict[str, Any]:
    """Attributes that name other variables by their new names."""
    texts = {key: text for key in MENTIONS if isinstance(text := attrs.get(key), str)}
    renamed = {key: " ".join(now.get(word, word) for word in text.split()) for key, text in texts.items()}
    return {**attrs, **renamed}


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """A file that could not be parsed."""

    url: str
    reason: str
    """What is wrong with it."""


def read_stored(source: Any, selection: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Values of an HDF5 dataset or a Zarr array in this machine's byte order; type `str` gives texts."""
    if isinstance(dtype, np.dtypes.StringDType) and hasattr(source, "asstr"):
        return np.asarray(source.asstr()[selection], dtype=dtype)
    values = np.asarray(source[selection])
    return values if values.dtype.kind == "T" else values.astype(values.dtype.newbyteorder("="), copy=False)


def _is_supported(dtype: np.dtype[Any]) -> bool:
    """Whether Zarr has the type: numbers, bools and texts, but not C's long double."""
    return dtype.kind in SUPPORTED_KINDS and dtype.itemsize <= (8 if dtype.kind == "f" else 16)


def with_names_of(variable: ParsedVariable, dims: tuple[str, ...], kept: Iterable[str]) -> None:
    """Give the axes of a variable the invented names that `dims` has in the same places; `kept` stay."""
    own = variable.axes
    if own == dims or len(own) != len(dims):
        return
    now = dict(zip(own, dims, strict=True))
    changed = {old: new for old, new in now.items() if old != new}
    both = [*changed, *changed.values()]
    hidden = set(variable.dims) - set(own)
    if not all(each.startswith(PHONY) for each in both) or {*kept, *hidden} & set(both):
        return
    variable.rename_dims(now)


class VariableRoles(NamedTuple):
    """What becomes of the variables of a file."""

    roles: dict[str, Role]
    left_out: dict[str, str]
    """What is not taken, and why."""

    new_dims: tuple[str, ...]
    """The dimensions that grow from file to file and that this file lacks: it is one step of each."""


def roles(variables: Mapping[str, ParsedVariable], request: ParseRequest) -> VariableRoles:
    """The role of every variable of a file.

    Variables along all dimensions are data, unless they are coordinates or are named in CF attributes.
    """
    names = request.variables or ()
    if not any(name in variables for name in names):
        for name in names:
            if is_misspelt(name, variables, alike=0.6):
                raise IngestError(f"it has no variable {name!r}: {names_text(name, variables)}")
    dims = {dim for variable in variables.values() for dim in variable.axes}
    there = [dim for dim in request.dims if dim in dims]
    new_dims = tuple(dim for dim in request.dims if dim not in dims)
    loaded = {name for name, variable in variables.items() if variable.axes == (name,) or variable.is_text}
    loaded |= _mentioned(variables.values()) | {*request.dims, *request.load}
    data = [
        name for name, variable in variables.items()
        if name not in loaded and variable.axes and all(dim in variable.axes for dim in there)
    ]  # fmt: skip
    if request.variables is not None:
        data = [name for name in data if name in request.variables]
    left_out = {
        name: f"values of type {variable.dtype} are not supported"
        for name, variable in variables.items() if not _is_supported(variable.dtype)
    }  # fmt: skip
    for name, variable in variables.items():
        again = [dim for dim in variable.axes if variable.axes.count(dim) > 1]
        if again and (name in data or any(dim in variable.axes for dim in there)):
            left_out[name] = f"the dimension {again[0]!r} occurs {variable.axes.count(again[0])} times in it"
    data = [name for name in data if name not in left_out]
    needed = variables.keys() if request.variables is None else _needed(variables, data, request)
    taken: dict[str, Role] = {}
    for name, variable in variables.items():
        if name in data:
            taken[name] = "data"
        elif name not in needed or name in left_out:
            continue
        elif name in new_dims or (there and set(there) <= set(variable.axes) and not variable.is_text):
            taken[name] = "concat"
        elif variable.nbytes > LOAD_LIMIT:
            absent = " and ".join(repr(dim) for dim in request.dims if dim not in variable.axes)
            left_out[name] = (
                f"it has no dimension {absent} and is too large to be loaded from every file "
                f"({variable.nbytes >> 20} MiB)"
            )
        elif any(dim in variable.axes for dim in there):
            taken[name] = "concat"
        else:
            taken[name] = "static"
    return VariableRoles(
        taken, {name: reason for name, reason in left_out.items() if name in needed}, new_dims
    )


def _mentioned(variables: Iterable[ParsedVariable]) -> set[str]:
    """The variables that these name in their attributes."""
    texts = [text for each in variables for key in MENTIONS if isinstance(text := each.attrs.get(key), str)]
    return {name for text in texts for name in text.replace(":", " ").split()}


def _needed(variables: Mapping[str, ParsedVariable], data: list[str], request: ParseRequest) -> set[str]:
    """Coordinates, bounds and the like that the chosen data variables refer to."""
    names = {dim for name in data for dim in variables[name].axes} | {*request.dims, *request.load}
    chosen = [variables[name] for name in names | set(data) if name in variables]
    return names | _mentioned(chosen) | set(request.variables or ())
