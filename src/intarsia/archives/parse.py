"""Parsing files: which format each has, many of them at once, and what makes them all alike.

A bad file never stops the rest: what is wrong with it is returned as a result.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from intarsia.archives.cf import PACKING, packing_of
from intarsia.archives.formats import grib, hdf5, kerchunk, n5, netcdf3, tiff, zarr
from intarsia.archives.formats.format import Format
from intarsia.archives.formats.virtualizarr import VirtualFormat
from intarsia.archives.parse_pool import Engine, parse_with
from intarsia.archives.parsed_file import ParsedFile, ParsedVariable, ParseFailure, ParseRequest
from intarsia.archives.plan.axis_union import Span
from intarsia.archives.plan.coordinates import has_time_units
from intarsia.archives.plan.encodings import depends_on_axes, with_axis_before
from intarsia.archives.preprocess import encode_coordinates, run_preprocess
from intarsia.archives.source_files import FormatProbe, Sources
from intarsia.display import count_text, is_misspelt, names_text
from intarsia.errors import IngestError, MissingExtraError, argument
from intarsia.versions.storage_options import scheme_of

FORMATS = (hdf5, netcdf3, tiff, grib, kerchunk, zarr, n5)
"""Modules that recognise a format, in this order; `recognise` returns what parses it."""

MAX_SHOWN_GROUPS = 8
MAX_SHOWN_BYTES = 40

DEEPEST = 100
"""The most levels of nesting in an attribute: beyond that, Python's own limit is not far."""

REMOTE_THREADS = 16
"""Many, because parsing a remote file is mostly waiting."""

MAX_GRIDS = 256
"""How many values are remembered in case the next file has them too."""


def format_of(url: str, sources: Sources, request: ParseRequest) -> Format:
    """The format of a source: the caller's own parser, or what its first bytes or a directory's names say."""
    if request.parser is not None:
        return _format_for(request.parser, request.group)
    probe = FormatProbe.of(url, sources)
    for module in FORMATS:
        format: Format | None = module.recognise(probe, sources, request.group)
        if format is not None:
            return format
    if {"repo", "snapshots"} <= set(probe.names):
        raise IngestError("it is an Icechunk repository: files come first, the store last")
    if probe.names:
        listed = ", ".join(probe.names[:6])
        raise IngestError(f"the directory is neither Zarr nor N5 (it holds {listed})")
    raise IngestError(
        "it is none of HDF5, NetCDF, GRIB, Zarr, N5, TIFF and kerchunk references: it starts with "
        f"{probe.head[:8]!r} (a parser of VirtualiZarr may read it)"
    )


def _format_for(parser: Any, group: str) -> Format:
    """The format for a caller's parser: one of ours, or any of VirtualiZarr's."""
    if hasattr(parser, "parse") and hasattr(parser, "opened"):
        own: Format = parser
        return own
    if type(parser).__name__ == "HDFParser":  # ours reads what it leaves out
        if parser.drop_variables:
            raise IngestError(f"HDFParser(drop_variables=…): {argument('variables')} names those to take")
        return hdf5.HDF5(group or parser.group or "")
    return VirtualFormat(type(parser).__name__, parser, group)


def parse_one(url: str, sources: Sources, request: ParseRequest) -> ParsedFile | ParseFailure:
    """Parse one file; what is wrong with it is returned, not raised."""
    try:
        before = sources.identity(url)
        is_own = request.parser is None
        with sources.held(url, before.size if is_own else sys.maxsize):
            format = format_of(url, sources, request)
            digest = sources.digest(url, before) if is_own else ""

            def parse(request: ParseRequest) -> ParsedFile:
                found = format.parse(url, sources, request)
                if found.groups:
                    raise IngestError(_groups_text(found, request))
                return found

            parsed = parse(request) if request.preprocess is None else run_preprocess(parse, request)
        if parsed.identity != before:
            return ParseFailure(url, "the file changed while it was read")
        _check(parsed)
        parsed.identity = replace(parsed.identity, digest=digest)
        return parsed
    except Exception as error:
        return ParseFailure(url, failure_text(error))


def failure_text(error: Exception) -> str:
    """What is wrong with a file; an error that is the same for every file is raised."""
    if isinstance(error, MissingExtraError):
        raise error
    if isinstance(error, IngestError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, UnicodeDecodeError):
        return f"a name or string in it is not {error.encoding}: {bytes(error.object[:MAX_SHOWN_BYTES])!r}"
    text = str(error).split("Debug source:")[0]  # from obstore, for its developers
    return f"{type(error).__name__}: {' '.join(text.split())}"


