"""Fields of structs that may be null: an experiment, since nobody has specified how they are stored.

The registered `struct` requires fields of a fixed size, and `bytes` says nothing about `optional`. Here such
a field is a pair, in memory and when stored: the value, or zeros if there is none, and a byte that is 1 if
there is one. So code that selects, copies, shards or compresses it sees a struct like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.dtype import Struct

from intarsia._compat import JSON
from intarsia.casting import Casting, cast_values
from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable.dtype import OptionalDType, check_experimental, parsed_dtype

type _Array = np.ndarray[Any, Any]
type _DType = np.dtype[Any]

PAIR = ("value", "not null")
"""The names of the two parts of an optional field; users' own fields are not called this."""


def pair_of(dtype: _DType) -> _DType:
    """The NumPy dtype of an optional field with values of `dtype`."""
    return np.dtype([(PAIR[0], dtype), (PAIR[1], np.bool_)])


def is_pair(dtype: _DType) -> bool:
    """Whether `dtype` is the dtype of an optional field."""
    return dtype.names == PAIR


def may_have_nulls(dtype: _DType) -> bool:
    """Whether a struct of this dtype has optional fields, at any depth.

    >>> may_have_nulls(np.dtype([("x", pair_of(np.dtype("f4")))])), may_have_nulls(np.dtype("f4"))
    (True, False)
    """
    return any(is_pair(dtype[name]) or may_have_nulls(dtype[name]) for name in dtype.names or ())


