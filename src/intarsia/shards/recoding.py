"""Chunks of a shard encoded anew with another decision, before the shard is replaced."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from intarsia.codecs.place import Grid, InnerPlace, StoredPlace
from intarsia.codecs.recode import Recoder, array_codecs
from intarsia.codecs.route import routes
from intarsia.errors import ChunkDecodeError
from intarsia.shards import files
from intarsia.shards.reading import read_chunks

if TYPE_CHECKING:
    from pathlib import Path

    from intarsia.codecs.route import Route
    from intarsia.shards.array import ShardedArray
    from intarsia.shards.swap import HeldShard

__all__ = ["Recoding"]


@dataclass(frozen=True)
class Recoding:
    """The new encoding of the chunks of one array, whose decision it follows.

    Most of the work is done in `prepare`, while others go on writing; `replacements` then does again what has
    been written meanwhile.
    """

    sharded: ShardedArray
    """The array, with the decision that the chunks are to follow."""

    @cached_property
    def _routes(self) -> list[Route]:
        """The ways to the codecs that decide, from an inner chunk, in the order of encoding."""
        return routes(self.sharded.inner_codecs)

    @cached_property
    def _grid(self) -> Grid:
        return Grid.of(self.sharded.metadata)

    def prepare(self, path: Path) -> dict[int, tuple[bytes, bytes | None]]:
        """For each chunk of a shard, a digest of what is stored, and what it is to become; None stays."""
        sharded = self.sharded

        def prepared(number: int) -> tuple[bytes, bytes | None] | None:
            try:
                stored = read_chunks(path, sharded.index, [number], sharded.layouts) or {}
            except ChunkDecodeError:
                return None
            return (_digest(stored[number]), self._recode(path, number, stored[number])) if stored else None

        with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="intarsia-compact") as pool:
            found = pool.map(prepared, range(sharded.index.chunks))
            return {number: made for number, made in enumerate(found) if made is not None}

    def replacements(
        self, shard: HeldShard, lengths: dict[int, int], prepared: dict[int, tuple[bytes, bytes | None]]
    ) -> dict[int, bytes]:
        """What the chunks of a held shard are to become, where that is not what they are."""
        replaced = {}
        for number, length in lengths.items():
            if shard.torn[number]:
                continue
            stored = files.read_exactly(shard.fd, length, int(shard.table[number, 0]))
            digest, new = prepared.get(number, (b"", None))
            if digest != _digest(stored):
                new = self._recode(shard.path, number, stored)
            if new is not None:
                replaced[number] = new
        return replaced

    def _recode(self, path: Path, number: int, stored: bytes) -> bytes | None:
        """The chunk's new bytes; None if it stays as it is, which damaged ones do."""
        sharded = self.sharded
        shard = StoredPlace(self._grid, path.as_posix(), sharded.shard_spec, ())
        coordinates = sharded.index.coordinates(number)
        data, changed = sharded.chunk_spec.prototype.buffer.from_bytes(stored), False
        try:
            for route in self._routes:
                arrays = array_codecs(route.step_into(0).before)
                place = InnerPlace(shard, coordinates, sharded.chunk_spec, arrays)
                new = Recoder(route).recode(data, sharded.chunk_spec, place)
                data, changed = (data, changed) if new is None else (new, True)
        except ChunkDecodeError:
            return None
        return data.to_bytes() if changed else None


def _digest(stored: bytes) -> bytes:
    return hashlib.blake2b(stored, digest_size=16).digest()
