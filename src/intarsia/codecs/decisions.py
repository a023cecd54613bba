"""Decisions: which nested codecs of a `conditional` codec apply to a chunk.

A decision exists at run time only and is never written to zarr.json. Some look at the data: they try nested
codecs, or whole pipelines, and keep the best. The result of the trial is stored; nothing is encoded twice.
"""

import inspect
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numcodecs import lz4
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike
from zarr.core.buffer import Buffer

from intarsia.codecs.coding_costs import decode_cost
from intarsia.codecs.context import current_chunk_index, named_chunk
from intarsia.codecs.nested import Chain, NamedCodec
from intarsia.errors import ChunkEncodeError, CodecConfigurationError

type DecisionLike = Decision | str | Callable[..., object] | ArrayLike
"""A decision, its name, a function, a bitmask for all chunks, or an array of bitmasks over the chunk grid."""

KEYWORDS = ("chunk_index", "codec_index", "codec", "unencoded_chunk", "trial_encoded_chunk")


class Decision(ABC):
    """A rule that says for each chunk which nested codecs apply; `encode` carries it out.

    >>> issubclass(type(parse_decision("never_apply")), Decision)
    True
    """

    one_by_one: bool = True
    """Whether chunks are encoded one by one, in threads that zarr does not need: because it must know which
    chunk it decides about, or may wait for zarr, for example to read another array."""

    is_about_one_codec: bool = False
    """Whether it knows the codecs of one `conditional` codec, so that one inside that needs its own."""

    @abstractmethod
    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        """The bitmask of the codecs that apply to the chunk, and the chunk encoded by them."""


class KnownMask(Decision):
    """A decision that needs no data.

    >>> isinstance(parse_decision(0b11), KnownMask)
    True
    """

    one_by_one = False

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        mask = self.mask_for(chain)
        if mask >> len(chain):
            raise ChunkEncodeError(
                f"codec {chain.owner!r}: the decision{named_chunk()} is the bitmask {mask:#b}, but there are "
                f"only {len(chain)} nested codecs"
            )
        for position in range(len(chain)):
            if mask >> position & 1:
                data = chain.encode(position, data)
        return mask, data

    @abstractmethod
    def mask_for(self, chain: Chain) -> int:
        """The bitmask of the chunk being worked on."""


@dataclass(frozen=True)
class NeverApply(KnownMask):
    """No nested codec applies: the fastest write.

    >>> NeverApply() == parse_decision("never_apply")
    True
    """

    def mask_for(self, _chain: Chain) -> int:
        return 0


@dataclass(frozen=True)
class AlwaysApply(KnownMask):
    """Every nested codec applies, even if that makes the chunk larger.

    >>> AlwaysApply() == parse_decision("always_apply")
    True
    """

    def mask_for(self, chain: Chain) -> int:
        return (1 << len(chain)) - 1


@dataclass(frozen=True)
class SameMask(KnownMask):
    """One bitmask for all chunks.

    >>> parse_decision(0b11)
    SameMask(mask=3)
    """

    is_about_one_codec = True

    mask: int
    """Bit i says whether nested codec i applies."""

    def __post_init__(self) -> None:
        if self.mask < 0:
            raise CodecConfigurationError(f"a bitmask must not be negative, but is {self.mask}")

    def mask_for(self, _chain: Chain) -> int:
        return self.mask


@dataclass(frozen=True, eq=False)
class MaskPerChunk(KnownMask):
    """A bitmask for every chunk, computed in advance.

    >>> import numpy as np
    >>> MaskPerChunk(np.array([[0, 3], [3, 1]])).masks.shape
    (2, 2)
    """

    one_by_one = is_about_one_codec = True

    masks: np.ndarray[Any, Any]
    """Bit i of an element says whether nested codec i applies to that chunk."""

    def __post_init__(self) -> None:
        # Masked elements are chunks that `masks` did not find: nothing was applied there.
        plan = self.masks
        masks = plan.filled(0) if isinstance(plan, np.ma.MaskedArray) else np.array(plan)
        integers = masks.dtype.kind in "biu" or (
            masks.dtype.kind == "O" and all(type(mask) is int for mask in masks.flat)
        )
        if not integers:
            raise CodecConfigurationError(
                f"a plan of bitmasks must be an array of integers, got an array of {masks.dtype}"
            )
        if masks.size and masks.min() < 0:
            raise CodecConfigurationError("a plan of bitmasks must not have negative elements")
        masks.flags.writeable = False
        object.__setattr__(self, "masks", masks)

    def mask_for(self, chain: Chain) -> int:
        index, shape = current_chunk_index(), self.masks.shape
        if len(index) != len(shape) or any(i >= n for i, n in zip(index, shape, strict=True)):
            raise ChunkEncodeError(
                f"codec {chain.owner!r}: the plan has bitmasks for a chunk grid of {shape}, but chunk "
                f"{index} is written: give a plan that covers the chunk grid"
            )
        return int(self.masks[index])


