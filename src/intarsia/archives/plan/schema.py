"""A schema that the caller declares: files are compared with it instead of with the first of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intarsia.archives.cf import CFDecoding
from intarsia.archives.parse import add_coordinates, parse_one
from intarsia.archives.parsed_file import (
    ParsedFile,
    ParsedVariable,
    ParseRequest,
    roles,
)
from intarsia.archives.source_files import ContentIdentity, Sources
from intarsia.errors import IngestError
from intarsia.extras import import_extra

THE_SCHEMA = "the schema"
"""The name of the schema where it stands in for a file."""

type Declared = tuple[ParsedVariable, np.dtype[Any] | None]
"""A variable, with its values if they are known; and its data type, if it is known."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What every file is compared with instead of the first one."""

    file: ParsedFile
    """As a file from which nothing is ingested."""

    dtypes: Mapping[str, np.dtype[Any]]
    """The types of variables' values, if declared."""


def read_schema(
    declaration: Any,
    request: ParseRequest,
    sources: Sources,
    coordinate_sources: Mapping[str, Callable[[ParsedFile], Any]],
) -> Schema:
    """What the caller declared with a file, a dataset or a dictionary.

    >>> from intarsia.archives.parsed_file import ParseRequest
    >>> lat = {"dims": ["lat"], "data": [10, 20]}
    >>> sst = {"dims": ["time", "lat"], "dtype": "float32"}
    >>> document = {"data_vars": {"sst": sst}, "coords": {"lat": lat}}
    >>> schema = read_schema(document, ParseRequest(("time",)), None, {})
    >>> schema.file.variables["sst"].sizes, schema.dtypes
    ({'time': 1, 'lat': 2}, {'sst': dtype('float32')})
    """
    if isinstance(declaration, str | os.PathLike):
        (url,) = sources.expand(declaration) or [""]
        parsed = parse_one(url, sources, request)
        try:
            if not isinstance(parsed, ParsedFile):
                raise IngestError(parsed.reason)
            add_coordinates(parsed, request.dims, coordinate_sources)
        except IngestError as error:
            raise IngestError(f"the schema {url} cannot be read: {error}") from error
        data = {name: v for name, v in parsed.variables.items() if v.role == "data"}
        return Schema(parsed, {name: CFDecoding.of(v.dtype, v.attrs).values for name, v in data.items()})
    if isinstance(declaration, Mapping) and not hasattr(declaration, "data_vars"):
        attrs = dict(declaration.get("attrs", {}))
        return _schema(_of_document(declaration, request), attrs, request)
    if not hasattr(declaration, "data_vars"):
        raise IngestError(f"schema={declaration!r:.80}: give a file, an xarray.Dataset or a dictionary")
    return _schema(_of_dataset(declaration, request), dict(declaration.attrs), request)


def _schema(declared: Iterable[Declared], attrs: dict[str, Any], request: ParseRequest) -> Schema:
    described = {variable.name: (variable, dtype) for variable, dtype in declared}
    found = roles({name: variable for name, (variable, _) in described.items()}, request)
    variables: dict[str, ParsedVariable] = {}
    dtypes = {}
    for name, (variable, dtype) in described.items():
        role = found.roles.get(name)
        if role == "data":
            variables[name] = replace(variable, role=role, values=None)
            if dtype is not None:
                dtypes[name] = dtype
        elif role is not None and variable.values is not None:  # otherwise no file could contradict it
            variables[name] = replace(variable, role=role)
    file = ParsedFile(
        THE_SCHEMA, ContentIdentity(0, None), "schema", variables, attrs, new_dims=found.new_dims
    )
    add_coordinates(file, request.dims, {})
    return Schema(file, dtypes)


def _of_dataset(dataset: Any, request: ParseRequest) -> Iterator[Declared]:
    for name, variable in dataset.variables.items():
        if name in dataset.coords:
            yield from _coordinate(str(name), variable, request)
        else:
            attrs, dtype = dict(variable.attrs), variable.dtype
            yield ParsedVariable(str(name), "static", variable.dims, variable.shape, attrs, dtype), dtype


def _coordinate(name: str, variable: Any, request: ParseRequest) -> Iterator[Declared]:
    """A coordinate as a file would have it, with the values of an `xarray.Variable`."""
    is_time = variable.dtype.kind in "MO" and "calendar" not in variable.encoding
    if is_time and set(request.dims) & {name, *variable.dims}:
        return  # the units are not given
    stored = import_extra("xarray", "xarray").conventions.encode_cf_variable(variable, name=name)
    values = np.asarray(stored.values)
    if values.dtype.kind in "OUS":
        values = values.astype(np.dtypes.StringDType())
    dims, attrs, dtype = stored.dims, dict(stored.attrs), values.dtype
    yield ParsedVariable(name, "static", dims, values.shape, attrs, dtype, values=values), dtype


def _of_document(document: Mapping[str, Any], request: ParseRequest) -> Iterator[Declared]:
    """As `xarray.Dataset.to_dict` writes it, with or without values."""
    xarray = import_extra("xarray", "xarray")
    sizes = dict(document.get("dims", {})) | dict.fromkeys(request.dims, 1)
    listed = {**document.get("coords", {}), **document.get("data_vars", {})}
    for name, each in listed.items():
        if not isinstance(each, Mapping) or "dims" not in each:
            raise IngestError(
                f"schema: {name!r} is {each!r:.80}; give its dims, as xarray.Dataset.to_dict does"
            )
        shape = np.shape(each["data"]) if "data" in each else each.get("shape", ())
        sizes |= {dim: n for dim, n in zip(each["dims"], shape, strict=False) if dim not in request.dims}
    for name, each in listed.items():
        dims = tuple(each["dims"])
        unknown = [dim for dim in dims if dim not in sizes]
        if unknown:
            raise IngestError(f"schema: it does not give the length of {unknown[0]!r} in {name!r}")
        dtype = np.dtype(each["dtype"]) if "dtype" in each else None
        attrs = dict(each.get("attrs", {}))
        if "data" in each and name not in document.get("data_vars", {}):
            values = np.asarray(each["data"])
            typed = dtype is not None and dtype.kind not in "OUST"
            variable = xarray.Variable(dims, values.astype(dtype) if typed else values, attrs)
            yield from _coordinate(str(name), variable, request)
            continue
        shape = tuple(sizes[dim] for dim in dims)
        yield ParsedVariable(str(name), "static", dims, shape, attrs, dtype or np.dtype("f8")), dtype
