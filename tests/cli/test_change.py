"""Verbs that change: create, append, recode, rewrite, restore."""

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.codecs import BytesCodec, ZstdCodec

import intarsia
from intarsia.shards import locks
from tests.cli.program import document, failure, run, succeed


def npy(path, values):
    np.save(path, values)
    return path


def test_a_repository_from_nothing_to_data(tmp_path, data):
    store = tmp_path / "new" / "store"
    said = document(
        "create",
        store,
        "t",
        "--shape",
        "0,6,8",
        "--chunks",
        "10,3,4",
        "--dtype",
        "float32",
        "--dimension-names",
        "time,lat,lon",
        "-a",
        "units=K",
        "-a",
        "range=[0, 400]",
        "--fill-value",
        "-1",
    )
    assert said["snapshot_id"]
    file = npy(tmp_path / "a.npy", data[:20])
    first = document("append", store, "t", file, "-c", "gzip:level=9")
    second = document("append", store, "t", file, "-c", "raw", "-m", "in haste")
    assert (first["regions"], second["regions"], second["shape"]) == (1, 2, [40, 6, 8])
    array = intarsia.open(store, "t")
    np.testing.assert_array_equal(array[...], np.concatenate([data[:20]] * 2))
    assert dict(array.attrs) == {"units": "K", "range": [0, 400]}
    assert array.fill_value == -1
    assert array.dimension_names == ("time", "lat", "lon")
    assert intarsia.history(store, "t")[0].message == "in haste"


def test_create_beside_others_and_in_a_plain_store(store, plain):
    document("create", store, "second", "--shape", "4", "--dtype", "int16")
    assert intarsia.open(store, "second").dtype == "int16"
    said = document("create", plain, "second", "--shape", "4", "--dtype", "bool")
    assert said["snapshot_id"] is None


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("temperature", "--shape", "4", "--dtype", "f4"), 4),
        (("new", "--shape", "four", "--dtype", "f4"), 2),
        (("new", "--shape", "4", "--dtype", "nonsense"), 2),
        (("new", "--shape", "4,4", "--chunks", "2", "--dtype", "f4"), 4),
        (("new", "--shape", "4", "--dtype", "f4", "-a", "x"), 2),
        (("new", "--shape", "4", "--dtype", "f4", "-a", "intarsia=1"), 2),
        (("new", "--shape", "4", "--dtype", "f4", "--branch", "nowhere"), 3),
        (("new", "--shape", "4", "--dtype", "i4", "--fill-value", "lots"), 2),
    ],
)
def test_create_refuses(store, arguments, code):
    before = intarsia.open_repository(store).lookup_branch("main")
    failure("create", store, *arguments, code=code)
    assert intarsia.open_repository(store).lookup_branch("main") == before


def test_append_to_a_plain_store_takes_csv_and_grows_a_region(plain, tmp_path):
    (tmp_path / "x.csv").write_text("1,2,3\n4,5,6\n")
    intarsia.create(plain, "table", shape=(0, 3), chunks=(2, 3), dtype="int32")
    document("append", plain, "table", tmp_path / "x.csv", "-c", "gzip")
    said = document("append", plain, "table", tmp_path / "x.csv")
    assert said == said | {"regions": 1, "shape": [4, 3], "snapshot_id": None}
    assert intarsia.open(plain, "table")[3].tolist() == [4, 5, 6]


def test_append_chooses_for_me(store, tmp_path, data):
    file = npy(tmp_path / "a.npy", data[:10])
    said = document("append", store, "temperature", file, "-c", "auto")
    assert said["shape"] == [60, 6, 8]


@pytest.mark.parametrize(
    ("file", "arguments", "code"),
    [
        ("missing.npy", (), 3),
        ("wrong.txt", (), 2),
        ("broken.npy", (), 2),
        ("words.csv", (), 2),
        ("wide.npy", (), 4),
        ("good.npy", ("-c", "no-such-codec"), 2),
        ("good.npy", ("-c", "zstd:level"), 2),
        ("good.npy", ("--axis", "7"), 4),
        ("good.npy", ("--branch", "nowhere"), 3),
        ("objects.npy", (), 2),
    ],
)
def test_append_refuses_and_changes_nothing(store, tmp_path, file, arguments, code):
    npy(tmp_path / "good.npy", np.ones((10, 6, 8)))
    npy(tmp_path / "wide.npy", np.ones((10, 6, 9)))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "words.csv").write_text("a,b\n")
    (tmp_path / "wrong.txt").write_text("1")
    before = intarsia.open_repository(store).lookup_branch("main")
    failure("append", store, "temperature", tmp_path / file, *arguments, code=code)
    assert intarsia.open_repository(store).lookup_branch("main") == before


