"""Damage: to bytes, and to JSON documents. All that is random comes from the caller."""

import bz2
import copy
import gzip
import json
import lzma
import struct
import zlib
from functools import cache

import numpy as np

NUMBERS = (
    *(0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 1023, 4095, 4096, 65535, 65536),
    *((1 << 24) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 10**11, (1 << 62) + 1, (1 << 63) - 1),
    *(1 << 63, (1 << 64) - 1, (1 << 64) - 16),
)
"""What is written over length fields: small, just too large, absurd."""

FORMATS = ("<B", "<H", ">H", "<I", ">I", "<Q", ">Q")


def flip_bits(data, rng, _others):
    for _ in range(rng.choice((1, 1, 1, 2, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def set_bytes(data, rng, _others):
    for _ in range(rng.choice((1, 1, 2, 4))):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)))
    return data


def truncate(data, rng, _others):
    at = rng.choice((0, 1, len(data) // 2, len(data) - 1, rng.randrange(len(data)), rng.randrange(len(data))))
    return data[at:] if rng.random() < 0.2 else data[:at]


def extend(data, rng, others):
    more = rng.choice(
        (bytes(rng.choice((1, 8, 4096))), rng.randbytes(rng.choice((1, 16, 500))), rng.choice(others))
    )
    return more + data if rng.random() < 0.3 else data + more


def set_length(data, rng, _others):
    """A number over bytes that may be a length, most often near an end."""
    form = rng.choice(FORMATS)
    size = struct.calcsize(form)
    if len(data) < size:
        return data + bytes(1)
    last = len(data) - size
    near = min(last, 32)
    at = rng.choice((rng.randint(0, near), last - rng.randint(0, near), rng.randint(0, last)))
    number = rng.choice(NUMBERS) if rng.random() < 0.8 else len(data) + rng.randint(-20, 20)
    data[at : at + size] = struct.pack(form, number & ((1 << 8 * size) - 1))
    return data


def splice(data, rng, others):
    other = rng.choice(others) or b"\0"
    start, at = rng.randrange(len(other)), rng.randrange(len(data))
    piece = other[start : start + rng.choice((1, 4, 16, 64, len(other)))]
    if rng.random() < 0.5:
        data[at : at + len(piece)] = piece
        return data
    return data[:at] + piece + data[at:]


def swap(data, rng, others):
    """Another chunk altogether."""
    return bytearray(rng.choice(others))


def move(data, rng, _others):
    """A piece goes elsewhere, or is there twice, or is gone."""
    length = rng.choice((1, 4, 8, 16, 100))
    start, at = rng.randrange(len(data)), rng.randrange(len(data))
    piece = data[start : start + length]
    kind = rng.randrange(3)
    if kind == 0:
        return data[:at] + piece + data[at:]
    rest = data[:start] + data[start + length :]
    return rest if kind == 1 else rest[:at] + piece + rest[at:]


def blank(data, rng, _others):
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.choice((1, 8, 64, 512, len(data))))
    data[start:stop] = bytes([rng.choice((0, 0, 255))]) * (stop - start)
    return data


def junk(data, rng, _others):
    return bytearray(rng.randbytes(rng.choice((0, 1, 3, 16, 100, len(data)))))


MUTATIONS = (
    *(
        flip_bits,
        flip_bits,
        flip_bits,
        set_bytes,
        set_bytes,
        truncate,
        truncate,
        extend,
        set_length,
        set_length,
    ),
    *(splice, swap, move, blank, junk),
)

BOMB = 64 << 20


@cache
def bombs():
    """Few bytes that many compressors would make many of."""
    from numcodecs import LZ4, Blosc, Zstd

    zeros = np.zeros(BOMB, dtype=np.uint8)
    rle = (0 | 1 << 1 | (100_000 << 3)).to_bytes(3, "little") + b"a"
    made = [
        gzip.compress(zeros, 9),
        zlib.compress(zeros, 9),
        bz2.compress(zeros),
        lzma.compress(zeros),
        Zstd(3).encode(zeros),
        b"\x28\xb5\x2f\xfd\x00\x58" + rle * 2000,  # does not tell its size
        Blosc("zstd", 5).encode(zeros),
        LZ4().encode(zeros),
        struct.pack("<I", (1 << 31) - 1) + bytes(100),  # lz4's length
        struct.pack("<BBBBIII", 2, 1, 0x21, 4, (1 << 31) - 17, 1 << 18, 200) + bytes(184),  # blosc's header
        b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 10**11) + bytes(20),  # zstd that claims 100 GB
        struct.pack("<QQ", 10**11, 10**11) + bytes(50),  # a mask and data of 100 GB each
        struct.pack("<QQ", (1 << 64) - 8, 24) + bytes(50),
        struct.pack("<I", (1 << 32) - 1) + bytes(60),  # so many strings
        struct.pack("<II", 1, (1 << 32) - 1) + bytes(60),  # one string of this length
    ]
    return [gzip.compress(made[0]), Zstd(3).encode(made[4]), *made]


