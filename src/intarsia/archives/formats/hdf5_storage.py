"""How a dataset of an HDF5 file is stored: what its header says, its codecs, and where its chunks are.

Archives are thousands of small files: most of the time goes into making and freeing Python objects for what
HDF5 holds. The high-level interface of h5py makes several for every question, so headers are read once,
through the low-level one.

Codecs have the names that VirtualiZarr gives them. They depend only on a dataset's shape, type, filters and
fill value. Files of an archive repeat the same ones, so VirtualiZarr is asked once for each, and the places
of chunks are read here.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from intarsia._compat import hdf5_manifest_array
from intarsia.archives.cf import FILE_MATTERS
from intarsia.archives.formats.hdf5_bytes import HeapReader, has_endless_heap, leaves_edges_bare
from intarsia.archives.formats.virtualizarr import parsed_variable
from intarsia.archives.parsed_file import ChunkRanges, Description, ParsedVariable
from intarsia.extras import extra
from intarsia.manifest.box import chunk_grid

HIDDEN = FILE_MATTERS | {"_Netcdf4Coordinates", "_nc3_strict"}

DIMENSION_LIST = b"DIMENSION_LIST"
"""The attribute that names the scales of a dataset's axes."""

MOST_TYPES = 1_000
"""How many types of attributes and values are remembered."""

_types: dict[bytes, tuple[np.dtype[Any], Any]] = {}
"""Types by their encoding in HDF5: NumPy's type, and HDF5's type in this machine's memory."""


@cache
def library() -> Any:
    """h5py, for a file that is already open, so that there is no need to check whether it is installed."""
    return extra("h5py", "virtual")


@contextmanager
def opened_file(reader: Any) -> Iterator[Any]:
    """The identifier of an HDF5 file; a file that is all in memory is not read through Python."""
    h5py = extra("h5py", "virtual")
    image = None
    if isinstance(reader, io.BytesIO) and not has_endless_heap(reader.getvalue()):
        with suppress(ValueError, OSError):  # the other way says what is wrong with it
            image = h5py.h5f.open_file_image(reader.getvalue())
    if image is None:
        with h5py.File(HeapReader(reader), "r") as file:
            yield file.id
        return
    try:
        yield image
    finally:
        image.close()


def text(name: bytes) -> str:
    """A name as h5py returns it."""
    return name.decode("utf-8", "surrogateescape")