def _groups_text(parsed: ParsedFile, request: ParseRequest) -> str:
    """Why there is no data here, and which groups have variables."""
    place = f"its group {request.group!r}" if request.group else "it"
    along = f" along {' and '.join(map(repr, request.dims))}" if request.dims else ""
    listed = ", ".join(map(repr, parsed.groups[:MAX_SHOWN_GROUPS]))
    more = " and more" if len(parsed.groups) > MAX_SHOWN_GROUPS else ""
    return (
        f"{place} has no data{along}, but some of its groups have variables: {listed}{more} "
        f"({argument('source_group')} names one to ingest, {argument('source_group', '*')} all)"
    )


def no_variables_text(left_out: Mapping[str, str]) -> str:
    """Why a file with groups has nothing that can be ingested."""
    listed = "; ".join(f"{name!r}: {why}" for name, why in list(left_out.items())[:MAX_SHOWN_GROUPS])
    return "none of its groups has variables that can be ingested" + (f" ({listed})" if listed else "")


def _check(parsed: ParsedFile) -> None:
    """Raise `IngestError` if a file is cut off, or if it holds what cannot be written or counted."""
    _check_depth("", parsed.attrs)
    for variable in parsed.variables.values():
        for ranges in variable.all_ranges():
            place, size = ranges.locations, (ranges.identity or parsed.identity).size
            if isinstance(place, str) and ranges.end > size:
                raise IngestError(
                    f"{'the file' if place == parsed.url else place} is truncated: a chunk of "
                    f"{variable.name!r} ends at byte {ranges.end}, but there are {size}"
                )
        for name in (variable.name, *variable.dims):
            name.encode()  # JSON can express half of a character, but UTF-8 cannot
        length = max((*variable.shape, *variable.chunks), default=0)
        if length > sys.maxsize:
            raise IngestError(
                f"the variable {variable.name!r} has a length of {length} in its shape or its chunks"
            )
        _check_depth(f" of the variable {variable.name!r}", variable.attrs)


def _check_depth(bearer: str, attrs: Mapping[str, Any]) -> None:
    """Raise `IngestError` if lists are nested too deeply for recursive code."""
    for name, value in attrs.items():
        if _depth(value) > DEEPEST:
            raise IngestError(f"its attribute {name!r}{bearer} is nested more than {DEEPEST} deep")


def _depth(value: Any, above: int = 0) -> int:
    """How deep lists and mappings are nested, counted a little beyond what is allowed."""
    if above > DEEPEST or not isinstance(value, list | tuple | Mapping):
        return above
    within = value.values() if isinstance(value, Mapping) else value
    return max((_depth(each, above + 1) for each in within), default=above + 1)


def parse_all(
    urls: list[str], sources: Sources, request: ParseRequest, engine: Engine = None
) -> Iterator[ParsedFile | ParseFailure]:
    """Parse every file, in the order of `urls`.

    By default, remote files are parsed in threads, and many local ones in processes. What the caller wrote, a
    parser or a function, is called in this process.
    """
    remote = any(scheme_of(url) != "file" for url in urls)
    if engine is None and (remote or request.parser is not None or request.preprocess is not None):
        engine = REMOTE_THREADS if remote else 1
    parse = partial(_parse_some, sources=sources, request=request)
    alone = engine is None and len(urls) == 1
    known: dict[Any, Any] = {}
    for result in parse(urls) if alone else parse_with(engine, parse, urls, remote=remote):
        if isinstance(result, ParsedFile):
            _keep_once(result, known)
        yield result


def _parse_some(
    urls: Sequence[str], sources: Sources, request: ParseRequest
) -> list[ParsedFile | ParseFailure]:
    """Parse some files; grids that they share are one object, which is sent once."""
    known: dict[Any, Any] = {}
    results = [parse_one(url, sources, request) for url in urls]
    for result in results if len(results) > 1 else ():
        if isinstance(result, ParsedFile):
            _keep_once(result, known)
    return results


def _keep_once(parsed: ParsedFile, known: dict[Any, Any]) -> None:
    """Keep grids that are the same in every file in memory only once."""
    if len(known) > MAX_GRIDS:
        known.clear()
    for variable in parsed.variables.values():
        values = variable.values
        if variable.role != "static" or values is None or values.dtype.kind not in "biufc":
            continue
        digest = blake2b(np.ascontiguousarray(values).view("u1").data, digest_size=16).digest()
        variable.values = known.setdefault((digest, values.dtype, values.shape), values)


