"""Views over HTTP: zarr, TensorStore and zarrita read whole logical arrays there; damage is an error."""

import asyncio
import http.client
import json
import subprocess
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import numpy as np
import pytest
import tensorstore
import xarray as xr
import zarr
import zarrista
from hypothesis import given, settings
from obstore.store import HTTPStore
from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec
from zarr.storage import ObjectStore

import intarsia
from intarsia.errors import install_command
from tests.inspect.browser import Browser
from tests.inspect.zarrita import READ, site
from tests.interop.datasets import stored_in_parts, weather
from tests.logical import strategies


def made(store, path="t", dtype="f4"):
    """Two encodings, a hole, and a partial last chunk; and what it reads as."""
    values = np.random.default_rng(0).integers(1, 99, (11, 6)).astype(dtype)
    values[4:6, 4:] = 0
    array = intarsia.create(
        store, path, shape=(11, 6), chunks=(2, 4), dtype=dtype, dimension_names=["y", "x"]
    )
    array.add_region([(0, 4), (0, 6)], data=values[:4], codecs=["gzip"])
    array.add_region([(4, 6), (0, 4)], data=values[4:6, :4], codecs=[])
    array.add_region([(6, 11), (0, 6)], data=values[6:], codecs=["zstd"], chunks=(3, 6))
    return array, values


def by_zarr(url):
    """zarr's store for an address."""
    patience = {"max_retries": 0}
    return ObjectStore(HTTPStore.from_url(url, client_options={"allow_http": True}, retry_config=patience))


def by_tensorstore(url):
    spec = {"driver": "zarr3", "kvstore": f"{url}/", "context": {"http_request_retries": {"max_retries": 1}}}
    return tensorstore.open(spec).result()


def ask(url, method="GET", **headers):
    """Status, headers and body of an answer."""
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.headers, answer.read()


@pytest.mark.parametrize("codecs", [None, [], ["gzip"]], ids=["zstd", "raw", "gzip"])
def test_zarr_and_tensorstore_read_the_whole_array(codecs):
    array, values = made({})
    with intarsia.serve(array, codecs=codecs, port=0) as server:
        seen = zarr.open_array(by_zarr(server.url), mode="r")
        np.testing.assert_array_equal(seen[...], values)
        np.testing.assert_array_equal(seen[3:8, 5], values[3:8, 5])
        theirs = by_tensorstore(server.url)
        assert theirs.domain.labels == ("y", "x")
        np.testing.assert_array_equal(theirs.read().result(), values)
        np.testing.assert_array_equal(theirs[3:8, 5].read().result(), values[3:8, 5])


def test_zarrs_reads_the_whole_array():
    array, values = made({})

    async def read(url):
        opened = await zarrista.AsyncArray.open(
            HTTPStore.from_url(url, client_options={"allow_http": True}), "/t"
        )
        return np.asarray(await opened[...])

    with intarsia.serve(array.store, port=0) as server:
        np.testing.assert_array_equal(asyncio.run(read(server.url)), values)


def test_readers_of_parts_of_shards(tmp_path):
    """obstore insists on knowing how large the whole is; TensorStore asks for the end of a shard first."""
    array, values = made(tmp_path)
    zarr.create_array(tmp_path, name="plain", shape=(8,), chunks=(2,), shards=(8,), dtype="i4")[:] = range(8)
    shards = [ShardingCodec(chunk_shape=(1, 2), codecs=[BytesCodec(), ZstdCodec()])]
    with intarsia.serve(array, codecs=shards, port=0) as server:
        np.testing.assert_array_equal(zarr.open_array(by_zarr(server.url), mode="r")[3:8, 1], values[3:8, 1])
        np.testing.assert_array_equal(by_tensorstore(server.url)[3:8, 1].read().result(), values[3:8, 1])
    with intarsia.serve(tmp_path, "plain", port=0) as server:
        assert zarr.open_array(by_zarr(server.url), mode="r")[3:5].tolist() == [3, 4]


@pytest.mark.parametrize("dtype", ["bool", "i1", "u2", "i8", "f2", "f8", "c8", "c16"])
def test_tensorstore_reads_every_data_type(dtype):
    array, values = made({}, dtype=dtype)
    with intarsia.serve(array, port=0) as server:
        np.testing.assert_array_equal(by_tensorstore(server.url).read().result(), values)


