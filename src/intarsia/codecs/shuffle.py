"""The `shuffle` codec: puts bytes of equal significance side by side, which helps compressors."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from numcodecs.shuffle import Shuffle
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer

from intarsia._compat import JSON, as_numpy_array_wrapper
from intarsia.codecs.base import SynchronousBytesCodec
from intarsia.codecs.configuration import check_configuration, read_configuration
from intarsia.codecs.context import named_chunk
from intarsia.errors import ChunkDecodeError, ChunkEncodeError


@dataclass(frozen=True)
class ShuffleCodec(SynchronousBytesCodec):
    """bytes -> bytes: puts byte j of every element next to byte j of the others, like `numcodecs.shuffle`.

    >>> import zarr
    >>> from zarr.codecs import BytesCodec
    >>> codecs = [BytesCodec(), ShuffleCodec(element_size=2)]
    >>> z = zarr.create(store={}, shape=4, dtype="u2", codecs=codecs)
    >>> z[:] = [0x0102, 0x0304, 0x0506, 0x0708]
    >>> z[1]
    array(772, dtype=uint16)
    """

    is_fixed_size = True

    element_size: int
    """The size of one element in bytes."""

    def __post_init__(self) -> None:
        checked = check_configuration("shuffle", {"element_size": self.element_size})
        object.__setattr__(self, "element_size", checked["element_size"])

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        return cls(**read_configuration("shuffle", data))

    def to_dict(self) -> dict[str, JSON]:
        return {"name": "shuffle", "configuration": {"element_size": self.element_size}}

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        return input_byte_length

    @cached_property
    def _shuffle(self) -> Shuffle:
        return Shuffle(elementsize=self.element_size)

    def _encode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        self._check_length(chunk_data, ChunkEncodeError)
        return as_numpy_array_wrapper(self._shuffle.encode, chunk_data, chunk_spec.prototype)

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        self._check_length(chunk_data, ChunkDecodeError)
        return as_numpy_array_wrapper(self._shuffle.decode, chunk_data, chunk_spec.prototype)

    def _check_length(self, data: Buffer, error: type[ChunkEncodeError | ChunkDecodeError]) -> None:
        if len(data) % self.element_size:
            raise error(
                f"codec 'shuffle': {len(data)} bytes{named_chunk()} are not a multiple of "
                f"element_size {self.element_size}"
            )
