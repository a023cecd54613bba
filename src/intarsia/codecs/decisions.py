"""Decisions: which nested codecs of a `conditional` codec apply to a chunk.

A decision exists at run time only and is never written to zarr.json.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from zarr.core.buffer import Buffer

from intarsia.codecs.context import current_chunk_index, named_chunk
from intarsia.codecs.nested import Chain
from intarsia.errors import ChunkEncodeError, CodecConfigurationError

type DecisionLike = Decision | str | Callable[..., object] | ArrayLike
"""A decision, its name, a function, a bitmask for all chunks, or an array of bitmasks over the chunk grid."""

KEYWORDS = ("chunk_index", "codec_index", "codec", "unencoded_chunk", "trial_encoded_chunk")


class Decision(ABC):
    """A rule that says for each chunk which nested codecs apply; `encode` carries it out.

    >>> parse_decision("never_apply").bounds_size
    True
    """

    bounds_size: ClassVar[bool] = False
    """Whether no chunk ever gets larger than its input and the header, no matter what nested codecs do."""

    needs_index: ClassVar[bool] = False
    """Whether it must know which chunk it decides about."""

    may_block: ClassVar[bool] = True
    """Whether deciding may wait for zarr, for example to read another array; then not in zarr's threads."""

    for_nested: ClassVar[bool] = True
    """Whether a `conditional` codec inside another one may decide by the same rule."""

    @abstractmethod
    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        """The bitmask of the codecs that apply to the chunk, and the chunk encoded by them."""

    def mask_unseen(self, _chain: Chain) -> int | None:
        """The bitmask, if the decision does not need the chunk's data."""
        return None


@dataclass(frozen=True)
class NeverApply(Decision):
    """No nested codec applies: the fastest write.

    >>> NeverApply() == parse_decision("never_apply")
    True
    """

    bounds_size = True
    may_block = False

    def encode(self, data: Buffer, _chain: Chain) -> tuple[int, Buffer]:
        return 0, data

    def mask_unseen(self, _chain: Chain) -> int:
        return 0


@dataclass(frozen=True)
class AlwaysApply(Decision):
    """Every nested codec applies, even if that makes the chunk larger.

    >>> AlwaysApply() == parse_decision("always_apply")
    True
    """

    may_block = False

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        return apply(self.mask_unseen(chain), data, chain)

    def mask_unseen(self, chain: Chain) -> int:
        return (1 << len(chain)) - 1


