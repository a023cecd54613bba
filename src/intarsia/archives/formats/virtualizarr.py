"""What VirtualiZarr parses: its parsers as formats, and the one place that looks inside its manifests.

Its parser for NetCDF classic files forgets the types of attributes, and allocates as many records as the
header claims. So the header is read here first.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace as with_fields
from typing import IO, Any
from urllib.parse import unquote

import numpy as np
import zarr

from intarsia._compat import manifest_table, parsed_group
from intarsia.archives.cf import decoded_fill_attribute, loaded, with_texts
from intarsia.archives.locations import Identity, Sources, folder_of, local_path, local_url
from intarsia.archives.parsed_file import (
    ChunkRanges,
    Description,
    ParsedFile,
    ParsedVariable,
    ParseRequest,
    Role,
    lacking,
    roles,
)
from intarsia.engine.fetch.symlinks import links_below
from intarsia.errors import IngestError
from intarsia.manifest.box import chunk_grid
from intarsia.versions.access import FILE

# The same bytes under the name specified for Zarr v3, which more readers know. Other codecs keep their names:
# zarr-python reads them without any help.
SPECIFIED_NAMES = {"numcodecs.zstd": "zstd", "numcodecs.gzip": "gzip"}


TREES = frozenset(("zarr", "n5"))
"""Formats that are a directory of chunks, in which only links lead to other files."""


class VirtualFormat:
    """Any VirtualiZarr parser: called with a URL and a registry of stores, it returns a `ManifestStore`."""

    def __init__(self, name: str, parser: Any, group: str = "") -> None:
        self.name = name
        self.parser = parser
        self.group = group

    def _store(self, url: str, sources: Sources) -> Any:
        sources.resolve(url)
        who = type(self.parser).__name__
        try:
            return self.parser(_as_parsers_take_it(url), sources.registry)
        except (IngestError, UnicodeDecodeError):
            raise
        except KeyError as error:
            raise IngestError(f"{who} cannot find {error} in it") from error
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise IngestError(f"{who} cannot read it: {parser_error_text(error)}") from error

    def parse(self, url: str, sources: Sources, request: ParseRequest) -> ParsedFile:
        """The wanted variables of one source."""
        linked = self._has_links(url, sources)
        attrs, typed = self._typed_attributes(url, sources)  # first: it checks whether the header can be true
        store = self._store(url, sources)
        arrays = arrays_of(store, self.group)
        described = {name: _described(array, typed.get(name)) for name, array in arrays.items()}
        if self.name == "kerchunk":
            self._add_fill_values(url, sources, described)
        described = with_texts(described, request)
        taken, left_out = roles(described, request)
        left_out |= self._unread()
        variables: dict[str, ParsedVariable] = {}
        for name, role in taken.items():
            variable = parsed_variable(name, role, arrays[name], described[name])
            assert variable.ranges is not None
            locations = variable.ranges.urls()
            moved = self._moved(locations, url, sources, linked)
            for location in locations:
                sources.resolve(location)
            if role == "data":
                variable.ranges.move(moved)
                _rename(variable, _as_parsers_take_it(url), url)
            else:
                array: Any = zarr.open_array(store, path=self._path(name), mode="r", zarr_format=3)
                variable.values = loaded(array, described[name])
                variable.ranges = None
            variables[name] = variable
        node = group_of(store, self.group)
        if attrs is None:
            attrs = dict(node.metadata.attributes or {})
        has_data = any(variable.role == "data" for variable in variables.values())
        groups = () if has_data else tuple(_groups_below(node, self.group.strip("/"), with_arrays=True))
        new_dims = lacking(described, request)
        parsed = ParsedFile(
            url, sources.identity(url), self.name, variables, attrs, left_out, new_dims, groups
        )
        parsed.referenced = _elsewhere(parsed, sources)
        return parsed

    def _has_links(self, url: str, sources: Sources) -> bool:
        """Whether its chunks may be links; raises `IngestError` if one leads to what it may not read."""
        path = local_path(url)
        if path is None or not path.is_dir() or self.name not in TREES:
            sources.permissions.checked([url], folder_of(url))
            return True
        links = [local_url(link) for link in links_below(str(path))]
        sources.permissions.checked(links, url.rstrip("/") + "/")
        return bool(links)

    def _moved(self, locations: Iterable[str], url: str, sources: Sources, linked: bool) -> dict[str, str]:
        """Where the links among its chunks lead; raises `IngestError` if one is what it may not read."""
        is_tree = self.name in TREES and local_path(url) is not None
        folder = url.rstrip("/") + "/" if is_tree else folder_of(url)
        if not linked:
            plain = unquote(folder)
            locations = (each for each in locations if not _is_directly_below(each, plain))
        return sources.permissions.checked(locations, folder)

    def groups(self, url: str, sources: Sources) -> list[str]:
        """The paths of all groups."""
        if self.name == "netcdf3":
            return [""]  # such files have none
        return ["", *_groups_below(parsed_group(self._store(url, sources)), "")]

    def _unread(self) -> dict[str, str]:
        """Arrays of the group that the parser could not translate, and why."""
        unread: Mapping[str, str] = getattr(self.parser, "unread", {})
        paths = {path: path.rpartition("/") for path in unread}
        return {
            name: unread[path] for path, (group, _, name) in paths.items() if group == self.group.strip("/")
        }

    def _typed_attributes(
        self, url: str, sources: Sources
    ) -> tuple[dict[str, Any] | None, Mapping[str, dict[str, Any]]]:
        if self.name != "netcdf3":
            return None, {}
        with sources.reader(url) as reader:
            return netcdf3_attributes(reader)

    def _add_fill_values(self, url: str, sources: Sources, described: dict[str, Description]) -> None:
        """Add fill values: in references, which are Zarr v2, they mean "missing", as in xarray."""
        documents = _references(url, sources)
        group = self.group.strip("/")
        _check_keys(f"{group}/" if group else "", documents, described)
        for name, description in described.items():
            document = documents.get(f"{self._path(name)}/.zarray", {})
            document = json.loads(document) if isinstance(document, str) else document
            fill = document.get("fill_value")
            if fill is not None and "_FillValue" not in description.attrs and description.dtype.kind in "iuf":
                attrs = {**description.attrs, "_FillValue": description.dtype.type(fill)}
                described[name] = with_fields(description, attrs=attrs)

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self.group.strip("/"), name) if part)

    @contextmanager
    def opened(self, url: str, sources: Sources, name: str) -> Iterator[Any]:
        """A variable's stored numbers, to be read in slices, for a copy."""
        linked = self._has_links(url, sources)
        store = self._store(url, sources)
        locations = set(arrays_of(store, self.group)[name].manifest.iter_nonempty_paths())
        self._moved(locations, url, sources, linked)
        for location in locations:
            sources.resolve(location)
        yield zarr.open_array(store, path=self._path(name), mode="r", zarr_format=3)


