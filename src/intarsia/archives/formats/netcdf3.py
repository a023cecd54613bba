"""NetCDF classic files, which VirtualiZarr parses.

Its parser forgets the types of attributes, and allocates as many records as the header claims. So the header
is read here first.
"""

import math
from typing import IO, Any

import numpy as np

from intarsia.archives.formats.virtualizarr import SourceParser, VirtualFormat
from intarsia.archives.source_files import FormatProbe, Sources
from intarsia.errors import IngestError
from intarsia.extras import import_extra


def recognise(probe: FormatProbe, sources: Sources, group: str) -> VirtualFormat | None:
    """The format, if a file is NetCDF classic."""
    if not probe.head.startswith(b"CDF"):
        return None
    return VirtualFormat("netcdf3", NetCDF3Parser(sources), group)


class NetCDF3Parser(SourceParser):
    """The variables of a file, with attributes that have their types."""

    def __call__(self, url: str, registry: Any) -> Any:
        with self.sources.reader(url) as reader:
            self.attributes[""], variables = read_attributes(reader)
        self.attributes |= variables
        return import_extra("virtualizarr.parsers", "virtual").NetCDF3Parser()(url, registry)


TYPES = dict(enumerate(["i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8"], start=1))
TEXT = 2
DIMENSIONS, VARIABLES, ATTRIBUTES = 10, 11, 12
MAX_BYTES = 1 << 28
"""No header has longer names or attributes: a larger length means a damaged file."""


class _Header:
    """The big-endian header of a NetCDF classic file, read from front to back; CDF-5 has wider counts."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.size = file, file.seek(0, 2)
        file.seek(0)
        self._version = int.from_bytes(file.read(4)[3:])

    def bytes(self, count: int) -> bytes:
        if not 0 <= count <= MAX_BYTES:
            raise IngestError(f"the header is damaged: a field of {count} bytes")
        data = self._file.read(count)
        if len(data) < count:
            raise IngestError(f"the header is truncated: {count} bytes expected, {len(data)} found")
        self._file.read(-count % 4)
        return data

    def number(self, width: int) -> int:
        return int.from_bytes(self.bytes(width), "big", signed=True)

    def count(self) -> int:
        return self.number(8 if self._version == 5 else 4)

    def offset(self) -> int:
        return self.number(4 if self._version == 1 else 8)

    def name(self) -> str:
        return self.bytes(self.count()).decode()

    def entries(self, tag: int) -> range:
        own, count = self.number(4), self.count()
        if own not in (0, tag) or (own == 0 and count):
            raise IngestError(f"the header is damaged: list {tag} expected, {own} found")
        return range(count)

    def attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for _ in self.entries(ATTRIBUTES):
            name, kind = self.name(), self.number(4)
            if kind not in TYPES:
                raise IngestError(f"the attribute {name!r} has the unknown type {kind}")
            dtype = np.dtype(TYPES[kind])
            count = self.count()
            data = self.bytes(count * dtype.itemsize)
            if kind == TEXT:
                attributes[name] = data.decode("utf-8", "replace").rstrip("\x00")
                continue
            values = np.frombuffer(data, dtype=dtype).astype(dtype.newbyteorder("="))
            attributes[name] = values[0] if values.size == 1 else values
        return attributes


def read_attributes(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The attributes of the file, and those of every variable by its name.

    Raises `IngestError` if the header is damaged, or if it counts more records than the file can hold.
    """
    header = _Header(file)
    records = header.count()
    lengths = []
    for _ in header.entries(DIMENSIONS):
        header.name()
        lengths.append(header.count())
    whole = header.attributes()
    variables = {}
    record_sizes = []
    for _ in header.entries(VARIABLES):
        name = header.name()
        dimensions = [header.count() for _ in range(header.count())]
        variables[name] = header.attributes()
        dtype = np.dtype(TYPES.get(header.number(4), "i1"))
        header.count()  # its size, which is wrong for large variables
        header.offset()
        fill = variables[name].get("_FillValue")
        if dtype.kind in "iu" and isinstance(fill, np.floating) and np.isnan(fill):
            raise IngestError(  # VirtualiZarr cannot read the whole file then
                f"the variable {name!r} has integers, but its _FillValue is {fill}. Remove it: "
                f"ncatted -a _FillValue,{name},d,, FILE"
            )
        sizes = [lengths[d] for d in dimensions if 0 <= d < len(lengths)]
        if 0 in sizes[:1]:
            record_sizes.append(math.prod(sizes[1:]) * dtype.itemsize)
    before_the_last = (records - 1) * max(1, sum(record_sizes))
    if record_sizes and before_the_last > header.size:
        raise IngestError(
            f"it is truncated, or its header is damaged: its {records:,} records need more than "
            f"{before_the_last:,} bytes, and it has {header.size:,}"
        )
    return whole, variables
