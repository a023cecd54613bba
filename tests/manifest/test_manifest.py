"""The manifest: both forms, the schema, and manifests that somebody edited by hand."""

import copy
import importlib
import json
import pickle
import shutil
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import zarr
from standard.vectors.schemas import manifest_schema
from zarr.core.sync import sync

import intarsia
from intarsia.errors import ManifestError
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest import manifest as manifest_module
from intarsia.manifest.box import Box
from intarsia.manifest.region_table import RegionTable, Row
from tests.logical.stores import memory, stored


def array_of(store, tiles):
    """An array of one-chunk regions in one member, `tiles` of them."""
    array = intarsia.create(store, "a", shape=(tiles,), chunks=(1,), dtype="i4")
    array.add_region([(0, tiles)], codecs=[], chunks=(1000,), data=np.arange(tiles))
    columns = np.arange(tiles)[:, None]
    table = RegionTable.of(np.zeros(tiles, dtype=np.int64), columns, columns + 1, columns)
    array._logical.commit(array.manifest.changed(table))
    return array


@pytest.fixture
def document():
    store = memory()
    array = intarsia.create(
        store, "a", shape=(10, 10), chunks=(2, 5), dtype="f4", dimension_names=("y", None)
    )
    array.add_region(((0, 4), (0, 10)), codecs=["gzip"], data=np.ones((4, 10)))
    array.add_region(((4, 10), (0, 5)), codecs=["zstd"], data=np.ones((6, 5)))
    return store, json.loads(json.dumps(dict(zarr.open_group(store, path="a").attrs)))


def rewrite(store, attributes):
    zarr.open_group(store, path="a", mode="r+").attrs.put(attributes)


def test_a_table_is_measured_before_it_is_read(document):
    store, attributes = document
    group = zarr.open_group(store, path="a", mode="r+")
    attributes["intarsia"]["regions"] = "t-x"
    rewrite(store, attributes)
    group.create_array("t-x", shape=(10**12, 7), chunks=(10**6, 7), dtype="i8")
    with pytest.raises(intarsia.errors.ManifestError, match=r"\(1000000000000, 7\); .*room for 10 regions"):
        intarsia.open(store, "a")
    group.create_array("t-x", shape=(8, 7), chunks=(8, 7), dtype="i8", overwrite=True)
    with pytest.raises(intarsia.errors.ManifestError, match="'t-x' cannot be read"):  # no chunk is stored
        intarsia.open(store, "a")
    attributes["intarsia"] |= {"shape": [1 << 40, 10]}
    rewrite(store, attributes)
    group.create_array("t-x", shape=(10**12, 7), chunks=(10**6, 7), dtype="i8", overwrite=True)
    with pytest.raises(intarsia.errors.ManifestError, match="there is room for 10000000 regions"):
        intarsia.open(store, "a")


def test_metadata_nested_without_end_is_refused(document):
    store, _ = document
    deep = '{"zarr_format": 3, "node_type": "group", "attributes": {"intarsia": ' + "[" * 100_000
    deep += "]" * 100_000 + "}}"
    store._store_dict["a/zarr.json"] = zarr.core.buffer.cpu.Buffer.from_bytes(deep.encode())
    with pytest.raises(intarsia.errors.ManifestError, match="nested too deeply"):
        intarsia.open(store, "a")
    assert [problem.kind for problem in intarsia.verify(store, "a")] == ["manifest"]


@pytest.mark.parametrize("document", [b'{"zarr_format": 3, "x": "\xff"}', b"{"])
def test_metadata_that_is_no_text_or_no_json(document):
    store = memory()
    intarsia.create(store, "deep/a", shape=(4,), chunks=(4,), dtype="u1")
    store._store_dict["deep/a/zarr.json"] = zarr.core.buffer.cpu.Buffer.from_bytes(document)
    with pytest.raises(ManifestError, match="metadata of 'deep/a' cannot be understood"):
        intarsia.open(store, "deep/a")
    assert [problem.kind for problem in intarsia.verify(store, "deep/a")] == ["manifest"]
    with pytest.raises(intarsia.errors.MetadataError, match=r"metadata at 'deep/a' .*cannot be understood"):
        intarsia.vacuum(store)


