"""HDF5 and NetCDF4, read with h5py: variables, dimensions and attributes, codecs, and where chunks are.

Archives are thousands of small files: most of the time goes into making and freeing Python objects for what
HDF5 holds. The high-level interface of h5py makes several for every question, so datasets are read through
the low-level one.

HDF5 does not see other files (see `hdf5_files`). So the mappings of virtual datasets are followed
here, to files that the source may refer to. Even the shape of a virtual dataset may depend on them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from intarsia.archives.cf import FILE_MATTERS, load_values
from intarsia.archives.formats.format import Format, SourceGroup, UnreadableError
from intarsia.archives.formats.hdf5_files import (
    VIRTUAL_PREFIX,
    HDF5File,
    HDF5Files,
    check_external_files,
    find,
    library,
    objects_in,
    text,
)
from intarsia.archives.formats.hdf5_virtual import (
    OWN_FILE,
    SERIES,
    MappingError,
    correspondence,
    find_holes,
    is_unlimited,
    runs_of,
)
from intarsia.archives.formats.virtualizarr import specified_codec
from intarsia.archives.parsed_file import PHONY, ChunkRanges, ParsedVariable, VariablePart, rename_parts
from intarsia.archives.plan.axis_union import Span
from intarsia.archives.source_files import (
    FormatProbe,
    Sources,
    folder_of,
    local_path,
)
from intarsia.display import one_line
from intarsia.errors import IngestError, MissingExtraError
from intarsia.extras import import_extra
from intarsia.manifest.box import Box, block_shape, chunk_grid

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

    def __init__(self, group: str = "") -> None:
        self.group = "/" + group.strip("/")

    @contextmanager
    def open(self, url: str, sources: Sources, *, whole_tree: bool = False) -> Iterator[HDF5Group]:
        """The group that was chosen."""
        with HDF5Files(sources, folder_of(url)) as files:
            file = files.open(url)
            above = self.group.rstrip("/").split("/")
            first = 0
            for depth in range(1, len(above)) if whole_tree else ():
                first = HDF5Group(file, "/".join(above[:depth]) or "/", first).end
            yield HDF5Group(file, self.group, first)


def find_group(file: HDF5File, path: str) -> tuple[Any, HDF5File]:
    """A group of an open file, and the file that it is in; raises `IngestError` if there is none."""
    try:
        group, where = find(file, file.id, path.encode("utf-8", "surrogateescape"))
    except KeyError:
        group, where = None, file
    except UnreadableError as error:
        raise IngestError(f"its group {path.strip('/')!r} cannot be read: {error}") from None
    if not isinstance(group, library().h5g.GroupID):
        raise IngestError(f"it has no group {path.strip('/')!r}")
    return group, where


class HDF5Group(SourceGroup):
    """One group of an open file: its datasets, and the names that dimension scales give their axes."""

    unreadable: dict[str, str]

    def __init__(self, file: HDF5File, path: str, first: int) -> None:
        self.id, file = find_group(file, path)
        self._path = path
        self.attrs = plain_attributes(attributes_of(self.id))
        objects, self.unreadable = objects_in(file, self.id, path)
        above = path.rstrip("/")
        datasets = {
            name: Header(item, f"{above}/{name}", where)
            for name, (item, where) in objects.items()
            if isinstance(item, library().h5d.DatasetID)
        }
        self._scales = {_place(each.id): each for each in datasets.values() if each.is_scale}
        self.headers = self._readable(
            {n: h for n, h in datasets.items() if not h.is_scale or is_variable(h.id)}
        )
        """The datasets that are variables; as in NetCDF, with the coordinates of axes from groups above."""
        known = {*datasets, *self.unreadable}
        axes = {name: self._axes(header) for name, header in self.headers.items()}
        scales = {self._short(scale.path): scale for own in axes.values() for scale in own if scale}
        inherited = self._readable(
            {
                name: scale
                for name, scale in scales.items()
                if "/" not in name and name not in known and is_variable(scale.id)
            }
        )
        self.headers |= {name: scale for name, scale in inherited.items() if len(scale.shape) == 1}
        named = {name: self._named(header, axes.get(name, [])) for name, header in self.headers.items()}
        phony = phony_dimensions((_bare_sizes(self.headers[n], dims) for n, dims in named.items()), first)
        self.end = first + len(phony)
        """The number after the last one of a name for an axis without a dimension scale."""
        self.variables = {
            name.removeprefix(NON_COORDINATE): _described(name, self.headers[name], dims, phony)
            for name, dims in named.items()
        }

    def _readable(self, headers: Mapping[str, Header]) -> dict[str, Header]:
        """The datasets that can be read; what is wrong with others is noted."""
        problems = {name: why for name, header in headers.items() if (why := header.problem)}
        self.unreadable |= problems
        return {name: header for name, header in headers.items() if name not in problems}

    def _axes(self, header: Header) -> list[Header | None]:
        """The first dimension scale of every axis, if it has one; nothing if `header` is itself a scale."""
        if header.is_scale:
            return []
        return [
            scale and (self._scales.get(_place(scale)) or self._scale(scale, header.file))
            for scale in header.scales()
        ]

    def _scale(self, scale: Any, file: HDF5File) -> Header:
        """A dimension scale that is not in the group; if it is in another file, it counts as if it were."""
        path = text(library().h5i.get_name(scale))
        if file.identity is not None:
            path = f"{self._path.rstrip('/')}/{path.rpartition('/')[2]}"
        return Header(scale, path, file)

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
        if len(header.shape) < 2 or "CLASS" not in header.attributes:
            return []
        ids = header.attributes.get("_Netcdf4Coordinates")
        if ids is None or len(ids) != len(header.shape):
            return []
        names = {
            int(scale.attributes["_Netcdf4Dimid"]): self._short(scale.path)
            for scale in self._scales.values()
            if "_Netcdf4Dimid" in scale.attributes
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
        return _referenced(variable, header) if header.virtual is None else header.virtual.reference(variable)

    def load(self, variable: ParsedVariable) -> np.ndarray[Any, Any]:
        """All values of a variable."""
        header = self.headers[variable.name]
        is_numeric = header.dtype.kind in "iuf" and 0 not in header.shape and not variable.is_text
        with explain_failure(header.id):
            if header.virtual is not None:
                variable.absent = tuple(header.virtual.sources.absent)
            elif is_numeric:  # h5py's own interface takes longer
                values = np.empty(header.shape, dtype=variable.dtype)
                header.id.read(library().h5s.ALL, library().h5s.ALL, values)
                return values
            values = load_values(header.dataset, variable)
        return values.view(variable.dtype) if values.dtype.kind == "b" else values

    def array(self, name: str) -> Any:
        """A dataset as h5py reads it."""
        return self.headers[name].dataset

    def groups(self) -> dict[str, bool]:
        """The paths of the groups below, and whether each holds variables."""
        h5py = library()
        groups: dict[str, bool] = {}

        def note(name: str, item: Any) -> None:
            path = f"{self._path}/{name}".lstrip("/")
            if isinstance(item, h5py.Group):
                groups[path] = False  # it comes before what is in it
            elif isinstance(item, h5py.Dataset) and "/" in name and is_variable(item.id):
                groups[path.rpartition("/")[0]] = True

        try:
            h5py.Group(self.id).visititems(note)
        except (RuntimeError, OSError, KeyError) as error:
            raise IngestError(
                f"it is damaged or truncated: HDF5 cannot list what it holds ({one_line(error)})"
            ) from error
        return groups


def _place(item: Any) -> tuple[int, int]:
    """Where the header of an object is: no two objects share it."""
    info = library().h5o.get_info(item)
    return info.fileno, info.addr


def phony_dimensions(datasets: Iterable[tuple[int, ...]], first: int = 0) -> dict[tuple[int, int], str]:
    """Names for axes without a dimension scale: one for each size, numbered as in h5netcdf.

    No two axes of a dataset share a name, so a size has as many names as one dataset has axes of that size:
    a key is a size, and how many axes of that size the dataset has before. Numbers begin with `first`.

    >>> phony_dimensions([(4, 6), (9,), (6, 6)])
    {(4, 0): 'phony_dim_0', (6, 0): 'phony_dim_1', (6, 1): 'phony_dim_2', (9, 0): 'phony_dim_3'}
    """
    times = Counter[int]()
    for sizes in datasets:
        times |= Counter(sizes)
    keys = [(size, before) for size, number in times.items() for before in range(number)]
    return {key: f"{PHONY}{number}" for number, key in enumerate(keys, first)}


def _described(
    name: str, header: Header, axes: list[str], phony: Mapping[tuple[int, int], str]
) -> ParsedVariable:
    dtype = header.dtype.newbyteorder("=")
    if dtype.kind == "O" and library().check_string_dtype(header.dtype) is not None:
        dtype = np.dtypes.StringDType()
    sizes = _bare_sizes(header, axes)
    spare = (phony[size, sizes[:i].count(size)] for i, size in enumerate(sizes))
    dims = tuple(axis or next(spare) for axis in axes)
    attrs = plain_attributes(header.attributes)
    if dtype.kind == "b" and not attrs.keys().isdisjoint(("_FillValue", "missing_value")):
        dtype = np.dtype("i1")  # an enumeration of bytes, as in NetCDF: a bool cannot be missing
    return ParsedVariable(name, "static", dims, header.shape, attrs, dtype)


def _bare_sizes(header: Header, axes: Sequence[str]) -> tuple[int, ...]:
    """The lengths of the axes that no dimension scale names."""
    return tuple(size for size, axis in zip(header.shape, axes, strict=True) if not axis)


HIDDEN = FILE_MATTERS | {"_Netcdf4Coordinates", "_nc3_strict"}

DIMENSION_LIST = "DIMENSION_LIST"
"""The attribute that names the scales of a dataset's axes."""


