"""The experimental `null` data type: arrays that hold nothing but null, in metadata alone.

Asked for in the discussion of the optional data type, and specified nowhere yet. Such an array has a shape,
chunks and attributes, but no chunk is ever stored. It is refused unless `zarr.config` has
`intarsia.experimental`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeGuard

import numpy as np
import zarr
from zarr.dtype import ZDType
from zarr.errors import DataTypeValidationError

from intarsia._compat import JSON, DTypeJSON
from intarsia.errors import DataTypeError
from intarsia.nullable.dtype import meet_nulls
from intarsia.nullable.elements import NULL, ElementType, Null, tagged

if TYPE_CHECKING:
    from intarsia.nullable.values import NullableValues


EXPERIMENTAL = "intarsia.experimental"
"""The setting of `zarr.config` that allows what is not settled."""


@dataclass(frozen=True, kw_only=True)
class NullDType(ZDType[Any, Any]):
    """Every element is null.

    >>> with zarr.config.set({"intarsia.experimental": True}):
    ...     NullDType().to_json(zarr_format=3)
    'null'
    """

    dtype_cls: ClassVar[type[np.dtype[Any]]] = np.dtype
    _zarr_v3_name: ClassVar[str] = "null"

    def __new__(cls) -> Self:
        meet_nulls()
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if not zarr.config.get(EXPERIMENTAL, False):
            raise DataTypeError(
                "the data type 'null' is experimental, and other programs cannot read it.\n"
                f"  To use it all the same: zarr.config.set({{{EXPERIMENTAL!r}: True}})"
            )

    @property
    def element(self) -> ElementType:
        """Objects, so that no plain value can be mistaken for bytes to store."""
        return ElementType(np.dtype(object), 1)

    def check(self, data: NullableValues) -> None:
        """Refuse data with anything present."""
        count = data.size - data.null_count
        if count:
            raise DataTypeError(
                f"{count} of {data.size} elements are not null, and an array of 'null' takes nothing else"
            )

    @classmethod
    def _check_native_dtype(cls, dtype: Any) -> TypeGuard[Any]:
        return False

    @classmethod
    def from_native_dtype(cls, dtype: Any) -> Self:
        raise DataTypeValidationError(f"Invalid data type: {dtype}. No dtype of NumPy is all null")

    def to_native_dtype(self) -> np.dtype[Any]:
        return tagged(np.dtype(object), 1)

    @classmethod
    def _from_json_v2(cls, data: DTypeJSON) -> Self:
        raise DataTypeValidationError("Zarr format 2 has no null data type")

    @classmethod
    def _from_json_v3(cls, data: DTypeJSON) -> Self:
        bare = data.get("name") if isinstance(data, Mapping) and not data.get("configuration") else data
        if bare != cls._zarr_v3_name:
            raise DataTypeValidationError(f"{data!r} is not the null data type")
        return cls()

    def to_json(self, zarr_format: int) -> Any:
        if zarr_format != 3:
            raise DataTypeError(f"Zarr format {zarr_format} has no data type 'null': use zarr_format=3")
        return self._zarr_v3_name

    def _check_scalar(self, data: object) -> bool:
        return data is None or data is NULL or data is np.ma.masked

    def cast_scalar(self, data: object) -> Null:
        if not self._check_scalar(data):
            raise DataTypeError(f"the fill value of an array of 'null' is null, not {data!r}")
        return NULL

    def default_scalar(self) -> Null:
        return NULL

    def from_json_scalar(self, data: JSON, *, zarr_format: int) -> Null:
        return self.cast_scalar(data)

    def to_json_scalar(self, data: object, *, zarr_format: int) -> JSON:
        self.cast_scalar(data)
        return None