BRICKS = {
    "a name with a space": lambda a: a.add_region([(4, 8)], member="my data"),
    "a name with an umlaut": lambda a: a.add_region([(4, 8)], member="größe"),
    "a name further down": lambda a: a.add_region([(4, 8)], member="sub/m"),
    "a place before the member": lambda a: a.add_region([(4, 8)], member="m", member_start=(-4,)),
    "a shape beyond counting": lambda a: a.resize((2**62,)),
    "a shape beyond computing": lambda a: a.resize((10**30,)),
    "a shape of fractions": lambda a: a.resize((4.7,)),
    "a manifest of the caller's own": lambda a: a._logical.commit(
        replace(a.manifest, members=("m 1",)).changed(a.manifest.regions)
    ),
}


@pytest.mark.parametrize("name", BRICKS)
def test_what_no_reader_would_open_is_not_written(name):
    store = memory()
    array = intarsia.create(store, "a", shape=(8,), chunks=(4,), dtype="i4")
    array.add_region([(0, 4)], codecs=[], data=[1, 2, 3, 4])
    for child in ("my data", "größe", "m"):
        array.group.create_array(child, shape=(8,), chunks=(4,), dtype="i4")
    array.group.require_group("sub").create_array("m", shape=(8,), chunks=(4,), dtype="i4")
    before = stored(store)
    with pytest.raises(intarsia.IntarsiaError):
        BRICKS[name](array)
    assert stored(store) == before
    assert intarsia.open(store, "a")[:4].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "fields",
    [
        {"dimension_names": [1]},
        {"shape": (4.7,)},
        {"chunks": (2.5,)},
        {"shape": (2**62,)},
        {"fill_value": 3.7},
        {"dtype": "f4", "fill_value": 1e300},
        {"dtype": "bool", "fill_value": 2},
        {"dtype": "U3", "fill_value": "Zürich"},
    ],
)
def test_what_no_reader_would_open_is_not_created(fields):
    store = memory()
    with pytest.raises(intarsia.IntarsiaError):
        intarsia.create(store, "a", **{"shape": (8,), "chunks": (4,), "dtype": "i4"} | fields)
    assert stored(store) == {}


@pytest.mark.parametrize(
    ("dtype", "fill_value"), [("i4", 3.0), ("f4", 0.1), ("f4", "NaN"), ("i4", True), ("c8", 1), ("U3", "abc")]
)
def test_fill_values_that_keep_their_value_are_taken(dtype, fill_value):
    array = intarsia.create({}, "a", shape=(8,), chunks=(4,), dtype=dtype, fill_value=fill_value)
    np.testing.assert_array_equal(array[0], np.array(fill_value).astype(dtype))


def test_a_written_manifest_fits_the_shipped_schema(document):
    _, attributes = document
    assert [*manifest_schema("manifest").iter_errors(attributes["intarsia"])] == []
    assert attributes["intarsia"]["regions"]["start"] == [[0, 0], [2, 0]]
    assert attributes["intarsia"]["regions"]["stop"] == [[2, 2], [5, 1]]
    assert attributes["zarr_conventions"][0]["name"] == "intarsia"


def test_the_table_moves_out_of_the_attributes_and_back(monkeypatch):
    monkeypatch.setattr(manifest_module, "INLINE_REGIONS", 50)
    monkeypatch.setattr("intarsia.logical.logical_array_handle.INLINE_REGIONS", 50)
    store = memory()
    array = array_of(store, 51)
    attributes = zarr.open_group(store, path="a").attrs["intarsia"]
    assert isinstance(attributes["regions"], str)
    assert attributes["regions"].startswith("t-")
    assert [*manifest_schema("manifest").iter_errors(attributes)] == []
    again = intarsia.open(store, "a", mode="r+")
    assert again == array
    assert intarsia.verify(again) == ()
    again.drop_region([(7, 8)])
    assert isinstance(zarr.open_group(store, path="a").attrs["intarsia"]["regions"], dict)
    assert again[5:9].tolist() == [5, 6, 0, 8]
    assert not [key for key in stored(store) if "/t-" in key]
    assert intarsia.open(store, "a")[5:9].tolist() == [5, 6, 0, 8]