class Header:
    """A dataset of an open file."""

    def __init__(self, dataset: Any, path: str, file: HDF5File) -> None:
        self.id = dataset
        self.path = path
        """Its path from the root of its file."""
        self.file = file
        self.is_scale: bool = library().h5ds.is_scale(dataset)

    @cached_property
    def virtual(self) -> VirtualDataset | None:
        """What it is made of, if it is a virtual dataset."""
        return VirtualDataset(self) if self.plist.get_layout() == library().h5d.VIRTUAL else None

    @cached_property
    def shape(self) -> Any:
        """Its length along every axis; None if it has no data space."""
        return self.id.shape if self.virtual is None else self.virtual.shape

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The stored type; not every type is one of NumPy's."""
        dtype: np.dtype[Any] = self.id.dtype
        return dtype

    @property
    def problem(self) -> str:
        """Why it cannot be read: its values are in other files, or h5py does not know their type."""
        try:
            check_external_files(self.plist, self.file)
            if self.shape is None:
                return "it has no data space: nothing can be read from it"
            _ = self.dtype  # raises for a type that h5py does not know
        except UnreadableError as error:
            return str(error)
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
        return library().Dataset(self.id) if self.virtual is None else self.virtual.dataset

    @cached_property
    def attributes(self) -> Any:
        """Its attributes, as h5py reads them."""
        return attributes_of(self.id)

    def scales(self) -> list[Any]:
        """The dimension scale of every axis, or the first of several; None if there is none."""
        listed = self.attributes.get(DIMENSION_LIST, ())
        return [library().h5r.dereference(own[0], self.id) if len(own) else None for own in listed]


