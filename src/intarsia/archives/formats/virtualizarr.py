"""Parsers of VirtualiZarr as formats, and the one place that looks inside its manifests."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
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


class SourceParser:
    """A parser of ours: called like one of VirtualiZarr's, it says more about what it parsed."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

        self.unread: dict[str, str] = {}
        """Arrays that cannot be translated, by path, and why."""

        self.attributes: dict[str, Mapping[str, Any]] = {}
        """Attributes that take the place of those in the store, by the path of an array or a group."""

    def __call__(self, url: str, registry: Any) -> Any:
        """The arrays of a source as a `ManifestStore`."""
        raise NotImplementedError


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
        store = self._store(url, sources)
        node = group_of(store, self.group)
        typed: Mapping[str, Any] = getattr(self.parser, "attributes", {})
        described = {
            name: _described(array, typed.get(self._path(name))) for name, array in node.arrays.items()
        }
        described = with_texts(described, request)
        taken, left_out = roles(described, request)
        left_out |= self._unread()
        variables: dict[str, ParsedVariable] = {}
        for name, role in taken.items():
            variable = _parsed_variable(name, role, node.arrays[name], described[name])
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
        attrs = dict(typed.get(self._path(""), node.metadata.attributes or {}))
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
        return ["", *_groups_below(parsed_group(self._store(url, sources)), "")]

    def _unread(self) -> dict[str, str]:
        """Arrays of the group that the parser could not translate, and why."""
        unread: Mapping[str, str] = getattr(self.parser, "unread", {})
        paths = {path: path.rpartition("/") for path in unread}
        return {
            name: unread[path] for path, (group, _, name) in paths.items() if group == self.group.strip("/")
        }

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self.group.strip("/"), name) if part)

    @contextmanager
    def opened(self, url: str, sources: Sources, name: str) -> Iterator[Any]:
        """A variable's stored numbers, to be read in slices, for a copy."""
        linked = self._has_links(url, sources)
        store = self._store(url, sources)
        locations = set(group_of(store, self.group).arrays[name].manifest.iter_nonempty_paths())
        self._moved(locations, url, sources, linked)
        for location in locations:
            sources.resolve(location)
        yield zarr.open_array(store, path=self._path(name), mode="r", zarr_format=3)


def parser_error_text(error: Exception) -> str:
    """What a parser says; NumPy's errors about indexes mean a chunk that the array cannot have."""
    text = " ".join(str(error).split())
    outside = isinstance(error, IndexError) or text.startswith("invalid entry in coordinates")
    return f"one of its arrays has a chunk outside of its shape ({text})" if outside else text


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


def _parsed_variable(name: str, role: Role, array: Any, description: Description) -> ParsedVariable:
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
