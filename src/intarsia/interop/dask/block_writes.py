"""Writing the blocks of a dask array into members: on a cluster, in processes or in threads.

Blocks are cut so that they hold whole chunks, and no chunk belongs to two of them.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, count, pairwise
from typing import Any

import dask
import dask.array as da
import dask.local
import dask.threaded
import numpy as np
from dask.base import compute, get_scheduler
from dask.callbacks import Callback
from dask.system import CPU_COUNT

from intarsia._compat import store_supports_sync_io
from intarsia.codecs.runtime_options import NO_OPTIONS, PicklableOptions
from intarsia.engine.prepared_member import PreparedMember, object_shape
from intarsia.engine.write import write_box
from intarsia.logical.hierarchy import open_group
from intarsia.logical.members import Members
from intarsia.logical.staging import DataPiece, Reservation
from intarsia.manifest.box import Box
from intarsia.manifest.data_types import as_values
from intarsia.manifest.manifest import Manifest
from intarsia.parallel import StoreHandle, WriteResult, WriterPool, result_of
from intarsia.progress import Progress

RESULTS_AT_ONCE = 8
"""How many results are fetched from a cluster's workers at once."""


def write_blocks(
    jobs: Sequence[tuple[da.Array, Reservation]], client: Any, retries: int, progress: Progress
) -> None:
    """Write every piece of every source into its member; shared parts are computed once.

    The logical groups belong to one store, and everything that workers write ends up there. Steps of the
    progress are blocks.
    """
    parts = [
        _in_blocks(source, reservation, piece) for source, reservation in jobs for piece in reservation.pieces
    ]
    if not parts:
        return
    store = jobs[0][1].logical.group.store
    scheduler = getattr(client, "get", None) or get_scheduler() or dask.threaded.get
    client = getattr(scheduler, "__self__", None)  # dask's own schedulers are no methods
    in_process = client is None and scheduler in (dask.threaded.get, dask.local.get_sync)
    total, steps = sum(source.npartitions for source, _ in parts), count(1)
    progress(0, total)

    def on_block() -> None:
        progress(next(steps), total)

    for group in conflict_free_groups(parts):
        pool = WriterPool(store, in_process=in_process)
        arrays = [_results(source, partial(writer, pool.handle)) for source, writer in group]
        if client is not None:
            results = _compute_there(arrays, client, retries, on_block)
        else:
            results = _compute_here(arrays, store, on_block, in_threads=in_process)
        for result in results:
            pool.merge(result)


def _compute_there(
    arrays: list[da.Array], client: Any, retries: int, on_block: Callable[[], object]
) -> Iterator[WriteResult]:
    """Compute arrays of results on a cluster; `on_block` is called for every block."""
    from distributed import as_completed, futures_of

    futures = futures_of(client.persist(arrays, retries=retries))
    with ThreadPoolExecutor(RESULTS_AT_ONCE) as fetching:
        try:
            for batch in as_completed(futures).batches():
                # A result that has arrived is released, so a worker's death does not repeat it.
                for future, blocks in zip(batch, fetching.map(result_of, batch), strict=True):
                    futures.remove(future)
                    yield from blocks.flat
                    on_block()
        finally:
            client.cancel(futures, force=True)


def _compute_here(
    arrays: list[da.Array], store: Any, on_block: Callable[[], object], *, in_threads: bool
) -> Iterator[WriteResult]:
    """Compute arrays of results with dask's local scheduler; `on_block` is called for every block.

    dask raises the first failure, but blocks that have begun keep running and write into a store from which
    everything is about to be removed. So the threads are those of a pool that waits for them.
    """
    names = {array.name for array in arrays}

    def posttask(key: Any, _result: Any, _graph: Any, _state: Any, _worker: Any) -> None:
        if isinstance(key, tuple) and key[0] in names:
            on_block()

    threads, at_rest = ThreadPoolExecutor(dask.config.get("num_workers", None) or CPU_COUNT), True
    try:
        with Callback(posttask=posttask):
            computed = compute(*arrays, **{"pool": threads} if in_threads else {})
    except BaseException as error:
        # After Ctrl-C only if something is removed, see `clean_up`: writes may take long.
        at_rest = isinstance(error, Exception) or store_supports_sync_io(store)
        raise
    finally:
        threads.shutdown(wait=at_rest, cancel_futures=True)
    for blocks in computed:
        yield from blocks.flat


