"""What `preprocess=` gets and returns: a file as an `xarray.Dataset`, whose data is not read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.ingest_arguments import assign_roles
from intarsia.archives.parsed_file import (
    ParsedFile,
    ParsedVariable,
    ParseRequest,
    rename_mentions,
    roles,
)
from intarsia.errors import IngestError
from intarsia.extras import import_extra

if TYPE_CHECKING:
    import xarray as xr

type Preprocess = Callable[[xr.Dataset], xr.Dataset]
"""The caller's function from a file to what should be ingested of it."""

NAME = "name_in_file"
"""The key in the encoding of variables under which xarray carries their names in the file along."""


class UnreadArray:
    """The data of a variable, for xarray: an array that can be indexed and transposed, but not read.

    >>> v = ParsedVariable("t2m", "data", ("lat", "x"), (3, 5), {}, np.dtype("f4"))
    >>> part = UnreadArray(v)[:, np.array([4, 0])].permute_dims(None, (1, 0))
    >>> part.shape, part.variable.axes, part.variable.picks
    ((2, 3), ('x', 'lat'), {'x': array([4, 0])})
    """

    def __init__(self, variable: ParsedVariable) -> None:
        self.variable = variable
        self.dtype = variable.dtype
        self.shape = tuple(variable.sizes.values())
        self.ndim = len(self.shape)

    def __array_namespace__(self, api_version: str | None = None) -> UnreadArray:
        return self

    def permute_dims(self, array: Any, order: Sequence[int]) -> UnreadArray:
        """Transpose, as xarray does it."""
        axes = self.variable.axes
        return UnreadArray(replace(self.variable, seen=tuple(axes[k] for k in order)))

    def __getitem__(self, key: tuple[Any, ...]) -> UnreadArray:
        # xarray gives an index for every axis, or for the first ones and `...`
        seen, picks = list(self.variable.axes), dict(self.variable.picks)
        for (dim, length), index in zip(self.variable.sizes.items(), key, strict=False):
            if index is ... or (isinstance(index, slice) and index == slice(None)):
                continue
            picks[dim] = picks.get(dim, np.arange(length))[index]
            if not picks[dim].ndim:
                seen.remove(dim)
        return UnreadArray(replace(self.variable, seen=tuple(seen), picks=picks))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise IngestError(f"preprocess: {self.variable.name!r} is data, which is not read for it")

    def __repr__(self) -> str:
        return f"<{self.dtype} {self.shape}, not read>"

    def parsed(self, dims: Sequence[str]) -> ParsedVariable:
        """The variable with these names for its visible axes."""
        now = dict(zip(self.variable.axes, dims, strict=True))
        hidden = {dim: f"{dim}'" for dim in self.variable.dims if dim not in now and dim in dims}
        variable = replace(self.variable)
        variable.rename_dims(now | hidden)
        if not variable.picks and variable.axes == variable.dims:
            variable.seen = None
        return variable


def _dataset(file: ParsedFile) -> xr.Dataset:
    """A file as xarray shows it, not decoded; its URL is in `encoding["source"]`."""
    xarray = import_extra("xarray", "virtual")
    variables = {}
    for name, variable in file.variables.items():
        data: Any = variable.values
        if data is None:
            data = UnreadArray(variable)
        elif data.dtype.kind == "T":
            data = data.astype(object)
        encoding = {NAME: variable.name}
        variables[name] = xarray.Variable(variable.dims, data, dict(variable.attrs), encoding)
    dataset: xr.Dataset = xarray.Dataset(variables, attrs=dict(file.attrs))
    dataset.encoding["source"] = file.url
    return dataset


def _file(dataset: xr.Dataset, before: ParsedFile) -> ParsedFile:
    """What the caller's function returned, as a parsed file."""
    names = {str(v.encoding[NAME]): str(name) for name, v in dataset.variables.items() if NAME in v.encoding}
    own = {variable.name: name for name, variable in before.variables.items()}
    now = {own[old]: new for old, new in names.items() if own.get(old, new) != new}
    scalars = [str(name) for name, each in dataset.coords.items() if not each.ndim]
    variables = {}
    for key, each in dataset.variables.items():
        name, dims, attrs = str(key), tuple(map(str, each.dims)), rename_mentions(dict(each.attrs), now)
        if isinstance(each.data, UnreadArray):
            variables[name] = variable = replace(each.data.parsed(dims), attrs=attrs)
            if scalars:  # as in CF, data names its scalar coordinates
                listed = dict.fromkeys((*str(attrs.get("coordinates", "")).split(), *scalars))
                variable.attrs["coordinates"] = " ".join(listed)
            continue
        values, units = encode_coordinates(each.values)
        if values.dtype.kind not in "biufcT":
            raise IngestError(
                f"preprocess: {name!r} has values of type {values.dtype}: not numbers, strings or dates"
            )
        stored = str(each.encoding.get(NAME, name))
        variables[name] = ParsedVariable(
            stored, "static", dims, values.shape, attrs | units, values.dtype, values=values
        )
    return replace(before, variables=variables, attrs=dict(dataset.attrs))


def encode_coordinates(values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    """Coordinates from the caller as a file would have them: dates are counted, texts are strings.

    >>> encode_coordinates(np.array(["2000-01-02"], "datetime64[D]"))[0].tolist()
    [946771200000000000]
    """
    if values.dtype.kind == "M":
        counted = values.astype("datetime64[ns]").astype("i8")
        return counted, {"units": "nanoseconds since 1970-01-01", "calendar": "proleptic_gregorian"}
    is_text = values.dtype.kind in "US" or (
        values.dtype.kind == "O" and all(isinstance(each, str) for each in values.flat)
    )
    return values.astype(np.dtypes.StringDType()) if is_text else values, {}


def run_preprocess(parse: Callable[[ParseRequest], ParsedFile], request: ParseRequest) -> ParsedFile:
    """A file as the caller's function returns it; the roles of its variables are decided after that.

    So the file is parsed without knowing which dimensions grow from file to file, and parsed again if
    something that looked like data has to be loaded.
    """
    bare = replace(request, dims=(), variables=None, preprocess=None)
    known = dict(request.rename)
    for _ in range(2):
        file = _applied(request.preprocess, parse(bare))
        if not request.dims:
            return file
        with_roles = assign_roles(file, request)
        if with_roles is not None:
            return with_roles
        unread = [
            known.get(variable.name, variable.name)
            for name, role in roles(file.variables, request).roles.items()
            if role != "data" and (variable := file.variables[name]).values is None
        ]
        bare = replace(bare, load=(*bare.load, *unread))
    raise IngestError("preprocess: it turns a coordinate into data, or its result varies between calls")


def _applied(function: Any, file: ParsedFile) -> ParsedFile:
    try:
        dataset = function(_dataset(file))
        if not isinstance(dataset, import_extra("xarray", "virtual").Dataset):
            raise IngestError(f"preprocess returned {dataset!r}: return the dataset that should be ingested")
        return _file(dataset, file)
    except IngestError:
        raise
    except Exception as error:
        raise IngestError(f"preprocess failed: {type(error).__name__}: {error}") from error
