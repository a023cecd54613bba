"""Arrays as xarray variables: lazy values, dimension names, attributes, preferred chunks.

xarray has no nulls: those of nullable arrays become NaN, NaT, a second variable, or an error.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from xarray import Variable
from xarray.backends import BackendArray
from xarray.backends.zarr import FillValueCoder
from xarray.core import indexing
from zarr.codecs import CastValue, ScaleOffset

from intarsia.archives.cf import decoded_fill_attribute
from intarsia.codecs.base import all_codecs
from intarsia.engine.reader import Reader
from intarsia.engine.request import Mode
from intarsia.logical.attributes import DIMENSIONS_KEY, with_floats
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.box import Box
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.region_table import NONE
from intarsia.nullable import OptionalDType, as_nullable, dtype_without_nulls, without_nulls
from intarsia.nullable.without_nulls import NullsChoice

PACKING_ATTRIBUTES = frozenset(("scale_factor", "add_offset"))
MASKING_ATTRIBUTES = frozenset(("_FillValue", "missing_value", "_Unsigned"))


class LazyValues(BackendArray):
    """What xarray indexes before it reads: a logical array or a reader of a plain one.

    `convert` makes values of the type `dtype` of those that were read.
    """

    __slots__ = ("_array", "_convert", "dtype", "shape")

    def __init__(
        self,
        array: LogicalArray | Reader,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        convert: Callable[[Any], np.ndarray[Any, Any]] = np.asarray,
    ) -> None:
        self._array, self.shape, self.dtype, self._convert = array, shape, dtype, convert

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return self._convert(self._array.read(key.tuple, _mode(key)))

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """For `Dataset.load_async`: several variables are read at once, without a waiting thread."""
        return self._convert(await self._array.read_async(key.tuple, _mode(key)))


def _mode(key: indexing.ExplicitIndexer) -> Mode:
    """The kind of selection that a key of xarray means."""
    if isinstance(key, indexing.VectorizedIndexer):
        return "vectorized"
    return "orthogonal" if isinstance(key, indexing.OuterIndexer) else "basic"


class PreferredChunks(Mapping[str, int | tuple[int, ...]]):
    """Dimension -> block sizes for dask, determined on demand.

    The chunks of a thousand members are described in a thousand small files, and opening a dataset without
    dask needs none of them.
    """

    def __init__(self, array: LogicalArray, dims: tuple[str, ...]) -> None:
        self._array, self._dims = array, dims

    @cached_property
    def _sizes(self) -> dict[str, int | tuple[int, ...]]:
        from intarsia.interop.dask.to_dask import block_sizes

        return dict(zip(self._dims, xarray_chunks(block_sizes(self._array)), strict=True))

    def __getitem__(self, dim: str) -> int | tuple[int, ...]:
        return self._sizes[dim]

    def get(self, dim: str, default: Any = None) -> Any:
        """The sizes for a dimension; without a default, None if there are replicas.

        xarray asks this way whether to warn about blocks that cut stored chunks; they may fit another layer.
        """
        if default is None and self._array.config.layer is None and len(self._array.manifest.replicas):
            return None
        return super().get(dim, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._dims)

    def __len__(self) -> int:
        return len(self._dims)

    def __deepcopy__(self, memo: object) -> "PreferredChunks":
        return self


def dimensions(name: str, ndim: int, stored: Sequence[str | None] | None) -> tuple[str, ...]:
    """The dimension names of a variable; an unnamed axis gets a name of its own.

    >>> dimensions("t", 2, ("time", None))
    ('time', 't_dim_1')
    """
    names = stored or (None,) * ndim
    return tuple(f"{name}_dim_{axis}" if dim is None else dim for axis, dim in enumerate(names))


def variables_of(array: LogicalArray | Reader, name: str, nulls: NullsChoice | None) -> dict[str, Variable]:
    """The array as a variable that is not decoded yet; with `nulls="masked"`, also a mask of the nulls."""
    describe: Any = _describe_logical if isinstance(array, LogicalArray) else _describe_plain
    dims, attributes, encoding = describe(array, name)
    manifest, mask = array.manifest, f"{name}_missing"
    data_type, dtype = manifest.data_type, manifest.dtype
    convert: Callable[[Any], np.ndarray[Any, Any]] = np.asarray
    if not isinstance(data_type, OptionalDType):
        encoding |= {"dtype": dtype} if dtype.kind == "T" else {}
    else:
        encoding = {"preferred_chunks": encoding["preferred_chunks"]}
        dtype = dtype_without_nulls(data_type.element.dtype, nulls)
        convert = partial(_without_nulls, nulls=nulls, what=f"the variable {name!r}")
        if nulls == "masked":
            attributes |= {"ancillary_variables": mask}  # CF's way of saying that one belongs to the other
            convert = _beneath_nulls
    values = indexing.LazilyIndexedArray(LazyValues(array, manifest.shape, dtype, convert))
    variables = {name: Variable(dims, values, attributes, encoding)}
    if convert is _beneath_nulls:
        is_null = LazyValues(array, manifest.shape, np.dtype(bool), _is_null)
        about = {"long_name": f"whether {name} is missing"}
        variables[mask] = Variable(dims, indexing.LazilyIndexedArray(is_null), about, dict(encoding))
    return variables


def _without_nulls(values: Any, nulls: NullsChoice | None, what: str) -> np.ndarray[Any, Any]:
    return np.asarray(without_nulls(as_nullable(values), nulls, what=what))


def _beneath_nulls(values: Any) -> np.ndarray[Any, Any]:
    """The values as they are: a second variable says which are missing."""
    return as_nullable(values).values


def _is_null(values: Any) -> np.ndarray[Any, Any]:
    return as_nullable(values).isnull()


type Description = tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]
"""The dimensions, attributes and encoding of a variable."""


def _describe_logical(array: LogicalArray, name: str) -> Description:
    """Without the attributes that describe the storage of numbers that are read as values.

    xarray would apply these a second time.
    """
    manifest, attributes = array.manifest, with_floats(dict(array.attrs))
    dims = dimensions(name, manifest.ndim, manifest.dimension_names)
    packings, is_packed = manifest.packings, bool(PACKING_ATTRIBUTES & attributes.keys())
    if len(packings):
        is_unpacked = is_packed or any(kind.missing for kind in packings.kinds)
    else:
        is_unpacked = is_packed and manifest.dtype.kind == "f" and _unpacks_itself(array)
    encoding = {"preferred_chunks": PreferredChunks(array, dims), "fill_value": manifest.fill_value}
    encoding |= _packed_encoding(manifest)
    hidden = {*encoding, *PACKING_ATTRIBUTES, *MASKING_ATTRIBUTES} if is_unpacked else encoding.keys()
    attributes = {key: value for key, value in attributes.items() if key not in hidden}
    if "_FillValue" in attributes:
        attributes["_FillValue"] = _fill_value(attributes["_FillValue"], manifest.dtype)
    return dims, attributes, encoding


def _packed_encoding(manifest: Manifest) -> dict[str, Any]:
    """The packing that all regions share, as xarray keeps it in order to write it again; else nothing."""
    if len(manifest.packings) != 1 or (manifest.regions.packing == NONE).any():
        return {}
    packing, holds_fill = manifest.packings[0], manifest.packings[0].holds(manifest.fill_value)
    if not holds_fill and not manifest.regions.covers(Box.sized(manifest.lattice)):
        return {}  # xarray would write arbitrary values where no region is
    encoding = {key: value for key, value in packing.attributes.items() if key != "missing_value"}
    fill_value = packing.encode(manifest.fill_value)[()] if holds_fill else None
    return encoding | {"dtype": packing.stored, "fill_value": fill_value} if encoding else {}


def _unpacks_itself(array: LogicalArray) -> bool:
    """Whether members turn packed integers into the logical values by their own filters."""
    return any(
        isinstance(getattr(codec, "codec", codec), ScaleOffset | CastValue)
        for member in array.members.values()
        for codec in all_codecs(getattr(member.metadata, "codecs", ()))
    )


def _describe_plain(reader: Reader, name: str) -> Description:
    """As in xarray's own engine; unnamed axes get a name."""
    array = reader.zarr_array
    attributes = with_floats(dict(array.attrs))
    metadata: Any = array.metadata
    in_format_2 = metadata.zarr_format == 2
    names = attributes.pop(DIMENSIONS_KEY, None) if in_format_2 else metadata.dimension_names
    dims = dimensions(name, array.ndim, names)
    chunks = xarray_chunks(reader.chunks)
    encoding: dict[str, Any] = {
        "preferred_chunks": dict(zip(dims, chunks, strict=True)),
        "chunks": chunks,
        "compressors": array.compressors,
        "filters": array.filters,
        "shards": None if reader.shards is None else xarray_chunks(reader.shards),
    }
    if not in_format_2:
        encoding |= {"serializer": array.serializer, "fill_value": array.fill_value}
        if "_FillValue" in attributes:
            attributes["_FillValue"] = _fill_value(attributes["_FillValue"], array.dtype)
    elif array.fill_value is not None:  # in format 2 it means missing
        attributes["_FillValue"] = array.fill_value
    return dims, attributes, encoding


def xarray_chunks(sizes: Sequence[int | tuple[int, ...]]) -> tuple[int | tuple[int, ...], ...]:
    """A single number on axes where all blocks but the last have one size, as in xarray.

    >>> xarray_chunks(((4, 4, 2), (3, 5), (0,), 4))
    (4, (3, 5), (0,), 4)
    """
    axes = [each if isinstance(each, tuple) else (each,) for each in sizes]
    return tuple(
        axis[0] if axis[0] and len(set(axis[:-1])) <= 1 and axis[-1] <= axis[0] else axis for axis in axes
    )


def _fill_value(stored: Any, dtype: np.dtype[Any]) -> Any:
    """The attribute `_FillValue`, as xarray writes it to Zarr v3 (in base64) or as people do."""
    if dtype.kind in "cS" and isinstance(stored, str | list):
        return FillValueCoder.decode(stored, "bytes" if dtype.kind == "S" else dtype)
    return decoded_fill_attribute(stored, dtype)
