"""What the page asks the server: bounded answers, made harmless, about what is served and nothing else."""

import json
import urllib.parse
import urllib.request

import numpy as np
import pytest

import intarsia
from intarsia.inspect import sample, viewer
from tests.inspect import stores
from tests.inspect.samples import HOSTILE
from tests.inspect.test_server import ask


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("answers")


@pytest.fixture(scope="module")
def repo(folder):
    return stores.repository(folder)


@pytest.fixture(scope="module")
def versions(repo):
    with intarsia.serve(repo, port=0) as server:
        yield server.url


@pytest.fixture(scope="module")
def kinds(folder):
    with intarsia.serve(stores.everything(folder), port=0) as server:
        yield server.url


def told(url, name, **asked):
    """Status and document of an answer."""
    status, headers, body = ask(f"{url}/__view__/{name}?{urllib.parse.urlencode(asked)}")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    return status, json.loads(body) if body else None


def good(url, name, **asked):
    status, document = told(url, name, **asked)
    assert status == 200, document
    return document


def values(url, **asked):
    """Values, and what each is."""
    status, headers, body = ask(f"{url}/__view__/values?{urllib.parse.urlencode(asked)}")
    assert status == 200, body
    shape = tuple(map(int, filter(None, headers["X-Shape"].split(","))))
    dtype = np.dtype(headers["X-Type"])
    split = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(body[:split], dtype).reshape(shape), np.frombuffer(body[split:], "u1").reshape(shape)


def test_all_arrays_are_listed_and_no_member_and_no_ledger(kinds, versions):
    listed = {entry["path"]: entry for entry in good(kinds, "arrays")["arrays"]}
    assert {"scalar", "line", "cube", "plain", "damaged", "large"} <= listed.keys()
    assert not [path for path in listed if "m-" in path or "intarsia-sources" in path]
    assert listed["nullable"]["dtype"] == "optional[float64]"
    assert listed["plain"]["logical"] is False
    assert sorted(e["path"] for e in good(versions, "arrays")["arrays"]) == [
        "lat",
        "lon",
        "temperature",
        "time",
    ]


def test_a_group_is_the_root_of_all_paths(tmp_path):
    intarsia.create(tmp_path, "a/b/t", shape=(4,), chunks=(2,), dtype="f4")
    intarsia.create(tmp_path, "secret", shape=(4,), chunks=(2,), dtype="f4")
    with intarsia.serve(tmp_path, "a", port=0) as server:
        assert [entry["path"] for entry in good(server.url, "arrays")["arrays"]] == ["b/t"]
        assert good(server.url, "array", path="b/t")["shape"] == [4]
        for path in ("secret", "../secret", "b/../../secret", "/secret", "..", "b", "a/b/t", "b\\t", "b/t\0"):
            assert told(server.url, "array", path=path)[0] == 404, path
        for path in ("x" * 300, "/".join(["y" * 200] * 30)):  # more than a file system can name
            assert told(server.url, "array", path=path)[0] == 404
    with intarsia.serve(tmp_path, "a/b/t", port=0) as server:
        assert [entry["path"] for entry in good(server.url, "arrays")["arrays"]] == [""]
        assert good(server.url, "array", path="")["shape"] == [4]


def test_an_array_is_described_with_its_axes(versions):
    about = good(versions, "array", path="temperature")
    assert (about["shape"], about["units"], about["name"]) == ([20, 40, 60], "K", "Air temperature")
    assert [axis["name"] for axis in about["axes"]] == ["time", "lat", "lon"]
    assert [axis["units"] for axis in about["axes"]] == ["", "degrees_north", "degrees_east"]
    labels = good(versions, "labels", path="temperature", axis=0, places="3,0,99")["labels"]
    assert labels == {"3": "2020-01-04", "0": "2020-01-01"}
    assert told(versions, "labels", path="temperature", axis=3, places="0")[0] == 400
    assert told(versions, "labels", path="temperature", axis=0, places=",".join(["0"] * 300))[0] == 400


def test_values_are_strided_and_cut_at_the_end(versions):
    model = stores.weather(range(20))
    seen, status = values(versions, path="temperature", take="7,0:256:3,50:256:4")
    np.testing.assert_array_equal(seen, model[7, ::3, 50::4])
    assert not status.any()
    assert values(versions, path="temperature", take="7,0:5:1,60:5:1")[0].shape == (5, 0)


@pytest.mark.parametrize(
    "take", ["", "7", "7,0,0,0", "7,0:10:0,0", "7,-1:4:1,0", "99,0,0", "x,0,0", "7,0:1,0"]
)
def test_what_cannot_be_taken_is_refused(versions, take):
    assert told(versions, "values", path="temperature", take=take)[0] == 400


