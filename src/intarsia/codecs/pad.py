"""Bytes around every chunk: the codecs `pad` and `offset`. (Headers for them are in `chunk_headers`.)"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import msgspec
import numpy as np
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer

from intarsia._compat import JSON
from intarsia.codecs import base, configuration
from intarsia.codecs.context import current_chunk_index, named_chunk, takes_keyword
from intarsia.codecs.runtime_options import (
    PaddingFunction,
    RuntimeOptions,
    options_in,
    remembered,
    remembering,
)
from intarsia.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigurationError

type Octets = np.ndarray[Any, np.dtype[np.uint8]]


def _literal(codec: str, name: str, value: object, size_name: str, size: int) -> bytes | None:
    """The bytes that `value` means: base64 text as in zarr.json, or the bytes themselves."""
    if value is None:
        return None
    try:
        literal = msgspec.convert(value, bytes)
    except msgspec.ValidationError as error:
        raise CodecConfigurationError(f"codec {codec!r}: {name}: {value!r}: {error}") from error
    if len(literal) != size:
        raise CodecConfigurationError(
            f"codec {codec!r}: {name} holds {len(literal)} bytes, but {size_name} is {size}"
        )
    return literal


@dataclass(frozen=True, init=False)
class PadCodec(base.SynchronousBytesCodec):
    """bytes -> bytes: adds `nbytes` bytes at the start or the end of every encoded chunk.

    Decoding removes them without a copy. `padding_func` computes them for each chunk that is written. It goes
    with the array, even to other processes, but never into zarr.json, which then has `"padding": null`. So
    after opening the array again, give it with `intarsia.codecs.with_padding`; otherwise writes are refused.

    >>> import numpy as np, zarr
    >>> z = zarr.create(store={}, shape=4, chunks=4, dtype="u1",
    ...                 codecs=[{"name": "bytes"}, PadCodec(location="start", nbytes=3, padding=b"abc")])
    >>> z[:] = [1, 2, 3, 4]
    >>> z.metadata.codecs[1].to_dict()["configuration"]
    {'location': 'start', 'nbytes': 3, 'padding': 'YWJj'}
    """

    is_fixed_size = True
    runs_in_thread = False  # a slice, or one copy

    SPELLING: ClassVar[tuple[str, str, str]] = ("pad", "nbytes", "padding")
    """The names of the codec, of the number of bytes, and of the bytes; a function's name adds _func."""

    location: Literal["start", "end"]
    """Where the padding is in the stored chunk."""

    nbytes: int
    """The number of bytes."""

    padding: str | None = None
    """The bytes to write, in base64: zeros if neither they nor a function are given.

    None, and null in zarr.json, if a function computes them. Such an array can always be read, and also
    written once `intarsia.codecs.with_padding` says what to write.
    """

    padding_func: PaddingFunction | None = field(default=None, repr=False, compare=False)
    """Computes the padding from the encoded chunk; exists at run time only."""

    verify_header: bool = field(default=False, repr=False, compare=False)
    """Whether reading compares the padding with what would be written; a difference is an error. Exists at
    run time only."""

    _is_spelled_out: ClassVar[bool] = True
    """Whether zarr.json has the bytes, or null."""

    def __init__(
        self,
        *,
        location: Literal["start", "end"] = "start",
        nbytes: int,
        padding: bytes | str | None = None,
        padding_func: PaddingFunction | None = None,
        verify_header: bool = False,
    ) -> None:
        codec, sized, padded = self.SPELLING
        where = {"location": location} if codec == "pad" else {}
        size = configuration.check_configuration(codec, {**where, sized: nbytes})[sized]
        literal = _literal(codec, padded, padding, sized, size)
        if padding_func is None:  # zeros are spelled out, so that all who open the array write the same
            literal = bytes(size) if literal is None else literal
        elif not callable(padding_func):
            raise CodecConfigurationError(
                f"codec {codec!r}: {padded}_func: expected a function of the encoded chunk, "
                f"got {type(padding_func).__name__}"
            )
        object.__setattr__(self, "location", location)
        object.__setattr__(self, "nbytes", size)
        text = None if literal is None else base64.b64encode(literal).decode()
        object.__setattr__(self, "padding", text)
        object.__setattr__(self, "padding_func", padding_func)
        object.__setattr__(self, "verify_header", verify_header)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        codec, _, padded = cls.SPELLING
        fields, options = configuration.read_configuration(codec, data), remembered(data)
        pad = cls(**fields | {f"{padded}_func": options.padding, "verify_header": options.verify_header})
        object.__setattr__(pad, "_is_spelled_out", padded in fields)
        if fields.get(padded, "") is None:  # a function computes the bytes: zeros would be wrong
            object.__setattr__(pad, "padding", None)
        return pad

    def to_dict(self) -> dict[str, JSON]:
        codec, sized, padded = self.SPELLING
        fields: dict[str, JSON] = {"location": self.location} if codec == "pad" else {}
        fields[sized] = self.nbytes
        if self._is_spelled_out:
            fields[padded] = self.padding
        return remembering({"name": codec, "configuration": fields}, self.options)

    @cached_property
    def _own(self) -> PaddingFunction | bytes | None:
        """What to put around a chunk; None if zarr.json says that a function computes it."""
        if self.padding_func is not None:
            return self.padding_func
        if self.padding is None:
            return None if self.nbytes else b""  # no bytes need no function
        return base64.b64decode(self.padding)

    @property
    def options(self) -> RuntimeOptions:
        """The options that zarr.json does not hold."""
        return RuntimeOptions(padding=self.padding_func, verify_header=self.verify_header)

    def _source(self, chunk_spec: ArraySpec) -> PaddingFunction | bytes | None:
        """What to put around a chunk: the padding of the array, else the codec's own."""
        array = options_in(chunk_spec.config).padding
        return self._own if array is None else array

    def _padding_for(self, encoded: Octets, chunk_spec: ArraySpec) -> bytes:
        """The bytes to store around this encoded chunk."""
        codec, source = self.SPELLING[0], self._source(chunk_spec)
        if source is None:
            raise ChunkEncodeError(
                f"codec {codec!r}: it is not known which {self.nbytes} bytes to put around the data"
                f"{named_chunk()}: a function computes them, and there is none here.\n"
                "  Give the function: intarsia.codecs.with_padding(array, function); or the bytes: "
                f"intarsia.codecs.with_padding(array, bytes({self.nbytes}))"
            )
        padding: object = source
        if callable(source):
            asks = {"chunk_index": current_chunk_index()} if takes_keyword(source, "chunk_index") else {}
            padding = source(encoded.tobytes(), **asks)
        if isinstance(padding, bytes | bytearray | memoryview):
            padding = bytes(padding)  # of a memoryview, len() counts elements
            if len(padding) == self.nbytes:
                return padding
        returned = f"{len(padding)} bytes" if isinstance(padding, bytes) else type(padding).__name__
        raise ChunkEncodeError(
            f"codec {codec!r}: it needs {self.nbytes} bytes of padding{named_chunk()}, but got {returned}"
        )

    def _verify(self, stored: bytes, encoded: Octets, chunk_spec: ArraySpec) -> None:
        """Raise `ChunkDecodeError` unless these are the bytes that would be written around this chunk."""
        codec = self.SPELLING[0]
        try:
            expected = self._padding_for(encoded, chunk_spec)
        except ChunkEncodeError as error:
            raise ChunkDecodeError(
                f"codec {codec!r}: the header{named_chunk()} cannot be verified (verify_header=True): {error}"
            ) from error
        if stored != expected:
            at = next(i for i, (a, b) in enumerate(zip(stored, expected, strict=True)) if a != b)
            raise ChunkDecodeError(
                f"codec {codec!r}: the header{named_chunk()} is not the expected one: byte {at} is "
                f"{stored[at]:#04x} instead of {expected[at]:#04x}. It is another file, or it is damaged"
            )

    def needs_chunk_index(self, chunk_spec: ArraySpec) -> bool:
        """Whether a function computes the padding: its errors always name the chunk."""
        return callable(self._source(chunk_spec))

    async def decode(
        self, chunks_and_specs: Iterable[tuple[Buffer | None, ArraySpec]]
    ) -> Iterable[Buffer | None]:
        chunks = list(chunks_and_specs)
        if chunks and self.asks_to_verify(chunks[0][1]):
            return [
                None if data is None else await base.in_own_thread(self._decode_sync, data, chunk_spec)
                for data, chunk_spec in chunks
            ]
        # Without a task per chunk, which would take longer than the work.
        return [None if data is None else self._decode_sync(data, chunk_spec) for data, chunk_spec in chunks]

    def asks_to_verify(self, chunk_spec: ArraySpec) -> bool:
        """Whether a function is called to verify what is read."""
        return self._verifies(chunk_spec) and self.needs_chunk_index(chunk_spec)

    def _verifies(self, chunk_spec: ArraySpec) -> bool:
        return self.verify_header or options_in(chunk_spec.config).verify_header

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        return input_byte_length + self.nbytes

    def _encode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        data = chunk_data.as_numpy_array().view(np.uint8)
        padding = np.frombuffer(self._padding_for(data, chunk_spec), dtype=np.uint8)
        parts = (padding, data) if self.location == "start" else (data, padding)
        return chunk_spec.prototype.buffer.from_array_like(np.concatenate(parts))

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        size, nbytes = len(chunk_data), self.nbytes
        if size < nbytes:
            raise ChunkDecodeError(
                f"codec {self.SPELLING[0]!r}: {size} bytes{named_chunk()} are fewer than the {nbytes} "
                "bytes of padding: the chunk is truncated, or was written without this codec"
            )
        cut = nbytes if self.location == "start" else size - nbytes
        first, last = chunk_data[:cut], chunk_data[cut:]
        padding, data = (first, last) if self.location == "start" else (last, first)
        if self._verifies(chunk_spec):
            self._verify(padding.to_bytes(), data.as_numpy_array().view(np.uint8), chunk_spec)
        return base.aligned(data, chunk_spec) if self.aligns else data


