"""Reading chunks of one shard file, slotted or not, beside processes that write and replace it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from intarsia.codecs.shard_index import NO_ENTRY
from intarsia.errors import ChunkDecodeError
from intarsia.shards import files
from intarsia.shards.holding import held_chunks, locked_entries, locked_index
from intarsia.shards.layout import TORN
from intarsia.shards.mending import check_believable, torn_message, unparked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from intarsia.shards.layout import SlotIndex, SlotLayout

__all__ = ["read_chunks"]


def read_chunks(
    path: Path, index: SlotIndex, numbers: Sequence[int], layouts: Sequence[SlotLayout]
) -> dict[int, bytes] | None:
    """The stored bytes of some chunks, which one lock covers; None if there is no file.

    A chunk that was never written is missing in the result. `layouts` are those in which the shard may
    have been written slot by slot: then an index whose checksum is out of date is still good.
    """
    with held_chunks(path, min(numbers), max(numbers), write=False) as fd:
        if fd is None:
            return None
        rows, intact = locked_entries(fd, index, numbers)
        if not intact:
            table, intact = locked_index(fd, index)
            if not intact:
                check_believable(path, index, os.fstat(fd).st_size, unparked(table), layouts)
        found: dict[int, bytes] = {}
        for number, (offset, length) in zip(numbers, unparked(rows).tolist(), strict=True):
            if (offset, length) == NO_ENTRY:
                continue
            if offset & int(TORN):
                raise ChunkDecodeError(torn_message(path, index.coordinates(number)))
            try:
                found[number] = files.read_exactly(fd, length, offset)
            except (ChunkDecodeError, OSError, OverflowError) as error:
                where = f"inner chunk {index.coordinates(number)} of {path}"
                raise ChunkDecodeError(f"{where} cannot be read: {error}") from error
        return found