def parser_error_text(error: Exception) -> str:
    """What a parser says; NumPy's errors about indexes mean a chunk that the array cannot have."""
    text = " ".join(str(error).split())
    outside = isinstance(error, IndexError) or text.startswith("invalid entry in coordinates")
    return f"one of its arrays has a chunk outside of its shape ({text})" if outside else text


def _check_keys(group: str, documents: Mapping[str, Any], described: Mapping[str, Description]) -> None:
    """Refuse keys of chunks with too few or too many numbers: VirtualiZarr would show a chunk repeatedly."""
    for key in documents:
        name, _, place = key.removeprefix(group).partition("/")
        parts = place.replace("/", ".").split(".")
        if not key.startswith(group) or name not in described or not all(map(str.isdecimal, parts)):
            continue
        ndim = len(described[name].shape)
        if len(parts) != max(ndim, 1):
            raise IngestError(f"the reference {key!r} does not name a chunk of an array with {ndim} axes")


def _references(url: str, sources: Sources) -> Mapping[str, Any]:
    """What kerchunk wrote: one JSON file, or a directory of Parquet files."""
    if sources.names_in(url) if url.endswith((".parq", ".parquet", "/")) else ():
        found: Mapping[str, Any] = json.loads(sources.get(f"{url.rstrip('/')}/.zmetadata"))["metadata"]
        return found
    document = json.loads(sources.get(url))
    if document.get("gen"):
        raise IngestError(
            "its references are generated from a pattern ('gen'), which is not supported: write each one out"
        )
    references: Mapping[str, Any] = document.get("refs", document)
    return references


def _elsewhere(parsed: ParsedFile, sources: Sources) -> Identity | None:
    """What identifies the files that a file of references points to; None if it points only to itself."""
    urls = {
        location
        for variable in parsed.variables.values() if variable.ranges is not None
        for location in variable.ranges.urls() if not location.startswith(parsed.url)
    }  # fmt: skip
    if not urls:
        return None
    identities = [sources.identity(location) for location in sorted(urls)]
    moments = [identity.modified for identity in identities if identity.modified is not None]
    complete = len(moments) == len(identities)
    return Identity(sum(identity.size for identity in identities), max(moments) if complete else None)


def _is_directly_below(url: str, folder: str) -> bool:
    """Whether a URL is below a folder by its name alone."""
    plain = unquote(url)
    return plain.startswith(folder) and "/../" not in plain


