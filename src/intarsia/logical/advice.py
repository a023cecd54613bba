"""`advise`: encodings are tried on samples of an array, and ranked by stored size and what coding costs.

Samples are a few blocks, which together hold about as much as there is time to try. Nothing is timed: what
coding costs is in a table, so the same values and the same objective always give the same answer.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from operator import add, mul
from typing import Any, Literal

import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from intarsia.codecs import CodecLike, PackBitsCodec, ShuffleCodec, parse_codecs
from intarsia.codecs.coding_costs import decode_cost, encode_cost
from intarsia.display import Column, Result, Table, names_text, size_text
from intarsia.errors import DataTypeError, ShapeError
from intarsia.logical.encoding import Encoding, create_member
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.box import Bounds, BoundsLike, Box, block_shape, element_bounds
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.packing import Packing
from intarsia.nullable import NullableValues

type Objective = Literal["size", "balanced", "speed"]

# The price of a byte in seconds of work, as the bandwidth of its storage: an archive where space is
# everything, object storage, a fast local disk.
BANDWIDTH: Mapping[str, float] = {"size": 1e5, "balanced": 1e8, "speed": 1e9}
READS_PER_WRITE = 10
"""Data is read more often than it is written."""

ZSTD_LEVELS = (1, 3, 9)
HIGHEST_ZSTD_LEVEL = 19
"""The price of writing is too high for any objective but size, and so is that of trying it often."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One encoding, tried on the samples."""

    name: str
    """A short name."""

    codecs: tuple[CodecLike, ...]
    """The codec list, ready for `append`, `add_region` and `recode`."""

    ratio: float
    """Raw size over stored size."""

    encode_seconds: float
    """Processor time for all samples, by the table in `intarsia/codecs/coding_costs.py`."""

    decode_seconds: float
    """Processor time for all samples, by the same table."""

    raw_bytes: int
    """The size of the samples in memory."""

    stored_bytes: int
    """The size of the samples as stored."""

    def cost(self, objective: Objective) -> float:
        """The seconds for a read and a share of a write, including the transfer of the stored bytes.

        If size is the objective, only the transfer counts.
        """
        transfer = self.stored_bytes / BANDWIDTH[objective]
        if objective == "size":
            return transfer
        return transfer + self.decode_seconds + self.encode_seconds / READS_PER_WRITE

    def speed(self, seconds: float) -> str:
        """The speed at which the samples take this long."""
        return f"{self.raw_bytes / max(seconds, 1e-9) / 1e6:,.0f}"


@dataclass(frozen=True, slots=True, repr=False)
class Advice(Result):
    """Every encoding that was tried, best first.

    >>> import numpy as np
    >>> advise(np.zeros((100, 100)), objective="size").best.ratio > 100
    True
    """

    objective: Objective
    """What the choice optimises."""

    trials: tuple[Trial, ...]
    """The encodings, best first."""

    @property
    def best(self) -> Trial:
        """The best encoding."""
        return self.trials[0]

    @property
    def codecs(self) -> tuple[CodecLike, ...]:
        """The codecs of the best encoding."""
        return self.best.codecs

    @property
    def summary(self) -> str:
        """One line that says what was tried and what is best."""
        tried = f"{len(self.trials)} encodings of {size_text(self.best.raw_bytes)} of samples"
        return f"{tried}, best first for {self.objective}: {self.best.name}"

    def blocks(self, most: int | None = None) -> tuple[str, Table]:
        """The summary, and a table of all trials, with the best encoding marked."""
        columns: dict[str, Column[Trial]] = {
            "": lambda trial: "→" if trial is self.best else "",
            "Encoding": "name",
            "Ratio": lambda trial: f"{trial.ratio:.2f}x",
            "Write MB/s": lambda trial: trial.speed(trial.encode_seconds),
            "Read MB/s": lambda trial: trial.speed(trial.decode_seconds),
        }
        return self.summary, Table.of(self.trials[:most], columns)


