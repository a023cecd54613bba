"""HDF5 and NetCDF4, read with h5py: variables, dimensions and attributes, codecs, and where chunks are.

`HDF5` parses a file. `Header` and `Storage` say how one dataset is stored. Archives are thousands of small
files: most of the time goes into making and freeing Python objects for what HDF5 holds. The high-level
interface of h5py makes several for every question, so headers are read once, through the low-level one.

Codecs have the names that VirtualiZarr gives them. They depend only on a dataset's shape, type, filters and
fill value, and files of an archive repeat the same ones: VirtualiZarr is asked once for each.

HDF5 is given the bytes of one file, and opens every other file that is named in it through the same bytes: it
finds this file again, under the wrong name. So links are followed here, as far as they stay in the file, and
datasets whose values are in other files are recognised by their creation properties. Even the shape of a
virtual dataset may depend on other files.

Two things are read byte by byte. Object headers say whether partial chunks skip all filters, which h5py does
not. Global heaps are checked before HDF5 reads them: some damage sends it into an endless loop.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, cached_property
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from intarsia._compat import hdf5_manifest_array
from intarsia.archives.cf import FILE_MATTERS, loaded, with_texts
from intarsia.archives.formats.virtualizarr import parsed_variable
from intarsia.archives.locations import ReaderAround, Sources, folder_of, url_of
from intarsia.archives.parsed_file import (
    PHONY,
    ChunkRanges,
    Description,
    ParsedFile,
    ParsedVariable,
    ParseRequest,
    lacking,
    rename_variables,
    roles,
)
from intarsia.errors import IngestError
from intarsia.extras import extra
from intarsia.manifest.box import chunk_grid

NOT_A_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
NON_COORDINATE = "_nc4_non_coord_"
"""The prefix of a NetCDF variable that has the name of a dimension but is not its coordinate."""


class HDF5:
    """Parses HDF5 and NetCDF4 files, or one group of each."""

    name = "hdf5"

    def __init__(self, group: str = "/", drop: tuple[str, ...] = ()) -> None:
        self.group = "/" + group.strip("/")
        self.drop = drop

    def parse(self, url: str, sources: Sources, request: ParseRequest) -> ParsedFile:
        """The wanted variables of a file."""
        sources.resolve(url)
        moved = sources.permissions.checked([url], folder_of(url))
        with sources.reader(url) as reader, open_file(reader) as file:
            group = self._group(file)
            headers, unread, named, outside = self._axes_of(group, url, sources)
            first = self._phony_above(file, url, sources) if request.whole_tree else 0
            phony = PhonyDimensions(
                (_bare_sizes(headers[name], names) for name, names in named.items()), first
            )
            described = {name: _described(headers[name], names, phony) for name, names in named.items()}
            described = with_texts(described, request)
            names = {new: old for old, new in request.rename}
            for name in (*request.dims, *(request.variables or ()), *request.load):
                if (own := names.get(name, name)) in outside:
                    raise IngestError(f"its variable {own!r} cannot be read: {outside[own]}")
            taken, left_out = roles(described, request)
            left_out |= unread
            variables = {}
            for name, role in taken.items():
                if role == "data":
                    storage = Storage(headers[name], reader)
                    variables[name] = variable = storage.variable(name, url, described[name])
                    if variable.ranges is not None:
                        variable.ranges.move(moved)
                    continue
                try:
                    variables[name] = _loaded(name, role, headers[name], described[name])
                except OSError as error:
                    if name in request.in_file(described).dims:
                        raise
                    left_out[name] = unreadable_text(headers[name].id, error)
            data = [name for name, role in taken.items() if role == "data"]
            groups = () if data else tuple(_groups_with_variables(group))
            attrs = attributes_of(group)
        for name in data:
            variable = variables[name]
            problem = self._unreadable(url, sources, variable) if variable.ranges is None else ""
            if problem:
                left_out[name] = problem
                del variables[name]
        new_dims = lacking(described, request)
        parsed_file = ParsedFile(
            url, sources.identity(url), self.name, variables, attrs, left_out, new_dims, groups
        )
        masked = [name for name in described if name.startswith(NON_COORDINATE)]
        return rename_variables(
            parsed_file, tuple((name, name.removeprefix(NON_COORDINATE)) for name in masked)
        )

    def _axes_of(
        self, group: Any, url: str, sources: Sources
    ) -> tuple[dict[str, Header], dict[str, str], dict[str, list[str]], dict[str, str]]:
        """The datasets in a group; those that cannot be read, and why; the axes of the others; and, of those
        that cannot be read, the ones in other files."""
        above = "" if self.group == "/" else self.group
        objects, elsewhere = objects_in(group, self.drop)
        found = {
            name: Header(item, f"{above}/{name}") for name, item in objects.items() if _is_variable(item)
        }
        outside = elsewhere | _elsewhere(found, url, sources)
        headers = {name: each for name, each in found.items() if name not in outside}
        axes = _Axes(self.group, objects)
        scales = {name: axes.scales(header) for name, header in headers.items()}
        known = {*found, *elsewhere, *self.drop}
        more = {name: each for name, each in axes.inherited(scales).items() if name not in known}
        outside |= _elsewhere(more, url, sources)
        more = {
            name: each for name, each in more.items() if name not in outside and len(each.shape or ()) == 1
        }
        headers, scales = headers | more, scales | dict.fromkeys(more, ())
        unread = {name: why for name, header in headers.items() if (why := _untyped(header))} | outside
        full = {name: header for name, header in headers.items() if name not in unread}
        named = {name: axes.named(header, scales[name]) for name, header in full.items()}
        return headers, unread, named, outside

    def _phony_above(self, file: Any, url: str, sources: Sources) -> int:
        """How many names the groups above this one have for axes without a dimension scale."""
        if self.group == "/":
            return 0
        above = HDF5(self.group.rpartition("/")[0], self.drop)
        headers, _, named, _ = above._axes_of(above._group(file), url, sources)
        sizes = (_bare_sizes(headers[name], names) for name, names in named.items())
        return PhonyDimensions(sizes, above._phony_above(file, url, sources)).end

    def groups(self, url: str, sources: Sources) -> list[str]:
        """The paths of all groups."""
        h5py = extra("h5py", "virtual")
        found = [""]

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Group):
                found.append(name)

        with sources.reader(url) as reader, h5py.File(HeapReader(reader), "r") as file:
            _visit(file, note)
        return found

    def _group(self, file: Any) -> Any:
        h5py = extra("h5py", "virtual")
        try:
            group = find(file, self.group.encode("utf-8", "surrogateescape"))
        except KeyError:
            group = None
        except OtherFileError as error:
            raise IngestError(f"its group {self.group.strip('/')!r} cannot be read: {error}") from None
        if not isinstance(group, h5py.h5g.GroupID):
            raise IngestError(f"it has no group {self.group.strip('/')!r}")
        return group

    def _unreadable(self, url: str, sources: Sources, variable: ParsedVariable) -> str:
        """Why a variable that has to be copied cannot be: a filter or an external file is missing."""
        if 0 in variable.shape:
            return ""
        with self.opened(url, sources, variable.name) as dataset:
            try:
                dataset[(0,) * len(variable.shape)]
            except OSError as error:
                return f"{unreadable_text(dataset.id, error)} ({variable.reason})"
        return ""

    @contextmanager
    def opened(self, url: str, sources: Sources, name: str) -> Iterator[Any]:
        """A variable's stored numbers, to be read in slices."""
        with sources.reader(url) as reader, extra("h5py", "virtual").File(HeapReader(reader), "r") as file:
            found = find(self._group(file.id), name.encode("utf-8", "surrogateescape"))
            check_storage(found, found.get_create_plist(), url, sources)
            yield library().Dataset(found)