def test_recode_a_box(store, data):
    said = document("recode", store, "--bounds", "40:50, ...", "-c", "zstd:level=19", "-m", "later")
    assert said["bounds"] == [[40, 50], [0, 6], [0, 8]]
    array = intarsia.open(store, "temperature")
    assert [region.codec_names for region in array.regions] == ["gzip", "zstd", "zstd"]
    np.testing.assert_array_equal(array[...], data)
    assert "now" in succeed("recode", store, "temperature", "-c", "gzip")
    assert len(intarsia.open(store, "temperature").regions) == 1


PACKED = [
    "int16:scale=0.5,missing=-1",
    '{"stored": "int16", "scale": 0.5, "missing": [-1]}',
]


@pytest.mark.parametrize("kind", ["store", "plain"])
@pytest.mark.parametrize("packing", PACKED)
def test_packings_are_made_kept_and_removed(kind, packing, request, tmp_path):
    place = request.getfixturevalue(kind)
    values = np.arange(480.0).reshape(10, 6, 8) / 2 + 0.1
    file = npy(tmp_path / "a.npy", values.astype("f4"))
    succeed("append", place, "temperature", file, "--packing", packing)
    rounded = np.rint(values.astype("f4") * 2) / 2

    def last():
        return intarsia.open(place, "temperature").regions[-1]

    made = intarsia.Packing("int16", scale=np.float32(0.5), missing=-1)
    assert last().packing == made
    succeed("append", place, "temperature", file, "--packing", "keep")
    assert last().packing == made
    succeed("append", place, "temperature", file)
    assert last().packing is None
    array = intarsia.open(place, "temperature")
    np.testing.assert_array_equal(array[-30:-10], np.concatenate([rounded, rounded]))
    np.testing.assert_array_equal(array[-10:], values.astype("f4"))
    bounds = f"{array.shape[0] - 30}:{array.shape[0] - 10}, ..."
    for given, expected in (((), made), (("--packing", "keep"), made), (("--packing", "none"), None)):
        succeed("recode", place, "temperature", "--bounds", bounds, "-c", "zstd", *given)
        region = intarsia.open(place, "temperature").region_at((array.shape[0] - 30, 0, 0))
        assert region.packing == expected
    np.testing.assert_array_equal(intarsia.open(place, "temperature")[-30:-10], array[-30:-10])


@pytest.mark.parametrize(
    ("packing", "code"),
    [("int16:scale", 2), ("{", 2), ("int7", 4), ("int16:step=2", 4), ("", 2), ("uint8:scale=1e-6", 4)],
)
def test_packings_that_are_none_or_too_small_are_refused(store, packing, code):
    before = intarsia.open_repository(store).lookup_branch("main")
    failure("recode", store, "temperature", "-c", "zstd", "--packing", packing, code=code)
    assert intarsia.open_repository(store).lookup_branch("main") == before


def test_recode_in_a_plain_store(plain, data):
    said = document("recode", plain, "-c", "raw")
    assert said["snapshot_id"] is None
    np.testing.assert_array_equal(intarsia.open(plain, "temperature")[...], data)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("-c", "zstd", "--bounds", "3:7, ..."), 4),
        (("-c", "zstd", "--bounds", "0:500, ..."), 4),
        (("-c", "zstd", "--bounds", "0, ..."), 2),
    ],
)
def test_recode_refuses(store, arguments, code):
    before = intarsia.open_repository(store).lookup_branch("main")
    failure("recode", store, *arguments, code=code)
    assert intarsia.open_repository(store).lookup_branch("main") == before


def conditional():
    return intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec()])


