"""Creating and opening zarr arrays of nullable data, which read and write masked arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import zarr
from numpy.lib.mixins import NDArrayOperatorsMixin
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec
from zarr.codecs import BytesCodec
from zarr.core.attributes import Attributes

from intarsia._compat import is_pure_fancy_indexing
from intarsia._icechunk import safe_store
from intarsia.casting import Casting
from intarsia.codecs import with_decision, with_padding
from intarsia.codecs.base import CodecLike, parse_codecs
from intarsia.codecs.packbits import PackBitsCodec
from intarsia.display import Table, place_text
from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import dataframes
from intarsia.nullable.buffer import OptionalNDBuffer
from intarsia.nullable.codec import optional_codec
from intarsia.nullable.conversions import as_nullable
from intarsia.nullable.dtype import (
    NullDType,
    OptionalDType,
    OptionalName,
    check_experimental,
    install_nullable_buffer,
    optional_dtype,
)
from intarsia.nullable.elements import NULL, element_type, is_string
from intarsia.nullable.nullable_values import NullableValues
from intarsia.nullable.present_values import on_present_values
from intarsia.nullable.representation import (
    ATTRIBUTE,
    UNSET,
    check_na_object,
    na_object_name,
    read_representation,
    to_strings,
)

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class NullableArray(NDArrayOperatorsMixin):
    """A zarr array with missing values. It reads as masked arrays; you can write anything that has nulls.

    To compute with nulls, use `read_nullable`: there null | True is True, while in a masked array it is
    masked. Operators and ufuncs of the array itself do the same lazily, with dask.

    Values that the data type of the array would change are refused. To write them all the same, convert
    them first: `a[...] = nullable.as_nullable(data, a.dtype, casting="unsafe")`.

    >>> from intarsia import nullable
    >>> a = nullable.create_array({}, shape=4, dtype="int16")
    >>> a[:3] = [1, None, 3]
    >>> print(a[:])
    [1 -- 3 --]
    >>> (a.read_nullable() > 1) | True
    NullableValues([True, True, True, True], dtype=bool)
    """

    __slots__ = ("_na_object", "_zarr_array")
    __eq__ = object.__eq__  # by identity, as for zarr arrays, not by content
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __init__(self, zarr_array: zarr.Array[Any], *, na_object: Any = UNSET) -> None:
        data_type = zarr_array.metadata.dtype
        if not isinstance(data_type, OptionalDType | NullDType):
            raise DataTypeError(
                f"the array at {place_text(zarr_array.store_path)} has the data type {data_type}, which has "
                "no nulls: open it with zarr.open_array"
            )
        self.zarr_array = zarr_array
        if na_object is not UNSET:
            check_na_object(na_object, self.dtype)
        self._na_object = na_object

    @property
    def zarr_array(self) -> zarr.Array[Any]:
        """The underlying zarr array; it reads as `NullableValues`."""
        install_nullable_buffer()  # zarr looks it up for each selection
        return self._zarr_array

    @zarr_array.setter
    def zarr_array(self, array: zarr.Array[Any]) -> None:
        self._zarr_array = array

    @property
    def data_type(self) -> OptionalDType | NullDType:
        """The zarr data type, including its levels of null."""
        return self.zarr_array.metadata.dtype  # type: ignore[return-value]  # `open` checked it

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the values."""
        return self.data_type.element.dtype

    @property
    def depth(self) -> int:
        """The number of levels of null."""
        return self.data_type.element.depth

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.zarr_array.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.zarr_array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.zarr_array.size

    @property
    def chunks(self) -> tuple[int, ...]:
        """The chunk shape."""
        return self.zarr_array.chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        """The shard shape, or None if there are no shards."""
        return self.zarr_array.shards

    @property
    def attrs(self) -> Attributes:
        """The attributes of the zarr array."""
        return self.zarr_array.attrs

    @property
    def fill_value(self) -> Any:
        """What chunks read as before they are written: `NULL`, or `Some(value)`."""
        return self.zarr_array.fill_value

    @property
    def na_object(self) -> Any:
        """What stands for null in strings: chosen at run time, else named by the attribute, else `UNSET`."""
        if self._na_object is not UNSET:
            return self._na_object
        return read_representation(self.attrs, self.dtype)[1]

    def with_config(
        self, *, decision: Any = UNSET, padding: Any = UNSET, verify_header: bool = False
    ) -> NullableArray:
        """A handle with another `decision` or `padding`, and perhaps `verify_header`.

        >>> from intarsia import nullable
        >>> from intarsia.codecs import ConditionalCodec
        >>> codec = ConditionalCodec(codecs=["zstd"])
        >>> a = nullable.create_array({}, shape=1000, dtype="int16", data_codecs=[codec])
        >>> a.with_config(decision="compress_if_smaller")[:] = 7
        """
        array = self.zarr_array
        if decision is not UNSET:
            array = with_decision(array, decision)
        if padding is not UNSET or verify_header:
            chosen = None if padding is UNSET else padding
            array = with_padding(array, chosen, verify_header=verify_header)
        return NullableArray(array, na_object=self._na_object)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        place = place_text(self.zarr_array.store_path)
        return f"<NullableArray {place} shape={self.shape} {self.data_type}>"

    def _repr_html_(self) -> str:
        facts = (place_text(self.zarr_array.store_path), *map(str, (self.shape, self.data_type, self.chunks)))
        return Table(("NullableArray", "Shape", "Data type", "Chunks"), [facts])._repr_html_()

    # -- reading

    def read_nullable(self, selection: Any = ...) -> NullableValues:
        """Read a `selection` for computing: as values and `missing`, with all levels of null.

        The result follows Arrow's rules and Kleene's logic of three values.

        >>> from intarsia import nullable
        >>> a = nullable.create_array({}, data=[True, None, False])
        >>> a.read_nullable() | [False, True, None]
        NullableValues([True, True, NULL], dtype=bool)
        """
        if is_pure_fancy_indexing(selection, self.ndim):
            return self._read_points(selection)
        return self._to_values(self.zarr_array[selection])

    def __getitem__(self, selection: Any) -> Any:
        return self._represent(self.read_nullable(selection))

    @property
    def oindex(self) -> Selector:
        """Reads and writes with one index per dimension, as in zarr."""
        index = self.zarr_array.oindex
        return Selector(self, lambda selection: self._to_values(index[selection]), index.__setitem__)

    @property
    def vindex(self) -> Selector:
        """Reads and writes single elements by their coordinates or by a mask, as in zarr."""
        return Selector(self, self._read_points, self._write_points)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.read_nullable().__array__(dtype=dtype)

    def _to_values(self, data: Any) -> NullableValues:
        """What zarr has read as an array; for a single element, zarr returns a scalar."""
        if isinstance(data, NullableValues):
            return data
        return NullableValues.full((), data, self.data_type.element)

    def _represent(self, data: NullableValues) -> Any:
        """The data in the Python type that the user or the attributes of the array chose."""
        if data.ndim == 0:
            if data.depth > 1 or data.null_count == 0:
                return data.item()
            return np.ma.masked if self.na_object is UNSET else self.na_object
        if data.depth > 1:
            return data
        if self.na_object is not UNSET:
            return to_strings(data, self.na_object)
        library, _ = read_representation(self.attrs, self.dtype)
        if library is not None:
            with suppress(DataTypeError, NullsPresentError):  # unless the library cannot hold such data
                return getattr(dataframes, f"to_{library}")(data)
        return data.masked()

    def _read_points(self, selection: Any) -> NullableValues:
        points, shape = _points_of(selection, self.shape)
        buffer = _PointBuffer(NullableValues.empty((points[0].size,), self.data_type.element))
        self.zarr_array.get_coordinate_selection(points, out=buffer)
        return buffer.nullable.reshape(shape)

    # -- writing

    def __setitem__(self, selection: Any, value: Any) -> None:
        data = self._convert(value)
        if is_pure_fancy_indexing(selection, self.ndim):
            self._write_points(selection, data)
        else:
            self.zarr_array[selection] = data

    def _convert(self, value: Any) -> NullableValues:
        """Data to write, in the data type of the array."""
        data = as_nullable(value, self.dtype, self.depth)
        if isinstance(self.data_type, NullDType):
            self.data_type.check(data)
        return data

    def _write_points(self, selection: Any, data: NullableValues) -> None:
        points, shape = _points_of(selection, self.shape)
        if data.ndim and data.shape != shape:
            raise ValueError(f"the selection has shape {shape}, but the data has shape {data.shape}")
        flat: Any = data.reshape(-1) if data.ndim else data
        self.zarr_array.set_coordinate_selection(points, flat)

    def append(self, data: Any, axis: int = 0) -> tuple[int, ...]:
        """Add `data` at the end of `axis`, and return the new shape.

        >>> from intarsia import nullable
        >>> nullable.create_array({}, data=[1, None]).append([None])
        (3,)
        """
        return self.zarr_array.append(self._convert(data), axis=axis)

    def resize(self, shape: Any) -> None:
        """Change the `shape`; new elements hold the fill value."""
        self.zarr_array.resize(shape)

    # -- computing

    def to_dask(self, chunks: Any = None) -> Any:
        """A dask array whose blocks are `NullableValues`, so that it treats nulls as they do.

        `chunks` is the shape of the blocks, by default that of the chunks or shards.

        >>> from intarsia import nullable
        >>> a = nullable.create_array({}, data=[1, None, 3], chunks=2)
        >>> (a.to_dask() * 2).mean().compute()
        NullableValues(4.0, dtype=float64)
        """
        from intarsia.nullable.dask_blocks import to_dask

        return to_dask(self, chunks)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if options.get("out"):
            raise TypeError(
                f"{ufunc.__name__} cannot write into a stored array in place.\n"
                "  Write what you mean: a[selection] = a.read_nullable(selection) + 1"
            )
        lazy = [value.to_dask() if isinstance(value, NullableArray) else value for value in inputs]
        return getattr(ufunc, method)(*lazy, **options)

    if not TYPE_CHECKING:  # so that a type checker still finds misspelt names

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"a NullableArray has no {name!r}. To compute: a.read_nullable(), or lazily a.to_dask()"
            )

    # -- other libraries

    def to_pandas(self, *, name: Any = None, nat_as_null: bool = False) -> pandas.Series | pandas.DataFrame:
        """Everything as a pandas Series of a nullable type, or as a DataFrame if there are two dimensions.

        `name` is the name of the Series. With `nat_as_null`, NaT becomes null too; otherwise it is refused.

        >>> from intarsia import nullable
        >>> nullable.create_array({}, data=[1, None]).to_pandas()
        0       1
        1    <NA>
        dtype: Int64
        """
        return dataframes.to_pandas(self.read_nullable(), name=name, nat_as_null=nat_as_null)

    def to_arrow(self, *, nat_as_null: bool = False) -> pyarrow.Array[Any]:
        """Everything as an Arrow array; further dimensions become lists of fixed size.

        With `nat_as_null`, NaT becomes null too; otherwise it is refused.
        """
        return dataframes.to_arrow(self.read_nullable(), nat_as_null=nat_as_null)

    def to_polars(self, *, name: str = "", nat_as_null: bool = False) -> polars.Series:
        """Everything as a Polars series with this `name`.

        With `nat_as_null`, NaT becomes null too; otherwise it is refused.
        """
        return dataframes.to_polars(self.read_nullable(), name=name, nat_as_null=nat_as_null)


