"""Object headers of HDF5 files, for what h5py does not say: whether partial chunks skip all filters."""

from collections.abc import Iterator
from struct import Struct
from typing import Any

from intarsia.extras import extra

LAYOUT, CONTINUATION = 8, 16
"""Types of messages in an object header."""


def leaves_edges_bare(dataset: Any, reader: Any) -> bool:
    """Whether the layout of a dataset says H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS."""
    address = extra("h5py", "virtual").h5o.get_info(dataset.id).addr
    for kind, content in _messages(reader, dataset.file.userblock_size, address):
        if kind == LAYOUT:  # its version, the class of the layout, flags; older versions have none
            return content[0] >= 4 and content[1] == 2 and bool(content[2] & 1)
    return False


def _messages(reader: Any, base: int, address: int) -> Iterator[tuple[int, bytes]]:
    """Type and content of every message in an object header of either version, as HDF5 specifies them."""

    def read(at: int, count: int) -> bytes:
        reader.seek(base + at)
        data: bytes = reader.read(count)
        return data

    head = read(address, 64)
    is_new = head[:4] == b"OHDR"
    if is_new:
        flags = head[5]
        start = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)  # times, limits of attributes
        width = 1 << (flags & 3)
        blocks = [(address + start + width, int.from_bytes(head[start : start + width], "little"))]
        entry, skipped = Struct("<BHB"), 2 if flags & 4 else 0  # numbered in the order of creation
    else:
        blocks = [(address + 16, int.from_bytes(head[8:12], "little"))]
        entry, skipped = Struct("<HHB3x"), 0
    while blocks:
        data, at = read(*blocks.pop(0)), 0
        while at + entry.size <= len(data):
            kind, length, _ = entry.unpack_from(data, at)
            at += entry.size + skipped
            content = data[at : at + length]
            if kind == CONTINUATION:
                place, size = Struct("<QQ").unpack_from(content)
                blocks.append((place + 4, size - 8) if is_new else (place, size))  # signature, checksum
            yield kind, content
            at += length