@pytest.fixture
def snapshot(tmp_path, monkeypatch):
    """A repository with an array whose regions lie in a table, and how often the table was opened."""
    monkeypatch.setattr("intarsia.logical.logical_array_handle.INLINE_REGIONS", 1)
    repo = intarsia.open_repository(tmp_path, create=True)
    with intarsia.transaction(repo) as tx:
        array = tx.create("a", shape=(6,), chunks=(2,), dtype="float64")
        for i in range(3):
            packing = intarsia.Packing("int16", scale=i + 1.0)
            array.add_region([(2 * i, 2 * i + 2)], data=[0, i + 1], packing=packing)
    opened, original = [], LogicalArrayHandle._open_table
    monkeypatch.setattr(
        LogicalArrayHandle, "_open_table", staticmethod(lambda *args: opened.append(1) or original(*args))
    )
    return repo, opened


def test_the_table_of_a_snapshot_is_read_when_somebody_looks_at_it(snapshot):
    repo, opened = snapshot
    array = intarsia.open(repo, "a")
    told = array.manifest.packings
    assert (array.shape, array.dtype, len(array.members), len(told), len(told.kinds)) == (
        (6,),
        float,
        3,
        3,
        1,
    )
    assert not opened
    assert array[...].tolist() == [0, 1, 0, 2, 0, 3]
    assert len(array.regions) == 3
    assert [packing.scale for packing in array.manifest.packings] == [1, 2, 3]
    assert opened == [1]
    for columns in ("regions", "packings"):
        unread = getattr(intarsia.open(repo, "a").manifest, columns)
        assert pickle.loads(pickle.dumps(unread)) == getattr(array.manifest, columns)
        assert not hasattr(unread, "colour")
    assert intarsia.open(repo, "a").manifest == array.manifest
    with intarsia.transaction(repo) as tx:
        tx.open("a").drop_region([(2, 4)])
    assert intarsia.open(repo, "a")[...].tolist() == [0, 1, 0, 0, 0, 3]


def test_threads_that_look_at_an_unread_table_at_once_see_all_of_it(snapshot):
    repo, _ = snapshot
    for _ in range(20):
        array, gate = intarsia.open(repo, "a"), threading.Barrier(4)

        def look(_, array=array, gate=gate):
            gate.wait()
            return array.manifest.regions.stop.tolist(), len(array.manifest.packings.rows)

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(look, range(4))) == [([[1], [2], [3]], 3)] * 4


def test_a_damaged_table_of_a_snapshot_is_an_error_whenever_it_is_looked_at(snapshot):
    repo, _ = snapshot
    with intarsia.transaction(repo) as tx:
        group = zarr.open_group(tx.store, path="a")
        group[group.attrs["intarsia"]["regions"]][0, 0] = 99
    array = intarsia.open(repo, "a")
    for look in (lambda: array[...], lambda: array.regions, lambda: array[...]):
        with pytest.raises(ManifestError, match="row 0 refers past the list of 3 members") as caught:
            look()
        assert "in the attributes of" in caught.value.__notes__[0]
    assert [problem.kind for problem in intarsia.verify(repo.readonly_session("main").store, "a")] == [
        "manifest"
    ]


def test_either_form_is_read_for_any_number_of_regions(document):
    store, attributes = document
    columns = attributes["intarsia"]["regions"]
    packed = np.concatenate(
        [np.array(columns["member"])[:, None], columns["start"], columns["stop"], columns["member_start"]],
        axis=1,
    )
    zarr.open_group(store, path="a", mode="r+").create_array("t-few", data=packed)
    attributes["intarsia"]["regions"] = "t-few"
    rewrite(store, attributes)
    assert len(intarsia.open(store, "a").regions) == 2


def damaged(attributes, **fields):
    changed = copy.deepcopy(attributes)
    for key, value in fields.items():
        target = changed["intarsia"]
        *path, last = key.split("__")
        for step in path:
            target = target[step]
        if value is None and last != "dimension_names":
            del target[last]
        else:
            target[last] = value
    return changed


