"""HDF5 and NetCDF4: variables, their dimensions and attributes, read by h5py; values of coordinates.

How data are stored is told by `hdf5_storage.py`, of the same open file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.cf import FILE_MATTERS
from intarsia.archives.hdf5_bytes import HeapReader
from intarsia.archives.hdf5_storage import Storage
from intarsia.archives.parsed import Description, ParsedFile, ParsedVariable, lacking, renamed, roles
from intarsia.archives.texts import loaded, with_texts
from intarsia.errors import IngestError
from intarsia.extras import extra

if TYPE_CHECKING:
    from intarsia.archives.locations import Sources
    from intarsia.archives.parsed import Want


NOT_A_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
NON_COORDINATE = "_nc4_non_coord_"
"""Before the name of a NetCDF variable that is called like a dimension, and is not its coordinate."""

HIDDEN = FILE_MATTERS | {"_Netcdf4Coordinates", "_nc3_strict"}


class HDF5:
    """Parses HDF5 and NetCDF4 files, from one group of them."""

    name = "hdf5"

    def __init__(self, group: str = "/", drop: tuple[str, ...] = ()) -> None:
        self.group = "/" + group.strip("/")
        self.drop = drop

    def parse(self, url: str, sources: Sources, want: Want) -> ParsedFile:
        """The wanted variables of a file."""
        sources.resolve(url)
        with sources.reader(url) as reader, extra("h5py", "virtual").File(HeapReader(reader), "r") as file:
            group = self._group(file)
            datasets = {
                name: item for name, item in group.items() if name not in self.drop and _is_variable(item)
            }
            scales = {name: _scales(item) for name, item in datasets.items()}
            more = _inherited(datasets, scales, group.name)
            datasets, scales = datasets | more, scales | dict.fromkeys(more, ())
            unread = {name: why for name, item in datasets.items() if (why := _untyped(item))}
            full = {name: item for name, item in datasets.items() if name not in unread}
            axes = {name: _axes(item, scales[name], group.name) for name, item in full.items()}
            phony = PhonyDimensions(_bare_sizes(item, axes[name]) for name, item in full.items())
            described = {name: _described(item, axes[name], phony) for name, item in full.items()}
            described = with_texts(described, want)
            taken, left_out = roles(described, want)
            left_out |= unread
            variables = {}
            for name, role in taken.items():
                if role == "data":
                    storage = Storage(datasets[name], reader)
                    variables[name] = storage.variable(name, url, described[name])
                    continue
                try:
                    variables[name] = _loaded(name, role, datasets[name], described[name])
                except OSError as error:
                    if name in want.in_file(described).dims:
                        raise
                    left_out[name] = f"it cannot be read: {error}"
            data = [name for name, role in taken.items() if role == "data"]
            groups = () if data else tuple(_groups_with_variables(group))
            attrs = _attributes(group)
        for name in data:
            variable = variables[name]
            problem = self._unreadable(url, sources, variable) if variable.ranges is None else ""
            if problem:
                left_out[name] = problem
                del variables[name]
        new_dims = lacking(described, want)
        parsed_file = ParsedFile(
            url, sources.identity(url), self.name, variables, attrs, left_out, new_dims, groups
        )
        masked = [name for name in described if name.startswith(NON_COORDINATE)]
        return renamed(parsed_file, tuple((name, name.removeprefix(NON_COORDINATE)) for name in masked))

    def groups(self, url: str, sources: Sources) -> list[str]:
        """Paths of all groups."""
        h5py = extra("h5py", "virtual")
        found = [""]
        with sources.reader(url) as reader, h5py.File(HeapReader(reader), "r") as file:
            file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Group) else None)
        return found

    def _group(self, file: Any) -> Any:
        h5py = extra("h5py", "virtual")
        group = file.get(self.group)
        if not isinstance(group, h5py.Group):
            raise IngestError(f"it has no group {self.group.strip('/')!r}")
        return group

    def _unreadable(self, url: str, sources: Sources, variable: ParsedVariable) -> str:
        """Why a variable that has to be copied cannot be: a filter or an external file is not there."""
        if 0 in variable.shape:
            return ""
        try:
            with self.opened(url, sources, variable.name) as dataset:
                dataset[(0,) * len(variable.shape)]
        except OSError as error:
            return f"it cannot be read: {error} ({variable.reason})"
        return ""

    @contextmanager
    def opened(self, url: str, sources: Sources, name: str) -> Iterator[Any]:
        """A variable's stored numbers, to be read by slices."""
        with sources.reader(url) as reader, extra("h5py", "virtual").File(HeapReader(reader), "r") as file:
            yield file[self.group][name]