def advise(
    data: Any,
    objective: Objective = "balanced",
    *,
    bounds: BoundsLike | None = None,
    encodings: Mapping[str, list[CodecLike]] | None = None,
    chunks: tuple[int, ...] | None = None,
    packing: Packing | None = None,
) -> Advice:
    """Try encodings on samples of an array and rank them.

    `data` is anything with values: a logical array, a Zarr array, a `Reader`, a NumPy array. `objective` says
    what counts: "size", the stored bytes; "speed", the time to read from a fast disk; "balanced", the time to
    read from object storage. `bounds` limits the samples to a box. `encodings` are tried instead of the
    built-in candidates, which are all lossless. Sizes are exact for the samples. What coding costs is taken
    from a table, so the same values always get the same answer. `chunks` and `packing` say in what chunks and
    with what packing the values will be stored, if that is known.

    >>> import numpy as np
    >>> noise = np.random.default_rng(0).integers(0, 256, 100_000, dtype="u1")
    >>> advise(noise, "speed").best.ratio > 0.99
    True
    """
    if objective not in BANDWIDTH:
        raise ValueError(f"objective {objective!r}: {names_text(str(objective), BANDWIDTH)}")
    values = with_values(data)
    box = None if bounds is None else tuple(element_bounds(bounds, values.shape))
    blocks = blocks_of(values, box, chunks)
    if not blocks:
        raise ShapeError("there are no values to try encodings on: the array or the box is empty or a hole")
    if packing is not None:
        blocks = [packing.encode(block) for block in blocks]
    tried = candidates(blocks[0].dtype) if encodings is None else encodings
    trials = [_trial(name, list(codecs), blocks, chunks) for name, codecs in tried.items()]
    if encodings is None and objective == "size":
        trials.append(_trial(*_at_highest_level(trials), blocks, chunks))
    return Advice(objective, tuple(sorted(trials, key=lambda t: (t.cost(objective), t.decode_seconds))))


def _trial(
    name: str,
    codecs: list[CodecLike],
    blocks: list[np.ndarray[Any, Any]],
    chunks: tuple[int, ...] | None = None,
) -> Trial:
    """Encode every block, as one chunk unless the chunk shape is known."""
    stored = 0
    for block in blocks:
        whole = tuple(max(n, 1) for n in block.shape)
        # If chunks are too large to be tried, blocks are parts of them.
        shape = chunks if chunks is not None and is_small(chunks, block.dtype) else whole
        # Objects here are bytes of any length: Zarr v3 has no place for other objects.
        data_type = "variable_length_bytes" if block.dtype == object else block.dtype
        manifest = Manifest.empty(block.shape, shape, data_type)
        stored_keys: dict[str, Any] = {}
        store = zarr.storage.MemoryStore(stored_keys)
        chunk = create_member(store, None, manifest, block.shape, Encoding(codecs))
        chunk = chunk.with_config({"write_empty_chunks": True})
        chunk[...] = block
        stored += chunk.nbytes_stored() - len(stored_keys["zarr.json"])
    raw, parsed = sum(block.nbytes for block in blocks), parse_codecs(codecs)
    encode, decode = encode_cost(parsed) * raw * 1e-9, decode_cost(parsed) * raw * 1e-9
    return Trial(name, tuple(codecs), raw / max(stored, 1), encode, decode, raw, stored)


def candidates(dtype: np.dtype[Any]) -> dict[str, list[CodecLike]]:
    """Codec lists by name; none of them loses information.

    >>> list(candidates(np.dtype("u1")))
    ['raw', 'blosc-lz4-5', 'blosc-zstd-5-bitshuffle', 'gzip-6', 'zstd-1', 'zstd-3', 'zstd-9']
    """
    kind = np.dtype(dtype)
    # Texts and bytes of any length are stored one after another: elements do not have one size.
    size = 1 if kind.kind in "TO" else kind.itemsize
    encodings: dict[str, list[CodecLike]] = {
        "raw": [],
        "blosc-lz4-5": [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=size)],
        "blosc-zstd-5-bitshuffle": [BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle", typesize=size)],
        "gzip-6": [GzipCodec(level=6)],
    }
    if kind.kind == "b":
        encodings["packbits"] = [PackBitsCodec()]
        encodings["packbits+zstd-9"] = [PackBitsCodec(), ZstdCodec(level=9)]
    for level in ZSTD_LEVELS:
        encodings[f"zstd-{level}"] = [ZstdCodec(level=level)]
    if size > 1:
        for level in ZSTD_LEVELS:
            encodings[f"shuffle+zstd-{level}"] = [ShuffleCodec(element_size=size), ZstdCodec(level=level)]
    return encodings


