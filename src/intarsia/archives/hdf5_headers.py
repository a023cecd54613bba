"""What the headers of HDF5 datasets say, each asked once, through h5py's lower interface.

Archives are thousands of small files: most of their time goes into making and freeing Python's objects for
what HDF5 holds. The upper interface of h5py makes several of them for every question.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from typing import Any

import numpy as np

from intarsia.archives.cf import FILE_MATTERS
from intarsia.archives.hdf5_bytes import HeapReader, has_endless_heap
from intarsia.extras import extra

HIDDEN = FILE_MATTERS | {"_Netcdf4Coordinates", "_nc3_strict"}

DIMENSION_LIST = b"DIMENSION_LIST"
"""The attribute that says which scales the axes of a dataset have."""

MOST_TYPES = 1_000
"""Types of attributes and values that are remembered."""

_types: dict[bytes, tuple[np.dtype[Any], Any]] = {}
"""Types that HDF5 stores, as it encodes them: NumPy's type, and HDF5's in this machine's memory."""


@cache
def library() -> Any:
    """Is h5py; of a file that is open already, so that nobody has to look whether it is there."""
    return extra("h5py", "virtual")


@contextmanager
def opened_file(reader: Any) -> Iterator[Any]:
    """The identifier of an HDF5 file; one that is in memory as a whole is not read through Python."""
    h5py = extra("h5py", "virtual")
    image = None
    if isinstance(reader, io.BytesIO) and not has_endless_heap(reader.getvalue()):
        with suppress(ValueError, OSError):  # the other way says what is wrong with it
            image = h5py.h5f.open_file_image(reader.getvalue())
    if image is None:
        with h5py.File(HeapReader(reader), "r") as file:
            yield file.id
        return
    try:
        yield image
    finally:
        image.close()


def objects_in(group: Any) -> dict[str, Any]:
    """Everything in a group by name, in its order, except for links that lead nowhere."""
    h5o = library().h5o
    found = {}
    for name in group:
        try:
            found[text(name)] = h5o.open(group, name)
        except KeyError:
            continue
    return found


def text(name: bytes) -> str:
    """A name, as h5py gives it."""
    return name.decode("utf-8", "surrogateescape")


class Header:
    """A dataset of an open file."""

    def __init__(self, found: Any, path: str) -> None:
        self.id = found
        self.path = path
        """From the root of its file."""
        self.shape: Any = found.shape
        """Its length along every axis; None where it has no data space."""
        self.is_scale: bool = library().h5ds.is_scale(found)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """What it stores; not every type is one of NumPy's."""
        return _type_of(self.id)[0]

    @cached_property
    def plist(self) -> Any:
        """How it was made."""
        return self.id.get_create_plist()

    @property
    def dataset(self) -> Any:
        """As an object of h5py, with all that those can do."""
        return library().Dataset(self.id)

    @cached_property
    def names(self) -> list[bytes]:
        """Of its attributes."""
        return _names(self.id, self.plist)

    def attributes(self) -> dict[str, Any]:
        """Its attributes with the types that they have in the file; texts as text."""
        return _values(self.id, self.names)

    def scales(self) -> list[Any]:
        """The dimension scale of every axis, the first of several; None where there is none."""
        h5ds = library().h5ds
        found = []
        for axis in range(len(self.shape) if DIMENSION_LIST in self.names else 0):
            known: list[Any] = []
            if h5ds.get_num_scales(self.id, axis):
                h5ds.iterate(self.id, axis, known.append, 0)
            found.append(known[0] if known else None)
        return found or [None] * len(self.shape)

    def read(self, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """All numbers, as the same type in this machine's byte order."""
        everything = library().h5s.ALL
        values = np.empty(self.shape, dtype=dtype)
        self.id.read(everything, everything, values)
        return values


def attributes_of(group: Any) -> dict[str, Any]:
    """The attributes of a group."""
    return _values(group, _names(group, group.get_create_plist()))


def _names(bearer: Any, plist: Any) -> list[bytes]:
    h5py = library()
    if not h5py.h5a.get_num_attrs(bearer):
        return []
    by_age = plist.get_attr_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
    found: list[bytes] = []
    h5py.h5a.iterate(
        bearer, found.append, index_type=h5py.h5.INDEX_CRT_ORDER if by_age else h5py.h5.INDEX_NAME
    )
    return found


def _values(bearer: Any, names: list[bytes]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for stored in names:
        name = text(stored)
        if name in HIDDEN:
            continue
        try:
            value = _value(bearer, stored)
        except (OSError, TypeError):  # a type that h5py does not know
            continue
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, np.ndarray):
            if value.dtype.kind == "S":
                value = np.strings.decode(value, "utf-8", "replace")
            if value.dtype.kind == "O" and not all(isinstance(each, str) for each in value.flat):
                continue  # object references
            value = value.reshape(-1)[0] if value.size == 1 else value
        attributes[name] = str(value) if isinstance(value, str) else value
    return attributes


def _value(bearer: Any, name: bytes) -> Any:
    """One attribute as it is stored; empty ones as an empty text."""
    h5py = library()
    attribute = h5py.h5a.open(bearer, name)
    shape = attribute.shape
    if shape is None:
        return ""
    dtype, memory = _type_of(attribute)
    is_text = dtype.kind == "O" and h5py.check_string_dtype(dtype) is not None
    if dtype.kind not in "iufS" and not is_text:
        return h5py.AttributeManager(_Bearer(bearer))[text(name)]
    values = np.zeros(shape, dtype=dtype)
    attribute.read(values, mtype=memory)
    if is_text:
        flat = [each.decode("utf-8", "surrogateescape") for each in values.flat]
        values = np.array(flat, dtype=object).reshape(shape)
    return values if shape else values[()]


class _Bearer:
    """What has attributes, as h5py asks for it."""

    def __init__(self, found: Any) -> None:
        self.id = found


def _type_of(stored: Any) -> tuple[np.dtype[Any], Any]:
    """NumPy's type of a dataset or an attribute, and HDF5's for memory."""
    h5t = library().h5t
    kind = stored.get_type()
    if kind.get_class() not in (h5t.INTEGER, h5t.FLOAT, h5t.STRING, h5t.ENUM):
        dtype = kind.dtype  # others may refer to their file
        return dtype, h5t.py_create(dtype)
    code = kind.encode()
    found = _types.get(code)
    if found is None:
        if len(_types) >= MOST_TYPES:
            _types.clear()
        dtype = kind.dtype
        found = _types[code] = dtype, h5t.py_create(dtype)
    return found
