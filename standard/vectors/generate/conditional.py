"""Vectors of `conditional`."""

import numpy as np
from standard.vectors.generate.case import (
    BIG,
    BYTES,
    CRC,
    GZIP,
    LITTLE,
    ZSTD,
    array,
    configured,
    numbers,
    refused,
    sharded,
    transposed,
)
from standard.vectors.generate.encode import gzip
from standard.vectors.generate.headers import padded, shuffled


def conditional(codecs, masks=(0,), header_bits=None, name="conditional"):
    configuration = {"codecs": codecs} | ({} if header_bits is None else {"header_bits": header_bits})
    return {"name": name, "configuration": configuration, "_masks": list(masks)}


def conditionals():
    every = [shuffled(2), GZIP, CRC]
    short = numbers((8, 6), "int16")
    yield array(
        "conditional/one-codec",
        "One codec, applied to every other chunk",
        short,
        "int16",
        [LITTLE, conditional([GZIP], [0, 1])],
        (4, 3),
    )
    yield array(
        "conditional/never", "No codec is applied", short, "int16", [LITTLE, conditional([GZIP])], (4, 3)
    )
    yield array(
        "conditional/every-mask",
        "Three codecs, all eight bitmasks",
        numbers((8, 4), "int16"),
        "int16",
        [LITTLE, conditional(every, range(8))],
        (1, 4),
    )
    yield array(
        "conditional/eight-codecs",
        "Eight codecs fill one byte: each alone, and all",
        numbers(27, "uint8"),
        "uint8",
        [BYTES, conditional([CRC] * 8, [*(1 << i for i in range(8)), 255])],
        (3,),
    )
    yield array(
        "conditional/nine-codecs",
        "Nine codecs: a header of two bytes, the ninth bit in the second",
        numbers(12, "uint8"),
        "uint8",
        [BYTES, conditional([CRC] * 9, [256, 1, 511, 0])],
        (3,),
    )
    yield array(
        "conditional/seventeen-codecs",
        "Seventeen codecs: a header of three bytes",
        numbers(9, "uint8"),
        "uint8",
        [BYTES, conditional([CRC] * 17, [1 << 16, (1 << 17) - 1, 0])],
        (3,),
    )
    for bits in (8, 16, 24, 64, 128):
        yield array(
            f"conditional/header-bits-{bits}",
            f"A header of {bits} bits for two codecs",
            short,
            "int16",
            [LITTLE, conditional([shuffled(2), CRC], [3, 0, 1, 2], bits)],
            (4, 3),
        )
    yield array(
        "conditional/no-codecs",
        "No codecs, and so no header",
        short,
        "int16",
        [LITTLE, conditional([])],
        (4, 3),
    )
    yield array(
        "conditional/no-codecs-header",
        "No codecs, but a header of eight bits",
        short,
        "int16",
        [LITTLE, conditional([], header_bits=8)],
        (4, 3),
    )
    yield array(
        "conditional/nested",
        "A conditional inside another one",
        short,
        "int16",
        [LITTLE, conditional([shuffled(2), conditional([GZIP, CRC], [0, 1, 2, 3])], [2, 3, 0, 2])],
        (2, 3),
    )
    deep = conditional([conditional([conditional([CRC], [1, 0]), GZIP], [3, 1])], [1, 1, 0])
    yield array("conditional/nested-thrice", "Three levels", short, "int16", [LITTLE, deep], (2, 3))
    yield array(
        "conditional/twice",
        "Two conditionals, one after the other",
        short,
        "int16",
        [LITTLE, conditional([shuffled(2)], [1, 0]), conditional([GZIP, CRC], [3, 1, 0])],
        (2, 3),
    )
    yield array(
        "conditional/between",
        "Between other codecs: a checksum before, a compressor after",
        short,
        "int16",
        [LITTLE, CRC, conditional([GZIP], [1, 0]), ZSTD],
        (4, 3),
    )
    yield array(
        "conditional/zstd",
        "zstd, of which one chunk is a repeated byte",
        np.repeat(short[:, :1], 6, axis=1),
        "int16",
        [BIG, conditional([ZSTD], [1, 0])],
        (1, 6),
    )
    yield array(
        "conditional/padded",
        "A pad among the nested codecs",
        short,
        "int16",
        [LITTLE, conditional([padded("start", 5, padding=b"HELLO"), padded("end", 2)], [3, 1, 2, 0])],
        (4, 3),
    )
    yield array(
        "conditional/name-alone",
        "A nested codec as its name alone",
        short,
        "int16",
        [LITTLE, conditional(["crc32c"], [1, 0])],
        (4, 3),
    )
    yield array(
        "conditional/old-name",
        "The older name, `optional` with `codecs`",
        short,
        "int16",
        [LITTLE, conditional([GZIP, CRC], [3, 0, 1, 2], name="optional")],
        (4, 3),
    )
    yield array(
        "conditional/edge-chunks",
        "Chunks that the shape cuts",
        numbers((7, 5), "float32"),
        "float32",
        [LITTLE, conditional([shuffled(4), GZIP], [3, 0, 1])],
        (3, 4),
    )
    yield array(
        "conditional/no-axes",
        "An array without axes",
        np.float64(2.5),
        "float64",
        [LITTLE, conditional([shuffled(8)], [1])],
        (),
    )
    yield array(
        "conditional/three-axes",
        "Three axes, transposed",
        numbers((3, 4, 5), "uint32"),
        "uint32",
        [transposed(2, 0, 1), BIG, conditional([shuffled(4), CRC], [3, 2, 1, 0])],
        (2, 2, 3),
    )
    some = numbers((8, 6), "int16")
    some[:4, :3] = 7
    yield array(
        "conditional/missing-chunk",
        "A chunk that is not stored",
        some,
        "int16",
        [LITTLE, conditional([GZIP], [1, 0])],
        (4, 3),
        fill_value=7,
        skip={(0, 0)},
    )
    for location in ("start", "end"):
        yield array(
            f"conditional/in-shards-{location}",
            f"Inside shards with the index at the {location}",
            some,
            "int16",
            [sharded((2, 3), [LITTLE, conditional([shuffled(2), GZIP], [3, 0, 1])], location)],
            (4, 6),
            fill_value=7,
        )
    yield array(
        "conditional/in-nested-shards",
        "Inside shards inside shards",
        numbers((8, 8), "int16"),
        "int16",
        [sharded((4, 4), [sharded((2, 2), [LITTLE, conditional([CRC], [1, 0])])])],
        (8, 8),
    )
    yield array(
        "conditional/around-shards",
        "Around a shard: the whole of it is applied to or not",
        short,
        "int16",
        [sharded((2, 3), [LITTLE, CRC]), conditional([GZIP], [1, 0])],
        (4, 6),
    )
    yield array(
        "conditional/float64",
        "NaN, infinities and -0.0",
        [0.5, np.nan, np.inf, -np.inf, -0.0, 1e300],
        "float64",
        [LITTLE, conditional([shuffled(8), ZSTD], [3, 0, 1])],
        (2,),
        fill_value=float("nan"),
    )
    yield array(
        "conditional/int64",
        "Integers of 64 bits",
        [2**63 - 1, -(2**63), 2**53 + 1, 0],
        "int64",
        [BIG, conditional([GZIP], [1, 0])],
        (2,),
        fill_value=-(2**62) - 1,
    )

    plain = array("", "", numbers(8, "int16"), "int16", [LITTLE, conditional([GZIP], [0])], (4,))
    two = array("", "", numbers(8, "int16"), "int16", [LITTLE, conditional([GZIP], [0], 16)], (4,))
    twice = array("", "", numbers(8, "int16"), "int16", [LITTLE, conditional([shuffled(2), CRC], [0])], (4,))

    def bad(name, about, level, case=plain, **how):
        return refused(case, f"conditional/refused-{name}", about, level, **how)

    yield bad("empty-chunk", "A chunk of no bytes has no header", "chunk", c_0=b"")
    yield bad("short-header", "One byte of a header of two", "chunk", two, c_0=b"\0")
    yield bad("reserved-bit", "Bit 1 is set, but there is one codec", "chunk", c_0=lambda d: b"\2" + d[1:])
    yield bad("reserved-byte", "A bit in the second byte is set", "chunk", two, c_0=lambda d: b"\0\1" + d[2:])
    yield bad(
        "garbage",
        "gzip was applied, says the header, but this is no gzip",
        "chunk",
        c_0=lambda d: b"\1" + d[1:],
    )
    yield bad(
        "wrong-checksum",
        "The nested checksum is wrong",
        "chunk",
        twice,
        c_0=lambda d: b"\2" + d[1:] + bytes(4),
    )
    yield bad(
        "no-elements",
        "Shuffled bytes that are not whole elements",
        "chunk",
        twice,
        c_0=lambda d: b"\1" + d[1:] + b"\0",
    )
    yield bad("too-short", "Fewer bytes than the chunk takes", "chunk", c_0=lambda d: d[:-2])
    yield bad("too-long", "More bytes than the chunk takes", "chunk", c_0=lambda d: d + b"\0\0")
    yield bad(
        "unpacks-too-short",
        "The nested compressor makes too few bytes",
        "chunk",
        c_0=lambda d: b"\1" + gzip(d[1:-1]),
    )
    yield bad(
        "unpacks-too-long",
        "The nested compressor makes too many bytes",
        "chunk",
        c_0=lambda d: b"\1" + gzip(d[1:] * 9),
    )
    bomb = array("", "", numbers(8, "int16"), "int16", [LITTLE, conditional([ZSTD], [0])], (4,))
    yield bad(
        "bomb",
        "A megabyte where 8 bytes belong",
        "chunk",
        bomb,
        c_0=b"\1\x28\xb5\x2f\xfd\xa0\0\0\x10\0" + b"\2\0\x10\7" * 7 + b"\3\0\x10\7",
    )
    yield bad(
        "no-header-bits", "A header that is not of whole bytes", "schema", change=configured(header_bits=12)
    )
    yield bad("negative-header", "A header of less than nothing", "schema", change=configured(header_bits=-8))
    yield bad("header-text", "A header's length as a text", "schema", change=configured(header_bits="8"))
    yield bad(
        "small-header",
        "Nine codecs and a header of 8 bits",
        "metadata",
        change=configured(header_bits=8, codecs=[CRC] * 9),
    )
    yield bad("no-codecs", "`codecs` is missing", "schema", change=configured(codecs=None))
    yield bad("codecs-object", "`codecs` is not a list", "schema", change=configured(codecs={"name": "gzip"}))
    yield bad(
        "nameless-codec",
        "A nested codec without a name",
        "schema",
        change=configured(codecs=[{"configuration": {}}]),
    )
    yield bad("unknown-field", "A field that nobody knows", "schema", change=configured(decision="sampled"))
    yield bad(
        "nested-bytes",
        "A nested codec that is not bytes -> bytes",
        "metadata",
        change=configured(codecs=[LITTLE]),
    )
    yield bad(
        "unknown-codec",
        "A nested codec that nobody knows",
        "metadata",
        change=configured(codecs=[{"name": "no-such-codec"}]),
    )