def _elsewhere(headers: Mapping[str, Header], url: str, sources: Sources) -> dict[str, str]:
    """The datasets whose values are in other files that are not read, and why."""
    found = {}
    for name, header in headers.items():
        try:
            check_storage(header.id, header.plist, url, sources)
        except OtherFileError as error:
            found[name] = str(error)
    return found


def _untyped(header: Header) -> str:
    """Why a dataset cannot be read: it has no elements, or h5py does not know their type."""
    if header.shape is None:
        return "it has no data space: nothing can be read from it"
    try:
        header.dtype  # noqa: B018 - the property does the work
    except (TypeError, ValueError) as error:  # ValueError for floats that are longer than this machine's
        return f"h5py cannot read its type: {error}"
    return ""


def _groups_with_variables(group: Any) -> list[str]:
    """The paths of the groups below that hold variables."""
    found: dict[str, None] = {}
    whole = library().Group(group)

    def note(name: str, item: Any) -> None:
        above = name.rpartition("/")[0]
        if above and _is_variable(item.id):
            found[f"{whole.name}/{above}".lstrip("/")] = None

    _visit(whole, note)
    return sorted(found)


def _visit(group: Any, note: Callable[[str, Any], None]) -> None:
    """Call a function with everything below a group."""
    try:
        group.visititems(note)
    except (RuntimeError, OSError, KeyError) as error:
        raise IngestError(
            f"it is damaged or truncated: HDF5 cannot list what it holds ({' '.join(str(error).split())})"
        ) from error


