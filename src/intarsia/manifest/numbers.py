"""The numbers that packings are made of: their data types, xarray's rules for them, their form in JSON.

xarray's own rules for the attributes of a variable and their types are in its `coding/variables.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from intarsia.errors import PackingError

type Number = np.number[Any]

BLOCK = 1 << 17
"""How many elements are decoded at a time: few enough that later steps find them in the cache."""

_CODES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
KINDS = {np.dtype(code).name: np.dtype(code) for code in _CODES}
"""The data types that packings support, by their Zarr names."""
_KNOWN = frozenset(KINDS.values())


def known_type(given: Any, what: str) -> np.dtype[Any]:
    if isinstance(given, np.dtype) and given.isnative and given in _KNOWN:
        return given
    try:
        dtype: np.dtype[Any] = np.dtype(given).newbyteorder("=")
    except TypeError:
        raise PackingError(f"{what} is {given!r}, which is not a data type") from None
    if dtype not in _KNOWN:
        raise PackingError(f"{what} is {dtype}; packings support integers and floats of up to 64 bits")
    return dtype


def named_type(name: Any, what: str) -> np.dtype[Any]:
    if not isinstance(name, str) or name not in KINDS:
        raise PackingError(f"{what}: {name!r:.200} is not one of {', '.join(KINDS)}")
    return KINDS[name]


def numbers_of(stored: np.dtype[Any], unsigned: bool | None) -> np.dtype[Any]:
    """The type that stored numbers are read as."""
    return stored if unsigned is None else np.dtype(f"{'u' if unsigned else 'i'}{stored.itemsize}")


def exact(mark: Any, numbers: np.dtype[Any], what: str = "missing") -> Number:
    """A number in another type, which must hold it exactly."""
    try:
        with np.errstate(all="ignore"):
            number: Number = numbers.type(mark)
        if number == mark:
            return number
    except (OverflowError, ValueError, TypeError):
        pass
    raise PackingError(f"{what}: {mark!r:.200} is not a value of {numbers}")


def bits_of(number: Number) -> str:
    """The bytes of a number, written as Zarr writes those of a float: most significant first.

    >>> bits_of(np.float32(1))
    '0x3f800000'
    """
    return f"0x{np.array(number, dtype=number.dtype.newbyteorder('>')).tobytes().hex()}"


def number_of(text: Any, dtype: np.dtype[Any], what: str) -> Number:
    """The number with these bytes.

    >>> number_of("0x3f800000", np.dtype("float32"), "scale")
    np.float32(1.0)
    """
    if not isinstance(text, str) or len(text) != 2 + 2 * dtype.itemsize or not text.startswith("0x"):
        raise PackingError(f"{what}: {text!r:.200} is not the bytes of a {dtype}: write 0x… in hexadecimal")
    try:
        data = bytes.fromhex(text[2:])
    except ValueError:
        data = b""
    if len(data) != dtype.itemsize:  # fromhex skips blanks
        raise PackingError(f"{what}: {text!r} is not the bytes of a {dtype}: write 0x… in hexadecimal")
    number: Number = np.frombuffer(data, dtype=dtype.newbyteorder(">")).astype(dtype)[0]
    return number


def mark_of(mark: Any, numbers: np.dtype[Any]) -> Number:
    """A missing value from JSON: integers as they are, floats as their bytes."""
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


def arguments_of_json(document: Any) -> dict[str, Any]:
    """The arguments of a packing from its JSON, checked."""
    fields = ("stored", "unsigned", "values", "missing", "scale", "offset")
    if not isinstance(document, dict) or set(document) != set(fields):
        raise PackingError(f"a packing is an object with {', '.join(fields)}, not {document!r:.200}")
    given = dict(document)
    stored = named_type(given["stored"], "stored")
    if given["unsigned"] is not None and type(given["unsigned"]) is not bool:
        raise PackingError(f"unsigned: {given['unsigned']!r} is not true, false or null")
    if stored.kind != {None: stored.kind, True: "i", False: "u"}[given["unsigned"]]:
        raise PackingError(f"unsigned: {given['unsigned']!r} means nothing for {stored}")
    if not isinstance(given["missing"], list):
        raise PackingError(f"missing: {given['missing']!r:.200} is not a list")
    numbers = numbers_of(stored, given["unsigned"])
    marks = [mark_of(mark, numbers) for mark in given["missing"]]
    return {
        "stored": stored,
        "scale": factor_of(given["scale"], "scale"),
        "offset": factor_of(given["offset"], "offset"),
        "missing": np.array(marks, dtype=numbers) if marks else (),
        "unsigned": given["unsigned"],
        "values": named_type(given["values"], "values"),
    }


def _attribute_type(value: Any) -> np.dtype[Any] | None:
    """The type that xarray sees in an attribute; None for arrays and lists, which it takes for objects."""
    if isinstance(value, np.number):
        return value.dtype
    if isinstance(value, np.ndarray | list | tuple):
        return None
    return np.dtype(int) if isinstance(value, int) else np.dtype(float)


def float_type(numbers: np.dtype[Any], scale: Any, offset: Any) -> np.dtype[Any]:
    """The type that xarray computes in, given the types of scale and offset, at least one of which is set."""
    single, double = np.dtype("f4"), np.dtype("f8")
    if offset is not None:
        kinds = {_attribute_type(scale), _attribute_type(offset)}
        short = scale is not None and kinds == {single}
        # single precision has too few digits for 32-bit integers
        return single if short and not (numbers.kind in "iu" and numbers.itemsize == 4) else double
    return _attribute_type(scale) or double  # xarray turns objects into objects with these values


def value_type(numbers: np.dtype[Any], scale: Any, offset: Any, masked: bool) -> np.dtype[Any]:
    """The type of the values, as xarray chooses it."""
    if scale is not None or offset is not None:
        kind = float_type(numbers, scale, offset)
        return kind if kind.kind == "f" or not masked else np.dtype("f8")  # xarray fails: they have no NaN
    if not masked or numbers.kind == "f":
        return numbers
    return np.dtype("f4" if numbers.itemsize <= 2 else "f8")


def factor(given: Any, values: np.dtype[Any], what: str) -> Number | None:
    """A scale or an offset as a number with its own type."""
    if given is None:
        return None
    if isinstance(given, np.ndarray) and not given.ndim:
        given = given[()]
    elif isinstance(given, np.ndarray | list | tuple) and np.size(given) == 1:
        given = np.asarray(given).item()
    if not isinstance(given, np.number):
        if type(given) not in (int, float):
            raise PackingError(f"the {what} is {given!r:.200}, which is not a number")
        # NumPy computes with Python numbers in the type of the array.
        with np.errstate(over="ignore"):
            given = values.type(given) if values.kind == "f" else exact(given, values, f"the {what}")
    factor: Number = given.astype(known_type(given.dtype, f"the type of the {what}"))
    if not np.isfinite(factor):
        raise PackingError(f"the {what} is {given!s}: values cannot be unpacked with it")
    if not np.can_cast(np.result_type(values, factor.dtype), values, "same_kind"):
        raise PackingError(
            f"the {what} is {given!r}, but the values are {values}, which cannot hold the result"
        )
    return factor


def reinterpreted(mark: Any, stored: np.dtype[Any], numbers: np.dtype[Any]) -> Any:
    """The `_FillValue` of integers whose sign `_Unsigned` changes; it may be given in either form."""
    if np.asarray(mark).dtype.kind not in "iuf":
        return mark
    with np.errstate(invalid="ignore"):
        if numbers.kind == "i":
            return np.asarray(mark).astype(numbers)[()]
        return np.asarray(mark).astype(stored).view(numbers).item()


def found_by(mark: Any, numbers: np.dtype[Any], values: np.dtype[Any]) -> Sequence[Number]:
    """The stored number that xarray takes for a missing value, if there is one.

    xarray compares the converted numbers with the attribute, in the wider of their types. Sometimes nothing
    can be equal, such as a float64 of 1e20 in float32 data.
    """
    if np.asarray(mark).dtype.kind not in "biuf":
        return []  # text as the missing value of numbers, which equals none of them
    wide = values if isinstance(mark, int) else np.result_type(values, mark.dtype)
    with np.errstate(all="ignore"):
        wanted = wide.type(mark)
        value = values.type(wanted)
        if wide.type(value) != wanted:
            return []
        for candidate in (mark, value):
            if numbers.kind == "f":
                number: Number = numbers.type(candidate)
            elif np.isfinite(candidate):
                limits = np.iinfo(numbers)
                number = numbers.type(min(max(int(candidate), limits.min), limits.max))
            else:
                continue
            if values.type(number) == value:
                return [number]
    return []


def arguments_of_attributes(dtype: Any, attributes: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of the packing that the attributes of a variable describe; None if they describe none."""
    stored = known_type(dtype, "the stored data type")
    scale, offset = (attributes.get(name) for name in ("scale_factor", "add_offset"))
    sign = attributes.get("_Unsigned")
    if isinstance(sign, np.ndarray | list | tuple) and np.size(sign) == 1:
        sign = np.ravel(sign)[0]
    unsigned = {"true": True, "false": False}.get(sign) if isinstance(sign, str) else None
    if unsigned is not None and stored.kind != ("i" if unsigned else "u"):
        unsigned = None
    numbers = numbers_of(stored, unsigned)
    given = {n: attributes[n] for n in ("_FillValue", "missing_value") if attributes.get(n) is not None}
    marks = {
        name: [mark for mark in np.ravel(value) if mark is not None and mark == mark]
        for name, value in given.items()
    }
    masked = any(marks.values())
    # Attributes that hold nothing but NaN say nothing new about floats, but xarray then leaves the type
    # of the stored numbers alone; for integers it drops them.
    only_nan = bool(given) and not masked and stored.kind == "f"
    if scale is None and offset is None and unsigned is None and not masked:
        return None
    values = stored if only_nan else value_type(numbers, scale, offset, masked)
    missing: list[Number] = []
    for name, listed in marks.items():
        for mark in listed:
            if name == "_FillValue" and unsigned is not None:
                mark = reinterpreted(mark, stored, numbers)
            missing += found_by(mark, numbers, values)
    factors = {"scale": scale, "offset": offset}
    return {"stored": stored, **factors, "missing": missing, "unsigned": unsigned, "values": values}


def blocks(shape: tuple[int, ...]) -> Iterator[Any]:
    """Boxes of up to `BLOCK` elements that together make up an array of this shape."""
    size = prod(shape)
    if size <= BLOCK:
        yield ...
        return
    rows = max(1, BLOCK * shape[0] // size)
    for start in range(0, shape[0], rows):
        taken = slice(start, start + rows)
        if rows > 1 or size // shape[0] <= BLOCK:
            yield taken
        else:
            for rest in blocks(shape[1:]):
                yield (
                    (taken, rest) if rest is ... else (taken, *(rest if isinstance(rest, tuple) else (rest,)))
                )
