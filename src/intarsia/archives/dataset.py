"""An existing dataset in a repository, to which files are added; whether it opens; and a declared schema."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr

from intarsia.archives.cf import Decoding, decoded_fill_attribute
from intarsia.archives.ledger import Ledger, entries_of, read_ledger
from intarsia.archives.locations import Identity, Sources
from intarsia.archives.parse import made_alike, parse_one
from intarsia.archives.parsed_file import Description, ParsedFile, ParsedVariable, Want, lacking, roles
from intarsia.display import one_line
from intarsia.engine.reader import Reader
from intarsia.errors import IngestError
from intarsia.extras import extra
from intarsia.logical.attributes import UNLIMITED_KEY, with_floats
from intarsia.logical.hierarchy import open_group
from intarsia.logical.logical_state import LogicalArrayHandle
from intarsia.manifest.document import MANIFEST_KEY

END_STEPS = 2
"""How many steps of an axis are read if files go after it: they tell whether it rises or falls."""


@dataclass
class Dataset:
    """A dataset in a repository: what exists already; nothing for a new one."""

    ledger: Ledger = field(default_factory=Ledger)
    """Its sources."""

    logical_groups: dict[str, LogicalArrayHandle] = field(default_factory=dict)
    """Its logical arrays."""

    plain: dict[str, Any] = field(default_factory=dict)
    """Its coordinates and other loaded arrays."""

    group_attrs: dict[str, Any] = field(default_factory=dict)
    """The attributes of its group."""

    groups: set[str] = field(default_factory=set)
    """Names of other groups, such as datasets below this one."""

    origin: int = 0
    """How many steps along the growing dimension were not read: this dataset begins after them."""

    @property
    def is_new(self) -> bool:
        return not self.ledger.count

    @classmethod
    def read(cls, store: Any, path: str) -> Dataset:
        """The dataset at a path of a store."""
        group = _group(store, path)
        if group is None:
            return cls()
        return cls._with_children(group, read_ledger(group))

    @classmethod
    def _with_children(cls, group: zarr.Group, ledger: Ledger, *, later: bool = False) -> Dataset:
        dataset = cls(ledger, group_attrs=_own_attributes(group))
        for name, child in group.members():
            if isinstance(child, zarr.Array):
                dataset.plain[name] = child
            elif MANIFEST_KEY in child.attrs:
                dataset.logical_groups[name] = LogicalArrayHandle.load(child, later=later)
            else:
                dataset.groups.add(name)
        return dataset

    @classmethod
    def read_end(cls, store: Any, path: str, urls: Sequence[str]) -> Dataset | None:
        """The end of the dataset: all that files after it need, whatever comes before.

        None if files are not placed by a coordinate along one dimension, or some of these `urls` are known.
        """
        group = _group(store, path)
        ledger = Ledger() if group is None else read_ledger(group, rows=False)
        if group is None or len(ledger.dims) != 1 or not ledger.unread.files or entries_of(group, urls):
            return None
        dataset, dim = cls._with_children(group, ledger, later=True), ledger.dims[0]
        axis = dataset.plain.get(dim)
        if axis is None or axis.ndim != 1 or axis.shape[0] <= END_STEPS:
            return None
        for name, array in dataset.plain.items():
            along = dataset.dims(name)
            if dim in along and array.shape[along.index(dim)] != axis.shape[0]:
                return None
        for logical in dataset.logical_groups.values():
            manifest = logical.manifest
            names = list(manifest.dimension_names or ())
            place = names.index(dim) if dim in names else None
            known = None if place is None else (manifest.shape[place], manifest.chunk_shape[place])
            if known not in (None, (axis.shape[0], 1)):
                return None
        dataset.origin = axis.shape[0] - END_STEPS
        return dataset

    @staticmethod
    def entries(store: Any, path: str, urls: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Which of these sources the dataset knows: their numbers, and what identified their content."""
        group = _group(store, path)
        return {} if group is None else entries_of(group, urls)

    @staticmethod
    def read_ledger(store: Any, path: str) -> Ledger:
        """Only the ledger of the dataset."""
        group = _group(store, path)
        return Ledger() if group is None else read_ledger(group)

    def all_attrs(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The attributes of everything in it, by name; an empty name stands for the dataset itself."""
        yield "", with_floats(self.group_attrs)
        for name, logical in self.logical_groups.items():
            yield name, with_floats(dict(logical.group.attrs))
        for name in self.plain:
            yield name, with_floats(self.attrs(name))

    def values(self, name: str) -> np.ndarray[Any, Any]:
        """The stored values of a plain array, from the origin on."""
        dims = self.dims(name)
        where = [slice(self.origin if dim in self.ledger.dims else 0, None) for dim in dims]
        return np.asarray(Reader.of(self.plain[name]).read(tuple(where)))

    def dims(self, name: str) -> tuple[str, ...]:
        """The names of a plain array's axes."""
        return tuple(str(dim) for dim in self.plain[name].metadata.dimension_names or ())

    def attrs(self, name: str) -> dict[str, Any]:
        """The attributes of a plain array."""
        array: zarr.Array[Any] = self.plain[name]
        attrs: dict[str, Any] = dict(array.metadata.attributes)
        if "_FillValue" in attrs:
            attrs["_FillValue"] = decoded_fill_attribute(attrs["_FillValue"], array.dtype)
        return attrs


def _own_attributes(group: zarr.Group) -> dict[str, Any]:
    """What files said about the dataset."""
    return {key: value for key, value in group.attrs.items() if key != UNLIMITED_KEY}


def _group(store: Any, path: str) -> zarr.Group | None:
    try:
        group = open_group(store, path, "r" if getattr(store, "read_only", False) else "r+")
    except FileNotFoundError:
        return None
    except ValueError as error:  # there is an array at this path
        raise IngestError(f"{path!r} is an array: a dataset needs a group of its own") from error
    if MANIFEST_KEY in group.attrs:
        raise IngestError(
            f"{path!r} is itself a logical array; a dataset is a group that holds logical arrays.\n"
            "  Choose another group: intarsia.ingest(…, group='name')",
            command="Choose another group: --group NAME",
        )
    return group


def unopened(store: Any, path: str, known: Iterable[str], new: Iterable[str]) -> dict[str, str]:
    """Variables that keep the dataset at a path of a store from opening, and why.

    Those in `known` existed before: a new variable that conflicts with them is to blame.

    >>> import intarsia, zarr
    >>> store = zarr.storage.MemoryStore()
    >>> for name, size in (("a", 2), ("b", 3)):
    ...     axis = {"shape": (size,), "chunks": (1,), "dimension_names": ["x"]}
    ...     _ = intarsia.create(store, name, **axis, dtype="i4")
    >>> unopened(store, "", ["a"], ["b"])
    {'b': "conflicting sizes for dimension 'x': length 3 on 'b' and length 2 on {'x': 'a'}"}
    """
    names = list(dict.fromkeys((*known, *new)))
    opens = _Opening(store, path, names)
    if not opens.problem(names):
        return {}
    problems: dict[str, str] = {}
    _sift(names, [], opens.problem, problems)
    return problems


class _Opening:
    """Opens a dataset with some of its variables."""

    def __init__(self, store: Any, path: str, names: Sequence[str]) -> None:
        self._store, self._path, self._names = store, path, names

    def problem(self, chosen: Sequence[str]) -> str:
        """Why the dataset does not open with these variables; empty if it does."""
        dropped = [name for name in self._names if name not in set(chosen)]
        try:
            # Times that cannot be decoded are numbers, here and in the file.
            extra("xarray", "virtual").open_dataset(
                self._store, engine="intarsia", group=self._path or None, drop_variables=dropped,
                decode_times=False, cache=False,
            )  # fmt: skip
        except Exception as error:
            return one_line(error)
        return ""


def unopened_tree(store: Any, path: str) -> str:
    """Why the groups at and below a path of a store do not open as one tree; empty if they do."""
    try:
        extra("xarray", "virtual").open_datatree(
            store, engine="intarsia", group=path or None, decode_times=False, cache=False
        )
    except Exception as error:
        return one_line(error)
    return ""


def _sift(
    names: Sequence[str], kept: list[str], problem: Callable[[Sequence[str]], str], problems: dict[str, str]
) -> None:
    """Add what fits to `kept` and the rest to `problems`, by bisection, because most of it fits."""
    why = problem([*kept, *names])
    if not why:
        kept += names
    elif len(names) == 1:
        problems[names[0]] = why
    else:
        half = len(names) // 2
        _sift(names[:half], kept, problem, problems)
        _sift(names[half:], kept, problem, problems)


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


def schema_of(
    given: Any, want: Want, sources: Sources, parser: Any, told: Mapping[str, Callable[[ParsedFile], Any]]
) -> Schema | None:
    """What the caller declared with a file, a dataset or a dictionary; None if nothing was declared.

    >>> from intarsia.archives.parsed_file import Want
    >>> lat = {"dims": ["lat"], "data": [10, 20]}
    >>> sst = {"dims": ["time", "lat"], "dtype": "float32"}
    >>> document = {"data_vars": {"sst": sst}, "coords": {"lat": lat}}
    >>> schema = schema_of(document, Want(("time",)), None, None, {})
    >>> schema.file.variables["sst"].sizes, schema.dtypes
    ({'time': 1, 'lat': 2}, {'sst': dtype('float32')})
    """
    if given is None:
        return None
    if isinstance(given, str | os.PathLike):
        (url,) = sources.expand(given) or [""]
        parsed = made_alike(parse_one(url, sources, want, parser), want.dims, told)
        if not isinstance(parsed, ParsedFile):
            raise IngestError(f"the schema {url} cannot be read: {parsed.reason}")
        data = {name: v for name, v in parsed.variables.items() if v.role == "data"}
        return Schema(parsed, {name: Decoding.of(v.dtype, v.attrs).values for name, v in data.items()})
    if isinstance(given, Mapping) and not hasattr(given, "data_vars"):
        return _declared(list(_of_document(given, want)), dict(given.get("attrs", {})), want)
    if not hasattr(given, "data_vars"):
        raise IngestError(f"schema={given!r:.80}: give a file, an xarray.Dataset or a dictionary")
    return _declared(list(_of_dataset(given, want)), dict(given.attrs), want)


def _declared(named: list[Named], attrs: dict[str, Any], want: Want) -> Schema:
    described = {
        name: Description(dims, shape, said, np.dtype("f8") if dtype is None else dtype)
        for name, dims, shape, dtype, said, _ in named
    }
    taken, _ = roles(described, want)
    variables: dict[str, ParsedVariable] = {}
    dtypes = {}
    for name, _, _, dtype, _, values in named:
        role = taken.get(name)
        if role is None or (role != "data" and values is None):
            continue  # it says nothing that files could contradict
        variables[name] = described[name].parsed(name, role, values=None if role == "data" else values)
        if role == "data" and dtype is not None:
            dtypes[name] = dtype
    new_dims = lacking(described, want)
    file = ParsedFile(THE_SCHEMA, Identity(0, None), "schema", variables, attrs, new_dims=new_dims)
    alike = made_alike(file, want.dims, {})
    assert isinstance(alike, ParsedFile)
    return Schema(alike, dtypes)


def _of_dataset(dataset: Any, want: Want) -> Iterator[Named]:
    conventions = extra("xarray", "xarray").conventions
    for name, variable in dataset.variables.items():
        if name not in dataset.coords:
            yield str(name), variable.dims, variable.shape, variable.dtype, dict(variable.attrs), None
            continue
        is_time = variable.dtype.kind in "MO" and "calendar" not in variable.encoding
        if is_time and (name in want.dims or set(want.dims) & set(variable.dims)):
            continue  # the units are not given
        stored = conventions.encode_cf_variable(variable, name=name)
        values = np.asarray(stored.values)
        if values.dtype.kind in "OUS":
            values = values.astype(np.dtypes.StringDType())
        yield str(name), stored.dims, values.shape, values.dtype, dict(stored.attrs), values


def _of_document(document: Mapping[str, Any], want: Want) -> Iterator[Named]:
    """As `xarray.Dataset.to_dict` writes it, with or without values."""
    sizes = dict(document.get("dims", {})) | dict.fromkeys(want.dims, 1)
    listed = {**document.get("coords", {}), **document.get("data_vars", {})}
    for name, each in listed.items():
        if not isinstance(each, Mapping) or "dims" not in each:
            raise IngestError(
                f"schema: {name!r} is {each!r:.80}; give its dims, as xarray.Dataset.to_dict does"
            )
        shape = np.shape(each["data"]) if "data" in each else each.get("shape", ())
        sizes |= {dim: n for dim, n in zip(each["dims"], shape, strict=False) if dim not in want.dims}
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
