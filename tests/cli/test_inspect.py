"""Verbs that look: info, regions, read, explain, log, diff."""

import csv
import re

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.inspect.survey import PIPELINE_COLUMNS, REGION_COLUMNS
from intarsia.logical.explain import EXPLAIN_COLUMNS
from tests.cli.program import document, failure, run, succeed


def test_info_says_what_the_array_says_in_its_order(made):
    text = succeed("info", made[0], "temperature")
    lines = repr(intarsia.open(made[0], "temperature").info).split("\n")
    shown = [line.split(":")[0].strip() for line in text.split("\n")]
    assert shown[: len(lines)] == [line.split(":")[0].strip() for line in lines]
    assert "(50, 6, 8)" in text
    header = next(line for line in text.split("\n") if line.startswith("Codecs"))
    assert header.split() == list(PIPELINE_COLUMNS)


def test_info_for_machines(made, data):
    said = document("info", made[0])
    assert said["shape"] == [50, 6, 8]
    assert said["nbytes"] == data.nbytes
    assert {pipeline["codecs"] for pipeline in said["pipelines"]} == {"gzip-5", "zstd-0", "raw"}
    assert (
        sum(pipeline["nbytes_stored"] for pipeline in said["pipelines"]) == said["layers"][0]["nbytes_stored"]
    )


def test_regions(made):
    lines = succeed("regions", made[0], "temperature").strip().split("\n")
    always = [name for name in REGION_COLUMNS if name not in ("Packing", "View", "Shards")]
    assert lines[0].split() == always
    assert [line.split("]")[0] + "]" for line in lines[1:]] == [
        "[0:20, 0:6, 0:8]",
        "[20:40, 0:6, 0:8]",
        "[40:50, 0:6, 0:8]",
    ]
    limited = succeed("regions", made[0], "-n", "1")
    assert "and 2 more regions" in limited
    said = document("regions", made[0], "--limit", "2")
    assert said["count"] == 3
    assert [region["codecs"] for region in said["regions"]] == ["gzip-5", "zstd-0"]


def test_regions_and_explain_tell_of_packings_and_views(tmp_path):
    array = intarsia.create(tmp_path / "s", "a", shape=(8, 3), chunks=(4, 3), dtype="f8")
    array.add_region([(0, 4), (0, 3)], data=np.ones((4, 3)), codecs=["gzip"])
    array.group.create_array("m", shape=(3, 4), chunks=(3, 2), dtype="int16")[...] = 1
    view = intarsia.View.identity(2).transpose(1, 0).flip(0, length=4)
    array.add_region(
        [(4, 8), (0, 3)], member="m", view=view, packing={"stored": "int16", "scale": 0.5, "missing": -1}
    )
    lines = succeed("regions", tmp_path / "s", "a").strip().split("\n")
    assert lines[0].split() == [name for name in REGION_COLUMNS if name != "Shards"]
    assert "int16 * 0.5, missing -1" in lines[2]
    assert "[-1, 0]" in lines[2]
    plain, turned = document("regions", tmp_path / "s", "a")["regions"]
    assert (plain["packing"], plain["view"], plain["chunks"]) == (None, None, [4, 3])
    assert (turned["packing"], turned["view"], turned["chunks"]) == (
        "int16 * 0.5, missing -1",
        "[-1, 0]",
        [3, 2],
    )
    assert turned["problem"] == ""
    assert turned["nbytes_stored"] == array.regions[1].nbytes_stored
    text = succeed("explain", tmp_path / "s", "a", "5")
    assert "int16 * 0.5, missing -1; [-1, 0]" in text
    (part,) = document("explain", tmp_path / "s", "a", "5")["plan"]["parts"]
    assert (part["packing"], part["view"]) == ("int16 * 0.5, missing -1", "[-1, 0]")
    assert "int16 * 0.5" not in succeed("explain", tmp_path / "s", "a", "1")


def test_regions_of_an_empty_array(made):
    assert "no regions yet" in succeed("regions", made[0], "--snapshot", made[1][0])


@pytest.mark.parametrize(
    ("version", "length"),
    [((), 50), (("--branch", "main"), 50), (("--tag", "v1"), 20), (("--as-of", "2999-01-01"), 50)],
    ids=["nothing", "branch", "tag", "as-of"],
)
def test_every_way_to_say_a_version(made, version, length):
    assert document("info", made[0], *version)["shape"][0] == length
    assert len(document("read", made[0], "temperature", ":, 0, 0", *version)["values"]) == length


def test_snapshots_are_versions_too(made):
    lengths = [document("info", made[0], "--snapshot", snapshot)["shape"][0] for snapshot in made[1]]
    assert lengths == [0, 20, 40, 50]


def test_read_prints_what_numpy_prints(made, data):
    assert succeed("read", made[0], "temperature", "0, 0:2, ::4").strip() == str(data[0, 0:2, ::4])
    assert document("read", made[0], "temperature", "[0, 45], 1, 2")["values"] == data[[0, 45], 1, 2].tolist()


