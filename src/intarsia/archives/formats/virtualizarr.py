"""Parsers of VirtualiZarr as formats, and the one place that looks inside its manifests."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.parse import unquote

import numpy as np
import zarr

from intarsia._compat import manifest_table, parsed_group
from intarsia.archives.cf import decoded_fill_attribute
from intarsia.archives.formats.format import Format, SourceGroup
from intarsia.archives.parsed_file import ChunkRanges, ParsedVariable
from intarsia.archives.source_files import (
    ContentIdentity,
    Sources,
    combined_identity,
    folder_of,
    local_path,
    url_of,
)
from intarsia.engine.fetch.symlinks import links_below
from intarsia.errors import IngestError
from intarsia.manifest.box import chunk_grid
from intarsia.versions.storage_options import FILE

SPECIFIED: dict[str, tuple[str, dict[str, Any]]] = {
    "numcodecs.zstd": ("zstd", {"level": 0, "checksum": False}),
    "numcodecs.gzip": ("gzip", {"level": 5}),
}
"""Names specified for Zarr v3, which more readers know, with their defaults; the bytes are the same. Other
codecs keep their names: zarr-python reads them without any help."""

TREES = frozenset(("zarr", "n5"))
"""Formats that are a directory of chunks, in which only links lead to other files."""


class SourceParser(ABC):
    """A parser of ours: called like one of VirtualiZarr's, it says more about what it parsed."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

        self.unread: dict[str, str] = {}
        """Arrays that cannot be translated, by path, and why."""

        self.attributes: dict[str, Mapping[str, Any]] = {}
        """Attributes that take the place of those in the store, by the path of an array or a group."""

        self.values: dict[str, Any] = {}
        """Values that take the place of those in the store, by the path of an array."""

    @abstractmethod
    def __call__(self, url: str, registry: Any) -> Any:
        """The arrays of a source as a `ManifestStore`."""

    def json(self, url: str) -> Any:
        """A document of the source; None if there is none."""
        try:
            return json.loads(self.sources.get(url))
        except (FileNotFoundError, NotADirectoryError):
            return None


class VirtualFormat(Format):
    """Any VirtualiZarr parser: called with a URL and a registry of stores, it returns a `ManifestStore`."""

    def __init__(self, name: str, parser: Any, group: str = "") -> None:
        self.name = name
        self.parser = parser
        self.group = group.strip("/")

    @contextmanager
    def open(self, url: str, sources: Sources, *, whole_tree: bool = False) -> Iterator[VirtualGroup]:
        """The group that was chosen."""
        sources.resolve(url)
        who = type(self.parser).__name__
        links = LinksInSource(url, sources, is_tree=self.name in TREES)
        try:
            store = self.parser(_as_parsers_take_it(url), sources.registry)
        except (IngestError, UnicodeDecodeError):
            raise
        except KeyError as error:
            raise IngestError(f"{who} cannot find {error} in it") from error
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise IngestError(f"{who} cannot read it: {parser_error_text(error)}") from error
        yield VirtualGroup(store, self.group, self.parser, url, links)


class VirtualGroup(SourceGroup):
    """One group of a `ManifestStore`."""

    def __init__(self, store: Any, group: str, parser: Any, url: str, links: LinksInSource) -> None:
        self._store, self._path, self._url, self._links = store, group, url, links
        self._node = parsed_group(store)
        for part in filter(None, group.split("/")):
            if part not in self._node.groups:
                raise IngestError(f"it has no group {group!r}")
            self._node = self._node.groups[part]
        typed: Mapping[str, Any] = getattr(parser, "attributes", {})
        unread: Mapping[str, str] = getattr(parser, "unread", {})
        self._values: Mapping[str, Any] = getattr(parser, "values", {})
        parts = {path: path.rpartition("/") for path in unread}
        self.unreadable = {name: unread[path] for path, (above, _, name) in parts.items() if above == group}
        self.variables = {
            name: _described(name, array, typed.get(self._inside(name)))
            for name, array in self._node.arrays.items()
            if name not in self.unreadable
        }
        self.attrs = dict(typed.get(group, self._node.metadata.attributes or {}))

    def _inside(self, name: str) -> str:
        return f"{self._path}/{name}".lstrip("/")

    def reference(self, variable: ParsedVariable) -> ParsedVariable:
        """A variable with the ranges of its chunks."""
        array = self._node.arrays[variable.name]
        ranges = ranges_of(array)
        ranges.move(self._links.follow(ranges.urls()))
        if (name := _as_parsers_take_it(self._url)) != self._url:
            ranges.move({url: url.replace(name, self._url, 1) for url in ranges.urls()})
        ranges.identity = self._links.identity(ranges.urls())
        codecs = tuple(specified_codec(codec.to_dict()) for codec in array.metadata.codecs)
        reason = "the parser had to decode it (it is not stored as chunks)" if ranges.inlined else ""
        chunks = _chunks_of(array)
        return replace(
            variable,
            chunks=chunks,
            codecs=codecs,
            fill=array.metadata.fill_value,
            ranges=ranges,
            reason=reason,
        )

    def array(self, name: str) -> Any:
        """A variable as an array that zarr reads, or the values that the parser knows."""
        if (known := self._values.get(self._inside(name))) is not None:
            return known
        self._links.follow(ranges_of(self._node.arrays[name]).urls())
        return zarr.open_array(self._store, path=self._inside(name), mode="r", zarr_format=3)

    def groups(self) -> dict[str, bool]:
        """The paths of the groups below, and whether each holds arrays."""
        _, *below = with_groups_below(self._node, self._path)
        return {path: bool(node.arrays) for path, node in below}


