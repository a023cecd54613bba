"""Chunks in objects of real S3 servers, behind a proxy that counts requests, lies, fails and breaks off."""

import asyncio
import itertools
import random
import threading
from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr

import intarsia
from intarsia.engine.fetch import icechunk as icechunk_fetcher
from intarsia.engine.fetch.byte_ranges import Limits
from intarsia.errors import ReadError
from tests import http_files, http_proxy, servers
from tests.engine.fetch.virtual_arrays import CHUNK, expected, refer, repository

BUCKET = "origins"
CONTENT = np.random.default_rng(1).integers(0, 255, 40_000, dtype="u1").tobytes()
LATER = datetime(2100, 1, 1, tzinfo=UTC)
PREFIX = f"s3://{BUCKET}/data/"
names = itertools.count()


@pytest.fixture(scope="module", params=["moto", "seaweedfs"])
def server(request):
    running = request.getfixturevalue(f"{request.param}_server")
    running.client().create_bucket(Bucket=BUCKET)
    return running


@pytest.fixture
def proxy(server):
    with http_proxy.before(server.endpoint) as running:
        yield running


class Objects:
    """A few objects in the bucket, and a repository that may read them through the proxy."""

    def __init__(self, server, proxy, folder, *, secret=servers.SECRET):
        self.client = server.client()
        self.contents, self.checksums = {}, {}
        for k in range(3):
            self.put(
                f"{PREFIX}{next(names)} é%.nc".replace("%", "%25").replace(" ", "%20").replace("é", "%C3%A9"),
                k,
            )
        store = icechunk.s3_store(
            region="us-east-1",
            endpoint_url=proxy.endpoint,
            allow_http=True,
            s3_compatible=True,
            force_path_style=True,
        )
        keys = {"access_key_id": servers.KEY, "secret_access_key": secret}
        storage = icechunk.local_filesystem_storage(str(folder / "repository"))
        # Icechunk retries for minutes where nobody says otherwise.
        self.repo = repository(storage, {PREFIX: store}, options={PREFIX: keys})

    def put(self, url, k=0):
        from urllib.parse import unquote

        body = CONTENT[k:] + CONTENT[:k]
        key = unquote(url.removeprefix(f"s3://{BUCKET}/"))
        answer = self.client.put_object(Bucket=BUCKET, Key=key, Body=body)
        self.contents[url], self.checksums[url] = body, answer["ETag"].strip('"')

    def references(self, each=12, checksum=None, step=CHUNK):
        """So many chunks of each object, one behind the other."""
        return {
            n * each + i: (url, i * step, self.checksums[url] if checksum is None else checksum)
            for n, url in enumerate(self.contents)
            for i in range(each)
        }


@pytest.fixture
def objects(server, proxy, tmp_path):
    return Objects(server, proxy, tmp_path)


def reader(store, name="a"):
    return intarsia.reader(zarr.open_array(store, path=name, mode="r"))


def test_as_many_requests_as_objects(objects, proxy):
    references = objects.references()
    array = reader(refer(objects.repo, references))
    explained = intarsia.explain(array)
    assert {part.fetcher for part in explained.parts} == {"source objects, neighbours joined"}
    proxy.seen.clear()
    np.testing.assert_array_equal(array[...], expected(references, objects.contents, 36))
    assert len(proxy.gets(BUCKET)) == len(proxy.seen) == 3
    assert explained.requests == explained.ideal_requests == 3
    assert (
        explained.requested_bytes
        == explained.stored_bytes
        == 36 * CHUNK
        == sum(len(e.body) for e in proxy.seen)
    )
    assert "3 requests for 1.44 kB" in repr(explained)
    proxy.seen.clear()
    zarr.open_array(array.store, path="a", mode="r")[...]
    assert len(proxy.gets(BUCKET)) >= 36


@pytest.mark.parametrize("checksum", [None, LATER])
def test_gaps_are_read_where_they_are_small(objects, proxy, checksum):
    references = objects.references(checksum=checksum, step=CHUNK + 11)
    array = reader(refer(objects.repo, references))
    proxy.seen.clear()
    np.testing.assert_array_equal(array[...], expected(references, objects.contents, 36))
    assert len(proxy.gets(BUCKET)) == 3


