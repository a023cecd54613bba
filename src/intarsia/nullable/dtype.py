"""The data types `optional` (a value of another data type, or null; it nests) and `null` (only nulls).

zarr imports this module when it looks up its first data type, so it imports little itself. zarr's
configuration changes when a data type with nulls is created or used, wherever it comes from, and changes back
after a reset; a process without one keeps zarr as it is. What the user has configured is left alone.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeGuard

import msgspec
import numpy as np
import zarr
from zarr.dtype import Bool, Struct, VariableLengthUTF8, ZDType, parse_dtype
from zarr.errors import DataTypeValidationError
from zarr.registry import register_codec, register_ndbuffer

from intarsia._compat import JSON, DTypeJSON, HasItemSize, Resolver, add_data_types
from intarsia.errors import CodecConfigurationError, DataTypeError
from intarsia.nullable.elements import MAX_LEVELS, NULL, ElementType, Null, Some, element_type, tag_dtype

if TYPE_CHECKING:
    from intarsia.nullable.nullable_values import NullableValues

type OptionalName = Literal["optional", "zarrs.optional"]

NAMES: tuple[OptionalName, ...] = ("optional", "zarrs.optional")
"""The name in the proposal, and the one that zarrs uses as long as it is a proposal."""

EXPERIMENTAL = "intarsia.experimental"
"""The setting in `zarr.config` that allows data types without a specification."""

STOCK_NDBUFFERS = ("zarr.buffer.cpu.NDBuffer", "zarr.core.buffer.cpu.NDBuffer")
NDBUFFER = "intarsia.nullable.buffer.NullableNDBuffer"

_NOT_IN_STRUCTS = (
    "a field of a struct cannot be optional: no specification says how to store its nulls.\n"
    "  Make the whole struct optional, or store each field as an array of its own"
)

type _ZDType = ZDType[Any, Any]


def install_nullable_buffer() -> None:
    """Make zarr use `NullableNDBuffer`, and arithmetic codecs that leave nulls alone.

    Called whenever a data type or an array with nulls is made or used: zarr's configuration may have been
    reset. A class that is not zarr's own stays.
    """
    _register_classes()
    if zarr.config.get("ndbuffer", None) in STOCK_NDBUFFERS:
        zarr.config.set({"ndbuffer": NDBUFFER})


@cache
def _register_classes() -> None:
    from intarsia.nullable.buffer import NullableNDBuffer
    from intarsia.nullable.present_values import ELEMENTWISE, OnPresentValues

    register_ndbuffer(NullableNDBuffer, NDBUFFER)
    for name, kind in ELEMENTWISE.items():
        # In the place of zarr's own: no setting has to choose between the two, which a reset would undo.
        module = "zarr.codecs.numcodecs" if name.startswith("numcodecs.") else kind.__module__
        register_codec(name, OnPresentValues, qualname=f"{module}.{kind.__qualname__}")


def check_experimental(what: str) -> None:
    """Refuse a data type without a specification, unless the user has allowed it."""
    if not zarr.config.get(EXPERIMENTAL, False):
        raise DataTypeError(
            f"{what} is experimental, and other programs cannot read it.\n"
            f"  To use it anyway: zarr.config.set({{{EXPERIMENTAL!r}: True}})"
        )


class _Inner(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The inner data type, in the form that zarr.json has it."""

    name: str
    configuration: dict[str, Any] = {}


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    """The whole data type, in the form that zarr.json has it."""

    name: str
    configuration: _Inner
    must_understand: bool = True


class _DTypeWithNulls(ZDType[Any, Any]):
    """What data types with nulls have in common: zarr has to know their memory."""

    dtype_cls: ClassVar[type[np.dtype[Any]]] = np.dtype

    def __new__(cls, **_fields: Any) -> Self:
        install_nullable_buffer()
        return super().__new__(cls)

    @property
    @abstractmethod
    def element(self) -> ElementType:
        """How the data lies in memory."""

    def to_native_dtype(self) -> np.dtype[Any]:
        install_nullable_buffer()
        return tag_dtype(self.element.dtype, self.element.depth)

    @classmethod
    def _from_json_v2(cls, data: DTypeJSON) -> Self:
        raise DataTypeValidationError(f"Zarr format 2 has no {cls._zarr_v3_name} data type")

    def default_scalar(self) -> Null:
        return NULL


