from .array import NullableArray
from .arrow import from_arrow, from_polars, to_arrow, to_polars
from .codec import NullableCodec
from .convert import as_masked, as_nullable
from .create import create_array, open_array
from .dtype import OptionalDType, optional_dtype
from .elements import NULL, Null, Some
from .null_type import NullDType
from .nulls import UNSET, dtype_without_nulls, without_nulls
from .other_formats import from_anndata, from_geff
from .pandas import from_pandas, to_pandas
from .sentinel import SentinelCodec
from .values import NullableValues

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
    "from_anndata",
    "from_arrow",
    "from_geff",
    "from_pandas",
    "from_polars",
    "open_array",
    "optional_dtype",
    "to_arrow",
    "to_pandas",
    "to_polars",
    "without_nulls",
]
