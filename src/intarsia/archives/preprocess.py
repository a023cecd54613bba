"""What `preprocess=` gets and returns: the metadata of a file, as it is and as it should be ingested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intarsia.archives.ingest_arguments import assign_roles
from intarsia.archives.parsed_file import ParsedFile, ParsedVariable, ParseRequest, rename_variables, roles_of
from intarsia.errors import IngestError

type Preprocess = Callable[[FileMetadata], FileMetadata]


@dataclass(frozen=True, slots=True)
class VariableMetadata:
    """One variable of a file, as it will be ingested."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """The stored type."""

    attrs: Mapping[str, Any]

    values: np.ndarray[Any, Any] | None
    """The stored numbers of a coordinate; None for data, which is not read."""


class FileMetadata:
    """The metadata of one file: variables, dimensions, attributes, values of coordinates.

    A function that is given to `ingest` as `preprocess` gets one for every file, and returns what should be
    ingested: the same object, or the result of these methods, which have the names of those of
    `xarray.Dataset`. They change nothing in place, and read no data.

    >>> numbers = np.arange(3.0)
    >>> lat = ParsedVariable("latitude", "static", ("latitude",), (3,), {}, numbers.dtype, values=numbers)
    >>> t2m = ParsedVariable("t2m", "data", ("latitude", "x"), (3, 5), {"units": "K"}, np.dtype("f4"))
    >>> file = FileMetadata(ParsedFile("file:///r7.nc", None, "hdf5", {"latitude": lat, "t2m": t2m}))
    >>> file.sizes, file["latitude"].values.tolist(), file["t2m"].attrs
    ({'latitude': 3, 'x': 5}, [0.0, 1.0, 2.0], {'units': 'K'})
    >>> seen = file.rename(latitude="lat").isel(lat=slice(1, None), x=0).assign_coords(member=7)
    >>> seen.sizes, seen["t2m"].dims, seen["lat"].values.tolist(), seen["member"].values.item()
    ({'lat': 2}, ('lat',), [1.0, 2.0], 7)
    """

    def __init__(self, parsed: ParsedFile) -> None:
        self._file = parsed

    @property
    def url(self) -> str:
        """Where the file is."""
        return self._file.url

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of the file as a whole, as a copy."""
        return dict(self._file.attrs)

    @property
    def variables(self) -> dict[str, VariableMetadata]:
        """Its variables, by name."""
        return {
            name: VariableMetadata(tuple(v.sizes), tuple(v.sizes.values()), v.dtype, dict(v.attrs), v.values)
            for name, v in self._file.variables.items()
        }

    @property
    def sizes(self) -> dict[str, int]:
        """Its dimensions and their lengths."""
        return {dim: n for v in self._file.variables.values() for dim, n in v.sizes.items()}

    def __getitem__(self, name: str) -> VariableMetadata:
        self._check([name], self._file.variables, "variable")
        return self.variables[name]

    def __contains__(self, name: object) -> bool:
        return name in self._file.variables

    def __repr__(self) -> str:
        names = ", ".join(f"{name}{each.dims}" for name, each in self.variables.items())
        return f"FileMetadata({self.url}: {names})"

    def rename(self, mapping: Mapping[str, str] | None = None, **names: str) -> FileMetadata:
        """Rename variables and dimensions: `rename(latitude="lat")`."""
        now = dict(mapping or {}) | names
        known = self._file.variables.keys() | self.sizes.keys()
        self._check(now, known, "variable or dimension")
        taken = sorted((known - now.keys()) & set(now.values()))
        if taken or len(set(now.values())) < len(now):
            raise IngestError(f"rename: {taken or list(now.values())} would name more than one")
        return FileMetadata(rename_variables(self._copied(), tuple(now.items())))

    def drop_vars(self, *names: str) -> FileMetadata:
        """Leave out these variables."""
        self._check(names, self._file.variables, "variable")
        return self._with({name: v for name, v in self._file.variables.items() if name not in names})

    def isel(self, **indices: int | slice | Iterable[int]) -> FileMetadata:
        """Select part of some axes: `isel(lat=slice(10, 20), height=0)`. A single index drops the axis."""
        self._check(indices, self.sizes, "dimension")
        variables = dict(self._file.variables)
        for dim, index in indices.items():
            picked = np.arange(self.sizes[dim])[index if isinstance(index, int | slice) else list(index)]
            for name, variable in variables.items():
                if dim in variable.sizes:
                    part = _part(variable, dim, picked)
                    is_scalar = not picked.ndim and dim in variables
                    variables[name] = _listing(part, [dim]) if is_scalar else part
        return self._with(variables)

    def transpose(self, *dims: Any) -> FileMetadata:
        """Put the axes of all variables in this order; those that are not named go to `...`, or last."""
        self._check([dim for dim in dims if dim is not ...], self.sizes, "dimension")
        at = dims.index(...) if ... in dims else len(dims)
        turned = {}
        for name, variable in self._file.variables.items():
            own = tuple(variable.sizes)
            first, last = (tuple(dim for dim in part if dim in own) for part in (dims[:at], dims[at + 1 :]))
            middle = tuple(dim for dim in own if dim not in first and dim not in last)
            turned[name] = _transposed(variable, first + middle + last)
        return self._with(turned)

    def assign_attrs(self, variable: str | None = None, /, **attrs: Any) -> FileMetadata:
        """Set attributes of a variable, or of the file; None removes an attribute."""
        if variable is None:
            return FileMetadata(replace(self._copied(), attrs=_updated(self._file.attrs, attrs)))
        self._check([variable], self._file.variables, "variable")
        known = self._file.variables[variable]
        changed = replace(known, attrs=_updated(known.attrs, attrs))
        return self._with({**self._file.variables, variable: changed})

    def assign_coords(self, **values: Any) -> FileMetadata:
        """Add scalar coordinates, such as the ensemble member of a file: numbers, texts or dates."""
        new = {name: _scalar(name, value) for name, value in values.items()}
        return self._with({name: _listing(v, new) for name, v in self._file.variables.items()} | new)

    def _copied(self) -> ParsedFile:
        variables = {n: replace(v, attrs=dict(v.attrs)) for n, v in self._file.variables.items()}
        return replace(self._file, variables=variables)

    def _with(self, variables: Mapping[str, ParsedVariable]) -> FileMetadata:
        return FileMetadata(replace(self._file, variables=dict(variables)))

    def _check(self, names: Iterable[str], known: Iterable[str], what: str) -> None:
        absent = [name for name in names if name not in known]
        if absent:
            raise IngestError(
                f"preprocess: there is no {what} {absent[0]!r}, only {', '.join(sorted(known))}"
            )


