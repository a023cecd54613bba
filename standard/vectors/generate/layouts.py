"""Vectors of manifests of version 1: where regions lie, what members are, and tables."""

import numpy as np
from standard.vectors.generate.case import (
    BYTES,
    CRC,
    GZIP,
    LITTLE,
    ZSTD,
    edited,
    numbers,
    sharded,
    transposed,
)
from standard.vectors.generate.conditional import conditional
from standard.vectors.generate.headers import padded, shuffled
from standard.vectors.generate.logical import Logical, Member, Region, logical
from standard.vectors.generate.optional import optional, optional_type, some_nulls
from standard.vectors.generate.packbits import packed

SEED = 20


def version_1():
    yield from _layouts()
    yield from _members()
    yield from _tables_1()


def _layouts():
    def one(name, about, described, expected):
        return logical(f"manifest-1/{name}", about, described, expected)

    a = numbers((6, 8), "int16")
    yield one(
        "no-regions",
        "Nothing but the fill value",
        Logical((3, 5), (2, 2), [], [], fill_value=-7),
        np.full((3, 5), -7),
    )
    yield one("empty-axis", "An axis without elements", Logical((0, 5), (2, 2), [], []), np.zeros((0, 5)))
    yield one(
        "no-axes", "An array without axes", Logical((), (), [Member(np.int16(4))], [Region(0, (), ())]), 4
    )
    yield one("no-axes-hole", "An array without axes or regions", Logical((), (), [], [], fill_value=9), 9)
    yield one(
        "one-region",
        "One region that is everything",
        Logical(
            (6, 8),
            (2, 4),
            [Member(a, chunks=(2, 4))],
            [Region(0, (0, 0), (3, 2))],
            dimension_names=["y", None],
        ),
        a,
    )
    two = [
        Member(a[:4], [LITTLE, GZIP], (2, 4)),
        Member(a[4:], [transposed(1, 0), LITTLE, ZSTD, CRC], (1, 8)),
    ]
    yield one(
        "two-codecs",
        "Two regions with codecs and chunks of their own",
        Logical((6, 8), (2, 4), two, [Region(0, (0, 0), (2, 2)), Region(1, (2, 0), (3, 2))]),
        a,
    )
    yield one(
        "any-order",
        "Regions in another order than their places",
        Logical((6, 8), (2, 4), two[::-1], [Region(0, (2, 0), (3, 2)), Region(1, (0, 0), (2, 2))]),
        a,
    )
    holes = np.full((6, 8), 99)
    holes[2:4, 4:] = a[2:4, 4:]
    holes[4:6, :4] = a[:2, :4]
    yield one(
        "holes",
        "Holes, and regions that start inside their member",
        Logical(
            (6, 8),
            (2, 4),
            [Member(a)],
            [Region(0, (1, 1), (2, 2), (1, 1)), Region(0, (2, 0), (3, 1), (0, 0))],
            fill_value=99,
        ),
        holes,
    )
    edge = numbers((7, 5), "int16")
    yield one(
        "edge",
        "The last chunks of both axes are cut",
        Logical((7, 5), (3, 2), [Member(edge, chunks=(3, 2))], [Region(0, (0, 0), (3, 3))]),
        edge,
    )
    larger = numbers((12, 9), "int16")
    yield one(
        "larger-member",
        "A member that is larger than its region",
        Logical((7, 5), (3, 2), [Member(larger, chunks=(5, 4))], [Region(0, (0, 0), (3, 3), (1, 1))]),
        larger[3:10, 2:7],
    )
    yield one(
        "edge-shifted",
        "A region at the edge that lies inside its member",
        Logical(
            (7, 5),
            (3, 2),
            [Member(larger, chunks=(4, 9)), Member(edge)],
            [Region(0, (2, 2), (3, 3), (1, 0)), Region(1, (0, 0), (2, 3))],
            fill_value=-1,
        ),
        np.block([[edge[:6]], [np.full((1, 4), -1), larger[3:4, :1]]]),
    )
    yield one(
        "one-element-chunks",
        "A lattice of 1",
        Logical(
            (4,),
            (1,),
            [Member(a[0]), Member(a[1])],
            [Region(i % 2, (i,), (i + 1,), (7 - i,)) for i in range(4)],
        ),
        [a[0, 7], a[1, 6], a[0, 5], a[1, 4]],
    )
    cube = numbers((3, 4, 5), "int16")
    yield one(
        "three-axes",
        "Three axes",
        Logical(
            (3, 4, 5),
            (2, 2, 3),
            [Member(cube, chunks=(2, 3, 4))],
            [
                Region(0, (i, j, k), (i + 1, j + 1, k + 1), (i, j, k))
                for i in (0, 1)
                for j in (0, 1)
                for k in (0, 1)
            ],
        ),
        cube,
    )
    yield one(
        "big-lattice",
        "One logical chunk, larger than the array",
        Logical((6, 8), (100, 100), [Member(a)], [Region(0, (0, 0), (1, 1))]),
        a,
    )
    rng = np.random.default_rng(SEED)
    for number in range(4):
        described, expected = _mosaic(rng)
        yield one(f"mosaic-{number}", "Regions, holes and shifts by chance", described, expected)


