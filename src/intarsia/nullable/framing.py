"""How an encoded chunk of nullable data is put together: two lengths, the mask, the data."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.codecs.context import named_chunk
from intarsia.errors import ChunkDecodeError

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer, NDBuffer

    from intarsia._compat import ArraySpec

__all__ = ["HEADER", "checked_mask", "joined", "split"]

HEADER = struct.Struct("<QQ")
"""Length of the encoded mask and of the encoded data, in bytes."""


def joined(mask: Buffer, data: Buffer | None, spec: ArraySpec) -> Buffer:
    """The two encoded parts as one chunk."""
    header = HEADER.pack(len(mask), 0 if data is None else len(data))
    parts = [np.frombuffer(header, dtype=np.uint8), mask.as_numpy_array()]
    if data is not None:
        parts.append(data.as_numpy_array())
    return spec.prototype.buffer.from_array_like(np.concatenate(parts))


def split(chunk_data: Buffer) -> tuple[np.ndarray[Any, Any], int]:
    """The chunk without its header, and where the mask ends. Nothing is allocated before this is right."""
    raw = chunk_data.as_numpy_array()
    if raw.size < HEADER.size:
        raise ChunkDecodeError(
            f"codec 'optional': {raw.size} bytes{named_chunk()}, but the header alone takes {HEADER.size}"
        )
    mask_length, data_length = HEADER.unpack_from(raw)
    if mask_length + data_length != raw.size - HEADER.size:
        raise ChunkDecodeError(
            f"codec 'optional': the header{named_chunk()} says {mask_length} bytes of mask and {data_length} "
            f"of data, but {raw.size - HEADER.size} follow"
        )
    return raw[HEADER.size :], mask_length


def checked_mask(mask: NDBuffer) -> tuple[np.ndarray[Any, Any], int]:
    """The mask as an array of bools, and how many are true; other bytes would be counted wrongly."""
    present = mask.as_numpy_array()
    octets = present.view(np.uint8)
    if present.size and octets.max() > 1:
        raise ChunkDecodeError(
            f"codec 'optional': the mask{named_chunk()} holds bytes that are neither true nor false"
        )
    return present, int(np.count_nonzero(present))
