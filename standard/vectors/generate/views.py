"""Vectors of manifests of version 2: views, alone and with packings, and tables of both."""

import numpy as np
from standard.vectors.generate.case import GZIP, LITTLE, numbers, sharded
from standard.vectors.generate.logical import Logical, Member, Region, logical
from standard.vectors.generate.packings import kind, rows, unpacked


def axis(source, offset=0, stride=1):
    """Where an axis of the member takes its index from."""
    found = {"offset": offset} if offset or source is None else {}
    if stride != 1:
        found["stride"] = stride
    return found | ({} if source is None else {"input_dimension": source})


def view(rank, *output):
    return {"input_rank": rank, "output": list(output)}


def one(name, about, member, shape, chunks, regions, seen, expected, **more):
    member = member if isinstance(member, Member) else Member(member, [LITTLE, GZIP], (3,) * member.ndim)
    described = Logical(shape, chunks, [member], regions, views=[seen], fill_value=-1, **more)
    return logical(f"manifest-2/view-{name}", about, described, expected)


def whole(shape, chunks, **more):
    stop = tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
    return [Region(0, (0,) * len(shape), stop, view=0, **more)]


def views():
    a = numbers((7, 5), "int16")
    yield one(
        "identity",
        "A view that changes nothing",
        a,
        (7, 5),
        (3, 2),
        whole((7, 5), (3, 2)),
        view(2, axis(0), axis(1)),
        a,
    )
    yield one(
        "reversed",
        "An axis upside down; the last logical chunk is cut",
        a,
        (7, 5),
        (3, 2),
        whole((7, 5), (3, 2)),
        view(2, axis(0, 6, -1), axis(1)),
        a[::-1],
    )
    yield one(
        "reversed-both",
        "Both axes upside down",
        a,
        (7, 5),
        (3, 2),
        whole((7, 5), (3, 2)),
        view(2, axis(0, 6, -1), axis(1, 4, -1)),
        a[::-1, ::-1],
    )
    yield one(
        "transposed",
        "The axes in another order",
        a,
        (5, 7),
        (2, 3),
        whole((5, 7), (2, 3)),
        view(2, axis(1), axis(0)),
        a.T,
    )
    yield one(
        "transposed-reversed",
        "In another order, and one upside down",
        a,
        (5, 7),
        (2, 3),
        whole((5, 7), (2, 3)),
        view(2, axis(1, 6, -1), axis(0)),
        a.T[:, ::-1],
    )
    yield one(
        "offset",
        "An offset without a turn: the region starts elsewhere",
        a,
        (4, 3),
        (2, 2),
        whole((4, 3), (2, 2)),
        view(2, axis(0, 3), axis(1, 1)),
        a[3:7, 1:4],
    )
    yield one(
        "negative-offset",
        "A negative offset that member_start makes good",
        a,
        (4, 3),
        (2, 2),
        whole((4, 3), (2, 2), member_start=(1, 1)),
        view(2, axis(0, -2), axis(1, -1)),
        a[:4, 1:4],
    )
    expected = np.full((7, 5), -1)
    expected[3:6] = a[::-1][3:6]
    yield one(
        "cropped",
        "A region that was cropped keeps its view",
        a,
        (7, 5),
        (3, 5),
        [Region(0, (1, 0), (2, 1), (1, 0), view=0)],
        view(2, axis(0, 6, -1), axis(1)),
        expected,
    )
    expected = np.full((7, 5), -1)
    expected[6:] = a[::-1][3:4]
    yield one(
        "cropped-edge",
        "A cropped region in the last chunk, which is cut",
        a,
        (7, 5),
        (3, 5),
        [Region(0, (2, 0), (3, 1), (1, 0), view=0)],
        view(2, axis(0, 6, -1), axis(1)),
        expected,
    )
    yield one(
        "new-axis",
        "A new axis in front",
        a,
        (1, 7, 5),
        (1, 3, 2),
        whole((1, 7, 5), (1, 3, 2)),
        view(3, axis(1), axis(2)),
        a[None],
    )
    three = np.full((7, 3, 5), -1)
    three[:, 0], three[:, 2] = a, a
    yield one(
        "new-axis-twice",
        "A new axis in the middle, on which one member is shown twice",
        a,
        (7, 3, 5),
        (3, 1, 2),
        [Region(0, (0, i, 0), (3, i + 1, 3), view=0) for i in (0, 2)],
        view(3, axis(0), axis(2)),
        three,
    )
    cube = numbers((3, 4, 5), "int16")
    yield one(
        "dropped",
        "An axis of the member of which one index is seen",
        cube,
        (3, 5),
        (2, 2),
        whole((3, 5), (2, 2)),
        view(2, axis(0), axis(None, 2), axis(1)),
        cube[:, 2],
    )
    yield one(
        "dropped-all",
        "One element, as an array without axes",
        cube,
        (),
        (),
        whole((), ()),
        view(0, axis(None, 1), axis(None, 3), axis(None)),
        cube[1, 3, 0],
    )
    yield one(
        "everything",
        "Transposed, reversed, dropped and new",
        cube,
        (5, 1, 3),
        (2, 1, 2),
        whole((5, 1, 3), (2, 1, 2)),
        view(3, axis(2), axis(None, 3), axis(0, 4, -1)),
        cube[:, 3, ::-1].T[:, None],
    )
    yield one(
        "sharded",
        "A member in shards, seen through a view",
        Member(a, [sharded((2, 2), [LITTLE])], (8, 6)),
        (5, 7),
        (2, 3),
        whole((5, 7), (2, 3)),
        view(2, axis(1, 6, -1), axis(0)),
        a.T[:, ::-1],
    )
    said = kind("int16", scale="float64", offset="float64", missing=[3])
    yield one(
        "packed",
        "Packed, transposed and reversed",
        a,
        (5, 7),
        (2, 3),
        whole((5, 7), (2, 3), packing=0),
        view(2, axis(1), axis(0, 4, -1)),
        unpacked(a, said, 0.1, 2.0).T[::-1],
        data_type="float64",
        packings=rows([said], (0, 0.1, 2.0)),
    )
    yield logical(
        "manifest-2/columns-of-nothing",
        "Columns of version 2 that say nothing",
        Logical(
            (7, 5), (3, 2), [Member(a)], [Region(0, (0, 0), (3, 3))], columns=("packing", "view", "layer")
        ),
        a,
    )
    copy = Member(a, [LITTLE], (7, 1))
    first, second = Region(0, (0, 0), (2, 3)), Region(0, (2, 0), (3, 3), (2, 0))
    yield logical(
        "manifest-2/layers",
        "A replica of everything, in other chunks",
        Logical((7, 5), (3, 2), [Member(a), copy], [first, second, Region(1, (0, 0), (3, 3), layer=1)]),
        a,
    )
    yield logical(
        "manifest-2/layers-in-part",
        "Replicas of parts, in two layers, which overlap; a hole in layer 0",
        Logical(
            (7, 5),
            (3, 2),
            [Member(a), copy],
            [
                Region(1, (0, 0), (1, 3), layer=5),
                Region(0, (0, 0), (2, 3)),
                Region(1, (0, 1), (2, 2), (0, 1), layer=2),
                Region(1, (1, 0), (2, 1), (1, 0), layer=5),
            ],
            fill_value=-1,
        ),
        np.concatenate([a[:6], np.full((1, 5), -1)]),
    )
    both = [view(2, axis(0), axis(1)), view(2, axis(0, 6, -1), axis(1))]
    expected = np.concatenate([a[:3], a[::-1][3:6], a[6:]])
    yield logical(
        "manifest-2/views",
        "Two views of one member, and regions without one",
        Logical(
            (7, 5),
            (3, 5),
            [Member(a)],
            [
                Region(0, (0, 0), (1, 1), view=0),
                Region(0, (1, 0), (2, 1), (1, 0), view=1),
                Region(0, (2, 0), (3, 1), (2, 0)),
            ],
            views=both,
        ),
        expected,
    )


