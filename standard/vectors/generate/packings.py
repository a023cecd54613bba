"""Vectors of manifests of version 2: packings, views, and both in tables."""

import numpy as np
from standard.vectors.generate.case import BYTES, GZIP, LITTLE, numbers
from standard.vectors.generate.logical import Logical, Member, Region, logical


def kind(stored, values="float64", scale=None, offset=None, missing=(), unsigned=None):
    said = {"stored": stored, "unsigned": unsigned, "values": values, "missing": list(missing)}
    return said | {"scale": scale, "offset": offset}


def bits(value, dtype):
    """The bits of a number, as the manifest spells them."""
    if value is None or dtype is None:
        return None
    return "0x" + np.array(value, dtype=np.dtype(dtype).newbyteorder(">")).tobytes().hex()


def rows(kinds, *given):
    """The columns of packings: each given as the number of its kind, a scale and an offset."""
    found = {"kinds": kinds, "kind": [k for k, _, _ in given]}
    found["scale"] = [bits(scale, kinds[k]["scale"]) for k, scale, _ in given]
    return found | {"offset": [bits(offset, kinds[k]["offset"]) for k, _, offset in given]}


def unpacked(stored, said, scale=None, offset=None):
    """The values, step by step as the specification says."""
    if said["unsigned"] is not None:
        stored = stored.view(("u" if said["unsigned"] else "") + stored.dtype.name.lstrip("u"))
    v = np.dtype(said["values"])
    with np.errstate(all="ignore"):
        found = stored.astype(v)
        missing = np.zeros(found.shape, dtype=bool)
        for mark in said["missing"]:
            if isinstance(mark, str):
                mark = np.frombuffer(bytes.fromhex(mark[2:]), dtype=stored.dtype.newbyteorder(">"))[0]
            missing |= found == np.array(mark, dtype=stored.dtype.newbyteorder("=")).astype(v)
        for name, factor, operate in (("scale", scale, np.multiply), ("offset", offset, np.add)):
            if said[name] is not None:
                factor = np.array(factor, dtype=said[name])
                wide = np.result_type(v, factor.dtype)
                found = operate(found.astype(wide), factor.astype(wide)).astype(v)
    return np.where(missing, v.type(np.nan), found) if missing.any() else found


def ends(dtype):
    """Numbers of a type: its ends, zero, and some between."""
    if np.dtype(dtype).kind == "f":
        return np.array([0, -0.0, 1.5, -2.25, np.nan, np.inf, -np.inf, 100], dtype=dtype)
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.max, 0, 1, limits.max - 1, 7, limits.max // 2, 100], dtype=dtype)