def apply(mask: int, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
    """`mask`, and `data` encoded by the codecs it names."""
    for position in range(len(chain)):
        if mask >> position & 1:
            data = chain.encode(position, data)
    return mask, data


@dataclass(frozen=True)
class SameMask(Decision):
    """One bitmask for all chunks.

    >>> parse_decision(0b11)
    SameMask(mask=3)
    """

    for_nested = False
    may_block = False

    mask: int
    """Bit i says whether nested codec i applies."""

    def __post_init__(self) -> None:
        if self.mask < 0:
            raise CodecConfigurationError(f"a bitmask must not be negative, but is {self.mask}")

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        return apply(self.mask_unseen(chain), data, chain)

    def mask_unseen(self, chain: Chain) -> int:
        if self.mask >> len(chain):
            raise ChunkEncodeError(
                f"codec {chain.owner!r}: the decision is the bitmask {self.mask:#b}, but there are only "
                f"{len(chain)} nested codecs"
            )
        return self.mask


@dataclass(frozen=True, eq=False)
class MaskPerChunk(Decision):
    """A bitmask for every chunk, computed in advance.

    >>> import numpy as np
    >>> MaskPerChunk(np.array([[0, 3], [3, 1]])).shape
    (2, 2)
    """

    for_nested = False
    may_block = False
    needs_index = True

    masks: np.ndarray[Any, Any]
    """Bit i of an element says whether nested codec i applies to that chunk."""

    def __post_init__(self) -> None:
        # Masked elements are chunks that `masks` did not find: nothing was applied there.
        plan = self.masks
        masks = plan.filled(0) if isinstance(plan, np.ma.MaskedArray) else np.array(plan)
        if masks.dtype.kind == "b":
            masks = masks.astype(np.uint8)
        integers = masks.dtype.kind in "iu" or (
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

    @property
    def shape(self) -> tuple[int, ...]:
        """The chunk grid that the plan covers."""
        return tuple(self.masks.shape)

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        return apply(self.mask_unseen(chain), data, chain)

    def mask_unseen(self, chain: Chain) -> int:
        index = current_chunk_index()
        if len(index) != self.masks.ndim or any(i >= n for i, n in zip(index, self.shape, strict=True)):
            raise ChunkEncodeError(
                f"codec {chain.owner!r}: the plan has bitmasks for a chunk grid of {self.shape}, but chunk "
                f"{index} "
                "is written: give a plan that covers the chunk grid"
            )
        mask = int(self.masks[index])
        if mask >> len(chain):
            raise ChunkEncodeError(
                f"codec {chain.owner!r}: the plan says {mask:#b} for chunk {index}, but there are only "
                f"{len(chain)} nested codecs"
            )
        return mask


@dataclass(frozen=True)
class DecisionFunction(Decision):
    """A function that is called for every nested codec in turn; it returns True to apply the codec.

    It is called with the keywords that it asks for: `chunk_index`; `codec_index`; `codec`, which has a
    `name`; `unencoded_chunk`, the bytes that this codec would get; `trial_encoded_chunk`, its result for
    them. The last two are `bytes`, and the trial runs only for functions that ask for it.

    >>> DecisionFunction(lambda codec, chunk_index: codec.name == "zstd").keywords
    ('chunk_index', 'codec')
    """

    for_nested = False
    needs_index = True  # even if it does not ask: its errors should name the chunk

    function: Callable[..., object]
    """The function."""

    trial_encode: bool | None = None
    """False promises that no trial is needed; with None and True, one runs if the function asks for it."""

    keywords: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The keywords that it is called with."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise CodecConfigurationError(
                f"a decision function must be callable, got {type(self.function).__name__}"
            )
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (ValueError, TypeError) as error:
            raise CodecConfigurationError(
                f"cannot tell which arguments the decision function {self.function!r} takes: "
                "wrap it in a function that names them"
            ) from error
        by_name = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        everything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        keywords = [keyword for keyword in KEYWORDS if everything or keyword in by_name]
        needed = [
            p.name
            for p in parameters
            if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        unknown = [name for name in needed if name not in keywords]
        if unknown:
            raise CodecConfigurationError(
                f"the decision function {self.function!r} asks for {', '.join(unknown)}; "
                f"the keywords it may ask for are {', '.join(KEYWORDS)}"
            )
        if self.trial_encode is False and "trial_encoded_chunk" in keywords:
            if "trial_encoded_chunk" in needed:
                raise CodecConfigurationError(
                    f"the decision function {self.function!r} asks for trial_encoded_chunk, but trial_encode "
                    "is False"
                )
            keywords.remove("trial_encoded_chunk")
        object.__setattr__(self, "keywords", tuple(keywords))

    def encode(self, data: Buffer, chain: Chain) -> tuple[int, Buffer]:
        mask = 0
        for position in range(len(chain)):
            trial = chain.encode(position, data) if "trial_encoded_chunk" in self.keywords else None
            if self._applies(position, chain, data, trial):
                mask |= 1 << position
                data = chain.encode(position, data) if trial is None else trial
        return mask, data

    def mask_unseen(self, chain: Chain) -> int | None:
        if "unencoded_chunk" in self.keywords or "trial_encoded_chunk" in self.keywords:
            return None
        applied = (self._applies(position, chain, None, None) for position in range(len(chain)))
        return sum(1 << position for position, applies in enumerate(applied) if applies)

    def _applies(self, position: int, chain: Chain, data: Buffer | None, trial: Buffer | None) -> bool:
        known: dict[str, object] = {"codec_index": position, "codec": chain.codecs[position]}
        if "chunk_index" in self.keywords:
            known["chunk_index"] = current_chunk_index()
        if "unencoded_chunk" in self.keywords and data is not None:
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
        if isinstance(verdict, bool | np.bool_) or (
            isinstance(verdict, int | np.integer) and int(verdict) in (0, 1)
        ):
            return bool(verdict)
        raise ChunkEncodeError(
            f"codec {chain.owner!r}: the decision on {where} must return True or False, but returned "
            f"{verdict!r}; the chunk was not written"
        )


def named_decisions() -> Mapping[str, Decision]:
    """The decisions that have a name."""
    from intarsia.codecs import trials

    return {
        "always_apply": AlwaysApply(),
        "compress_if_smaller": trials.CompressIfSmaller(),
        "never_apply": NeverApply(),
        "sampled": trials.Sampled(),
        "smallest": trials.Smallest(),
    }


def parse_decision(decision: DecisionLike) -> Decision:
    """`decision` as an object: from a name, a function, a bitmask for all chunks, or an array of bitmasks.

    >>> parse_decision("always_apply")
    AlwaysApply()
    """
    if isinstance(decision, Decision):
        return decision
    if isinstance(decision, str):
        named = named_decisions()
        if decision not in named:
            raise CodecConfigurationError(
                f"there is no decision called {decision!r}; choose from {', '.join(sorted(named))}"
            )
        return named[decision]
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