@dataclass(frozen=True)
class BlockWriter:
    """Writes the blocks of one piece; it is sent to workers."""

    path: str
    """The logical array."""

    piece: DataPiece

    grain: tuple[int, ...]
    """The smallest unit of the member that two tasks can write at the same time."""

    options: PicklableOptions
    """Run-time options to write it with."""

    template: Manifest
    """The data type of the values; a worker does not need a hundred thousand regions."""

    starts: tuple[tuple[int, ...], ...]
    """Where the blocks begin on every axis of the piece."""

    def __call__(
        self, handle: StoreHandle, block: np.ndarray[Any, Any], block_id: tuple[int, ...] = ()
    ) -> Any:
        """Write one block to the store of the worker, and return what the caller has to merge."""
        store = handle.open()
        members = Members(open_group(store, self.path, "r+"), ())
        member = self.options.on(members.child(self.piece.member))
        offsets = [starts[i] for starts, i in zip(self.starts, block_id, strict=True)]
        piece = self.piece.select(Box.sized(block.shape, offsets).shifted(self.piece.source.start))
        values = piece.stored(as_values(self.template, block))
        write_box(PreparedMember.of(piece.member, member), piece.target, values)
        result = np.empty((1,) * block.ndim, dtype=object)
        result[...] = handle.result(store)
        return result


type Part = tuple[da.Array, BlockWriter]
"""The data of one piece in blocks of whole chunks, and what writes them."""


def _in_blocks(source: da.Array, reservation: Reservation, piece: DataPiece) -> Part:
    logical = reservation.logical
    grain = object_shape(logical.members.child(piece.member))
    part = source[piece.source.slices]
    part = part.rechunk(align(part.chunks, piece, grain))
    starts = tuple(tuple(accumulate(sizes[:-1], initial=0)) for sizes in part.chunks)
    options = logical.runtime_options(piece.member, reservation.options.get(piece.member, NO_OPTIONS))
    template = logical.manifest.without_regions()
    return part, BlockWriter(logical.group.path, piece, grain, options, template, starts)


def _results(source: da.Array, write: Callable[..., Any]) -> Any:
    """The dask array of results, one for every block: computing it writes the blocks."""
    return da.map_blocks(
        write,
        source,
        name=f"intarsia-store-{uuid.uuid4().hex}",  # never mistaken for an earlier write of equal data
        dtype=object,
        chunks=tuple((1,) * n for n in source.numblocks),
        meta=np.empty((0,) * source.ndim, dtype=object),
    )


type Sizes = tuple[int, ...]


def align(sizes: Sequence[Sizes], piece: DataPiece, grain: Sequence[int]) -> tuple[Sizes, ...]:
    """Block sizes as near to `sizes` as whole chunks of the member allow.

    >>> from intarsia.logical.staging import DataPiece
    >>> from intarsia.manifest.box import Box
    >>> piece = DataPiece("m-1", Box((0,), (10,)), Box((2,), (12,)))  # starts within the chunk [0:4]
    >>> align([(3, 3, 4)], piece, (4,))
    ((2, 4, 4),)
    """
    axes = zip(sizes, piece.grid(grain), piece.source.shape, strict=True)
    return tuple(_align_axis(blocks, start, chunk, size) for blocks, (start, chunk), size in axes)


def _align_axis(blocks: Sizes, start: int, chunk: int, size: int) -> Sizes:
    """Move each cut of the source down to where a chunk of the member begins."""
    cuts = {(start + cut) // chunk * chunk - start for cut in accumulate(blocks)}
    edges = [0, *sorted(edge for edge in cuts if 0 < edge < size), size]
    return tuple(b - a for a, b in pairwise(edges))


def conflict_free_groups(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts in groups that can be written at once: parts that share a chunk are in different groups.

    >>> from types import SimpleNamespace as Writer
    >>> from intarsia.logical.staging import DataPiece
    >>> from intarsia.manifest.box import Box
    >>> pieces = [DataPiece("m-1", Box((a,), (a + 2,)), Box((a,), (a + 2,))) for a in (0, 2)]
    >>> for grain in (2, 4):
    ...     parts = [(None, Writer(piece=piece, grain=(grain,))) for piece in pieces]
    ...     print([len(group) for group in conflict_free_groups(parts)])
    [2]
    [1, 1]
    """
    groups: list[list[Part]] = []
    for part in parts:
        free = (g for g in groups if not any(_share_a_chunk(part[1], other) for _, other in g))
        group = next(free, None)
        if group is None:
            groups.append(group := [])
        group.append(part)
    return groups


def _share_a_chunk(one: BlockWriter, other: BlockWriter) -> bool:
    if one.piece.member != other.piece.member:
        return False
    chunks = one.piece.target.in_units(one.grain)
    return chunks.intersect(other.piece.target.in_units(one.grain)) is not None