def test_an_answer_has_a_limit(kinds):
    status, document = told(kinds, "values", path="large", take="0:1000:1,0:1000:1")
    assert status == 400
    assert f"{sample.MAX_SAMPLES:,}" in document["error"]
    seen, _ = values(kinds, path="large", take="0:256:391,0:256:391")
    assert seen.shape == (256, 256)
    assert seen[0, 0] == 200


def test_earlier_versions_and_no_others(repo, versions):
    history = good(versions, "versions", path="temperature")["versions"]
    assert [entry["message"] for entry in history] == [
        "an empty array",
        "ten days",
        "ten more",
        "a corner recoded",
    ]
    assert history[-1]["boxes"] == [["recoded", [[10, 20], [20, 40], [30, 60]]]]
    assert "gzip" in history[-1]["lines"][0]
    assert good(versions, "array", path="temperature", at=history[1]["id"])["shape"] == [10, 40, 60]
    assert told(versions, "values", path="temperature", at=history[1]["id"], take="12,0,0")[0] == 400
    other = repo.lookup_branch("main")
    with intarsia.serve(repo, snapshot_id=history[1]["id"], port=0) as server:
        assert len(good(server.url, "versions", path="temperature")["versions"]) == 2
        assert told(server.url, "array", path="temperature", at=other)[0] == 404
        assert told(server.url, "array", path="temperature", at="nonsense")[0] == 404


def test_stores_without_versions_have_none(kinds):
    assert good(kinds, "versions", path="line") == {"versions": []}
    assert told(kinds, "array", path="line", at="A" * 20)[0] == 404


def test_a_place_tells_value_region_and_chunk(versions):
    place = good(versions, "place", path="temperature", index="12,30,40")
    assert float(place["value"]) == pytest.approx(stores.weather([12])[0, 30, 40])
    assert place["region"]["bounds"] == [[10, 20], [20, 40], [30, 60]]
    assert place["codecs"].startswith("gzip")
    assert place["chunk"]["index"] == [0, 0, 0]
    assert good(versions, "place", path="lat", index="3")["region"] is None
    for index in ("", "1,2", "20,0,0", "-1,0,0", "a,b,c"):
        assert told(versions, "place", path="temperature", index=index)[0] == 400, index


def test_a_place_in_a_file_tells_which_file(folder):
    place, file = stores.with_a_file(folder)
    repo = intarsia.archives.authorize(intarsia.open_repository(place))
    with intarsia.serve(repo, port=0) as server:
        chunk = good(server.url, "place", path="rain", index="2,7")["chunk"]
        assert chunk["virtual"]
        assert chunk["file"] == file.as_uri()
        assert chunk["offset"] > 0
        assert "intarsia-sources/document" not in [e["path"] for e in good(server.url, "arrays")["arrays"]]


def test_places_of_every_kind_have_words(kinds):
    for path, index, value in (
        ("scalar", "", "42.5"),
        ("days", "1,2", "2020-01-09"),
        ("words", "0,1", "ash"),
        ("flags", "0,0", "True"),
        ("nullable", "0,0", "null"),
        ("holed", "15,15", "0.0 (fill value)"),
        ("plain", "1,2", "32"),
    ):
        assert good(kinds, "place", path=path, index=index)["value"] == value, path


def test_packings_are_told(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(4,), chunks=(2,), dtype="f4")
    array.add_region([(0, 4)], data=[0, 1, 2, 3], packing={"stored": "uint8", "scale": 0.5})
    with intarsia.serve(tmp_path, port=0) as server:
        assert good(server.url, "place", path="a", index="3")["region"]["packing"] == "uint8 * 0.5"


def test_damage_is_told_without_paths_of_the_server(kinds):
    place = good(kinds, "place", path="damaged", index="5,25")
    assert place["value"] is None
    assert "see the log" in place["error"]
    assert place["chunk"]["index"] == [0, 1]
    _, status = values(kinds, path="damaged", take="0:40:1,0:60:1")
    expected = np.zeros((40, 60), "u1")
    expected[:20, 20:40] = sample.DAMAGED
    np.testing.assert_array_equal(status, expected)


def test_regions_that_a_plane_cuts(versions):
    asked = {"path": "temperature", "axes": "1,2"}
    assert len(good(versions, "regions", **asked, index="3,0,0")["rectangles"]) == 1
    later = good(versions, "regions", **asked, index="13,0,0")
    names = {kind["place"]: kind["label"] for kind in later["pipelines"]}
    boxes = [(tuple(r[:4]), names[r[4]]) for r in later["rectangles"]]
    assert ((20, 30, 40, 60), "gzip-5") in boxes
    assert sum((r[2] - r[0]) * (r[3] - r[1]) for r in later["rectangles"]) == 40 * 60
    along = good(versions, "regions", path="temperature", axes="0", index="0,30,40")["rectangles"]
    assert sorted(r[:2] for r in along) == [[0, 10], [10, 20]]
    assert good(versions, "regions", path="lat", axes="0", index="0")["rectangles"] == []
    for axes, index in (("1,1", "0,0,0"), ("5", "0,0,0"), ("1", "0")):
        assert told(versions, "regions", path="temperature", axes=axes, index=index)[0] == 400


