"""The `reshape` codec: the same elements in the same order, as an array of another shape."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NoReturn, Self

from zarr.core.buffer import NDBuffer
from zarr.core.metadata.v3 import ChunkGridMetadata
from zarr.dtype import ZDType

from intarsia._compat import JSON, ArraySpec, is_regular
from intarsia.codecs.base import ChunkNamingCodec, SynchronousArrayCodec
from intarsia.codecs.configuration import check_configuration, read_configuration
from intarsia.errors import CodecConfigurationError

type Size = int | tuple[int, ...]


@dataclass(frozen=True, init=False)
class ReshapeCodec(ChunkNamingCodec, SynchronousArrayCodec):
    """array -> array: the elements of a chunk, in C order, in another shape; registered in zarr-extensions.

    >>> import zarr
    >>> z = zarr.create_array({}, shape=(4, 3, 5), dtype="i2", filters=ReshapeCodec(shape=[[0, 1], -1]))
    >>> z[...] = 7
    >>> ReshapeCodec(shape=[[0, 1], -1]).encoded_shape((4, 3, 5))
    (12, 5)
    """

    is_fixed_size = True

    shape: tuple[Size, ...]
    """For each axis of the result: a size, the axes of the chunk that it combines, or -1 for the rest."""

    def __init__(self, *, shape: Iterable[int | Iterable[int]]) -> None:
        given = [list(size) if isinstance(size, Iterable) else size for size in shape]
        sizes = check_configuration("reshape", {"shape": given})["shape"]
        axes = [axis for size in sizes if isinstance(size, list) for axis in size]
        if axes != sorted(set(axes)):
            raise CodecConfigurationError(
                f"codec 'reshape': shape: {sizes} names the axes {axes}, but they must increase: elements "
                "stay in order. To reorder axes, put 'transpose' before it"
            )
        if sizes.count(-1) > 1:
            raise CodecConfigurationError(f"codec 'reshape': shape: {sizes} leaves more than one size open")
        frozen = tuple(tuple(size) if isinstance(size, list) else size for size in sizes)
        object.__setattr__(self, "shape", frozen)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        return cls(**read_configuration("reshape", data))

    def to_dict(self) -> dict[str, JSON]:
        sizes: list[JSON] = [list(size) if isinstance(size, tuple) else size for size in self.shape]
        return {"name": "reshape", "configuration": {"shape": sizes}}

    def encoded_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The encoded shape of a chunk of `shape`; an error if that is impossible."""
        if any(axis >= len(shape) for size in self.shape if isinstance(size, tuple) for axis in size):
            self._refuse(shape, f"it has {len(shape)} axes")
        sizes = [prod(shape[axis] for axis in s) if isinstance(s, tuple) else s for s in self.shape]
        elements, known = prod(shape), prod(size for size in sizes if size != -1)
        if -1 in sizes and known:
            sizes[sizes.index(-1)] = elements // known
        if prod(sizes) != elements or -1 in sizes:
            self._refuse(shape, f"{elements} elements do not fit")
        for i, size in enumerate(self.shape):
            # As many elements must lie before and after, or the axis would run along others than it names.
            if isinstance(size, tuple) and size:
                before, behind = prod(shape[: size[0]]), prod(shape[size[-1] + 1 :])
                if (prod(sizes[:i]), prod(sizes[i + 1 :])) != (before, behind):
                    self._refuse(shape, f"axis {i} of the result would not be made of the axes {list(size)}")
        return tuple(sizes)

    def validate(
        self, *, shape: tuple[int, ...], dtype: ZDType[Any, Any], chunk_grid: ChunkGridMetadata
    ) -> None:
        # Checks only the number of elements: codecs before this one may turn the axes.
        if is_regular(chunk_grid):
            elements = prod(chunk_grid.chunk_shape)
            known = prod(size for size in self.shape if isinstance(size, int) and size != -1)
            is_open = any(size == -1 or isinstance(size, tuple) for size in self.shape)
            if known == 0 or elements % known or not (is_open or elements == known):
                self._refuse(tuple(chunk_grid.chunk_shape), f"{elements} elements do not fit")

    def _refuse(self, shape: tuple[int, ...], reason: str) -> NoReturn:
        sizes = [list(size) if isinstance(size, tuple) else size for size in self.shape]
        raise CodecConfigurationError(
            f"codec 'reshape': a chunk of shape {shape} cannot become {sizes}: {reason}"
        )

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        try:
            return replace(chunk_spec, shape=self.encoded_shape(chunk_spec.shape))
        except CodecConfigurationError:
            # zarr also asks about the array as a whole, which need not fit. A chunk that does not fit is
            # refused when it is encoded or decoded; until then its elements have as many axes.
            row = (prod(chunk_spec.shape), *(1 for _ in self.shape))
            return replace(chunk_spec, shape=row[: len(self.shape)])

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        return input_byte_length

    def _encode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        return chunk_array.reshape(self.encoded_shape(chunk_spec.shape))

    def _decode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        self.encoded_shape(chunk_spec.shape)
        return chunk_array.reshape(chunk_spec.shape)
