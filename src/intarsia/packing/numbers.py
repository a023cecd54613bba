"""The numbers that packings are made of: their data types, and how they are spelled in JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.errors import PackingError

type Number = np.number[Any]

_CODES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
KINDS = {np.dtype(code).name: np.dtype(code) for code in _CODES}
"""The data types that packings know, by their names in Zarr."""
_KNOWN = frozenset(KINDS.values())


def known_type(given: Any, what: str) -> np.dtype[Any]:
    if isinstance(given, np.dtype) and given.isnative and given in _KNOWN:
        return given
    try:
        dtype: np.dtype[Any] = np.dtype(given).newbyteorder("=")
    except TypeError:
        raise PackingError(f"{what} is {given!r}, which is none") from None
    if dtype not in _KNOWN:
        raise PackingError(f"{what} is {dtype}; packings know integers and floats of up to 64 bits")
    return dtype


def named_type(name: Any, what: str) -> np.dtype[Any]:
    if not isinstance(name, str) or name not in KINDS:
        raise PackingError(f"{what}: {name!r:.200} is not one of {', '.join(KINDS)}")
    return KINDS[name]


def numbers_of(stored: np.dtype[Any], unsigned: bool | None) -> np.dtype[Any]:
    """What stored numbers are taken for."""
    return stored if unsigned is None else np.dtype(f"{'u' if unsigned else 'i'}{stored.itemsize}")


def exact(mark: Any, numbers: np.dtype[Any], what: str = "missing") -> Number:
    """A number in another type, in which it has to be the same."""
    try:
        with np.errstate(all="ignore"):
            number: Number = numbers.type(mark)
        if number == mark:
            return number
    except (OverflowError, ValueError, TypeError):
        pass
    raise PackingError(f"{what}: {mark!r:.200} is no {numbers}")


def bits_of(number: Number) -> str:
    """The bytes of a number as Zarr spells those of a float, most significant first.

    >>> bits_of(np.float32(1))
    '0x3f800000'
    """
    return f"0x{np.array(number, dtype=number.dtype.newbyteorder('>')).tobytes().hex()}"


def number_of(text: Any, dtype: np.dtype[Any], what: str) -> Number:
    """The number behind its bytes.

    >>> number_of("0x3f800000", np.dtype("float32"), "scale")
    np.float32(1.0)
    """
    if not isinstance(text, str) or len(text) != 2 + 2 * dtype.itemsize or not text.startswith("0x"):
        raise PackingError(f"{what}: {text!r:.200} is not the bytes of a {dtype}: 0x… in hexadecimal digits")
    try:
        data = bytes.fromhex(text[2:])
    except ValueError:
        data = b""
    if len(data) != dtype.itemsize:  # fromhex skips blanks
        raise PackingError(f"{what}: {text!r} is not the bytes of a {dtype}: 0x… in hexadecimal digits")
    number: Number = np.frombuffer(data, dtype=dtype.newbyteorder(">")).astype(dtype)[0]
    return number


def mark_of(mark: Any, numbers: np.dtype[Any]) -> Number:
    """A missing value from JSON: integers as such, floats as their bytes."""
    if numbers.kind == "f":
        number = number_of(mark, numbers, "missing")
        if np.isnan(number):
            raise PackingError("missing: NaN is missing anyway")
        return number
    if type(mark) is not int:
        raise PackingError(f"missing: {mark!r:.200} is not an integer")
    return exact(mark, numbers)


def factor_of(document: Any, what: str) -> Number | None:
    """A scale or an offset from JSON: its type and its bytes."""
    if document is None:
        return None
    if not isinstance(document, list) or len(document) != 2:
        raise PackingError(f"{what}: {document!r:.200} is not a data type and its bytes")
    return number_of(document[1], named_type(document[0], what), what)
