"""Members that zarr itself reads or writes, because of a grid or of codecs that the engine does not support.

zarr reads them chunk by chunk, and the engine's decoder, which does not trust what a chunk says, decodes.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.abc.codec import ArrayBytesCodec, Codec
from zarr.codecs import ShardingCodec
from zarr.core.buffer import Buffer, NDBuffer, default_buffer_prototype

from intarsia._compat import ArraySpec, evolve_codecs, sync
from intarsia.codecs.base import SynchronousCodec, switch_pipeline
from intarsia.engine.chunk_codecs import Decoder, Scratch
from intarsia.engine.chunk_plan import outer_index
from intarsia.engine.fetch.fetcher_choice import check_links
from intarsia.engine.fetch.read_errors import read_error
from intarsia.engine.write_chunks import lock_shards
from intarsia.errors import ChunkDecodeError
from intarsia.manifest.data_types import Values, read_points, write_decoded
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from intarsia.engine.plan import RegionPart
    from intarsia.engine.prepared_member import PreparedMember, ZarrMember
    from intarsia.manifest.packing import Packing
    from intarsia.manifest.region_table import Ints


class _CheckedChain(SynchronousCodec, ArrayBytesCodec):
    """A chain of codecs that decodes as the engine does: it does not trust what a chunk says."""

    is_fixed_size = False

    def __init__(self, codecs: tuple[Codec, ...], *, names_chunks: bool) -> None:
        self.codecs, self.names_chunks = codecs, names_chunks

    def _decode_sync(self, data: Buffer, spec: ArraySpec) -> NDBuffer:
        decoder = Decoder(evolve_codecs(self.codecs, spec), spec)
        try:
            values = decoder.values(data.as_numpy_array(), Scratch())
        except ChunkDecodeError as error:
            raise ValueError(error) from error  # of which the pipeline says which chunk it was
        return values if isinstance(values, NDBuffer) else spec.prototype.nd_buffer.from_numpy_array(values)

    def compute_encoded_size(self, _nbytes: int, _spec: ArraySpec) -> int:
        raise NotImplementedError


def with_size_checks(array: zarr.Array[Any], metadata: Any, *, names_chunks: bool = False) -> zarr.Array[Any]:
    """The array, described by `metadata` of format 3, for reading by zarr with the engine's codecs.

    With `names_chunks`, errors say which chunk cannot be decoded.

    >>> z = zarr.array([1, 2, 3])
    >>> with_size_checks(z, z.metadata)[1:]
    array([2, 3])
    """
    codecs = metadata.codecs
    checked: tuple[Codec, ...] = (_CheckedChain(codecs, names_chunks=names_chunks),)
    if isinstance(codecs[0], ShardingCodec) and len(codecs) == 1:
        inner = _CheckedChain(codecs[0].codecs, names_chunks=names_chunks)
        checked = (replace(codecs[0], codecs=(inner,)),)
    if names_chunks:
        switch_pipeline()
    live = copy.copy(metadata)
    object.__setattr__(live, "codecs", checked)  # zarr would insist on its own codec for texts
    config = array.async_array.config
    return zarr.Array(zarr.AsyncArray(metadata=live, store_path=array.store_path, config=config))


def read_by_zarr(array: zarr.Array[Any], selection: Any = ...) -> np.ndarray[Any, Any]:
    """Part of a small array beside the data, such as a coordinate, read by zarr with the engine's checks.

    >>> z = zarr.array([1, 2, 3])
    >>> read_by_zarr(z, slice(1, None))
    array([2, 3])
    """
    check_links(array.store, array.path)
    try:
        return np.asarray(with_size_checks(array, array.metadata)[selection])
    except Exception as error:
        raise read_error(f"cannot read {array.path}", error, array.store, array.path, None) from error


def read_part_by_zarr(
    source: ZarrMember, part: RegionPart, out: Values, *, points: bool, packing: Packing | None = None
) -> None:
    """Read one part of a plan into the output."""
    member, out = source.size_checked, part.onto(out)
    if not source.are_links_checked:
        check_links(member.store, member.path)
        source.are_links_checked = True
    inside: Any = part.member_selection
    if points:
        write_decoded(out, part.output_selection, read_points(member, inside), packing)
        return
    target, inside = outer_index(part.output_selection, out.shape), inside or ...
    are_slices = all(isinstance(selector, slice) for selector in part.output_selection)
    if are_slices and packing is None and isinstance(out, np.ndarray):  # straight into its place
        place = default_buffer_prototype().nd_buffer.from_numpy_array(out[target])
        member.get_orthogonal_selection(inside, out=place)
    else:
        write_decoded(out, target, member.get_orthogonal_selection(inside), packing)


def write_part_by_zarr(source: PreparedMember, part: RegionPart, values: Values, *, points: bool) -> None:
    """Write what the `output_selection` of a part selects of the values to its `member_selection`."""
    member: Any = source.array
    check_store(member.store)
    part = _last_of_each(part, member.shape, points)
    with lock_shards(source, part, points=points), wait_for_pending_writes():
        if points:
            member.set_coordinate_selection(part.member_selection, values[part.output_selection])
            return
        chosen = values[outer_index(part.output_selection, values.shape)]
        member.set_orthogonal_selection(part.member_selection or ..., chosen)


_writing: ContextVar[object] = ContextVar("writing")


@contextmanager
def wait_for_pending_writes() -> Iterator[None]:
    """Make sure that the store is at rest when an error of the writes inside is caught.

    zarr raises the first failure, and its other tasks run on. They are known by their context, which is a
    copy of the context that started them.

    >>> with wait_for_pending_writes():
    ...     pass
    """
    mark = object()
    token = _writing.set(mark)
    try:
        yield
    except Exception:
        sync(_ended(mark))
        raise
    finally:
        _writing.reset(token)


async def _ended(mark: object) -> None:
    """Wait until no task with this mark runs, nor any that it has started since."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    while running := [task for task in others if task.get_context().get(_writing) is mark]:
        await asyncio.wait(running)
        others = asyncio.all_tasks() - {asyncio.current_task()}


def _last_of_each(part: RegionPart, shape: tuple[int, ...], points: bool) -> RegionPart:
    """The part without elements that a later one overwrites, as in NumPy; zarr's shards mix up the order."""
    inside: Any = part.member_selection
    target: Any = part.output_selection
    if points and inside:
        last = _last(np.ravel_multi_index(inside, shape))
        inside, target = tuple(c[last] for c in inside), (target[0][last],)
    elif not points:
        lasts = [
            ... if isinstance(i, slice) or isinstance(o, slice) else _last(i)
            for i, o in zip(inside, target, strict=True)
        ]
        inside, target = (
            tuple(s if last is ... else s[last] for s, last in zip(selection, lasts, strict=True))
            for selection in (inside, target)
        )
    return replace(part, member_selection=inside, output_selection=target)


def _last(indices: Ints) -> Ints:
    """The position of the last of those that are equal."""
    return indices.size - 1 - np.unique(indices[::-1], return_index=True)[1]