@dataclass(frozen=True, kw_only=True)
class OptionalDType(_DTypeWithNulls, HasItemSize):
    """A value of the data type `inner`, or null.

    >>> from zarr.dtype import Float64
    >>> dtype = OptionalDType(inner=Float64())
    >>> dtype
    optional[float64]
    >>> dtype.to_json(zarr_format=3)
    {'name': 'optional', 'configuration': {'name': 'float64', 'configuration': {}}}
    """

    _zarr_v3_name: ClassVar[str] = "optional"

    inner: _ZDType = field(default_factory=Bool)
    """The data type of an element that is not null; it may be optional itself. It has a default only because
    programs that walk over zarr's data types make one of each."""

    name: OptionalName = "optional"
    """What the data type is called in zarr.json."""

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise DataTypeError(f"an optional data type is named {' or '.join(NAMES)}, not {self.name!r}")
        if not isinstance(self.inner, ZDType):
            raise DataTypeError(f"inner must be a zarr data type, not {self.inner!r}: see zarr.dtype")
        if self.depth > MAX_LEVELS:
            raise DataTypeError(f"{self.depth} optionals are nested, but at most {MAX_LEVELS} can be")
        _refuse_optional_fields(self.inner)

    def __repr__(self) -> str:
        inner = self.inner
        return f"optional[{inner if isinstance(inner, OptionalDType) else _plain_name(inner)}]"

    __str__ = __repr__

    # -- structure

    @property
    def depth(self) -> int:
        """How many optionals are nested."""
        return 1 + (self.inner.depth if isinstance(self.inner, OptionalDType) else 0)

    @property
    def innermost(self) -> _ZDType:
        """The data type of a present value."""
        return self.inner.innermost if isinstance(self.inner, OptionalDType) else self.inner

    @property
    def element(self) -> ElementType:
        """How the data lies in memory."""
        return ElementType(self.innermost.to_native_dtype(), self.depth)

    @property
    def item_size(self) -> int:
        """The bytes that a value takes in memory; zarr uses it to choose chunk shapes."""
        return int(self.innermost.to_native_dtype().itemsize)

    def with_name(self, name: OptionalName) -> OptionalDType:
        """The same data type under another name, at all levels."""
        inner = self.inner.with_name(name) if isinstance(self.inner, OptionalDType) else self.inner
        return replace(self, inner=inner, name=name)

    def with_innermost(self, dtype: _ZDType) -> OptionalDType:
        """The same levels around another data type."""
        inner = self.inner.with_innermost(dtype) if isinstance(self.inner, OptionalDType) else dtype
        return replace(self, inner=inner)

    def has_multi_byte_fields(self) -> bool:
        """Called only by zarr's `bytes` codec, which cannot encode this data type."""
        raise CodecConfigurationError(
            f"the data type {self} cannot be encoded by the codec 'bytes' by itself: nulls have no bytes.\n"
            "  Use the codec 'optional', intarsia.nullable.NullableCodec(), as nullable.create_array does"
        )

    # -- NumPy

    @classmethod
    def _check_native_dtype(cls, dtype: Any) -> TypeGuard[Any]:
        return element_type(dtype) is not None

    @classmethod
    def from_native_dtype(cls, dtype: Any) -> Self:
        element = element_type(dtype)
        if element is not None:
            # zarr's own data types match this dtype too, and would silently drop the nulls.
            raise DataTypeError(
                f"the dtype of a nullable array of {element.dtype} says too little to make another one.\n"
                "  Give dtype=array.metadata.data_type and serializer=intarsia.nullable.NullableCodec(), "
                f"or np.dtype({str(element.dtype)!r}) for a plain array. "
                "To store data with nulls: intarsia.nullable.create_array(group, name, data=…)"
            )
        raise DataTypeValidationError(f"Invalid data type: {dtype}. It is not nullable")

    # -- zarr.json

    @classmethod
    def _from_json_v3(cls, data: DTypeJSON) -> Self:
        return cls._read(data, lambda inner: parse_dtype(inner, zarr_format=3))

    @classmethod
    def _from_json_resolved(cls, data: DTypeJSON, *, resolver: Resolver) -> Self:
        if resolver.zarr_format != 3:
            return cls._from_json_v2(data)
        optional = cls._read(data, resolver.at("configuration").resolve_data_type)
        if "fields" in resolver.loc:
            raise DataTypeError(_NOT_IN_STRUCTS)
        return optional

    @classmethod
    def _read(cls, data: DTypeJSON, resolve: Any) -> Self:
        name = data.get("name") if isinstance(data, Mapping) else data
        if name not in NAMES:
            raise DataTypeValidationError(f"{data!r} is not an optional data type")
        try:
            inner = msgspec.convert(data, _Document).configuration
        except msgspec.ValidationError as error:
            raise DataTypeError(f"data type {name!r}: {error}") from error
        # Most zarr data types have no configuration and are known by their bare name. The proposal
        # allows leaving out the inner configuration; zarrs does not.
        has_configuration = inner.configuration or inner.name in NAMES
        try:
            resolved = resolve(msgspec.to_builtins(inner) if has_configuration else inner.name)
        except ValueError as error:
            raise DataTypeError(f"data type {name!r}: its inner data type is not known: {error}") from error
        return cls(inner=resolved, name=name)

    def to_json(self, zarr_format: int) -> Any:
        if zarr_format != 3:
            raise DataTypeError(f"Zarr format {zarr_format} has no data type {self}: use zarr_format=3")
        inner = self.inner.to_json(zarr_format=3)
        # zarrs insists on the inner configuration, even where it is empty.
        if isinstance(inner, str):
            inner = {"name": inner}
        return {
            "name": self.name,
            "configuration": {"name": inner["name"], "configuration": inner.get("configuration", {})},
        }

    # -- scalars

    def _check_scalar(self, data: object) -> bool:
        return True

    def cast_scalar(self, data: object) -> Null | Some:
        """`NULL` for None, NULL or np.ma.masked; otherwise the value, present at every level.

        >>> optional_dtype("int8", depth=2).cast_scalar(4)
        Some(Some(np.int8(4)))
        """
        if data is None or data is NULL or data is np.ma.masked:
            return NULL
        if isinstance(data, list) and len(data) == 1:  # as zarr.json spells it
            data = Some(data[0])
        data = data.value if isinstance(data, Some) else data
        if not isinstance(self.inner, OptionalDType):
            try:
                from intarsia.nullable.conversions import from_objects

                data = from_objects(data, self.element.dtype).values[()]
            except DataTypeError as error:
                raise DataTypeError(f"fill_value {data!r} of {self}: {error}") from error
        return Some(self.inner.cast_scalar(data))

    def from_json_scalar(self, data: JSON, *, zarr_format: int) -> Null | Some:
        if data is None:
            return NULL
        if not isinstance(data, list | tuple) or len(data) != 1:
            raise DataTypeError(
                f"fill_value {data!r} of {self}: give null, or a list of one value: [{data!r}]"
            )
        try:
            return Some(self.inner.from_json_scalar(data[0], zarr_format=3))
        except DataTypeError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise DataTypeError(f"fill_value {data!r} of {self}: {error}") from error

    def to_json_scalar(self, data: object, *, zarr_format: int) -> JSON:
        if isinstance(data, np.generic):  # zarr's Struct calls this for its fields
            raise DataTypeError(_NOT_IN_STRUCTS)
        scalar = self.cast_scalar(data)
        if isinstance(scalar, Null):
            return None
        return [self.inner.to_json_scalar(scalar.value, zarr_format=3)]