@settings(max_examples=settings().max_examples // 4)  # each starts a server
@given(strategies.arrays())
def test_random_layouts_over_http(case):
    array, model = case
    with intarsia.serve(array, port=0) as server:
        np.testing.assert_array_equal(zarr.open_array(by_zarr(server.url), mode="r")[...], model)
        np.testing.assert_array_equal(by_tensorstore(server.url).read().result(), model)


def test_readers_that_cannot_list_find_everything_in_the_metadata_of_the_root():
    repo = intarsia.open_repository("memory://", create=True)
    stored_in_parts(weather(), repo, "deep/weather")
    with intarsia.serve(repo, port=0) as server:
        group = zarr.open_group(by_zarr(server.url), mode="r")
        found = dict(group.members(max_depth=None))
        assert sorted(found) == ["deep", "deep/weather"] + [
            f"deep/weather/{name}" for name in ("lat", "lon", "n", "t", "time")
        ]
        with xr.open_zarr(by_zarr(server.url), group="deep/weather") as seen:
            xr.testing.assert_equal(seen.load(), weather())


def test_a_path_is_the_root_of_the_address_and_nothing_else_is_served(tmp_path):
    array, values = made(tmp_path, "a/t")
    made(tmp_path, "secret")
    (tmp_path / "a" / "notes.txt").write_text("not for others")
    member = array.regions[0].name
    with intarsia.serve(tmp_path, "a", port=0) as server:
        np.testing.assert_array_equal(by_tensorstore(f"{server.url}/t").read().result(), values)
        for key in (
            "secret/zarr.json",
            "../secret/zarr.json",
            "..%2fsecret/zarr.json",
            "notes.txt",
            f"t/{member}/zarr.json",
            f"t/{member}/c/0/0",
            "a/t/zarr.json",
            "t/c/2/1",  # a hole
            "t/c/6/0",
            "t/c/00/0",
        ):
            assert ask(f"{server.url}/{key}")[0] == 404, key
            assert ask(f"{server.url}/{key}", "HEAD")[0] == 404, key
        assert b"m-" not in ask(f"{server.url}/zarr.json")[2]


def test_parts_sizes_and_other_methods():
    array, _ = made({})
    with intarsia.serve(array, port=0) as server:
        url = f"{server.url}/c/0/0"
        status, _, whole = ask(url)
        assert status == 200
        assert ask(url, "HEAD")[1]["Content-Length"] == str(len(whole))
        for asked, expected in (("2-5", whole[2:6]), ("3-", whole[3:]), ("-4", whole[-4:])):
            status, headers, part = ask(url, Range=f"bytes={asked}")
            assert (status, part) == (206, expected)
            first = whole.index(expected)
            last = first + len(expected) - 1
            assert headers["Content-Range"] == f"bytes {first}-{last}/{len(whole)}"
        for method in ("PUT", "POST", "DELETE"):
            assert ask(url, method)[0] == 405
        assert ask(f"{server.url}/zarr.json")[1]["Content-Type"] == "application/json"


def allowed(server, origin, **headers):
    """What a browser is told about a page of another site."""
    return ask(f"{server.url}/zarr.json", Origin=origin, **headers)[1]["Access-Control-Allow-Origin"]


def test_pages_of_other_sites_may_read_only_if_told_so():
    array, _ = made({})
    with intarsia.serve(array, port=0) as server:
        assert allowed(server, "http://example.org") is None
    with intarsia.serve(array, cors_origins=["http://example.org"], port=0) as server:
        assert allowed(server, "http://example.org") == "http://example.org"
        assert allowed(server, "http://example.com") is None
    with intarsia.serve(array, cors_origins="*", port=0) as server:
        assert allowed(server, "http://example.org") == "*"


def test_a_name_that_was_made_to_point_here_is_refused():
    """Otherwise a page could have its own site's name point to this machine, and be of the same origin."""
    array, _ = made({})
    with intarsia.serve(array, port=0) as server:
        url = f"{server.url}/zarr.json"
        assert ask(url, Host="attacker.example:8000")[0] == 400
        for host in ("localhost", "localhost:8000", "127.0.0.1", "[::1]:8000"):
            assert ask(url, Host=host)[0] == 200, host
    with intarsia.serve(array, cors_origins=["*"], port=0) as server:
        assert ask(f"{server.url}/zarr.json", Host="my.proxy")[0] == 200
    with intarsia.serve(array, host="0.0.0.0", port=0) as server:
        port = urlsplit(server.url).port
        assert ask(f"http://127.0.0.1:{port}/zarr.json", Host="my.machine")[0] == 200


def expect_errors(url, key):
    """Nobody takes what cannot be read for a chunk that was never written."""
    for method, headers in (("GET", {}), ("HEAD", {}), ("GET", {"Range": "bytes=0-3"})):
        status, answered, body = ask(f"{url}/{key}", method, Origin="http://example.org", **headers)
        assert status == 500
        assert answered["Access-Control-Allow-Origin"] == "*"
        assert b"/" not in body  # no path of the server's machine
    assert ask(f"{url}/{key}", Range="bytes=-4")[0] == 500
    with pytest.raises(Exception, match=r"500|Internal"):
        zarr.open_array(by_zarr(url), mode="r")[...]
    with pytest.raises(ValueError, match=r"500|INTERNAL|UNAVAILABLE"):
        by_tensorstore(url).read().result()


def test_a_damaged_chunk_is_an_error(tmp_path, caplog):
    array, _ = made(tmp_path)
    file = tmp_path / "t" / array.regions[0].name / "c" / "0" / "0"
    file.write_bytes(file.read_bytes()[:-9])
    with intarsia.serve(array, cors_origins=["*"], port=0) as server:
        expect_errors(server.url, "c/0/0")
        assert ask(f"{server.url}/c/3/0")[0] == 200
    assert "cannot read region [0:4, 0:6]" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_chunk_file_that_is_gone_from_a_repository_is_an_error(tmp_path):
    repo = intarsia.open_repository(tmp_path, create=True)
    with intarsia.transaction(repo, message="x") as tx:
        array = tx.create("t", shape=(0, 3000), chunks=(2, 3000), dtype="f4")
        array.append(np.random.default_rng(0).random((2, 3000), "f4"), codecs=["gzip"])
    for file in (tmp_path / "chunks").iterdir():
        file.unlink()
    with intarsia.serve(tmp_path, "t", cors_origins=["*"], port=0) as server:
        expect_errors(server.url, "c/0/0")


def test_a_member_that_is_gone_is_an_error(tmp_path):
    array, _ = made(tmp_path)
    (tmp_path / "t" / array.regions[0].name / "zarr.json").unlink()
    with intarsia.serve(tmp_path, "t", cors_origins=["*"], port=0) as server:
        expect_errors(server.url, "c/0/0")


def test_metadata_that_is_damaged_later_is_an_error(tmp_path):
    made(tmp_path)
    with intarsia.serve(tmp_path, port=0) as server:
        (tmp_path / "t" / "zarr.json").write_text("{")
        for key in ("t/zarr.json", "t/c/0/0", "zarr.json"):
            assert ask(f"{server.url}/{key}")[0] == 500


def test_what_cannot_be_shown_is_refused_before_anything_is_served(tmp_path):
    array, _ = made(tmp_path)
    with pytest.raises(intarsia.errors.ShapeError):
        intarsia.serve(array, chunks=(1,))
    document = json.loads((tmp_path / "t" / "zarr.json").read_text())
    document["attributes"]["intarsia"]["shape"] = None
    (tmp_path / "t" / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(intarsia.errors.ManifestError):
        intarsia.serve(tmp_path)
    with pytest.raises(intarsia.errors.MissingArrayError):
        intarsia.serve(tmp_path, "nothing")


def test_what_is_appended_to_files_shows_and_a_repository_stays(tmp_path):
    array, values = made(tmp_path / "files")
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    with intarsia.transaction(repo, message="x") as tx:
        made(tx.store)
    with intarsia.serve(tmp_path / "files", "t") as changing, intarsia.serve(repo, "t") as staying:
        assert by_tensorstore(changing.url).shape == by_tensorstore(staying.url).shape == (11, 6)
        array.append(values, codecs=["gzip"])
        intarsia.append(repo, "t", values)
        np.testing.assert_array_equal(by_tensorstore(changing.url)[11:].read().result(), values)
        assert by_tensorstore(staying.url).shape == (11, 6)


def test_a_server_ends_with_its_block_and_a_port_that_is_taken_is_said():
    array, _ = made({})
    with intarsia.serve(array, port=0) as server:
        place = urlsplit(server.url)
        with pytest.raises(OSError, match=f"cannot listen at port {place.port} of 127.0.0.1"):
            intarsia.serve(array, port=place.port)
        with pytest.raises(OSError, match="cannot listen at port 99999 of 127"):
            intarsia.serve(array, port=99999)
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(place.hostname, place.port).connect()


def test_zarrita_reads_the_whole_array_in_a_browser(tmp_path):
    """From a page of another origin, as on any web site."""
    array, values = made({})
    with site(tmp_path) as address, intarsia.serve(array.store, cors_origins=[address]) as server:
        browser = Browser()
        try:
            browser.open(address)
            read = browser.run(READ % json.dumps(f"{server.url}/t/"))
        finally:
            browser.close()
    np.testing.assert_array_equal(np.array(read["data"], dtype="f4").reshape(read["shape"]), values)


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    program = """
import sys
sys.modules["zarr_http_server"] = None
import intarsia
array = intarsia.create({}, "a", shape=(2,), chunks=(2,), dtype="u1")
for call in (intarsia.serve, intarsia.serve):
    try:
        call(array)
    except intarsia.errors.MissingExtraError as error:
        print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == f"zarr_http_server is not installed: {install_command('serve')}\n" * 2
