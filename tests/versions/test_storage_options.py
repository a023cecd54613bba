"""Options of storage: one name for each thing, and an unknown name is answered with those that exist."""

import pytest

import intarsia
from intarsia.errors import IngestError
from intarsia.versions.storage_options import (
    ICECHUNK_ONLY_OPTIONS,
    SCHEME_OPTIONS,
    for_obstore,
    source_options,
)


@pytest.mark.parametrize(
    ("location", "given", "near"),
    [
        ("s3://bucket/prefix", {"anon": True}, "did you mean 'anonymous'"),
        ("s3://bucket/prefix", {"endpoint": "http://x"}, "did you mean 'endpoint_url'"),
        ("gs://bucket/prefix", {"bearer_tokn": "x"}, "did you mean 'bearer_token'"),
        ("az://container/prefix", {"acount": "x"}, "did you mean 'account'"),
        ("https://host/prefix", {"region": "x"}, "there are allow_http, bearer_token, headers"),
        ("data/store", {"region": "x"}, "there are none"),
    ],
)
def test_a_repository_names_the_options_that_exist(location, given, near):
    for how in ({"storage_options": given}, given):
        with pytest.raises(TypeError, match=near):
            intarsia.open_repository(location, **how)


def test_sources_name_the_options_that_exist(tmp_path):
    with pytest.raises(IngestError, match="did you mean 'secret_access_key'"):
        intarsia.ingest("s3://b/*.nc", tmp_path / "r", concat_dim="t", storage_options={"secret": "x"})
    assert not (tmp_path / "r").exists()


def test_every_option_of_a_repository_is_one_of_sources_too():
    for names in SCHEME_OPTIONS.values():
        given = {name: "x" for name in names if name not in ICECHUNK_ONLY_OPTIONS}
        assert source_options(given) == given


def test_names_of_obstore_are_taken_as_well():
    ours = source_options({"aws_endpoint": "http://x", "skip_signature": True, "request_payer": True})
    assert ours == {"endpoint_url": "http://x", "anonymous": True, "requester_pays": True}
    assert source_options({"virtual_hosted_style_request": True}) == {"force_path_style": False}
    assert source_options(ours) == ours
    azure = source_options({"azure_storage_account_name": "a", "azure_storage_account_key": "k"})
    assert azure == source_options({"azure_account_name": "a", "account_key": "k"})
    assert azure == {"account": "a", "access_key": "k"}


def test_each_scheme_gets_what_it_knows():
    given = {"region": "eu", "bearer_token": "t", "account": "a", "client_options": {"timeout": "3s"}}
    assert for_obstore(given, "s3") == {"region": "eu", "client_options": {"timeout": "3s"}}
    https = for_obstore(given, "https")["client_options"]
    assert https == {"default_headers": {"authorization": "Bearer t"}, "timeout": "3s"}
    assert for_obstore(given, "az") == {
        "account_name": "a", "token": "t", "client_options": {"timeout": "3s"},
    }  # fmt: skip
    assert for_obstore(given, "gs")["skip_signature"] is True


def test_a_container_needs_an_account(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ValueError, match="account="):
        intarsia.open_repository("az://container/prefix")
    with pytest.raises(ValueError, match="a prefix in it"):
        intarsia.open_repository("gs://bucket")
