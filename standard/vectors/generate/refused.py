"""Logical arrays to refuse: manifests that say nonsense, members that are not what is said of them."""

import json
from dataclasses import replace

import numpy as np
from standard.vectors.generate.case import LITTLE, array_files, document, numbers
from standard.vectors.generate.logical import Logical, Member, Region, logical, refused
from standard.vectors.generate.packings import bits, kind, rows
from standard.vectors.generate.views import axis, view

A = numbers((6, 4), "int16")
TWO = [Region(0, (0, 0), (1, 1)), Region(1, (1, 0), (3, 1))]
PLAIN = Logical((6, 4), (2, 4), [Member(A[:2]), Member(A[2:], chunks=(2, 4))], TWO)
SHARED = Logical((6, 4), (2, 4), [Member(A)], [Region(0, (0, 0), (2, 1)), Region(0, (1, 0), (3, 1), (1, 0))])
TABLE = Logical((6, 4), (2, 4), [Member(A[:2]), Member(A[2:])], TWO, table="t-0", table_chunks=(1, 7))


def fields(**values):
    """A change of fields of the manifest; None takes one away."""

    def change(manifest):
        for name, value in values.items():
            if value is None:
                del manifest[name]
            else:
                manifest[name] = value

    return change


def column(name, *values):
    """Another column of the region table."""
    return lambda manifest: manifest["regions"].__setitem__(name, list(values))


def without(prefix):
    """Without some files."""
    return lambda files: {name: content for name, content in files.items() if not name.startswith(prefix)}


def another(prefix, *array, **options):
    """With another array in the place of one."""
    made = array_files(*array, **options)
    return lambda files: (
        without(prefix)(files) | {f"{prefix}/{name}": content for name, content in made.items()}
    )


