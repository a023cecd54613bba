"""HDF5 and NetCDF4, read with h5py: variables, dimensions and attributes, codecs, and where chunks are.

Archives are thousands of small files: most of the time goes into making and freeing Python objects for what
HDF5 holds. The high-level interface of h5py makes several for every question, so datasets are read through
the low-level one.

HDF5 is given the bytes of one file, and opens every other file that is named in it through the same bytes: it
finds this file again, under the wrong name. So links are followed here, as far as they stay in the file, and
datasets whose values are in other files are recognised by their creation properties. Even the shape of a
virtual dataset may depend on other files.

Global heaps are checked before HDF5 reads them: some damage sends it into an endless loop.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, cached_property
from struct import Struct
from types import SimpleNamespace
from typing import Any

import numpy as np

from intarsia.archives.cf import FILE_MATTERS, load_values
from intarsia.archives.formats.format import Format, SourceGroup, UnreadableVariableError
from intarsia.archives.formats.virtualizarr import specified_codec
from intarsia.archives.parsed_file import PHONY, ChunkRanges, ParsedVariable
from intarsia.archives.source_files import FormatProbe, Sources, folder_of, url_of
from intarsia.display import one_line
from intarsia.errors import IngestError, MissingExtraError
from intarsia.extras import import_extra
from intarsia.manifest.box import chunk_grid

MAGIC = b"\x89HDF\r\n\x1a\n"
USER_BLOCKS = (0, 512, 1024, 2048, 4096, 8192)
"""Where the signature may be."""

NOT_A_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
NON_COORDINATE = "_nc4_non_coord_"
"""The prefix of a NetCDF variable that has the name of a dimension but is not its coordinate."""


def recognise(probe: FormatProbe, sources: Sources, group: str) -> HDF5 | None:
    """The format, if a file has the signature of HDF5 where it may be."""
    return HDF5(group) if any(probe.head.startswith(MAGIC, start) for start in USER_BLOCKS) else None


class HDF5(Format):
    """Parses HDF5 and NetCDF4 files, or one group of each."""

    name = "hdf5"

    def __init__(self, group: str = "/", drop: tuple[str, ...] = ()) -> None:
        self.group = "/" + group.strip("/")
        self.drop = drop

    @contextmanager
    def open(self, url: str, sources: Sources, *, whole_tree: bool = False) -> Iterator[HDF5Group]:
        """The group that was chosen."""
        moved = sources.permissions.checked([url], folder_of(url))
        with sources.reader(url) as reader, open_hdf5(reader) as file:
            above = self.group.rstrip("/").split("/")
            first = 0
            for depth in range(1, len(above)) if whole_tree else ():
                first = HDF5Group(file, "/".join(above[:depth]) or "/", self.drop, url, sources, first).end
            group = HDF5Group(file, self.group, self.drop, url, sources, first)
            group.url = moved.get(url, url)
            yield group


def find_group(file: Any, path: str) -> Any:
    """A group of an open file; raises `IngestError` if there is none."""
    try:
        group = find(file, path.encode("utf-8", "surrogateescape"))
    except KeyError:
        group = None
    except OtherFileError as error:
        raise IngestError(f"its group {path.strip('/')!r} cannot be read: {error}") from None
    if not isinstance(group, library().h5g.GroupID):
        raise IngestError(f"it has no group {path.strip('/')!r}")
    return group


class HDF5Group(SourceGroup):
    """One group of an open file: its datasets, and the names that dimension scales give their axes."""

    elsewhere: dict[str, str]

    def __init__(
        self, file: Any, path: str, drop: Collection[str], url: str, sources: Sources, first: int
    ) -> None:
        self.id = find_group(file, path)
        self.url = url
        self._path = path
        attributes = attributes_of(self.id)
        self.attrs = plain_attributes(attributes, attributes)
        objects, self.elsewhere = objects_in(self.id, drop)
        """Datasets and links that lead to other files, by name, and why they are not read."""
        above = path.rstrip("/")
        datasets = {
            name: Header(item, f"{above}/{name}")
            for name, item in objects.items()
            if isinstance(item, library().h5d.DatasetID)
        }
        self._scales = {_place(each.id): each for each in datasets.values() if each.is_scale}
        self.headers = self._present({n: h for n, h in datasets.items() if h.is_variable}, url, sources)
        """The datasets that are variables; as in NetCDF, with the coordinates of axes from groups above."""
        known = {*datasets, *self.elsewhere, *drop}
        axes = {name: self._axes(header) for name, header in self.headers.items()}
        scales = {self._short(scale.path): scale for own in axes.values() for scale in own if scale}
        inherited = {
            name: scale for name, scale in scales.items()
            if "/" not in name and name not in known and scale.is_variable
        }  # fmt: skip
        inherited = self._present(inherited, url, sources)  # before their shapes are read
        self.headers |= {name: scale for name, scale in inherited.items() if len(scale.shape or ()) == 1}
        self.unreadable = {n: why for n, h in self.headers.items() if (why := h.problem)} | self.elsewhere
        """What is not described, by name, and why."""
        named = {
            n: self._named(h, axes.get(n, [])) for n, h in self.headers.items() if n not in self.unreadable
        }
        phony = PhonyDimensions((_bare_sizes(self.headers[n], dims) for n, dims in named.items()), first)
        self.end = phony.end
        """The number after the last one of a name for an axis without a dimension scale."""
        self.variables = {
            name.removeprefix(NON_COORDINATE): _described(name, self.headers[name], dims, phony)
            for name, dims in named.items()
        }

    def _present(self, headers: Mapping[str, Header], url: str, sources: Sources) -> dict[str, Header]:
        """The datasets whose values are in this file, or in others that may be read."""
        present = {}
        for name, header in headers.items():
            try:
                check_storage(header.id, header.plist, url, sources)
                present[name] = header
            except OtherFileError as error:
                self.elsewhere[name] = str(error)
        return present

    def _axes(self, header: Header) -> list[Header | None]:
        """The first dimension scale of every axis, if it has one; nothing if `header` is itself a scale."""
        if header.shape is None or header.is_scale:
            return []
        return [scale and (self._scales.get(_place(scale)) or _header_of(scale)) for scale in header.scales()]

    def _named(self, header: Header, scales: Sequence[Header | None]) -> list[str]:
        """The names of its axes; empty for axes without one."""
        if len(header.shape) == 1 and header.is_scale:
            return [self._short(header.path)]
        named = self._netcdf_dims(header)
        if named:
            return named
        scales = scales or [None] * len(header.shape)
        return ["" if scale is None else self._short(scale.path) for scale in scales]

    def _netcdf_dims(self, header: Header) -> list[str]:
        """Dimensions, by id, of a NetCDF variable with several axes: as a scale itself, it has no scales."""
        if len(header.shape) < 2 or "CLASS" not in header.names:
            return []
        ids = header.attributes.get("_Netcdf4Coordinates")
        if ids is None or len(ids) != len(header.shape):
            return []
        names = {
            int(scale.attributes["_Netcdf4Dimid"]): self._short(scale.path)
            for scale in self._scales.values()
            if "_Netcdf4Dimid" in scale.names
        }
        return [names[i] for i in ids.tolist()] if names.keys() >= set(ids.tolist()) else []

    def _short(self, scale: str) -> str:
        """The name of a dimension scale as seen from the group: plain if it is there or above."""
        above, _, name = scale.rpartition("/")
        stands_above = f"{self._path.rstrip('/')}/".startswith(f"{above}/")
        return name if stands_above else scale.removeprefix(self._path).removeprefix("/")

    def reference(self, variable: ParsedVariable) -> ParsedVariable:
        """A variable with the ranges of its chunks, or with the reason why only a copy will do."""
        header = self.headers[variable.name]
        variable = _referenced(variable, self.url, header)
        if variable.ranges is None and 0 not in variable.shape:
            try:
                header.dataset[(0,) * len(variable.shape)]
            except OSError as error:  # a filter or an external file is missing
                raise UnreadableVariableError(
                    f"{unreadable_text(header.id, error)} ({variable.reason})"
                ) from error
        return variable

    def load(self, variable: ParsedVariable) -> np.ndarray[Any, Any]:
        """All values of a variable."""
        header = self.headers[variable.name]
        try:
            if header.dtype.kind in "iuf" and 0 not in header.shape and not variable.is_text:
                return header.read(variable.dtype)
            values = load_values(header.dataset, variable)
        except OSError as error:
            raise UnreadableVariableError(unreadable_text(header.id, error)) from error
        return values.view(variable.dtype) if values.dtype.kind == "b" else values

    def array(self, name: str) -> Any:
        """A dataset as h5py reads it."""
        return self.headers[name].dataset

    def groups(self, *, with_variables: bool) -> list[str]:
        """The paths of the groups below; or only of those that hold variables, sorted."""
        h5py = library()
        groups, holders = [], set()

        def note(name: str, item: Any) -> None:
            path = f"{self._path}/{name}".lstrip("/")
            if isinstance(item, h5py.Group):
                groups.append(path)
            elif isinstance(item, h5py.Dataset) and "/" in name and Header(item.id, path).is_variable:
                holders.add(path.rpartition("/")[0])

        try:
            h5py.Group(self.id).visititems(note)
        except (RuntimeError, OSError, KeyError) as error:
            raise IngestError(
                f"it is damaged or truncated: HDF5 cannot list what it holds ({one_line(error)})"
            ) from error
        return sorted(holders) if with_variables else groups


def _place(item: Any) -> tuple[int, int]:
    """Where the header of an object is: no two objects share it."""
    info = library().h5o.get_info(item)
    return info.fileno, info.addr


def _header_of(scale: Any) -> Header:
    return Header(scale, text(library().h5i.get_name(scale)))


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


def _described(name: str, header: Header, axes: list[str], phony: PhonyDimensions) -> ParsedVariable:
    dtype = header.dtype.newbyteorder("=")
    if dtype.kind == "O":
        string = library().check_string_dtype(header.dtype)
        if string is not None and string.length is None:
            dtype = np.dtypes.StringDType()
    spare = iter(phony.names(_bare_sizes(header, axes)))
    dims = tuple(axis or next(spare) for axis in axes)
    attrs = plain_attributes(header.attributes, header.names)
    if dtype.kind == "b" and not attrs.keys().isdisjoint(("_FillValue", "missing_value")):
        dtype = np.dtype("i1")  # an enumeration of bytes, as in NetCDF: a bool cannot be missing
    return ParsedVariable(name, "static", dims, header.shape, attrs, dtype)


def _bare_sizes(header: Header, axes: Sequence[str]) -> tuple[int, ...]:
    """The lengths of the axes that no dimension scale names."""
    return tuple(size for size, axis in zip(header.shape, axes, strict=True) if not axis)


HIDDEN = FILE_MATTERS | {"_Netcdf4Coordinates", "_nc3_strict"}

DIMENSION_LIST = "DIMENSION_LIST"
"""The attribute that names the scales of a dataset's axes."""