def _mosaic(rng):
    shape, chunks = tuple(rng.integers(5, 12, 2).tolist()), tuple(rng.integers(1, 4, 2).tolist())
    lattice = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
    members = [
        Member(
            rng.integers(-99, 99, (24, 24), dtype="int16"),
            [LITTLE, *more],
            tuple(rng.integers(2, 9, 2).tolist()),
        )
        for more in ([], [GZIP], [shuffled(2), ZSTD])
    ]
    expected, regions = np.full(shape, -5, dtype="int16"), []
    for i in range(lattice[0]):
        for j in range(lattice[1]):
            member = int(rng.integers(0, 4))
            if member == 3 and len(regions) >= 3:
                continue
            member = len(regions) if len(regions) < 3 else member % 3
            at = tuple(rng.integers(0, 4, 2).tolist())
            regions.append(Region(member, (i, j), (i + 1, j + 1), at))
            box = tuple(
                slice(p * c, min((p + 1) * c, n)) for p, c, n in zip((i, j), chunks, shape, strict=True)
            )
            source = tuple(
                slice(p * c, p * c + b.stop - b.start) for p, c, b in zip(at, chunks, box, strict=True)
            )
            expected[box] = members[member].values[source]
    return Logical(shape, chunks, members, regions, fill_value=-5), expected


