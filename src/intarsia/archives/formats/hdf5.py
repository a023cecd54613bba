"""HDF5 and NetCDF4: variables, their dimensions and attributes, read with h5py; values of coordinates.

`hdf5_storage.py` says how data is stored, for the same open file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.cf import loaded, with_texts
from intarsia.archives.formats.hdf5_bytes import HeapReader
from intarsia.archives.formats.hdf5_links import ElsewhereError, check_storage, find, objects_in
from intarsia.archives.formats.hdf5_storage import (
    Bearer,
    Header,
    Storage,
    attributes_of,
    library,
    opened_file,
    text,
    words_of_unread,
)
from intarsia.archives.parsed_file import (
    PHONY,
    Description,
    ParsedFile,
    ParsedVariable,
    Want,
    lacking,
    renamed,
    roles,
)
from intarsia.archives.permissions import folder_of
from intarsia.errors import IngestError
from intarsia.extras import extra

if TYPE_CHECKING:
    from intarsia.archives.locations import Sources


NOT_A_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
NON_COORDINATE = "_nc4_non_coord_"
"""The prefix of a NetCDF variable that has the name of a dimension but is not its coordinate."""


class HDF5:
    """Parses HDF5 and NetCDF4 files, or one group of each."""

    name = "hdf5"

    def __init__(self, group: str = "/", drop: tuple[str, ...] = ()) -> None:
        self.group = "/" + group.strip("/")
        self.drop = drop

    def parse(self, url: str, sources: Sources, want: Want) -> ParsedFile:
        """The wanted variables of a file."""
        sources.resolve(url)
        moved = sources.permissions.checked([url], folder_of(url))
        with sources.reader(url) as reader, opened_file(reader) as file:
            group = self._group(file)
            headers, unread, named, outside = self._axes_of(group, url, sources)
            first = self._phony_above(file, url, sources) if want.whole_tree else 0
            phony = PhonyDimensions(
                (_bare_sizes(headers[name], names) for name, names in named.items()), first
            )
            described = {name: _described(headers[name], names, phony) for name, names in named.items()}
            described = with_texts(described, want)
            names = {new: old for old, new in want.rename}
            for name in (*want.dims, *(want.variables or ()), *want.load):
                if (own := names.get(name, name)) in outside:
                    raise IngestError(f"its variable {own!r} cannot be read: {outside[own]}")
            taken, left_out = roles(described, want)
            left_out |= unread
            variables = {}
            for name, role in taken.items():
                if role == "data":
                    storage = Storage(headers[name], reader)
                    variables[name] = variable = storage.variable(name, url, described[name])
                    if variable.ranges is not None:
                        variable.ranges.move(moved)
                    continue
                try:
                    variables[name] = _loaded(name, role, headers[name], described[name])
                except OSError as error:
                    if name in want.in_file(described).dims:
                        raise
                    left_out[name] = words_of_unread(headers[name].id, error)
            data = [name for name, role in taken.items() if role == "data"]
            groups = () if data else tuple(_groups_with_variables(group))
            attrs = attributes_of(group)
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

    def _axes_of(
        self, group: Any, url: str, sources: Sources
    ) -> tuple[dict[str, Header], dict[str, str], dict[str, list[str]], dict[str, str]]:
        """The datasets in a group; those that cannot be read, and why; the axes of the others; and, of those
        that cannot be read, the ones in other files."""
        above = "" if self.group == "/" else self.group
        objects, elsewhere = objects_in(group, self.drop)
        found = {
            name: Header(item, f"{above}/{name}") for name, item in objects.items() if _is_variable(item)
        }
        outside = elsewhere | _elsewhere(found, url, sources)
        headers = {name: each for name, each in found.items() if name not in outside}
        axes = _Axes(self.group, objects)
        scales = {name: axes.scales(header) for name, header in headers.items()}
        known = {*found, *elsewhere, *self.drop}
        more = {name: each for name, each in axes.inherited(scales).items() if name not in known}
        outside |= _elsewhere(more, url, sources)
        more = {
            name: each for name, each in more.items() if name not in outside and len(each.shape or ()) == 1
        }
        headers, scales = headers | more, scales | dict.fromkeys(more, ())
        unread = {name: why for name, header in headers.items() if (why := _untyped(header))} | outside
        full = {name: header for name, header in headers.items() if name not in unread}
        named = {name: axes.named(header, scales[name]) for name, header in full.items()}
        return headers, unread, named, outside

    def _phony_above(self, file: Any, url: str, sources: Sources) -> int:
        """How many names the groups above this one have for axes without a dimension scale."""
        if self.group == "/":
            return 0
        above = HDF5(self.group.rpartition("/")[0], self.drop)
        headers, _, named, _ = above._axes_of(above._group(file), url, sources)
        sizes = (_bare_sizes(headers[name], names) for name, names in named.items())
        return PhonyDimensions(sizes, above._phony_above(file, url, sources)).end

    def groups(self, url: str, sources: Sources) -> list[str]:
        """The paths of all groups."""
        h5py = extra("h5py", "virtual")
        found = [""]

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Group):
                found.append(name)

        with sources.reader(url) as reader, h5py.File(HeapReader(reader), "r") as file:
            _visit(file, note)
        return found

    def _group(self, file: Any) -> Any:
        h5py = extra("h5py", "virtual")
        try:
            group = find(file, self.group.encode("utf-8", "surrogateescape"))
        except KeyError:
            group = None
        except ElsewhereError as error:
            raise IngestError(f"its group {self.group.strip('/')!r} cannot be read: {error}") from None
        if not isinstance(group, h5py.h5g.GroupID):
            raise IngestError(f"it has no group {self.group.strip('/')!r}")
        return group

    def _unreadable(self, url: str, sources: Sources, variable: ParsedVariable) -> str:
        """Why a variable that has to be copied cannot be: a filter or an external file is missing."""
        if 0 in variable.shape:
            return ""
        with self.opened(url, sources, variable.name) as dataset:
            try:
                dataset[(0,) * len(variable.shape)]
            except OSError as error:
                return f"{words_of_unread(dataset.id, error)} ({variable.reason})"
        return ""

    @contextmanager
    def opened(self, url: str, sources: Sources, name: str) -> Iterator[Any]:
        """A variable's stored numbers, to be read in slices."""
        with sources.reader(url) as reader, extra("h5py", "virtual").File(HeapReader(reader), "r") as file:
            found = find(self._group(file.id), name.encode("utf-8", "surrogateescape"))
            check_storage(found, found.get_create_plist(), url, sources)
            yield library().Dataset(found)


