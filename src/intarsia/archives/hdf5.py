"""HDF5 and NetCDF4: VirtualiZarr's parser, and what it leaves out.

VirtualiZarr gives codecs and the place of every chunk. It does not say which chunks skipped a filter, takes
data inside the object header for "never written", and forgets whether an attribute is float32 or float64:
these are read here, from the same open file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia._compat import virtual_parser
from intarsia.archives.cf import FILE_MATTERS
from intarsia.archives.hdf5_bytes import HeapReader, leaves_edges_bare
from intarsia.archives.parsed import Description, ParsedFile, ParsedVariable, lacking, renamed, roles
from intarsia.archives.texts import loaded, with_texts
from intarsia.archives.virtual import arrays_of, parsed_variable
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
        with sources.reader(url) as reader:
            with extra("h5py", "virtual").File(HeapReader(reader), "r") as file:
                group = self._group(file)
                datasets = {
                    name: item for name, item in group.items() if name not in self.drop and _is_variable(item)
                }
                datasets |= _inherited(datasets, group.name)
                unread = {name: why for name, item in datasets.items() if (why := _untyped(item))}
                full = {name: item for name, item in datasets.items() if name not in unread}
                phony = PhonyDimensions(map(_bare_sizes, full.values()))
                described = {name: _described(item, group.name, phony) for name, item in full.items()}
                described = with_texts(described, want)
                taken, left_out = roles(described, want)
                left_out |= unread
                variables = {}
                storages = {}
                for name, role in taken.items():
                    if role == "data":
                        storages[name] = _Storage(datasets[name], reader)
                        continue
                    try:
                        variables[name] = _loaded(name, role, datasets[name], described[name])
                    except OSError as error:
                        if name in want.in_file(described).dims:
                            raise
                        left_out[name] = f"it cannot be read: {error}"
                groups = () if storages else tuple(_groups_with_variables(group))
                attrs = _attributes(group)
                others = [name for name in group if name not in storages]
            parsed, reasons = self._virtual(url, sources, reader, list(storages), others)
        for name, storage in storages.items():
            variable = storage.variable(name, described[name], parsed.get(name), reasons.get(name, ""))
            problem = self._unreadable(url, sources, variable) if variable.ranges is None else ""
            if problem:
                left_out[name] = problem
            else:
                variables[name] = variable
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

    def _virtual(
        self, url: str, sources: Sources, reader: Any, names: list[str], others: list[str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The manifest arrays of these datasets, and why there is none for the rest."""
        extra("virtualizarr.parsers", "virtual")
        parse = virtual_parser("hdf.hdf", "HDFParser")

        def arrays(dropped: list[str]) -> dict[str, Any]:
            parser = parse(group=self.group, drop_variables=dropped, reader_factory=lambda *_: reader)
            return dict(arrays_of(parser(url, sources.registry)))

        good: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        parts = [names] if names else []
        while parts:  # where one cannot be parsed, halves tell which
            part = parts.pop()
            wanted = set(part)
            try:
                good |= arrays([*others, *(name for name in names if name not in wanted)])
            except Exception as error:
                if len(part) == 1:
                    reasons[part[0]] = f"it cannot be referenced: {error}"
                else:
                    parts += [part[: len(part) // 2], part[len(part) // 2 :]]
        return good, reasons

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


class _Storage:
    """How a dataset is stored: what decides whether VirtualiZarr's references can be trusted."""

    def __init__(self, dataset: Any, reader: Any) -> None:
        h5d = extra("h5py", "virtual").h5d
        plist = dataset.id.get_create_plist()
        layout = plist.get_layout()
        self.filters = plist.get_nfilters()
        self.chunks = dataset.chunks
        self.reason = ""
        if layout == h5d.COMPACT:
            self.reason = "its data lie in the header of the dataset (compact layout)"
        elif layout == h5d.VIRTUAL:
            self.reason = "it is a virtual dataset, made of others"
        elif plist.get_external_count():
            self.reason = "its data lie in external files"
        self.masks: dict[tuple[int, ...], int] = {}
        self.bare_edges = False
        """Whether chunks that the end of an axis cuts off skip all filters."""
        if self.chunks is not None and self.filters:
            dataset.id.chunk_iter(self._note_mask)
            self.bare_edges = _is_cut(dataset.shape, self.chunks) and leaves_edges_bare(dataset, reader)

    def _note_mask(self, chunk: Any) -> None:
        if chunk.filter_mask:
            self.masks[chunk.chunk_offset] = chunk.filter_mask

    def variable(self, name: str, description: Description, array: Any, reason: str) -> ParsedVariable:
        """The parsed variable, with the filters that single chunks skipped."""
        reason = self.reason or reason
        if array is None or reason:
            grain = self.chunks or tuple(max(n, 1) for n in description.shape)
            chunks = tuple(min(c, max(n, 1)) for c, n in zip(grain, description.shape, strict=True))
            reason = reason or "the parser gave no references for it"
            return description.parsed(name, "data", chunks=chunks, reason=reason)
        variable = parsed_variable(name, "data", array, description)
        ranges = variable.ranges
        assert ranges is not None
        if (self.masks or self.bare_edges) and not ranges.inlined:
            steps = sum(1 for codec in variable.codecs if codec["name"] != "bytes")
            if steps != self.filters:
                variable.ranges = None
                variable.reason = (
                    f"single chunks skipped a filter, and its {self.filters} filters are not {steps} codecs"
                )
                return variable
            ranges.masks = np.zeros(ranges.grid, dtype=np.uint32)
            for offset, mask in self.masks.items():
                ranges.masks[tuple(a // c for a, c in zip(offset, variable.chunks, strict=True))] = mask
            if self.bare_edges:
                for axis, (n, c) in enumerate(zip(variable.shape, variable.chunks, strict=True)):
                    if n % c:
                        np.moveaxis(ranges.masks, axis, 0)[-1] = (1 << self.filters) - 1
        return variable


def _is_cut(shape: tuple[int, ...], chunks: tuple[int, ...]) -> bool:
    return any(n % c for n, c in zip(shape, chunks, strict=True))


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


def _inherited(datasets: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Coordinates of axes that stand in groups above, by name: as in NetCDF, they hold for those below."""
    scales = {
        _short(str(axis[0].name), group): axis[0]
        for dataset in datasets.values() if dataset.shape is not None
        for axis in dataset.dims if len(axis)
    }  # fmt: skip
    return {
        name: scale for name, scale in scales.items()
        if name not in datasets and "/" not in name and scale.ndim == 1 and _is_variable(scale)
    }  # fmt: skip


def _short(scale: str, group: str) -> str:
    """The name of a dimension scale as seen from a group: plain, if it stands there or above."""
    above, _, name = scale.rpartition("/")
    stands_above = f"{group.rstrip('/')}/".startswith(f"{above}/")
    return name if stands_above else scale.removeprefix(group).removeprefix("/")


def _is_variable(item: Any) -> bool:
    if not isinstance(item, extra("h5py", "virtual").Dataset):
        return False
    label = item.attrs.get("NAME", b"") if "CLASS" in item.attrs else b""
    text = label.encode() if isinstance(label, str) else bytes(label)
    return not text.startswith(NOT_A_VARIABLE)


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


def _described(dataset: Any, group: str, phony: PhonyDimensions) -> Description:
    h5py = extra("h5py", "virtual")
    string = h5py.check_string_dtype(dataset.dtype)
    dtype = dataset.dtype.newbyteorder("=")
    if string is not None and string.length is None:
        dtype = np.dtypes.StringDType()
    return Description(tuple(_dims(dataset, group, phony)), dataset.shape, _attributes(dataset), dtype)


def _bare_axes(dataset: Any) -> list[int]:
    """Axes that no dimension scale names."""
    if extra("h5py", "virtual").h5ds.is_scale(dataset.id) and len(dataset.shape) == 1:
        return []
    if _netcdf_dims(dataset):
        return []
    return [axis for axis in range(len(dataset.shape)) if not len(dataset.dims[axis])]


def _netcdf_dims(dataset: Any) -> list[str]:
    """Dimensions of a NetCDF variable of several axes that is a scale itself, and so has none: it has ids."""
    ids = dataset.attrs.get("_Netcdf4Coordinates")
    if ids is None or "CLASS" not in dataset.attrs or len(ids) != len(dataset.shape) or len(ids) < 2:
        return []
    scales = ((name, item.attrs) for name, item in dataset.parent.items() if "CLASS" in item.attrs)
    names = {int(attrs["_Netcdf4Dimid"]): name for name, attrs in scales if "_Netcdf4Dimid" in attrs}
    return [names[i] for i in ids.tolist()] if names.keys() >= set(ids.tolist()) else []


def _bare_sizes(dataset: Any) -> tuple[int, ...]:
    return tuple(dataset.shape[axis] for axis in _bare_axes(dataset))


def _dims(dataset: Any, group: str, phony: PhonyDimensions) -> Iterator[str]:
    """Names of the dimension scales; phony ones where there are none."""
    names = dict(zip(_bare_axes(dataset), phony.names(_bare_sizes(dataset)), strict=True))
    names |= dict(enumerate(_netcdf_dims(dataset)))
    for axis in range(len(dataset.shape)):
        scales = dataset.dims[axis]
        named = str(scales[0].name) if len(scales) else str(dataset.name)
        yield names.get(axis) or _short(named, group)


def _attributes(item: Any) -> dict[str, Any]:
    """Attributes with the types that they have in the file; texts as text."""
    h5py = extra("h5py", "virtual")
    attributes: dict[str, Any] = {}
    for name in item.attrs:
        if name in HIDDEN:
            continue
        try:
            value = item.attrs[name]
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
    values = loaded(dataset, description)
    return replace(description, dtype=values.dtype).parsed(name, role, values=values)
