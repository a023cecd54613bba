"""What a parser found in one source file: plain data that any process can hand to another."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from intarsia.archives.sources import Identity

type Role = Literal["data", "joined", "static"]

SUPPORTED_KINDS = "biufcT"
"""Kinds of NumPy data types: numbers, bools and texts of any length."""

MENTIONS = ("coordinates", "bounds", "climatology", "grid_mapping")
"""Attributes in which CF names other variables."""

LOAD_LIMIT = 64 << 20
"""A variable without the concatenation dimension is loaded from every file, up to this size."""


@dataclass(frozen=True, slots=True)
class Want:
    """What the caller asked of every file."""

    concat_dim: str
    """The dimension along which files follow one another."""

    variables: tuple[str, ...] | None = None
    """Data variables to take; None means all of them."""

    load: tuple[str, ...] = ()
    """Variables to load into plain arrays although they would be data."""


@dataclass(frozen=True, slots=True)
class Description:
    """A variable before anything of it is read."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    attrs: Mapping[str, Any]
    """Its attributes, numbers with the type that they have in the file."""

    dtype: np.dtype[Any]
    """What is stored."""

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def parsed(self, name: str, role: Role, **more: Any) -> "ParsedVariable":
        """The variable that this describes, with more fields of it."""
        return ParsedVariable(name, role, self.dims, self.shape, dict(self.attrs), self.dtype, **more)


@dataclass(slots=True)
class ChunkRanges:
    """Where the chunks of a variable are, over its chunk grid."""

    locations: str | np.ndarray[Any, Any]
    """One URL for all chunks, or one for each; an empty one means that the chunk is not stored."""

    offsets: np.ndarray[Any, np.dtype[np.uint64]]
    """First byte of each chunk."""

    lengths: np.ndarray[Any, np.dtype[np.uint64]]
    """Number of bytes of each chunk; 0 means that the chunk is not stored."""

    masks: np.ndarray[Any, np.dtype[np.uint32]] | None = None
    """Bit i set: this chunk skipped filter i (HDF5's filter mask). None: no chunk skipped any."""

    inlined: Mapping[tuple[int, ...], bytes] = field(default_factory=dict)
    """Encoded chunks that the parser made itself, because the file does not hold them as such."""

    @property
    def grid(self) -> tuple[int, ...]:
        grid: tuple[int, ...] = self.offsets.shape
        return grid

    def urls(self) -> list[str]:
        """Every distinct location."""
        if isinstance(self.locations, str):
            return [self.locations] if bool(self.lengths.any()) else []
        return [url for url in np.unique(self.locations).tolist() if url]


@dataclass(slots=True)
class ParsedVariable:
    """One variable of one file: how it is stored, and either its ranges or its values."""

    name: str
    """As in the file."""

    role: Role
    """`data` becomes a logical array; `joined` is loaded and runs along the dimension; `static` is loaded."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    attrs: dict[str, Any]
    """Its attributes, numbers with the type that they have in the file."""

    dtype: np.dtype[Any]
    """What is stored, in this machine's byte order."""

    chunks: tuple[int, ...] = ()
    """Shape of what one reference holds."""

    codecs: tuple[dict[str, Any], ...] = ()
    """How the bytes of a chunk become an array of `dtype`."""

    fill: Any = None
    """Stored value of chunks that are not stored."""

    ranges: ChunkRanges | None = None
    """Where the chunks are; None when only a copy will do."""

    reason: str = ""
    """Why only a copy will do."""

    values: np.ndarray[Any, Any] | None = None
    """What was loaded."""

    @property
    def loaded(self) -> np.ndarray[Any, Any]:
        """The values of a variable that was loaded."""
        assert self.values is not None
        return self.values

    def axis(self, dim: str) -> int:
        return self.dims.index(dim)

    def cross(self, dim: str) -> tuple[int, ...]:
        """Sizes of all axes but one."""
        return tuple(n for n, name in zip(self.shape, self.dims, strict=True) if name != dim)


