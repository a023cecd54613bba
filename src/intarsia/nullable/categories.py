"""Categories: arrays of codes, or null where there is no category. An attribute says what they stand for.

pandas calls this categorical, Arrow a dictionary, and Polars Categorical or Enum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from intarsia.errors import DataTypeError
from intarsia.extras import extra
from intarsia.nullable.values import NullableValues

if TYPE_CHECKING:
    import pandas
    import polars

ATTRIBUTE: Final = "categories"
"""The attribute of an array of codes: `{"values": […], "ordered": false}`."""


def is_categorical(data: Any) -> bool:
    """Whether `data` is categorical data of pandas, Arrow or Polars."""
    library = type(data).__module__.partition(".")[0]
    kind = str(getattr(data, "type" if library == "pyarrow" else "dtype", ""))
    starts = {"pandas": ("category",), "pyarrow": ("dictionary",), "polars": ("Categorical", "Enum")}
    return kind.startswith(starts.get(library, ()))


@dataclass(frozen=True, slots=True)
class Categories:
    """What the codes of an array stand for.

    >>> import pandas as pd
    >>> codes, categories = Categories.split(pd.Series(["low", None, "high", "low"], dtype="category"))
    >>> codes, categories
    (NullableValues([1, NULL, 0, 1], dtype=int8), Categories(values=('high', 'low'), ordered=False))
    """

    values: tuple[Any, ...]
    """The text, number or bool that each code from 0 on stands for."""

    ordered: bool = False
    """Whether their order means something."""

    def __post_init__(self) -> None:
        if not all(isinstance(value, str | bool | int | float) for value in self.values):
            raise DataTypeError("categories kept as an attribute must be text, numbers or bools")
        if len(set(self.values)) != len(self.values):
            raise DataTypeError("the categories are not distinct")

    @classmethod
    def split(cls, data: Any) -> tuple[NullableValues, Self]:
        """The codes and the categories of categorical data from pandas, Arrow or Polars."""
        if not is_categorical(data):
            raise DataTypeError(
                "categories are for categorical data of pandas, Arrow or Polars, "
                f"not for {type(data).__name__}"
            )
        if hasattr(data, "codes") or hasattr(data, "array"):
            given = data if hasattr(data, "codes") else data.array
            codes = np.asarray(given.codes)
            made = cls(tuple(given.categories.tolist()), bool(given.ordered))
            return made._narrow(NullableValues(np.where(codes < 0, 0, codes), codes < 0)), made
        from intarsia.nullable.tables import from_arrow

        array, is_enum = data, str(getattr(data, "dtype", "")).startswith("Enum")
        if hasattr(data, "to_arrow"):  # of Polars
            array = data.to_arrow()
        if hasattr(array, "unify_dictionaries"):
            array = array.unify_dictionaries().combine_chunks()
        if array.dictionary.null_count:
            raise DataTypeError("a category is null: mark nulls by null codes instead")
        made = cls(tuple(array.dictionary.to_pylist()), is_enum or bool(array.type.ordered))
        return made._narrow(from_arrow(array.indices)), made

    def _narrow(self, codes: NullableValues) -> NullableValues:
        """Codes in the smallest signed integers that hold them, as in pandas."""
        return codes.astype(np.min_scalar_type(-max(len(self.values), 1)))

    def codes_of(self, data: Any) -> NullableValues:
        """Categorical data as codes of these categories; a category that is not among them is an error."""
        codes, theirs = Categories.split(data)
        unknown = [value for value in theirs.values if value not in self.values]
        if unknown:
            raise DataTypeError(f"{unknown[0]!r} is not one of the array's categories: {list(self.values)}")
        own = np.array([self.values.index(value) for value in theirs.values] or [0])
        return self._narrow(NullableValues(own[codes.filled(0)], codes.missing))

    # -- the attribute

    def to_json(self) -> dict[str, Any]:
        """As an attribute."""
        return {"values": list(self.values), "ordered": self.ordered}

    @classmethod
    def from_json(cls, attribute: Any) -> Self:
        """From an attribute."""
        if not isinstance(attribute, Mapping) or not isinstance(attribute.get("values"), list):
            raise DataTypeError(f"the attribute {ATTRIBUTE!r} needs a list of values, but is {attribute!r}")
        return cls(tuple(attribute["values"]), bool(attribute.get("ordered", False)))

    # -- other libraries

    def _checked(self, codes: NullableValues) -> NullableValues:
        if codes.ndim != 1:
            raise DataTypeError(f"categorical data has one dimension, but this has {codes.ndim}")
        present = codes.dropna()
        if present.size and (int(present.min()) < 0 or int(present.max()) >= len(self.values)):
            raise DataTypeError(f"a code is outside 0 to {len(self.values) - 1}, the codes of the categories")
        return codes

    def to_pandas(self, codes: NullableValues, name: Any = None) -> pandas.Series:
        """A pandas Series of categorical type."""
        pd = extra("pandas", "nullable")
        plain = self._checked(codes).filled(-1)
        categorical = pd.Categorical.from_codes(plain, list(self.values), ordered=self.ordered)
        series: pandas.Series = pd.Series(categorical, name=name)
        return series

    def to_arrow(self, codes: NullableValues) -> Any:
        """An Arrow dictionary array."""
        pa = extra("pyarrow", "nullable")
        from intarsia.nullable.tables import to_arrow

        indices = to_arrow(self._checked(codes))
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.values), ordered=self.ordered)

    def to_polars(self, codes: NullableValues, name: str = "") -> polars.Series:
        """A Polars series: an Enum if the order means something, else Categorical."""
        pl = extra("polars", "nullable")
        if not all(isinstance(value, str) for value in self.values):
            raise DataTypeError("Polars has categories of text only: read these with to_pandas or to_arrow")
        text = self.to_arrow(codes).dictionary_decode()
        kind = pl.Enum(list(self.values)) if self.ordered else pl.Categorical
        series: polars.Series = pl.Series(name, text, dtype=kind)
        return series