# zarr has no hook that lets a data type refuse an array -> bytes codec. But when an array is created, zarr's
# `bytes` codec and its choice of a default call `has_multi_byte_fields` of every struct. This data type
# passes for a struct, so that they call its method, which refuses.
Struct.register(OptionalDType)


def _refuse_optional_fields(dtype: _ZDType) -> None:
    if type(dtype) is Struct:
        for _, field_type in dtype.fields:
            if isinstance(field_type, OptionalDType):
                raise DataTypeError(_NOT_IN_STRUCTS)
            _refuse_optional_fields(field_type)


def _plain_name(dtype: _ZDType) -> str:
    if isinstance(dtype, VariableLengthUTF8):
        return "string"
    return str(dtype.to_native_dtype())


def optional_dtype(dtype: Any, depth: int = 1, *, name: OptionalName | None = None) -> OptionalDType:
    """Make `dtype` an optional data type; it is anything that zarr takes as a dtype, or "optional[float64]".

    A `dtype` that is already optional stays as it is; `depth` must then agree or be 1.

    Args:
        name: How the data type is spelled in zarr.json: `"optional"`, or `"zarrs.optional"` for zarrs.

    >>> optional_dtype("float32"), optional_dtype("optional[optional[string]]")
    (optional[float32], optional[optional[string]])
    """
    data_type = to_data_type(dtype)
    if isinstance(data_type, OptionalDType):
        optional = data_type
        if depth not in (1, optional.depth):
            raise DataTypeError(f"depth {depth} was requested, but {optional} has depth {optional.depth}")
    else:
        if depth < 1:
            raise DataTypeError(f"depth {depth}: nullable data has at least one level of null")
        optional = OptionalDType(inner=data_type)
        for _ in range(depth - 1):
            optional = OptionalDType(inner=optional)
    return optional if name is None else optional.with_name(name)


