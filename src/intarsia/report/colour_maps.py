"""Colours for values: the maps that the page and its static pictures share, and pictures as PNG."""

import struct
import zlib
from typing import Any

import numpy as np

COLOUR_MAPS = {
    "viridis": (
        "#440154 #481467 #482576 #453781 #404688 #39558c #33638d #2d718e #287d8e #238a8d #1f968b #20a386 "
        "#29af7f #3dbc74 #56c667 #75d054 #95d840 #bade28 #dde318 #fde725"
    ),
    "magma": (
        "#000004 #0c0926 #221150 #400f74 #5f187f #7b2382 #982d80 #b73779 #d3436e #eb5760 #f8765c #fd9a6a "
        "#febb81 #fddc9e #fcfdbf"
    ),
    "cividis": "#00224e #123570 #3b496c #575d6d #707173 #8a8678 #a59c74 #c3b369 #e1cc55 #fee838",
    "blue and red": (
        "#053061 #2166ac #4393c3 #92c5de #d1e5f0 #f7f7f7 #fddbc7 #f4a582 #d6604d #b2182b #67001f"
    ),
    "turbo": (
        "#30123b #4145ab #4675ed #39a2fc #1bcfd4 #24eca6 #61fc6c #a4fc3b #d1e834 #f3c63a #fe9b2d #f36315 "
        "#d93806 #b11901 #7a0402"
    ),
    "wood": "#1f120b #4a2c1a #7b4a27 #aa713a #cf9d62 #e9c99a #fbf1de",
    "grey": "#101010 #f4f4f4",
}
"""By name, colours from the lowest to the highest value; between them it is linear."""

type Colours = np.ndarray[Any, np.dtype[np.uint8]]


def colour_table(name: str = "viridis", steps: int = 256) -> Colours:
    """A colour map as red, green and blue for every step.

    >>> colour_table("grey", 2).tolist()
    [[16, 16, 16], [244, 244, 244]]
    """
    anchors = np.array([list(bytes.fromhex(colour[1:])) for colour in COLOUR_MAPS[name].split()])
    places = np.linspace(0, len(anchors) - 1, steps)
    channels = [np.interp(places, np.arange(len(anchors)), anchors[:, i]) for i in range(3)]
    table: Colours = np.stack(channels, axis=1).round().astype(np.uint8)
    return table


def png(pixels: Colours) -> bytes:
    """A picture in the format PNG; `pixels` holds red, green, blue and opacity of each, row by row.

    >>> png(np.zeros((2, 3, 4), dtype=np.uint8))[1:4]
    b'PNG'
    """
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # no filter

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            chunk(b"IEND", b""),
        ]
    )
