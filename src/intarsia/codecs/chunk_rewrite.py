"""Write fast, compress later: the chunks of an array are encoded again by another decision, in place.

Only the `conditional` codec and the codecs after it run again; those before it, such as a lossy filter, do
not.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from operator import add
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import Buffer

from intarsia._compat import ArraySpec, store_supports_sync_io, sync
from intarsia.codecs.codec_path import ChunkWalk, StoredChunk, deciding_arrays, find_codecs
from intarsia.codecs.compressors import likely_bound
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import named_chunk
from intarsia.codecs.decisions import DecisionLike, KnownMask, OtherLevels
from intarsia.codecs.stored_chunks import read_parts, stored_indices
from intarsia.codecs.stored_decisions import with_decision
from intarsia.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigurationError, ReadOnlyError
from intarsia.parallel import run_on_workers
from intarsia.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """What `rewrite` did.

    >>> print(RewriteReport(chunks=10, rewritten=8, bytes_before=4000, bytes_after=1000))
    8 of 10 chunks rewritten: 4000 bytes before, 1000 after
    """

    chunks: int
    """The number of stored chunks in the array; in shards, of inner chunks."""

    rewritten: int
    """How many of them got another bitmask."""

    bytes_before: int
    """The size of all stored chunks before."""

    bytes_after: int
    """The size of all stored chunks now."""

    def __add__(self, other: "RewriteReport") -> "RewriteReport":
        return RewriteReport(*map(add, astuple(self), astuple(other)))

    def __str__(self) -> str:
        return (
            f"{self.rewritten} of {self.chunks} chunks rewritten: "
            f"{self.bytes_before} bytes before, {self.bytes_after} after"
        )


def rewrite(
    array: Any,
    decision: DecisionLike | ConditionalCodec | None = None,
    *,
    progress: Progress = silent,
) -> RewriteReport:
    """Encode all stored chunks of `array` again, in place, as `decision` says; the values stay the same.

    Chunks whose bitmask would not change are left alone. The new bytes of a chunk are decoded and compared
    before they replace the old ones. Each stored object is replaced as a whole. If the store does that
    atomically (zarr's local, memory and cloud stores and Icechunk do), the process may be killed at any
    moment and every chunk can still be read; call it again to continue. Damaged chunks are left alone too,
    and reported when all others are done. Nobody else should write to the array meanwhile.

    `array` may be a plain, a nullable or a logical array; in a logical array, all members with a
    `conditional` codec are rewritten. If there are several such codecs, or nested ones, all of them decide
    again.

    Without a decision, the array's own is used. `progress` counts stored chunks or shards.

    [Storing data again](../../explanation/storing-again.md) compares it with other operations.

    >>> import numpy as np, zarr
    >>> from intarsia.codecs import ConditionalCodec
    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[ZstdCodec()])
    >>> z = zarr.create(store={}, shape=4000, chunks=1000, dtype="u1", codecs=[BytesCodec(), codec])
    >>> z[:] = 7
    >>> rewritten = rewrite(z, "compress_if_smaller")
    >>> rewritten.rewritten, rewritten.bytes_before, rewritten.bytes_after < 100
    (4, 4004, True)
    """
    arrays = [_with_decision(zarr_array, decision) for zarr_array in deciding_arrays(array, "rewrite")]
    tasks = [(each, index) for each in arrays for index in stored_indices(each)]
    threads = max(1, int(zarr.config.get("async.concurrency")))
    with ThreadPoolExecutor(threads, thread_name_prefix="intarsia-rewrite") as pool:
        outcomes = run_on_workers(pool, arrays[0].store, _rewrite_chunk, tasks, progress)
    result = sum((each for each in outcomes if isinstance(each, RewriteReport)), RewriteReport(0, 0, 0, 0))
    damaged = [each for each in outcomes if isinstance(each, ChunkDecodeError)]
    if damaged:
        damaged[0].add_note(
            f"{len(damaged)} damaged chunks or shards were left alone; of the others, {result}"
        )
        raise damaged[0]
    return result


def _with_decision(
    array: zarr.Array[Any], decision: DecisionLike | ConditionalCodec | None
) -> zarr.Array[Any]:
    """The array that is rewritten, after checking that it can be."""
    find_codecs(array, "rewrite")  # its error says what the array has instead
    if decision is not None:
        array = with_decision(array, decision)
    paths = [each for each in find_codecs(array, "rewrite") if not each.nested]
    if any(each.codec.effective_decision(each.spec) is None for each in paths):
        raise CodecConfigurationError("cannot rewrite: the array has no decision, so give one")
    if array.read_only:
        raise ReadOnlyError("cannot rewrite: the array is open for reading only; open it with mode='r+'")
    return array


def _rewrite_chunk(
    _store: Any, task: tuple[zarr.Array[Any], tuple[int, ...]]
) -> RewriteReport | ChunkDecodeError:
    """Rewrite the chunk or shard at an index in the grid; returns the error of one that is damaged."""
    array, index = task
    chunk = StoredChunk.of(array, index)
    data = read_parts(chunk.path, [None])[0]
    if data is None:
        return RewriteReport(0, 0, 0, 0)
    walk = ChunkWalk(redecide_chunk)
    try:
        new = walk.through(chunk.codecs, data, chunk.spec, chunk.locate)
    except ChunkDecodeError as error:
        return error
    if new is None:
        return RewriteReport(max(1, walk.chunks), 0, len(data), len(data))
    if store_supports_sync_io(chunk.path.store):
        chunk.path.set_sync(new)
    else:
        sync(chunk.path.set(new))
    return RewriteReport(max(1, walk.chunks), max(1, walk.changed), len(data), len(new))


def redecide_chunk(codec: ConditionalCodec, _path: str, stored: Buffer, spec: ArraySpec) -> Buffer | None:
    """What `codec` makes of a chunk that it encoded before, if it decides again; None if nothing changes.

    A `Visit` of `intarsia.codecs.codec_path`.
    """
    old, decision = codec.read_mask(stored), codec.effective_decision(spec)
    assert decision is not None  # rewriting requires one
    other_levels = isinstance(decision, OtherLevels)
    compare = codec.holds_another or other_levels  # the same bitmask may stand for other bytes
    if isinstance(decision, KnownMask) and decision.mask_for(codec.chain(spec)) == old and not compare:
        return None
    raw, before = _decode(codec, stored, spec)
    mask, encoded = codec.decide(raw, spec, decision)
    if mask == old and not compare:
        return None
    new = codec.join(mask, encoded, spec)
    again, after = _decode(codec, new, spec)
    # A nested codec that decides for itself may decide differently under the same mask. Bytes do not tell:
    # gzip writes the time into them.
    if before == after and (not other_levels or _same(new, stored)):
        return None
    # The old bytes are about to be lost: bytes that cannot be read back must not replace them.
    if not _same(again, raw):
        raise ChunkEncodeError(
            f"codec {codec.name!r}: the nested codecs of {mask:#b} do not restore the bytes"
            f"{named_chunk()}; the chunk was left as it is"
        )
    return new


def _decode(codec: ConditionalCodec, data: Buffer, spec: ArraySpec) -> tuple[Buffer, dict[str, int]]:
    """A decoded chunk, and the bitmasks in its headers."""
    masks: dict[str, int] = {}
    return codec.decode_at_most(data, spec, likely_bound(spec), masks), masks


def _same(one: Buffer, other: Buffer) -> bool:
    return bool(np.array_equal(one.as_numpy_array().view(np.uint8), other.as_numpy_array().view(np.uint8)))