@dataclass(frozen=True, slots=True)
class Selector:
    """What `array.oindex` and `array.vindex` are."""

    array: NullableArray
    """The array whose elements are selected."""

    read: Callable[[Any], NullableValues]
    """Reads a selection."""

    write: Callable[[Any, Any], None]
    """Writes into a selection."""

    def __getitem__(self, selection: Any) -> Any:
        return self.array._represent(self.read(selection))

    def __setitem__(self, selection: Any, value: Any) -> None:
        self.write(selection, self.array._convert(value))


class _PointBuffer(OptionalNDBuffer):
    """The buffer for a selection of points, which zarr converts to a plain array at the end."""

    def as_ndarray_like(self) -> Any:
        return np.broadcast_to(np.uint8(0), self.shape)  # not the data: nulls would make it fail


def _points_of(
    selection: Any, shape: tuple[int, ...]
) -> tuple[tuple[np.ndarray[Any, Any], ...], tuple[int, ...]]:
    """The coordinates along every dimension, flat, and the shape of the result. zarr checks the bounds."""
    parts = selection if isinstance(selection, tuple) else (selection,)
    arrays = [np.asarray(part) for part in parts]
    if len(arrays) == 1 and arrays[0].dtype == np.bool_ and arrays[0].shape == shape:
        arrays = list(np.nonzero(arrays[0]))
    if len(arrays) != len(shape) or any(a.dtype.kind not in "iu" and a.size for a in arrays):
        raise IndexError(
            f"vindex takes {len(shape)} integer arrays, or one mask of shape {shape}, not {selection!r}"
        )
    coordinates = np.broadcast_arrays(*arrays)
    return tuple(part.reshape(-1) for part in coordinates), coordinates[0].shape


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
    codec_name: OptionalName = "optional",
    casting: Casting = "same_kind",
    attributes: Mapping[str, Any] | None = None,
    **options: Any,
) -> NullableArray:
    """Create an array with missing values in a store or a group; give `shape` and `dtype`, or `data`.

    `dtype` is the type of the values, or an optional data type; `depth` nests optionals. `compressors` apply
    to both the mask and the values; `mask_codecs` and `data_codecs` replace either chain as a whole.
    `filters` run before the two are split and leave nulls alone. `na_object` is stored as an attribute.
    `codec_name="zarrs.optional"` writes the name that zarrs reads. Data that `dtype` would change is
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
    attributes = dict(attributes or {})
    if data is not None:
        values_dtype = None if dtype is None else optional_dtype(dtype).element.dtype
        nullable = as_nullable(data, values_dtype, depth, casting=casting)
        if shape is not None and tuple(np.atleast_1d(shape)) != nullable.shape:
            raise ValueError(f"the data has shape {nullable.shape}, but the array should have shape {shape}")
        shape = nullable.shape
        if dtype is None:
            dtype = nullable.values.dtype if nullable.values.dtype != object else "variable_length_bytes"
        data_dtype = getattr(data, "dtype", None)
        if na_object is UNSET and is_string(data_dtype) and element_type(data_dtype) is None:
            na_object = getattr(data_dtype, "na_object", UNSET)
    if shape is None or dtype is None:
        raise DataTypeError("give shape and dtype, or data")
    data_type: Any
    if isinstance(dtype, NullDType) or dtype == "null":
        check_experimental("the data type 'null'")
        data_type = dtype if isinstance(dtype, NullDType) else NullDType()
        serializer: ArrayBytesCodec = BytesCodec(endian=None)
    else:
        data_type = optional_dtype(dtype, depth, name=codec_name)
        serializer = optional_codec(
            data_type, compressors=compressors, mask_codecs=mask_codecs, data_codecs=data_codecs
        )
    if na_object is not UNSET:
        check_na_object(na_object, data_type.element.dtype)
        attributes[ATTRIBUTE] = na_object_name(na_object)
    zarr_array = zarr.create_array(
        to_store(store),
        name=name,
        shape=shape,
        dtype=data_type,
        chunks=chunks,
        shards=shards,
        filters=_filters(filters),
        serializer=serializer,
        compressors=None,
        fill_value=fill_value,
        attributes=attributes,
        **options,
    )
    array = NullableArray(zarr_array)
    if nullable is not None:
        array[...] = nullable
    return array


def _filters(filters: Iterable[CodecLike]) -> list[ArrayArrayCodec]:
    parsed = parse_codecs([*filters, PackBitsCodec()])[:-1]  # refuses all but array -> array codecs
    return [on_present_values(codec) for codec in parsed]


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
    return NullableArray(zarr.open_array(to_store(store), path=path or "", **options), na_object=na_object)


def to_store(store: Any) -> Any:
    """What zarr opens for a store, a place in one, or a group."""
    return safe_store(store.store_path if isinstance(store, zarr.Group) else store)