class _Axes:
    """The names that dimension scales give the axes of the datasets in a group."""

    def __init__(self, path: str, objects: Mapping[str, Any]) -> None:
        self._path, self._objects = path, objects
        self._scales = {
            _place(item): f"{path.rstrip('/')}/{name}" for name, item in objects.items() if _is_scale(item)
        }

    def scales(self, header: Header) -> tuple[Any, ...]:
        """The dimension scale of every axis with its path, or None; nothing if `header` is itself a scale."""
        if header.shape is None or header.is_scale:
            return ()
        return tuple(None if scale is None else (self._name(scale), scale) for scale in header.scales())

    def _name(self, scale: Any) -> str:
        known = self._scales.get(_place(scale))
        return known or text(library().h5i.get_name(scale))

    def inherited(self, scales: Mapping[str, tuple[Any, ...]]) -> dict[str, Header]:
        """The scales of axes, by name: as in NetCDF, those in groups above also apply to the groups below."""
        named = {_short(each[0], self._path): each for own in scales.values() for each in own if each}
        return {
            name: Header(scale, path) for name, (path, scale) in named.items()
            if "/" not in name and _is_variable(scale)
        }  # fmt: skip

    def named(self, header: Header, scales: Sequence[Any]) -> list[str]:
        """The names of its axes; empty for axes without one."""
        if len(header.shape) == 1 and header.is_scale:
            return [_short(header.path, self._path)]
        named = self._netcdf_dims(header)
        if named:
            return named
        known = scales or (None,) * len(header.shape)
        return ["" if scale is None else _short(scale[0], self._path) for scale in known]

    def _netcdf_dims(self, header: Header) -> list[str]:
        """Dimensions, by id, of a NetCDF variable with several axes: as a scale itself, it has no scales."""
        if len(header.shape) < 2 or b"CLASS" not in header.names:
            return []
        ids = header.dataset.attrs.get("_Netcdf4Coordinates")
        if ids is None or len(ids) != len(header.shape):
            return []
        attributes = {
            name: library().AttributeManager(AttributeHolder(item)) for name, item in self._objects.items()
        }
        names = {
            int(attrs["_Netcdf4Dimid"]): name
            for name, attrs in attributes.items()
            if "CLASS" in attrs and "_Netcdf4Dimid" in attrs
        }
        return [names[i] for i in ids.tolist()] if names.keys() >= set(ids.tolist()) else []


def _place(item: Any) -> tuple[int, int]:
    """Where the header of an object is: no two objects share it."""
    info = library().h5o.get_info(item)
    return info.fileno, info.addr


def _short(scale: str, group: str) -> str:
    """The name of a dimension scale as seen from a group: plain if it is there or above."""
    above, _, name = scale.rpartition("/")
    stands_above = f"{group.rstrip('/')}/".startswith(f"{above}/")
    return name if stands_above else scale.removeprefix(group).removeprefix("/")


def _is_scale(item: Any) -> bool:
    h5py = library()
    return isinstance(item, h5py.h5d.DatasetID) and bool(h5py.h5ds.is_scale(item))


def _is_variable(item: Any) -> bool:
    h5py = library()
    if not isinstance(item, h5py.h5d.DatasetID):
        return False
    label = h5py.h5ds.get_scale_name(item) if h5py.h5ds.is_scale(item) else b""
    return not bytes(label or b"").startswith(NOT_A_VARIABLE)


