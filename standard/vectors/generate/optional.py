"""Vectors of `optional`, the data type and the codec."""

import struct

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
from standard.vectors.generate.conditional import conditional
from standard.vectors.generate.headers import padded, shuffled
from standard.vectors.generate.packbits import INTEGERS, packed


def optional_type(inner, depth=1, name="optional", said=True):
    found = {"name": inner} | ({"configuration": {}} if said else {})
    for _ in range(depth):
        found = {"name": name, "configuration": found}
    return found


def optional(data=None, mask=None, name="optional"):
    parts = {"mask_codecs": mask or [packed()], "data_codecs": data or [LITTLE]}
    return {"name": name, "configuration": parts}


def elements(*values):
    """Elements as in a fill_value: null, or a list of one."""
    found = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        found[i] = value
    return found


def some_nulls(shape, dtype):
    values = numbers(shape, "int64").reshape(-1)
    convert = (lambda v: bool(v % 2)) if dtype == "bool" else (float if dtype.startswith("f") else int)
    listed = [
        None if v % 3 == 0 else [convert(v)] for v in (abs(values) if dtype[0] == "u" else values).tolist()
    ]
    return elements(*listed).reshape(shape)


def optionals():
    for name in ("bool", *INTEGERS, "float16", "float32", "float64"):
        data = [packed()] if name == "bool" else [BYTES] if name.endswith("int8") else [LITTLE]
        yield array(
            f"optional/{name}",
            "Some values, some nulls",
            some_nulls((4, 6), name),
            optional_type(name),
            [optional(data)],
            (3, 4),
            fill_value=None,
        )
    small = some_nulls((4, 6), "int16")
    uint8 = optional_type("uint8")
    texts = elements(["a"], None, [""], ["ä€"], None, ["six"])
    yield array(
        "optional/string",
        "Texts; an empty one is no null",
        texts,
        optional_type("string"),
        [optional([{"name": "vlen-utf8"}])],
        (4,),
        fill_value=None,
    )
    yield array(
        "optional/nan",
        "NaN and -0.0 are values",
        elements([float("nan")], None, [-0.0], [float("inf")]),
        optional_type("float32"),
        [optional()],
        (4,),
        fill_value=[float("nan")],
    )
    yield array(
        "optional/big-integers",
        "Integers of 64 bits",
        elements([2**63 - 1], None, [-(2**63)], [2**53 + 1]),
        optional_type("int64"),
        [optional([BIG])],
        (2,),
        fill_value=[2**62 + 1],
    )
    for name, mask in (
        ("bytes", [BYTES]),
        ("gzip", [packed(), GZIP]),
        ("crc", [BYTES, CRC]),
        ("padding", [packed(padding="first_byte")]),
    ):
        yield array(
            f"optional/mask-{name}",
            f"The mask by {name}",
            small,
            optional_type("int16"),
            [optional(mask=mask)],
            (2, 5),
            fill_value=None,
        )
    for name, data in (
        ("big", [BIG]),
        ("compressed", [LITTLE, shuffled(2), ZSTD]),
        ("packbits", [packed(0, 9)]),
        ("conditional", [LITTLE, conditional([GZIP, CRC], [3, 0, 1])]),
        ("padded", [LITTLE, padded("start", 3, padding=b"abc")]),
    ):
        yield array(
            f"optional/data-{name}",
            f"The values by {name}",
            small,
            optional_type("int16"),
            [optional(data)],
            (2, 5),
            fill_value=None,
        )
    yield array(
        "optional/all-null",
        "Nothing but nulls: no data at all",
        elements(*[None] * 6),
        uint8,
        [optional([BYTES])],
        (3,),
        fill_value=[7],
    )
    yield array(
        "optional/no-null",
        "No null",
        elements(*([v] for v in range(6))),
        uint8,
        [optional([BYTES])],
        (3,),
        fill_value=None,
    )
    yield array(
        "optional/missing-null",
        "A chunk that is not stored, of null",
        elements([1], [2], None, None),
        uint8,
        [optional([BYTES])],
        (2,),
        fill_value=None,
        skip={(1,)},
    )
    yield array(
        "optional/missing-value",
        "A chunk that is not stored, of a value",
        elements([1], None, [9], [9]),
        uint8,
        [optional([BYTES])],
        (2,),
        fill_value=[9],
        skip={(1,)},
    )
    yield array(
        "optional/edge-chunks",
        "Chunks that the shape cuts, filled up with a value",
        small,
        optional_type("int16"),
        [optional()],
        (3, 5),
        fill_value=[5],
    )
    yield array(
        "optional/no-axes",
        "An array without axes",
        np.array([[4], 0], dtype=object)[:1].reshape(()),
        uint8,
        [optional([BYTES])],
        (),
        fill_value=None,
    )
    yield array(
        "optional/transposed",
        "transpose before, a compressor behind",
        small,
        optional_type("int16"),
        [transposed(1, 0), optional(), ZSTD, CRC],
        (3, 4),
        fill_value=None,
    )
    for location in ("start", "end"):
        yield array(
            f"optional/in-shards-{location}",
            f"In shards with the index at the {location}",
            small,
            optional_type("int16"),
            [sharded((2, 3), [optional()], location)],
            (4, 6),
            fill_value=None,
        )
    yield array(
        "optional/unsaid",
        "An inner data type without a configuration",
        small,
        optional_type("int16", said=False),
        [optional()],
        (3, 4),
        fill_value=None,
    )
    zarrs = "zarrs.optional"
    yield array(
        "optional/zarrs-name",
        "The names that zarrs has",
        small,
        optional_type("int16", name=zarrs),
        [optional(name=zarrs)],
        (3, 4),
        fill_value=None,
    )
    two = optional_type("uint8", 2)
    nested = elements(None, [None], [[3]], [[0]], [None], None, [[255]], [None])
    inner = [optional([optional([BYTES])])]
    yield array(
        "optional/nested",
        "Two levels: no value, and a value that is null",
        nested,
        two,
        inner,
        (4,),
        fill_value=None,
    )
    for name, fill in (("inner-null", [None]), ("value", [[3]]), ("null", None)):
        filled = elements(*nested[:4], fill, fill)
        yield array(
            f"optional/nested-missing-{name}",
            "Two levels, and a chunk that is not stored",
            filled,
            two,
            inner,
            (2,),
            fill_value=fill,
            skip={(2,)},
        )
    yield array(
        "optional/nested-all-null",
        "Two levels: a chunk of outer nulls, and one of inner ones",
        elements(None, None, [None], [None]),
        two,
        inner,
        (2,),
        fill_value=[[1]],
    )
    three = elements(None, [None], [[None]], [[[1.5]]], [[[-2.0]]], [[None]])
    yield array(
        "optional/nested-thrice",
        "Three levels",
        three,
        optional_type("float32", 3),
        [optional([optional([optional()], mask=[BYTES])])],
        (4,),
        fill_value=[[None]],
    )
    yield array(
        "optional/nested-zarrs-name",
        "Two levels, by the names that zarrs has",
        nested,
        optional_type("uint8", 2, zarrs),
        [optional([optional([BYTES], name=zarrs)], name=zarrs)],
        (4,),
        fill_value=None,
    )
    yield from refused_optionals()


