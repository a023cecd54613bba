"""What may be read without Icechunk: what it would read itself, with credentials that are known, no more."""

import datetime

import icechunk
import pytest

from intarsia._icechunk import session_bytes
from intarsia.engine.fetch.virtual import grants_of, inside, is_plain
from tests.engine.fetch.virtual_arrays import repository

S3 = icechunk.Credentials.S3
PREFIX = "s3://bucket/data/"
STATIC = S3(icechunk.s3_credentials(access_key_id="key", secret_access_key="secret"))
SERVER = {
    "endpoint_url": "http://127.0.0.1:1",
    "allow_http": True,
    "force_path_style": True,
    "s3_compatible": True,
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


def granted(containers, credentials=None, storage=None):
    made = repository(storage or icechunk.in_memory_storage(), containers, credentials)
    return grants_of(session_bytes(made.readonly_session("main").store))


def fetch_credentials():
    return icechunk.S3StaticCredentials("key", "secret")


def of_credentials(credentials, **settings):
    store = icechunk.s3_store(**({"region": "us-east-1"} | SERVER | settings))
    return granted({PREFIX: store}, {PREFIX: credentials}).container_of(PREFIX + "1.nc")


def test_static_and_anonymous_credentials_are_known():
    assert of_credentials(STATIC).prefix == PREFIX
    assert of_credentials(S3(icechunk.s3_credentials(anonymous=True))).prefix == PREFIX
    assert of_credentials(STATIC, endpoint_url=None, force_path_style=False).prefix == PREFIX


def test_credentials_that_run_out_or_are_made_elsewhere_are_left_to_icechunk():
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    expiring = icechunk.s3_credentials(access_key_id="key", secret_access_key="secret", expires_after=later)
    assert of_credentials(S3(expiring)) is None
    assert of_credentials(S3(icechunk.s3_credentials(get_credentials=fetch_credentials))) is None
    assert of_credentials(S3(icechunk.s3_credentials(from_env=True))) is None


def test_the_environment_counts_where_it_has_both_keys(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    assert of_credentials(S3(icechunk.s3_credentials(from_env=True))) is None
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert of_credentials(S3(icechunk.s3_credentials(from_env=True))).prefix == PREFIX


def test_an_environment_that_would_be_mixed_in_leaves_it_to_icechunk(monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
    assert of_credentials(STATIC) is None
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert of_credentials(STATIC, endpoint_url=None, force_path_style=False) is None


def test_a_region_that_is_not_known_and_a_way_that_is_not_are_left_to_icechunk():
    assert of_credentials(STATIC, region=None) is None
    assert of_credentials(STATIC, force_path_style=False) is None


def test_nothing_is_read_that_nobody_authorised(tmp_path):
    store = icechunk.s3_store(region="us-east-1")
    files = icechunk.local_filesystem_store(str(tmp_path))
    found = granted({PREFIX: store, f"file://{tmp_path}/": files})
    assert found.container_of(PREFIX + "1.nc") is None
    assert found.container_of(f"file://{tmp_path}/1.nc") is None
    assert found.prefixes


def test_the_longest_prefix_counts_even_if_it_is_not_authorised(tmp_path):
    inner = f"file://{tmp_path}/private/"
    outer = f"file://{tmp_path}/"
    access = {outer: icechunk.credentials.LocalFileSystemAccess}
    (tmp_path / "private").mkdir()
    stores = {prefix: icechunk.local_filesystem_store(str(tmp_path)) for prefix in (outer, inner)}
    found = granted(stores, access)
    assert found.container_of(outer + "1.nc").is_local
    assert found.container_of(inner + "1.nc") is None


def test_other_kinds_of_stores_are_left_to_icechunk():
    credentials = icechunk.Credentials.Gcs(icechunk.GcsCredentials.FromEnv())
    found = granted({"gs://bucket/": icechunk.gcs_store()}, {"gs://bucket/": credentials})
    assert found.container_of("gs://bucket/1.nc") is None


def test_web_servers_are_known():
    prefix = "http://127.0.0.1:1/data/"
    store = icechunk.http_store({"allow_http": "true"})
    found = granted({prefix: store}, {prefix: icechunk.credentials.HttpAccess})
    assert found.container_of(prefix + "1.nc").prefix == prefix


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
    found = granted({prefix: store}, {prefix: icechunk.credentials.LocalFileSystemAccess})
    assert found.container_of(prefix + "plain.nc").is_local
    assert not is_plain(prefix + path)
    assert found.container_of(prefix + path) is None


def test_where_a_repository_lies_is_told(tmp_path):
    storage = icechunk.local_filesystem_storage(str(tmp_path / "dépôt"))
    assert granted({}, storage=storage).folder == tmp_path / "dépôt"
    assert granted({}).repository is None
    assert inside("file:///data/sst%202002%231.nc") == "data/sst 2002#1.nc"


@pytest.mark.parametrize(
    "form", [b"", b"\xc0", b"\x93\x01\x02\x03", b"\xc1", b"\x95\xc0\xc0\x80\xc0\x92\x90\x80"]
)
def test_an_unknown_form_grants_nothing(form):
    found = grants_of(form)
    assert found.repository is None
    assert found.container_of("file:///etc/passwd") is None