def _at_highest_level(trials: list[Trial]) -> tuple[str, list[CodecLike]]:
    """The smallest of the encodings that end in zstd, with its highest level."""
    by_zstd = [trial for trial in trials if trial.codecs and isinstance(trial.codecs[-1], ZstdCodec)]
    best = min(by_zstd, key=lambda trial: trial.stored_bytes)
    prefix, _, _ = best.name.rpartition("-")
    return f"{prefix}-{HIGHEST_ZSTD_LEVEL}", [*best.codecs[:-1], ZstdCodec(level=HIGHEST_ZSTD_LEVEL)]


SAMPLE_BYTES = 3 << 20
"""The size of all blocks together, approximately."""

BLOCKS = 3
"""How many blocks are taken, from both ends and the middle, because these are rarely alike."""


def with_values(data: Any) -> Any:
    """`data`, if it can be sampled; anything else is refused, above all the path of an array."""
    if isinstance(data, str | bytes | os.PathLike):
        raise DataTypeError(
            f"{os.fspath(data)!r} is a path, not data.\n"
            f"  For the array at a path: intarsia.advise(intarsia.reader({os.fspath(data)!r}))"
        )
    if hasattr(data, "shape") and hasattr(data, "dtype"):
        return data
    values = np.asarray(data)
    if values.dtype == object and not all(isinstance(value, bytes) for value in values.flat):
        raise DataTypeError(
            f"a {type(data).__name__} holds no values to try encodings on: give an array, "
            "such as intarsia.reader(store, path)"
        )
    return values


def blocks_of(data: Any, bounds: Bounds | None, chunks: tuple[int, ...] | None) -> list[np.ndarray[Any, Any]]:
    if isinstance(data, LogicalArray) and bounds is None:
        boxes = [region.bounds for region in data.regions]
        chosen = boxes[:: -(-len(boxes) // BLOCKS) or 1]
        each = max(1, BLOCKS // max(1, len(chosen)))
        return [block for box in chosen for block in sample_blocks(data, box, chunks, each)]
    return sample_blocks(data, bounds, chunks)


def is_small(chunks: tuple[int, ...], dtype: Any) -> bool:
    """Whether a whole chunk fits into a block."""
    return prod(chunks) * max(1, int(np.dtype(dtype).itemsize)) <= SAMPLE_BYTES // BLOCKS


def sample_blocks(
    data: Any, bounds: Bounds | None = None, chunks: tuple[int, ...] | None = None, blocks: int = BLOCKS
) -> list[np.ndarray[Any, Any]]:
    """Contiguous blocks of an array, or of a box of it, evenly spaced.

    If the values are stored in chunks that are not too large, blocks are made of whole chunks.

    >>> [block.shape for block in sample_blocks(np.zeros((10_000, 400), "f4"))]
    [(655, 400), (655, 400), (175, 400)]
    """
    box = Box.sized(data.shape) if bounds is None else Box.of(bounds)
    if not prod(box.shape):
        return []
    unit = chunks if chunks is not None and is_small(chunks, data.dtype) else (1,) * len(box.shape)
    itemsize = max(1, np.dtype(data.dtype).itemsize)
    step = block_shape(unit, box.in_units(unit).shape, itemsize, SAMPLE_BYTES // BLOCKS)
    origin = tuple(a // n * n for a, n in zip(box.start, unit, strict=True))
    grid = box.seen_from(origin).in_units(step).stop
    last, parts = prod(grid) - 1, []
    for i in sorted({last * i // max(1, blocks - 1) for i in range(blocks)}):
        corner = map(mul, map(int, np.unravel_index(i, grid)), step)
        parts.append(Box.sized(step, tuple(map(add, corner, origin))).intersect(box))
    return [_block(data[part.slices or ...]) for part in parts if part is not None]


def _block(part: Any) -> Any:
    """A contiguous copy of a part, with its nulls if it has any."""
    if isinstance(part, np.ma.MaskedArray | NullableValues):
        return NullableValues.of(part, getattr(part, "depth", 1)).copy()
    return np.ascontiguousarray(part)