def test_on_an_event_loop_and_in_threads(objects, proxy):
    references = objects.references()
    array = reader(refer(objects.repo, references))
    whole = expected(references, objects.contents, 36)

    async def read():
        return await asyncio.gather(*(array.read_async(slice(i, None)) for i in range(5)))

    for i, values in enumerate(asyncio.run(read())):
        np.testing.assert_array_equal(values, whole[i:])
    found = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: array[i:]})) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for i, values in found.items():
        np.testing.assert_array_equal(values, whole[i:])


def test_an_object_that_was_replaced_is_refused(objects):
    store = refer(objects.repo, objects.references())
    url = next(iter(objects.contents))
    objects.put(url, 5)
    array = reader(store)
    with pytest.raises(ReadError, match=r"checksum.*nc"):
        array[...]
    np.testing.assert_array_equal(
        array[-CHUNK:], expected(objects.references(), objects.contents, 36)[-CHUNK:]
    )


def test_an_object_that_is_replaced_between_two_requests_is_refused(objects, proxy, monkeypatch):
    """The checksum is compared with every answer: no two versions are ever mixed."""
    monkeypatch.setattr(icechunk_fetcher, "REMOTE", Limits(0, 10, 0, 1 << 20))
    url = next(iter(objects.contents))
    store = refer(objects.repo, {k: (url, 2 * k * CHUNK, objects.checksums[url]) for k in range(30)})
    array = reader(store).with_config(window_bytes=1)  # a few requests at a time
    once = threading.Lock()

    def replace(exchange):
        if exchange.range and once.acquire(blocking=False):
            objects.put(url, 5)

    proxy.damage = replace
    with pytest.raises(ReadError, match=r"checksum.*nc"):
        array[...]


def test_a_server_that_ignores_if_match_is_not_believed(objects, proxy):
    """Its answer says which object it is."""
    store = refer(objects.repo, objects.references())
    for url in objects.contents:
        objects.checksums[url] = "0" * 32
    wrong = refer(objects.repo, objects.references(), name="b")
    np.testing.assert_array_equal(reader(store)[:CHUNK], np.frombuffer(CONTENT, "u1", CHUNK))

    def forget(exchange):
        if exchange.status == 412 and "aws-sdk" not in exchange.headers.get("user-agent", ""):
            exchange.status, exchange.body = 206, CONTENT[: 12 * CHUNK]
            exchange.answer = {
                "content-range": f"bytes 0-{12 * CHUNK - 1}/40000",
                "etag": '"1111"',
                "last-modified": "Tue, 02 Jan 2024 03:04:05 GMT",
            }

    proxy.damage = forget
    with pytest.raises(ReadError, match=r"checksum.*nc"):
        reader(wrong, "b")[: 12 * CHUNK]


def test_an_object_that_is_gone_is_an_error(objects):
    store = refer(objects.repo, objects.references())
    for listed in objects.client.list_objects_v2(Bucket=BUCKET)["Contents"]:
        objects.client.delete_object(Bucket=BUCKET, Key=listed["Key"])
    with pytest.raises(ReadError, match="nc"):
        reader(store)[...]


def test_keys_that_do_not_fit_are_an_error(server, proxy, tmp_path):
    if server.name == "moto":
        pytest.skip("moto takes any keys")
    objects = Objects(server, proxy, tmp_path, secret="another")
    store = refer(objects.repo, objects.references())
    with pytest.raises(ReadError, match="nc"):
        reader(store)[...]


def is_ours(exchange):
    return bool(exchange.range) and exchange.method == "GET"


def test_now_and_then_the_server_is_busy(objects, proxy):
    references = objects.references()
    array = reader(refer(objects.repo, references)).with_config(window_bytes=1)
    chance = random.Random(0)

    def busy(exchange):
        if is_ours(exchange) and chance.random() < 0.3:
            exchange.fail(503)

    proxy.damage = busy
    np.testing.assert_array_equal(array[...], expected(references, objects.contents, 36))


def test_a_server_that_is_always_busy_is_given_up(objects, proxy):
    array = reader(refer(objects.repo, objects.references()))
    proxy.damage = lambda exchange: exchange.fail(503) if is_ours(exchange) else None
    proxy.seen.clear()
    with pytest.raises(ReadError, match=r"nc cannot be read.*503"):
        array[...]
    assert len(proxy.seen) <= 3 * 5


