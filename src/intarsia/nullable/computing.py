"""Computing with nulls: operators, ufuncs, reductions and a few NumPy functions, for `NullableValues`.

The answers are Arrow's. A null in gives a null out; `&` and `|` of bools know three values (null & False is
False); a null condition chooses nothing. Reductions skip nulls; if nothing is present, even a sum is null.

Anything may lie beneath a null, so NumPy's warnings and errors about it are not passed on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from intarsia._compat import numpys_own
from intarsia.nullable.elements import beneath, spread
from intarsia.nullable.reductions import Axis, Reduction, only_level, reduced

if TYPE_CHECKING:
    from intarsia.nullable.values import NullableValues

type Array = np.ndarray[Any, Any]

_KLEENE = {np.bitwise_and: False, np.logical_and: False, np.bitwise_or: True, np.logical_or: True}
"""Three-valued logic: the value of one operand that decides the result regardless of the other."""

_SCALARS = (bool, int, float, complex, str, bytes, np.generic)
"""Passed to NumPy as they are, so that they adapt to the array's data type: int8 + 1 stays int8."""


class Computing(NDArrayOperatorsMixin):
    """What `NullableValues` compute.

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

    __slots__ = ()
    __array_priority__ = 100  # dask asks it which of two arrays knows how to join or divide them

    if TYPE_CHECKING:
        values: Array
        missing: np.ndarray[Any, np.dtype[np.uint8]]
        depth: int

        @property
        def shape(self) -> tuple[int, ...]: ...
        def is_null(self) -> np.ndarray[Any, np.dtype[np.bool_]]: ...
        def item(self) -> Any: ...

    # -- NumPy's protocols

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        if method != "__call__" or ufunc.signature is not None or "where" in options:
            named = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            raise TypeError(
                f"{named} has no rule for nulls, which would affect other elements.\n"
                "  Reductions are methods, such as x.sum(). Otherwise remove the nulls with fillna or dropna"
            )
        if any(hasattr(value, "to_dask") for value in inputs):
            return NotImplemented  # stored arrays compute lazily
        if any(hasattr(value, "__dask_graph__") for value in inputs):
            from intarsia.nullable.dask_blocks import to_dask

            return ufunc(*(to_dask(v) if isinstance(v, Computing) else v for v in inputs), **options)
        operands = _operands(inputs)
        if ufunc in _KLEENE and all(map(_is_bool, operands)):
            results: Any = _kleene(operands, _KLEENE[ufunc])
        elif ufunc in (np.logical_and, np.logical_or):
            truths = [_elementwise(np.not_equal, (operand, 0), {}) for operand in operands]
            results = _kleene(truths, _KLEENE[ufunc])
        else:
            results = _elementwise(ufunc, operands, options)
        if out is None or all(target is None for target in out):
            return results
        if len(out) != 1:
            raise TypeError(f"{ufunc.__name__} has {len(out)} results, but out= takes one")
        out[0][...] = results
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        # Other functions treat this as any object: they call a method, or np.asarray, which refuses nulls.
        return (_FUNCTIONS.get(function) or numpys_own(function))(*args, **options)

    def __bool__(self) -> bool:
        if self.values.size == 1:
            return bool(self.item())
        raise ValueError(f"the truth value of {self.values.size} elements is ambiguous: use any() or all()")

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __reduce__(self) -> tuple[Any, ...]:
        _meet_dask()
        return _restored, (self.values, self.missing, self.depth)

    # -- nulls

    def isnull(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """True where an element is null, as a plain array: `is_null` under the name that pandas uses.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([1, None]).isnull()
        array([False,  True])
        """
        return self.is_null()

    def fillna(self, value: Any) -> NullableValues:
        """Replace every null by `value`: one for all, or an array with one for each, which may be null again.

        A value that the data type cannot hold is refused. `filled` gives a plain array.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([1, None, None]).fillna([7, 8, None])
        NullableValues([1, 8, NULL], dtype=int64)
        """
        from intarsia.nullable.conversions import as_nullable

        filled = only_level(self).copy()
        null = self.is_null()
        given = as_nullable(value, self.values.dtype)
        filled.values[null] = np.broadcast_to(given.values, self.shape)[null]
        filled.missing[null] = np.broadcast_to(given.missing, self.shape)[null]
        return filled

    def dropna(self) -> NullableValues:
        """The present elements, in one dimension.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([[1, None], [None, 4]]).dropna()
        NullableValues([1, 4], dtype=int64)
        """
        return _new(self.values[~self.is_null()])

    # -- reductions

    def count(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """The number of present elements, as a plain number or array.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([[1, None], [3, 4]]).count(axis=0).tolist()
        [2, 1]
        """
        return np.count_nonzero(~self.is_null(), axis=axis, keepdims=keepdims)

    def sum(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """The sum of the present elements; null if there are none.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([[1, None], [3, None]]).sum(axis=0)
        NullableValues([4, NULL], dtype=int64)
        """
        return reduced(self, "sum", axis, **options)

    def prod(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """The product of the present elements; null if there are none.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([2, None, 3]).prod()
        NullableValues(6, dtype=int64)
        """
        return reduced(self, "prod", axis, **options)

    def mean(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """The mean of the present elements; null if there are none.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([1, None, 4]).mean()
        NullableValues(2.5, dtype=float64)
        """
        return reduced(self, "mean", axis, **options)

    def var(self, axis: Axis = None, *, ddof: int = 0, **options: Unpack[Reduction]) -> NullableValues:
        """The variance of the present elements; null unless there are more than `ddof`.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([1, None, 3]).var(), as_nullable([1, None]).var(ddof=1)
        (NullableValues(1.0, dtype=float64), NullableValues(NULL, dtype=float64))
        """
        return reduced(self, "var", axis, ddof=ddof, **options)

    def std(self, axis: Axis = None, *, ddof: int = 0, **options: Unpack[Reduction]) -> NullableValues:
        """The standard deviation of the present elements; null unless there are more than `ddof`.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([1, None, 3]).std()
        NullableValues(1.0, dtype=float64)
        """
        return reduced(self, "std", axis, ddof=ddof, **options)

    def min(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """The smallest present element; NaN only if all of them are NaN, as in Arrow.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([np.nan, None, 3.0]).min()
        NullableValues(3.0, dtype=float64)
        """
        return reduced(self, "min", axis, **options)

    def max(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """The largest present element; NaN only if all of them are NaN, as in Arrow.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([[1, None], [None, None]]).max(axis=1)
        NullableValues([1, NULL], dtype=int64)
        """
        return reduced(self, "max", axis, **options)

    def any(self, axis: Axis = None, **options: Unpack[Reduction]) -> NullableValues:
        """Whether any present element is true. With `skipna=False`, a null that could decide makes it null.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([True, None]).any(skipna=False), as_nullable([False, None]).any(skipna=False)
        (NullableValues(True, dtype=bool), NullableValues(NULL, dtype=bool))
        """
        return reduced(self, "any", axis, **options)

    def all(self, axis: Axis = None, **options: Unpack[Reduction]) -> Any:  # zarr asks for a bool
        """Whether all present elements are true. With `skipna=False`, a null that could decide makes it null.

        >>> from intarsia.nullable import as_nullable
        >>> as_nullable([True, None]).all(), as_nullable([True, None]).all(skipna=False)
        (NullableValues(True, dtype=bool), NullableValues(NULL, dtype=bool))
        """
        return reduced(self, "all", axis, **options)


def _new(values: Any, missing: Any = None) -> NullableValues:
    from intarsia.nullable.values import NullableValues

    return NullableValues(values, missing)


def _restored(values: Any, missing: Any, depth: int) -> NullableValues:
    from intarsia.nullable.values import NullableValues

    _meet_dask()
    return NullableValues(values, missing, depth)


def _meet_dask() -> None:
    """Teach dask how to count elements, before it computes with this type here or in a worker."""
    if "dask" in sys.modules:
        from intarsia.nullable.dask_blocks import teach_dask

        teach_dask()


# -- element by element


def _operands(inputs: Sequence[Any]) -> list[Any]:
    """Nullable data, and scalars as they are. A bare null takes the data type of its first companion."""
    from intarsia.nullable.conversions import as_nullable, is_null_type

    null = [is_null_type(type(value)) for value in inputs]
    operands = [
        value if alone or isinstance(value, _SCALARS) else only_level(as_nullable(value, depth=_depth(value)))
        for value, alone in zip(inputs, null, strict=True)
    ]
    companion = next((o for o, alone in zip(operands, null, strict=True) if not alone), False)
    dtype = companion.values.dtype if isinstance(companion, Computing) else np.asarray(companion).dtype
    nothing = _new(np.full((), beneath(dtype), dtype), np.True_)
    return [nothing if alone else operand for operand, alone in zip(operands, null, strict=True)]


def _depth(value: Any) -> int:
    return value.depth if isinstance(value, Computing) else 1


def _elementwise(ufunc: Callable[..., Any], operands: Sequence[Any], options: Any) -> Any:
    """The result of `ufunc` for elements that are present in all operands."""
    nullable = [operand for operand in operands if isinstance(operand, Computing)]
    shape = np.broadcast_shapes(*(operand.shape for operand in nullable))
    null = np.zeros(shape, dtype=np.bool_)
    for operand in nullable:
        null |= operand.is_null()
    if not null.any():
        results = ufunc(*map(_values, operands), **options)
    else:
        results = _at_once(ufunc, operands, options)
        if results is None:
            present = ~null
            parts = [
                np.broadcast_to(o.values, shape)[present] if isinstance(o, Computing) else o for o in operands
            ]
            found = ufunc(*parts, **options)
            several = isinstance(found, tuple)
            results = tuple(spread(part, present) for part in found) if several else spread(found, present)
    if isinstance(results, tuple):
        return tuple(_new(result, null.copy()) for result in results)
    return _new(results, null)


def _at_once(ufunc: Callable[..., Any], operands: Sequence[Any], options: Any) -> Any:
    """The result of `ufunc` for everything, or None if it complains: perhaps about what lies beneath nulls.

    Taking the present elements out and putting them back takes far longer than computing.
    """
    if not all(np.asarray(_values(operand)).dtype.kind in "biufcmM" for operand in operands):
        return None
    complaints: Any = {of: mode if mode == "ignore" else "raise" for of, mode in np.geterr().items()}
    try:
        with np.errstate(**complaints):
            return ufunc(*map(_values, operands), **options)
    except Exception:  # raised again if it is about present elements
        return None


def _values(operand: Any) -> Any:
    return operand.values if isinstance(operand, Computing) else operand


def _is_bool(operand: Any) -> bool:
    if isinstance(operand, Computing):
        return bool(operand.values.dtype == np.bool_)
    return isinstance(operand, bool | np.bool_)


def _kleene(operands: Sequence[Any], decisive: bool) -> NullableValues:
    """`and` (False decides) or `or` (True decides): decided by one operand, else null if there is a null."""
    null: Any = np.False_
    decided: Any = np.False_
    for operand in operands:
        unknown = operand.is_null() if isinstance(operand, Computing) else np.False_
        values = operand.values if isinstance(operand, Computing) else np.bool_(operand)
        null = null | unknown
        decided = decided | (~unknown & (values if decisive else ~values))
    return _new(decided if decisive else ~decided, null & ~decided)


# -- NumPy functions that ask for an implementation


def _data(value: Any) -> Any:
    return value if isinstance(value, Computing) else _new(np.asarray(value))


def _joined(function: Callable[..., Any]) -> Callable[..., NullableValues]:
    def join(arrays: Any, axis: Any = 0, *, dtype: Any = None, casting: Any = "same_kind") -> NullableValues:
        parts = list(map(_data, _operands(arrays)))
        values = function([part.values for part in parts], axis, dtype=dtype, casting=casting)
        return _new(values, function([part.missing for part in parts], axis))

    return join


def _where(condition: Any, *choices: Any) -> Any:
    if not choices:
        return np.where(np.asarray(condition))
    (condition,) = map(_data, _operands([condition]))
    choices = tuple(_operands(choices))
    plain = [choice.values if isinstance(choice, Computing) else choice for choice in choices]
    null = [choice.is_null() if isinstance(choice, Computing) else False for choice in choices]
    chosen = condition.values.astype(np.bool_, copy=False)
    values = np.where(chosen, *plain)
    missing = condition.is_null() | np.where(chosen, *null)
    return _new(values, np.broadcast_to(missing, values.shape).copy())


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.concatenate: _joined(np.concatenate),
    np.stack: _joined(np.stack),
    np.where: _where,
}
