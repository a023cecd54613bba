"""Manifests of version 2: both forms, and damage of every kind in every field."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from standard.vectors.schemas import manifest_schema

import intarsia
from intarsia.errors import ManifestError
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.box import Box
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.manifest_diff import region_diffs
from intarsia.manifest.packing import Packing
from intarsia.manifest.packing_columns import NO_PACKINGS
from intarsia.manifest.region_table import RegionTable, Row
from intarsia.manifest.view import View
from tests.logical.stores import memory

PACKINGS = [
    Packing("int16", scale=0.01, offset=1 / 3, missing=-1),
    Packing("int16", scale=0.02, offset=0.1, missing=-1),
]
FLIPPED = View.identity(2).flip(0, length=25).expand(0)


def manifest_with(
    rows=None, packings=PACKINGS, views=(FLIPPED,), shape=(4, 25, 30), chunk=(1, 10, 10), data_type="f8"
):
    rows = rows or [
        Row(0, Box((0, 0, 0), (1, 2, 3)), (0, 0, 0), packing=0),
        Row(1, Box((1, 0, 0), (2, 3, 3)), (0, 0, 0), packing=1, view=0),
        Row(0, Box((2, 0, 0), (3, 2, 3)), (1, 0, 0)),
        Row(0, Box((0, 2, 0), (1, 3, 3)), (2, 0, 0), packing=0),
    ]
    table = RegionTable.from_rows(rows, 3)
    listed = NO_PACKINGS.with_(packings)[0]
    empty = Manifest.empty(shape, chunk, data_type)
    wider = replace(empty, members=("m-1", "m-2"), packings=listed, views=tuple(views))
    return wider.changed(table)


@pytest.fixture
def document():
    return json.loads(json.dumps(manifest_with().to_json()))


def test_both_forms_come_back_and_fit_the_shipped_schema(document):
    manifest = manifest_with()
    assert document["version"] == 2
    assert [*manifest_schema("manifest-2").iter_errors(document)] == []
    assert Manifest.from_json(document) == manifest
    in_table = json.loads(json.dumps(manifest.to_json("t-x")))
    assert [*manifest_schema("manifest-2").iter_errors(in_table)] == []
    table = zarr.create_array({}, data=manifest.table())
    assert Manifest.from_json(in_table, table) == manifest
    again = Manifest.from_json(in_table, table)
    assert list(again.packings) == PACKINGS
    assert again.view_of(again.regions.row(1)) == FLIPPED
    assert again.packing_of(again.regions.row(2)) is None


def test_the_examples_of_the_specification_are_read():
    page = (Path(__file__).parents[2] / "docs" / "spec" / "manifest.md").read_text()
    blocks = [json.loads(block.split("```")[0].replace("…", "")) for block in page.split("```json")[1:]]
    first, second = map(Manifest.from_json, blocks)
    assert (first.version, second.version) == (1, 2)
    row = second.regions.row(1)
    assert second.packing_of(row) == Packing("int16", scale=0.001, offset=0.0, missing=-32768)
    assert second.view_of(row) == View.identity(3).flip(1, length=721)
    assert second.in_member(row) == Box((1, 0, 0), (2, 721, 1440))
    assert second.in_member(row.crop(Box((1, 7, 0), (2, 8, 15)))) == Box((1, 0, 0), (2, 21, 1440))


def test_columns_that_say_nothing_are_left_out(document):
    assert set(document["regions"]) == {"member", "start", "stop", "member_start", "packing", "view"}
    document["regions"]["layer"] = [0] * 4
    assert Manifest.from_json(document) == manifest_with()


def test_version_1_is_written_as_long_as_it_will_do():
    plain = manifest_with(
        [Row(0, Box((0, 0, 0), (1, 1, 1)), (0, 0, 0)), Row(1, Box((1, 0, 0), (2, 1, 1)), (0, 0, 0))]
    )
    assert plain.to_json()["version"] == 1
    assert [*manifest_schema("manifest").iter_errors(plain.to_json())] == []
    assert plain.table().shape == (2, 10)
    assert Manifest.from_json(plain.to_json()) == plain
    document = manifest_with().to_json()
    with pytest.raises(ManifestError, match="packings: only a manifest of version 2 has this field"):
        Manifest.from_json(document | {"version": 1})


def test_a_version_2_that_needs_none_of_it_is_read(document):
    plain = manifest_with(
        [Row(0, Box((0, 0, 0), (1, 1, 1)), (0, 0, 0)), Row(1, Box((1, 0, 0), (2, 1, 1)), (0, 0, 0))]
    )
    assert Manifest.from_json(plain.to_json() | {"version": 2}) == plain


def test_manifests_that_differ_in_a_packing_or_a_view_send_elements_elsewhere():
    manifest = manifest_with()
    other = manifest_with(packings=[PACKINGS[1], PACKINGS[0]])
    assert manifest != other
    assert {change.kind for change in region_diffs(manifest, other)} == {"moved"}
    assert len(region_diffs(manifest, other)) == 3
    unflipped = manifest_with(views=[View.identity(2).expand(0)])
    assert [change.box for change in region_diffs(manifest, unflipped)] == [Box((1, 0, 0), (2, 3, 3))]
    assert region_diffs(manifest, manifest_with()) == []


def test_the_convention_names_the_schema_of_the_version():
    store = memory()
    array = intarsia.create(store, "a", shape=(4, 25, 30), chunks=(1, 10, 10), dtype="f8")
    assert array.manifest.version == 1
    array._logical.commit(manifest_with())
    conventions = zarr.open_group(store, path="a").attrs["zarr_conventions"]
    assert [c["schema_url"].split("/")[7] for c in conventions] == ["logical-array-v2"]
    assert intarsia.open(store, "a").manifest == array.manifest


def test_a_large_table_holds_regions_and_packings(monkeypatch):
    count = 6000
    rng = np.random.default_rng(0)
    packings = [Packing("int16", scale=s) for s in rng.random(count).tolist()]
    rows = [Row(0, Box((i, 0, 0), (i + 1, 1, 1)), (i, 0, 0), packing=i) for i in range(count)]
    table = RegionTable.from_rows(rows, 3)
    empty = Manifest.empty((count, 5, 5), (1, 5, 5), "f8")
    wider = replace(empty, members=("m-1",), packings=NO_PACKINGS.with_(packings)[0])
    manifest = wider.changed(table)
    store = memory()
    logical = LogicalArrayHandle(
        zarr.create_group(store, path="a"), Manifest.empty((1, 5, 5), (1, 5, 5), "f8")
    )
    logical.commit(manifest)
    attributes = zarr.open_group(store, path="a").attrs["intarsia"]
    assert len(json.dumps(attributes)) < 1000
    stored = zarr.open_array(store, path=f"a/{attributes['regions']}", mode="r")
    assert stored.shape == (count, 16)
    assert list(Manifest.from_json(attributes, stored).packings) == packings


TABLES = {
    "a narrow table": (np.zeros((4, 10), "i8"), "expected int64 with 16 columns"),
    "a table of floats": (np.zeros((4, 16), "f8"), "expected int64 with 16 columns"),
    "a table of one axis": (np.zeros(16, "i8"), "expected int64 with 16 columns"),
    "no table": (None, "is missing"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_another_shape_are_refused(name):
    table, match = TABLES[name]
    with pytest.raises(ManifestError, match=f"regions: the table 't-x' .*{match}"):
        Manifest.from_json(manifest_with().to_json("t-x"), table)


DAMAGE = {
    "a packing past the list": (
        lambda d: d["regions"].update(packing=[2, 1, -1, 0]),
        "regions.packing: row 0 refers past",
    ),
    "a packing below none": (
        lambda d: d["regions"].update(packing=[-2, 1, -1, 0]),
        "regions.packing: row 0 refers past",
    ),
    "a packing without regions": (
        lambda d: d["regions"].update(packing=[0, 0, -1, 0]),
        r"packings\[1\] is not used by any region",
    ),
    "no column of packings": (
        lambda d: d["regions"].pop("packing"),
        r"packings\[0\] is not used by any region",
    ),
    "a view past the list": (
        lambda d: d["regions"].update(view=[-1, 1, -1, -1]),
        "regions.view: row 1 refers past",
    ),
    "a view without regions": (lambda d: d["regions"].pop("view"), r"views\[0\] is not used by any region"),
    "another layer": (
        lambda d: d["regions"].update(layer=[0, 0, 1, 0]),
        "regions.layer: the replica .* in layer 1 covers what layer 0 lacks",
    ),
    "short columns": (
        lambda d: d["regions"].update(packing=[0, 1]),
        r"regions.packing: expected integers of shape \(4,\)",
    ),
    "flat corners": (
        lambda d: d["regions"].update(start=[0, 1, 2, 3]),
        r"regions.start\[0\]: 0: Expected array, got int",
    ),
    "fractions of packings": (
        lambda d: d["regions"].update(packing=[0, 1.5, -1, 0]),
        r"regions.packing\[1\]: 1.5: Expected int, got float",
    ),
    "truth as packings": (
        lambda d: d["regions"].update(packing=[0, True, -1, 0]),
        r"regions.packing\[1\]: True: Expected int, got bool",
    ),
    "no packings": (lambda d: d.pop("packings"), "regions.packing: row 0 refers past the list of 0 packings"),
    "packings in a table that is none": (
        lambda d: d["packings"].update(count=2),
        "packings",
    ),
    "a kind of no type": (
        lambda d: d["packings"]["kinds"][0].update(stored="int7"),
        r"packings: kinds\[0\].stored: 'int7'",
    ),
    "too many missing values": (
        lambda d: d["packings"]["kinds"][0].update(missing=list(range(1001))),
        r"packings: kinds\[0\].missing: 1001 entries: Expected array of length <= 1000",
    ),
    "values too wide": (
        lambda d: d.update(data_type="float32", fill_value=0),
        r"packings: kinds\[0\].values: float64",
    ),
    "values of another kind": (
        lambda d: d.update(data_type="int64", fill_value=0),
        r"packings: kinds\[0\].values: float64",
    ),
    "values that may be null": (
        lambda d: d.update(
            data_type={"name": "optional", "configuration": {"name": "float64", "configuration": {}}},
            fill_value=None,
        ),
        r"packings: kinds\[0\].values: float64",
    ),
    "a view of another rank": (
        lambda d: d["views"][0].update(input_rank=4),
        r"views\[0\]: input_rank: 4, but shape has 3",
    ),
    "an axis twice": (
        lambda d: d["views"][0].update(output=[{"input_dimension": 1}] * 2),
        r"views\[0\]: an axis is used twice: \[1, 1\]; this is not a permutation",
    ),
    "a view before the member": (
        lambda d: d["views"][0]["output"][0].update(offset=23),
        r"regions.view: row 1 looks with views\[0\] where no member can be",
    ),
    "a view beyond all members": (
        lambda d: d["views"][0]["output"][0].update(offset=(1 << 62) - 1, stride=1),
        r"regions.view: row 1 looks with views\[0\] where no member can be",
    ),
    "a new axis that is long": (
        lambda d: d["views"][0].update(output=[{"input_dimension": 0}]),
        r"views\[0\]: axis 1 is new",
    ),
    "a new axis not from 0": (
        lambda d: d["regions"]["member_start"][1].__setitem__(0, 1),
        r"views\[0\]: axis 0 is new",
    ),
    "version 2.0": (lambda d: d.update(version=2.0), "version"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_manifest_edited_by_hand_is_refused_and_the_field_is_named(name, document):
    change, match = DAMAGE[name]
    change(document)
    with pytest.raises(ManifestError, match=match):
        Manifest.from_json(document)


JUNK = [
    *(None, True, -1, 0, 1, 7, 1 << 62, 1 << 63, 1 << 64, 10**30, 1.5, float("nan"), float("inf")),
    *("", "x", "\0", "\ud800", "0x", "int8", "0x3ff0000000000000"),
    *([], [[]], [0], [1, 2, 3], [None], ["x"] * 4, [[0, 0, 0]] * 4, [[[[[]]]]], {}, {"x": 1}),
]
NESTED = []
for _ in range(5000):
    NESTED = [NESTED]
MORE_JUNK = [
    *(False, 2, -2, 1 << 31, (1 << 62) - 1, (1 << 63) - 1, -(1 << 63), -(1 << 63) - 1, -(10**30), 10**4000),
    *(0.0, -0.0, 1.0, 1e300, -float("inf")),
    *("m-1\0", "m-1\n", "a/b", "..", "x" * 100_000, "keep", "1", "NaN", "Infinity"),
    *(
        "0x" + "f" * 16,
        "0x7ff0000000000000",
        "0X3ff0000000000000",
        "0x3ff000000000000",
        "0x3ff00000000000000",
    ),
    *("0x3f f0000000000000", "0x٣ff0000000000000"),
    *("int7", "INT8", "<i2", "object", "complex64", "bool", "string", "float16", "r24"),
    *([[0, 0, 0]] * 3, [[0, 0]] * 4, [[0, 0, 0, 0]] * 4, [[[0] * 3]] * 4, [0] * 4, [-1] * 4, [True] * 4),
    *([0.0] * 4, ["0"] * 4, [10**30] * 4, [float("nan")] * 4, [0] * 100_000, NESTED),
    *({"name": "int16"}, {"name": "optional", "configuration": {}}, {"input_rank": 3, "output": []}, {1: 2}),
]
"""What a few seconds do not suffice for."""


def paths(node, path=(), most=2):
    yield path
    listed = enumerate(node[:most]) if isinstance(node, list) else ()
    for key, below in node.items() if isinstance(node, dict) else listed:
        yield from paths(below, (*path, key), most)


def at(document, path):
    for key in path:
        document = document[key]
    return document


def damaged(document, path, junk):
    """Documents with something wrong at a place, and what was done to each."""
    for value in junk:
        changed = copy.deepcopy(document)
        at(changed, path[:-1])[path[-1]] = value
        yield changed, value
    changed = copy.deepcopy(document)
    at(changed, path[:-1]).__delitem__(path[-1])
    yield changed, "gone"
    changed = copy.deepcopy(document)
    node = at(changed, path)
    if isinstance(node, dict):
        node["more"] = 0
        yield changed, "unknown field"
    if isinstance(node, list) and node:
        node.append(copy.deepcopy(node[0]))
        yield changed, "twice"


LISTS = ("members", "packings", "views")
RELATED = {  # what is damaged in one place may be noticed in another, which refers to it
    **dict.fromkeys(LISTS, ("regions",)),
    "regions": LISTS,
    "version": ("packings",),
    "shape": ("regions", "views"),
    "chunk_shape": ("regions", "views"),
    "data_type": ("packings",),
}


def refusal(document, table=None):
    """What a reader says against a manifest; empty if it is read, and could be written again."""
    try:
        Manifest.from_json(document, table).check()
    except ManifestError as error:
        text = str(error)
        assert len(text.encode()) < 20_000  # a text that can be printed, and read
        return text
    return ""


def check_damage(document, table, junk, most):
    """Nothing but `ManifestError`, which names the field; gives how often it was raised."""
    refused = 0
    document = json.loads(json.dumps(document))
    for path in list(paths(document, most=most))[1:]:
        if table is not None and path[0] not in ("regions", "packings"):
            continue  # the same in both forms
        for changed, what in damaged(document, path, junk):
            text = refusal(changed, table)
            refused += bool(text)
            fields = (path[0], *RELATED.get(path[0], ()))
            assert not text or any(name in text for name in fields), (path, what, text)
            assert text or what != "unknown field", path
    return refused


def both_forms():
    manifest = manifest_with()
    yield manifest.to_json(), None
    yield manifest.to_json("t-x"), manifest.table()


def test_any_junk_in_any_place_is_refused_or_harmless():
    assert sum(check_damage(*form, JUNK, 2) for form in both_forms()) > 1500


@pytest.mark.torture
def test_any_junk_in_every_place_is_refused_or_harmless():
    junk = JUNK + MORE_JUNK
    assert sum(check_damage(*form, junk, 9) for form in both_forms()) > 10_000


@pytest.mark.parametrize("junk", [None, [], [1], "x", 1, 1.5, True, float("nan")])
def test_a_manifest_that_is_no_object_is_refused(junk):
    assert "the attribute 'intarsia' holds" in refusal(junk)


CELLS = [*(-1, -2, 0, 1, 2, 7, 1 << 31, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, -(1 << 63), 0x7FF0 << 48)]


def test_any_number_in_any_cell_of_a_table_is_refused_or_harmless():
    manifest = manifest_with()
    document, table = manifest.to_json("t-x"), manifest.table()
    names = ["member", *["start"] * 3, *["stop"] * 3, *["member_start"] * 3, "packing", "view", "layer"]
    refused = 0
    for column in range(table.shape[1]):
        for row in (0, 1, slice(None)):
            for number in CELLS:
                damaged = table.copy()
                damaged[row, column] = number
                text = refusal(document, damaged)
                refused += bool(text)
                fields = ["packings"] if column > 12 else [names[column], "regions", "members", "views[0]"]
                assert not text or any(name in text for name in fields), (row, column, number, text)
    assert refused > 300


FAR = {
    "shape: 65 entries: Expected array of length <= 64": {"shape": [1] * 65},
    "dimension_names: 100000 entries: Expected array of length <= 64": {"dimension_names": [0] * 10**5},
}


@pytest.mark.parametrize("text", FAR)
def test_more_axes_than_an_array_can_have_are_refused_at_once(text, document):
    assert text in refusal(document | FAR[text])


@pytest.mark.parametrize("data_type", ["string", "bool", "int8", "float32"])
def test_data_types_that_cannot_hold_the_values_of_a_packing_are_refused(data_type, document):
    fill = {"string": "", "bool": False}.get(data_type, 0)
    assert "kinds[0].values: float64" in refusal(document | {"data_type": data_type, "fill_value": fill})


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (("packings", "kind"), "packings: Object missing required field kind"),
        (("packings", "scale"), "packings: Object missing required field scale"),
        (("regions", "stop"), "regions: Object missing required field stop"),
    ],
)
def test_a_column_that_is_missing_is_named(where, text, document):
    del document[where[0]][where[1]]
    assert text in refusal(document)


def test_columns_of_different_lengths_are_named(document):
    document["packings"]["offset"].append(None)
    assert "packings: offset: expected a list of 2 strings or nulls, as many as kind has" in refusal(document)


def test_truth_that_is_a_number_is_refused(document):
    kind = document["packings"]["kinds"][0]
    kind.update(unsigned=1.0, missing=[])
    assert "kinds[0].unsigned: 1.0: Expected bool | null, got float" in refusal(document)
