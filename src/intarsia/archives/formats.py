"""Which parser reads a source, found from its first bytes; and the seam that every parser stands behind."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote

import numpy as np
import zarr

from intarsia.archives import n5, netcdf3
from intarsia.archives.hdf5 import HDF5
from intarsia.archives.manifests import arrays_of, described, parsed_variable
from intarsia.archives.parsed import ParsedFile, ParsedVariable, roles
from intarsia.archives.sources import FILE, Identity, local_path
from intarsia.extras import extra

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from intarsia.archives.parsed import Description, Want
    from intarsia.archives.sources import Sources

__all__ = ["Format", "VirtualFormat", "format_for", "format_of"]

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
USER_BLOCKS = (0, 512, 1024, 2048, 4096, 8192)
"""Where HDF5's signature may stand."""

ZARR_FILES = frozenset(("zarr.json", ".zgroup", ".zmetadata", ".zarray", ".zattrs"))


class Format(Protocol):
    """What reads one kind of source: the seam between intarsia and the parsers."""

    @property
    def name(self) -> str:
        """The kind of file in a word."""

    def parse(self, url: str, sources: Sources, want: Want) -> ParsedFile:
        """The wanted variables of one source."""

    def opened(self, url: str, sources: Sources, name: str) -> AbstractContextManager[Any]:
        """A variable's stored numbers, to be read by slices, for a copy."""


class VirtualFormat:
    """Any VirtualiZarr parser: called with a URL and a registry of stores, it returns a `ManifestStore`."""

    def __init__(self, name: str, parser: Any, group: str = "") -> None:
        self.name = name
        self.parser = parser
        self.group = group

    def _store(self, url: str, sources: Sources) -> Any:
        sources.resolve(url)
        return self.parser(_as_parsers_take_it(url), sources.registry)

    def parse(self, url: str, sources: Sources, want: Want) -> ParsedFile:
        """The wanted variables of one source."""
        store = self._store(url, sources)
        arrays = arrays_of(store, self.group)
        attrs, typed = self._typed_attributes(url, sources)
        described_arrays = {name: described(array, typed.get(name)) for name, array in arrays.items()}
        if self.name == "zarr":
            self._add_fill_values(url, sources, described_arrays)
        found, left_out = roles(described_arrays, want)
        variables: dict[str, ParsedVariable] = {}
        for name, role in found.items():
            variable = parsed_variable(name, role, arrays[name], described_arrays[name])
            assert variable.references is not None
            for location in variable.references.urls():
                sources.resolve(location)
            if role == "data":
                _rename(variable, _as_parsers_take_it(url), url)
            else:
                variable.values = self._values(store, name)
                variable.references = None
            variables[name] = variable
        new_dim = not any(want.concat_dim in each.dims for each in described_arrays.values())
        if attrs is None:
            attrs = dict(store._group.metadata.attributes or {})
        parsed = ParsedFile(url, sources.identity(url), self.name, variables, attrs, left_out, new_dim)
        parsed.referenced = _elsewhere(parsed, sources)
        return parsed

    def _typed_attributes(
        self, url: str, sources: Sources
    ) -> tuple[dict[str, Any] | None, Mapping[str, dict[str, Any]]]:
        if self.name != "netcdf3":
            return None, {}
        with sources.reader(url) as reader:
            return netcdf3.attributes(reader)

    def _add_fill_values(self, url: str, sources: Sources, found: dict[str, Description]) -> None:
        """In Zarr v2 the fill value of an array means "missing", as xarray reads it."""
        if "zarr.json" in sources.names_in(url):
            return
        for name, description in found.items():
            document = json.loads(sources.get(f"{url.rstrip('/')}/{quote(self._path(name))}/.zarray"))
            fill = document.get("fill_value")
            if fill is not None and "_FillValue" not in description.attrs and description.dtype.kind in "iuf":
                attrs = {**description.attrs, "_FillValue": description.dtype.type(fill)}
                found[name] = with_fields(description, attrs=attrs)

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self.group.strip("/"), name) if part)

    def _values(self, store: Any, name: str) -> np.ndarray[Any, Any]:
        array: Any = zarr.open_array(store, path=self._path(name), mode="r", zarr_format=3)
        values: np.ndarray[Any, Any] = np.asarray(array[...])
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    @contextmanager
    def opened(self, url: str, sources: Sources, name: str) -> Iterator[Any]:
        """A variable's stored numbers, to be read by slices, for a copy."""
        store = self._store(url, sources)
        for array in arrays_of(store, self.group).values():
            for location in set(array.manifest.iter_nonempty_paths()):
                sources.resolve(location)
        yield zarr.open_array(store, path=self._path(name), mode="r", zarr_format=3)


