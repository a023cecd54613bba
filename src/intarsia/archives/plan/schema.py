"""A schema that the caller declares: files are compared with it instead of with the first of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
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

type Named = tuple[str, tuple[str, ...], tuple[int, ...], Any, dict[str, Any], Any]
"""Name, dimensions, shape, data type, attributes and values of a variable; the last three may be unknown."""


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
    parser: Any,
    coordinate_sources: Mapping[str, Callable[[ParsedFile], Any]],
) -> Schema:
    """What the caller declared with a file, a dataset or a dictionary.

    >>> from intarsia.archives.parsed_file import ParseRequest
    >>> lat = {"dims": ["lat"], "data": [10, 20]}
    >>> sst = {"dims": ["time", "lat"], "dtype": "float32"}
    >>> document = {"data_vars": {"sst": sst}, "coords": {"lat": lat}}
    >>> schema = read_schema(document, ParseRequest(("time",)), None, None, {})
    >>> schema.file.variables["sst"].sizes, schema.dtypes
    ({'time': 1, 'lat': 2}, {'sst': dtype('float32')})
    """
    if isinstance(declaration, str | os.PathLike):
        (url,) = sources.expand(declaration) or [""]
        parsed = add_coordinates(parse_one(url, sources, request, parser), request.dims, coordinate_sources)
        if not isinstance(parsed, ParsedFile):
            raise IngestError(f"the schema {url} cannot be read: {parsed.reason}")
        data = {name: v for name, v in parsed.variables.items() if v.role == "data"}
        return Schema(parsed, {name: CFDecoding.of(v.dtype, v.attrs).values for name, v in data.items()})
    if isinstance(declaration, Mapping) and not hasattr(declaration, "data_vars"):
        attrs = dict(declaration.get("attrs", {}))
        return _declared(list(_of_document(declaration, request)), attrs, request)
    if not hasattr(declaration, "data_vars"):
        raise IngestError(f"schema={declaration!r:.80}: give a file, an xarray.Dataset or a dictionary")
    return _declared(list(_of_dataset(declaration, request)), dict(declaration.attrs), request)


def _declared(named: list[Named], attrs: dict[str, Any], request: ParseRequest) -> Schema:
    described = {
        name: ParsedVariable(
            name, "static", dims, shape, own_attrs, np.dtype("f8") if dtype is None else dtype
        )
        for name, dims, shape, dtype, own_attrs, _ in named
    }
    found = roles(described, request.in_file(described))
    variables: dict[str, ParsedVariable] = {}
    dtypes = {}
    for name, _, _, dtype, _, values in named:
        role = found.roles.get(name)
        if role is None or (role != "data" and values is None):
            continue  # it says nothing that files could contradict
        variables[name] = replace(described[name], role=role, values=None if role == "data" else values)
        if role == "data" and dtype is not None:
            dtypes[name] = dtype
    file = ParsedFile(
        THE_SCHEMA, ContentIdentity(0, None), "schema", variables, attrs, new_dims=found.new_dims
    )
    completed = add_coordinates(file, request.dims, {})
    assert isinstance(completed, ParsedFile)
    return Schema(completed, dtypes)


def _of_dataset(dataset: Any, request: ParseRequest) -> Iterator[Named]:
    conventions = import_extra("xarray", "xarray").conventions
    for name, variable in dataset.variables.items():
        if name not in dataset.coords:
            yield str(name), variable.dims, variable.shape, variable.dtype, dict(variable.attrs), None
            continue
        is_time = variable.dtype.kind in "MO" and "calendar" not in variable.encoding
        if is_time and (name in request.dims or set(request.dims) & set(variable.dims)):
            continue  # the units are not given
        stored = conventions.encode_cf_variable(variable, name=name)
        values = np.asarray(stored.values)
        if values.dtype.kind in "OUS":
            values = values.astype(np.dtypes.StringDType())
        yield str(name), stored.dims, values.shape, values.dtype, dict(stored.attrs), values


def _of_document(document: Mapping[str, Any], request: ParseRequest) -> Iterator[Named]:
    """As `xarray.Dataset.to_dict` writes it, with or without values."""
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
        values = (
            np.asarray(each["data"]) if "data" in each and name not in document.get("data_vars", {}) else None
        )
        if values is not None and values.dtype.kind in "OUS":
            values = values.astype(np.dtypes.StringDType())
        dtype = np.dtype(each["dtype"]) if "dtype" in each else None
        if values is not None:
            values = values if dtype is None or dtype.kind in "OUST" else values.astype(dtype)
            dtype = values.dtype
        shape = tuple(sizes[dim] for dim in dims) if values is None else values.shape
        yield str(name), dims, shape, dtype, dict(each.get("attrs", {})), values
