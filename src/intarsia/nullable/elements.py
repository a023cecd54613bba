"""An element of nullable data: a value or a null, as a scalar, in memory, and as a NumPy dtype.

Zarr keeps an array's fill value as a scalar. In a nullable array, that scalar may be a null, a value, or
(nested) a value that is itself a null: `NULL`, `Some(3)`, `Some(NULL)`.

zarr hands the dtype of an array, and nothing else, to the code that allocates its memory. So the dtype of
a nullable array is the plain dtype with a note on it, an `ElementType`: NumPy's dtype metadata, or the
`na_object` of a `StringDType`, which takes no metadata. The note changes nothing about the dtype otherwise.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

import numpy as np

from intarsia.errors import NullsPresentError

_KEY = "intarsia.nullable"

MAX_LEVELS = 255
"""The number of levels that fit into the `missing` byte of an element."""


class _Scalar:
    """What zarr asks of an element that it sets, so that `zarr_array[i] = NULL` works."""

    __slots__ = ()

    shape: ClassVar[tuple[()]] = ()
    """Present or not, it is a scalar; NumPy and zarr read its shape."""

    def astype(self, dtype: Any, **_options: object) -> Any:
        """A nullable scalar of `dtype`."""
        from intarsia.nullable.nullable_values import NullableValues

        element = element_type(np.dtype(dtype))
        if element is None:
            raise NullsPresentError(f"{self!r} cannot become {np.dtype(dtype)}: that type has no null")
        return NullableValues.full((), self, element)


class Null(_Scalar):
    """The type of `NULL`, which says that there is no value. It equals only itself and has no truth value.

    >>> NULL
    NULL
    >>> bool(NULL)
    Traceback (most recent call last):
    ...
    intarsia.errors.NullsPresentError: NULL is neither true nor false: compare with `x is NULL`
    """

    __slots__ = ()
    _instance: Self | None = None

    def __new__(cls) -> Self:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "NULL"

    def __bool__(self) -> bool:
        raise NullsPresentError("NULL is neither true nor false: compare with `x is NULL`")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise NullsPresentError("no number stands for NULL: test `x is NULL` before computing")

    def __reduce__(self) -> tuple[type["Null"], tuple[()]]:
        return (Null, ())


NULL: Final = Null()
"""The one instance of `Null`."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Some(_Scalar):
    """A value that is present, or a null one level further in.

    Two are equal when their values are the same to the bit, so that a NaN equals itself and -0.0
    differs from 0.0.

    >>> Some(3), Some(NULL)
    (Some(3), Some(NULL))
    >>> Some(float("nan")) == Some(float("nan")), Some(0.0) == Some(-0.0)
    (True, False)
    """

    value: Any
    """What is there: a scalar of the inner data type, `NULL`, or another `Some`."""

    def __repr__(self) -> str:
        return f"Some({self.value!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Some) and _key(self.value) == _key(other.value)

    def __hash__(self) -> int:
        return hash((Some, _key(self.value)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.value, dtype=dtype)


def _key(value: Any) -> object:
    """A key that equal scalars of NumPy and Python share; floats are compared by their bits."""
    if isinstance(value, float | complex | np.inexact):
        return np.asarray(value, dtype=np.complex128).tobytes()
    if isinstance(value, np.datetime64 | np.timedelta64):
        return (value.dtype.str, value.tobytes())
    return value.item() if isinstance(value, np.generic) else value


def unwrap(scalar: Any, depth: int) -> tuple[Any, int]:
    """(value, missing) of a scalar in data of `depth`; the value is None if there is none.

    >>> unwrap(NULL, 2), unwrap(Some(NULL), 2), unwrap(Some(Some(7)), 2), unwrap(7, 2)
    ((None, 2), (None, 1), (7, 0), (7, 0))
    """
    level = depth
    while isinstance(scalar, Some) and level > 0:
        scalar, level = scalar.value, level - 1
    if scalar is NULL or scalar is None or scalar is np.ma.masked:
        if level == 0:
            raise NullsPresentError(f"a null within {depth} level(s) of Some does not fit data of that depth")
        return None, level
    return scalar, 0


def to_scalar(value: Any, missing: int, depth: int) -> Any:
    """The scalar that a user sees: the bare value if it is present, else the null of its level.

    >>> to_scalar(7, 0, 2), to_scalar(7, 1, 2), to_scalar(7, 2, 2)
    (7, Some(NULL), NULL)
    """
    if missing == 0:
        return value
    scalar: Any = NULL
    for _ in range(depth - missing):
        scalar = Some(scalar)
    return scalar


@dataclass(frozen=True, slots=True)
class ElementType:
    """Values of `dtype`, each with a `missing` byte.

    >>> element_type(tag_dtype(np.dtype("float32"), 2))
    ElementType(dtype=dtype('float32'), depth=2)
    """

    dtype: np.dtype[Any]
    """The plain NumPy dtype of the values."""

    depth: int
    """The number of levels of null; `missing` counts them from the inside."""


def is_string(dtype: np.dtype[Any] | None) -> bool:
    """Whether `dtype` is NumPy's variable-width string."""
    return isinstance(dtype, np.dtypes.StringDType)


@lru_cache(maxsize=256)
def _tag_dtype(dtype: np.dtype[Any], depth: int, text: str) -> np.dtype[Any]:
    element = ElementType(dtype, depth)
    if is_string(dtype):
        # Without coerce=False a list with None in it would become the string "None".
        return np.dtypes.StringDType(na_object=element, coerce=False)
    return np.dtype(dtype, metadata={_KEY: element})


def tag_dtype(dtype: np.dtype[Any], depth: int) -> np.dtype[Any]:
    """`dtype` with the note that it is the value part of nullable data."""
    # Equal dtypes need not be identical (byte order of one byte, h5py's metadata), hence the text.
    return _tag_dtype(dtype, depth, dtype.str)


def element_type(dtype: Any) -> ElementType | None:
    """The note on `dtype`, or None for a plain dtype."""
    if isinstance(dtype, np.dtype):
        metadata = dtype.metadata
        if metadata is not None:
            return metadata.get(_KEY)
        if dtype.kind == "T":  # a string; the quick way, as this is called for every zarr array
            note = getattr(dtype, "na_object", None)
            return note if isinstance(note, ElementType) else None
    return None


def placeholder(dtype: np.dtype[Any]) -> Any:
    """What lies in memory beneath a null: NaN or NaT if the dtype has one, so that misuse shows."""
    if dtype.kind in "fc":
        return np.nan
    if dtype.kind in "mM":
        return np.array("NaT", dtype=dtype)[()]
    if dtype.kind == "O":
        return b""
    return "" if dtype.kind in "UT" else np.zeros((), dtype=dtype)[()]


def scatter(present_values: np.ndarray[Any, Any], present: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array with these values at the places where `present` is true.

    >>> scatter(np.array([1.5]), np.array([False, True]))
    array([nan, 1.5])
    """
    values = np.empty(present.shape, dtype=present_values.dtype)
    values[...] = placeholder(values.dtype)
    values[present] = present_values
    return values