def _elsewhere(parsed: ParsedFile, sources: Sources) -> Identity | None:
    """What identifies the files that a file of references points to; None if it points to itself only."""
    urls = {
        location
        for variable in parsed.variables.values() if variable.references is not None
        for location in variable.references.urls() if not location.startswith(parsed.url)
    }  # fmt: skip
    if not urls:
        return None
    found = [sources.identity(location) for location in sorted(urls)]
    moments = [identity.modified for identity in found if identity.modified is not None]
    complete = len(moments) == len(found)
    return Identity(sum(identity.size for identity in found), max(moments) if complete else None)


def _as_parsers_take_it(url: str) -> str:
    """VirtualiZarr takes file URLs without percent signs; what it would cut off (?, #) stays encoded."""
    plain = unquote(url)
    return plain if url.startswith(FILE) and not set("#?%") & set(plain) else url


def _rename(variable: ParsedVariable, old: str, new: str) -> None:
    references = variable.references
    if references is None or old == new:
        return
    if isinstance(references.locations, str):
        references.locations = references.locations.replace(old, new, 1)
    else:
        references.locations = np.strings.replace(references.locations, old, new, 1)


def format_for(parser: Any) -> Format:
    """The format behind a parser that a caller gave: one of ours, or any of VirtualiZarr's."""
    if hasattr(parser, "parse") and hasattr(parser, "opened"):
        format: Format = parser
        return format
    if type(parser).__name__ == "HDFParser":  # ours reads what it leaves out
        return HDF5(parser.group or "/", tuple(parser.drop_variables or ()))
    return VirtualFormat(type(parser).__name__, parser)


def format_of(url: str, sources: Sources) -> Format:
    """The format of a source, from its first bytes, or from the names in a directory."""
    names = sources.names_in(url) if _may_be_directory(url) else []
    if names:
        return _format_of_directory(url, names, sources)
    with sources.reader(url) as reader:
        head = reader.read(8)
        if not head:
            raise ValueError("the file is empty")
        for start in USER_BLOCKS:
            reader.seek(start)
            if reader.read(8) == HDF5_MAGIC:
                return HDF5()
    parsers = "virtualizarr.parsers"
    if head[:3] == b"CDF":
        return VirtualFormat("netcdf3", extra(parsers, "virtual").NetCDF3Parser())
    if head[:4] in TIFF_MAGIC:
        return VirtualFormat("tiff", extra("virtual_tiff", "tiff").VirtualTIFF(ifd=0))
    if head.lstrip()[:1] == b"{":
        return VirtualFormat("kerchunk", extra(parsers, "virtual").KerchunkJSONParser())
    raise ValueError(
        f"it is none of HDF5, NetCDF, Zarr, N5, TIFF and kerchunk references (it starts with {head!r})"
    )


def _may_be_directory(url: str) -> bool:
    path = local_path(url)
    if path is not None:
        return path.is_dir()
    return url.endswith(("/", ".zarr", ".n5", ".parq", ".parquet")) or "." not in url.rsplit("/", 1)[-1]


def _format_of_directory(url: str, names: list[str], sources: Sources) -> Format:
    parsers = "virtualizarr.parsers"
    if ".zmetadata" in names and url.rstrip("/").endswith((".parq", ".parquet")):
        return VirtualFormat("kerchunk", extra(parsers, "virtual").KerchunkParquetParser())
    if ZARR_FILES & set(names):
        return VirtualFormat("zarr", extra(parsers, "virtual").ZarrParser())
    if n5.ATTRIBUTES in names:
        document = json.loads(sources.get(f"{url.rstrip('/')}/{n5.ATTRIBUTES}"))
        if n5.is_n5(document):
            return VirtualFormat("n5", n5.N5Parser(sources))
    raise ValueError(f"the directory is neither Zarr nor N5 (it holds {', '.join(names[:6])})")