def _elsewhere(headers: Mapping[str, Header], url: str, sources: Sources) -> dict[str, str]:
    """The datasets whose values are in other files that are not read, and why."""
    found = {}
    for name, header in headers.items():
        try:
            check_storage(header.id, header.plist, url, sources)
        except ElsewhereError as error:
            found[name] = str(error)
    return found


def _untyped(header: Header) -> str:
    """Why a dataset cannot be read: it has no elements, or h5py does not know their type."""
    if header.shape is None:
        return "it has no data space: nothing can be read from it"
    try:
        header.dtype  # noqa: B018 - the property does the work
    except (TypeError, ValueError) as error:  # ValueError for floats that are longer than this machine's
        return f"h5py cannot read its type: {error}"
    return ""


def _groups_with_variables(group: Any) -> list[str]:
    """The paths of the groups below that hold variables."""
    found: dict[str, None] = {}
    whole = library().Group(group)

    def note(name: str, item: Any) -> None:
        above = name.rpartition("/")[0]
        if above and _is_variable(item.id):
            found[f"{whole.name}/{above}".lstrip("/")] = None

    _visit(whole, note)
    return sorted(found)


def _visit(group: Any, note: Callable[[str, Any], None]) -> None:
    """Call a function with everything below a group."""
    try:
        group.visititems(note)
    except (RuntimeError, OSError, KeyError) as error:
        raise IngestError(
            f"it is damaged or truncated: HDF5 cannot list what it holds ({' '.join(str(error).split())})"
        ) from error


class _Axes:
    """The names that dimension scales give the axes of the datasets in a group."""

    def __init__(self, path: str, objects: Mapping[str, Any]) -> None:
        self._path, self._objects = path, objects
        self._scales = {
            _place(item): f"{path.rstrip('/')}/{name}" for name, item in objects.items() if _is_scale(item)
        }

    def scales(self, header: Header) -> tuple[Any, ...]:
        """The dimension scale of every axis with its path, or None; nothing if `header` is itself a scale."""
        if header.shape is None or header.is_scale:
            return ()
        return tuple(None if scale is None else (self._name(scale), scale) for scale in header.scales())

    def _name(self, scale: Any) -> str:
        known = self._scales.get(_place(scale))
        return known or text(library().h5i.get_name(scale))

    def inherited(self, scales: Mapping[str, tuple[Any, ...]]) -> dict[str, Header]:
        """The scales of axes, by name: as in NetCDF, those in groups above also apply to the groups below."""
        named = {_short(each[0], self._path): each for own in scales.values() for each in own if each}
        return {
            name: Header(scale, path) for name, (path, scale) in named.items()
            if "/" not in name and _is_variable(scale)
        }  # fmt: skip

    def named(self, header: Header, scales: Sequence[Any]) -> list[str]:
        """The names of its axes; empty for axes without one."""
        if len(header.shape) == 1 and header.is_scale:
            return [_short(header.path, self._path)]
        named = self._netcdf_dims(header)
        if named:
            return named
        known = scales or (None,) * len(header.shape)
        return ["" if scale is None else _short(scale[0], self._path) for scale in known]

    def _netcdf_dims(self, header: Header) -> list[str]:
        """Dimensions, by id, of a NetCDF variable with several axes: as a scale itself, it has no scales."""
        if len(header.shape) < 2 or b"CLASS" not in header.names:
            return []
        ids = header.dataset.attrs.get("_Netcdf4Coordinates")
        if ids is None or len(ids) != len(header.shape):
            return []
        attributes = {name: library().AttributeManager(Bearer(item)) for name, item in self._objects.items()}
        names = {
            int(attrs["_Netcdf4Dimid"]): name
            for name, attrs in attributes.items()
            if "CLASS" in attrs and "_Netcdf4Dimid" in attrs
        }
        return [names[i] for i in ids.tolist()] if names.keys() >= set(ids.tolist()) else []


