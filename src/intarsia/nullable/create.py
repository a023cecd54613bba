"""Creating and opening nullable arrays."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import zarr
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec
from zarr.codecs import BytesCodec

from intarsia._icechunk import safe_store
from intarsia.casting import Casting
from intarsia.codecs.base import CodecLike, parse_codecs
from intarsia.codecs.packbits import PackBitsCodec
from intarsia.errors import CodecConfigurationError, DataTypeError
from intarsia.nullable.array import NullableArray
from intarsia.nullable.categories import ATTRIBUTE as CATEGORIES
from intarsia.nullable.categories import Categories
from intarsia.nullable.codec import optional_codec
from intarsia.nullable.conversions import as_nullable
from intarsia.nullable.dtype import NullDType, Spelling, check_experimental, optional_dtype
from intarsia.nullable.elements import NULL, element_type, is_string
from intarsia.nullable.missing_values import ATTRIBUTE, UNSET, attribute_of
from intarsia.nullable.sentinel import on_present_values


def create_array(
    store: Any,
    name: str | None = None,
    *,
    shape: Any = None,
    dtype: Any = None,
    depth: int = 1,
    data: Any = None,
    chunks: Any = "auto",
    shards: Any = None,
    filters: Iterable[CodecLike] = (),
    compressors: Iterable[CodecLike] | Literal["auto"] | None = "auto",
    mask_codecs: Iterable[CodecLike] | None = None,
    data_codecs: Iterable[CodecLike] | None = None,
    fill_value: Any = NULL,
    na_object: Any = UNSET,
    spelling: Spelling = "optional",
    casting: Casting = "same_kind",
    categories: bool = False,
    attributes: Mapping[str, Any] | None = None,
    **options: Any,
) -> NullableArray:
    """Create an array with missing values in a store or a group; give `shape` and `dtype`, or `data`.

    `dtype` is the type of the values, or an optional data type; `depth` nests optionals. `compressors` apply
    to both the mask and the values; `mask_codecs` and `data_codecs` replace either chain as a whole.
    `filters` run before the two are split and leave nulls alone. `na_object` is kept as an attribute.
    With `categories`, categorical data is stored as codes, and an attribute says what they stand for.
    `spelling="zarrs.optional"` writes the name that zarrs reads. Data that `dtype` would change is
    refused, unless `casting="unsafe"`. Everything else, such as `dimension_names` or `overwrite`, goes to
    `zarr.create_array`.

    Args:
        store: A zarr store or group, a path or URL, or a dictionary.
        name: Where the array goes in the store.
        chunks: The chunk shape; `"auto"` leaves it to zarr.
        shards: The shape of the shards, a whole number of chunks along each axis; by default there are none.
        fill_value: What chunks read as before they are written; by default null.
        attributes: Attributes of the array.
        **options: Everything else that `zarr.create_array` takes, by keyword.

    >>> a = create_array({}, shape=(2, 2), dtype="float32", fill_value=0)
    >>> a[0, 0] = None
    >>> a[:].tolist()
    [[None, 0.0], [0.0, 0.0]]
    """
    nullable = None
    kept = dict(attributes or {})
    if categories:
        data, meant = Categories.split(data)
        kept[CATEGORIES] = meant.to_json()
    if data is not None:
        values_dtype = None if dtype is None else optional_dtype(dtype).element.dtype
        nullable = as_nullable(data, values_dtype, depth, casting=casting)
        if shape is not None and tuple(np.atleast_1d(shape)) != nullable.shape:
            raise ValueError(f"the data has shape {nullable.shape}, but the array should have shape {shape}")
        shape = nullable.shape
        if dtype is None:
            dtype = nullable.values.dtype if nullable.values.dtype != object else "variable_length_bytes"
        if (
            na_object is UNSET
            and is_string(getattr(data, "dtype", np.dtype(bool)))
            and element_type(data.dtype) is None
        ):
            na_object = getattr(data.dtype, "na_object", UNSET)
    if shape is None or dtype is None:
        raise DataTypeError("give shape and dtype, or data")
    data_type: Any
    if isinstance(dtype, NullDType) or dtype == "null":
        check_experimental("the data type 'null'")
        data_type = dtype if isinstance(dtype, NullDType) else NullDType()
        serializer: ArrayBytesCodec = BytesCodec(endian=None)
    else:
        data_type = optional_dtype(dtype, depth, name=spelling)
        serializer = optional_codec(
            data_type, compressors=compressors, mask_codecs=mask_codecs, data_codecs=data_codecs
        )
    if na_object is not UNSET:
        if not is_string(data_type.element.dtype):
            raise DataTypeError(f"na_object is for strings; this array holds {data_type}")
        kept[ATTRIBUTE] = attribute_of(na_object)
    made = zarr.create_array(
        _place(store),
        name=name,
        shape=shape,
        dtype=data_type,
        chunks=chunks,
        shards=shards,
        filters=_filters(filters),
        serializer=serializer,
        compressors=None,
        fill_value=fill_value,
        attributes=kept,
        **options,
    )
    array = NullableArray(made)
    if nullable is not None:
        array[...] = nullable
    return array


def _filters(filters: Iterable[CodecLike]) -> list[ArrayArrayCodec]:
    parsed = parse_codecs([*filters, PackBitsCodec()])
    if len(parsed) != len(list(filters)) + 1:
        raise CodecConfigurationError("filters must be array -> array codecs: give others as data_codecs")
    return [on_present_values(codec) for codec in parsed[:-1]]


def open_array(
    store: Any, path: str | None = None, *, mode: str | None = None, na_object: Any = UNSET, **options: Any
) -> NullableArray:
    """Open an array with missing values in a store or a group; `options` are those of `zarr.open_array`.

    Args:
        store: A zarr store or group, a path or URL, or a dictionary.
        path: Where the array is in the store.
        mode: How to open it, as in `zarr.open_array`: `"r"` or `"r+"`, for example.
        na_object: What stands for null in NumPy's string arrays, such as None; by default, the one that the
            array was created with.

    >>> store = {}
    >>> _ = create_array(store, data=["x", None])
    >>> open_array(store, na_object=None)[:]
    array(['x', None], dtype=StringDType(na_object=None))
    """
    if mode is not None:
        options["mode"] = mode
    return NullableArray(zarr.open_array(_place(store), path=path or "", **options), na_object=na_object)


def _place(store: Any) -> Any:
    return safe_store(store.store_path if isinstance(store, zarr.Group) else store)