MAX_TYPES = 1_000
"""How many types of attributes and values, and kinds of chunks, are remembered."""


@cache
def library() -> Any:
    """h5py."""
    return import_extra("h5py", "virtual")


@contextmanager
def open_hdf5(reader: Any) -> Iterator[Any]:
    """The identifier of an HDF5 file; a file that is all in memory is not read through Python."""
    h5py = import_extra("h5py", "virtual")
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

    def __init__(self, dataset: Any, path: str) -> None:
        self.id = dataset
        self.path = path
        """Its path from the root of its file."""
        self.is_scale: bool = library().h5ds.is_scale(dataset)

    @property
    def is_variable(self) -> bool:
        """Whether it is more than the name of a NetCDF dimension."""
        label = library().h5ds.get_scale_name(self.id) if self.is_scale else b""
        return not bytes(label or b"").startswith(NOT_A_VARIABLE)

    @cached_property
    def shape(self) -> Any:
        """Its length along every axis; None if it has no data space."""
        return self.id.shape

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The stored type; not every type is one of NumPy's."""
        dtype: np.dtype[Any] = self.id.dtype
        return dtype

    @property
    def problem(self) -> str:
        """Why it cannot be read: it has no elements, or h5py does not know their type."""
        if self.shape is None:
            return "it has no data space: nothing can be read from it"
        try:
            self.dtype  # noqa: B018 - the property does the work
        except (TypeError, ValueError) as error:  # ValueError for floats that are longer than this machine's
            return f"h5py cannot read its type: {error}"
        return ""

    @cached_property
    def plist(self) -> Any:
        """Its creation properties."""
        return self.id.get_create_plist()

    @property
    def dataset(self) -> Any:
        """The dataset as an h5py object, with everything that it can do."""
        return library().Dataset(self.id)

    @cached_property
    def attributes(self) -> Any:
        """Its attributes, as h5py reads them."""
        return attributes_of(self.id)

    @cached_property
    def names(self) -> list[str]:
        """The names of its attributes."""
        return list(self.attributes)

    def scales(self) -> list[Any]:
        """The dimension scale of every axis, or the first of several; None if there is none."""
        h5ds = library().h5ds
        scales: list[Any] = []
        for axis in range(len(self.shape) if DIMENSION_LIST in self.names else 0):
            of_axis: list[Any] = []
            if h5ds.get_num_scales(self.id, axis):
                h5ds.iterate(self.id, axis, of_axis.append, 0)
            scales.append(of_axis[0] if of_axis else None)
        return scales

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