@dataclass(frozen=True, init=False, repr=False)
class OffsetCodec(PadCodec):
    """bytes -> bytes: adds a header of `offset` bytes before every encoded chunk: `pad` by an older name.

    Args:
        prefix: The header to write, as bytes or base64 text; zeros if neither it nor a function is given.
        prefix_func: Computes the header from the encoded chunk; exists at run time only.

    >>> OffsetCodec(offset=16, prefix=b"MY_CUSTOM_HEADER").to_dict()["configuration"]
    {'offset': 16, 'prefix': 'TVlfQ1VTVE9NX0hFQURFUg=='}
    """

    SPELLING = ("offset", "offset", "prefix")

    def __init__(
        self,
        *,
        offset: int,
        prefix: bytes | str | None = None,
        prefix_func: PaddingFunction | None = None,
        verify_header: bool = False,
    ) -> None:
        super().__init__(nbytes=offset, padding=prefix, padding_func=prefix_func, verify_header=verify_header)

    @property
    def offset(self) -> int:
        """The number of bytes in the header."""
        return self.nbytes

    @property
    def prefix(self) -> str | None:
        """The header to write, in base64; None means the same as in `PadCodec`."""
        return self.padding

    @property
    def prefix_func(self) -> PaddingFunction | None:
        """Computes the header from the encoded chunk; exists at run time only."""
        return self.padding_func

    def __repr__(self) -> str:
        return f"OffsetCodec(offset={self.offset}, prefix={self.prefix!r})"