def test_bodies_that_break_off_are_asked_for_again(objects, proxy):
    references = objects.references(each=36)
    array = reader(refer(objects.repo, references))
    chance = random.Random(1)

    def cut(exchange):
        if is_ours(exchange) and chance.random() < 0.4:
            exchange.cut_at = chance.randrange(len(exchange.body))

    proxy.damage = cut
    np.testing.assert_array_equal(array[...], expected(references, objects.contents, 108))


def test_bodies_that_always_break_off_are_an_error(objects, proxy):
    array = reader(refer(objects.repo, objects.references()))

    def cut(exchange):
        if is_ours(exchange):
            exchange.cut_at = 0

    proxy.damage = cut
    proxy.seen.clear()
    with pytest.raises(ReadError, match="nc cannot be read"):
        array[...]
    assert len(proxy.seen) <= 3 * 5


@pytest.mark.parametrize("lie", ["another range", "no range", "short"])
def test_an_answer_of_something_else_is_an_error(objects, proxy, lie):
    array = reader(refer(objects.repo, objects.references()))

    def damage(exchange):
        if not is_ours(exchange):
            return
        if lie == "another range":
            exchange.answer["content-range"] = f"bytes 7-{6 + len(exchange.body)}/40000"
        elif lie == "no range":
            exchange.answer.pop("content-range", None)
        else:
            exchange.body = exchange.body[:-5]

    proxy.damage = damage
    with pytest.raises(ReadError, match="nc"):
        array[...]


def test_of_a_web_server(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "1.nc").write_bytes(CONTENT)
    with http_files.serving(tmp_path / "files") as endpoint, http_proxy.before(endpoint) as proxy:
        prefix = f"{proxy.endpoint}/"
        made = repository(
            icechunk.local_filesystem_storage(str(tmp_path / "repository")),
            {prefix: icechunk.http_store({"allow_http": "true"})},
            options={prefix: {}},
        )
        references = {k: (f"{prefix}1.nc", k * CHUNK, LATER) for k in range(20)}
        array = reader(refer(made, references))
        proxy.seen.clear()
        np.testing.assert_array_equal(array[...], np.frombuffer(CONTENT, "u1", 20 * CHUNK))
        assert len(proxy.gets("1.nc")) == 1
        early = datetime(2001, 1, 1, tzinfo=UTC)
        late = refer(made, {0: (f"{prefix}1.nc", 0, early)}, name="b")
        with pytest.raises(ReadError, match=r"1\.nc is no longer the file"):
            reader(late, "b")[...]


def test_a_file_that_changed_on_a_web_server_is_refused_if_the_repository_is_remote(server, tmp_path):
    (tmp_path / "1.nc").write_bytes(CONTENT)
    with http_files.serving(tmp_path) as endpoint:
        location, prefix = f"s3://{BUCKET}/repositories/{next(names)}", f"{endpoint}/"
        made = intarsia.open_repository(location, create=True, **server.options)
        config = made.config
        http = icechunk.http_store({"allow_http": "true"})
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, http))
        made.reopen(config=config).save_config()
        repo = intarsia.open_repository(location, authorize=True, **server.options)
        refer(repo, {0: (f"{prefix}1.nc", 0, LATER)})
        np.testing.assert_array_equal(intarsia.reader(repo, "a")[...], np.frombuffer(CONTENT, "u1", CHUNK))
        refer(repo, {0: (f"{prefix}1.nc", 0, datetime(2001, 1, 1, tzinfo=UTC))}, name="b")
        with pytest.raises(ReadError, match=r"1\.nc is no longer the file"):
            intarsia.reader(repo, "b")[...]


def test_a_repository_beside_its_sources_is_read_with_the_keys_it_was_opened_with(objects, server, proxy):
    """Its own files say which versions of the objects were referred to."""
    options = server.options | {"endpoint_url": proxy.endpoint}
    location = f"s3://{BUCKET}/repositories/{next(names)}"
    made = intarsia.open_repository(location, create=True, **options)
    references = objects.references()
    config = made.config
    for container in (objects.repo.config.virtual_chunk_containers or {}).values():
        config.set_virtual_chunk_container(container)
    made.reopen(config=config).save_config()
    repo = intarsia.open_repository(location, authorize=True, **options)
    refer(repo, references)
    array = intarsia.reader(repo, "a")
    assert {part.fetcher for part in intarsia.explain(array).parts} == {"source objects, neighbours joined"}
    proxy.seen.clear()
    np.testing.assert_array_equal(array[...], expected(references, objects.contents, 36))
    assert len(proxy.gets("nc")) == 3
