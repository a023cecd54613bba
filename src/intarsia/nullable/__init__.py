"""Missing values without a sentinel: the `optional` data type, its codec, and arrays that use them.

Importing it sets the class that allocates arrays in zarr's configuration; see install.py.
"""

from intarsia.nullable.anndata import from_anndata
from intarsia.nullable.array import NullableArray
from intarsia.nullable.arrow import from_arrow, to_arrow
from intarsia.nullable.codec import NullableCodec
from intarsia.nullable.convert import as_masked, as_nullable
from intarsia.nullable.create import create_array, open_array
from intarsia.nullable.dtype import OptionalDType, optional_dtype
from intarsia.nullable.geff import from_geff
from intarsia.nullable.install import install
from intarsia.nullable.na_object import UNSET
from intarsia.nullable.null_type import NullDType
from intarsia.nullable.nulls import dtype_without_nulls, without_nulls
from intarsia.nullable.pandas import from_pandas, to_pandas
from intarsia.nullable.polars import from_polars, to_polars
from intarsia.nullable.scalars import NULL, Null, Some
from intarsia.nullable.sentinel import SentinelCodec
from intarsia.nullable.values import NullableValues

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

install()