def _untyped(dataset: Any) -> str:
    """Why nothing can be read of a dataset: it has no elements, or of a type that h5py does not know."""
    if dataset.shape is None:
        return "it has no data space: nothing can be read from it"
    try:
        dataset.dtype  # noqa: B018 - it is made when it is asked for
    except (TypeError, ValueError) as error:  # ValueError of floats that are longer than this machine's
        return f"h5py cannot read its type: {error}"
    return ""


def _groups_with_variables(group: Any) -> list[str]:
    """Paths of the groups below that hold variables."""
    found: dict[str, None] = {}

    def note(name: str, item: Any) -> None:
        above = name.rpartition("/")[0]
        if above and _is_variable(item):
            found[f"{group.name}/{above}".lstrip("/")] = None

    group.visititems(note)
    return sorted(found)


def _scales(dataset: Any) -> tuple[Any, ...]:
    """The dimension scale of every axis, the first of several; None where there is none."""
    h5py = extra("h5py", "virtual")
    if dataset.shape is None or h5py.h5ds.is_scale(dataset.id):  # a scale has none
        return ()
    found = []
    for axis in range(len(dataset.shape)):
        known: list[Any] = []
        if h5py.h5ds.get_num_scales(dataset.id, axis):
            h5py.h5ds.iterate(dataset.id, axis, known.append, 0)
        found.append(h5py.Dataset(known[0]) if known else None)
    return tuple(found)


def _inherited(
    datasets: Mapping[str, Any], scales: Mapping[str, tuple[Any, ...]], group: str
) -> dict[str, Any]:
    """Coordinates of axes that stand in groups above, by name: as in NetCDF, they hold for those below."""
    named = {
        _short(str(scale.name), group): scale
        for own in scales.values() for scale in own if scale is not None
    }  # fmt: skip
    return {
        name: scale for name, scale in named.items()
        if name not in datasets and "/" not in name and scale.ndim == 1 and _is_variable(scale)
    }  # fmt: skip


def _short(scale: str, group: str) -> str:
    """The name of a dimension scale as seen from a group: plain, if it stands there or above."""
    above, _, name = scale.rpartition("/")
    stands_above = f"{group.rstrip('/')}/".startswith(f"{above}/")
    return name if stands_above else scale.removeprefix(group).removeprefix("/")


def _is_variable(item: Any) -> bool:
    h5py = extra("h5py", "virtual")
    if not isinstance(item, h5py.Dataset):
        return False
    label = h5py.h5ds.get_scale_name(item.id) if h5py.h5ds.is_scale(item.id) else b""
    return not bytes(label or b"").startswith(NOT_A_VARIABLE)


class PhonyDimensions:
    """Names for axes without a dimension scale: one for each size, numbered as h5netcdf numbers them.

    No two axes of one dataset share a name, so a size has as many names as a dataset has axes of it.

    >>> phony = PhonyDimensions([(4, 6), (9,), (6, 6)])
    >>> phony.names((4, 6)), phony.names((9,)), phony.names((6, 6))
    (['phony_dim_0', 'phony_dim_1'], ['phony_dim_3'], ['phony_dim_1', 'phony_dim_2'])
    """

    def __init__(self, datasets: Iterable[tuple[int, ...]]) -> None:
        times: dict[int, int] = {}
        for sizes in datasets:
            for size in sizes:
                times[size] = max(times.get(size, 0), sizes.count(size))
        self._sizes = [size for size, count in times.items() for _ in range(count)]

    def names(self, sizes: tuple[int, ...]) -> list[str]:
        """A name for each of these axes of one dataset."""
        left = list(enumerate(self._sizes))
        names = []
        for size in sizes:
            taken = next(entry for entry in left if entry[1] == size)
            left.remove(taken)
            names.append(f"phony_dim_{taken[0]}")
        return names