DAMAGE = {
    "a missing field": ({"shape": None}, "shape: the field is missing"),
    "an unknown field": ({"more": 1}, "more: there is no such field"),
    "a negative size": ({"shape": [-1, 10]}, r"shape\[0\]: -1: Expected int >= 0"),
    "a chunk of nothing": ({"chunk_shape": [0, 5]}, r"chunk_shape\[0\]: 0: Expected int >= 1"),
    "axes that disagree": ({"chunk_shape": [2]}, "chunk_shape: 1 axes, but shape has 2"),
    "names that disagree": ({"dimension_names": ["x"]}, "dimension_names: 1 axes"),
    "an unknown data type": ({"data_type": "float7"}, "data_type"),
    "a wrong fill value": ({"fill_value": "many"}, "fill_value"),
    "a member up the tree": ({"members": ["../../etc", "m-2"]}, r"members\[0\]: '../../etc' is not a name"),
    "an absolute member": ({"members": ["/etc/passwd", "m-2"]}, r"members\[0\]"),
    "a member behind a url": ({"members": ["https://example.org/z", "m-2"]}, r"members\[0\]"),
    "a member called dot-dot": ({"members": ["..", "m-2"]}, r"members\[0\]"),
    "a member that is a number": ({"members": [1, "m-2"]}, r"members\[0\]"),
    "one member twice": ({"members": ["m-1", "m-1"]}, "listed twice"),
    "a member too many": (
        {"members": ["m-1", "m-2", "m-3"]},
        r"members\[2\] \(m-3\) is not used by any region",
    ),
    "a reference past the list": ({"regions__member": [0, 5]}, "row 1 refers past the list of 2 members"),
    "a column too short": (
        {"regions__start": [[0, 0]]},
        r"regions.start: expected integers of shape \(2, 2\)",
    ),
    "rows of different lengths": (
        {"regions__start": [[0, 0], [1]]},
        "regions.start: expected integers of shape",
    ),
    "fractions": ({"regions__start": [[0, 0], [2.5, 0]]}, r"regions.start\[1\]\[0\]: 2.5: Expected int"),
    "text": ({"regions__stop": "much"}, "regions"),
    "an empty region": ({"regions__stop": [[2, 2], [2, 1]]}, "row 1 is not above start"),
    "a region outside": ({"regions__stop": [[2, 2], [6, 1]]}, "row 1 lies beyond the"),
    "a region below zero": ({"regions__start": [[0, 0], [-2, 0]]}, "row 1 is negative"),
    "regions that overlap": ({"regions__start": [[0, 0], [1, 0]]}, "row 0 and row 1 overlap"),
    "a table that is not there": ({"regions": "t-gone"}, "the table 't-gone' is missing"),
    "a table up the tree": ({"regions": "../secret"}, "regions"),
    "a size with a point": ({"shape": [10.0, 10]}, r"shape\[0\]: 10.0: Expected int, got float"),
    "a chunk with a point": ({"chunk_shape": [2, 5.0]}, r"chunk_shape\[1\]: 5.0: Expected int, got float"),
    "a generation with a point": ({"generation": 2.0}, "generation: 2.0: Expected int, got float"),
    "a table without a name": ({"regions": ""}, "regions"),
    "a table with a line in its name": ({"regions": "t-x\n"}, "regions: .* is not a name"),
    "a member with NUL in its name": ({"members": ["m-\0", "m-2"]}, r"members\[0\]"),
    "an astronomic size": ({"shape": [0, 10**30]}, "more elements than can be counted"),
    "an astronomic chunk": ({"chunk_shape": [10**30, 5]}, "more elements than can be counted"),
    "an astronomic place": ({"regions__start": [[0, 0], [10**30, 0]]}, "regions.start: expected integers"),
    "a place out of a member's reach": (
        {"regions__member_start": [[0, 0], [1 << 62, 0]]},
        "regions.member_start: row 1 lies further out",
    ),
    "a fill value out of reach": ({"data_type": "int8", "fill_value": 10**30}, "fill_value"),
    "a data type of no kind": ({"data_type": {"name": {}}}, "data_type"),
    "more elements than can be counted": ({"shape": [1 << 40, 1 << 40]}, "more elements than can be counted"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_manifest_edited_by_hand_is_refused_and_the_field_is_named(name, document):
    store, attributes = document
    fields, match = DAMAGE[name]
    rewrite(store, damaged(attributes, **fields))
    with pytest.raises(intarsia.errors.ManifestError, match=match):
        intarsia.open(store, "a")
    problems = intarsia.verify(store, "a")
    assert problems
    assert {problem.kind for problem in problems} == {"manifest"}


def test_all_problems_are_listed_at_once(document):
    store, attributes = document
    bad = damaged(attributes, generation=-1, members=["../x", "/y"], dimension_names=[1, 2])
    rewrite(store, bad)
    with pytest.raises(intarsia.errors.ManifestError) as caught:
        intarsia.open(store, "a")
    text = str(caught.value)
    for field in ("generation", "members[0]", "members[1]", "dimension_names"):
        assert field in text


@pytest.mark.parametrize("version", [0, 3, 99])
def test_an_unknown_version_is_refused_and_says_what_reads_it(version, document):
    store, attributes = document
    rewrite(store, damaged(attributes, version=version))
    with pytest.raises(
        intarsia.errors.ManifestVersionError, match=f"has version {version}.*\n.*reads version {version}"
    ):
        intarsia.open(store, "a")


@pytest.mark.parametrize(
    "junk", ["text", 7, [1, 2], {"x": "y" * 10_000_000}], ids=["text", "int", "list", "10 MB"]
)
def test_junk_is_refused_with_a_short_message(junk, document):
    store, attributes = document
    rewrite(store, {**attributes, "intarsia": junk})
    with pytest.raises(intarsia.errors.ManifestError) as caught:
        intarsia.open(store, "a")
    assert len(str(caught.value)) < 5000


def test_a_missing_member_is_an_error_that_names_region_and_member(document):
    store, attributes = document
    name = attributes["intarsia"]["members"][1]
    for key in [key for key in store._store_dict if name in key]:
        del store._store_dict[key]
    array = intarsia.open(store, "a")
    assert array[0, 0] == 1
    with pytest.raises(intarsia.errors.MissingMemberError, match=f"member '{name}'.* is missing"):
        array[5, 0]
    assert [problem.kind for problem in intarsia.verify(array)] == ["member"]


@pytest.mark.parametrize(
    ("shape", "dtype", "match"), [((6, 5), "i4", "decodes to int32"), ((5, 5), "f4", "shape")]
)
def test_a_member_that_does_not_fit_is_an_error(shape, dtype, match, document):
    store, attributes = document
    name = attributes["intarsia"]["members"][1]
    zarr.create_array(store, name=f"a/{name}", shape=shape, dtype=dtype, overwrite=True)
    array = intarsia.open(store, "a")
    with pytest.raises(intarsia.errors.MemberError, match=rf"cannot back the region \[4:10, 0:5\].*{match}"):
        array[5, 0]
    assert [problem.kind for problem in intarsia.verify(array)] == ["member"]


def test_a_member_whose_chunks_differ_in_shape_has_no_chunk_shape(document):
    """Nobody makes such members; metadata can be damaged so that they are."""
    store, attributes = document
    name = attributes["intarsia"]["members"][1]
    with zarr.config.set({"array.rectilinear_chunks": True}):
        zarr.create_array(
            store, name=f"a/{name}", shape=(6, 5), dtype="f4", chunks=[[2, 4], [5]], overwrite=True
        )
        array = intarsia.open(store, "a")
        assert array[5, 0] == 0
        with pytest.raises(intarsia.errors.MemberError, match="differ in shape"):
            _ = [region.chunks for region in array.regions]
        assert "its chunks differ" in repr(array.regions)


@pytest.mark.parametrize(
    ("field", "value"), [("codecs", ["zstd"]), ("shape", ["6", 5]), ("shape", [6]), ("shape", [2**70, 5])]
)
def test_a_member_with_damaged_metadata_is_unknown_in_tables(document, field, value):
    store, attributes = document
    key = f"a/{attributes['intarsia']['members'][1]}/zarr.json"
    text = json.dumps(json.loads(stored(store)[key]) | {field: value})
    sync(store.set(key, zarr.buffer.cpu.Buffer.from_bytes(text.encode())))
    array = intarsia.open(store, "a")
    assert "unknown (" in repr(array.regions)
    assert str(array.info)


def test_a_damaged_chunk_is_an_error_that_names_region_member_and_chunk(document):
    store, attributes = document
    name = attributes["intarsia"]["members"][0]
    key = f"a/{name}/c/1/1"
    store._store_dict[key] = zarr.core.buffer.cpu.Buffer.from_bytes(b"not gzip at all")
    array = intarsia.open(store, "a")
    np.testing.assert_array_equal(array[0:2], np.ones((2, 10)))
    for read in (lambda: array[...], lambda: array[3, 9], lambda: array.vindex[[2, 3], [1, 8]]):
        with pytest.raises(
            intarsia.errors.ReadError, match=rf"region \[0:4, 0:10\] .*member {name}, chunk \(1, 1\)"
        ):
            read()
    assert [problem.kind for problem in intarsia.verify(array)] == ["data"]
    assert intarsia.verify(array, data=False) == ()


LEFT = "m-" + "f" * 32


def test_leftovers_of_a_crash_are_listed_and_removed(document):
    store, _ = document
    group = zarr.open_group(store, path="a", mode="r+")
    group.create_array(LEFT, shape=(4,), dtype="u1")[:] = 1
    assert intarsia.verify(store, "a") == ()  # it does no harm
    assert intarsia.vacuum(store, dry_run=True) == (f"a/{LEFT}",)
    assert intarsia.vacuum(store, dry_run=True) == (f"a/{LEFT}",)
    assert intarsia.vacuum(store) == (f"a/{LEFT}",)
    assert intarsia.verify(store, "a") == ()
    assert not [key for key in stored(store) if LEFT in key]


def test_what_a_killed_writer_leaves_is_listed_and_removed(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(0,), chunks=(4,), dtype="i4")
    array.append(np.arange(8), codecs=["zstd"])
    member = tmp_path / "a" / array.regions[0].name
    shutil.copytree(member, tmp_path / "a" / LEFT)
    (tmp_path / "a" / LEFT / "zarr.json").unlink()  # its removal was interrupted
    unfinished = [member / "c" / f"1.{'0' * 32}{number}.partial" for number in ("", "-7")]
    for file in unfinished:  # zarr's, and that of a write of many chunks
        file.write_bytes(b"half a chunk")
    mine = member / "c" / "notes.partial"
    mine.write_bytes(b"none of ours")
    left = (f"a/{LEFT}", *(f"a/{member.name}/c/{file.name}" for file in sorted(unfinished)))
    assert intarsia.verify(tmp_path, "a") == ()
    assert intarsia.vacuum(tmp_path, dry_run=True) == left
    assert intarsia.vacuum(tmp_path) == left
    assert not (tmp_path / "a" / LEFT).exists()
    assert not any(file.exists() for file in unfinished)
    assert mine.exists()
    assert intarsia.verify(tmp_path, "a") == ()


def test_vacuum_leaves_alone_what_is_not_ours():
    store = memory()
    intarsia.create(store, "", shape=(0,), chunks=(4,), dtype="i4").append(np.arange(4))
    below = intarsia.create(store, "run2", shape=(0,), chunks=(4,), dtype="i4")
    below.append(np.arange(4))
    zarr.create_array(store, name="lat", shape=(4,), dtype="f4")[:] = 1
    zarr.create_array(store, name="m-mine", shape=(4,), dtype="f4")[:] = 1
    zarr.create_group(store, path=LEFT)  # a name like ours, but no array
    below.group.create_array(LEFT, shape=(4,), dtype="u1")
    assert intarsia.verify(store, "") == ()
    before = stored(store)
    assert intarsia.vacuum(store) == (f"run2/{LEFT}",)
    assert stored(store) == {key: data for key, data in before.items() if f"run2/{LEFT}" not in key}
    assert intarsia.open(store, "run2")[...].tolist() == [0, 1, 2, 3]


def test_a_store_that_cannot_delete_keeps_leftovers_and_vacuum_says_so(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zip files keep every version of a key
        store = zarr.storage.ZipStore(tmp_path / "z.zip", mode="w")
        array = intarsia.create(store, "a", shape=(0,), chunks=(4,), dtype="i4")
        array.append(np.arange(8), codecs=["zstd"])
        array.recode(codecs=["gzip"])
        assert array.regions[0].codec_names == "gzip"
        assert array[...].tolist() == list(range(8))
        with pytest.raises(intarsia.errors.ReadOnlyError, match="which does not support removal"):
            intarsia.vacuum(store)
        store.close()
    with zarr.storage.ZipStore(tmp_path / "z.zip", mode="r") as store:
        assert intarsia.verify(store, "a") == ()
        assert len(intarsia.vacuum(store, dry_run=True)) == 1


def test_verify_reads_what_is_stored_and_nothing_else(monkeypatch):
    array = intarsia.create(memory(), "a", shape=(2_000_000,), chunks=(1,), dtype="u1")
    array.add_region([(0, 2_000_000)], codecs=[], shards=(10,))
    array[1_234_567] = 7
    reads = []
    module = importlib.import_module("intarsia.logical.recode")
    original = module.read_request

    def counted(logical, request, *more):
        reads.append(request.box.bounds)
        return original(logical, request, *more)

    monkeypatch.setattr(module, "read_request", counted)
    assert intarsia.verify(array) == ()
    assert reads == [((i, i + 1),) for i in range(1_234_560, 1_234_570)]


def test_verify_lists_whatever_a_read_fails_with(document, monkeypatch):
    store, _ = document

    def fails(*_):
        raise OverflowError("too far")

    monkeypatch.setattr(importlib.import_module("intarsia.logical.recode"), "read_request", fails)
    assert {(problem.kind, problem.what) for problem in intarsia.verify(store, "a")} == {("data", "too far")}


def test_what_every_interrupted_change_leaves_is_the_old_array_or_the_new_one(monkeypatch):
    """Cuts the power after every single write to the store, in turn."""
    changes = {
        "append": lambda a: a.append(np.full((5, 4), 9, dtype="i4"), codecs=["gzip"], merge=False),
        "grow": lambda a: a.append(np.full((5, 4), 9, dtype="i4")),
        "recode": lambda a: a.recode(((0, 2), (0, 4)), codecs=["gzip"]),
        "drop": lambda a: a.drop_region(((0, 2), (0, 4))),
        "resize": lambda a: a.resize((9, 4)),
    }
    for name, change in changes.items():
        for survivors in range(200):
            store = memory()
            array = intarsia.create(store, "a", shape=(0, 4), chunks=(2, 4), dtype="i4", fill_value=3)
            array.append(np.arange(20).reshape(5, 4), codecs=["zstd"])
            before = array[...]
            store_set, left = type(store).set, [survivors]

            async def failing(self, key, value, *args, _set=store_set, _left=left, **options):
                if _left[0] == 0:
                    raise OSError("power cut")
                _left[0] -= 1
                return await _set(self, key, value, *args, **options)

            monkeypatch.setattr(type(store), "set", failing)
            try:
                change(array)
            except OSError:
                finished = False
            else:
                finished = True
            monkeypatch.undo()
            now = intarsia.open(store, "a")
            assert intarsia.verify(now) == (), (name, survivors)
            if finished:
                break
            if now.shape == before.shape:
                np.testing.assert_array_equal(now[...], before)
        else:
            raise AssertionError(f"{name} never finished")


def test_overlaps_are_found_in_any_arrangement():
    rng = np.random.default_rng(5)
    for _ in range(300):
        ndim = int(rng.integers(1, 4))
        rows = []
        for _ in range(int(rng.integers(2, 8))):
            start = rng.integers(0, 6, ndim)
            rows.append(
                Row(
                    0,
                    Box(tuple(start.tolist()), tuple((start + rng.integers(1, 4, ndim)).tolist())),
                    (0,) * ndim,
                )
            )
        table = RegionTable.from_rows(rows, ndim)
        expected = any(a.box.intersect(b.box) for i, a in enumerate(rows) for b in rows[i + 1 :])
        pair = table.overlap()
        assert (pair is not None) == expected
        if pair is not None:
            assert rows[pair[0]].box.intersect(rows[pair[1]].box)


def test_a_hundred_thousand_regions_open_and_read_without_a_loop_over_them():
    store = memory()
    array_of(store, 100_000)
    array = intarsia.open(store, "a")
    table = array.manifest.regions
    assert len(table) == 100_000
    assert table.touching(Box((99_998,), (100_000,))).tolist() == [99_998, 99_999]
    assert array[99_998:].tolist() == [99_998, 99_999]
    assert array.region_at((5,)).bounds == ((5, 6),)