def test_read_saves_npy_and_csv(made, data, tmp_path):
    succeed("read", made[0], "temperature", "-o", tmp_path / "all.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "all.npy"), data)
    said = document("read", made[0], "temperature", "3", "-o", tmp_path / "day.csv")
    assert said["values"] is None
    rows = np.loadtxt(tmp_path / "day.csv", delimiter=",", dtype="f4")
    np.testing.assert_array_equal(rows, data[3])


def test_read_values_that_json_has_no_word_for(tmp_path):
    array = intarsia.create(tmp_path / "s", "a", shape=(0,), chunks=(4,), dtype="float64")
    array.append([1.5, np.nan, np.inf])
    assert document("read", tmp_path / "s", "a")["values"] == [1.5, "nan", "inf"]


def test_a_null_is_no_number(tmp_path):
    array = intarsia.create(tmp_path / "s", "a", shape=(0,), chunks=(4,), dtype="optional[int32]")
    array.append([1, None, 3])
    assert succeed("read", tmp_path / "s").strip() == "[1 -- 3]"
    assert document("read", tmp_path / "s")["values"] == [1, None, 3]
    succeed("read", tmp_path / "s", "-o", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == '1\n""\n3\n'
    assert "neither nulls nor" in failure("read", tmp_path / "s", "-o", tmp_path / "a.npy", code=2)
    times = intarsia.create(tmp_path / "t", "a", shape=(0,), chunks=(4,), dtype="optional[float64]")
    times.append([1.5, None, np.nan])
    assert document("read", tmp_path / "t")["values"] == [1.5, None, "nan"]


def test_times_are_saved_as_people_write_them(tmp_path):
    for unit in ("ns", "s"):
        times = np.array(["2020-01-01T12:00", "NaT"], f"M8[{unit}]")
        array = intarsia.create(tmp_path / unit, "a", shape=(0,), chunks=(4,), dtype=times.dtype)
        array.append(times)
        words = times.astype(str).tolist()
        assert document("read", tmp_path / unit)["values"] == words
        succeed("read", tmp_path / unit, "-o", tmp_path / "a.csv")
        assert (tmp_path / "a.csv").read_text().split() == words


def test_records_and_nested_nulls_are_read(tmp_path):
    record = np.dtype([("lat", "f4"), ("n", "i2")])
    fields = {"fields": [["lat", "float32"], ["n", "int16"]]}
    optional = {"name": "optional", "configuration": {"name": "struct", "configuration": fields}}
    nested = "optional[optional[int8]]"
    cases = {
        "records": (record, np.array([(1.5, 2), (np.nan, 3)], record), ["(1.5, 2)", "(nan, 3)"]),
        "nulls": (optional, [(1.5, 2), None], ["(1.5, 2)", None]),
        "nested": (nested, [intarsia.nullable.Some(1), intarsia.nullable.NULL], [1, None]),
    }
    for name, (dtype, values, expected) in cases.items():
        array = intarsia.create(tmp_path, name, shape=(2,), chunks=(2,), dtype=dtype)
        array.add_region([(0, 2)], data=values)
        assert document("read", tmp_path, name)["values"] == expected
        assert ("--" in succeed("read", tmp_path, name)) == (None in expected)
        succeed("read", tmp_path, name, "-o", tmp_path / f"{name}.csv")
    succeed("report", tmp_path, "nulls", "-o", tmp_path / "page.html")  # with a picture of the values


def test_texts_are_quoted_in_csv_and_refused_in_npy(tmp_path):
    texts = ["plain", "a, b", 'say "no"', "two\nlines"]
    array = intarsia.create(tmp_path / "s", "a", shape=(0,), chunks=(4,), dtype="string")
    array.append(np.array(texts, np.dtypes.StringDType()))
    succeed("read", tmp_path / "s", "-o", tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as stream:
        assert [row[0] for row in csv.reader(stream)] == texts
    assert "write .csv" in failure("read", tmp_path / "s", "-o", tmp_path / "a.npy", code=2)
    assert not (tmp_path / "a.npy").exists()


def test_an_empty_repository_is_called_one(tmp_path):
    intarsia.open_repository(tmp_path / "empty", create=True)
    for verb in ("ls", "info", "read", "log", "verify", "report"):
        said = run(verb, tmp_path / "empty")
        assert said.code == 3
        assert re.search("nothing has been|no array|no logical array", said.err), said
        assert "IcechunkStore" not in said.err


def test_read_refuses_what_it_cannot_do(made, tmp_path):
    assert "selection" in failure("read", made[0], "temperature", "1:2:3:4", code=2)
    assert ".npy or .csv" in failure("read", made[0], "temperature", "-o", tmp_path / "x.txt", code=2)
    assert "two dimensions" in failure("read", made[0], "temperature", "-o", tmp_path / "x.csv", code=2)
    assert "directory" in failure("read", made[0], "temperature", "-o", tmp_path / "no" / "x.npy", code=3)
    assert "did you mean 'temperature'" in failure("read", made[0], "temprature", "0", code=3)
    failure("read", made[0], "temperature", "99, 0, 0", code=4)
    failure("read", made[0], "temperature", "0, 0, 0, 0", code=4)
    assert list(tmp_path.iterdir()) == []


def test_explain(made):
    lines = succeed("explain", made[0], "temperature", "15:25, 0, 0").strip().split("\n")
    assert lines[0].startswith("reads (10,), 40 B, from 2 regions of 2 members: 2 chunks")
    assert lines[2].split() == list(EXPLAIN_COLUMNS)
    said = document("explain", made[0], "temperature", "[1, 45], 0, 0")
    assert said["plan"]["members"] == 2


def test_log_tells_what_each_commit_did(made):
    lines = succeed("log", made[0], "temperature").strip().split("\n")
    assert [line.split()[0] for line in lines[1:]] == list(reversed(made[1]))
    assert "added [40:50, 0:6, 0:8] (raw)" in lines[1]
    assert "created" in lines[-1]
    said = document("log", made[0], "--limit", "2")
    assert [commit["message"] for commit in said["commits"]] == ["with raw", "with zstd"]
    assert [commit["message"] for commit in document("log", made[0], "--tag", "v1")["commits"]] == [
        "with gzip",
        "create",
    ]


def test_diff(made):
    text = succeed("diff", made[0], "temperature", "v1")
    assert "temperature: shape (20, 6, 8) to (50, 6, 8); " in text
    assert "[20:40, 0:6, 0:8]" in text
    said = document("diff", made[0], "temperature", made[1][0], "v1")
    assert [region["kind"] for region in said["change"]["regions"]] == ["added"]
    assert (
        succeed("diff", made[0], "temperature", "main", "--branch", "main").strip()
        == "temperature: no difference"
    )


def test_diff_refuses_what_it_cannot_do(made):
    assert "no version 'v9'" in failure("diff", made[0], "temperature", "v9", code=3)
    assert "once" in failure("diff", made[0], "temperature", "v1", "main", "--tag", "v1", code=2)
    failure("diff", made[0], "nothing", "v1", code=3)


def test_plain_stores_have_no_history(plain):
    assert "no history" in failure("log", plain, code=2)
    assert "no versions" in failure("diff", plain, "temperature", "a", code=2)
    assert "only an Icechunk repository takes" in failure("info", plain, "--tag", "v1", code=2)
    assert document("info", plain)["layers"][0]["regions"] == 2


def test_versions_that_exclude_one_another_are_refused(made):
    assert "one of branch" in failure("info", made[0], "--tag", "v1", "--branch", "main", code=2)


def test_several_arrays_have_to_be_told_apart(tmp_path):
    for name in ("a", "b/c"):
        intarsia.create(tmp_path / "s", name, shape=(4,), chunks=(2,), dtype="f4")
    assert "b/c" in failure("info", tmp_path / "s", code=2)
    assert document("info", tmp_path / "s", "b/c")["path"] == "b/c"


def test_a_zip_file_can_be_looked_at(plain, tmp_path):
    import shutil

    shutil.make_archive(tmp_path / "packed", "zip", plain)
    assert document("info", tmp_path / "packed.zip")["layers"][0]["regions"] == 2
    before = (tmp_path / "packed.zip").read_bytes()
    failure("recode", tmp_path / "packed.zip", "-c", "gzip", code=4)
    assert (tmp_path / "packed.zip").read_bytes() == before


def test_output_for_a_pipe_has_whole_lines_and_no_colours(made):
    out = run("regions", made[0], "temperature").out
    assert "\x1b" not in out
    assert all(len(line.split()) >= 7 for line in out.strip().split("\n"))


def test_a_time_that_is_none_is_a_matter_of_usage(made):
    assert "'yesterday' is not a point in time" in failure("info", made[0], "--as-of", "yesterday", code=2)


def test_info_shows_a_plain_array_and_what_can_be_done_with_it(tmp_path):
    zarr.create_array(tmp_path / "plain.zarr", shape=(8,), chunks=(2,), shards=(4,), dtype="i2")
    said = succeed("info", tmp_path / "plain.zarr")
    assert all(word in said for word in ("plain Zarr", "(8,)", "Int16", "(4,)", "convert", "adopt", "reader"))
    document_of = document("info", tmp_path / "plain.zarr")
    assert (document_of["shape"], document_of["chunks"]) == ([8], [2])


def test_python_shows_the_same_tables(made):
    array = intarsia.open(made[0], "temperature")
    assert repr(array.info) == succeed("info", made[0], "temperature").strip()
    assert repr(array.regions) == succeed("regions", made[0], "temperature").strip()
    some = succeed("regions", made[0], "temperature").split("\n")
    assert [line.split()[-1] for line in repr(array.regions[1:]).split("\n")[1:]] == [
        line.split()[-1] for line in some[2:4]
    ]