def add_coordinates(
    file: ParsedFile, dims: tuple[str, ...], coordinate_sources: Mapping[str, Callable[[ParsedFile], Any]]
) -> None:
    """Give a file that is one step of a dimension the axis that it lacks; and every file its coordinates."""
    _name_units_of_bounds(file)
    _unpack_narrow(file)
    for dim in reversed(dims):
        if dim in file.new_dims:
            known = [each for variable in file.variables.values() for each in variable.dims]
            has_coordinate = dim in coordinate_sources or dim in file.variables
            if not has_coordinate and is_misspelt(dim, known):
                raise IngestError(f"it has no dimension {dim!r}: {names_text(dim, known)}")
            for variable in file.variables.values():
                if variable.role == "data":
                    _with_new_axis(variable, dim)
            scalar = file.variables.get(dim)
            if scalar is not None and scalar.values is not None and scalar.values.size == 1:
                scalar.dims, scalar.shape = (dim,), (1,)
                scalar.values = scalar.values.reshape(1)
    for dim, source in coordinate_sources.items():
        try:
            value = source(file)
        except Exception as error:
            raise IngestError(f"its {dim!r} cannot be determined: {error}") from error
        if value is not None:
            given, steps = _coordinate(dim, value), file.steps(dim)
            if steps not in (0, given.loaded.size):
                values, there = count_text(given.loaded.size, "value"), count_text(steps, "step")
                raise IngestError(f"it has {there} along {dim!r}, but was given {values}")
            file.variables[dim] = given
        elif dim not in file.variables:
            raise IngestError(f"its {dim!r} cannot be determined: it has none, and None was given for it")


def _with_new_axis(variable: ParsedVariable, dim: str) -> None:
    """Turn a variable of a file that is one step of `dim` into a variable along it."""
    reason = depends_on_axes(variable) if variable.ranges is not None else ""
    variable.dims, variable.shape = (dim, *variable.dims), (1, *variable.shape)
    variable.chunks = (1, *variable.chunks)
    if variable.seen is not None:
        variable.seen = (dim, *variable.seen)
    ranges = variable.ranges
    for part in variable.parts:
        reason = reason or depends_on_axes(part.stored)
    if reason:
        variable.ranges, variable.parts, variable.reason = None, (), reason
    for part in variable.parts:
        _with_new_axis(part.stored, dim)
        part.places[dim] = (Span(0, 1),)
    if ranges is not None and not reason:
        variable.codecs = with_axis_before(variable.codecs)
        inlined = {(0, *index): data for index, data in ranges.inlined.items()}
        variable.ranges = replace(ranges.select(None), inlined=inlined)


def _coordinate(dim: str, value: Any) -> ParsedVariable:
    """A coordinate that the caller gave: its values, or another variable of the file that has them."""
    if isinstance(value, ParsedVariable):
        values, attrs = np.atleast_1d(value.loaded), dict(value.attrs)
    else:
        values, attrs = encode_coordinates(np.atleast_1d(np.asarray(value)))
    return ParsedVariable(dim, "concat", (dim,), values.shape, attrs, values.dtype, values=values)


def _name_units_of_bounds(file: ParsedFile) -> None:
    """Give bounds the units of the coordinate that they belong to, which CF states only once."""
    for variable in file.variables.values():
        attrs = variable.attrs
        bounds = file.variables.get(str(attrs.get("bounds", attrs.get("climatology", ""))))
        if bounds is not None and bounds.role == "concat" and has_time_units(attrs):
            for key in {"units", "calendar"} & attrs.keys():
                bounds.attrs.setdefault(key, attrs[key])


def _unpack_narrow(file: ParsedFile) -> None:
    """Unpack loaded variables that have a float32 scale or offset.

    Numbers in Zarr attributes have no type: with the same packing there, the values would be float64.
    """
    for variable in file.variables.values():
        attrs = variable.attrs
        factors = [np.asarray(attrs[key]).dtype for key in ("scale_factor", "add_offset") if key in attrs]
        if variable.values is None or not any(kind == np.float32 for kind in factors):
            continue
        packing = packing_of(variable.dtype, attrs)
        if packing is not None:
            variable.values = packing.decode(variable.values)
            variable.dtype = variable.values.dtype
            variable.attrs = {key: value for key, value in attrs.items() if key not in PACKING}
