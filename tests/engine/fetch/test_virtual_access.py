"""What may be read without Icechunk: what it would read itself, with credentials of the caller, no more."""

import pickle

import icechunk
import pytest

from intarsia._icechunk import safe_store
from intarsia.engine.fetch.icechunk import IcechunkSession
from intarsia.engine.fetch.virtual import is_plain, object_path
from intarsia.versions.authorization import store_of
from tests.engine.fetch.virtual_arrays import repository

PREFIX = "s3://bucket/data/"
STATIC = {"access_key_id": "key", "secret_access_key": "secret"}
SERVER = {
    "endpoint_url": "http://127.0.0.1:1",
    "allow_http": True,
    "force_path_style": True,
    "s3_compatible": True,
}
AWS = {"endpoint_url": None, "force_path_style": False}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


def sources(containers, credentials=None, options=None):
    made = repository(icechunk.in_memory_storage(), containers, credentials, options)
    return IcechunkSession(store_of(made.readonly_session("main"), made)).sources


def of_options(options, **settings):
    store = icechunk.s3_store(**({"region": "us-east-1"} | SERVER | settings))
    return sources({PREFIX: store}, options={PREFIX: options}).container_of(PREFIX + "1.nc")


def test_the_callers_keys_are_used():
    assert of_options(STATIC).arguments["access_key_id"] == "key"
    assert of_options({"anonymous": True}).arguments["skip_signature"]
    assert of_options(STATIC, **AWS).prefix == PREFIX
    again = pickle.loads(pickle.dumps(of_options(STATIC)))
    assert again.arguments == of_options(STATIC).arguments


def test_no_credentials_are_taken_out_of_a_session():
    keys = icechunk.Credentials.S3(icechunk.s3_credentials(**STATIC))
    store = icechunk.s3_store(**({"region": "us-east-1"} | SERVER))
    made = repository(icechunk.in_memory_storage(), {PREFIX: store}, {PREFIX: keys})
    session = made.readonly_session("main")
    for opened in (store_of(session, made), safe_store(session.store)):
        assert IcechunkSession(opened).sources.container_of(PREFIX + "1.nc") is None


def test_the_environment_counts_where_it_has_both_keys(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    assert of_options({}) is None
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert of_options({}).prefix == PREFIX


def test_an_environment_that_would_be_mixed_in_leaves_it_to_icechunk(monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
    assert of_options(STATIC) is None
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert of_options(STATIC, **AWS) is None


def test_a_region_that_is_not_known_and_a_way_that_is_not_are_left_to_icechunk():
    assert of_options(STATIC, region=None) is None
    assert of_options(STATIC, force_path_style=False) is None


def test_nothing_is_read_that_nobody_authorised(tmp_path):
    store = icechunk.s3_store(region="us-east-1")
    files = icechunk.local_filesystem_store(str(tmp_path))
    found = sources({PREFIX: store, f"file://{tmp_path}/": files})
    assert found.container_of(PREFIX + "1.nc") is None
    assert found.container_of(f"file://{tmp_path}/1.nc") is None
    assert found.container_of("file:///etc/passwd") is None


def test_the_longest_prefix_counts_even_if_it_is_not_authorised(tmp_path):
    inner = f"file://{tmp_path}/private/"
    outer = f"file://{tmp_path}/"
    access = {outer: icechunk.credentials.LocalFileSystemAccess}
    (tmp_path / "private").mkdir()
    stores = {prefix: icechunk.local_filesystem_store(str(tmp_path)) for prefix in (outer, inner)}
    found = sources(stores, access)
    assert found.container_of(outer + "1.nc").is_local
    assert found.container_of(inner + "1.nc") is None


def test_other_kinds_of_stores_are_left_to_icechunk():
    found = sources({"gs://bucket/": icechunk.gcs_store()}, options={"gs://bucket/": {"anonymous": True}})
    assert found.container_of("gs://bucket/1.nc") is None


def test_web_servers_are_known():
    prefix = "http://127.0.0.1:1/data/"
    store = icechunk.http_store({"allow_http": "true"})
    found = sources({prefix: store}, options={prefix: {}})
    assert found.container_of(prefix + "1.nc").prefix == prefix
    with_token = sources({prefix: store}, options={prefix: {"bearer_token": "t"}})
    assert with_token.container_of(prefix + "1.nc") is None


@pytest.mark.parametrize(
    "path",
    [
        "../etc/passwd",
        "a/../../b",
        "a//b",
        "./a",
        "%2e%2e/b",
        "a/%2E%2E/b",
        "a?versionId=1",
        "a#b",
        "a%00b",
        "a\\b",
    ],
)
def test_a_path_that_may_lead_elsewhere_is_left_to_icechunk(tmp_path, path):
    prefix = f"file://{tmp_path}/"
    store = icechunk.local_filesystem_store(str(tmp_path))
    found = sources({prefix: store}, {prefix: icechunk.credentials.LocalFileSystemAccess})
    assert found.container_of(prefix + "plain.nc").is_local
    assert not is_plain(prefix + path)
    assert found.container_of(prefix + path) is None


def test_names_of_files_are_decoded():
    assert object_path("file:///data/sst%202002%231.nc") == "data/sst 2002#1.nc"
