"""Choosing encodings: candidates are tried on samples, measured and ranked; `optimize` acts on it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import zarr
from zarr.abc.codec import ArrayArrayCodec
from zarr.codecs import BloscCodec, GzipCodec, ShardingCodec, ZstdCodec

from intarsia.array import LogicalArray, Region
from intarsia.array.manifest import Manifest
from intarsia.array.member import Encoding, create_member
from intarsia.codecs import CodecLike, PackBitsCodec, ShuffleCodec
from intarsia.errors import ShapeError
from intarsia.nullable import NullableValues

type Objective = Literal["size", "balanced", "speed"]
type Bounds = tuple[tuple[int, int], ...]

# What a byte costs against a second of work, as the bandwidth of the storage that it comes from: an archive
# where space is everything, object storage, a fast local disk.
BANDWIDTH: Mapping[str, float] = {"size": 1e5, "balanced": 1e8, "speed": 1e9}
READS_PER_WRITE = 10
"""Data is read more often than it is written."""

ROUNDS = 2
LONG = 0.02
"""Seconds; what takes longer is run once."""

ZSTD_LEVELS = (1, 3, 9, 19)

SAMPLE_BYTES = 8 << 20
"""All blocks together hold about this much."""

BLOCKS = 4
"""Taken from evenly spaced places, because the two ends of an array are rarely alike."""

LEAST_GAIN = 0.05
"""A region is left alone unless it gets cheaper by this share: rewriting has a price too."""


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
    """Processor time for all samples, best of several runs."""

    decode_seconds: float
    """Processor time for all samples, best of several runs."""

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


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one region.

    >>> Change(((0, 4),), "raw", "zstd-9", 1000, 400).saved
    600
    """

    bounds: Bounds
    """The region."""

    before: str
    """Its codecs before."""

    after: str
    """Its encoding now; the same words as before if it was left alone."""

    bytes_before: int
    """Stored bytes before."""

    bytes_after: int
    """Stored bytes now."""

    @property
    def saved(self) -> int:
        """Stored bytes fewer than before."""
        return self.bytes_before - self.bytes_after


def advise(
    data: Any,
    objective: Objective = "balanced",
    *,
    bounds: Bounds | None = None,
    encodings: Mapping[str, list[CodecLike]] | None = None,
) -> Advice:
    """Try encodings on samples of an array and rank them.

    `objective` says what counts: "size" the stored bytes, "speed" the time to read from a fast disk,
    "balanced" the time to read from object storage. `bounds` confines it to a box; `encodings` are tried
    instead of the built-in candidates, all of which are lossless. Sizes are exact for the samples; times
    are those of a processor of this machine, whatever else it does.

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


def _blocks(data: Any, bounds: Bounds | None) -> list[np.ndarray[Any, Any]]:
    if isinstance(data, LogicalArray) and bounds is None:
        boxes = [region.bounds for region in data.regions]
        chosen = boxes[:: -(-len(boxes) // BLOCKS) or 1]
        return [block for box in chosen for block in sample(data, box)]
    return sample(data, bounds)


def _trial(name: str, codecs: list[CodecLike], blocks: list[np.ndarray[Any, Any]]) -> Trial:
    """Encode and decode every block as one chunk."""
    encode = decode = 0.0
    stored = 0
    for block in blocks:
        manifest = Manifest.empty(block.shape, tuple(max(n, 1) for n in block.shape), block.dtype)
        stored_keys: dict[str, Any] = {}
        store = zarr.storage.MemoryStore(stored_keys)
        chunk = create_member(store, None, manifest, block.shape, Encoding(codecs))
        chunk = chunk.with_config({"write_empty_chunks": True})
        encode += _timed(lambda c=chunk, b=block: c.__setitem__(..., b))
        decode += _timed(lambda c=chunk: c[...])
        stored += chunk.nbytes_stored() - len(stored_keys["zarr.json"])
    raw = sum(block.nbytes for block in blocks)
    return Trial(name, tuple(codecs), raw / max(stored, 1), encode, decode, raw, stored)


def _timed(work: Any) -> float:
    """Processor time, the best of several runs; what takes long is measured well enough by one.

    The clock on the wall would count what other programs do meanwhile, and advise by chance.
    """
    runs: list[float] = []
    while len(runs) < ROUNDS and sum(runs) < LONG:
        start = time.process_time()
        work()
        runs.append(time.process_time() - start)
    return min(runs)


def optimize(array: LogicalArray, objective: Objective = "balanced") -> tuple[Change, ...]:
    """Recode every region for which another encoding is better by the objective; say what was done.

    The values stay the same. In a transaction all of it is one commit, and an older snapshot undoes it.

    >>> import intarsia, numpy as np
    >>> array = intarsia.create({}, "a", shape=(0, 100), chunks=(50, 100), dtype="int64")
    >>> array.append(np.zeros((100, 100), dtype="int64") + np.arange(100), codecs=[])
    >>> [change.before for change in array.optimize("size")]
    ['raw']
    """
    changes = []
    for region in array.regions:
        before, size = region.codec_names, region.nbytes_stored
        now, stored = {"now": _inner(region)}, array.as_stored(region.bounds)
        current = advise(stored, objective, bounds=region.bounds, encodings=now).best
        best = advise(stored, objective, bounds=region.bounds).best
        if best.cost(objective) < (1 - LEAST_GAIN) * current.cost(objective):
            chunks, shards = _shapes(region)
            array.recode(region.bounds, codecs=best.codecs, chunks=chunks, shards=shards)
            changed = array.region_at(tuple(a for a, _ in region.bounds))
            assert changed is not None
            changes.append(Change(region.bounds, before, best.name, size, changed.nbytes_stored))
        else:
            changes.append(Change(region.bounds, before, before, size, size))
    return tuple(changes)


def _inner(region: Region) -> list[Any]:
    """The codecs of a single chunk, which lie inside those of a shard."""
    codecs = region.codecs
    inner = list(codecs[0].codecs) if isinstance(codecs[0], ShardingCodec) else list(codecs)
    # Those that turn axes were made for the member's, and a view shows others.
    return [codec for codec in inner if region.view is None or not isinstance(codec, ArrayArrayCodec)]


def _shapes(region: Region) -> list[tuple[int, ...] | None]:
    """The shapes of the member's chunks and shards, as the array has its axes."""
    shapes, view = (region.member.chunks, region.member.shards), region.view
    return [s if s is None or view is None else tuple(n for n, _ in view.grid(s)) for s in shapes]


