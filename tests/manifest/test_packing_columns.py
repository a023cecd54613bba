"""Packings by columns: shared, compact, and the same to the bit in JSON and in a table."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from intarsia.errors import PackingError
from intarsia.manifest.packing import Packing
from intarsia.manifest.packing_columns import NO_PACKINGS, Packings
from tests.manifest.test_packing import case


def some_packings(seed, count):
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        stored, attributes = case(rng)
        packing = Packing.from_attributes(stored.dtype, attributes)
        if packing is not None:
            found.append(packing)
    return found


def test_packings_of_every_kind_come_back_to_the_bit_in_both_forms():
    given = some_packings(1, 300) + [
        Packing("int8", scale=np.int32(-3)),
        Packing("f4", offset=np.float16(-0.0)),
        Packing("f4", missing=-0.0),
        Packing("f4", missing=0.0),
    ]
    packings, numbers = NO_PACKINGS.with_(given)
    assert str(packings[numbers[-2]]) == "float32, missing -0.0"
    assert [packings[i] for i in numbers] == given
    listed = Packings.from_json(json.loads(json.dumps(packings.to_json())))
    tabled = Packings.from_json(packings.to_json(in_table=True), packings.columns(len(packings) + 5))
    for again in (listed, tabled):
        assert again == packings
        assert list(again) == list(packings)
        assert [type(p.scale) for p in again] == [type(p.scale) for p in packings]


def test_packings_travel_to_other_processes():
    packings, _ = NO_PACKINGS.with_(some_packings(2, 20))
    hash(packings[0])  # which is another one there
    seed = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, pickle; p = pickle.load(sys.stdin.buffer); print(p.with_(list(p))[1])",
        ],
        input=pickle.dumps(packings),
        capture_output=True,
        check=True,
        env=seed,
    )
    assert done.stdout.decode().strip() == str(list(range(len(packings))))


def test_what_is_there_already_stays_one():
    one, other = Packing("int16", scale=0.1), Packing("int16", scale=np.float32(0.1))
    packings, numbers = NO_PACKINGS.with_([one, other, one])
    assert numbers == [0, 1, 0]
    assert len(packings.kinds) == 2
    more, numbers = packings.with_([Packing("int16", scale=0.2), other])
    assert numbers == [2, 1]
    assert list(more) == [one, other, Packing("int16", scale=0.2)]
    assert list(packings.select(np.array([1]))) == [other]
    assert len(packings.select(np.array([1])).kinds) == 1


def test_twelve_thousand_packings_are_compact():
    rng = np.random.default_rng(5)
    given = [Packing("int16", scale=s, offset=o, missing=-32768) for s, o in rng.random((12_000, 2)).tolist()]
    packings, _ = NO_PACKINGS.with_(given)
    assert len(packings.kinds) == 1
    assert len(json.dumps(packings.to_json(in_table=True))) < 200
    assert len(json.dumps(packings.to_json())) < 12_000 * 50


GOOD = NO_PACKINGS.with_(
    [Packing("int16", scale=0.1), Packing("int16", scale=0.2), Packing("uint8", missing=3)]
)[0]


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"kinds": {}}, "kinds: Expected array, got object"),
        ({"kinds": []}, "kind: it refers past the list of 0 kinds"),
        ({"kinds": [1, 2]}, r"kinds\[0\]: 1: Expected object, got int"),
        ({"kinds": [GOOD.to_json()["kinds"][0]] * 2}, "one is listed twice"),
        ({"kind": [0, 0, 2]}, "kind: it refers past the list of 2 kinds"),
        ({"kind": [0, 0, -1]}, "kind: it refers past the list of 2 kinds"),
        ({"kind": [0, 0, True]}, r"kind\[2\]: True: Expected int"),
        ({"kind": [0, 0, 1.0]}, r"kind\[2\]: 1.0: Expected int"),
        ({"kind": "000"}, "kind: '000': Expected array"),
        ({"kind": [0, 0, 10**30]}, "kind: it refers past"),
        ({"kind": [], "scale": [], "offset": []}, "there is no packing"),
        ({"kind": [0, 0, 0], "scale": ["0x3fb999999999999a"] * 3}, r"kinds\[1\]: no packing has this kind"),
        ({"scale": ["0x3fb999999999999a"] * 2}, "scale: expected a list of 3"),
        ({"scale": [0.1, 0.2, None]}, r"scale\[0\]: 0.1: Expected str \| null, got float"),
        ({"scale": ["0x3fb999999999999a", None, None]}, "scale: row 1 holds None"),
        ({"scale": ["0x3fb999999999999a", "0x3dcccccd", None]}, "scale: row 1 holds '0x3dcccccd'"),
        ({"scale": ["0x3fb999999999999a", "0x3fb9_99999999999", None]}, "scale: row 1 holds"),
        ({"scale": ["0x3fb999999999999a"] * 3}, "scale: row 2 holds .*, not null"),
        ({"scale": ["0x3fb999999999999a", "0x7ff8000000000000", None]}, "scale: row 1 .*a finite float64"),
        ({"scale": ["0x3fb999999999999a", "0xfff0000000000000", None]}, "scale: row 1 .*a finite float64"),
        ({"offset": [None, None, "0x00"]}, "offset: row 2 holds '0x00', not null"),
        ({"more": []}, "unknown field more"),
        ({"count": 3}, "unknown field count"),
    ],
)
def test_json_that_holds_no_packings_is_refused_and_the_field_is_named(fields, match):
    with pytest.raises(PackingError, match=match):
        Packings.from_json(GOOD.to_json() | fields)


@pytest.mark.parametrize(
    ("count", "cell", "value", "match"),
    [
        (0, (0, 0), 0, "count: 0 is not a number from 1 to 3"),
        (4, (0, 0), 0, "count: 4"),
        (True, (0, 0), 0, "count: True: Expected int"),
        (2.0, (0, 0), 0, "count: 2.0: Expected int"),
        (3, (1, 0), 7, "kind: row 1 refers past the list of 2 kinds"),
        (3, (1, 0), -1, "kind: row 1 refers past the list of 2 kinds"),
        (3, (2, 1), 1, "scale: row 2 does not hold the bits of nothing"),
        (3, (0, 1), 0x7FF0000000000000, "scale: row 0 does not hold the bits of a finite float64"),
        (2, (0, 0), 0, r"kinds\[1\]: no packing has this kind"),
    ],
)
def test_a_table_that_holds_no_packings_is_refused(count, cell, value, match):
    table = GOOD.columns(3)
    table[cell] = value
    with pytest.raises(PackingError, match=match):
        Packings.from_json(GOOD.to_json(in_table=True) | {"count": count}, table)


def test_bits_beyond_a_short_type_are_refused():
    packings, _ = NO_PACKINGS.with_([Packing("int16", scale=np.float32(0.1))])
    table = packings.columns(1)
    table[0, 1] |= 1 << 40
    with pytest.raises(PackingError, match="scale: row 0 does not hold the bits of a finite float32"):
        Packings.from_json(packings.to_json(in_table=True), table)