def _as_parsers_take_it(url: str) -> str:
    """A URL for VirtualiZarr: it takes file URLs without percent signs; one with #, ? or % stays encoded."""
    plain = unquote(url)
    return plain if url.startswith(FILE) and not set("#?%") & set(plain) else url


def _rename(variable: ParsedVariable, old: str, new: str) -> None:
    ranges = variable.ranges
    if ranges is None or old == new:
        return
    if isinstance(ranges.locations, str):
        ranges.locations = ranges.locations.replace(old, new, 1)
    else:
        ranges.locations = np.strings.replace(ranges.locations, old, new, 1)


def arrays_of(store: Any, group: str = "") -> Mapping[str, Any]:
    """The manifest arrays of one group of a VirtualiZarr `ManifestStore`, by name."""
    arrays: Mapping[str, Any] = group_of(store, group).arrays
    return arrays


def group_of(store: Any, path: str) -> Any:
    """A group of a VirtualiZarr `ManifestStore`."""
    node = parsed_group(store)
    for part in filter(None, path.split("/")):
        if part not in node.groups:
            raise IngestError(f"it has no group {path.strip('/')!r}")
        node = node.groups[part]
    return node


def _groups_below(node: Any, path: str, *, with_arrays: bool = False) -> Iterator[str]:
    for name, below in node.groups.items():
        place = f"{path}/{name}".lstrip("/")
        if below.arrays or not with_arrays:
            yield place
        yield from _groups_below(below, place, with_arrays=with_arrays)


def _described(array: Any, attrs: Mapping[str, Any] | None = None) -> Description:
    """What a manifest array is, before its references are read."""
    dtype = array.dtype if array.dtype.kind == "T" else array.dtype.newbyteorder("=")
    names = array.metadata.dimension_names
    dims = tuple(name or f"dim_{axis}" for axis, name in enumerate(names or (None,) * len(array.shape)))
    attributes = dict(array.metadata.attributes if attrs is None else attrs)
    if attrs is None and "_FillValue" in attributes:
        attributes["_FillValue"] = decoded_fill_attribute(attributes["_FillValue"], dtype)
    return Description(dims, tuple(array.shape), attributes, dtype)


def specified_codec(document: dict[str, Any]) -> dict[str, Any]:
    """A codec under the name that is specified for Zarr v3, if there is one."""
    name = SPECIFIED_NAMES.get(document["name"], document["name"])
    configuration = dict(document.get("configuration", {}))
    if name == "zstd" and document["name"] != name:
        defaults = {"level": 0, "checksum": False}
        configuration = {key: configuration.get(key, default) for key, default in defaults.items()}
    elif name == "gzip" and document["name"] != name:
        configuration = {"level": configuration.get("level", 5)}
    return {"name": name, "configuration": configuration} if "configuration" in document else {"name": name}


def parsed_variable(name: str, role: Role, array: Any, description: Description) -> ParsedVariable:
    """A manifest array with the ranges of its chunks."""
    metadata, manifest = array.metadata, array.manifest
    chunks = tuple(int(size) for size in metadata.chunk_grid.chunk_shape)
    grid = chunk_grid(array.shape, chunks)
    paths, offsets, lengths, inlined = manifest_table(manifest)
    if paths.shape == grid and paths.size:
        flat = paths.ravel()
        stored = flat != ""
        lengths = np.where(stored.reshape(grid), lengths, np.uint64(0))
        for index in inlined:
            lengths[index] = 0
        single = _only(flat[stored & (lengths.ravel() > 0)])
        offsets, lengths = np.ascontiguousarray(offsets), np.ascontiguousarray(lengths)
        ranges = ChunkRanges(paths.copy() if single is None else single, offsets, lengths, inlined=inlined)
    else:  # none of it was ever written; the parser then returns any shape
        ranges = ChunkRanges("", np.zeros(grid, "u8"), np.zeros(grid, "u8"), inlined=inlined)
    return description.parsed(
        name, role, chunks=chunks,
        codecs=tuple(specified_codec(codec.to_dict()) for codec in metadata.codecs),
        fill=metadata.fill_value, ranges=ranges,
        reason="the parser had to decode it (it is not stored as chunks)" if inlined else "",
    )  # fmt: skip


def _only(urls: np.ndarray[Any, Any]) -> str | None:
    """The one URL that they all share, or None if they differ."""
    if not urls.size:
        return ""
    return str(urls[0]) if bool((urls == urls[0]).all()) else None


NETCDF3_TYPES = dict(
    enumerate(["i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8"], start=1)
)
NETCDF3_TEXT = 2
NETCDF3_DIMENSIONS, NETCDF3_VARIABLES, NETCDF3_ATTRIBUTES = 10, 11, 12
NETCDF3_MOST_BYTES = 1 << 28
"""No header has longer names or attributes: a larger length means a damaged file."""