def _place(item: Any) -> tuple[int, int]:
    """Where the header of an object is: no two objects share it."""
    info = library().h5o.get_info(item)
    return info.fileno, info.addr


def _short(scale: str, group: str) -> str:
    """The name of a dimension scale as seen from a group: plain if it is there or above."""
    above, _, name = scale.rpartition("/")
    stands_above = f"{group.rstrip('/')}/".startswith(f"{above}/")
    return name if stands_above else scale.removeprefix(group).removeprefix("/")


def _is_scale(item: Any) -> bool:
    h5py = library()
    return isinstance(item, h5py.h5d.DatasetID) and bool(h5py.h5ds.is_scale(item))


def _is_variable(item: Any) -> bool:
    h5py = library()
    if not isinstance(item, h5py.h5d.DatasetID):
        return False
    label = h5py.h5ds.get_scale_name(item) if h5py.h5ds.is_scale(item) else b""
    return not bytes(label or b"").startswith(NOT_A_VARIABLE)


class PhonyDimensions:
    """Names for axes without a dimension scale: one for each size, numbered as in h5netcdf.

    No two axes of a dataset share a name, so a size has as many names as one dataset has axes of that size.
    Numbers begin with `first`: below a group, those of the group are taken.

    >>> phony = PhonyDimensions([(4, 6), (9,), (6, 6)])
    >>> phony.names((4, 6)), phony.names((9,)), phony.names((6, 6))
    (['phony_dim_0', 'phony_dim_1'], ['phony_dim_3'], ['phony_dim_1', 'phony_dim_2'])
    """

    def __init__(self, datasets: Iterable[tuple[int, ...]], first: int = 0) -> None:
        times: dict[int, int] = {}
        for sizes in datasets:
            for size in sizes:
                times[size] = max(times.get(size, 0), sizes.count(size))
        self._sizes = [size for size, count in times.items() for _ in range(count)]
        self._first = first

    @property
    def end(self) -> int:
        """The number after the last one."""
        return self._first + len(self._sizes)

    def names(self, sizes: tuple[int, ...]) -> list[str]:
        """A name for each of these axes of one dataset."""
        left = list(enumerate(self._sizes))
        names = []
        for size in sizes:
            taken = next(entry for entry in left if entry[1] == size)
            left.remove(taken)
            names.append(f"{PHONY}{self._first + taken[0]}")
        return names


def _described(header: Header, axes: list[str], phony: PhonyDimensions) -> Description:
    dtype = header.dtype.newbyteorder("=")
    if dtype.kind == "O":
        string = library().check_string_dtype(header.dtype)
        if string is not None and string.length is None:
            dtype = np.dtypes.StringDType()
    spare = iter(phony.names(_bare_sizes(header, axes)))
    dims = tuple(axis or next(spare) for axis in axes)
    attrs = header.attributes()
    if dtype.kind == "b" and not attrs.keys().isdisjoint(("_FillValue", "missing_value")):
        dtype = np.dtype("i1")  # an enumeration of bytes, as in NetCDF: a bool cannot be missing
    return Description(dims, header.shape, attrs, dtype)


def _bare_sizes(header: Header, axes: Sequence[str]) -> tuple[int, ...]:
    """The lengths of the axes that no dimension scale names."""
    return tuple(size for size, axis in zip(header.shape, axes, strict=True) if not axis)


def _loaded(name: str, role: Any, header: Header, description: Description) -> ParsedVariable:
    """A variable with its stored values in memory."""
    if header.dtype.kind in "iuf" and 0 not in header.shape and not description.is_text:
        values = header.read(description.dtype)
    else:
        values = loaded(header.dataset, description)
        values = values.view(description.dtype) if values.dtype.kind == "b" else values
    return replace(description, dtype=values.dtype).parsed(name, role, values=values)