def refused_optionals():
    values = elements([1], None, [3], [4])
    plain = array("", "", values, optional_type("uint8"), [optional([BYTES])], (4,), fill_value=None)
    masked = array(
        "", "", values, optional_type("uint8"), [optional([BYTES], mask=[BYTES])], (4,), fill_value=None
    )
    empty = array(
        "", "", elements(None, None), optional_type("uint8"), [optional([BYTES])], (2,), fill_value=None
    )
    level_two = array(
        "",
        "",
        elements([[1]], [None]),
        optional_type("uint8", 2),
        [optional([optional([BYTES])])],
        (2,),
        fill_value=None,
    )

    def bad(name, about, level, case=plain, **how):
        return refused(case, f"optional/refused-{name}", about, level, **how)

    def lengths(mask, data):
        return lambda content: struct.pack("<QQ", mask, data) + content[16:]

    yield bad("empty", "A chunk of no bytes", "chunk", c_0=b"")
    yield bad("short-header", "Half a header", "chunk", c_0=lambda d: d[:15])
    yield bad("cut", "The last byte is missing", "chunk", c_0=lambda d: d[:-1])
    yield bad("longer", "A byte too many", "chunk", c_0=lambda d: d + b"\0")
    yield bad("huge-mask", "A mask of 2^64 - 1 bytes", "chunk", c_0=lengths(2**64 - 1, 4))
    yield bad(
        "overflow", "Two lengths whose sum is right only in 64 bits", "chunk", c_0=lengths(2**64 - 1, 5)
    )
    yield bad("no-mask", "A mask of no bytes", "chunk", c_0=lengths(0, 4))
    yield bad("long-mask", "A mask of two bytes for four elements", "chunk", c_0=lengths(2, 2))
    yield bad(
        "fewer-values",
        "Two values for three elements",
        "chunk",
        c_0=lambda d: struct.pack("<QQ", 1, 2) + d[16:-1],
    )
    yield bad(
        "more-values",
        "Four values for three elements",
        "chunk",
        c_0=lambda d: struct.pack("<QQ", 1, 4) + d[16:] + b"\0",
    )
    yield bad(
        "no-data",
        "No data, but three elements are there",
        "chunk",
        c_0=lambda d: struct.pack("<QQ", 1, 0) + d[16:17],
    )
    yield bad(
        "null-data",
        "Everything is null, and there is data",
        "chunk",
        empty,
        c_0=lambda d: struct.pack("<QQ", 1, 1) + d[16:] + b"\0",
    )
    yield bad("mask-of-two", "A mask that says 2", "chunk", masked, c_0=lambda d: d[:16] + b"\2" + d[17:])
    yield bad(
        "nested-cut",
        "The inner chunk is cut",
        "chunk",
        level_two,
        c_0=lambda d: struct.pack("<QQ", 1, len(d) - 18) + d[16:-1],
    )
    for name, fill in (
        ("bare", 3),
        ("deep", [[3]]),
        ("inner-null", [None]),
        ("empty-list", []),
        ("two", [1, 2]),
    ):
        yield bad(
            f"fill-{name}",
            "A fill value that is not null and not a list of one value",
            "metadata",
            change=lambda m, fill=fill: m.update(fill_value=fill),
        )
    yield bad(
        "fill-shallow",
        "A fill value of one level for two",
        "metadata",
        level_two,
        change=lambda m: m.update(fill_value=[3]),
    )
    yield bad(
        "fill-range",
        "A fill value that uint8 does not hold",
        "metadata",
        change=lambda m: m.update(fill_value=[300]),
    )
    yield bad(
        "unknown-type",
        "An inner data type that nobody knows",
        "metadata",
        change=lambda m: m.update(data_type=optional_type("no-such-type")),
    )
    yield bad(
        "no-inner",
        "No inner data type",
        "schema",
        change=lambda m: m.update(data_type={"name": "optional", "configuration": {}}),
    )
    yield bad(
        "inner-text",
        "The inner data type as a text",
        "schema",
        change=lambda m: m.update(data_type={"name": "optional", "configuration": "uint8"}),
    )
    yield bad(
        "plain-type",
        "The codec on a data type that has no null",
        "metadata",
        change=lambda m: m.update(data_type="uint8", fill_value=0),
    )
    yield bad(
        "bytes-alone",
        "`bytes` on a data type that has nulls",
        "metadata",
        change=lambda m: m.update(codecs=[BYTES]),
    )
    yield bad("no-mask-codecs", "`mask_codecs` is missing", "schema", change=configured(mask_codecs=None))
    yield bad("no-data-codecs", "`data_codecs` is missing", "schema", change=configured(data_codecs=None))
    yield bad("empty-codecs", "No data codecs in the list", "schema", change=configured(data_codecs=[]))
    yield bad("unknown-field", "A field that nobody knows", "schema", change=configured(na_object="NaN"))
    yield bad(
        "shallow-codecs",
        "Two levels of null, one of codecs",
        "metadata",
        level_two,
        change=configured(data_codecs=[BYTES]),
    )