class _NetCDF3Header:
    """The big-endian header of a NetCDF classic file, read from front to back; CDF-5 has wider counts."""

    def __init__(self, file: IO[bytes]) -> None:
        file.seek(0)
        magic = file.read(4)
        if len(magic) < 4 or magic[:3] != b"CDF" or magic[3] not in (1, 2, 5):
            raise IngestError(f"not a NetCDF classic file: it starts with {magic!r}")
        self._file, self._version = file, magic[3]
        self.size = file.seek(0, 2)
        file.seek(len(magic))

    def bytes(self, count: int) -> bytes:
        if not 0 <= count <= NETCDF3_MOST_BYTES:
            raise IngestError(f"the header is damaged: a field of {count} bytes")
        data = self._file.read(count)
        if len(data) < count:
            raise IngestError(f"the header is truncated: {count} bytes expected, {len(data)} found")
        self._file.read(-count % 4)
        return data

    def number(self, width: int) -> int:
        return int.from_bytes(self.bytes(width), "big", signed=True)

    def count(self) -> int:
        return self.number(8 if self._version == 5 else 4)

    def offset(self) -> int:
        return self.number(4 if self._version == 1 else 8)

    def name(self) -> str:
        name = self.bytes(self.count())
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise IngestError(
                f"its name {name!r} is not UTF-8, which NetCDF requires: rename it in a copy, which "
                "xarray.open_dataset(…, engine='scipy') can read"
            ) from error

    def entries(self, tag: int) -> range:
        own, count = self.number(4), self.count()
        if own not in (0, tag) or (own == 0 and count):
            raise IngestError(f"the header is damaged: list {tag} expected, {own} found")
        return range(count)

    def attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for _ in self.entries(NETCDF3_ATTRIBUTES):
            name, kind = self.name(), self.number(4)
            if kind not in NETCDF3_TYPES:
                raise IngestError(f"the attribute {name!r} has the unknown type {kind}")
            dtype = np.dtype(NETCDF3_TYPES[kind])
            count = self.count()
            data = self.bytes(count * dtype.itemsize)
            if kind == NETCDF3_TEXT:
                attributes[name] = data.decode("utf-8", "replace").rstrip("\x00")
                continue
            values = np.frombuffer(data, dtype=dtype).astype(dtype.newbyteorder("="))
            attributes[name] = values[0] if values.size == 1 else values
        return attributes


def netcdf3_attributes(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The attributes of the file, and those of every variable by its name.

    Raises `IngestError` if the header is damaged, or if it counts more records than the file can hold.
    """
    header = _NetCDF3Header(file)
    records = header.count()
    lengths = []
    for _ in header.entries(NETCDF3_DIMENSIONS):
        header.name()
        lengths.append(header.count())
    whole = header.attributes()
    variables = {}
    starts, record_bytes = [], 0
    for _ in header.entries(NETCDF3_VARIABLES):
        name = header.name()
        dimensions = [header.count() for _ in range(header.count())]
        variables[name] = header.attributes()
        kind = header.number(4)
        _check_fill_value(name, NETCDF3_TYPES.get(kind, "i1"), variables[name].get("_FillValue"))
        header.count()  # its size, which is wrong for large variables
        start = header.offset()
        if dimensions and all(0 <= d < len(lengths) for d in dimensions) and lengths[dimensions[0]] == 0:
            starts.append(start)
            itemsize = np.dtype(NETCDF3_TYPES.get(kind, "i1")).itemsize
            record_bytes += math.prod(lengths[d] for d in dimensions[1:]) * itemsize
    if starts and records > 1:
        _check_records(records, min(starts), record_bytes, header.size)
    return whole, variables


def _check_fill_value(name: str, kind: str, fill: Any) -> None:
    """Refuse integers with a `_FillValue` that is none: VirtualiZarr cannot read the whole file then."""
    if np.dtype(kind).kind in "iu" and isinstance(fill, np.floating) and not fill.is_integer():
        raise IngestError(
            f"the variable {name!r} has integers, but its _FillValue is {fill}. Remove it: "
            f"ncatted -a _FillValue,{name},d,, FILE"
        )


def _check_records(count: int, start: int, nbytes: int, size: int) -> None:
    """Raise `IngestError` if the last record would begin after the end of the file."""
    last = start + (count - 1) * max(nbytes, 1)
    if last >= size:
        raise IngestError(
            f"it is truncated, or its header is damaged: it has {size:,} bytes, and the last of its "
            f"{count:,} records would begin at {last:,}"
        )