class LinksInSource:
    """Which files the chunks of a source may be in, and where links among them lead."""

    def __init__(self, url: str, sources: Sources, *, is_tree: bool) -> None:
        """Raises `IngestError` if a link leads to what may not be read."""
        self._url, self._sources = url, sources
        self._identity = cache(sources.identity)
        path = local_path(url) if is_tree else None
        self._folder = folder_of(url) if path is None else url.rstrip("/") + "/"
        links = [url]
        if path is not None and path.is_dir():
            links = [url_of(link) for link in links_below(str(path))]
        sources.linked(links, self._folder)
        self._has_none = not links

    def follow(self, locations: Iterable[str]) -> dict[str, str]:
        """Where links among the locations of chunks lead; raises `IngestError` if one may not be read."""
        urls = list(locations)
        for url in urls:
            self._sources.resolve(url)
        if self._has_none:
            plain = unquote(self._folder)
            urls = [url for url in urls if not _is_directly_below(url, plain)]
        return self._sources.linked(urls, self._folder)

    def identity(self, locations: Sequence[str]) -> ContentIdentity | None:
        """What identifies the content of chunks in these places; None if all are in the source itself."""
        below = self._url.rstrip("/") + "/"
        others = [url for url in locations if url != self._url and not url.startswith(below)]
        if not others:
            return None
        places = others if len(others) == len(locations) else [self._url, *others]
        return combined_identity([self._identity(url) for url in places])


def parser_error_text(error: Exception) -> str:
    """What a parser says; NumPy's errors about indexes mean a chunk that the array cannot have."""
    text = " ".join(str(error).split())
    outside = isinstance(error, IndexError) or text.startswith("invalid entry in coordinates")
    return f"one of its arrays has a chunk outside of its shape ({text})" if outside else text


def _is_directly_below(url: str, folder: str) -> bool:
    """Whether a URL is below a folder by its name alone."""
    plain = unquote(url)
    return plain.startswith(folder) and "/../" not in plain


def _as_parsers_take_it(url: str) -> str:
    """A URL for VirtualiZarr: it takes file URLs without percent signs; one with #, ? or % stays encoded."""
    plain = unquote(url)
    return plain if url.startswith(FILE) and not set("#?%") & set(plain) else url


def with_groups_below(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """A group of a `ManifestStore` and all groups below it, with their paths."""
    yield path, node
    for name, below in node.groups.items():
        yield from with_groups_below(below, f"{path}/{name}".lstrip("/"))


def _described(name: str, array: Any, attrs: Mapping[str, Any] | None = None) -> ParsedVariable:
    """What a manifest array is, before its references are read."""
    dtype = array.dtype if array.dtype.kind == "T" else array.dtype.newbyteorder("=")
    names = array.metadata.dimension_names
    dims = tuple(dim or f"dim_{axis}" for axis, dim in enumerate(names or (None,) * len(array.shape)))
    attributes = dict(array.metadata.attributes if attrs is None else attrs)
    if attrs is None and "_FillValue" in attributes:
        attributes["_FillValue"] = decoded_fill_attribute(attributes["_FillValue"], dtype)
    return ParsedVariable(name, "static", dims, tuple(array.shape), attributes, dtype)


def specified_codec(document: dict[str, Any]) -> dict[str, Any]:
    """A codec under the name that is specified for Zarr v3, if there is one.

    >>> specified_codec({"name": "numcodecs.zstd", "configuration": {"level": 3, "id": "zstd"}})
    {'name': 'zstd', 'configuration': {'level': 3, 'checksum': False}}
    """
    name, configuration = document["name"], document.get("configuration", {})
    if name in SPECIFIED:
        name, defaults = SPECIFIED[name]
        configuration = {key: configuration.get(key, default) for key, default in defaults.items()}
    return {"name": name} | ({"configuration": dict(configuration)} if "configuration" in document else {})


def _chunks_of(array: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in array.metadata.chunk_grid.chunk_shape)


def ranges_of(array: Any) -> ChunkRanges:
    """Where the chunks of a manifest array are."""
    grid = chunk_grid(array.shape, _chunks_of(array))
    paths, offsets, lengths, inlined = manifest_table(array.manifest)
    if (
        paths.shape != grid or not paths.size
    ):  # none of it was ever written; the parser then returns any shape
        return ChunkRanges("", np.zeros(grid, "u8"), np.zeros(grid, "u8"), inlined=inlined)
    lengths = np.where(paths != "", lengths, np.uint64(0))
    for index in inlined:
        lengths[index] = 0
    urls = np.unique(paths[lengths > 0]).tolist()
    locations = (urls or [""])[0] if len(urls) < 2 else np.where(lengths > 0, paths, "")
    return ChunkRanges(locations, np.ascontiguousarray(offsets), lengths, inlined=inlined)
