"""Write fast, compress later: the chunks of an array are encoded again by another decision, in place.

Only the `conditional` codec and the codecs after it run again; those before it, such as a lossy filter, do
not.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from itertools import batched
from operator import add
from typing import Any, Self

import numpy as np
import zarr
from zarr.core.buffer import Buffer

from intarsia._compat import ArraySpec
from intarsia.codecs.codec_path import ChunkWalk, StoredChunk, deciding_arrays, find_codecs
from intarsia.codecs.compressors import likely_bound
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import Grid, named_chunk
from intarsia.codecs.decisions import DecisionLike, apply
from intarsia.codecs.runtime_options import RuntimeOptions, options_in
from intarsia.codecs.stored_chunks import read_parts, stored_indices, write_object
from intarsia.codecs.stored_decisions import with_decision
from intarsia.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigurationError, ReadOnlyError
from intarsia.parallel import Client, run_on_workers
from intarsia.progress import Progress, silent

CHUNKS_PER_TASK = 16
"""How many stored objects a worker in a cluster gets at once: fetching a task costs as much as one."""

CHUNKS_PER_WORKER = 64
"""How many stored objects are planned at a time for each thread: enough to keep it busy, and there may be
millions."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What `rewrite` did.

    >>> print(Rewritten(chunks=10, rewritten=8, bytes_before=4000, bytes_after=1000))
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

    def __add__(self, other: "Rewritten") -> "Rewritten":
        return Rewritten(*map(add, astuple(self), astuple(other)))

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
    client: Client | None = None,
) -> Rewritten:
    """Encode all stored chunks of `array` again, in place, as `decision` says; the values stay the same.

    Chunks whose bitmask would not change are left alone. The new bytes of a chunk are decoded and compared
    before they replace the old ones. Each stored object is replaced as a whole. If the store does that
    atomically (zarr's local, memory and cloud stores and Icechunk do), the process may be killed at any
    moment and every chunk can still be read; call it again to continue. Damaged chunks are left alone too,
    and reported when all others are done. Nobody else should write to the array meanwhile.

    `array` may be a plain, a nullable or a logical array; in a logical array, all members with a
    `conditional` codec are rewritten. If there are several such codecs, or nested ones, all of them decide
    again.

    Without a decision, the array's own is used. `progress` counts stored chunks or shards. With a `client` (a
    `dask.distributed.Client`, or an executor of `concurrent.futures` that does not fork), its workers do the
    work; in an Icechunk session they do so through forks, which are merged into it.

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
    works = [_ArrayRewrite.on(zarr_array, decision) for zarr_array in deciding_arrays(array, "rewrite")]
    total = sum(len(work.stored) for work in works)
    outcome, done = _sum(()), 0
    for work in works:

        def count(part: int, _of: int, before: int = done) -> None:
            progress(before + part, total)

        part = _in_threads(work, count) if client is None else _on_client(client, work, count)
        outcome, done = _sum((outcome, part)), done + len(work.stored)
    result, damaged = outcome
    if damaged:
        damaged[0].add_note(
            f"{len(damaged)} damaged chunks or shards were left alone; of the others, {result}"
        )
        raise damaged[0]
    return result


type Outcome = tuple[Rewritten, list[ChunkDecodeError]]
"""What was done, and the errors of the chunks that were left alone."""


def _sum(outcomes: Iterable[Outcome]) -> Outcome:
    result, damaged = Rewritten(0, 0, 0, 0), list[ChunkDecodeError]()
    for part, errors in outcomes:
        result, damaged = result + part, damaged + errors
    return result, damaged


def _in_threads(work: "_ArrayRewrite", progress: Progress) -> Outcome:
    outcome, done, total = _sum(()), 0, len(work.stored)
    progress(done, total)
    workers = max(1, int(zarr.config.get("async.concurrency")))
    pool = ThreadPoolExecutor(workers, thread_name_prefix="intarsia-rewrite")
    try:
        for batch in batched(work.stored, CHUNKS_PER_WORKER * workers):
            for part in pool.map(work.attempt, batch):
                outcome, done = _sum((outcome, part)), done + 1
                progress(done, total)
    finally:
        pool.shutdown(cancel_futures=True)
    return outcome


def _on_client(client: Client, work: "_ArrayRewrite", progress: Progress) -> Outcome:
    array, indices = work.array, work.stored
    metadata: Any = array.metadata
    tasks = [indices[i : i + CHUNKS_PER_TASK] for i in range(0, len(indices), CHUNKS_PER_TASK)]
    options = RuntimeOptions.of(metadata.codecs, options_in(array.async_array.config))
    worker = _RewriteInWorker(array.path, options)

    def count(done: int, _total: int) -> None:
        progress(min(done * CHUNKS_PER_TASK, len(indices)), len(indices))

    return _sum(run_on_workers(client, array.store, worker, tasks, count))


@dataclass(frozen=True, slots=True)
class _RewriteInWorker:
    """Rewrites some of the chunks in another process."""

    path: str
    options: RuntimeOptions
    """The decision, and other run-time options."""

    def __call__(self, store: Any, indices: list[tuple[int, ...]]) -> Outcome:
        array = self.options.on(zarr.open_array(store, path=self.path, mode="r+"))
        return _sum(map(_ArrayRewrite.of(array, indices).attempt, indices))


@dataclass(frozen=True, slots=True)
class _ArrayRewrite:
    """What the workers of one `rewrite` share."""

    array: zarr.Array[Any]
    grid: Grid
    stored: Sequence[tuple[int, ...]]
    """The places in the grid where there are chunks or shards."""

    @classmethod
    def of(cls, array: zarr.Array[Any], stored: Sequence[tuple[int, ...]]) -> Self:
        metadata: Any = array.metadata
        return cls(array, Grid.of(metadata), stored)

    @classmethod
    def on(cls, array: zarr.Array[Any], decision: DecisionLike | ConditionalCodec | None) -> Self:
        """The work on an array, after checking that it can be done."""
        find_codecs(array, "rewrite")  # its error says what the array has instead
        if decision is not None:
            array = with_decision(array, decision)
        paths = [each for each in find_codecs(array, "rewrite") if not each.nested]
        if any(each.codec.effective_decision(each.spec) is None for each in paths):
            raise CodecConfigurationError("cannot rewrite: the array has no decision, so give one")
        if array.read_only:
            raise ReadOnlyError("cannot rewrite: the array is open for reading only; open it with mode='r+'")
        return cls.of(array, stored_indices(array))

    def attempt(self, index: tuple[int, ...]) -> Outcome:
        """Rewrite the chunk or shard at `index`, unless it is damaged."""
        try:
            return self._rewrite(index), []
        except ChunkDecodeError as error:
            return Rewritten(0, 0, 0, 0), [error]

    def _rewrite(self, index: tuple[int, ...]) -> Rewritten:
        chunk = StoredChunk.of(self.array, self.grid, index)
        data = read_parts(chunk.path, [None])[0]
        if data is None:
            return Rewritten(0, 0, 0, 0)
        walk = ChunkWalk(recode)
        new = walk.through(chunk.codecs, data, chunk.spec, chunk.place)
        if new is None:
            return Rewritten(max(1, walk.chunks), 0, len(data), len(data))
        write_object(chunk.path, new)
        return Rewritten(max(1, walk.chunks), max(1, walk.changed), len(data), len(new))


def recode(codec: ConditionalCodec, _path: str, stored: Buffer, spec: ArraySpec) -> Buffer | None:
    """What `codec` makes of a chunk that it encoded before, if it decides again; None if nothing changes.

    A `Visit` of `intarsia.codecs.codec_path`.
    """
    old, decision = codec.read_mask(stored), codec.effective_decision(spec)
    assert decision is not None  # rewriting requires one
    chain = codec.chain(spec, decision)
    encoders = decision.encoders(chain)
    # The same bitmask may stand for other bytes.
    compare = codec.holds_another or encoders != chain
    known = decision.mask_unseen(chain)
    if known == old and not compare:
        return None
    raw, before = _decode(codec, stored, spec)
    # A decision is called once: what it says without the data is final.
    if known is None or not len(raw):
        mask, encoded = codec.decide(raw, spec, decision)
    else:
        mask, encoded = apply(known, raw, encoders)
    if mask == old and not compare:
        return None
    new = codec.join(mask, encoded, spec)
    again, after = _decode(codec, new, spec)
    # A nested codec that decides for itself may decide differently under the same mask. Bytes do not tell:
    # gzip writes the time into them.
    if before == after and (encoders == chain or _same(new, stored)):
        return None
    # The old bytes are about to be lost: bytes that cannot be read back must not replace them.
    if not _same(again, raw):
        raise ChunkEncodeError(
            f"codec {codec.name!r}: the nested codecs of {mask:#b} do not restore the bytes"
            f"{named_chunk()}; the chunk was left as it is"
        )
    return new


def _decode(codec: ConditionalCodec, data: Buffer, spec: ArraySpec) -> tuple[Buffer, list[tuple[str, int]]]:
    """A decoded chunk, and the bitmasks in its headers."""
    masks: list[tuple[str, int]] = []
    decoded = codec.decode_at_most(
        data, spec, likely_bound(spec), lambda path, mask: masks.append((path, mask))
    )
    return decoded, masks


def _same(one: Buffer, other: Buffer) -> bool:
    return bool(np.array_equal(one.as_numpy_array().view(np.uint8), other.as_numpy_array().view(np.uint8)))