def test_rewrite_members_of_a_logical_array_and_plain_arrays(store, plain):
    intarsia.append(store, "temperature", np.ones((10, 6, 8)), codecs=[conditional()], message="fast")
    said = document("rewrite", store, "temperature")
    assert said["rewritten"] == said["chunks"] == 4
    assert said["bytes_after"] < said["bytes_before"]
    assert float(intarsia.open(store, "temperature")[-1, 0, 0]) == 1.0
    z = zarr.create(
        store=plain, path="z", shape=1000, chunks=500, dtype="u1", codecs=[BytesCodec(), conditional()]
    )
    z[:] = 7
    assert "2 of 2" in succeed("rewrite", plain, "z", "--decision", "always_apply")
    assert "0 of 2" in succeed("rewrite", plain, "z", "--decision", "always_apply")


def test_rewrite_refuses(store, plain):
    assert "none of the 3 members" in failure("rewrite", store, "temperature", code=4)
    failure("rewrite", store, "nothing", code=3)
    failure("rewrite", plain, "", code=2)
    failure("rewrite", plain, "temperature", "--branch", "main", code=2)


def test_restore(store, data):
    said = document("restore", store, "temperature", "v1")
    assert said["snapshot_id"] == intarsia.open_repository(store).lookup_branch("main")
    np.testing.assert_array_equal(intarsia.open(store, "temperature")[...], data[:20])


def test_restore_refuses(store, plain):
    failure("restore", store, "temperature", "v9", code=3)
    failure("restore", store, "nothing", "v1", code=3)
    failure("restore", plain, "temperature", "v1", code=2)


def slotted(place):
    z = zarr.create_array(
        place, name="images", shape=(64, 64), chunks=(8, 8), shards=(32, 32), dtype="u2", compressors=None
    )
    intarsia.shards.slotted(z)[:16, :16] = 7
    return z


def test_compact_a_sharded_array_and_the_members_of_a_logical_one(plain):
    z = slotted(plain)
    (said,) = document("compact", plain, "images")["arrays"]
    assert (said["shards"], said["replaced"]) == (1, 1)
    assert int(z[:].sum()) == 7 * 256
    array = intarsia.create(plain, "big", shape=(0, 64), chunks=(32, 32), dtype="u2")
    array.append(np.ones((64, 64), dtype="u2"), codecs=[], chunks=(8, 8), shards=(32, 32))
    assert "On disk" in succeed("compact", plain, "big")


def test_compact_on_a_file_system_that_nobody_knows_must_be_asked_for(plain, tmp_path, monkeypatch):
    slotted(plain)
    monkeypatch.setattr(locks, "MOUNTS", tmp_path / "no such file")
    assert "--any-filesystem" in failure("compact", plain, "images", code=4)
    (said,) = document("compact", plain, "images", "--any-filesystem")["arrays"]
    assert said["replaced"] == 1


@pytest.mark.parametrize("wrong", [("--dtype", "float23"), ("--dtype", "f4", "--chunks", "2")])
def test_a_create_that_is_refused_leaves_no_repository(wrong, tmp_path):
    ran = run("create", tmp_path / "new", "t", "--shape", "0,4", *wrong)
    assert ran.code in (2, 4), ran
    assert not (tmp_path / "new").exists()


def test_compact_refuses(plain, store):
    assert "none of the 2 members" in failure("compact", plain, "temperature", code=4)
    assert "Icechunk" in failure("compact", store, "temperature", code=4)
    failure("compact", plain, "", code=2)
    failure("compact", plain, "nothing", code=3)
    zarr.create_array(plain, name="whole", shape=4, dtype="u1")
    assert "intarsia convert STORE NEW_STORE --shards" in failure("compact", plain, "whole", code=4)


def archive(folder, days):
    """One NetCDF file a day; the compression changes on the third."""
    netcdf = pytest.importorskip("netCDF4")
    folder.mkdir(exist_ok=True)
    for day in days:
        with netcdf.Dataset(folder / f"{day:02}.nc", "w") as file:
            file.createDimension("time", None)
            file.createDimension("x", 4)
            time = file.createVariable("time", "i4", ("time",))
            time.units = "days since 2002-06-01"
            time[:] = [day]
            level = {"compression": "zlib", "complevel": 4} if day >= 3 else {}
            sst = file.createVariable("sst", "f4", ("time", "x"), chunksizes=(1, 4), **level)
            sst[:] = np.full((1, 4), day)
    return folder