def is_variable(dataset: Any) -> bool:
    """Whether a dataset is more than the name of a NetCDF dimension."""
    h5ds = library().h5ds
    label = h5ds.get_scale_name(dataset) if h5ds.is_scale(dataset) else b""
    return not bytes(label or b"").startswith(NOT_A_VARIABLE)


@contextmanager
def explain_failure(dataset: Any, note: str = "") -> Iterator[None]:
    """Raise an `UnreadableError` if HDF5 cannot read a dataset: a filter or a file may be missing."""
    try:
        yield
    except OSError as error:
        plist, why = dataset.get_create_plist(), str(error)
        for code, _, _, name in map(plist.get_filter, range(plist.get_nfilters())):
            if not library().h5z.filter_avail(code):
                why = (
                    f"its HDF5 filter {code} ({text(name.rstrip(bytes(1)))}) is not installed "
                    "(many are in hdf5plugin: import it before you ingest)"
                )
        raise UnreadableError(f"it cannot be read: {why}{note}") from error


def attributes_of(bearer: Any) -> Any:
    """The attributes of a dataset or a group, which is given by its identifier, as h5py reads them."""
    return library().AttributeManager(SimpleNamespace(id=bearer))


def plain_attributes(attributes: Any) -> dict[str, Any]:
    """Attributes about the data, with their types in the file; an empty one is an empty text."""
    h5py = library()
    plain: dict[str, Any] = {}
    for name in attributes:
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