@dataclass(frozen=True)
class OtherLevels(Decision):
    """A decision that is carried out by codecs at other levels than zarr.json says.

    Any level decodes the same.
    """

    decision: Decision
    """Decides which codecs apply."""

    levels: tuple[tuple[tuple[NamedCodec, ...], tuple[NamedCodec, ...]], ...]
    """Nested codecs of an array, and the ones that encode in their place."""

    @property
    def one_by_one(self) -> bool:  # type: ignore[override]
        return self.decision.one_by_one

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        others = (others for own, others in self.levels if own == chain.codecs)
        return self.decision.encode(data, replace(chain, codecs=next(others, chain.codecs)))


@dataclass(frozen=True)
class DecisionFunction(Decision):
    """A function that is called for every nested codec in turn; it returns True to apply the codec.

    It is called with the keywords that it asks for: `chunk_index`; `codec_index`; `codec`, which has a
    `name`; `unencoded_chunk`, the bytes that this codec would get; `trial_encoded_chunk`, its result for
    them. The last two are `bytes`, and the trial runs only for functions that ask for it.

    >>> DecisionFunction(lambda codec, chunk_index: codec.name == "zstd").keywords
    ('chunk_index', 'codec')
    """

    is_about_one_codec = True

    function: Callable[..., object]
    """The function."""

    trial_encode: bool | None = None
    """False promises that no trial is needed; with None and True, one runs if the function asks for it."""

    keywords: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The keywords that it is called with."""

    def __post_init__(self) -> None:
        try:
            signature = inspect.signature(self.function)
            everything = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
            keywords = [name for name in KEYWORDS if everything or name in signature.parameters]
            if self.trial_encode is False:
                keywords = [name for name in keywords if name != "trial_encoded_chunk"]
            signature.bind(**dict.fromkeys(keywords))
        except (ValueError, TypeError) as error:
            raise CodecConfigurationError(
                f"the decision function {self.function!r} cannot be called: {error}.\n"
                f"  It may ask for {', '.join(KEYWORDS)}; for the last one, unless trial_encode is False"
            ) from error
        object.__setattr__(self, "keywords", tuple(keywords))

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        mask = 0
        for position in range(len(chain)):
            trial = chain.encode(position, data) if "trial_encoded_chunk" in self.keywords else None
            if self._applies(position, chain, data, trial):
                mask |= 1 << position
                data = chain.encode(position, data) if trial is None else trial
        return mask, data

    def _applies(self, position: int, chain: Chain, data: Buffer, trial: Buffer | None) -> bool:
        known: dict[str, object] = {"codec_index": position, "codec": chain.codecs[position]}
        if "chunk_index" in self.keywords:
            known["chunk_index"] = current_chunk_index()
        if "unencoded_chunk" in self.keywords:
            known["unencoded_chunk"] = data.to_bytes()
        if trial is not None:
            known["trial_encoded_chunk"] = trial.to_bytes()
        where = f"nested codec {position} ({chain.codecs[position].name!r}){named_chunk()}"
        try:
            verdict = self.function(**{keyword: known[keyword] for keyword in self.keywords})
        except Exception as error:
            error.add_note(f"raised by the decision on {where}; the chunk was not written")
            raise
        # A NumPy bool is accepted, and so is the 0 or 1 of a bit of an integer.
        if isinstance(verdict, int | np.integer | np.bool_) and verdict in (0, 1):
            return bool(verdict)
        raise ChunkEncodeError(
            f"codec {chain.owner!r}: the decision on {where} must return True or False, but returned "
            f"{verdict!r}; the chunk was not written"
        )


type Octets = np.ndarray[Any, np.dtype[np.uint8]]

COMB_PIECES, COMB_PIECE_BYTES = 256, 16
"""Enough pieces to hit a stretch of 1/64 of a chunk several times, each long enough for LZ4 to recognise."""


def attempt(chain: Chain, position: int, data: Buffer) -> Buffer | None:
    """The codec's result, or None if it cannot work on these bytes: such a codec is skipped.

    HDF5 treats its optional filters this way. An example is `shuffle` on a length that is not a multiple.
    """
    try:
        return chain.encode(position, data)
    except ValueError:
        return None


@dataclass(frozen=True)
class CompressIfSmaller(Decision):
    """A codec applies if its result is smaller than its input.

    A codec that keeps the length, such as `shuffle`, applies if it is followed by one whose result is
    smaller. In one pass, every codec is tried once, on the running bytes.

    >>> CompressIfSmaller() == parse_decision("compress_if_smaller")
    True
    """

    one_by_one = False

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        best_mask, best = 0, data
        mask, running = 0, data
        for position in range(len(chain)):
            trial = attempt(chain, position, running)
            if trial is None or len(trial) > len(running):
                continue
            mask, running = mask | 1 << position, trial
            if len(running) < len(best):
                best_mask, best = mask, running
        return best_mask, best


def _check_count(decision: str, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CodecConfigurationError(f"{decision}: {name} must be a number above 0, got {value!r}")


@dataclass(frozen=True)
class Sampled(Decision):
    """Like `compress_if_smaller`, but first estimates whether it is worth it, as ZFS does.

    A few contiguous samples, evenly spread over the chunk, go through the nested codecs at their fastest
    levels. If they promise nothing, LZ4 tries a comb of short pieces from all over the chunk, which reveals
    stretches of equal bytes between the samples. The chunk is compressed only if one of the two saves at
    least the fraction `min_saving`; noise is stored as it is, for little more than the price of a copy. The
    same chunk always gets the same answer.

    >>> Sampled(samples=8)
    Sampled(samples=8, sample_bytes=2048, min_saving=0.015625)
    """

    one_by_one = False

    samples: int = 4
    """The number of samples; a chunk less than twice as long as all of them is not sampled."""

    sample_bytes: int = 2048
    """The length of one sample."""

    min_saving: float = 1 / 64
    """The fraction of a sample that must be saved."""

    def __post_init__(self) -> None:
        _check_count("Sampled", "samples", self.samples)
        _check_count("Sampled", "sample_bytes", self.sample_bytes)
        if not 0 <= self.min_saving < 1:
            raise CodecConfigurationError(f"Sampled: min_saving must be in [0, 1), got {self.min_saving!r}")

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        if (
            len(chain)
            and len(data) >= 2 * self.samples * self.sample_bytes
            and not self._promises(data, chain)
        ):
            return 0, data
        return CompressIfSmaller().encode(data, chain)

    def _promises(self, data: Buffer, chain: Chain) -> bool:
        """Whether it is worth trying to compress all of `data`."""
        unit = max(1, chain.spec.dtype.to_native_dtype().itemsize)  # filters need whole elements
        content = data.as_numpy_array().view(np.uint8)
        sample = _pieces(content, unit, self.samples, self.sample_bytes)
        buffer = chain.spec.prototype.buffer.from_array_like(sample)
        _, encoded = CompressIfSmaller().encode(buffer, chain.fastest())
        if sample.size - len(encoded) >= self.min_saving * sample.size:
            return True
        comb = _pieces(content, unit, COMB_PIECES, COMB_PIECE_BYTES)
        return comb.size - len(lz4.compress(comb)) >= self.min_saving * comb.size


def _pieces(content: Octets, unit: int, count: int, nbytes: int) -> Octets:
    """Pieces of about so many bytes, of whole elements and at equal distances, one after another."""
    size = max(unit, nbytes // unit * unit)
    starts = np.arange(count) * (content.size - size) // max(1, count - 1) // unit * unit
    pieces: Octets = sliding_window_view(content, size)[starts]
    return pieces.reshape(-1)


type Weight = Literal["small", "fast"] | float
"""How much speed counts besides size: a name, or how many stored bytes arrive per second."""

NAMED_WEIGHTS = {"small": 0.0, "fast": 1e9}
"""Only size counts; or bytes come from a fast local disk, so that decoding takes most of the time."""


@dataclass(frozen=True)
class OneOf(Decision):
    """Tries alternative pipelines and keeps the one that is cheapest to read; `one_of` makes it.

    A pipeline costs the time until its bytes arrive, plus the time to decode them, by the table in
    `codecs/coding_costs.py`. Storing the chunk as it is, is always an alternative. With the weight "small",
    only size counts.

    >>> from intarsia.codecs import one_of
    >>> one_of(["gzip", "zstd"]).decision
    OneOf(alternatives=(1, 2), weight='small')
    """

    one_by_one = False
    is_about_one_codec = True

    alternatives: tuple[int, ...]
    """The bitmask of each pipeline."""

    weight: Weight = "small"
    """How much speed counts besides size."""

    _bytes_per_second: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        weight = NAMED_WEIGHTS.get(self.weight) if isinstance(self.weight, str) else self.weight
        if weight is None or isinstance(weight, bool) or not 0 <= weight < math.inf:
            raise CodecConfigurationError(
                f"the weight {self.weight!r} is not 'small', 'fast' or a number of bytes per second"
            )
        object.__setattr__(self, "_bytes_per_second", float(weight))

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        best_mask, best, least = 0, data, self._cost(0, len(data), len(data), chain)
        made: dict[int, Buffer | None] = {0: data}
        for mask in self.alternatives:
            encoded = self._encoded(mask, chain, made)
            if encoded is None or len(encoded) >= len(data):
                continue
            cost = self._cost(mask, len(encoded), len(data), chain)
            if cost < least:
                best_mask, best, least = mask, encoded, cost
        return best_mask, best

    def _encoded(self, mask: int, chain: Chain, made: dict[int, Buffer | None]) -> Buffer | None:
        """The chunk encoded by the codecs of a bitmask; None if one cannot work on its bytes."""
        if mask not in made:
            last = mask.bit_length() - 1
            before = self._encoded(mask ^ 1 << last, chain, made)
            made[mask] = None if before is None else attempt(chain, last, before)
        return made[mask]

    def _cost(self, mask: int, stored: int, size: int, chain: Chain) -> float:
        """The seconds until the chunk is read, or just its stored size if nothing else counts."""
        if not self._bytes_per_second:
            return stored
        applied = [named.codec for position, named in enumerate(chain.codecs) if mask >> position & 1]
        return stored / self._bytes_per_second + decode_cost(applied) * 1e-9 * size


@dataclass(frozen=True)
class Smallest(Decision):
    """Tries combinations of the nested codecs and keeps the smallest result: slow and thorough.

    Combinations with fewer codecs are tried first. Of two equally small results, the one with fewer codecs is
    kept.

    >>> Smallest(trials=16)
    Smallest(trials=16)
    """

    one_by_one = False

    trials: int = 64
    """How often a codec may be run for one chunk: enough for all combinations of six."""

    def __post_init__(self) -> None:
        _check_count("Smallest", "trials", self.trials)

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        positions = range(len(chain))
        tried = itertools.chain.from_iterable(
            itertools.combinations(positions, size + 1) for size in positions
        )
        masks = (sum(1 << position for position in each) for each in tried)
        return OneOf(tuple(itertools.islice(masks, self.trials))).encode(data, chain)


NAMED_DECISIONS: Mapping[str, Decision] = {
    "always_apply": AlwaysApply(),
    "compress_if_smaller": CompressIfSmaller(),
    "never_apply": NeverApply(),
    "sampled": Sampled(),
    "smallest": Smallest(),
}
"""The decisions that have a name."""


def parse_decision(decision: DecisionLike) -> Decision:
    """`decision` as an object: from a name, a function, a bitmask for all chunks, or an array of bitmasks.

    >>> parse_decision("always_apply")
    AlwaysApply()
    """
    if isinstance(decision, Decision):
        return decision
    if isinstance(decision, str):
        if decision not in NAMED_DECISIONS:
            raise CodecConfigurationError(
                f"there is no decision called {decision!r}; choose from {', '.join(NAMED_DECISIONS)}"
            )
        return NAMED_DECISIONS[decision]
    if callable(decision):
        return DecisionFunction(decision)
    if isinstance(decision, int | np.integer) and not isinstance(decision, bool):
        return SameMask(int(decision))
    if decision is None or (np.ndim(decision) == 0 and not isinstance(decision, np.ndarray)):
        raise CodecConfigurationError(
            f"{decision!r} is not a decision: give a name, a function, a bitmask, or an array of bitmasks "
            "over the chunk grid"
        )
    return MaskPerChunk(decision if isinstance(decision, np.ndarray) else np.asarray(decision))