def test_ingest_shows_the_runs_then_takes_them_then_only_what_is_new(tmp_path):
    folder, store = archive(tmp_path / "archive", range(1, 5)), tmp_path / "store"
    arguments = (folder / "*.nc", store, "--concat-dim", "time")
    said = document("ingest", *arguments, "--dry-run")
    assert [(run["files"], run["codecs"]) for run in said["runs"]] == [(2, "raw"), (2, "shuffle+zlib-4")]
    assert not store.exists()
    assert "Variable" in succeed("ingest", *arguments, "--dry-run")
    assert "4 added" in succeed("ingest", *arguments)
    assert document("read", store, "sst", ":, 0", "--allow", "all")["values"] == [1, 2, 3, 4]
    archive(folder, [5])
    said = document("ingest", *arguments)
    assert said["summary"] == "1 added, 4 unchanged"
    assert document("info", store, "sst")["shape"] == [5, 4]


def test_sources_are_read_only_if_somebody_allows_it(tmp_path, plain):
    folder, store = archive(tmp_path / "archive", [1]), tmp_path / "store"
    succeed("ingest", folder / "*.nc", store, "--concat-dim", "time")
    assert "--allow " in failure("read", store, "sst", code=9)
    assert document("read", store, "sst", "--allow", f"file://{folder}/")["values"] == [[1, 1, 1, 1]]
    failure("read", store, "sst", "--allow", "file:///elsewhere/", code=4)
    failure("info", plain, "--allow", "all", code=2)


def test_ingest_places_files_in_several_dimensions(tmp_path):
    for name, y, x in (("a", [0, 1], [0, 1]), ("b", [0, 1], [2, 3]), ("c", [1, 2], [2, 3])):
        tile = xr.Dataset({"v": (("y", "x"), np.full((2, 2), float(ord(name))))}, {"y": y, "x": x})
        tile.to_netcdf(tmp_path / f"{name}.nc")
    arguments = ("--concat-dim", "y", "--concat-dim", "x", "--overlap", "last", "--tolerance", "0")
    succeed("ingest", tmp_path / "*.nc", tmp_path / "store", *arguments)
    read = document("read", tmp_path / "store", "v", ":, 2", "--allow", "all")
    assert read["values"] == [ord("b"), ord("c"), ord("c")]
    failure("ingest", tmp_path / "*.nc", tmp_path / "other", code=4)  # by coordinates, and two overlap
    said = document("ingest", tmp_path / "[ab].nc", tmp_path / "other")
    assert said["summary"] == "2 added"
    assert document("info", tmp_path / "other", "v")["shape"] == [2, 4]


def test_ingest_refuses(tmp_path, made):
    folder = archive(tmp_path / "archive", [1])
    (folder / "bad.nc").write_text("nonsense")
    arguments = ("ingest", folder / "*.nc", tmp_path / "store", "--concat-dim", "time")
    assert "bad.nc" in failure(*arguments, code=4)
    assert "1 added, 1 failed" in succeed(*arguments, "--skip-bad-files")
    failure("ingest", folder / "none*.nc", tmp_path / "new", "--concat-dim", "time", code=4)
    failure("ingest", folder / "01.nc", tmp_path / "new", "--concat-dim", "time", "--copy", "maybe", code=2)


def test_the_axis_that_grows_is_a_number_or_a_name(tmp_path):
    store, file = tmp_path / "store", tmp_path / "day.npy"
    np.save(file, np.ones((2, 1), "f4"))
    succeed(
        "create",
        store,
        "t",
        "--shape",
        "2,0",
        "--chunks",
        "2,1",
        "--dtype",
        "f4",
        "--dimension-names",
        "x,time",
    )
    succeed("append", store, "t", file, "--axis", "time")
    succeed("append", store, "t", file, "--axis", "-1")
    assert document("append", store, "t", file, "--axis", "1")["shape"] == [2, 3]
    assert "did you mean 'time'" in failure("append", store, "t", file, "--axis", "tme", code=4)
    assert "'--1'" in failure("append", store, "t", file, "--axis=--1", code=4)
