from .array import NullableArray, create_array, open_array
from .codec import NullableCodec
from .conversions import as_masked, as_nullable
from .dask_blocks import to_dask
from .dataframes import from_arrow, from_pandas, from_polars, to_arrow, to_pandas, to_polars
from .dtype import NullDType, OptionalDType, optional_dtype
from .elements import NULL, Null, Some
from .geff import from_geff
from .nullable_values import NullableValues
from .representation import UNSET
from .sentinel import SentinelCodec
from .without_nulls import dtype_without_nulls, without_nulls

__all__ = [
    "NULL",
    "UNSET",
    "Null",
    "NullDType",
    "NullableArray",
    "NullableCodec",
    "NullableValues",
    "OptionalDType",
    "SentinelCodec",
    "Some",
    "as_masked",
    "as_nullable",
    "create_array",
    "dtype_without_nulls",
    "from_arrow",
    "from_geff",
    "from_pandas",
    "from_polars",
    "open_array",
    "optional_dtype",
    "to_arrow",
    "to_dask",
    "to_pandas",
    "to_polars",
    "without_nulls",
]
