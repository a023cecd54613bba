"""Advice on encodings: try the candidates on samples, measure, and choose by an objective."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import zarr

from intarsia.array import LogicalArray
from intarsia.errors import ShapeError
from intarsia.tune.candidates import candidates
from intarsia.tune.sample import covered_boxes, sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from intarsia.codecs import CodecLike

__all__ = ["Advice", "Objective", "Trial", "advise"]

type Objective = Literal["size", "balanced", "speed"]

# What a byte costs against a second of work, as the bandwidth of the storage that it comes from: an archive
# where space is everything, object storage, a fast local disk.
BANDWIDTH: Mapping[str, float] = {"size": 1e5, "balanced": 1e8, "speed": 1e9}
READS_PER_WRITE = 10
"""Data is read more often than it is written."""

ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Trial:
    """One encoding, measured on the samples."""

    name: str
    """Short name."""

    codecs: tuple[CodecLike, ...]
    """The codec list, ready for `append`, `add_region` and `recode`."""

    ratio: float
    """Raw size over stored size."""

    encode_seconds: float
    """For all samples, best of several runs."""

    decode_seconds: float
    """For all samples, best of several runs."""

    raw_bytes: int
    """Size of the samples in memory."""

    stored_bytes: int
    """Size of the samples as stored."""

    def cost(self, objective: Objective) -> float:
        """Seconds for a read and a share of a write, with the transfer of the stored bytes."""
        transfer = self.stored_bytes / BANDWIDTH[objective]
        return transfer + self.decode_seconds + self.encode_seconds / READS_PER_WRITE


@dataclass(frozen=True, slots=True)
class Advice:
    """Every encoding that was tried, best first.

    >>> import numpy as np
    >>> advise(np.zeros((100, 100)), objective="size").best.ratio > 100
    True
    """

    objective: Objective
    """What was asked for."""

    trials: tuple[Trial, ...]
    """Measured encodings, best first."""

    @property
    def best(self) -> Trial:
        """The encoding to take."""
        return self.trials[0]

    @property
    def codecs(self) -> tuple[CodecLike, ...]:
        """The codecs of the best one."""
        return self.best.codecs

    def __repr__(self) -> str:
        lines = [f"{'encoding':<18} {'ratio':>7} {'write MB/s':>11} {'read MB/s':>10}   for {self.objective}"]
        for trial in self.trials:
            write = trial.raw_bytes / max(trial.encode_seconds, 1e-9) / 1e6
            read = trial.raw_bytes / max(trial.decode_seconds, 1e-9) / 1e6
            lines.append(f"{trial.name:<18} {trial.ratio:>7.2f} {write:>11.0f} {read:>10.0f}")
        return "\n".join(lines)


def advise(
    data: Any,
    objective: Objective = "balanced",
    *,
    bounds: tuple[tuple[int, int], ...] | None = None,
    encodings: Mapping[str, list[CodecLike]] | None = None,
) -> Advice:
    """Try encodings on samples of an array and rank them.

    `objective` says what counts: "size" the stored bytes, "speed" the time to read from a fast disk,
    "balanced" the time to read from object storage. `bounds` confines it to a box; `encodings` are tried
    instead of the built-in candidates, all of which are lossless. Sizes are exact for the samples; times
    depend on the machine.

    >>> import numpy as np
    >>> noise = np.random.default_rng(0).integers(0, 256, 100_000, dtype="u1")
    >>> advise(noise, "speed").best.ratio > 0.99
    True
    """
    if objective not in BANDWIDTH:
        raise ValueError(f"objective {objective!r} is not one of {sorted(BANDWIDTH)}")
    blocks = _blocks(data, bounds)
    if not blocks:
        raise ShapeError("there are no values to try encodings on: the array, or the box, is empty or a hole")
    tried = candidates(blocks[0].dtype) if encodings is None else encodings
    trials = [_trial(name, list(codecs), blocks) for name, codecs in tried.items()]
    return Advice(objective, tuple(sorted(trials, key=lambda trial: trial.cost(objective))))


def _blocks(data: Any, bounds: tuple[tuple[int, int], ...] | None) -> list[np.ndarray[Any, Any]]:
    if isinstance(data, LogicalArray) and bounds is None:
        boxes = covered_boxes(data)
        chosen = boxes[:: -(-len(boxes) // 4) or 1]
        return [block for box in chosen for block in sample(data, box)]
    return sample(data, bounds)


def _trial(name: str, codecs: list[CodecLike], blocks: list[np.ndarray[Any, Any]]) -> Trial:
    """Encode and decode every block as one chunk."""
    from intarsia.array.manifest import Manifest
    from intarsia.array.member import Encoding, create_member

    encode = decode = 0.0
    stored = 0
    for block in blocks:
        manifest = Manifest.empty(block.shape, tuple(max(n, 1) for n in block.shape), block.dtype)
        store = zarr.storage.MemoryStore()
        chunk = create_member(store, None, manifest, block.shape, Encoding(codecs))
        chunk = chunk.with_config({"write_empty_chunks": True})
        encode += min(_timed(lambda c=chunk, b=block: c.__setitem__(..., b)) for _ in range(ROUNDS))
        decode += min(_timed(lambda c=chunk: c[...]) for _ in range(ROUNDS))
        stored += chunk.nbytes_stored() - len(store._store_dict["zarr.json"])
    raw = sum(block.nbytes for block in blocks)
    return Trial(name, tuple(codecs), raw / max(stored, 1), encode, decode, raw, stored)


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