def tables_2():
    a = numbers((6, 4), "int16")
    said, other = (
        kind("int16", scale="float64", offset="float32", missing=[7]),
        kind("int16", scale="float32"),
    )
    factors = [(0, 0.1, -2.5), (0, -0.25, 0.0), (1, 0.1, None)]
    regions = [Region(0, (i, 0), (i + 1, 1), (i, 0), packing=i, view=0 if i == 1 else -1) for i in range(3)]
    regions[1].member_start = (0, 0)
    expected = np.concatenate(
        [
            unpacked(a[:2], said, *factors[0][1:]),
            unpacked(a[::-1][:2], said, *factors[1][1:]),
            unpacked(a[4:], other, 0.1),
        ]
    )
    turned = [view(2, axis(0, 5, -1), axis(1))]
    yield logical(
        "manifest-2/table",
        "Regions, packings and views, in a table",
        Logical(
            (6, 4),
            (2, 4),
            [Member(a)],
            regions,
            "float64",
            packings=rows([said, other], *factors),
            views=turned,
            table="t-0",
            table_chunks=(2, 5),
        ),
        expected,
    )
    yield logical(
        "manifest-2/table-of-views",
        "A table without packings",
        Logical((6, 4), (6, 4), [Member(a)], [Region(0, (0, 0), (1, 1), view=0)], views=turned, table="t-0"),
        a[::-1],
    )
    few = [Region(0, (i, 0), (i + 1, 1), (i, 0), packing=0) for i in range(3)]
    yield logical(
        "manifest-2/table-of-one-packing",
        "A table of three regions with one packing: rows left over",
        Logical(
            (6, 4), (2, 4), [Member(a)], few, "float64", packings=rows([said], (0, 0.1, -2.5)), table="t-0"
        ),
        unpacked(a, said, 0.1, -2.5),
    )