class PhonyDimensions:
    """Names for axes without a dimension scale: one for each size, numbered as in h5netcdf.

    No two axes of a dataset share a name, so a size has as many names as one dataset has axes of that size.
    Numbers begin with `first`: below a group, those of the group are taken.

    >>> phony = PhonyDimensions([(4, 6), (9,), (6, 6)])
    >>> phony.names((4, 6)), phony.names((9,)), phony.names((6, 6))
    (['phony_dim_0', 'phony_dim_1'], ['phony_dim_3'], ['phony_dim_1', 'phony_dim_2'])
    """

    def __init__(self, datasets: Iterable[tuple[int, ...]], first: int = 0) -> None:
        times: dict[int, int] = {}
        for sizes in datasets:
            for size in sizes:
                times[size] = max(times.get(size, 0), sizes.count(size))
        self._sizes = [size for size, count in times.items() for _ in range(count)]
        self._first = first

    @property
    def end(self) -> int:
        """The number after the last one."""
        return self._first + len(self._sizes)

    def names(self, sizes: tuple[int, ...]) -> list[str]:
        """A name for each of these axes of one dataset."""
        left = list(enumerate(self._sizes))
        names = []
        for size in sizes:
            taken = next(entry for entry in left if entry[1] == size)
            left.remove(taken)
            names.append(f"{PHONY}{self._first + taken[0]}")
        return names


def _described(header: Header, axes: list[str], phony: PhonyDimensions) -> Description:
    dtype = header.dtype.newbyteorder("=")
    if dtype.kind == "O":
        string = library().check_string_dtype(header.dtype)
        if string is not None and string.length is None:
            dtype = np.dtypes.StringDType()
    spare = iter(phony.names(_bare_sizes(header, axes)))
    dims = tuple(axis or next(spare) for axis in axes)
    attrs = header.attributes()
    if dtype.kind == "b" and not attrs.keys().isdisjoint(("_FillValue", "missing_value")):
        dtype = np.dtype("i1")  # an enumeration of bytes, as in NetCDF: a bool cannot be missing
    return Description(dims, header.shape, attrs, dtype)


def _bare_sizes(header: Header, axes: Sequence[str]) -> tuple[int, ...]:
    """The lengths of the axes that no dimension scale names."""
    return tuple(size for size, axis in zip(header.shape, axes, strict=True) if not axis)


def _loaded(name: str, role: Any, header: Header, description: Description) -> ParsedVariable:
    """A variable with its stored values in memory."""
    if header.dtype.kind in "iuf" and 0 not in header.shape and not description.is_text:
        values = header.read(description.dtype)
    else:
        values = loaded(header.dataset, description)
        values = values.view(description.dtype) if values.dtype.kind == "b" else values
    return replace(description, dtype=values.dtype).parsed(name, role, values=values)


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
def open_file(reader: Any) -> Iterator[Any]:
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


def unreadable_text(dataset: Any, error: Exception) -> str:
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
        return h5py.AttributeManager(AttributeHolder(bearer))[text(name)]
    values = np.zeros(shape, dtype=dtype)
    attribute.read(values, mtype=memory)
    if is_text:
        flat = [each.decode("utf-8", "surrogateescape") for each in values.flat]
        values = np.array(flat, dtype=object).reshape(shape)
    return values if shape else values[()]


class AttributeHolder:
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


class ChunkEncoding(NamedTuple):
    """How the chunks of one kind of dataset are encoded."""

    chunks: tuple[int, ...]
    codecs: tuple[dict[str, Any], ...]
    fill: Any


_known: dict[Any, ChunkEncoding] = {}


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
        self.unfiltered_edges = bool(cut) and skips_filters_at_edges(header.id, reader)
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
            encoded = ChunkEncoding(found.chunks, found.codecs, found.fill)
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
        if not skipped and not self.unfiltered_edges:
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
        if self.unfiltered_edges:
            for axis, (n, c) in enumerate(zip(variable.shape, variable.chunks, strict=True)):
                if n % c:
                    np.moveaxis(ranges.masks, axis, 0)[-1] = (1 << self.filters) - 1
        return variable


def _is_cut(shape: tuple[int, ...], chunks: tuple[int, ...]) -> bool:
    return any(n % c for n, c in zip(shape, chunks, strict=True))


MOST_LINKS = 16
"""How many links in a row are followed: as many as HDF5 itself follows."""

OWN_FILE = "."
"""The name under which a virtual dataset refers to datasets in its own file."""

PREFIX = "HDF5_EXTFILE_PREFIX"
"""The environment variable that tells HDF5 in which directory external storage is."""

SHOWN = 3
"""How many other files are named."""


class OtherFileError(IngestError):
    """What a link leads to, or holds, is not in this file."""


