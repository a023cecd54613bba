"""Verbs that keep data whole: verify, vacuum; and the report."""

import json

import numpy as np
import pytest
import zarr

import intarsia
from tests.cli.program import document, failure, run, succeed


def test_all_is_well(made):
    assert succeed("verify", made[0]).strip() == "1 array checked: no problems"
    said = document("verify", made[0], "temperature", "--no-data")
    assert said == said | {"problems": [], "data": False, "arrays": ["temperature"]}


def test_arrays_inside_others_are_checked_too(plain):
    intarsia.create(plain, "temperature/inside", shape=(0,), chunks=(2,), dtype="u1").append([1, 2])
    assert document("verify", plain)["arrays"] == ["temperature", "temperature/inside"]


def test_damage_is_listed_and_ends_with_1(plain):
    member = intarsia.open(plain, "temperature").manifest.members[0]
    chunks = sorted((plain / "temperature" / member / "c").rglob("*"))
    for chunk in [path for path in chunks if path.is_file()][:2]:
        chunk.write_bytes(b"garbage")
    assert document("verify", plain, "--no-data")["problems"] == []
    said = document("verify", plain, code=1)
    assert [problem["kind"] for problem in said["problems"]] == ["data", "data"]
    ran = run("verify", plain)
    assert ran.code == 1
    assert "2 problems" in ran.out
    assert member in ran.out


def test_a_manifest_that_cannot_be_read_is_a_problem_not_a_failure(plain):
    break_manifest(plain, lambda manifest: manifest | {"version": 99})
    said = document("verify", plain, code=1)
    assert [problem["kind"] for problem in said["problems"]] == ["manifest"]


def break_manifest(plain, change):
    file = plain / "temperature" / "zarr.json"
    document = json.loads(file.read_text())
    document["attributes"]["intarsia"] = change(document["attributes"]["intarsia"])
    file.write_text(json.dumps(document))


LEFT = "m-" + "0" * 32


def leave_something(group):
    z = group.create_array(LEFT, shape=(4,), dtype="f4")
    z[:] = np.ones(4)


def test_leftovers_are_listed_and_removed_from_a_plain_store(plain, data):
    leave_something(zarr.open_group(plain, path="temperature"))
    said = document("verify", plain)
    assert said["problems"] == []
    assert said["leftovers"] == [f"left over: temperature/{LEFT} (intarsia vacuum removes it)"]
    assert f"no problems\n{said['leftovers'][0]}\n" in succeed("verify", plain)
    assert document("vacuum", plain, "--dry-run")["removed"] == [f"temperature/{LEFT}"]
    assert "1 leftover removed" in succeed("vacuum", plain)
    assert document("vacuum", plain)["removed"] == []
    np.testing.assert_array_equal(intarsia.open(plain, "temperature")[...], data)


def test_leftovers_are_removed_from_a_repository_by_a_commit(store):
    repo = intarsia.open_repository(store)
    with intarsia.transaction(repo, message="forget something") as tx:
        leave_something(zarr.open_group(tx.store, path="temperature"))
    before = repo.lookup_branch("main")
    assert document("vacuum", store, "temperature")["removed"] == [f"temperature/{LEFT}"]
    assert repo.lookup_branch("main") != before
    assert "nothing is left over" in succeed("vacuum", store)


def test_vacuum_can_forget_old_versions_but_not_young_ones(store, plain):
    said = failure("vacuum", store, "--forget-before", "2999-01-01", code=4)
    assert "less than 24 hours ago" in said
    assert said.endswith("Give an earlier time\n")  # the command has no way to force it
    said = document("vacuum", store, "--forget-before", "2020-01-01")
    assert said["forgotten"] == 0
    failure("vacuum", plain, "--forget-before", "2020-01-01", code=2)
    failure("vacuum", store, "--forget-before", "2020-01-01", "--dry-run", code=2)
    assert "'soon' is not a point in time" in failure("vacuum", store, "--forget-before", "soon", code=2)


def test_a_report_is_one_file(made, tmp_path):
    said = document("report", made[0], "-o", tmp_path / "report.html", "--data")
    page = (tmp_path / "report.html").read_text()
    assert said["nbytes"] == len(page.encode())
    assert page.count('class="moment"') == 4
    assert "every stored chunk was read" in page
    assert "open it in a browser" in succeed(
        "report", made[0], "temperature", "-o", tmp_path / "b.html", "--versions", "2"
    )
    assert (tmp_path / "b.html").read_text().count('class="moment"') == 2
    assert "2 versions in between" in (tmp_path / "b.html").read_text()


def test_a_report_of_a_plain_store_and_of_a_damaged_one(plain, tmp_path):
    member = intarsia.open(plain, "temperature").manifest.members[0]
    (plain / "temperature" / member / "zarr.json").unlink()
    succeed("report", plain, "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "1 problem found" in page
    assert member in page


def test_a_report_refuses(made, plain, tmp_path):
    failure("report", made[0], "nothing", "-o", tmp_path / "x.html", code=3)
    failure("report", made[0], "-o", tmp_path / "no" / "x.html", code=3)
    failure("report", plain, "--tag", "v1", "-o", tmp_path / "x.html", code=2)
    assert not list(tmp_path.glob("*.html"))


def test_what_two_healthy_writers_leave_is_no_problem_anywhere(store, tmp_path):
    repo = intarsia.open_repository(store)
    noise = np.random.default_rng(0).random((64, 64), dtype="f4")
    with intarsia.transaction(repo, message="create") as tx:
        made = tx.create("noise", shape=noise.shape, chunks=noise.shape, dtype="f4")
        made.add_region([(0, n) for n in noise.shape], codecs=[])

    def lose():
        with intarsia.transaction(repo, message="slow") as tx:
            tx.open("noise")[...] = noise
            intarsia.write(repo, "noise", ..., -noise)

    with pytest.raises(intarsia.errors.ConcurrentUpdateError):
        lose()
    assert intarsia.verify(repo) == ()
    said = document("verify", store)
    assert said["problems"] == []
    (line,) = said["leftovers"]
    assert "that no version refers to (intarsia vacuum --forget-before TIME removes them)" in line
    assert "no problems" in succeed("verify", store)
    page = intarsia.write_report(store, file=tmp_path / "report.html").read_text()
    assert "No problems found" in page
