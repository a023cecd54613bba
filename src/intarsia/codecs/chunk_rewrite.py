"""Write fast, compress later: the chunks of an array are encoded again by another decision, in place.

Only the `conditional` codec and the codecs after it run again; those before it, such as a lossy filter, do
not.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import astuple, dataclass, replace
from itertools import islice
from operator import add
from typing import Any, Self

import numpy as np
import zarr
from zarr.core.buffer import Buffer

from intarsia._compat import ArraySpec
from intarsia.codecs.bitmasks import stored_shape
from intarsia.codecs.codec_path import (
    Route,
    array_codecs,
    deciding_members,
    find_routes,
    resolved,
    stored_spec,
)
from intarsia.codecs.compressors import likely_bound
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import ChunkPlace, Grid, InnerPlace, StoredPlace, at_place, named_chunk
from intarsia.codecs.decisions import DecisionLike, apply
from intarsia.codecs.nested import redo, undo
from intarsia.codecs.runtime_options import RuntimeOptions, options_in
from intarsia.codecs.shard_index import ShardIndex
from intarsia.codecs.stored_chunks import Extent, StoredObject, margins, stored_indices
from intarsia.codecs.stored_decisions import with_decision
from intarsia.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigurationError, ReadOnlyError
from intarsia.parallel import Client, run_on_workers
from intarsia.progress import Progress, silent

CHUNKS_PER_TASK = 16
"""How many stored objects a worker in a cluster gets at once: fetching a task costs as much as one."""

WAITING_PER_WORKER = 4
"""How many stored objects are planned ahead for each worker: enough to keep it busy."""


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
    works = [_Rewriting.on(zarr_array, decision) for zarr_array in _zarr_arrays(array)]
    total = sum(len(work.stored) for work in works)
    outcome, done = _sum(()), 0
    for work in works:

        def count(part: int, _of: int, before: int = done) -> None:
            progress(before + part, total)

        part = _in_threads(work, count) if client is None else _on(client, work, count)
        outcome, done = _sum((outcome, part)), done + len(work.stored)
    result, damaged = outcome
    if damaged:
        damaged[0].add_note(
            f"{len(damaged)} damaged chunks or shards were left alone; of the others, {result}"
        )
        raise damaged[0]
    return result


def _zarr_arrays(array: Any) -> list[zarr.Array[Any]]:
    """The zarr arrays to rewrite in an array of any kind."""
    if not hasattr(array, "regions"):
        return [getattr(array, "zarr_array", array)]
    return list(deciding_members(array, "rewrite").values())


type Outcome = tuple[Rewritten, list[ChunkDecodeError]]
"""What was done, and the errors of the chunks that were left alone."""


def _sum(outcomes: Iterable[Outcome]) -> Outcome:
    result, damaged = Rewritten(0, 0, 0, 0), list[ChunkDecodeError]()
    for part, errors in outcomes:
        result, damaged = result + part, damaged + errors
    return result, damaged


def _in_threads(work: "_Rewriting", progress: Progress) -> Outcome:
    indices = iter(work.stored)
    outcome, done, total = _sum(()), 0, len(work.stored)
    progress(done, total)
    workers = max(1, int(zarr.config.get("async.concurrency")))
    pool = ThreadPoolExecutor(workers, thread_name_prefix="intarsia-rewrite")
    running: set[Future[Outcome]] = set()
    try:
        while True:
            for index in islice(indices, WAITING_PER_WORKER * workers - len(running)):
                running.add(pool.submit(work.attempt, index))
            if not running:
                break
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                outcome, done = _sum((outcome, future.result())), done + 1
                progress(done, total)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return outcome


def _on(client: Client, work: "_Rewriting", progress: Progress) -> Outcome:
    array, indices = work.array, work.stored
    metadata: Any = array.metadata
    tasks = [indices[i : i + CHUNKS_PER_TASK] for i in range(0, len(indices), CHUNKS_PER_TASK)]
    luggage = RuntimeOptions.of(metadata.codecs, options_in(array.async_array.config))
    elsewhere = _Elsewhere(array.path, luggage)

    def count(done: int, _total: int) -> None:
        progress(min(done * CHUNKS_PER_TASK, len(indices)), len(indices))

    return _sum(run_on_workers(client, array.store, elsewhere, tasks, count))


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """Rewrites some of the chunks in another process."""

    path: str
    luggage: RuntimeOptions
    """The decision, and other run-time options."""

    def __call__(self, store: Any, indices: list[tuple[int, ...]]) -> Outcome:
        array = self.luggage.on(zarr.open_array(store, path=self.path, mode="r+"))
        return _sum(map(_Rewriting.of(array, indices).attempt, indices))


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """What the workers of one `rewrite` share."""

    array: zarr.Array[Any]
    routes: list[Route]
    """The routes to the codecs that decide, in the order of encoding."""
    grid: Grid
    stored: Sequence[tuple[int, ...]]
    """The places in the grid where there are chunks or shards."""

    @classmethod
    def of(cls, array: zarr.Array[Any], stored: Sequence[tuple[int, ...]]) -> Self:
        metadata: Any = array.metadata
        return cls(array, find_routes(array, "rewrite"), Grid.of(metadata), stored)

    @classmethod
    def on(cls, array: zarr.Array[Any], decision: DecisionLike | ConditionalCodec | None) -> Self:
        """The work on an array, after checking that it can be done."""
        find_routes(array, "rewrite")  # its error says what the array has instead
        if decision is not None:
            array = with_decision(array, decision)
        ends = [(route.end.codec, route.spec(array, array.shape)) for route in find_routes(array, "rewrite")]
        if any(codec.effective_decision(spec) is None for codec, spec in ends):
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
        metadata: Any = self.array.metadata
        stored = StoredObject(self.array.store_path / metadata.encode_chunk_key(index))
        spec = stored_spec(self.array, stored_shape(self.grid.chunks, index))
        with at_place(self._place(stored, spec, self.routes[0])):
            wanted = self._wanted(spec)
            if wanted is not None and self._has_mask(stored, wanted):
                size = stored.size()
                return Rewritten(1, 0, size, size)
        (data,) = stored.read([None])
        if data is None:
            return Rewritten(0, 0, 0, 0)
        chunks, changed, new = 0, 0, data
        for route in self.routes:
            recoder = Recoder(route, wanted)
            recoded = recoder.recode(new, spec, self._place(stored, spec, route))
            new = new if recoded is None else recoded
            # Codecs after one that changed were called on the way, so nothing is left for them to change.
            chunks, changed = max(chunks, recoder.chunks), max(changed, recoder.changed)
        if changed:
            stored.write(new)
        return Rewritten(chunks, changed, len(data), len(new))

    def _place(self, stored: StoredObject, spec: ArraySpec, route: Route) -> StoredPlace:
        return StoredPlace(self.grid, stored.path.path, spec, array_codecs(route.step_into(0).before))

    def _wanted(self, spec: ArraySpec) -> int | None:
        """The mask that a chunk should have, if that is known without its data."""
        route = self.routes[0]
        end = route.end
        several = len(self.routes) > 1 or route.shards or route.parts or end.codec.holds_another
        if several or margins(end.after) is None:
            return None
        spec = resolved(end.before, spec)
        decision = end.codec.effective_decision(spec)
        return None if decision is None else decision.mask_unseen(end.codec.chain(spec, decision))

    def _has_mask(self, stored: StoredObject, wanted: int) -> bool:
        end = self.routes[0].end
        around = margins(end.after)
        assert around is not None
        header = Extent(stored).without(*around).first(end.codec.header_bytes)
        return header is not None and end.codec.read_mask(header) == wanted


@dataclass
class Recoder:
    """Decides the chunks of one stored object again, and counts them."""

    route: Route
    """The route to the codec that decides."""

    wanted: int | None = None
    """The bitmask of the only chunk, if it is already decided."""

    chunks: int = 0
    """How many chunks were seen."""

    changed: int = 0
    """How many of them got another bitmask."""

    def recode(self, data: Buffer, spec: ArraySpec, place: ChunkPlace, level: int = 0) -> Buffer | None:
        """The object's new bytes, or None if nothing changes."""
        if level == len(self.route.shards):
            self.chunks += 1
            return self._part(data, spec, place)
        step = self.route.shards[level]
        spec = resolved(step.before, spec)
        index = ShardIndex.of(step.codec, spec.shape)
        inner_spec = replace(spec, shape=step.codec.chunk_shape)
        inner_arrays = array_codecs(self.route.step_into(level + 1).before)
        with at_place(place):
            chunks = index.split(undo(step.after, data, spec))
        recoded = {
            position: self.recode(
                chunk, inner_spec, InnerPlace(place, position, inner_spec, inner_arrays), level + 1
            )
            for position, chunk in chunks.items()
        }
        if all(new is None for new in recoded.values()):
            return None
        for position, new in recoded.items():
            if new is not None:
                chunks[position] = new
        joined = index.join(chunks)
        with at_place(place):
            return redo(step.after, joined, spec)

    def _part(self, data: Buffer, spec: ArraySpec, place: ChunkPlace, level: int = 0) -> Buffer | None:
        if level == len(self.route.parts):
            return self._chunk(data, spec, place)
        step = self.route.parts[level]
        spec = resolved(step.before, spec)
        with at_place(place):
            parts = step.codec.open_parts(undo(step.after, data, spec), spec)
        if step.name not in parts:
            return None
        new = self._part(*parts[step.name], place, level + 1)
        if new is None:
            return None
        encoded = {name: part for name, (part, _) in parts.items()} | {step.name: new}
        with at_place(place):
            return redo(step.after, step.codec.close_parts(encoded, spec), spec)

    def _chunk(self, data: Buffer, spec: ArraySpec, place: ChunkPlace) -> Buffer | None:
        step = self.route.end
        codec, spec = step.codec, resolved(step.before, spec)
        with at_place(place):
            stored = undo(step.after, data, spec)
            old = codec.read_mask(stored)
            decision = codec.effective_decision(spec)
            assert decision is not None  # rewriting requires one
            chain = codec.chain(spec, decision)
            # A decision is called once: what it says without the data is final.
            wanted = decision.mask_unseen(chain) if self.wanted is None else self.wanted
            if not codec.holds_another and wanted == old:
                return None
            raw, before = _seen(codec, stored, spec)
            if wanted is None or not len(raw):
                mask, encoded = codec.decide(raw, spec, decision)
            else:
                mask, encoded = apply(wanted, raw, chain)
            new = codec.join(mask, encoded, spec)
            if mask == old and not codec.holds_another:
                return None
            again, after = _seen(codec, new, spec)
            # A nested codec that decides for itself may decide differently under the same mask. Bytes do not
            # tell: gzip writes the time into them.
            if before == after:
                return None
            # The old bytes are about to be lost: bytes that cannot be read back must not replace them.
            if not _same(again, raw):
                raise ChunkEncodeError(
                    f"codec {codec.name!r}: the nested codecs of {mask:#b} do not restore the bytes"
                    f"{named_chunk()}; the chunk was left as it is"
                )
            self.changed += 1
            return redo(step.after, new, spec)


def _seen(codec: ConditionalCodec, data: Buffer, spec: ArraySpec) -> tuple[Buffer, list[tuple[str, int]]]:
    """A decoded chunk, and the bitmasks met on the way."""
    masks: list[tuple[str, int]] = []
    decoded = codec.decode_at_most(
        data, spec, likely_bound(spec), lambda path, mask: masks.append((path, mask))
    )
    return decoded, masks


def _same(one: Buffer, other: Buffer) -> bool:
    return bool(np.array_equal(one.as_numpy_array().view(np.uint8), other.as_numpy_array().view(np.uint8)))