@dataclass(frozen=True, kw_only=True, repr=False)
class OptionalField(OptionalDType):
    """The data type `optional` for a field of a struct."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_experimental(f"a struct with a field of {self}")
        if self.inner.to_native_dtype().kind in "OT":
            raise DataTypeError(f"a field of {self}: fields of a struct must have a fixed size")

    @property
    def item_size(self) -> int:
        """The size of the value; zarr asks in order to know whether byte order matters."""
        return int(self.inner.to_native_dtype().itemsize)

    def has_multi_byte_fields(self) -> bool:
        """Whether byte order matters for the value."""
        return self.item_size > 1

    def to_native_dtype(self) -> _DType:
        return pair_of(self.inner.to_native_dtype())

    def default_scalar(self) -> Any:
        return np.zeros((), self.to_native_dtype())[()]

    def from_json_scalar(self, data: JSON, *, zarr_format: int) -> Any:
        scalar = super().from_json_scalar(data, zarr_format=zarr_format)
        made = np.zeros((), self.to_native_dtype())
        if data is not None:
            made[()] = (scalar.value, True)  # type: ignore[union-attr]  # it is Some
        return made[()]

    def to_json_scalar(self, data: Any, *, zarr_format: int) -> JSON:
        return [self.inner.to_json_scalar(data[PAIR[0]], zarr_format=3)] if data[PAIR[1]] else None


def struct_dtype(fields: Mapping[str, Any] | Struct) -> Struct:
    """A struct data type whose fields may be optional.

    An optional field needs `zarr.config.set({"intarsia.experimental": True})`.

    Args:
        fields: The data type of each field by name, as `optional_dtype` or zarr take it.

    >>> import zarr
    >>> with zarr.config.set({"intarsia.experimental": True}):
    ...     point = struct_dtype({"x": "optional[float32]", "n": "int32"})
    ...     data = [(0.5, 1), None, (None, 3)]
    ...     from intarsia import nullable
    ...     a = nullable.create_array({}, data=data, dtype=point)
    ...     a[:], a[:]["x"]  # doctest: +NORMALIZE_WHITESPACE
    (NullableValues([(0.5, 1), NULL, (None, 3)], dtype=[('x', '<f4', 'optional'), ('n', '<i4')]),
     NullableValues([0.5, NULL, NULL], dtype=float32))
    """
    listed = fields.items() if isinstance(fields, Mapping) else fields.fields
    return Struct(fields=tuple((name, _field_type(dtype)) for name, dtype in listed))


def _field_type(dtype: Any) -> Any:
    parsed = parsed_dtype(dtype)
    if type(parsed) is OptionalDType:
        return OptionalField(inner=_field_type(parsed.inner), name=parsed.name)
    return struct_dtype(parsed) if type(parsed) is Struct else parsed


def bare(value: Any, dtype: _DType) -> Any:
    """A struct element, or what `item` makes of one, as a tuple with None for fields that are null."""
    if is_pair(dtype):
        return bare(value[0], dtype[PAIR[0]]) if value[1] else None
    if dtype.names is None:
        return value.item() if isinstance(value, np.generic) else value
    return tuple(bare(part, dtype[name]) for part, name in zip(value, dtype.names, strict=True))


def described(dtype: _DType) -> str:
    """A dtype in words, which are NumPy's if no field is optional.

    >>> described(np.dtype([("x", pair_of(np.dtype("<f4"))), ("n", "<i4")]))
    "[('x', '<f4', 'optional'), ('n', '<i4')]"
    """
    if not may_have_nulls(dtype):
        return str(dtype)
    return f"[{', '.join(_described(name, dtype[name]) for name in dtype.names or ())}]"


def _described(name: str, dtype: _DType) -> str:
    optional = ""
    while is_pair(dtype):
        dtype, optional = dtype[PAIR[0]], f"{optional}, 'optional'"
    return f"({name!r}, {described(dtype) if dtype.names else repr(dtype.str)}{optional})"


def settled(values: _Array) -> _Array:
    """The values with zeros beneath every null, so that equal elements are equal to the bit."""
    if is_pair(values.dtype):
        made = np.zeros_like(values)
        there = made[PAIR[1]] = values[PAIR[1]]
        made[PAIR[0]][there] = settled(values[PAIR[0]][there])
        return made
    if not may_have_nulls(values.dtype):
        return values
    made = np.empty_like(values)
    for name in made.dtype.names or ():
        made[name] = settled(values[name])
    return made


def cast_fields(values: _Array, dtype: _DType, casting: Casting, what: str = "the values") -> _Array:
    """Struct values cast to a dtype with the same field names; fields may become optional or cease to be."""
    if is_pair(dtype):
        made = np.zeros(values.shape, dtype)
        there, inner = np.ones(values.shape, np.bool_), values
        if is_pair(values.dtype):
            there, inner = values[PAIR[1]], values[PAIR[0]]
        made[PAIR[1]] = there
        made[PAIR[0]][there] = cast_fields(inner[there], dtype[PAIR[0]], casting, what)
        return made
    if is_pair(values.dtype):
        if count := int(np.count_nonzero(~values[PAIR[1]])):
            raise NullsPresentError(f"{count} of {what} are null, but {dtype} has no null")
        return cast_fields(values[PAIR[0]], dtype, casting, what)
    if not dtype.names or values.dtype.names != dtype.names:
        return cast_values(values, dtype, casting=casting, what=what)
    made = np.zeros(values.shape, dtype)
    for name in dtype.names:
        made[name] = cast_fields(values[name], dtype[name], casting, f"the field {name!r} of {what}")
    return made


def from_masked(values: _Array, mask: _Array) -> tuple[_Array, _Array]:
    """The structs of a masked array, and which are masked as a whole. Partly masked fields become optional.

    NumPy's masks of structs are always masks of their fields.
    """
    made = np.zeros(values.shape, _with_pairs(values.dtype))
    hidden = _hide(made, values, mask)
    in_part = mask.view(np.bool_).reshape(*mask.shape, -1) & ~hidden[..., None]
    return (made if in_part.any() else values), hidden


def _with_pairs(dtype: _DType) -> _DType:
    if dtype.names is None:
        return pair_of(dtype)
    return np.dtype([(name, _with_pairs(dtype[name])) for name in dtype.names])


def _hide(made: _Array, values: _Array, mask: _Array) -> _Array:
    if values.dtype.names:
        parts = [_hide(made[name], values[name], mask[name]) for name in values.dtype.names]
        hidden: _Array = np.logical_and.reduce(parts)
        return hidden
    made[PAIR[1]] = ~mask
    made[PAIR[0]][~mask] = values[~mask]
    return mask


def masked(values: _Array, missing: _Array) -> np.ma.MaskedArray[Any, Any]:
    """As a NumPy masked array, whose fields have their own masks."""
    made: np.ma.MaskedArray[Any, Any] = np.ma.zeros(values.shape, _without_pairs(values.dtype))
    mask = np.zeros(values.shape, np.ma.make_mask_descr(made.dtype))
    _show(made.data, mask, values, missing)
    made.mask = mask
    return made


def _without_pairs(dtype: _DType) -> _DType:
    if is_pair(dtype):
        return _without_pairs(dtype[PAIR[0]])
    return np.dtype([(name, _without_pairs(dtype[name])) for name in dtype.names]) if dtype.names else dtype


def _show(made: _Array, mask: _Array, values: _Array, missing: _Array) -> None:
    for name in made.dtype.names or ():
        part, hidden = values[name], missing
        while is_pair(part.dtype):
            part, hidden = part[PAIR[0]], hidden | ~part[PAIR[1]]
        if part.dtype.names:
            _show(made[name], mask[name], part, hidden)
        else:
            made[name], mask[name] = part, hidden