def _described(dataset: Any, axes: list[str], phony: PhonyDimensions) -> Description:
    h5py = extra("h5py", "virtual")
    string = h5py.check_string_dtype(dataset.dtype)
    dtype = dataset.dtype.newbyteorder("=")
    if string is not None and string.length is None:
        dtype = np.dtypes.StringDType()
    spare = iter(phony.names(_bare_sizes(dataset, axes)))
    dims = tuple(axis or next(spare) for axis in axes)
    return Description(dims, dataset.shape, _attributes(dataset), dtype)


def _axes(dataset: Any, scales: Sequence[Any], group: str) -> list[str]:
    """What dimension scales call the axes of a dataset; empty where they have none."""
    if len(dataset.shape) == 1 and extra("h5py", "virtual").h5ds.is_scale(dataset.id):
        return [_short(str(dataset.name), group)]
    named = _netcdf_dims(dataset)
    if named:
        return named
    known = scales or (None,) * len(dataset.shape)
    return [_short(str(scale.name), group) if scale is not None else "" for scale in known]


def _netcdf_dims(dataset: Any) -> list[str]:
    """Dimensions of a NetCDF variable of several axes that is a scale itself, and so has none: it has ids."""
    if len(dataset.shape) < 2 or "CLASS" not in dataset.attrs:
        return []
    ids = dataset.attrs.get("_Netcdf4Coordinates")
    if ids is None or len(ids) != len(dataset.shape):
        return []
    scales = ((name, item.attrs) for name, item in dataset.parent.items() if "CLASS" in item.attrs)
    names = {int(attrs["_Netcdf4Dimid"]): name for name, attrs in scales if "_Netcdf4Dimid" in attrs}
    return [names[i] for i in ids.tolist()] if names.keys() >= set(ids.tolist()) else []


def _bare_sizes(dataset: Any, axes: Sequence[str]) -> tuple[int, ...]:
    """Lengths of the axes that no dimension scale names."""
    return tuple(size for size, axis in zip(dataset.shape, axes, strict=True) if not axis)


def _attributes(item: Any) -> dict[str, Any]:
    """Attributes with the types that they have in the file; texts as text."""
    h5py = extra("h5py", "virtual")
    attributes: dict[str, Any] = {}
    stored = item.attrs
    for name in stored:
        if name in HIDDEN:
            continue
        try:
            value = stored[name]
        except (OSError, TypeError):  # a type that h5py does not know
            continue
        if isinstance(value, h5py.Empty):
            value = ""
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, np.ndarray):
            if value.dtype.kind == "S":
                value = np.strings.decode(value, "utf-8", "replace")
            if value.dtype.kind == "O" and not all(isinstance(each, str) for each in value.flat):
                continue  # object references
            value = value.reshape(-1)[0] if value.size == 1 else value
        attributes[name] = str(value) if isinstance(value, str) else value
    return attributes


def _loaded(name: str, role: Any, dataset: Any, description: Description) -> ParsedVariable:
    """A variable with its stored values, in memory."""
    if dataset.dtype.kind in "iuf" and dataset.size and not description.is_text:
        values = np.empty(dataset.shape, dtype=description.dtype)
        everything = extra("h5py", "virtual").h5s.ALL
        dataset.id.read(everything, everything, values)  # a third of the time of dataset[...]
    else:
        values = loaded(dataset, description)
    return replace(description, dtype=values.dtype).parsed(name, role, values=values)
