"""Vectors of `packbits`."""

import numpy as np
from standard.vectors.generate.case import (
    CRC,
    GZIP,
    array,
    configured,
    numbers,
    refused,
    sharded,
    transposed,
)

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


def packed(first_bit=None, last_bit=None, padding=None):
    given = {"first_bit": first_bit, "last_bit": last_bit, "padding_encoding": padding}
    configuration = {name: value for name, value in given.items() if value is not None}
    return {"name": "packbits"} | ({"configuration": configuration} if configuration else {})


def in_bits(shape, dtype, first, last):
    """Values that need no other bits than these, with some that are negative."""
    count = int(np.prod(shape, dtype=int))
    signed = dtype.startswith("int")
    values = []
    for i in range(count):
        kept = (i * 0x9E3779B97F4A7C15F39CC0605CEDC835 >> 31) & ((1 << last - first + 1) - 1)
        if signed and kept >> (last - first):
            kept -= 1 << last - first + 1
        values.append(kept << first)
    return np.array(values, dtype=dtype).reshape(shape)


def packbits():
    bools = numbers((5, 8), "uint8") % 3 == 1
    yield array("packbits/bool", "Bools, 8 in a byte", bools, "bool", [packed()], (1, 8), fill_value=False)
    for count in (1, 5, 7, 8, 9):
        for padding in ("none", "first_byte", "last_byte"):
            about = f"{count} bools, with the number of padding bits: {padding}"
            values = (np.arange(count) * 5 + 2) % 3 == 0
            codecs = [packed(padding=padding)]
            yield array(
                f"packbits/bool-{count}-{padding}", about, values, "bool", codecs, (count,), fill_value=False
            )
    for name in INTEGERS:
        bits = int(name.lstrip("uint"))
        values = in_bits((2, 3), name, 0, bits - 1)
        yield array(f"packbits/{name}", "All bits: the little-endian bytes", values, name, [packed()], (2, 3))
        first, last = bits // 4 - 1, bits - 3
        yield array(
            f"packbits/{name}-some",
            f"Bits {first} to {last} of {bits}",
            in_bits((3, 5), name, first, last),
            name,
            [packed(first, last, "last_byte")],
            (2, 3),
        )
        yield array(
            f"packbits/{name}-low",
            "The lowest three bits",
            in_bits((3, 5), name, 0, 2),
            name,
            [packed(last_bit=2)],
            (3, 5),
        )
        yield array(
            f"packbits/{name}-high",
            "The highest two bits",
            in_bits((3, 5), name, bits - 2, bits - 1),
            name,
            [packed(first_bit=bits - 2, padding="first_byte")],
            (3, 5),
        )
    yield array(
        "packbits/one-bit",
        "One bit of a signed integer: 0 and -4",
        in_bits(11, "int8", 2, 2),
        "int8",
        [packed(2, 2)],
        (4,),
    )
    nulls = {
        "name": "packbits",
        "configuration": {"first_bit": None, "last_bit": None, "padding_encoding": "none"},
    }
    yield array("packbits/nulls", "Parameters that are null", numbers(6, "uint16"), "uint16", [nulls], (6,))
    yield array(
        "packbits/whole-padding",
        "All bits, and a byte that says: no padding",
        numbers(6, "uint16"),
        "uint16",
        [packed(padding="first_byte")],
        (6,),
    )
    yield array(
        "packbits/empty-configuration",
        "A configuration without fields",
        bools,
        "bool",
        [{"name": "packbits", "configuration": {}}],
        (5, 3),
        fill_value=True,
    )
    yield array(
        "packbits/edge-chunks",
        "Chunks that the shape cuts, and other codecs around",
        in_bits((4, 5, 3), "int16", 1, 7),
        "int16",
        [transposed(2, 0, 1), packed(1, 7), GZIP, CRC],
        (3, 2, 2),
    )
    yield array(
        "packbits/in-shards",
        "Inside shards",
        bools,
        "bool",
        [sharded((1, 4), [packed(padding="last_byte"), CRC])],
        (5, 8),
        fill_value=False,
    )
    yield array(
        "packbits/no-axes", "An array without axes", np.bool_(True), "bool", [packed()], (), fill_value=False
    )

    plain = array("", "", bools[0], "bool", [packed()], (5,), fill_value=False)
    first = array("", "", bools[0], "bool", [packed(padding="first_byte")], (5,), fill_value=False)
    last = array("", "", bools[0], "bool", [packed(padding="last_byte")], (5,), fill_value=False)
    long = array("", "", numbers(8, "int16"), "int16", [packed(0, 9)], (4,))

    def bad(name, about, level, case=long, **how):
        return refused(case, f"packbits/refused-{name}", about, level, **how)

    yield bad("short", "A byte is missing", "chunk", c_0=lambda d: d[:-1])
    yield bad("long", "A byte too many", "chunk", c_0=lambda d: d + b"\0")
    yield bad(
        "padding-bits", "A padding bit that is not zero", "chunk", plain, c_0=lambda d: bytes([d[0] | 0x80])
    )
    yield bad(
        "first-byte",
        "Another number of padding bits, in the first byte",
        "chunk",
        first,
        c_0=lambda d: b"\4" + d[1:],
    )
    yield bad(
        "last-byte",
        "Another number of padding bits, in the last byte",
        "chunk",
        last,
        c_0=lambda d: d[:-1] + b"\x0b",
    )
    yield bad(
        "backwards", "The last bit is below the first", "metadata", change=configured(first_bit=5, last_bit=4)
    )
    yield bad(
        "too-many", "A bit that the data type does not have", "metadata", change=configured(last_bit=16)
    )
    yield bad("too-many-bool", "A second bit of a bool", "metadata", plain, change=configured(last_bit=1))
    yield bad("negative", "A bit below the lowest", "schema", change=configured(first_bit=-1))
    yield bad("fraction", "Half a bit", "schema", change=configured(last_bit=2.5))
    yield bad(
        "start-bit",
        "A name of the registered schema that the registered text does not know",
        "schema",
        change=configured(start_bit=1),
    )
    yield bad(
        "start-byte",
        "A value of the registered schema that the registered text does not know",
        "schema",
        change=configured(padding_encoding="start_byte"),
    )
