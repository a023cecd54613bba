"""One stored chunk or shard, decided anew: its values stay, its bitmasks and bytes change.

Only the `conditional` codec and what comes after it are touched. What comes before, such as a lossy
filter, is not run again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec, Codec

from intarsia._compat import ArraySpec
from intarsia.codecs.bounded import likely_bound
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.current_chunk import ChunkPlace, InnerPlace, at_place, named_chunk
from intarsia.codecs.decide.decisions import apply
from intarsia.codecs.decide.nested import Chain, NamedCodec
from intarsia.codecs.decide.routes import Route, resolved
from intarsia.codecs.shard_index import ShardIndex
from intarsia.errors import ChunkEncodeError

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer


def array_codecs(codecs: tuple[Codec, ...]) -> tuple[ArrayArrayCodec, ...]:
    """Those of `codecs` that work on arrays."""
    return tuple(codec for codec in codecs if isinstance(codec, ArrayArrayCodec))


def undo(codecs: tuple[BytesBytesCodec, ...], data: Buffer, spec: ArraySpec) -> Buffer:
    """`data` before `codecs` encoded it; damage is a `ChunkDecodeError`."""
    chain = Chain(None, tuple(NamedCodec(codec) for codec in codecs), spec)
    for position in reversed(range(len(chain))):
        data = chain.decode(position, data, likely_bound(spec))
    return data


def redo(codecs: tuple[BytesBytesCodec, ...], data: Buffer, spec: ArraySpec) -> Buffer:
    """`data` after `codecs` encoded it."""
    chain = Chain(None, tuple(NamedCodec(codec) for codec in codecs), spec)
    for position in range(len(chain)):
        data = chain.encode(position, data)
    return data


@dataclass
class Recoder:
    """Decides the chunks of one stored object anew, and counts them."""

    route: Route
    """The way to the codec that decides."""

    wanted: int | None = None
    """The bitmask of the only chunk, if the decision was asked already."""

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
            assert decision is not None  # whoever rewrites has one
            chain = codec.chain(spec, decision)
            # A decision is asked once: what it says without the data is what is done.
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
            # A codec that decides for itself inside may have changed its mind under the same mask. Bytes say
            # nothing of that: gzip writes the time into them.
            if before == after:
                return None
            # The old bytes are about to go: what cannot be read back must not take their place.
            if not _same(again, raw):
                raise ChunkEncodeError(
                    f"codec {codec.name!r}: the nested codecs of {mask:#b} do not give back the bytes"
                    f"{named_chunk()}; the chunk was left as it is"
                )
            self.changed += 1
            return redo(step.after, new, spec)


def _seen(codec: ConditionalCodec, data: Buffer, spec: ArraySpec) -> tuple[Buffer, list[tuple[str, int]]]:
    """A chunk decoded, and the bitmasks that were met on the way."""
    masks: list[tuple[str, int]] = []
    decoded = codec.decode_at_most(
        data, spec, likely_bound(spec), lambda path, mask: masks.append((path, mask))
    )
    return decoded, masks


def _same(one: Buffer, other: Buffer) -> bool:
    return bool(np.array_equal(one.as_numpy_array().view(np.uint8), other.as_numpy_array().view(np.uint8)))