def find(group: Any, path: bytes) -> Any:
    """The identifier of the object at a path.

    Raises `OtherFileError` if a link on the way leads to another file, `KeyError` if nothing is there.
    """
    h5py = library()
    here, names, followed = group, [path], 0
    while names:
        name, *names = names
        if b"/" in name:
            if name.startswith(b"/"):
                here = h5py.h5o.open(group, b"/")
            names = name.split(b"/") + names
            continue
        if name in (b"", b"."):
            continue
        if not isinstance(here, h5py.h5g.GroupID) or not here.links.exists(name):
            raise KeyError(text(path))
        kind = here.links.get_info(name).type
        if kind == h5py.h5l.TYPE_HARD:
            here = h5py.h5o.open(here, name)
        elif kind == h5py.h5l.TYPE_SOFT:
            followed += 1
            if followed > MOST_LINKS:
                raise OtherFileError(f"it is a link that leads through more than {MOST_LINKS} others")
            names = [here.links.get_val(name), *names]
        elif kind == h5py.h5l.TYPE_EXTERNAL:
            file, target = here.links.get_val(name)
            raise OtherFileError(
                f"{text(name)!r} is an external link to {text(target)!r} in the file {os.fsdecode(file)}, "
                "which is not followed: ingest that file itself"
            )
        else:
            raise OtherFileError(f"{text(name)!r} is a link of the unknown type {kind}")
    return here


def objects_in(group: Any, drop: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
    """Everything in a group by name, in its order; and the links that are not followed, and why."""
    found, left_out = {}, {}
    for name in group:
        if text(name) in drop:
            continue
        try:
            found[text(name)] = find(group, name)
        except KeyError:
            left_out[text(name)] = f"it is a link to {_target(group, name)}, which is not in the file"
        except OtherFileError as error:
            left_out[text(name)] = str(error)
    return found, left_out


def _target(group: Any, name: bytes) -> str:
    h5py = library()
    is_soft = group.links.get_info(name).type == h5py.h5l.TYPE_SOFT
    return repr(text(group.links.get_val(name))) if is_soft else "an object"


def check_storage(dataset: Any, plist: Any, url: str, sources: Sources) -> None:
    """Raise `OtherFileError` if values are in other files, except for external storage that may be read."""
    h5py = library()
    if plist.get_external_count():
        _check_files(plist, url, sources)
    if plist.get_layout() != h5py.h5d.VIRTUAL:
        return
    count = plist.get_virtual_count()
    parts = dict.fromkeys(
        (plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)) for i in range(count)
    )
    others = [f"{name!r} in the file {file}" for file, name in parts if file != OWN_FILE]
    if others:
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        raise OtherFileError(
            f"it is a virtual dataset, made of {', '.join(others[:SHOWN])}{more}, which is not followed: "
            "ingest what it is made of"
        )
    root = h5py.h5o.open(dataset, b"/")
    for _, name in parts:
        _check_part(root, name, url, sources)


def _check_part(root: Any, name: str, url: str, sources: Sources) -> None:
    """Raise `OtherFileError` unless a dataset of the same file can be part of a virtual one.

    A part that is virtual itself may lead in a circle, which HDF5 follows until it crashes.
    """
    h5py = library()
    if "%" in name:
        raise OtherFileError(f"it is a virtual dataset, made of a series of datasets, {name!r}")
    try:
        part = find(root, name.encode("utf-8", "surrogateescape"))
    except KeyError:
        return  # HDF5 shows the fill value there
    if not isinstance(part, h5py.h5d.DatasetID):
        return
    plist = part.get_create_plist()
    if plist.get_layout() == h5py.h5d.VIRTUAL:
        raise OtherFileError(f"it is a virtual dataset, made of {name!r}, which is virtual itself")
    check_storage(part, plist, url, sources)


def _check_files(plist: Any, url: str, sources: Sources) -> None:
    """Raise `OtherFileError` unless the source may refer to all files that hold the values."""
    names = [os.fsdecode(plist.get_external(i)[0]) for i in range(plist.get_external_count())]
    prefix = os.environ.get(PREFIX, "")
    if prefix and not all(map(os.path.isabs, names)):
        raise OtherFileError(f"its values are in {names[0]}, below what the variable {PREFIX} says: unset it")
    try:
        sources.permissions.checked(dict.fromkeys(map(url_of, names)), folder_of(url))
    except IngestError as error:
        raise OtherFileError(f"its values are in external files: {error}") from None
    gone = [name for name in names if not os.path.exists(name)]
    if gone:
        raise OtherFileError(f"its values are in the external file {gone[0]}, which does not exist")


