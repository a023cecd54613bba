"""What holds the values of a logical array: NumPy arrays, or nullable data if its data type is optional.

A nullable logical array may have plain members as well; all their values are present.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.dtype import ZDType, parse_dtype

from intarsia.casting import Casting, cast
from intarsia.errors import DataTypeError, NullsPresentError, ShapeError
from intarsia.manifest.packing import Packing
from intarsia.nullable import NullableValues, OptionalDType, as_nullable, optional_dtype
from intarsia.nullable.buffer import OptionalNDBuffer
from intarsia.nullable.elements import MAX_LEVELS, Null, Some, element_type

if TYPE_CHECKING:
    from intarsia.manifest.manifest import Manifest


type Values = Any
"""A NumPy array, or `NullableValues`."""


SHORT_ROW, MANY_ROWS = 256, 1 << 10
"""NumPy copies the elements of short rows one by one. It copies this many rows, of up to this many bytes, in
half the time or less if each counts as one element."""


def data_type_of(dtype: Any) -> ZDType[Any, Any]:
    """The data type for a `dtype` given to `intarsia.create`: any that zarr takes, or "optional[float64]".

    >>> data_type_of("optional[float64]")
    optional[float64]
    """
    element = element_type(dtype)
    if element is not None:
        return optional_dtype(element.dtype, element.depth)
    if isinstance(dtype, str) and dtype.strip().startswith("optional["):
        return optional_dtype(dtype)
    return parse_dtype(dtype, zarr_format=3)


def is_nullable(data_type: ZDType[Any, Any]) -> bool:
    """Whether values of this data type may be null.

    >>> is_nullable(data_type_of("float64"))
    False
    """
    return isinstance(data_type, OptionalDType)


def plain_type(data_type: ZDType[Any, Any]) -> ZDType[Any, Any]:
    """The data type without its nulls."""
    return data_type.innermost if isinstance(data_type, OptionalDType) else data_type


def values_dtype(data_type: ZDType[Any, Any]) -> np.dtype[Any]:
    """The NumPy dtype of the values.

    >>> values_dtype(data_type_of("optional[string]"))
    StringDType()
    """
    dtype: np.dtype[Any] = plain_type(data_type).to_native_dtype()
    return dtype


def type_text(data_type: ZDType[Any, Any]) -> str:
    """The data type in a word, for messages.

    >>> type_text(data_type_of("float32")), type_text(data_type_of("optional[float32]"))
    ('float32', 'optional[float32]')
    """
    return str(data_type) if isinstance(data_type, OptionalDType) else str(data_type.to_native_dtype())


def allocate(data_type: ZDType[Any, Any], shape: tuple[int, ...], fill_value: Any = None) -> Values:
    """Memory for a read, filled if there is a fill value.

    >>> allocate(data_type_of("optional[int8]"), (2,), fill_value=None).shape
    (2,)
    """
    if isinstance(data_type, OptionalDType):
        if fill_value is None:
            return NullableValues.empty(shape, data_type.element)
        return NullableValues.full(shape, fill_value, data_type.element)
    dtype = data_type.to_native_dtype()
    return np.empty(shape, dtype=dtype) if fill_value is None else np.full(shape, fill_value, dtype=dtype)


def write_decoded(out: Values, target: Any, decoded: Any, packing: Packing | None = None) -> None:
    """Write part of a decoded chunk, with its nulls, where it belongs; packed numbers become their values.

    >>> out = allocate(data_type_of("optional[int8]"), (3,), fill_value=Null())
    >>> write_decoded(out, slice(1, 3), np.array([5, 6], dtype="int8"))
    >>> out
    NullableValues([NULL, 5, 6], dtype=int8)
    """
    if packing is not None:
        if _is_sliced(target):
            packing.decode_into(np.asarray(decoded), out[target])
        else:
            out[target] = packing.decode(decoded)
    elif isinstance(decoded, OptionalNDBuffer):
        OptionalNDBuffer(out)[target] = decoded
    elif not _write_rows(out, target, decoded):
        out[target] = decoded


def _write_rows(out: Values, target: Any, values: Any) -> bool:
    """Write many short rows of numbers, each as if it were one element; False if there are none."""
    if not (isinstance(out, np.ndarray) and isinstance(values, np.ndarray) and values.size >= MANY_ROWS):
        return False
    length, itemsize, kind = values.shape[-1], values.itemsize, out.dtype.kind
    are_short = 1 < length <= min(SHORT_ROW // itemsize, values.size // MANY_ROWS)
    if not (are_short and kind in "biufc" and values.dtype == out.dtype and _is_sliced(target)):
        return False
    place, row = out[target], np.dtype((np.void, length * itemsize))
    if place.shape != values.shape or {place.strides[-1], values.strides[-1]} != {itemsize}:
        return False
    place.view(row)[...] = values.view(row)
    return True


def _is_sliced(target: Any) -> bool:
    return target is ... or all(isinstance(selector, slice) for selector in target)


def read_points(member: zarr.Array[Any], points: Any) -> Values:
    """Single elements of a member; zarr would return a plain array, without their nulls."""
    if is_nullable(member.metadata.dtype):
        from intarsia.nullable import NullableArray

        return NullableArray(member).read_nullable(tuple(points))
    if not points:  # one element for all points: zarr finds no points in an array without axes
        return np.asarray(member[...])
    return member.get_coordinate_selection(points)


def to_user_array(values: Values) -> Any:
    """What a user gets from a read: masked arrays, if there is one level of null.

    >>> to_user_array(as_nullable([1, None])).tolist()
    [1, None]
    """
    if not isinstance(values, NullableValues) or values.depth > 1:
        return values
    return values.masked()


def as_values(
    manifest: Manifest, value: Any, casting: Casting = "same_kind", *, all_axes: bool = False
) -> Values:
    """`value` as an array of the logical data type; an error if its meaning would change.

    With `all_axes` it has every axis of the array, so that its own axis names must be those of the array.
    """
    value = _by_name(manifest, value, all_axes=all_axes)
    data_type = manifest.data_type
    if isinstance(data_type, OptionalDType):
        return as_nullable(value, data_type.element.dtype, data_type.depth, casting=casting)
    dtype = data_type.to_native_dtype()
    # NumPy would turn lists of texts into texts of one width, that of the longest, and cut off trailing NULs;
    # and tuples, which stand for the fields of a structured value, into axes.
    if not ((dtype.kind in "TUSO" or dtype.names) and isinstance(value, list | tuple | str | bytes)):
        value = np.asanyarray(value)
    if not isinstance(value, np.ndarray) or (value.dtype == object and dtype.kind in "TUS"):
        found = as_nullable(value, dtype, casting=casting)
        value = _without_nulls(found.values, found.null_count)
    if isinstance(value, np.ma.MaskedArray):
        value = _without_nulls(np.asarray(value), int(np.ma.count_masked(value)))
    return cast(value, dtype, casting=casting)


def _by_name(manifest: Manifest, value: Any, *, all_axes: bool) -> Any:
    """Data with named dimensions, like xarray's, in the order of the array's axes.

    Names that the array does not have are refused if the data has every axis: nobody knows which is which.
    """
    dimensions, names = getattr(value, "dims", None), manifest.dimension_names
    if names is None or not isinstance(dimensions, tuple) or dimensions == names:
        return value
    if len(dimensions) == len(names) and set(dimensions) == set(names):
        return value.transpose(*names)
    chosen = [name for i, name in enumerate(dimensions) if name != f"dim_{i}"]  # xarray's for unnamed ones
    strange = [name for name in chosen if name not in names]
    free = names.count(None)
    if all_axes and len(strange) > free:
        raise ShapeError(
            f"the data has the dimensions {dimensions}, but the array has {names}.\n"
            f"  Rename them first, data.rename({{{strange[0]!r}: …}}), or give only the numbers: data.values"
        )
    return value


def _without_nulls(values: np.ndarray[Any, Any], nulls: int) -> np.ndarray[Any, Any]:
    """The values, none of which may be null or masked."""
    if nulls:
        raise NullsPresentError(
            f"{nulls} of {values.size} values are masked or null, but the array has no nulls.\n"
            '  Fill them first (values.filled(…)), or create the array with dtype="optional[…]"'
        )
    return values


def broadcast(values: Values, shape: tuple[int, ...]) -> Values:
    """Like `numpy.broadcast_to`.

    >>> broadcast(as_nullable(None, "int8"), (3,)).null_count
    3
    """
    if not isinstance(values, NullableValues):
        result = np.broadcast_to(np.asanyarray(values), shape, subok=True)
        # The codec for bytes of any length, which are objects, insists on writable memory.
        return result.copy() if result.dtype == object else result
    return NullableValues(
        np.broadcast_to(values.values, shape), np.broadcast_to(values.missing, shape), values.depth
    )


def as_member_values(member: zarr.Array[Any], values: Values, where: str) -> Values:
    """The values, or the one value, in the form for the member; a plain member takes no null."""
    data_type: Any = member.metadata.dtype
    if isinstance(values, Null | Some):
        depth = data_type.depth if isinstance(data_type, OptionalDType) else MAX_LEVELS
        values = as_nullable(values, values_dtype(data_type), depth)
    if isinstance(data_type, OptionalDType):
        return as_nullable(values, data_type.element.dtype, data_type.depth)
    if not isinstance(values, NullableValues):
        return values
    count = values.null_count
    if count:
        raise NullsPresentError(
            f"{count} of the values for {where} are null, and the array behind it has the plain data type "
            f"{type_text(member.metadata.dtype)}.\n"
            "  Give the region an encoding with nulls first: arr.recode(bounds, codecs=[…])",
            command="Give the region an encoding with nulls first: intarsia recode",
        )
    return values.values


def holds_nulls(values: Values) -> bool:
    """Whether there is a null among the values.

    >>> holds_nulls(as_nullable([1, None])), holds_nulls(np.zeros(3))
    (True, False)
    """
    return isinstance(values, NullableValues) and values.null_count > 0


def member_dtype_fits(data_type: ZDType[Any, Any], member: zarr.Array[Any]) -> bool:
    """Whether the member decodes to the logical data type, or to the plain type of its values."""
    own: Any = member.metadata.dtype
    if own == data_type:
        return True
    if isinstance(own, OptionalDType) or not isinstance(data_type, OptionalDType):
        native, expected = own.to_native_dtype(), data_type.to_native_dtype()
        return bool(native == expected and element_type(native) == element_type(expected))
    return bool(own.to_native_dtype() == data_type.element.dtype)


def fill_value_of(data_type: ZDType[Any, Any], value: Any) -> Any:
    """The fill value in the array's data type; an error if that would change it."""
    with np.errstate(over="ignore"):
        fill = data_type.cast_scalar(value)
    if is_nullable(data_type):
        return fill
    scalar, kind = np.asarray(value), values_dtype(data_type).kind
    if scalar.ndim or scalar.dtype.kind not in "biufcU":
        return fill
    if kind in "biu" and scalar.dtype.kind != "U" and fill != value:  # 3.0 is a fine integer, 3.7 is not
        raise DataTypeError(f"the fill value {value!r} would become {fill!r}, a different value")
    if (kind in "fc" and scalar.dtype.kind != "U") or kind == scalar.dtype.kind == "U":
        cast(scalar, values_dtype(data_type), what="fill values")
    return fill


@lru_cache(typed=True)
def zarr_type(dtype: np.dtype[Any] | str) -> ZDType[Any, Any]:
    """The Zarr data type, kept: zarr tries one after another, which adds up over thousands of arrays."""
    return parse_dtype(dtype, zarr_format=3)