def _updated(attrs: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**attrs, **changes}.items() if value is not None}


def _part(variable: ParsedVariable, dim: str, picked: Any) -> ParsedVariable:
    """A variable with only the picked elements of one axis; a single index drops the axis."""
    axis = list(variable.sizes).index(dim)
    left = tuple(each for each in variable.sizes if each != dim or picked.ndim)
    if variable.values is not None:
        values = np.take(variable.values, picked, axis=axis)
        return replace(variable, dims=left, shape=values.shape, values=values)
    before = variable.picks.get(dim)
    picks = {**variable.picks, dim: picked if before is None else before[picked]}
    return replace(variable, seen=left, picks=picks)


def _listing(variable: ParsedVariable, names: Iterable[str]) -> ParsedVariable:
    """Data that names these scalars among its coordinates, as in CF."""
    if variable.role != "data":
        return variable
    listed = dict.fromkeys((*str(variable.attrs.get("coordinates", "")).split(), *names))
    return replace(variable, attrs={**variable.attrs, "coordinates": " ".join(listed)})


def _transposed(variable: ParsedVariable, order: tuple[str, ...]) -> ParsedVariable:
    if variable.values is None:
        return replace(variable, seen=order)
    axes = [variable.dims.index(dim) for dim in order]
    values = variable.values.transpose(axes)
    return replace(variable, dims=order, shape=values.shape, values=values)


def as_stored(values: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    """Coordinates from the caller as a file would have them: dates are counted, texts are strings.

    >>> as_stored(np.array(["2000-01-02"], "datetime64[D]"))[0].tolist()
    [946771200000000000]
    """
    if values.dtype.kind == "M":
        counted = values.astype("datetime64[ns]").astype("i8")
        return counted, {"units": "nanoseconds since 1970-01-01", "calendar": "proleptic_gregorian"}
    return values.astype(np.dtypes.StringDType()) if values.dtype.kind in "US" else values, {}


def _scalar(name: str, value: Any) -> ParsedVariable:
    values, attrs = as_stored(np.asarray(value))
    if values.ndim or values.dtype.kind not in "biufcT":
        raise IngestError(
            f"preprocess: the coordinate {name!r} is {value!r}, not a number, a string or a date"
        )
    return ParsedVariable(name, "static", (), (), attrs, values.dtype, values=values)


def run_preprocess(parse: Callable[[ParseRequest], ParsedFile], request: ParseRequest) -> ParsedFile:
    """A file as the caller's function returns it; the roles of its variables are decided after that.

    So the file is parsed without knowing which dimensions grow from file to file, and parsed again if
    something that looked like data has to be loaded.
    """
    bare = replace(request, dims=(), variables=None, preprocess=None)
    known = dict(request.rename)
    for _ in range(2):
        seen = _applied(request.preprocess, parse(bare))
        if not request.dims:
            return seen
        own_request = replace(request, rename=(), preprocess=None)
        file = assign_roles(seen, own_request)
        if file is not None:
            return file
        unread = [
            known.get(variable.name, variable.name)
            for name, role in roles_of(seen, own_request).items()
            if role != "data" and (variable := seen.variables[name]).values is None
        ]
        bare = replace(bare, load=(*bare.load, *unread))
    raise IngestError("preprocess: it turns a coordinate into data, or its result varies between calls")


def _applied(function: Any, parsed: ParsedFile) -> ParsedFile:
    try:
        seen = function(FileMetadata(parsed))
    except IngestError:
        raise
    except Exception as error:
        raise IngestError(f"preprocess failed: {type(error).__name__}: {error}") from error
    if not isinstance(seen, FileMetadata):
        raise IngestError(f"preprocess returned {seen!r}: return the metadata of what should be ingested")
    return seen._file