def to_data_type(dtype: Any) -> _ZDType:
    """The data type for anything that zarr takes as a dtype, or for "optional[float64]"."""
    if isinstance(dtype, str) and (match := re.fullmatch(r"\s*optional\[(.*)\]\s*", dtype)):
        return OptionalDType(inner=to_data_type(match[1].strip()))
    if (element := element_type(dtype)) is not None:
        dtype = element.dtype
    if isinstance(dtype, np.dtypes.StringDType):
        return VariableLengthUTF8()
    try:
        return parse_dtype(dtype, zarr_format=3)
    except DataTypeError:
        raise
    except (TypeError, ValueError) as error:
        raise DataTypeError(f"{dtype!r} is not a data type that zarr knows: {error}") from error


@dataclass(frozen=True, kw_only=True)
class NullDType(_DTypeWithNulls):
    """Every element is null: such an array has a shape, chunks and attributes, but stores no chunk.

    It is not specified anywhere yet, so arrays of it are neither written nor read unless `zarr.config` has
    `intarsia.experimental`.

    >>> with zarr.config.set({"intarsia.experimental": True}):
    ...     NullDType().to_json(zarr_format=3)
    'null'
    """

    _zarr_v3_name: ClassVar[str] = "null"

    @property
    def element(self) -> ElementType:
        """Elements are objects, so that no plain value can be mistaken for bytes to store."""
        return ElementType(np.dtype(object), 1)

    def check(self, data: NullableValues) -> None:
        """Refuse data that has present elements."""
        count = data.size - data.null_count
        if count:
            raise DataTypeError(
                f"{count} of {data.size} elements are not null, but an array of 'null' holds only nulls"
            )

    @classmethod
    def _check_native_dtype(cls, dtype: Any) -> TypeGuard[Any]:
        return False

    @classmethod
    def from_native_dtype(cls, dtype: Any) -> Self:
        raise DataTypeValidationError(f"Invalid data type: {dtype}. NumPy has no dtype that is all null")

    @classmethod
    def _from_json_v3(cls, data: DTypeJSON) -> Self:
        bare = data.get("name") if isinstance(data, Mapping) and not data.get("configuration") else data
        if bare != cls._zarr_v3_name:
            raise DataTypeValidationError(f"{data!r} is not the null data type")
        check_experimental("the data type 'null'")
        return cls()

    def to_json(self, zarr_format: int) -> Any:
        if zarr_format != 3:
            raise DataTypeError(f"Zarr format {zarr_format} has no data type 'null': use zarr_format=3")
        check_experimental("the data type 'null'")
        return self._zarr_v3_name

    def _check_scalar(self, data: object) -> bool:
        return data is None or data is NULL or data is np.ma.masked

    def cast_scalar(self, data: object) -> Null:
        if not self._check_scalar(data):
            raise DataTypeError(f"the fill value of an array of 'null' must be null, not {data!r}")
        return NULL

    def from_json_scalar(self, data: JSON, *, zarr_format: int) -> Null:
        return self.cast_scalar(data)

    def to_json_scalar(self, data: object, *, zarr_format: int) -> JSON:
        self.cast_scalar(data)
        return None


add_data_types(OptionalDType, NullDType)
