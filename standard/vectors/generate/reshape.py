"""Vectors of `reshape`: the elements of a chunk in another shape."""

from standard.vectors.generate.case import (
    BIG,
    GZIP,
    LITTLE,
    array,
    configured,
    numbers,
    refused,
    reshaped,
    sharded,
    transposed,
)
from standard.vectors.generate.optional import optional, optional_type, some_nulls


def reshapes():
    values = numbers((4, 6, 5), "int16")
    for name, about, shape in (
        ("sizes", "All sizes are given", (4, 15)),
        ("open", "One size is left open", (4, -1, 5)),
        ("row", "One axis", (-1,)),
        ("axes", "An axis is made of two, another stays", ([0, 1], [2])),
        ("mixed", "Axes and sizes", ([0, 1], 5, 1)),
        ("split", "One axis becomes two", ([0], 2, 3, [2])),
        ("no-axes", "An axis that is made of none has one element", ([], -1)),
    ):
        yield array(f"reshape/{name}", about, values, "int16", [reshaped(*shape), LITTLE], (2, 6, 5))
    yield array(
        "reshape/behind-transpose",
        "Axes are turned around before",
        values,
        "int16",
        [transposed(2, 0, 1), reshaped([0], [1, 2]), BIG, GZIP],
        (2, 6, 5),
    )
    yield array(
        "reshape/in-shards",
        "Inside shards",
        values,
        "int16",
        [sharded((2, 3, 5), [reshaped([0, 1], -1), LITTLE, GZIP])],
        (4, 6, 5),
    )
    yield array(
        "reshape/nullable",
        "In front of `optional`",
        some_nulls((4, 6, 5), "int16"),
        optional_type("int16"),
        [reshaped([0, 1], [2]), optional()],
        (2, 6, 5),
        fill_value=None,
    )
    plain = array("", "", values, "int16", [reshaped([0, 1], -1), LITTLE], (2, 6, 5))
    for name, about, level, fields in (
        ("sizes", "Sizes of another number of elements", "metadata", {"shape": [7, 9]}),
        ("remainder", "What is left over is no whole number", "metadata", {"shape": [7, -1]}),
        ("two-open", "Two sizes are left open", "metadata", {"shape": [-1, -1]}),
        ("decreasing", "Axes in another order", "metadata", {"shape": [[1], [0], [2]]}),
        ("twice", "An axis stands twice", "metadata", {"shape": [[0], [0, 1, 2]]}),
        ("other-axes", "An axis that does not run along those it names", "chunk", {"shape": [6, [0], 5]}),
        ("no-such-axis", "An axis that chunks do not have", "chunk", {"shape": [-1, [3]]}),
        ("zero", "A size of nothing", "metadata", {"shape": [0, -1]}),
        ("negative", "A size below -1", "schema", {"shape": [-2, 5]}),
        ("no-shape", "`shape` is missing", "schema", {"shape": None}),
        ("unknown-field", "The field of transpose", "schema", {"order": [0, 1, 2]}),
    ):
        yield refused(plain, f"reshape/refused-{name}", about, level, change=configured(0, **fields))
