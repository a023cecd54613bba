"""Attributes of NetCDF classic files with their types, which VirtualiZarr's parser forgets."""

from typing import IO, Any

import numpy as np

from intarsia.errors import IngestError

NETCDF3_TYPES = dict(
    enumerate(["i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8"], start=1)
)
NETCDF3_TEXT = 2
NETCDF3_DIMENSIONS, NETCDF3_VARIABLES, NETCDF3_ATTRIBUTES = 10, 11, 12
NETCDF3_MOST_BYTES = 1 << 28
"""No header has longer names or attributes: a larger length means a damaged file."""


class _NetCDF3Header:
    """The big-endian header of a NetCDF classic file, read front to back; CDF-5 has wider counts."""

    def __init__(self, file: IO[bytes]) -> None:
        file.seek(0)
        magic = file.read(4)
        if len(magic) < 4 or magic[:3] != b"CDF" or magic[3] not in (1, 2, 5):
            raise IngestError(f"not a NetCDF classic file: it starts with {magic!r}")
        self._file, self._version = file, magic[3]

    def bytes(self, count: int) -> bytes:
        if not 0 <= count <= NETCDF3_MOST_BYTES:
            raise IngestError(f"the header is damaged: a field of {count} bytes")
        data = self._file.read(count)
        if len(data) < count:
            raise IngestError(f"the header is truncated: {count} bytes expected, {len(data)} there")
        self._file.read(-count % 4)
        return data

    def number(self, width: int) -> int:
        return int.from_bytes(self.bytes(width), "big", signed=True)

    def count(self) -> int:
        return self.number(8 if self._version == 5 else 4)

    def offset(self) -> int:
        return self.number(4 if self._version == 1 else 8)

    def name(self) -> str:
        return self.bytes(self.count()).decode("utf-8", "replace")

    def entries(self, tag: int) -> range:
        own, count = self.number(4), self.count()
        if own not in (0, tag) or (own == 0 and count):
            raise IngestError(f"the header is damaged: list {tag} expected, {own} found")
        return range(count)

    def attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for _ in self.entries(NETCDF3_ATTRIBUTES):
            name, kind = self.name(), self.number(4)
            if kind not in NETCDF3_TYPES:
                raise IngestError(f"the attribute {name!r} has the unknown type {kind}")
            dtype = np.dtype(NETCDF3_TYPES[kind])
            count = self.count()
            data = self.bytes(count * dtype.itemsize)
            if kind == NETCDF3_TEXT:
                attributes[name] = data.decode("utf-8", "replace").rstrip("\x00")
                continue
            values = np.frombuffer(data, dtype=dtype).astype(dtype.newbyteorder("="))
            attributes[name] = values[0] if values.size == 1 else values
        return attributes


def netcdf3_attributes(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The attributes of the file, and those of every variable by its name."""
    header = _NetCDF3Header(file)
    header.count()  # number of records
    for _ in header.entries(NETCDF3_DIMENSIONS):
        header.name()
        header.count()
    whole = header.attributes()
    variables = {}
    for _ in header.entries(NETCDF3_VARIABLES):
        name = header.name()
        for _ in range(header.count()):
            header.count()
        variables[name] = header.attributes()
        header.number(4)
        header.count()
        header.offset()
    return whole, variables