def _members():
    """What members may be."""

    def one(name, about, data_type, codecs, values, chunks=None, fill_value=0, expected=None, options=None):
        member = Member(values, codecs, chunks, data_type, options or {})
        lattice = tuple(max(1, n // 2) for n in values.shape)
        stop = tuple(-(-n // c) for n, c in zip(values.shape, lattice, strict=True))
        described = Logical(
            values.shape, lattice, [member], [Region(0, (0,) * values.ndim, stop)], data_type, fill_value
        )
        return logical(
            f"manifest-1/member-{name}", about, described, values if expected is None else expected
        )

    a = numbers((6, 8), "int16")
    yield one("sharded", "A member in shards", "int16", [sharded((2, 2), [LITTLE, GZIP])], a, (4, 6))
    yield one(
        "sharded-start",
        "A member in shards with the index at the start, and a checksum around",
        "int16",
        [transposed(1, 0), sharded((2, 2), [LITTLE], "start"), CRC],
        a,
        (6, 4),
    )
    yield one(
        "conditional",
        "A member with a conditional codec",
        "int16",
        [LITTLE, conditional([shuffled(2), GZIP], [3, 0, 1])],
        a,
        (2, 3),
    )
    yield one(
        "padded",
        "A member of padded chunks",
        "int16",
        [LITTLE, padded("start", 3, padding=b"abc")],
        a,
        (4, 4),
    )
    yield one(
        "bool",
        "Bools, packed",
        "bool",
        [packed()],
        a % 2 == 0,
        (3, 3),
        fill_value=False,
        options={"fill_value": False},
    )
    nulls = some_nulls((6, 8), "int16")
    yield one(
        "optional",
        "A nullable logical array",
        optional_type("int16"),
        [optional()],
        nulls,
        (4, 3),
        fill_value=None,
        options={"fill_value": None},
    )
    stored = a.astype("float64") / 4
    casted = [
        {"name": "scale_offset", "configuration": {"offset": 1.0, "scale": 4.0}},
        {"name": "cast_value", "configuration": {"data_type": "int16"}},
        LITTLE,
    ]
    yield one("filtered", "A member that is packed by filters of its own", "float64", casted, stored, (3, 8))
    for name in ("uint8", "int64", "uint64", "float16", "float32", "float64"):
        yield one(
            name,
            "Every data type",
            name,
            [BYTES if name == "uint8" else LITTLE],
            numbers((4, 6), name),
            (3, 4),
        )
    huge = np.array([2**63 - 1, 2**53 + 1, -(2**63), 0], dtype="int64")
    yield one("huge-integers", "Integers that floats do not hold", "int64", [LITTLE], huge)
    described = Logical(
        (4,),
        (2,),
        [Member(huge, options={"fill_value": 5})],
        [Region(0, (1,), (2,), (0,))],
        "int64",
        2**53 + 1,
    )
    yield logical(
        "manifest-1/fill-huge",
        "A fill value that floats do not hold",
        described,
        [2**53 + 1, 2**53 + 1, 2**63 - 1, 2**53 + 1],
    )
    missing = a.copy()
    missing[:2, :4] = 17
    yield one(
        "missing-chunk",
        "A chunk that the member never stored is the member's fill value, not the array's",
        "int16",
        [LITTLE],
        a,
        (2, 4),
        fill_value=3,
        expected=missing,
        options={"skip": {(0, 0)}, "fill_value": 17},
    )
    for name, fill, value in (
        ("nan", "NaN", np.nan),
        ("infinity", "-Infinity", -np.inf),
        ("bits", "0x7ff0000000000000", np.inf),
        ("half", 0.5, 0.5),
    ):
        described = Logical(
            (4,), (2,), [Member(numbers(2, "float64"))], [Region(0, (1,), (2,))], "float64", fill
        )
        yield logical(
            f"manifest-1/fill-{name}",
            f"The fill value {fill}",
            described,
            [value, value, *numbers(2, "float64")],
        )
    strangers = Logical((6, 8), (2, 4), [Member(a)], [Region(0, (0, 0), (3, 2))])
    case = logical(
        "manifest-1/strangers", "Other attributes, other conventions, other arrays in the group", strangers, a
    )

    def more(group):
        other = {"uuid": "00000000-0000-4000-8000-000000000000", "name": "other:"}
        attributes = group["attributes"]
        attributes["zarr_conventions"] = [other, *attributes["zarr_conventions"]]
        attributes |= {"units": "K", "other:field": [1, 2]}

    case.files = edited(case.files, more)
    case.files |= {f"elsewhere/{name}": content for name, content in Member(a).files().items()}
    yield case


def _tables_1():
    a = numbers((6, 8), "int16")
    regions = [Region(0, (i, j), (i + 1, j + 1), (i, j)) for i in range(3) for j in range(2)]
    yield logical(
        "manifest-1/table",
        "The region table in an array of its own",
        Logical((6, 8), (2, 4), [Member(a)], regions, table="t-0"),
        a,
    )
    one = [Region(0, (0, 0), (1, 1))]
    yield logical(
        "manifest-1/table-one-row",
        "A table of one row",
        Logical((6, 8), (6, 8), [Member(a)], one, table="t-0", table_chunks=(100, 7)),
        a,
    )