def attributes_of(bearer: Any) -> Any:
    """The attributes of a dataset or a group, which is given by its identifier, as h5py reads them."""
    return library().AttributeManager(SimpleNamespace(id=bearer))


def plain_attributes(attributes: Any, names: Iterable[str]) -> dict[str, Any]:
    """Attributes about the data, with their types in the file; an empty one is an empty text."""
    h5py = library()
    plain: dict[str, Any] = {}
    for name in names:
        if name in HIDDEN:
            continue
        try:
            value = attributes[name]
        except (OSError, TypeError):  # a type that h5py does not know
            continue
        if isinstance(value, h5py.h5r.Reference):
            continue  # it points into this file
        if isinstance(value, h5py.Empty):
            value = ""
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, np.ndarray):
            if value.dtype.kind == "S":
                value = np.strings.decode(value, "utf-8", "replace")
            if value.dtype.kind == "O" and not all(isinstance(each, str) for each in value.flat):
                continue  # object references
            value = value.reshape(-1)[0] if value.size == 1 else value
        plain[name] = str(value) if isinstance(value, str) else value
    return plain


def _referenced(variable: ParsedVariable, url: str, header: Header) -> ParsedVariable:
    h5d, plist, shape = library().h5d, header.plist, variable.shape
    layout = plist.get_layout()
    stored_chunks = plist.get_chunk() if layout == h5d.CHUNKED else tuple(max(n, 1) for n in shape)
    chunks = tuple(min(c, max(n, 1)) for c, n in zip(stored_chunks, shape, strict=True))
    reason, codecs = "", tuple[dict[str, Any], ...]()
    if layout == h5d.COMPACT:
        reason = "its data are in the header of the dataset (compact layout)"
    elif layout == h5d.VIRTUAL:
        reason = "it is a virtual dataset, made of others"
    elif plist.get_external_count():
        reason = "its data are in external files"
    elif header.dtype.kind not in "biufc":
        reason = "its data are texts, which HDF5 does not store in its chunks"
    else:
        try:
            codecs = _codecs_of(header)
        except MissingExtraError:
            raise
        except Exception as error:  # of numcodecs, zarr or VirtualiZarr, for a filter that they do not know
            reason = f"it cannot be referenced: {error}"
    if reason:
        return replace(variable, chunks=chunks, reason=reason)
    filters = plist.get_nfilters()
    if filters or chunks[1:] != stored_chunks[1:]:
        # the part of a chunk that an axis cuts off can only be left away if the rest is all in one piece
        chunks = stored_chunks
    places: list[Any] = []
    if layout == h5d.CHUNKED:
        header.id.chunk_iter(places.append)
    elif (at := header.id.get_offset()) is not None:
        places = [((0,) * len(shape), 0, at, header.id.get_storage_size())]
    ranges = _ranges(url, chunk_grid(shape, chunks), chunks, places)
    if chunks != stored_chunks:
        ranges.lengths[ranges.lengths > 0] = math.prod(chunks) * header.dtype.itemsize
    variable = replace(
        variable, chunks=chunks, codecs=tuple(map(dict, codecs)), fill=_fill_of(header), ranges=ranges
    )
    masks = {first: mask for first, mask, *_ in places if mask} if filters else {}
    if filters and any(n % c for n, c in zip(shape, chunks, strict=True)):
        masks |= dict.fromkeys(_unfiltered_edges(header, chunks, places), (1 << filters) - 1)
    if masks and len(codecs) != filters + 1:
        variable.ranges = None
        variable.reason = (
            f"some chunks skipped a filter, and its {filters} filters do not correspond to "
            f"{len(codecs) - 1} codecs"
        )
    elif masks:
        ranges.masks = np.zeros(ranges.grid, dtype=np.uint32)
        for first, mask in masks.items():
            ranges.masks[tuple(a // c for a, c in zip(first, chunks, strict=True))] = mask
    return variable


_codecs: dict[Any, tuple[dict[str, Any], ...]] = {}


def _codecs_of(header: Header) -> tuple[dict[str, Any], ...]:
    """How chunks are encoded, in the words of VirtualiZarr, which is called once for each kind of dataset."""
    plist = header.plist
    kind = header.dtype.str, *(plist.get_filter(i) for i in range(plist.get_nfilters()))
    if kind not in _codecs:
        names = import_extra("virtualizarr.codecs", "virtual")
        filters = import_extra("virtualizarr.parsers.hdf.filters", "virtual").codecs_from_dataset(
            header.dataset
        )
        configs = [names.zarr_codec_config_to_v3(codec.get_config()) for codec in filters]
        codecs = names.convert_to_codec_pipeline(codecs=configs, dtype=header.dtype)
        if len(_codecs) >= MAX_TYPES:
            _codecs.clear()
        _codecs[kind] = tuple(specified_codec(codec.to_dict()) for codec in codecs)
    return _codecs[kind]


def _fill_of(header: Header) -> Any:
    """The number that stands for chunks that are not stored."""
    fill = np.zeros(1, dtype=header.dtype)
    with suppress(RuntimeError):  # it has none
        header.plist.get_fill_value(fill)
    return fill.astype(header.dtype.newbyteorder("="))[0]


def _ranges(url: str, grid: tuple[int, ...], chunks: tuple[int, ...], places: list[Any]) -> ChunkRanges:
    """Where chunks are. A place is the first element, the filters that it skipped, first byte and size."""
    offsets, lengths = np.zeros(grid, dtype=np.uint64), np.zeros(grid, dtype=np.uint64)
    if places and offsets.size:
        first, _, at, size = zip(*places, strict=True)
        index = tuple((np.array(first, dtype=np.int64) // np.array(chunks)).T)
        offsets[index], lengths[index] = at, size
    return ChunkRanges(url if lengths.any() else "", offsets, lengths)


def _unfiltered_edges(
    header: Header, chunks: tuple[int, ...], places: list[Any]
) -> Iterator[tuple[int, ...]]:
    """Chunks that the end of an axis cuts off and that skipped all filters, although no mask says so.

    HDF5 has an option for that (H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS), which h5py does not show. Such a chunk
    has as many bytes as its numbers take, and these are the numbers.
    """
    nbytes = math.prod(chunks) * header.dtype.itemsize
    for first, mask, _, size in places:
        box = tuple(slice(a, min(a + c, n)) for a, c, n in zip(first, chunks, header.shape, strict=True))
        inside = tuple(slice(part.stop - part.start) for part in box)
        if mask or size != nbytes or all(part.stop == c for part, c in zip(inside, chunks, strict=True)):
            continue
        _, content = header.id.read_direct_chunk(first)
        numbers = np.frombuffer(content, header.dtype).reshape(chunks)[inside]
        if numbers.tobytes() == header.dataset[box].tobytes():
            yield first


MAX_LINKS = 16
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
            if followed > MAX_LINKS:
                raise OtherFileError(f"it is a link that leads through more than {MAX_LINKS} others")
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


SIGNATURE = b"GCOL\x01\0\0\0"
HEAD, OBJECT = Struct("<8sQ"), Struct("<H6xQ")
"""The heads of a collection (signature and size) and of an object (number first, size last)."""

MAX_HEAP_BYTES = 1 << 24

FURTHEST = 1 << 63
"""HDF5 counts modulo twice this: so long a step leads backwards, or nowhere."""


class HeapReader(io.RawIOBase):
    """Reads for HDF5, and refuses a global heap with a step that does not lead forwards."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        at: int = self._reader.seek(offset, whence)
        return at

    def tell(self) -> int:
        at: int = self._reader.tell()
        return at

    def readinto(self, buffer: Any, /) -> int:
        start = self.tell()
        content = self._reader.read(len(buffer))
        buffer[: len(content)] = content
        heap = content.find(SIGNATURE)
        if heap >= 0:
            self._check(start + heap)
            self.seek(start + len(content))
        return len(content)

    def _check(self, start: int) -> None:
        self.seek(start)
        head = self._reader.read(HEAD.size)
        size = HEAD.unpack(head)[1] if len(head) == HEAD.size else 0
        if is_endless(head + self._reader.read(max(0, min(size, MAX_HEAP_BYTES) - HEAD.size))):
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
        if is_endless(content[start : start + min(size, MAX_HEAP_BYTES)]):
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
