"""`NullableValues`: an array with nulls in memory, as values with a `missing` byte each.

Plain zarr reads a nullable array as this. It never turns a null into a number by itself: `np.asarray`
raises if there is one, and says what to call instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from intarsia.casting import Casting, cast
from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import elements

if TYPE_CHECKING:
    from intarsia.nullable.computing import Axis, Reduction

type Array = np.ndarray[Any, Any]
type Order = Literal["K", "A", "C", "F"]

_NO_BYTES = (
    "nullable data cannot be seen as bytes, which would lose the nulls: encode it with the codec 'optional'"
)

_SHOWN = 10
"""The most elements per dimension that `repr` shows; of a longer one, it shows both ends."""

_DIGITS = 8
"""Digits of a long float in `repr`, as in NumPy."""


class NullableValues(NDArrayOperatorsMixin):
    """Values, and a byte for each that says whether it is missing: 0 if present, k if null at level k.

    Levels count from the inside. With one level of null, conversion from and to a NumPy masked array
    shares the memory.

    >>> x = NullableValues(np.array([1.5, 2.5]), np.array([0, 1], dtype="uint8"))
    >>> x
    NullableValues([1.5, NULL], dtype=float64)
    >>> print(x.masked())
    [1.5 --]
    >>> np.asarray(x)
    Traceback (most recent call last):
    ...
    intarsia.errors.NullsPresentError: 1 of 2 elements are null...

    It computes as Arrow does:

    >>> from intarsia.nullable import as_nullable
    >>> x = as_nullable([1, None, 3])
    >>> x * 2 + 1
    NullableValues([3, NULL, 7], dtype=int64)
    >>> (x > 1) | [True, True, False]
    NullableValues([True, True, True], dtype=bool)
    >>> x.sum(), x.sum(skipna=False)
    (NullableValues(4, dtype=int64), NullableValues(NULL, dtype=int64))
    >>> np.concatenate([x, [5]])
    NullableValues([1, NULL, 3, 5], dtype=int64)
    >>> np.where(x > 1, x, None)
    NullableValues([NULL, NULL, 3], dtype=int64)
    """

    __array_priority__ = 100  # dask asks it which of two arrays knows how to concatenate or divide them
    __slots__ = ("depth", "missing", "values")

    values: Array
    """The values. Beneath a null, anything may lie here (NaN or NaT after a read)."""

    missing: np.ndarray[Any, np.dtype[np.uint8]]
    """0 where a value is present; k where it is null, k levels from the inside."""

    depth: int
    """The number of levels of null: 1, unless data types are nested."""

    __hash__ = None  # type: ignore[assignment]  # compared element by element, as NumPy arrays are

    def __init__(self, values: Any, missing: Any = None, depth: int = 1) -> None:
        if not 1 <= depth <= elements.MAX_LEVELS:
            raise DataTypeError(f"depth {depth}: there must be 1 to {elements.MAX_LEVELS} levels of null")
        self.values = values if isinstance(values, np.ndarray) else np.asarray(values)
        element = elements.element_type(self.values.dtype)
        if element is not None:
            # NumPy has no view of strings; no element is the note itself, so none is null.
            plain = self.values.astype if elements.is_string(element.dtype) else self.values.view
            self.values = plain(element.dtype)
        missing = np.zeros(self.values.shape, dtype=np.uint8) if missing is None else np.asarray(missing)
        if missing.dtype == np.bool_:
            missing = missing.view(np.uint8)
        if missing.dtype != np.uint8 or missing.shape != self.values.shape:
            raise DataTypeError(
                f"missing must be uint8 or bool of shape {self.values.shape}, "
                f"not {missing.dtype} of shape {missing.shape}"
            )
        self.missing = missing
        self.depth = depth

    # -- construction

    @classmethod
    def empty(
        cls, shape: tuple[int, ...], element: elements.ElementType, order: Literal["C", "F"] = "C"
    ) -> Self:
        """Uninitialised memory of `shape`."""
        values: Array = np.empty(shape, dtype=element.dtype, order=order)
        if element.dtype.kind in "mM":
            values = values.view(element.dtype)  # allocation drops the scale of a generic time unit
        return cls(values, np.empty(shape, dtype=np.uint8, order=order), element.depth)

    @classmethod
    def full(
        cls,
        shape: tuple[int, ...],
        scalar: Any,
        element: elements.ElementType,
        order: Literal["C", "F"] = "C",
    ) -> Self:
        """An array with every element set to `scalar`: `NULL`, `Some(…)` or a bare value."""
        array = cls.empty(shape, element, order)
        array.fill(scalar)
        return array

    @classmethod
    def of(cls, array: Any, depth: int = 1) -> NullableValues:
        """A NumPy array, without a copy: masked, plain, or of strings with an `na_object`.

        >>> NullableValues.of(np.ma.masked_equal([1, 2], 2))
        NullableValues([1, NULL], dtype=int64)
        """
        if isinstance(array, NullableValues):
            return array.at_depth(depth)
        array = array if isinstance(array, np.ndarray) else np.asarray(array)
        if isinstance(array, np.ma.MaskedArray):
            mask = None if array.mask is np.ma.nomask else np.asarray(array.mask)
            if mask is not None and mask.dtype != np.bool_:
                mask = _mask_of_structs(mask)
            plain = cls.of(array.data)  # whose strings may have nulls of their own
            if mask is not None:
                plain = cls(plain.values, plain.isnull() | mask if plain.null_count else mask)
            return plain.at_depth(depth)
        if elements.is_string(array.dtype) and hasattr(array.dtype, "na_object"):
            from intarsia.nullable.representation import from_strings

            return from_strings(array).at_depth(depth)
        return cls(array, None, depth)

    def at_depth(self, depth: int) -> NullableValues:
        """The same data with `depth` levels of null; which level a null goes to must be clear."""
        if depth == self.depth:
            return self
        if self.null_count:
            raise DataTypeError(
                f"nulls of {self.depth} level(s) do not say which of {depth} levels they are at.\n"
                "  Give NullableValues(values, missing, depth) with the levels, or call collapse() first"
            )
        return NullableValues(self.values, self.missing, depth)

    def collapse(self) -> NullableValues:
        """All levels of null as one.

        >>> NullableValues(np.arange(3), np.array([0, 1, 2], dtype="u1"), 2).collapse()
        NullableValues([0, NULL, NULL], dtype=int64)
        """
        return self if self.depth == 1 else NullableValues(self.values, self.missing != 0)

    # -- properties, comparison and text

    @property
    def element(self) -> elements.ElementType:
        """The plain dtype and the depth."""
        return elements.ElementType(self.values.dtype, self.depth)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values, with a note that they are nullable."""
        return elements.tag_dtype(self.values.dtype, self.depth)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.values.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.values.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.values.size

    # Without these three, zarr does not take it for an array when it writes single points.

    @property
    def itemsize(self) -> int:
        """The bytes of one value and its `missing`."""
        return self.values.itemsize + 1

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides of the values."""
        return self.values.strides

    @property
    def flags(self) -> Any:
        """The flags of the values."""
        return self.values.flags

    @property
    def nbytes(self) -> int:
        """The bytes of all values and of `missing`."""
        return self.values.nbytes + self.missing.nbytes

    @property
    def null_count(self) -> int:
        """The number of elements that are null at any level."""
        return int(np.count_nonzero(self.missing))

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return (part if part.ndim else part.item() for part in (self[i] for i in range(len(self))))

    def __repr__(self) -> str:
        half = _SHOWN // 2  # of a long axis, both ends, and an element between them that NumPy shows as dots
        axes = [[*range(n)] if n <= _SHOWN else [*range(half + 1), *range(n - half, n)] for n in self.shape]
        shown, rest = self[np.ix_(*axes)], f", dtype={self.values.dtype})"
        texts = np.empty(shown.shape, dtype=object)
        texts.flat = [
            _text_of(elements.to_scalar(value, int(missing), self.depth))
            for value, missing in zip(shown.values.flat, shown.missing.flat, strict=True)
        ]
        text = np.array2string(
            texts,
            separator=", ",
            prefix="NullableValues(",
            suffix=rest,
            formatter={"all": str},
            threshold=texts.size if texts.shape == self.shape else 0,
            edgeitems=half,
        )
        return f"NullableValues({text}{rest}"

    def equals(self, other: NullableValues) -> bool:
        """Whether both have the same shape, levels of null, and present values to the bit.

        >>> x = NullableValues(np.array([np.nan, 1.0]), np.array([False, True]))
        >>> x.equals(NullableValues(np.array([np.nan, 2.0]), np.array([False, True])))
        True
        """
        if self.shape != other.shape or not np.array_equal(self.missing, other.missing):
            return False
        present = self.missing == 0
        left, right = self.values[present], other.values[present]
        if left.dtype != right.dtype or left.dtype.kind in "OT":
            return bool(np.array_equal(left, right))
        return bool(left.tobytes() == right.tobytes())

    def item(self) -> Any:
        """The only element: its value, or the null that it is.

        >>> NullableValues(np.array([5]), np.array([True])).item()
        NULL
        """
        if self.size != 1:
            raise ValueError(f"item() needs exactly one element; there are {self.size}")
        value = self.values.reshape(-1)[0]
        return elements.to_scalar(value, int(self.missing.reshape(-1)[0]), self.depth)

    def tolist(self) -> Any:
        """Nested lists with None for every null. With several levels, a null further in is `[None]`.

        >>> NullableValues(np.arange(3), np.array([0, 1, 2], dtype="u1"), 2).tolist()
        [0, [None], None]
        """
        objects = np.empty(self.size, dtype=object)
        pairs = zip(self.values.reshape(-1).tolist(), self.missing.reshape(-1).tolist(), strict=True)
        for i, (value, missing) in enumerate(pairs):
            objects[i] = value if missing == 0 else None
            for _ in range(self.depth - missing if missing else 0):
                objects[i] = [objects[i]]
        return objects.reshape(self.shape).tolist()

    # -- conversion to NumPy

    def masked(self, *, collapse: bool = False) -> np.ma.MaskedArray[Any, Any]:
        """A NumPy masked array that shares this memory. With `collapse`, nested levels become one."""
        if not collapse:
            check_one_level(self.depth, "a masked array")
        return np.ma.MaskedArray(self.values, mask=self.isnull())

    def filled(self, value: Any) -> Array:
        """A plain array with `value` in place of every null.

        >>> NullableValues(np.arange(2), np.array([False, True])).filled(-1)
        array([ 0, -1])
        """
        out = self.values.copy()
        fill = self._convert(value)
        if fill.null_count:
            raise NullsPresentError(f"{value!r} is null where a value is needed")
        out[self.isnull()] = fill.values
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if count := self.null_count:
            raise NullsPresentError(
                f"{count} of {self.size} elements are null, but a plain array has no nulls.\n"
                "  Call .masked() for a masked array, as nullable.open_array reads, or .filled(value) for a "
                "plain one. A codec that needs plain values belongs among the data_codecs of 'optional'"
            )
        return np.array(self.values, dtype=dtype, copy=copy)

    # -- what zarr needs from an array

    def __getitem__(self, key: Any) -> NullableValues:
        if isinstance(key, str):  # a field of structs, null where the struct is
            return NullableValues(self.values[key], self.isnull())
        key = _as_view(key)
        return NullableValues(self.values[key], self.missing[key], self.depth)

    def __setitem__(self, key: Any, value: Any) -> None:
        data = self._convert(value)
        self.values[key] = data.values
        self.missing[key] = data.missing

    def _convert(self, value: Any) -> NullableValues:
        """`value` in the dtype and the depth of this data; one that would change is refused."""
        from intarsia.nullable.conversions import as_nullable

        return as_nullable(value, self.values.dtype, self.depth)

    def fill(self, value: Any) -> None:
        """Set every element to `value`."""
        self[...] = value

    def copy(self) -> NullableValues:
        """An independent copy."""
        return NullableValues(self.values.copy(), self.missing.copy(), self.depth)

    def reshape(self, *shape: Any, **options: Any) -> NullableValues:
        """The same elements in another `shape`, as in NumPy."""
        values, missing = self.values.reshape(*shape, **options), self.missing.reshape(*shape, **options)
        return NullableValues(values, missing, self.depth)

    def ravel(self, order: Order = "C") -> NullableValues:
        """The elements in one dimension, as in NumPy."""
        return NullableValues(self.values.ravel(order), self.missing.ravel(order), self.depth)

    def transpose(self, axes: Any = None) -> NullableValues:
        """The elements with permuted axes, as in NumPy."""
        return NullableValues(self.values.transpose(axes), self.missing.transpose(axes), self.depth)

    def astype(
        self, dtype: Any, order: Order = "K", *, copy: bool = True, casting: Casting | None = None
    ) -> NullableValues:
        """The present values converted to `dtype`, as in NumPy; nulls keep their level.

        With `casting="same_kind"`, values that would change are refused. This is the default for the dtype
        of nullable data (`z.dtype`), which zarr passes before it writes.

        >>> NullableValues(np.array([1.0, np.nan]), np.array([False, True])).astype("int8")
        NullableValues([1, NULL], dtype=int8)
        """
        dtype = np.dtype(dtype)
        element = elements.element_type(dtype)
        casting = casting or ("unsafe" if element is None else "same_kind")
        element = element or elements.ElementType(dtype, self.depth)
        source = self.at_depth(element.depth)
        if source.values.dtype == element.dtype:
            return source.copy() if copy else source
        values: Array
        if source.null_count == 0:
            values = cast(source.values, element.dtype, casting=casting)
        else:
            # What lies beneath a null need not be convertible, so only present values are converted.
            present = source.missing == 0
            converted = cast(source.values[present], element.dtype, casting=casting)
            values = elements.scatter(converted, present)
        return NullableValues(values, source.missing.copy() if copy else source.missing, element.depth)

    def view(self, dtype: Any = None) -> NullableValues:
        """Refused: the bytes of the values say nothing about the nulls."""
        raise DataTypeError(_NO_BYTES)

    def tobytes(self, order: Order | None = "C") -> bytes:
        """Refused, like `view`; numcodecs expects it of anything that passes for an array."""
        raise DataTypeError(_NO_BYTES)

    # -- NumPy's protocols: see computing.py, which imports this module

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        from intarsia.nullable.computing import apply_ufunc

        return apply_ufunc(ufunc, method, inputs, out, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        from intarsia.nullable.computing import apply_function

        return apply_function(function, args, options)

    def _reduce(self, name: str, axis: Axis, **options: Any) -> NullableValues:
        from intarsia.nullable.computing import reduce

        return reduce(self, name, axis, **options)

    def __bool__(self) -> bool:
        if self.size == 1:
            return bool(self.item())
        raise ValueError(f"the truth value of {self.size} elements is ambiguous: use any() or all()")

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __reduce__(self) -> tuple[Any, ...]:
        _register_with_dask()
        return _unpickle, (self.values, self.missing, self.depth)

    # -- nulls

    def isnull(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """True where an element is null at any level, as a plain array.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([1, None]).isnull()
        array([False,  True])
        """
        return self.missing.view(np.bool_) if self.depth == 1 else self.missing != 0

    def fillna(self, value: Any) -> NullableValues:
        """Replace every null by `value`: one for all, or an array with one for each, which may be null again.

        A value that the data type cannot hold is refused. `filled` gives a plain array.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([1, None, None]).fillna([7, 8, None])
        NullableValues([1, 8, NULL], dtype=int64)
        """
        check_one_level(self.depth)
        result, null = self.copy(), self.isnull()
        fill = self._convert(value)
        result.values[null] = np.broadcast_to(fill.values, self.shape)[null]
        result.missing[null] = np.broadcast_to(fill.missing, self.shape)[null]
        return result

    def dropna(self) -> NullableValues:
        """The present elements, in one dimension.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([[1, None], [None, 4]]).dropna()
        NullableValues([1, 4], dtype=int64)
        """
        return NullableValues(self.values[~self.isnull()])

    # -- reductions

    def count(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """The number of present elements, as a plain number or array.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([[1, None], [3, 4]]).count(axis=0).tolist()
        [2, 1]
        """
        return np.count_nonzero(~self.isnull(), axis=axis, keepdims=keepdims)

    def sum(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """The sum of the present elements; null if there are none.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([[1, None], [3, None]]).sum(axis=0)
        NullableValues([4, NULL], dtype=int64)
        """
        return self._reduce("sum", axis, **options)

    def prod(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """The product of the present elements; null if there are none.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([2, None, 3]).prod()
        NullableValues(6, dtype=int64)
        """
        return self._reduce("prod", axis, **options)

    def mean(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """The mean of the present elements; null if there are none.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([1, None, 4]).mean()
        NullableValues(2.5, dtype=float64)
        """
        return self._reduce("mean", axis, **options)

    def var(self, axis: Axis = None, *, ddof: int = 0, **options: Unpack[Reduction]) -> NullableValues:
        """The variance of the present elements; null unless there are more than `ddof`.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([1, None, 3]).var(), as_nullable([1, None]).var(ddof=1)
        (NullableValues(1.0, dtype=float64), NullableValues(NULL, dtype=float64))
        """
        return self._reduce("var", axis, ddof=ddof, **options)

    def std(self, axis: Axis = None, *, ddof: int = 0, **options: Unpack[Reduction]) -> NullableValues:
        """The standard deviation of the present elements; null unless there are more than `ddof`.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([1, None, 3]).std()
        NullableValues(1.0, dtype=float64)
        """
        return self._reduce("std", axis, ddof=ddof, **options)

    def min(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """The smallest present element; NaN only if all of them are NaN, as in Arrow.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([np.nan, None, 3.0]).min()
        NullableValues(3.0, dtype=float64)
        """
        return self._reduce("min", axis, **options)

    def max(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """The largest present element; NaN only if all of them are NaN, as in Arrow.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([[1, None], [None, None]]).max(axis=1)
        NullableValues([1, NULL], dtype=int64)
        """
        return self._reduce("max", axis, **options)

    def any(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """Whether any present element is true. With `skipna=False`, a null that could decide makes it null.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([True, None]).any(skipna=False), as_nullable([False, None]).any(skipna=False)
        (NullableValues(True, dtype=bool), NullableValues(NULL, dtype=bool))
        """
        return self._reduce("any", axis, **options)

    def all(self, axis: Axis = None, **options: Unpack[Reduction]) -> Any:  # zarr asks for a bool
        """Whether all present elements are true. With `skipna=False`, a null that could decide makes it null.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([True, None]).all(), as_nullable([True, None]).all(skipna=False)
        (NullableValues(True, dtype=bool), NullableValues(NULL, dtype=bool))
        """
        return self._reduce("all", axis, **options)


def _text_of(scalar: Any) -> str:
    text = str(scalar.item()) if isinstance(scalar, np.generic) else repr(scalar)
    is_long = isinstance(scalar, np.floating) and len(text) > _DIGITS + 2
    return f"{scalar:.{_DIGITS}g}" if is_long else text


def _unpickle(values: Any, missing: Any, depth: int) -> NullableValues:
    _register_with_dask()
    return NullableValues(values, missing, depth)


def _register_with_dask() -> None:
    """Tell dask how to count elements, before it computes with this type here or in a worker."""
    if "dask" in sys.modules:
        from intarsia.nullable.dask_blocks import register_with_dask

        register_with_dask()


def check_one_level(depth: int, what: str = "computing") -> None:
    """Refuse several levels of null for what knows one kind of null."""
    if depth > 1:
        raise DataTypeError(
            f"{what} knows one kind of null, but this data has {depth}: give up the difference with "
            "collapse() first"
        )


def _mask_of_structs(mask: Array) -> Array:
    """True where a whole struct is masked, from NumPy's mask, which has a bool for each field."""
    flat = mask.view(np.bool_).reshape(*mask.shape, -1)
    masked: Array = flat.all(axis=-1)
    if (flat.any(axis=-1) != masked).any():
        raise DataTypeError(
            "some fields of a struct are masked and others are not, but a struct is null as a whole: "
            "store each field as an array of its own, or fill the masked fields first"
        )
    return masked


def _as_view(key: Any) -> Any:
    """`key`, changed so that NumPy gives an array even for a single element."""
    if isinstance(key, tuple):
        return key if any(part is Ellipsis for part in key) else (*key, Ellipsis)
    if isinstance(key, int | np.integer | slice):
        return (key, Ellipsis)
    return key
