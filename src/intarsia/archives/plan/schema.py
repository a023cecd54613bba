"""A schema that the caller declares: files are compared with it instead of with the first of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
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
    if hasattr(declaration, "data_vars"):
        attrs = dict(declaration.attrs)
        return _schema(declaration.variables, declaration.coords, attrs, request)
    if not isinstance(declaration, Mapping):
        raise IngestError(f"schema={declaration!r:.80}: give a file, an xarray.Dataset or a dictionary")
    return _of_document(declaration, request)


def _schema(
    variables: Mapping[Any, Any], coords: Collection[str], attrs: dict[str, Any], request: ParseRequest,
    untyped: Collection[str] = (),
) -> Schema:  # fmt: skip
    """The schema of variables of xarray. Those in `coords` have values, those in `untyped` any data type."""
    described = {}
    for name, variable in variables.items():
        own, values = variable, None
        if name in coords:
            is_time = own.dtype.kind in "MO" and "calendar" not in own.encoding
            if is_time and set(request.dims) & {name, *own.dims}:
                continue  # the units are not given
            own = import_extra("xarray", "xarray").conventions.encode_cf_variable(own, name=name)
            values = np.asarray(own.values)
            values = values.astype(np.dtypes.StringDType()) if values.dtype.kind in "OUS" else values
        dtype = own.dtype if values is None else values.dtype
        described[str(name)] = ParsedVariable(
            str(name), "static", own.dims, own.shape, dict(own.attrs), dtype, values=values
        )
    found = roles(described, request)
    kept: dict[str, ParsedVariable] = {}
    for name, role in found.roles.items():
        if role == "data":
            kept[name] = replace(described[name], role=role, values=None)
        elif described[name].values is not None:  # otherwise no file could contradict it
            kept[name] = replace(described[name], role=role)
    file = ParsedFile(THE_SCHEMA, ContentIdentity(0, None), "schema", kept, attrs, new_dims=found.new_dims)
    add_coordinates(file, request.dims, {})
    typed = {name: v for name, v in kept.items() if v.role == "data" and name not in untyped}
    return Schema(file, {name: v.dtype for name, v in typed.items()})


def _of_document(document: Mapping[str, Any], request: ParseRequest) -> Schema:
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
    coords = {name for name in listed.keys() - document.get("data_vars", {}) if "data" in listed[name]}
    variables = {}
    for name, each in listed.items():
        unknown = [dim for dim in each["dims"] if dim not in sizes]
        if unknown:
            raise IngestError(f"schema: it does not give the length of {unknown[0]!r} in {name!r}")
        dtype = np.dtype(each["dtype"]) if "dtype" in each else None
        values = np.broadcast_to(np.zeros((), dtype), [sizes[dim] for dim in each["dims"]])
        if name in coords:
            values = np.asarray(each["data"])
            values = values if dtype is None or dtype.kind in "OUST" else values.astype(dtype)
        variables[name] = xarray.Variable(each["dims"], values, each.get("attrs", {}))
    untyped = {name for name, each in listed.items() if "dtype" not in each} - coords
    return _schema(variables, coords, dict(document.get("attrs", {})), request, untyped)