def refused_1():
    def bad(name, about, level, change=None, described=PLAIN, files=None):
        return refused(described, f"manifest-1/refused-{name}", about, level, change, files)

    yield bad("version-0", "A version that never was", "schema", fields(version=0))
    yield bad("version-3", "A version that is not known yet", "schema", fields(version=3))
    yield bad("version-text", "A version as a text", "schema", fields(version="1"))
    for name in PLAIN.manifest():
        yield bad(
            f"no-{name.replace('_', '-')}",
            f"`{name}` is missing",
            "schema",
            lambda m, name=name: {key: value for key, value in m.items() if key != name},
        )
    yield bad("unknown-field", "A field that nobody knows", "schema", fields(chunks=[2, 4]))
    yield bad("unknown-column", "A column that nobody knows", "schema", column("codec", 0, 0))
    yield bad("packing-column", "A column of version 2", "schema", column("packing", -1, -1))
    yield bad("views", "A field of version 2", "schema", fields(views=[]))
    yield bad("text", "A manifest that is no object", "schema", lambda _: "manifest")
    yield bad("negative-shape", "A negative length", "schema", fields(shape=[-6, 4]))
    yield bad("fraction", "A length that is not whole", "schema", fields(shape=[6.5, 4]))
    yield bad("empty-chunk", "A lattice of nothing", "schema", fields(chunk_shape=[0, 4]))
    yield bad("generation", "A negative generation", "schema", fields(generation=-1))
    yield bad("chunk-rank", "A lattice of another rank", "metadata", fields(chunk_shape=[2]))
    yield bad("names-rank", "Names for another number of axes", "metadata", fields(dimension_names=["y"]))
    yield bad("names-numbers", "Names that are numbers", "schema", fields(dimension_names=[1, 2]))
    yield bad("far", "More elements than can be counted", "metadata", fields(shape=[2**62, 4]))
    yield bad("data-type", "A data type that nobody knows", "metadata", fields(data_type="no-such-type"))
    yield bad(
        "fill-value", "A fill value that the data type does not hold", "metadata", fields(fill_value=40000)
    )
    yield bad("fill-text", "A fill value of another kind", "metadata", fields(fill_value="NaN"))
    for name, member in (
        ("parent", ".."),
        ("self", "."),
        ("path", "a/b"),
        ("empty", ""),
        ("long", "m" * 256),
        ("colon", "file:m"),
        ("absolute", "/m-0"),
    ):
        yield bad(
            f"name-{name}",
            "A member's name that is not one safe path segment",
            "schema",
            fields(members=[member, "m-1"]),
        )
    yield bad("name-twice", "A member that is listed twice", "schema", fields(members=["m-0", "m-0"]))
    yield bad(
        "member-unused", "A member that no region uses", "metadata", fields(members=["m-0", "m-1", "m-2"])
    )
    yield bad("member-beyond", "A region of a member that is not listed", "metadata", column("member", 0, 2))
    yield bad("member-negative", "A region of a member before the first", "schema", column("member", 0, -1))
    yield bad("empty-region", "A region of nothing", "metadata", column("stop", [1, 1], [1, 1]))
    yield bad(
        "negative-start", "A region that starts before the array", "schema", column("start", [0, 0], [-1, 0])
    )
    yield bad("beyond", "A region that reaches beyond the array", "metadata", column("stop", [1, 1], [4, 1]))
    yield bad("overlap", "Two regions overlap", "metadata", described=SHARED)
    yield bad("column-length", "Columns of different lengths", "metadata", column("start", [0, 0]))
    yield bad("column-rank", "A corner of another rank", "metadata", column("start", [0, 0], [1]))
    yield bad("column-fraction", "Half a chunk", "schema", column("start", [0, 0], [0.5, 0]))
    yield bad(
        "member-start-far",
        "A region further out than any member",
        "metadata",
        column("member_start", [0, 0], [2**61, 0]),
    )
    yield bad("member-missing", "A member that is not there", "member", files=without("m-1"))
    yield bad(
        "member-group",
        "A member that is a group",
        "member",
        files=lambda f: (
            without("m-1/c")(f) | {"m-1/zarr.json": document({"zarr_format": 3, "node_type": "group"})}
        ),
    )
    yield bad(
        "member-type",
        "A member of another data type",
        "member",
        files=another("m-1", A[2:].astype("int32"), "int32", [LITTLE], (4, 4)),
    )
    yield bad(
        "member-small",
        "A member that is smaller than its region",
        "member",
        files=another("m-1", A[3:], "int16", [LITTLE], (2, 4)),
    )
    yield bad(
        "member-rank",
        "A member of another rank",
        "member",
        files=another("m-1", A[2:].reshape(-1), "int16", [LITTLE], (4,)),
    )
    yield bad(
        "member-chunk",
        "A chunk of a member that is cut",
        "chunk",
        files=lambda f: f | {"m-1/c/1/0": f["m-1/c/1/0"][:-1]},
    )
    yield bad("table-missing", "A table that is not there", "metadata", described=TABLE, files=without("t-0"))
    yield bad("table-name", "A table's name that leads elsewhere", "schema", fields(regions="../t-0"), TABLE)
    yield bad(
        "table-type",
        "A table of another data type",
        "metadata",
        described=TABLE,
        files=another("t-0", TABLE.rows(), "int32", [LITTLE], (2, 7)),
    )
    yield bad(
        "table-width",
        "A table with a column too few",
        "metadata",
        described=TABLE,
        files=another("t-0", TABLE.rows()[:, :6], "int64", [LITTLE], (2, 6)),
    )
    yield bad(
        "table-chunk",
        "A chunk of the table is not stored, although its fill value would be right",
        "metadata",
        described=TABLE,
        files=another("t-0", TABLE.rows(), "int64", [LITTLE], (2, 1), skip={(0, 5)}),
    )
    yield bad(
        "table-rows",
        "More rows than the lattice has cells",
        "metadata",
        described=TABLE,
        files=another("t-0", np.concatenate([TABLE.rows()] * 2), "int64", [LITTLE], (4, 7)),
    )
    yield bad(
        "table-overlap",
        "Two rows of the table overlap",
        "metadata",
        described=replace(SHARED, table="t-0"),
    )