def candidates(dtype: np.dtype[Any]) -> dict[str, list[CodecLike]]:
    """Codec lists by name; none of them loses information.

    >>> list(candidates(np.dtype("u1")))
    ['raw', 'blosc-lz4', 'blosc-zstd', 'gzip-6', 'zstd-1', 'zstd-3', 'zstd-9', 'zstd-19']
    """
    kind = np.dtype(dtype)
    encodings: dict[str, list[CodecLike]] = {
        "raw": [],
        "blosc-lz4": [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=kind.itemsize)],
        "blosc-zstd": [BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle", typesize=kind.itemsize)],
        "gzip-6": [GzipCodec(level=6)],
    }
    if kind.kind == "b":
        encodings["packbits"] = [PackBitsCodec()]
        encodings["packbits+zstd-9"] = [PackBitsCodec(), ZstdCodec(level=9)]
    for level in ZSTD_LEVELS:
        encodings[f"zstd-{level}"] = [ZstdCodec(level=level)]
    if kind.itemsize > 1:
        for level in ZSTD_LEVELS:
            encodings[f"shuffle+zstd-{level}"] = [
                ShuffleCodec(element_size=kind.itemsize),
                ZstdCodec(level=level),
            ]
    return encodings


def sample(data: Any, bounds: Bounds | None = None) -> list[np.ndarray[Any, Any]]:
    """Contiguous blocks of an array, or of a box of it, evenly spaced over its first axis.

    >>> [block.shape for block in sample(np.zeros((10, 4)))]
    [(2, 4), (2, 4), (2, 4), (2, 4)]
    """
    array = data if hasattr(data, "shape") and hasattr(data, "dtype") else np.asarray(data)
    box = tuple((0, n) for n in array.shape) if bounds is None else bounds
    shape = [b - a for a, b in box]
    if not prod(shape):
        return []
    if not shape:
        return [_block(array[...])]
    itemsize = max(1, np.dtype(array.dtype).itemsize)
    # Trailing axes are cut only where a single row is larger than a block.
    budget = SAMPLE_BYTES // BLOCKS // itemsize
    keep = list(shape)
    for axis in range(1, len(keep)):
        while prod(keep[1:]) > budget and keep[axis] > 1:
            keep[axis] = -(-keep[axis] // 2)
    rows = max(1, min(budget // max(1, prod(keep[1:])), shape[0] // BLOCKS or 1))
    count = min(BLOCKS, max(1, shape[0] // rows))
    starts = [box[0][0] + (shape[0] - rows) * i // max(1, count - 1) for i in range(count)]
    rest = tuple(slice(a, a + n) for (a, _), n in zip(box[1:], keep[1:], strict=True))
    return [_block(array[(slice(at, at + rows), *rest)]) for at in sorted(set(starts))]


def _block(part: Any) -> Any:
    """A part as contiguous memory of its own, with its nulls if it has any."""
    if isinstance(part, np.ma.MaskedArray | NullableValues):
        return NullableValues.of(part, getattr(part, "depth", 1)).copy()
    return np.ascontiguousarray(part)