LAYOUT, CONTINUATION = 8, 16
"""Types of messages in an object header."""


def skips_filters_at_edges(dataset: Any, reader: Any) -> bool:
    """Whether the layout of a dataset, given by its identifier, has H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS."""
    h5py = extra("h5py", "virtual")
    address = h5py.h5o.get_info(dataset).addr
    user_block = h5py.h5i.get_file_id(dataset).get_create_plist().get_userblock()
    for kind, content in _messages(reader, user_block, address):
        if kind == LAYOUT:  # version, class of the layout, flags; older versions have no flags
            return content[0] >= 4 and content[1] == 2 and bool(content[2] & 1)
    return False


def _messages(reader: Any, base: int, address: int) -> Iterator[tuple[int, bytes]]:
    """Type and content of every message in an object header, in either version that HDF5 specifies."""

    def read(at: int, count: int) -> bytes:
        reader.seek(base + at)
        data: bytes = reader.read(count)
        return data

    head = read(address, 64)
    is_new = head[:4] == b"OHDR"
    if is_new:
        flags = head[5]
        start = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)  # times, limits of attributes
        width = 1 << (flags & 3)
        blocks = [(address + start + width, int.from_bytes(head[start : start + width], "little"))]
        entry, skipped = Struct("<BHB"), 2 if flags & 4 else 0  # numbered in order of creation
    else:
        blocks = [(address + 16, int.from_bytes(head[8:12], "little"))]
        entry, skipped = Struct("<HHB3x"), 0
    while blocks:
        data, at = read(*blocks.pop(0)), 0
        while at + entry.size <= len(data):
            kind, length, _ = entry.unpack_from(data, at)
            at += entry.size + skipped
            content = data[at : at + length]
            if kind == CONTINUATION:
                place, size = Struct("<QQ").unpack_from(content)
                blocks.append((place + 4, size - 8) if is_new else (place, size))  # signature, checksum
            yield kind, content
            at += length


SIGNATURE = b"GCOL\x01\0\0\0"
HEAD, OBJECT = Struct("<8sQ"), Struct("<H6xQ")
"""The heads of a collection (signature and size) and of an object (number first, size last)."""

MOST_HEAP_BYTES = 1 << 24

FURTHEST = 1 << 63
"""HDF5 counts modulo twice this: so long a step leads backwards, or nowhere."""


class HeapReader(ReaderAround):
    """Reads for HDF5, and refuses a global heap with a step that does not lead forwards."""

    def readinto(self, buffer: Any, /) -> int:
        start = self.tell()
        count: int = self._reader.readinto(buffer)
        heap = bytes(memoryview(buffer)[:count]).find(SIGNATURE)
        if heap >= 0:
            self._check(start + heap)
            self.seek(start + count)
        return count

    def _check(self, start: int) -> None:
        self.seek(start)
        head = self._reader.read(HEAD.size)
        if len(head) < HEAD.size:
            return
        _, size = HEAD.unpack(head)
        heap = head + self._reader.read(max(0, min(size, MOST_HEAP_BYTES) - HEAD.size))
        if is_endless(heap):
            raise OSError(
                f"the global heap at byte {start} is damaged: "
                "free space in it has no length, or an object in it is larger than any file"
            )


def has_endless_heap(content: bytes) -> bool:
    """Whether anything in a file that looks like a global heap has no end.

    >>> has_endless_heap(b"data" + HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 8) + bytes(32))
    True
    """
    start = content.find(SIGNATURE)
    while start >= 0:
        size = HEAD.unpack_from(content, start)[1] if start + HEAD.size <= len(content) else 0
        if is_endless(content[start : start + min(size, MOST_HEAP_BYTES)]):
            return True
        start = content.find(SIGNATURE, start + 1)
    return False


def is_endless(heap: bytes) -> bool:
    """Whether going from object to object in a collection never ends.

    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 8) + bytes(8) + OBJECT.pack(0, 24) + bytes(8))
    False
    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 8) + bytes(32))
    True
    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 2**64 - 1) + bytes(32))
    True
    """
    at = HEAD.size
    while at + OBJECT.size <= len(heap):
        number, size = OBJECT.unpack_from(heap, at)
        step = OBJECT.size + (size + 7) // 8 * 8 if number else size
        if not 0 < step < FURTHEST:
            return True
        at += step
    return False
