"""Vectors of `pad`, `offset` and `shuffle`."""

import base64

from standard.vectors.generate.case import (
    BIG,
    BYTES,
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


def shuffled(element_size):
    return {"name": "shuffle", "configuration": {"element_size": element_size}}


def padded(location, nbytes, **padding):
    return {"name": "pad", "configuration": {"location": location, "nbytes": nbytes, **_text(padding)}}


def prefixed(offset, **prefix):
    return {"name": "offset", "configuration": {"offset": offset, **_text(prefix)}}


def _text(option):
    """Bytes as base64; None stays."""
    return {name: None if data is None else base64.b64encode(data).decode() for name, data in option.items()}


TIFF = base64.b64decode(
    "SUkqAAgAAAAIAAABAwABAAAACAAAAAEBAwABAAAACAAAAAIBAwABAAAAEAAAAAMBAwABAAAAAQAAAAYBAwABAAAAAQAAABEBBAABAAAA"
    "bgAAABYBAwABAAAACAAAABcBBAABAAAAgAAAAAAAAAA="
)
"""The head of a TIFF file: 8 rows of 8 pixels of 16 bits, in one strip behind these 110 bytes."""


def pads():
    values = numbers((6, 4), "int32")
    for location in ("start", "end"):
        for nbytes in (0, 1, 5, 16):
            yield array(
                f"pad/{location}-{nbytes}",
                f"{nbytes} bytes at the {location}",
                values,
                "int32",
                [LITTLE, padded(location, nbytes, padding=bytes(range(nbytes)))],
                (3, 4),
            )
        yield array(
            f"pad/{location}-zeros",
            f"Zeros at the {location}, because the metadata gives no bytes",
            values,
            "int32",
            [LITTLE, padded(location, 7)],
            (3, 4),
        )
        yield array(
            f"pad/{location}-function",
            f"Bytes at the {location} that were computed at run time",
            values,
            "int32",
            [LITTLE, padded(location, 7, padding=None)],
            (3, 4),
        )
    yield array(
        "pad/both-ends",
        "Before and behind",
        values,
        "int32",
        [LITTLE, padded("start", 4, padding=b"HEAD"), padded("end", 4, padding=b"TAIL")],
        (3, 4),
    )
    yield array(
        "pad/twice",
        "Twice at one end: the later codec is the outer one",
        values,
        "int32",
        [LITTLE, padded("start", 2, padding=b"in"), padded("start", 3, padding=b"out")],
        (3, 4),
    )
    yield array(
        "pad/compressed",
        "Around a compressed chunk, and inside another",
        values,
        "int32",
        [LITTLE, padded("start", 3, padding=b"abc"), GZIP, padded("end", 3, padding=b"xyz"), ZSTD],
        (3, 4),
    )
    other = array(
        "pad/other-bytes",
        "Bytes that are not those of the metadata: nobody looks at them",
        values,
        "int32",
        [LITTLE, padded("start", 4, padding=b"HEAD")],
        (3, 4),
    )
    other.files["c/0/0"] = b"????" + other.files["c/0/0"][4:]
    yield other
    yield array(
        "pad/unaligned",
        "Numbers of 8 bytes behind 3",
        numbers(9, "float64"),
        "float64",
        [LITTLE, padded("start", 3, padding=b"odd")],
        (4,),
    )
    yield array(
        "pad/in-shards",
        "Inside shards, whose chunks then start anywhere",
        values,
        "int32",
        [sharded((3, 2), [LITTLE, padded("end", 1, padding=b"!"), padded("start", 2, padding=b"<>")])],
        (6, 4),
    )
    yield array(
        "pad/around-shards",
        "Around a shard",
        values,
        "int32",
        [sharded((3, 2), [LITTLE]), padded("end", 3, padding=b"end")],
        (6, 4),
    )
    yield array(
        "pad/tiff",
        "Every chunk is a TIFF file",
        numbers((16, 8), "uint16"),
        "uint16",
        [LITTLE, padded("start", 110, padding=TIFF)],
        (8, 8),
    )
    n5 = array(
        "pad/n5",
        "Blocks of an N5 dataset: column-major, big endian, a header before each",
        numbers((4, 6), "uint16"),
        "uint16",
        [transposed(1, 0), BIG, GZIP, padded("start", 12, padding=b"\0\0\0\2\0\0\0\2\0\0\0\3")],
        (2, 3),
        chunk_key_encoding={"name": "v2", "configuration": {"separator": "/"}},
    )
    n5.files = {name.removeprefix("c/"): content for name, content in n5.files.items()}
    yield n5

    plain = array("", "", numbers(8, "int16"), "int16", [LITTLE, padded("start", 4, padding=b"HEAD")], (4,))
    tail = array("", "", numbers(8, "int16"), "int16", [LITTLE, padded("end", 4)], (4,))

    def bad(name, about, level, case=plain, **how):
        return refused(case, f"pad/refused-{name}", about, level, **how)

    yield bad("short-start", "A chunk shorter than its padding", "chunk", c_0=b"HEA")
    yield bad("short-end", "A chunk shorter than its padding", "chunk", tail, c_0=b"")
    yield bad("nothing-left", "Nothing but padding", "chunk", c_0=b"HEAD")
    yield bad("too-long", "More bytes than padding and data", "chunk", c_0=lambda d: d + b"\0\0")
    yield bad(
        "location", "A place that is neither start nor end", "schema", change=configured(location="middle")
    )
    yield bad("no-location", "`location` is missing", "schema", change=configured(location=None))
    yield bad("no-nbytes", "`nbytes` is missing", "schema", change=configured(nbytes=None))
    yield bad("negative", "Fewer bytes than none", "schema", change=configured(nbytes=-1, padding=None))
    yield bad("fraction", "Half a byte", "schema", change=configured(nbytes=4.5))
    yield bad("not-base64", "A padding that is not base64", "schema", change=configured(padding="HEAD!!=="))
    yield bad(
        "other-length", "A padding of three bytes for four", "metadata", change=configured(padding="SEVB")
    )
    yield bad("unknown-field", "A field that nobody knows", "schema", change=configured(fill=0))
    yield bad(
        "no-configuration",
        "No configuration at all",
        "schema",
        change=lambda m: m["codecs"].__setitem__(-1, {"name": "pad"}),
    )


def offsets():
    values = numbers((6, 4), "int32")
    for nbytes in (0, 1, 9):
        yield array(
            f"offset/{nbytes}",
            f"{nbytes} bytes before the data",
            values,
            "int32",
            [LITTLE, prefixed(nbytes, prefix=bytes(range(nbytes)))],
            (3, 4),
        )
    yield array(
        "offset/function",
        "Bytes that were computed at run time",
        values,
        "int32",
        [LITTLE, GZIP, prefixed(6, prefix=None)],
        (3, 4),
    )
    plain = array("", "", numbers(8, "int16"), "int16", [LITTLE, prefixed(4, prefix=b"HEAD")], (4,))
    for name, about, level, how in (
        ("short", "A chunk shorter than its prefix", "chunk", {"c_0": b"HEA"}),
        ("no-offset", "`offset` is missing", "schema", {"change": configured(offset=None)}),
        ("negative", "Fewer bytes than none", "schema", {"change": configured(offset=-4)}),
        ("not-base64", "A prefix that is not base64", "schema", {"change": configured(prefix="?")}),
        (
            "other-length",
            "A prefix of three bytes for four",
            "metadata",
            {"change": configured(prefix="SEVB")},
        ),
        ("location", "A field of `pad`", "schema", {"change": configured(location="end")}),
    ):
        yield refused(plain, f"offset/refused-{name}", about, level, **how)


def shuffles():
    for size in (1, 2, 4, 8):
        yield array(
            f"shuffle/{size}",
            f"Elements of {size} bytes",
            numbers((4, 6), f"uint{8 * size}"),
            f"uint{8 * size}",
            [LITTLE if size > 1 else BYTES, shuffled(size)],
            (2, 6),
        )
    yield array(
        "shuffle/other-size",
        "Elements of another size than the data type's",
        numbers((4, 6), "uint16"),
        "uint16",
        [BIG, shuffled(3), GZIP],
        (2, 6),
    )
    plain = array("", "", numbers(8, "int16"), "int16", [LITTLE, shuffled(2)], (4,))
    for name, about, level, how in (
        ("remainder", "Bytes that are not whole elements", "chunk", {"c_0": lambda d: d + b"\0"}),
        ("too-short", "An element is missing", "chunk", {"c_0": lambda d: d[:-2]}),
        ("zero", "Elements of no bytes", "schema", {"change": configured(element_size=0)}),
        ("no-size", "`element_size` is missing", "schema", {"change": configured(element_size=None)}),
        ("unknown-field", "The field of numcodecs", "schema", {"change": configured(elementsize=2)}),
    ):
        yield refused(plain, f"shuffle/refused-{name}", about, level, **how)