def packings():
    def one(name, about, stored, said, scale=None, offset=None, data_type=None, fill_value=0):
        codecs = [BYTES if stored.dtype.itemsize == 1 else LITTLE, GZIP]
        described = Logical(
            stored.shape,
            (3,) * stored.ndim,
            [Member(stored, codecs, (4,) * stored.ndim)],
            [Region(0, (0,) * stored.ndim, tuple(-(-n // 3) for n in stored.shape), packing=0)],
            data_type or said["values"],
            fill_value,
            packings=rows([said], (0, scale, offset)),
        )
        return logical(f"manifest-2/packing-{name}", about, described, unpacked(stored, said, scale, offset))

    for name in (
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ):
        yield one(
            name,
            f"{name} as float64, with a scale and an offset of float64",
            ends(name),
            kind(name, scale="float64", offset="float64"),
            0.01,
            273.15,
        )
        yield one(
            f"{name}-single",
            f"{name} as float32, with a scale and an offset of float32",
            ends(name),
            kind(name, "float32", "float32", "float32"),
            0.1,
            -7.3,
        )
    short = numbers((5, 7), "int16")
    yield one("scale", "A scale alone", short, kind("int16", scale="float64"), 0.1)
    yield one("offset", "An offset alone", short, kind("int16", offset="float64"), None, 0.1)
    yield one("nothing", "Neither scale nor offset: another data type", short, kind("int16", "float32"))
    yield one(
        "wide-scale",
        "A scale of float64 on values of float32: the product is rounded before the sum",
        short,
        kind("int16", "float32", "float64", "float64"),
        0.1,
        1e-3,
    )
    yield one(
        "wide-data-type",
        "Values of float32 in an array of float64 stay what they are",
        short,
        kind("int16", "float32", "float32"),
        0.1,
        data_type="float64",
    )
    yield one("half", "Values of float16", short, kind("int16", "float16", "float16", "float16"), 0.1, 3.3)
    yield one(
        "half-wide-scale",
        "Values of float16, a scale of float32",
        short,
        kind("int16", "float16", "float32", "float64"),
        0.1,
        3.3,
    )
    yield one(
        "half-rounded-twice",
        "Values of float16, a scale of float32: the product is rounded to float32, and then to float16",
        np.array([263, 526, 1052, 264], dtype="int16"),
        kind("int16", "float16", "float32"),
        0.027559113,
    )
    yield one(
        "integer-scale",
        "A scale of int16 on float32: computed in float32",
        short,
        kind("int16", "float32", "int16", "int8"),
        3,
        -7,
    )
    yield one(
        "long-integer-scale",
        "A scale of int32 on float32: computed in float64",
        ends("int32"),
        kind("int32", "float32", "int32", "int64"),
        16777217,
        2**53,
    )
    yield one(
        "integers",
        "Integers as integers, with a scale and an offset",
        short,
        kind("int16", "int64", "int64", "int32"),
        1000003,
        -5,
    )
    yield one(
        "integers-wrap",
        "Integers that wrap around",
        short,
        kind("int16", "int16", "int16", "int16"),
        30000,
        9,
    )
    yield one(
        "unsigned",
        "Signed numbers, taken for unsigned ones",
        ends("int8"),
        kind("int8", "uint8", unsigned=True),
    )
    yield one(
        "unsigned-16",
        "Signed numbers of 16 bits, taken for unsigned ones, with a missing one",
        ends("int16"),
        kind("int16", "float32", "float32", missing=[65534], unsigned=True),
        0.5,
    )
    yield one(
        "signed",
        "Unsigned numbers, taken for signed ones",
        ends("uint16"),
        kind("uint16", "float64", "float64", missing=[-1], unsigned=False),
        0.5,
    )
    yield one(
        "signed-64",
        "Unsigned numbers of 64 bits, taken for signed ones",
        ends("uint64"),
        kind("uint64", "int64", unsigned=False),
    )
    yield one(
        "missing",
        "Two numbers that mean missing",
        short,
        kind("int16", scale="float64", missing=[-32768, 11]),
        0.5,
    )
    yield one(
        "missing-float",
        "Missing values of floats, as their bits; NaN is missing anyway",
        ends("float32"),
        kind("float32", "float32", missing=[bits(100, "float32"), bits(np.inf, "float32")]),
    )
    yield one(
        "missing-zero",
        "0.0 is missing, and so is -0.0",
        ends("float64"),
        kind("float64", "float64", missing=[bits(0.0, "float64")]),
    )
    long = np.array([2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**63 - 1, 2**63 - 2], dtype="int64")
    yield one(
        "missing-rounded",
        "Numbers that become equal to a missing one when they are converted are missing, too",
        long,
        kind("int64", "float64", missing=[2**53 + 1, 2**63 - 1]),
    )
    single = np.array(
        [2**24 + 1, 2**40 + 2**16 + 1, 2**62 + 2**38 + 1, -(2**62) - 2**38 - 1, 2**63 - 1], dtype="int64"
    )
    yield one(
        "rounded-once", "Integers of 64 bits as float32, rounded once", single, kind("int64", "float32")
    )
    yield one(
        "rounded-once-unsigned",
        "Unsigned ones of 64 bits, too",
        np.array([2**63 + 2**39 + 1, 2**64 - 1, 2**63 + 1], dtype="uint64"),
        kind("uint64", "float32"),
    )
    yield one(
        "infinite",
        "Values beyond the type's range become infinite",
        ends("int32"),
        kind("int32", "float32", "float32"),
        3e38,
    )
    yield one("negative-zero", "A scale of -0.0", short, kind("int16", scale="float64"), -0.0)
    yield from _many()


def _many():
    stored = numbers((8, 4), "int16")
    same = kind("int16", scale="float64", offset="float64", missing=[7])
    factors = [(0.01, 273.15), (0.001, 0.0), (1.0, -4.5)]
    expected = np.concatenate(
        [
            *(unpacked(stored[2 * i : 2 * i + 2], same, *f) for i, f in enumerate(factors)),
            np.full((2, 4), np.nan),
        ]
    )
    yield logical(
        "manifest-2/packings-of-one-kind",
        "Three packings of one kind in one member, and a hole",
        Logical(
            (8, 4),
            (2, 4),
            [Member(stored, chunks=(3, 4))],
            [Region(0, (i, 0), (i + 1, 1), (i, 0), packing=i) for i in range(3)],
            "float64",
            float("nan"),
            packings=rows([same], *((0, *f) for f in factors)),
        ),
        expected,
    )
    plain, eight = numbers((2, 4), "float64") / 8, numbers((2, 4), "uint8")
    other = kind("uint8", "float32", missing=[255])
    expected = np.concatenate([plain, unpacked(eight, other), unpacked(stored[:2], same, 0.5, 1.0)])
    yield logical(
        "manifest-2/packings-of-kinds",
        "Regions of two kinds, and one that is not packed",
        Logical(
            (6, 4),
            (2, 4),
            [Member(plain), Member(eight, [BYTES]), Member(stored)],
            [
                Region(0, (0, 0), (1, 1)),
                Region(1, (1, 0), (2, 1), packing=0),
                Region(2, (2, 0), (3, 1), packing=1),
            ],
            "float64",
            packings=rows([other, same], (0, None, None), (1, 0.5, 1.0)),
        ),
        expected,
    )
    missing = Member(stored, chunks=(2, 4), options={"fill_value": 7, "skip": {(0, 0)}})
    expected = unpacked(np.concatenate([np.full((2, 4), 7, "int16"), stored[2:4]]), same, 0.5, 1.0)
    yield logical(
        "manifest-2/packing-missing-chunk",
        "A chunk that is not stored: the member's fill value, unpacked",
        Logical(
            (4, 4),
            (2, 4),
            [missing],
            [Region(0, (0, 0), (2, 1), packing=0)],
            "float64",
            3.0,
            packings=rows([same], (0, 0.5, 1.0)),
        ),
        expected,
    )