def test_regions_of_a_layer(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(0, 4), chunks=(1, 4), dtype="u1")
    array.append(np.ones((6, 4), "u1"), codecs=["gzip"])
    array.add_replica(((2, 6), (0, 4)), chunks=(4, 1), codecs=["zstd"])
    with intarsia.serve(tmp_path, port=0) as server:
        asked = {"path": "a", "axes": "0,1", "index": "0,0"}
        for layer, box, label in ((0, [0, 0, 6, 4], "gzip-5"), (1, [2, 0, 6, 4], "zstd-0")):
            drawn = good(server.url, "regions", **asked, layer=layer)
            assert [r[:4] for r in drawn["rectangles"]] == [box]
            assert [kind["label"] for kind in drawn["pipelines"]] == [label]
        assert good(server.url, "regions", **asked, layer=2)["rectangles"] == []


def test_of_many_regions_the_largest_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(viewer, "MAX_RECTANGLES", 2)
    array = intarsia.create(tmp_path, "a", shape=(6, 4), chunks=(1, 4), dtype="u1")
    for bounds in ([(0, 1), (0, 4)], [(1, 4), (0, 4)], [(4, 6), (0, 4)]):
        array.add_region(bounds, data=np.ones((bounds[0][1] - bounds[0][0], 4), "u1"))
    with intarsia.serve(tmp_path, port=0) as server:
        told = good(server.url, "regions", path="a", axes="0,1", index="0,0")
    assert (told["left_out"], [r[0] for r in told["rectangles"]]) == (1, [1, 4])


def test_an_array_that_cannot_be_opened_does_not_hide_the_others(tmp_path):
    for name in "ab":
        intarsia.create(tmp_path, name, shape=(4,), chunks=(2,), dtype="f4")
    with intarsia.serve(tmp_path, port=0) as server:
        file = tmp_path / "a" / "zarr.json"
        document = json.loads(file.read_text())
        document["attributes"]["intarsia"]["shape"] = None
        file.write_text(json.dumps(document))
        first, second = good(server.url, "arrays")["arrays"]
        assert (first["path"], first["damaged"], second["path"], second["shape"]) == ("a", True, "b", [4])
        assert told(server.url, "array", path="a")[0] == 500


def test_hostile_texts_are_made_plain(kinds):
    about = good(kinds, "array", path="evil<script>alert(1)</script>")
    assert "\x1b" not in json.dumps(about, ensure_ascii=False)
    assert about["attributes"][0][0].startswith("</script>")
    assert HOSTILE not in about["axes"][0]["name"]


def test_plain_stores_are_shown_as_they_are_now(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(0, 2), chunks=(2, 2), dtype="u1")
    with intarsia.serve(tmp_path, port=0) as server:
        assert good(server.url, "array", path="a")["shape"] == [0, 2]
        array.append(np.ones((4, 2), "u1"))
        assert good(server.url, "array", path="a")["shape"] == [4, 2]
        assert values(server.url, path="a", take="0:9:1,0:9:1")[0].shape == (4, 2)


def test_only_the_page_itself_may_ask(versions):
    url = f"{versions}/__view__/arrays"
    assert ask(url, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert ask(url, **{"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert ask(url, Origin="http://example.org")[1]["Access-Control-Allow-Origin"] is None


def test_sites_that_may_read_may_ask_too(repo):
    with intarsia.serve(repo, cors_origins=["http://example.org"], port=0) as server:
        status, headers, _ = ask(
            f"{server.url}/__view__/arrays", Origin="http://example.org", **{"Sec-Fetch-Site": "cross-site"}
        )
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, "http://example.org")


def test_the_page_is_the_root_and_its_files_are_all_there_is(versions):
    status, headers, body = ask(f"{versions}/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert b"http" not in body
    for name in ("view.js", "view.css", "icon.svg"):
        assert ask(f"{versions}/__view__/{name}")[0] == 200
    for name in ("nothing.js", "..%2fhttp.py", "../http.py", "", "index.html/x"):
        assert ask(f"{versions}/__view__/{name}")[0] == 404, name


def test_zarr_stays_where_it_was(versions):
    assert ask(f"{versions}/zarr.json")[0] == 200
    assert ask(f"{versions}/temperature/c/0/0/0")[0] == 200
