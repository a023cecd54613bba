"""The `conditional` codec: a bitmask before each chunk says which nested codecs apply to it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.core.buffer import Buffer
from zarr.core.metadata.v3 import ChunkGridMetadata
from zarr.dtype import ZDType

from intarsia._compat import JSON, ArraySpec, codec_supports_sync
from intarsia.codecs import base, decisions, runtime_options
from intarsia.codecs.compressors import bounds_of, encoded_bound, likely_bound, unknown_bound
from intarsia.codecs.configuration import check_configuration, read_configuration
from intarsia.codecs.context import named_chunk
from intarsia.codecs.nested import Chain, NamedCodec
from intarsia.errors import ChunkDecodeError, CodecConfigurationError

type CodecName = Literal["conditional", "optional"]


@dataclass(frozen=True, init=False)
class ConditionalCodec(base.SynchronousBytesCodec):
    """bytes -> bytes: a header of each chunk says which of the nested codecs were applied to it.

    The decision is made when a chunk is written. It exists only at run time; without one, no nested codec
    applies. Reading needs no decision.

    Args:
        configuration: The configuration as in zarr.json, in place of `codecs` and `header_bits`.
        decision: What decides for each chunk: a name, a function, a bitmask, an array of bitmasks, or a
            decision from `intarsia.codecs`.
        conditional_decision: The same as `decision`.
        optional_decision: The same as `decision`.
        decision_function: A function that decides, in place of `decision`.
        trial_encode: False promises that the function does not need a trial run of the codec.

    >>> import numpy as np, zarr
    >>> from zarr.codecs import BytesCodec
    >>> zstd = {"name": "zstd", "configuration": {"level": 5, "checksum": False}}
    >>> codec = ConditionalCodec(codecs=[zstd], decision="compress_if_smaller")
    >>> stored = {}
    >>> z = zarr.create(store=stored, shape=2000, chunks=1000, dtype="u1", codecs=[BytesCodec(), codec])
    >>> z[:1000] = 7
    >>> z[1000:] = np.random.default_rng(0).integers(0, 256, 1000)
    >>> stored["c/0"].to_bytes()[0], len(stored["c/0"])  # the bitmask, and the size
    (1, 19)
    >>> stored["c/1"].to_bytes()[0], len(stored["c/1"])
    (0, 1001)
    """

    codecs: tuple[BytesBytesCodec, ...]
    """The nested codecs, in the order of encoding."""

    header_bits: int
    """The length of the bitmask before each chunk: a multiple of 8, with at least one bit per codec."""

    name: CodecName = "conditional"
    """The codec's name in zarr.json; `optional` is an older name for it."""

    decision: decisions.Decision | None = field(default=None, compare=False, repr=False)
    """The rule that says which nested codecs apply; it exists at run time only."""

    has_own_header_bits: bool = field(default=False, compare=False, repr=False)
    """Whether `header_bits` is in the configuration, and does not follow from the number of codecs."""

    NAMES: ClassVar[tuple[CodecName, ...]] = ("conditional", "optional")

    def __init__(
        self,
        *,
        codecs: Iterable[base.CodecLike] | None = None,
        header_bits: int | None = None,
        decision: decisions.DecisionLike | None = None,
        conditional_decision: decisions.DecisionLike | None = None,
        optional_decision: decisions.DecisionLike | None = None,
        configuration: Mapping[str, Any] | None = None,
        decision_function: Callable[..., object] | None = None,
        trial_encode: bool | None = None,
        name: CodecName = "conditional",
    ) -> None:
        if name not in self.NAMES:
            raise CodecConfigurationError(f"codec 'conditional': it cannot be called {name!r}")
        if configuration is not None:
            if codecs is not None or header_bits is not None:
                raise CodecConfigurationError(
                    f"codec {name!r}: give codecs and header_bits, or configuration, but not both"
                )
            check_configuration(name, configuration)
            codecs, header_bits = configuration["codecs"], configuration.get("header_bits")
        if codecs is None:
            raise CodecConfigurationError(f"codec {name!r}: codecs is missing")
        spellings = (decision, conditional_decision, optional_decision, decision_function)
        given = [each for each in spellings if each is not None]
        if len(given) > 1:
            raise CodecConfigurationError(
                f"codec {name!r}: decision, conditional_decision, optional_decision and decision_function "
                "mean the same: give one"
            )
        parsed = decisions.parse_decision(given[0]) if given else None
        if trial_encode is not None:
            if decision_function is None:
                raise CodecConfigurationError(f"codec {name!r}: trial_encode belongs to a decision_function")
            parsed = decisions.DecisionFunction(decision_function, trial_encode)
        nested = tuple(_parse_nested(name, position, codec) for position, codec in enumerate(codecs))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "codecs", nested)
        object.__setattr__(self, "header_bits", _parse_header_bits(name, header_bits, len(nested)))
        object.__setattr__(self, "has_own_header_bits", header_bits is not None)
        object.__setattr__(self, "decision", parsed)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        name = cast("CodecName", data["name"])
        decision = runtime_options.remembered(data).decision
        return cls(name=name, decision=decision, **read_configuration(name, data))

    def to_dict(self) -> dict[str, JSON]:
        fields: dict[str, JSON] = {"codecs": [codec.to_dict() for codec in self.codecs]}
        if self.has_own_header_bits:
            fields["header_bits"] = self.header_bits
        return runtime_options.remembering({"name": self.name, "configuration": fields}, self.options)

    @property
    def options(self) -> runtime_options.RuntimeOptions:
        """The options that zarr.json does not hold."""
        return runtime_options.RuntimeOptions(decision=self.decision)

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        super().evolve_from_array_spec(array_spec)
        evolved = tuple(codec.evolve_from_array_spec(array_spec=array_spec) for codec in self.codecs)
        return self if evolved == self.codecs else self._with(codecs=evolved)

    def with_decision(self, decision: decisions.DecisionLike | None) -> Self:
        """The same codec with another decision.

        >>> from zarr.codecs import ZstdCodec
        >>> ConditionalCodec(codecs=[ZstdCodec()]).with_decision("always_apply").decision
        AlwaysApply()
        """
        return self._with(decision=None if decision is None else decisions.parse_decision(decision))

    def _with(self, **changes: object) -> Self:
        changed = object.__new__(type(self))
        for name in ("codecs", "header_bits", "name", "decision", "has_own_header_bits", "aligns"):
            object.__setattr__(changed, name, changes.get(name, getattr(self, name)))
        return changed

    def validate(
        self, *, shape: tuple[int, ...], dtype: ZDType[Any, Any], chunk_grid: ChunkGridMetadata
    ) -> None:
        for codec in self.codecs:
            codec.validate(shape=shape, dtype=dtype, chunk_grid=chunk_grid)

    def compute_encoded_size(self, _input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        raise NotImplementedError(f"the size of a {self.name!r} chunk depends on which codecs apply")

    @property
    def header_bytes(self) -> int:
        """The number of bytes before the data of each chunk."""
        return self.header_bits // 8

    @property
    def _sync_capable(self) -> bool:
        # Used by zarr's fused pipeline, whose threads should not wait for an asynchronous codec.
        return all(map(codec_supports_sync, self.codecs))

    @cached_property
    def named(self) -> tuple[NamedCodec, ...]:
        """The nested codecs as decisions see them."""
        return tuple(NamedCodec(codec) for codec in self.codecs)

    @cached_property
    def holds_another(self) -> bool:
        """Whether one of the nested codecs decides for itself."""
        return any(isinstance(codec, ConditionalCodec) for codec in self.codecs)

    def effective_decision(self, chunk_spec: ArraySpec) -> decisions.Decision | None:
        """The decision that applies: the array's, else the codec's, else a default.

        The default is an outer codec's, or the one that the array remembers, or else the process's.
        """
        options = runtime_options.options_in(chunk_spec.config)
        candidates = (options.decision, self.decision, options.default)
        chosen = next((decision for decision in candidates if decision is not None), None)
        return runtime_options.default_decision() if chosen is None else chosen

    def needs_chunk_index(self, chunk_spec: ArraySpec) -> bool:
        """Whether the decision about a chunk must know which one it is, or may wait for zarr."""
        decision = self.effective_decision(chunk_spec)
        return self.holds_another or (decision is not None and decision.one_by_one)

    def chain(self, chunk_spec: ArraySpec, decision: decisions.Decision | None = None) -> Chain:
        """The nested codecs, ready to work on a chunk."""
        if self.holds_another:
            chunk_spec = runtime_options.for_nested(chunk_spec, decision)
        return Chain(self.name, self.named, chunk_spec)

    def read_mask(self, header: Buffer) -> int:
        """The bitmask at the start of an encoded chunk; raises `ChunkDecodeError` if it is impossible."""
        size = self.header_bytes
        if len(header) < size:
            raise ChunkDecodeError(
                f"codec {self.name!r}: {len(header)} bytes{named_chunk()} are fewer than the {size} bytes of "
                "the header: the chunk is truncated, or was written without this codec"
            )
        mask = int.from_bytes(header[:size].to_bytes(), "little")
        if mask >> len(self.codecs):
            raise ChunkDecodeError(
                f"codec {self.name!r}: the header{named_chunk()} says {mask:#b}, but there are only "
                f"{len(self.codecs)} nested codecs: the chunk is damaged, or was written with more codecs"
            )
        return mask

    def join(self, mask: int, data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        """The stored form of `data`, to which the codecs of `mask` have been applied."""
        header = np.frombuffer(mask.to_bytes(self.header_bytes, "little"), dtype=np.uint8)
        stored = np.concatenate([header, data.as_numpy_array().view(np.uint8)])
        return chunk_spec.prototype.buffer.from_array_like(stored)

    def _encode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        mask, encoded = self.decide(chunk_data, chunk_spec, self.effective_decision(chunk_spec))
        return self.join(mask, encoded, chunk_spec)

    async def _encode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        decision = self.effective_decision(chunk_spec)
        if decision is None or isinstance(decision, decisions.NeverApply):  # one copy is not worth a thread
            return self.join(0, chunk_data, chunk_spec)
        return cast("Buffer", await super()._encode_single(chunk_data, chunk_spec))

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        if not self.read_mask(chunk_data):
            return self._decode_sync(chunk_data, chunk_spec)
        return cast("Buffer", await super()._decode_single(chunk_data, chunk_spec))

    def decide(
        self, data: Buffer, chunk_spec: ArraySpec, decision: decisions.Decision | None
    ) -> tuple[int, Buffer]:
        """The bitmask for a chunk, and the chunk encoded by the nested codecs it names."""
        # Several compressors cannot decode what they make of an empty chunk, so nothing is applied to one.
        if decision is None or not self.codecs or not len(data):
            return 0, data
        return decision.encode(data, self.chain(chunk_spec, decision))

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return self.decode_at_most(chunk_data, chunk_spec, likely_bound(chunk_spec))

    def decode_at_most(
        self,
        chunk_data: Buffer,
        chunk_spec: ArraySpec,
        most: int | None,
        seen: dict[str, int] | None = None,
        path: str = "",
    ) -> Buffer:
        """The decoded chunk; if it has more than `most` bytes, an error is raised before they are made.

        `seen` gets the bitmask, by `path`, and those of applied nested `conditional` codecs.
        """
        mask = self.read_mask(chunk_data)
        if seen is not None:
            seen[path] = mask
        if most is None:
            most = unknown_bound(chunk_spec, len(chunk_data))
        data = chunk_data[self.header_bytes :]
        if mask:
            chain = self.chain(chunk_spec)
            applied = [position for position in range(len(chain)) if mask >> position & 1]
            bounds = bounds_of([self.codecs[position] for position in applied], most, chain.spec)
            for position, bound in zip(reversed(applied), reversed(bounds), strict=True):
                nested = self.codecs[position]
                if seen is not None and isinstance(nested, ConditionalCodec):
                    inside = f"{path}.codecs[{position}]"
                    data = nested.decode_at_most(data, chain.spec, bound, seen, inside)
                else:
                    data = chain.decode(position, data, bound)
        return base.aligned(data, chunk_spec) if self.aligns else data

    def most_encoded(self, most: int, chunk_spec: ArraySpec) -> int | None:
        """The most bytes stored for a chunk of at most `most` bytes, whichever nested codecs apply."""
        largest: int | None = most
        for codec in self.codecs:
            largest = encoded_bound(codec, largest, chunk_spec)
        return None if largest is None else max(most, largest) + self.header_bytes


def _parse_nested(name: str, position: int, codec: base.CodecLike) -> BytesBytesCodec:
    parsed = base.parse_codec(codec)
    if isinstance(parsed, BytesBytesCodec):
        return parsed
    raise CodecConfigurationError(
        f"codec {name!r}: codecs[{position}] is {codec!r}, but only bytes -> bytes codecs can be nested here"
    )


def _parse_header_bits(name: str, header_bits: int | None, codecs: int) -> int:
    smallest = (codecs + 7) // 8 * 8
    if header_bits is None:
        return smallest
    bits: int = check_configuration(name, {"codecs": [], "header_bits": header_bits})["header_bits"]
    if bits < codecs:
        raise CodecConfigurationError(
            f"codec {name!r}: header_bits: {bits} must be a multiple of 8 and at least the number of codecs, "
            f"which is {codecs}; the smallest such number is {smallest}"
        )
    return bits


def one_of(
    alternatives: Iterable[base.CodecLike | Iterable[base.CodecLike]], *, weight: decisions.Weight = "small"
) -> ConditionalCodec:
    """A `conditional` codec that applies exactly one of several pipelines to each chunk, or none.

    Each alternative is a codec or a list of codecs (bytes → bytes). When a chunk is written, all of them are
    tried, and the one that is cheapest to read is stored. The weight says what "cheap" means: "small" counts
    only bytes; a number is how many stored bytes arrive per second, so that a pipeline costs its bytes
    divided by the weight, plus the seconds to decode them, by a table of codecs; "fast" stands for 1e9, a
    local disk. `intarsia.codecs.masks(array, names=True)` shows what was chosen.

    The array is an ordinary one with the codec `conditional`. The choice is made at run time only: after
    opening the array again, give it with `intarsia.codecs.with_decision(array, one_of([…]).decision)`.

    Args:
        alternatives: The pipelines to choose from.
        weight: What counts as cheap, see above.

    >>> import numpy as np, zarr, intarsia
    >>> from intarsia.codecs import one_of
    >>> from zarr.codecs import BytesCodec
    >>> shuffle = {"name": "shuffle", "configuration": {"element_size": 4}}
    >>> codec = one_of(["gzip", [shuffle, "zstd"]])
    >>> z = zarr.create(store={}, shape=6000, chunks=2000, dtype="i4", codecs=[BytesCodec(), codec])
    >>> z[:2000] = np.arange(2000) * 1000
    >>> z[2000:4000] = np.random.default_rng(0).integers(-(2**31), 2**31, 2000)
    >>> intarsia.codecs.masks(z, names=True).tolist()
    ['shuffle+zstd', 'raw', None]
    """
    nested: list[Codec] = []
    masks: list[int] = []
    for alternative in alternatives:
        pipeline = [base.parse_codec(codec) for codec in base.codec_list(alternative)]
        mask, start = 0, 0
        for codec in pipeline:
            # a codec that is in the right place for an earlier alternative serves this one too
            position = nested.index(codec, start) if codec in nested[start:] else len(nested)
            nested[position:] = nested[position:] or [codec]
            mask, start = mask | 1 << position, position + 1
        masks.append(mask)
    return ConditionalCodec(codecs=nested, decision=decisions.OneOf(tuple(masks), weight))


class OptionalCodec:
    """Makes the codec that `optional` means; with `codecs` among the `fields`, that is a `ConditionalCodec`.

    In zarr.json, `codecs` in the configuration means the codec that is registered as `conditional`;
    `mask_codecs` and `data_codecs` mean the codec of the data type `optional`. New arrays get the name
    `conditional`; one that has the name `optional` keeps it.

    >>> codec = OptionalCodec(configuration={"codecs": [{"name": "crc32c"}]})
    >>> type(codec).__name__, codec.name
    ('ConditionalCodec', 'conditional')
    """

    def __new__(cls, **fields: Any) -> Any:
        return _kind(fields.get("configuration") or fields)(**fields)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Codec:
        """The codec that a codec object of zarr.json describes."""
        return cast("Codec", _kind(data.get("configuration")).from_dict(data))


def _kind(configuration: Any) -> Any:
    if isinstance(configuration, Mapping) and {"mask_codecs", "data_codecs"} & set(configuration):
        return import_module("intarsia.nullable.codec").NullableCodec  # by name: it is in a layer above
    return ConditionalCodec