def refused_2():
    def bad(name, about, level, change=None, described=None, files=None):
        return refused(described or packed, f"manifest-2/refused-{name}", about, level, change, files)

    said = kind("int16", scale="float64", offset="float64", missing=[7])
    other = kind("int16", "float32", missing=[8])
    regions = [Region(0, (0, 0), (1, 1), packing=0), Region(0, (1, 0), (3, 1), (1, 0), packing=1)]
    packed = Logical(
        (6, 4),
        (2, 4),
        [Member(A)],
        regions,
        "float64",
        packings=rows([said, other], (0, 0.5, 1.0), (1, None, None)),
    )

    def in_kind(number=0, **values):
        return lambda m: m["packings"]["kinds"][number].update(values)

    def in_packings(**values):
        return lambda m: m["packings"].update(values)

    yield bad("layer", "A replica of what layer 0 does not cover", "metadata", column("layer", 0, 1))
    yield bad("layer-below", "A layer before the first", "schema", column("layer", 0, -1))
    yield bad("layer-beyond", "A layer after the last", "schema", column("layer", 0, 64))
    yield bad("packing-beyond", "A packing that is not listed", "metadata", column("packing", 0, 2))
    yield bad("packing-below", "A packing before the first", "schema", column("packing", 0, -2))
    yield bad("packing-unused", "A packing that no region uses", "metadata", column("packing", 0, 0))
    yield bad("kind-beyond", "A kind that is not listed", "metadata", in_packings(kind=[0, 2]))
    yield bad(
        "kind-unused",
        "A kind that no packing has",
        "metadata",
        in_packings(kind=[0, 0], scale=[bits(0.5, "f8")] * 2, offset=[bits(1, "f8")] * 2),
    )
    yield bad(
        "kind-twice",
        "One kind, listed twice",
        "metadata",
        in_packings(kinds=[said, said], scale=[bits(0.5, "f8")] * 2, offset=[bits(1, "f8")] * 2),
    )
    yield bad("kind-field", "A field of a kind that nobody knows", "schema", in_kind(units="K"))
    yield bad("kind-type", "A data type that packings do not know", "schema", in_kind(stored="complex64"))
    yield bad("no-kinds", "Packings without kinds", "schema", lambda m: m["packings"].pop("kinds") and None)
    yield bad("lengths", "Fewer scales than packings", "metadata", in_packings(scale=[bits(0.5, "f8")]))
    yield bad(
        "scale-number",
        "A scale as a number, which readers of JSON round",
        "schema",
        in_packings(scale=[0.5, None]),
    )
    yield bad(
        "scale-short",
        "The bits of a float32 where a float64 belongs",
        "metadata",
        in_packings(scale=[bits(0.5, "f4"), None]),
    )
    yield bad("scale-none", "No scale, but the kind has one", "metadata", in_packings(scale=[None, None]))
    yield bad(
        "scale-much", "A scale, but the kind has none", "metadata", in_packings(scale=[bits(0.5, "f8")] * 2)
    )
    yield bad(
        "scale-infinite", "An infinite scale", "metadata", in_packings(scale=[bits(np.inf, "f8"), None])
    )
    yield bad(
        "offset-nan",
        "An offset that is no number",
        "metadata",
        in_packings(offset=[bits(np.nan, "f8"), None]),
    )
    yield bad("values", "Values that the array does not hold", "metadata", fields(data_type="float32"))
    whole = Logical(
        (6, 4),
        (2, 4),
        [Member(A.astype("int64"))],
        [Region(0, (0, 0), (3, 1), packing=0)],
        "float64",
        packings=rows([kind("int64", "int64")], (0, None, None)),
    )
    yield bad("values-long", "Integers of 64 bits in an array of float64", "metadata", described=whole)
    counted = Logical(
        (6, 4),
        (2, 4),
        [Member(A)],
        [Region(0, (0, 0), (3, 1), packing=0)],
        "int16",
        packings=rows([kind("int16", "int16", missing=[3])], (0, None, None)),
    )
    yield bad("missing-integers", "Missing values where there is no NaN", "metadata", described=counted)
    floats = Logical(
        (6, 4),
        (2, 4),
        [Member(A)],
        [Region(0, (0, 0), (3, 1), packing=0)],
        "int16",
        packings=rows([kind("int16", "int16", scale="float64")], (0, 0.5, None)),
    )
    yield bad("scale-of-integers", "A scale of float64 on values of int16", "metadata", described=floats)
    yield bad(
        "missing-range", "A missing number that int16 does not hold", "metadata", in_kind(missing=[40000])
    )
    yield bad("missing-bits", "A missing integer as its bits", "metadata", in_kind(missing=["0x0007"]))
    yield bad("missing-many", "More than 1,000 missing numbers", "schema", in_kind(missing=list(range(1001))))
    single = Logical(
        (6, 4),
        (2, 4),
        [Member(A.astype("float32"))],
        [Region(0, (0, 0), (3, 1), packing=0)],
        "float32",
        packings=rows([kind("float32", "float32", missing=[bits(np.nan, "f4")])], (0, None, None)),
    )
    yield bad("missing-nan", "NaN among the missing numbers", "metadata", described=single)
    for name, stored, taken in (
        ("unsigned", "uint16", True),
        ("signed", "int16", False),
        ("float", "float16", True),
    ):
        described = Logical(
            (6, 4),
            (2, 4),
            [Member(A.astype(stored))],
            [Region(0, (0, 0), (3, 1), packing=0)],
            "float64",
            packings=rows([kind(stored, unsigned=taken)], (0, None, None)),
        )
        about = f"{stored}, taken for {'unsigned' if taken else 'signed'} numbers"
        yield bad(f"sign-{name}", about, "metadata", described=described)
    yield bad(
        "member-type",
        "A member that does not hold the stored numbers",
        "member",
        files=another("m-0", A.astype("float64"), "float64", [LITTLE], (6, 4)),
    )
    yield from _refused_views()
    table = Logical(
        (6, 4),
        (2, 4),
        [Member(A)],
        regions,
        "float64",
        packings=rows([said, other], (0, 0.5, 1.0), (1, None, None)),
        table="t-0",
    )
    stored = table.rows()
    yield bad(
        "table-count", "More packings than rows", "metadata", lambda m: m["packings"].update(count=3), table
    )
    yield bad(
        "table-columns",
        "Packings in the attributes beside a table",
        "metadata",
        lambda m: m.update(packings=packed.manifest()["packings"]),
        table,
    )
    yield bad(
        "table-narrow",
        "A table as in version 1",
        "metadata",
        described=table,
        files=another("t-0", stored[:, :7], "int64", [LITTLE], (2, 7)),
    )
    wide = stored.copy()
    wide[1, -2] = 5
    yield bad(
        "table-scale",
        "The bits of a scale where the kind has none",
        "metadata",
        described=table,
        files=another("t-0", wide, "int64", [LITTLE], (2, 13)),
    )
    layer = stored.copy()
    layer[0, 9] = 1
    yield bad(
        "table-layer",
        "A row that is a replica of what layer 0 does not cover",
        "metadata",
        described=table,
        files=another("t-0", layer, "int64", [LITTLE], (2, 13)),
    )
    readable = logical("", "", packed, np.zeros((6, 4)))
    assert json.loads(readable.files["zarr.json"])["attributes"]["intarsia"]["version"] == 2