@dataclass(slots=True)
class ParsedFile:
    """One source file."""

    url: str
    identity: Identity
    """Which content it had when it was parsed."""

    format: str
    """What kind of file it is, in a word."""

    variables: dict[str, ParsedVariable]
    attrs: dict[str, Any] = field(default_factory=dict)
    """Of the file as a whole."""

    left_out: dict[str, str] = field(default_factory=dict)
    """Variables that were not taken, and why."""

    new_dim: bool = False
    """Whether the file lacks the concatenation dimension, and is one step of it."""

    referenced: Identity | None = None
    """Which content the files have that a file of references points to."""

    def lengths(self, dim: str) -> dict[str, int]:
        """How many steps along a dimension each variable has that runs along it."""
        return {
            name: variable.shape[variable.axis(dim)]
            for name, variable in self.variables.items()
            if variable.role != "static" and dim in variable.dims
        }

    def steps(self, dim: str) -> int:
        """How many steps the file has: those of its coordinate, or of its longest variable.

        What a shorter variable lacks is a hole, as in a NetCDF file with an unlimited dimension.
        """
        lengths = self.lengths(dim)
        return lengths.get(dim, max(lengths.values(), default=0))


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be parsed."""

    url: str
    reason: str
    """What is wrong with it."""


def read_stored(source: Any, selection: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Values of an HDF5 dataset or a Zarr array in this machine's byte order; of the type `str` as texts."""
    if isinstance(dtype, np.dtypes.StringDType) and hasattr(source, "asstr"):
        return np.asarray(source.asstr()[selection], dtype=dtype)
    values = np.asarray(source[selection])
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def is_one_step(described: Mapping[str, Description], want: Want) -> bool:
    """Whether a file lacks the concatenation dimension, and is one step of it."""
    return not any(want.concat_dim in variable.dims for variable in described.values())


def roles(described: Mapping[str, Description], want: Want) -> tuple[dict[str, Role], dict[str, str]]:
    """What becomes of every variable of a file; and what is left out, with the reason.

    What runs along the dimension is data, unless it is a coordinate or something that CF attributes name.
    """
    dim = want.concat_dim
    new_dim = is_one_step(described, want)
    loaded = {name for name, variable in described.items() if variable.dims == (name,)}
    loaded |= _mentioned(described.values()) | {dim, *want.load}
    data = [
        name for name, variable in described.items()
        if name not in loaded and (new_dim or dim in variable.dims) and variable.dims
    ]  # fmt: skip
    if want.variables is not None:
        data = [name for name in data if name in want.variables]
    left_out = {
        name: f"values of the type {described[name].dtype} are not supported"
        for name, variable in described.items() if variable.dtype.kind not in SUPPORTED_KINDS
    }  # fmt: skip
    data = [name for name in data if name not in left_out]
    needed = described.keys() if want.variables is None else _needed(described, data, want)
    taken: dict[str, Role] = {}
    for name, variable in described.items():
        if name in data:
            taken[name] = "data"
        elif name not in needed or name in left_out:
            continue
        elif dim in variable.dims or (new_dim and name == dim):
            taken[name] = "joined"
        elif variable.nbytes > LOAD_LIMIT:
            left_out[name] = (
                f"it has no dimension {dim!r} and is too large to be loaded from every file "
                f"({variable.nbytes >> 20} MiB)"
            )
        else:
            taken[name] = "static"
    return taken, {name: reason for name, reason in left_out.items() if name in needed}


def _mentioned(variables: Iterable[Description]) -> set[str]:
    """Variables that these name in their attributes."""
    texts = [text for each in variables for key in MENTIONS if isinstance(text := each.attrs.get(key), str)]
    return {name for text in texts for name in text.replace(":", " ").split()}


def _needed(described: Mapping[str, Description], data: list[str], want: Want) -> set[str]:
    """Coordinates, bounds and the like that the chosen data variables refer to."""
    names = {dim for name in data for dim in described[name].dims} | {want.concat_dim, *want.load}
    known = [described[name] for name in names | set(data) if name in described]
    return names | _mentioned(known) | set(want.variables or ())