def damaged(data, rng, others):
    """The bytes, with something wrong with them; `others` are bytes of the same kind."""
    if rng.random() < 0.04:
        return bytes(rng.choice(bombs()))
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not data:
            data = bytearray(rng.randbytes(4))
        data = bytearray(rng.choice(MUTATIONS)(data, rng, others))
    return bytes(data)


NESTED = "a list in a list, and so on"
"""Stands for what no program that works by recursion can even copy."""

DEPTH = 3000
MAX_DEPTH = 12

VALUES = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        2,
        7,
        65,
        1000,
        1 << 31,
        1 << 53,
        1 << 62,
        1 << 63,
        1 << 64,
        10**30,
        -(10**30),
    ),
    *(
        1.5,
        -0.0,
        1e300,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\0",
        "\ud800",
        "\x1b[31m",
        "0x",
        "0x7ff8000000000000",
    ),
    *("int8", "float32", "NaN", "Infinity", "..", "../..", "/etc/passwd", "m-1", "a/b", "file:///etc/passwd"),
    *("<script>alert(1)</script>", "c", "zarr.json", "x" * 10_000),
    *(
        [],
        [[]],
        [0],
        [1, 2, 3],
        [None],
        ["x"] * 4,
        [[0, 0]] * 3,
        [-1, -1],
        [10**9] * 3,
        [0.5],
        [True],
        NESTED,
    ),
    *(
        {},
        {"x": 1},
        {"name": "gzip"},
        {"name": "gzip", "configuration": {"level": 5}},
        {"name": "no-such-codec"},
    ),
    *(
        {"name": 5, "configuration": []},
        {"name": "bytes"},
        {"name": "optional", "configuration": {"name": "int8"}},
    ),
)
"""What is put where something else should be."""


def places(node, path=()):
    """Every place of a document."""
    yield path
    if len(path) > MAX_DEPTH:
        return
    if isinstance(node, dict):
        for key in node:
            yield from places(node[key], (*path, key))
    elif isinstance(node, list):
        for index in range(min(len(node), 12)):
            yield from places(node[index], (*path, index))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def damaged_document(document, rng, spots=None):
    """A JSON document with one to three things wrong with it; `spots` are its places, if they are known."""
    document = copy.deepcopy(document)
    for turn in range(rng.choice((1, 1, 1, 2, 3))):
        path = rng.choice(spots if spots and not turn else list(places(document)))
        document = _changed(document, path, rng)
        if not isinstance(document, dict | list):
            break
    return document


def _changed(document, path, rng):
    node, kind = at(document, path), rng.randrange(10)
    if not path:
        return rng.choice((None, [], {}, "x", 3, [document], True)) if rng.random() < 0.3 else document
    above, key = at(document, path[:-1]), path[-1]
    if kind == 0:
        del above[key]
    elif kind == 1 and isinstance(node, list):
        node.append(copy.deepcopy(node[0]) if node else None)
    elif kind == 1 and isinstance(node, dict):
        node[rng.choice(("more", "must_understand", "__class__", "", "x" * 300))] = _other(rng)
    elif kind == 2 and isinstance(node, list):
        rng.shuffle(node)
    elif kind in (3, 4) and isinstance(node, int):
        above[key] = rng.choice((node + 1, node - 1, -node, node * 2, node << 32, node / 2, str(node)))
    elif kind == 3 and isinstance(node, str):
        above[key] = rng.choice((node.upper(), node[:-1], node + "\0", [node], node + "/..", node[::-1]))
    elif kind == 5:
        above[key] = copy.deepcopy(at(document, rng.choice(list(places(document)))))
    else:
        above[key] = _other(rng)
    return document


def _other(rng):
    """Something else: a copy, for it may be changed further."""
    return copy.deepcopy(rng.choice(VALUES))


def damaged_json(document, rng, others, spots=None):
    """The text of a document that is damaged as a document, and sometimes as bytes."""
    if rng.random() < 0.15:
        return damaged(json.dumps(document).encode(), rng, others)
    text = json.dumps(damaged_document(document, rng, spots))
    return text.replace(f'"{NESTED}"', "[" * DEPTH + "]" * DEPTH).encode()