def _refused_views():
    def seen(*output, rank=2, member=A, shape=(6, 4), chunks=(2, 4), **region):
        stop = tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
        regions = [Region(0, (0,) * len(shape), stop, view=0, **region)]
        return Logical(shape, chunks, [Member(member)], regions, views=[view(rank, *output)])

    def bad(name, about, level, described, change=None):
        return refused(described, f"manifest-2/refused-view-{name}", about, level, change)

    fine = seen(axis(0), axis(1))
    yield bad("stride", "A stride of 2", "schema", seen(axis(0, 0, 2), axis(1)))
    yield bad(
        "stride-alone",
        "A stride on an axis that is dropped",
        "schema",
        seen({"offset": 0, "stride": -1}, axis(1), axis(0), member=A[None]),
    )
    yield bad(
        "unknown-field",
        "A field of TensorStore that views do not have",
        "schema",
        fine,
        lambda m: m["views"][0].update(input_labels=["y", "x"]),
    )
    yield bad("rank", "A view of another rank", "metadata", seen(axis(0), axis(1), rank=3))
    yield bad("axis-beyond", "An axis that the array does not have", "metadata", seen(axis(0), axis(2)))
    yield bad(
        "axis-twice",
        "An axis that is followed twice",
        "metadata",
        seen(axis(0), axis(0), axis(1), member=numbers((6, 6, 4), "int16")),
    )
    yield bad(
        "unused", "A view that no region uses", "metadata", fine, lambda m: m["views"].append(m["views"][0])
    )
    yield bad("beyond", "A view that is not listed", "metadata", fine, column("view", 1))
    yield bad("below-zero", "A region that looks below index 0", "metadata", seen(axis(0, 4, -1), axis(1)))
    yield bad("negative", "A negative offset that nothing makes good", "metadata", seen(axis(0, -1), axis(1)))
    yield bad(
        "dropped-negative",
        "A negative index of a dropped axis",
        "metadata",
        seen(axis(None, -1), axis(0), axis(1), member=A[None]),
    )
    yield bad("far", "An offset further out than any member", "metadata", seen(axis(0, 2**62), axis(1)))
    yield bad("beyond-member", "A region that looks beyond its member", "member", seen(axis(0, 1), axis(1)))
    yield bad(
        "member-rank", "A view of a member of another rank", "member", seen(axis(0), axis(None), axis(1))
    )
    yield bad(
        "new-chunk",
        "A new axis with a lattice of 2",
        "metadata",
        seen(axis(1), axis(2), rank=3, shape=(1, 6, 4), chunks=(2, 2, 4)),
    )
    yield bad(
        "new-long",
        "A region two long on a new axis",
        "metadata",
        seen(axis(1), axis(2), rank=3, shape=(2, 6, 4), chunks=(1, 2, 4)),
    )
    yield bad(
        "new-start",
        "A member_start on a new axis",
        "metadata",
        seen(axis(1), axis(2), rank=3, shape=(1, 6, 4), chunks=(1, 2, 4), member_start=(1, 0, 0)),
    )