def _referenced(variable: ParsedVariable, header: Header) -> ParsedVariable:
    h5d, plist, shape = library().h5d, header.plist, variable.shape
    layout = plist.get_layout()
    stored_chunks = plist.get_chunk() if layout == h5d.CHUNKED else tuple(max(n, 1) for n in shape)
    chunks = tuple(min(c, max(n, 1)) for c, n in zip(stored_chunks, shape, strict=True))
    reason, codecs = "", tuple[dict[str, Any], ...]()
    if layout == h5d.COMPACT:
        reason = "its data are in the header of the dataset (compact layout)"
    elif header.dtype.kind not in "biufc":
        reason = "its data are texts, which HDF5 does not store in its chunks"
    elif plist.get_external_count():
        reason = "its data are in external files"
    else:
        try:
            codecs = _codecs_of(header)
        except MissingExtraError:
            raise
        except Exception as error:  # of numcodecs, zarr or VirtualiZarr, for a filter that they do not know
            reason = f"it cannot be referenced: {error}"
    if reason:
        return _to_be_copied(replace(variable, chunks=chunks), header, reason)
    filters = plist.get_nfilters()
    if filters or chunks[1:] != stored_chunks[1:]:
        # the part of a chunk that an axis cuts off can only be left away if the rest is all in one piece
        chunks = stored_chunks
    places: list[Any] = []
    if layout == h5d.CHUNKED:
        header.id.chunk_iter(places.append)
    elif (at := header.id.get_offset()) is not None:
        places = [((0,) * len(shape), 0, at, header.id.get_storage_size())]
    ranges = _ranges(header.file, chunk_grid(shape, chunks), chunks, places)
    if chunks != stored_chunks:
        ranges.lengths[ranges.lengths > 0] = math.prod(chunks) * header.dtype.itemsize
    variable = replace(
        variable, chunks=chunks, codecs=tuple(map(dict, codecs)), fill=_fill_of(header), ranges=ranges
    )
    masks = {first: mask for first, mask, *_ in places if mask} if filters else {}
    if filters and any(n % c for n, c in zip(shape, chunks, strict=True)):
        masks |= dict.fromkeys(_unfiltered_edges(header, chunks, places), (1 << filters) - 1)
    if masks and len(codecs) != filters + 1:
        reason = f"some chunks skipped one of its {filters} filters, which are {len(codecs) - 1} codecs"
        return _to_be_copied(replace(variable, ranges=None), header, reason)
    if masks:
        ranges.masks = np.zeros(ranges.grid, dtype=np.uint32)
        for first, mask in masks.items():
            ranges.masks[tuple(a // c for a, c in zip(first, chunks, strict=True))] = mask
    return variable


def _to_be_copied(variable: ParsedVariable, header: Header, reason: str) -> ParsedVariable:
    """A variable that has to be copied; it is refused if it cannot be read."""
    if 0 not in variable.shape:
        with explain_failure(header.id, f" ({reason})"):
            header.dataset[(0,) * len(variable.shape)]
    return replace(variable, reason=reason)


_codecs: dict[Any, tuple[dict[str, Any], ...]] = {}


def _codecs_of(header: Header) -> tuple[dict[str, Any], ...]:
    """How chunks are encoded, in the words of VirtualiZarr, which is called once for each kind of dataset."""
    plist = header.plist
    kind = header.dtype.str, *(plist.get_filter(i) for i in range(plist.get_nfilters()))
    if kind not in _codecs:
        names = import_extra("virtualizarr.codecs", "virtual")
        filters = import_extra("virtualizarr.parsers.hdf.filters", "virtual")
        known = filters.codecs_from_dataset(header.dataset)
        configs = [names.zarr_codec_config_to_v3(codec.get_config()) for codec in known]
        codecs = names.convert_to_codec_pipeline(codecs=configs, dtype=header.dtype)
        _codecs[kind] = tuple(specified_codec(codec.to_dict()) for codec in codecs)
    return _codecs[kind]


def _fill_of(header: Header) -> Any:
    """The number that stands for chunks that are not stored."""
    fill = np.zeros(1, dtype=header.dtype)
    with suppress(RuntimeError):  # it has none
        header.plist.get_fill_value(fill)
    return fill.astype(header.dtype.newbyteorder("="))[0]


def _ranges(file: HDF5File, grid: tuple[int, ...], chunks: tuple[int, ...], places: list[Any]) -> ChunkRanges:
    """Where chunks are. A place is the first element, the filters that it skipped, first byte and size."""
    offsets, lengths = np.zeros(grid, dtype=np.uint64), np.zeros(grid, dtype=np.uint64)
    if places and offsets.size:
        first, _, at, size = zip(*places, strict=True)
        index = tuple((np.array(first, dtype=np.int64) // np.array(chunks)).T)
        offsets[index], lengths[index] = at, size
    return ChunkRanges(file.location if lengths.any() else "", offsets, lengths, identity=file.identity)


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


CHUNK_BYTES = 1 << 22
"""The most bytes in a chunk if a virtual dataset is copied."""

NO_CODECS: tuple[dict[str, Any], ...] = ({"name": "bytes", "configuration": {"endian": "little"}},)


@dataclass
class VirtualSources:
    """What a virtual dataset is made of."""

    parts: list[VariablePart] = field(default_factory=list)
    """The boxes of its sources, in the order of its mappings: where some overlap, the last is seen."""

    absent: dict[str, None] = field(default_factory=dict)
    """Sources that do not exist."""

    problem: str = ""
    """Why it is not made of boxes of its sources."""

    all_here: bool = True
    """Whether all of them are in its own file."""


class VirtualDataset:
    """A virtual dataset."""

    def __init__(self, header: Header) -> None:
        self._header, self._file = header, header.file
        self._mappings = library().Dataset(header.id).virtual_sources()
        spaces = [space for space, *_ in self._mappings]
        self._stored_shape: tuple[int, ...] = (
            spaces[0].get_simple_extent_dims() if spaces else header.id.shape
        )
        self._grows = any(map(is_unlimited, spaces))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its length along every axis."""
        shape: tuple[int, ...] = self.dataset.shape if self._grows else self._stored_shape
        return shape

    @cached_property
    def dataset(self) -> Any:
        """The dataset as an h5py object, from its path if it shows other files: see `hdf5_files`."""
        dataset, path = library().Dataset(self._header.id), local_path(self._file.url)
        if self.sources.all_here:
            return dataset
        problem = self.sources.problem
        if path is None:
            problem = problem or "it is not a local file"
        elif dataset.dtype.kind == "O":
            problem = problem or "its values are texts of any length"
        if problem:
            raise UnreadableError(f"it is a virtual dataset of other files, and {problem}")
        with explain_failure(self._header.id):
            file = self._file.files.enter_context(library().File(path, "r"))
        return file[library().h5i.get_name(self._header.id)]

    @cached_property
    def sources(self) -> VirtualSources:
        """What it is made of."""
        sources = VirtualSources()
        for place, name, dataset, space in self._mappings:
            try:
                header = self._open(name, dataset)
            except UnreadableError as error:
                problem = f"it is a virtual dataset, made of {dataset!r} in {name}: {error}"
                raise UnreadableError(problem) from None
            sources.all_here &= name == OWN_FILE and (header is None or header.file is self._file)
            if header is None:
                sources.absent[f"{dataset!r} in {'the file' if name == OWN_FILE else name}"] = None
                continue
            try:
                virtual, source = runs_of(place, self._stored_shape), runs_of(space, header.shape)
                if virtual is not None and source is not None:
                    sources.parts += correspondence(self._describe(header), virtual, source)
            except MappingError as error:
                sources.problem = f"its mapping of {dataset!r} {error}"
        return sources

    def _describe(self, header: Header) -> ParsedVariable:
        """A source with the ranges of its chunks, or with the reason why only a copy will do."""
        dtype, dims = header.dtype.newbyteorder("="), ("",) * len(header.shape)
        stored = _referenced(ParsedVariable(self._header.path, "data", dims, header.shape, {}, dtype), header)
        if dtype != self._header.dtype.newbyteorder("="):
            stored = replace(stored, reason=f"{header.path!r}, which it shows, has the type {dtype}")
        if not dims:
            stored = replace(stored, reason=f"{header.path!r}, which it shows, has no axes")
        return stored

    def _open(self, name: str, dataset: str) -> Header | None:
        """A source; None if it does not exist."""
        h5py, file = library(), self._file
        if SERIES in f"{name}/{dataset}".replace("%%", ""):
            raise UnreadableError("it stands for a series")
        if name != OWN_FILE:
            url = file.files.locate(name.replace("%%", "%"), file, VIRTUAL_PREFIX)
            if url is None:
                return None
            file = file.files.visit(url)
        path = dataset.replace("%%", "%")
        try:
            root = h5py.h5o.open(file.id, b"/")
            item, where = find(file, root, path.encode("utf-8", "surrogateescape"))
        except KeyError:
            return None
        if not isinstance(item, h5py.h5d.DatasetID):
            return None
        header = Header(item, path, where)
        problem = "it is virtual itself" if header.virtual is not None else header.problem
        if problem:
            raise UnreadableError(problem)
        return header

    def reference(self, variable: ParsedVariable) -> ParsedVariable:
        """A variable of parts, with the ranges of their chunks; or the reason why only a copy will do."""
        sources, shape, dtype = self.sources, variable.shape, self._header.dtype
        parts = rename_parts(sources.parts, {str(axis): dim for axis, dim in enumerate(variable.dims)})
        own = dict(zip(parts[0].stored.dims, parts[0].stored.chunks, strict=True)) if parts else {}
        chunks = [min(own.get(dim, n), n) for dim, n in zip(variable.dims, shape, strict=True)]
        small = block_shape((1,) * len(shape), [max(n, 1) for n in chunks], dtype.itemsize, CHUNK_BYTES)
        variable = replace(variable, chunks=small, absent=tuple(sources.absent))
        if 0 in shape:
            return variable
        reason = sources.problem or next((each.stored.reason for each in parts if each.stored.reason), "")
        try:
            holes = find_holes(variable, parts)
        except MappingError as error:
            holes, reason = [], reason or f"it {error}"
        if reason:
            return _to_be_copied(variable, self._header, f"it is a virtual dataset, and {reason}")
        parts += self._unseen(variable, parts, holes)
        return replace(variable, chunks=tuple(chunks), parts=tuple(map(_only_seen_chunks, parts)))

    def _unseen(
        self, variable: ParsedVariable, parts: Sequence[VariablePart], holes: Sequence[Box]
    ) -> tuple[VariablePart, ...]:
        """The boxes that no source has: chunks that are not stored, encoded as others to be like them."""
        dims, chunks, codecs = variable.dims, variable.chunks, NO_CODECS
        if parts and parts[0].stored.dims == dims:
            chunks, codecs = parts[0].stored.chunks, parts[0].stored.codecs
        nothing = np.zeros(chunk_grid(variable.shape, chunks) if holes else (0,) * len(dims), dtype=np.uint64)
        stored = replace(
            variable, chunks=chunks, codecs=codecs, fill=_fill_of(self._header), absent=(),
            ranges=ChunkRanges("", nothing, nothing),
        )  # fmt: skip
        places = [[(Span(a, b - a, a),) for a, b in box.bounds] for box in holes]
        return tuple(VariablePart(stored, dict(zip(dims, each, strict=True))) for each in places)


def _only_seen_chunks(part: VariablePart) -> VariablePart:
    """A part of a virtual dataset without the chunks of the source that are not seen."""
    stored, bounds = part.stored, {}
    for dim, chunk, n in zip(stored.dims, stored.chunks, stored.shape, strict=True):
        spans = part.places.get(dim) or (Span(0, 1, stored.picks[dim]),)
        first, last = min(s.first for s in spans), max(s.first + s.length for s in spans)
        bounds[dim] = first // chunk * chunk, min(-(-last // chunk) * chunk, n)
    seen = stored.crop(list(bounds.values()))
    seen.picks = {dim: index - bounds[dim][0] for dim, index in stored.picks.items()}
    places = {
        dim: tuple(span._replace(first=span.first - bounds[dim][0]) for span in spans)
        if dim in bounds
        else spans
        for dim, spans in part.places.items()
    }
    return VariablePart(seen, places)