class Header:
    """A dataset of an open file."""

    def __init__(self, found: Any, path: str) -> None:
        self.id = found
        self.path = path
        """Its path from the root of its file."""
        self.is_scale: bool = library().h5ds.is_scale(found)

    @cached_property
    def shape(self) -> Any:
        """Its length along every axis; None if it has no data space."""
        return self.id.shape

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The stored type; not every type is one of NumPy's."""
        return _type_of(self.id)[0]

    @cached_property
    def plist(self) -> Any:
        """Its creation properties."""
        return self.id.get_create_plist()

    @property
    def dataset(self) -> Any:
        """The dataset as an h5py object, with everything that it can do."""
        return library().Dataset(self.id)

    @cached_property
    def names(self) -> list[bytes]:
        """The names of its attributes."""
        return _names(self.id, self.plist)

    def attributes(self) -> dict[str, Any]:
        """Its attributes with their types in the file; texts as text."""
        return _values(self.id, self.names)

    def scales(self) -> list[Any]:
        """The dimension scale of every axis, or the first of several; None if there is none."""
        h5ds = library().h5ds
        found = []
        for axis in range(len(self.shape) if DIMENSION_LIST in self.names else 0):
            known: list[Any] = []
            if h5ds.get_num_scales(self.id, axis):
                h5ds.iterate(self.id, axis, known.append, 0)
            found.append(known[0] if known else None)
        return found or [None] * len(self.shape)

    def read(self, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """All numbers, with the same type in this machine's byte order."""
        everything = library().h5s.ALL
        values = np.empty(self.shape, dtype=dtype)
        self.id.read(everything, everything, values)
        return values


def words_of_unread(dataset: Any, error: Exception) -> str:
    """Why a dataset cannot be read: filters that are not installed, or what HDF5 says."""
    plist = dataset.get_create_plist()
    filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    absent = [
        f"{code} ({text(name.rstrip(bytes(1)))})" if name else str(code)
        for code, _, _, name in filters
        if not library().h5z.filter_avail(code)
    ]
    if absent:
        return (
            f"it cannot be read: its HDF5 filter {' and '.join(absent)} is not installed "
            "(many are in hdf5plugin: import it before you ingest)"
        )
    return f"it cannot be read: {error}"


def attributes_of(group: Any) -> dict[str, Any]:
    """The attributes of a group."""
    return _values(group, _names(group, group.get_create_plist()))


def _names(bearer: Any, plist: Any) -> list[bytes]:
    h5py = library()
    if not h5py.h5a.get_num_attrs(bearer):
        return []
    by_age = plist.get_attr_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
    found: list[bytes] = []
    h5py.h5a.iterate(
        bearer, found.append, index_type=h5py.h5.INDEX_CRT_ORDER if by_age else h5py.h5.INDEX_NAME
    )
    return found


def _values(bearer: Any, names: list[bytes]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for stored in names:
        name = text(stored)
        if name in HIDDEN:
            continue
        try:
            value = _value(bearer, stored)
        except (OSError, TypeError):  # a type that h5py does not know
            continue
        if isinstance(value, library().h5r.Reference):
            continue  # it points into this file
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, np.ndarray):
            if value.dtype.kind == "S":
                value = np.strings.decode(value, "utf-8", "replace")
            if value.dtype.kind == "O" and not all(isinstance(each, str) for each in value.flat):
                continue  # object references
            value = value.reshape(-1)[0] if value.size == 1 else value
        attributes[name] = str(value) if isinstance(value, str) else value
    return attributes


def _value(bearer: Any, name: bytes) -> Any:
    """One attribute as it is stored; an empty one as an empty text."""
    h5py = library()
    attribute = h5py.h5a.open(bearer, name)
    shape = attribute.shape
    if shape is None:
        return ""
    dtype, memory = _type_of(attribute)
    is_text = dtype.kind == "O" and h5py.check_string_dtype(dtype) is not None
    if dtype.kind not in "iufS" and not is_text:
        return h5py.AttributeManager(Bearer(bearer))[text(name)]
    values = np.zeros(shape, dtype=dtype)
    attribute.read(values, mtype=memory)
    if is_text:
        flat = [each.decode("utf-8", "surrogateescape") for each in values.flat]
        values = np.array(flat, dtype=object).reshape(shape)
    return values if shape else values[()]


class Bearer:
    """A holder of attributes, in the form that h5py expects."""

    def __init__(self, found: Any) -> None:
        self.id = found


def _type_of(stored: Any) -> tuple[np.dtype[Any], Any]:
    """The NumPy type of a dataset or an attribute, and the HDF5 type for memory."""
    h5t = library().h5t
    kind = stored.get_type()
    if kind.get_class() not in (h5t.INTEGER, h5t.FLOAT, h5t.STRING, h5t.ENUM):
        dtype = kind.dtype  # other types may refer to their file
        return dtype, h5t.py_create(dtype)
    code = kind.encode()
    found = _types.get(code)
    if found is None:
        if len(_types) >= MOST_TYPES:
            _types.clear()
        dtype = kind.dtype
        found = _types[code] = dtype, h5t.py_create(dtype)
    return found


MOST_KINDS = 1_000
"""How many kinds of datasets are remembered."""


class Encoded(NamedTuple):
    """How the chunks of one kind of dataset are encoded."""

    chunks: tuple[int, ...]
    codecs: tuple[dict[str, Any], ...]
    fill: Any


_known: dict[Any, Encoded] = {}


class Storage:
    """How a dataset is stored, which decides whether it can be referenced."""

    def __init__(self, header: Header, reader: Any) -> None:
        h5d = library().h5d
        plist = header.plist
        layout = plist.get_layout()
        self.filters = plist.get_nfilters()
        self.chunks = plist.get_chunk() if layout == h5d.CHUNKED else None
        self.header = header
        self.reason = ""
        if layout == h5d.COMPACT:
            self.reason = "its data are in the header of the dataset (compact layout)"
        elif layout == h5d.VIRTUAL:
            self.reason = "it is a virtual dataset, made of others"
        elif plist.get_external_count():
            self.reason = "its data are in external files"
        self.places: list[Any] = []
        """For every stored chunk: its first element, the filters that it skipped, first byte and size."""
        if self.chunks is not None and not self.reason:
            header.id.chunk_iter(self.places.append)
        cut = self.chunks is not None and self.filters and _is_cut(header.shape, self.chunks)
        self.bare_edges = bool(cut) and leaves_edges_bare(header.id, reader)
        """Whether chunks that the end of an axis cuts off skip all filters."""

    def variable(self, name: str, url: str, description: Description) -> ParsedVariable:
        """The parsed variable, with the filters that individual chunks skipped."""
        kind = self._kind(description)
        encoded = _known.get(kind)
        if self.reason:
            return self._copied(name, description, self.reason)
        if encoded is None:
            extra("virtualizarr.parsers", "virtual")
            manifest_array = hdf5_manifest_array()
            try:
                dataset = self.header.dataset
                array = manifest_array(url, dataset, dataset.parent.name)
            except Exception as error:
                return self._copied(name, description, f"it cannot be referenced: {error}")
            found = parsed_variable(name, "data", array, description)
            if kind is None or found.reason:
                return found
            encoded = Encoded(found.chunks, found.codecs, found.fill)
            if len(_known) >= MOST_KINDS:
                _known.clear()
            _known[kind] = encoded
        chunks, codecs, fill = encoded
        ranges = self._ranges(url, description, chunks)
        codecs = tuple(map(dict, codecs))
        variable = description.parsed(name, "data", chunks=chunks, codecs=codecs, fill=fill, ranges=ranges)
        return self._with_masks(variable, ranges)

    def _kind(self, description: Description) -> Any:
        """Everything that the encoding of its chunks depends on; None if it depends on more than this."""
        dtype = self.header.dtype
        if dtype.kind not in "biufc":
            return None
        plist = self.header.plist
        filters = tuple(plist.get_filter(i) for i in range(self.filters))
        fill = np.zeros(1, dtype=dtype)
        try:
            plist.get_fill_value(fill)
        except RuntimeError:  # it has none
            return description.shape, self.chunks, dtype.str, filters, None
        return description.shape, self.chunks, dtype.str, filters, fill.tobytes()

    def _copied(self, name: str, description: Description, reason: str) -> ParsedVariable:
        """A variable that cannot be referenced."""
        grain = self.chunks or tuple(max(n, 1) for n in description.shape)
        chunks = tuple(min(c, max(n, 1)) for c, n in zip(grain, description.shape, strict=True))
        return description.parsed(name, "data", chunks=chunks, reason=reason)

    def _ranges(self, url: str, description: Description, chunks: tuple[int, ...]) -> ChunkRanges:
        grid = chunk_grid(description.shape, chunks)
        offsets, lengths = np.zeros(grid, dtype=np.uint64), np.zeros(grid, dtype=np.uint64)
        if self.chunks is None:
            at = self.header.id.get_offset()
            if at is not None and offsets.size:
                offsets[...], lengths[...] = at, self.header.id.get_storage_size()
        elif self.places:
            first, _, at, size = zip(*self.places, strict=True)
            index = tuple((np.array(first, dtype=np.int64) // np.array(chunks)).T)
            offsets[index] = at
            # VirtualiZarr takes only the inner part of a chunk that the end of the array cuts off, if that
            # part is the beginning of its bytes
            trimmed = chunks != self.chunks
            lengths[index] = int(np.prod(chunks)) * self.header.dtype.itemsize if trimmed else size
        return ChunkRanges(url if lengths.any() else "", offsets, lengths)

    def _with_masks(self, variable: ParsedVariable, ranges: ChunkRanges) -> ParsedVariable:
        skipped = [place for place in self.places if place[1]] if self.filters else []
        if not skipped and not self.bare_edges:
            return variable
        steps = sum(1 for codec in variable.codecs if codec["name"] != "bytes")
        if steps != self.filters:
            variable.ranges = None
            variable.reason = (
                f"some chunks skipped a filter, and its {self.filters} filters do not correspond to {steps} "
                "codecs"
            )
            return variable
        ranges.masks = np.zeros(ranges.grid, dtype=np.uint32)
        for first, mask, *_ in skipped:
            ranges.masks[tuple(a // c for a, c in zip(first, variable.chunks, strict=True))] = mask
        if self.bare_edges:
            for axis, (n, c) in enumerate(zip(variable.shape, variable.chunks, strict=True)):
                if n % c:
                    np.moveaxis(ranges.masks, axis, 0)[-1] = (1 << self.filters) - 1
        return variable


def _is_cut(shape: tuple[int, ...], chunks: tuple[int, ...]) -> bool:
    return any(n % c for n, c in zip(shape, chunks, strict=True))
