"""Options of storage: one name for each thing, and an unknown name is answered with those that exist."""

import pytest

import intarsia
from intarsia.errors import IngestError
from intarsia.versions.storage_options import SCHEME_OPTIONS, for_obstore, source_options


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
    with pytest.raises(IngestError, match="did you mean 'endpoint_url'"):
        intarsia.ingest("s3://b/*.nc", tmp_path / "r", concat_dim="t", storage_options={"endpoint": "x"})
    assert not (tmp_path / "r").exists()


def test_every_option_of_a_repository_is_one_of_sources_too():
    for names in SCHEME_OPTIONS.values():
        given = dict.fromkeys(names, "x")
        assert source_options(given) == given


def test_each_scheme_gets_what_it_knows():
    given = {"region": "eu", "bearer_token": "t", "account": "a"}
    always = {"client_options", "retry_config"}
    s3, https, az, gs = (for_obstore(given, scheme) for scheme in ("s3", "https", "az", "gs"))
    assert s3.keys() - always == {"region"}
    assert "default_headers" not in s3["client_options"]
    assert https.keys() == always
    assert https["client_options"]["default_headers"] == {"authorization": "Bearer t"}
    assert {name: az[name] for name in az.keys() - always} == {"account_name": "a", "token": "t"}
    assert gs["skip_signature"] is True


def test_a_container_needs_an_account(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ValueError, match="account="):
        intarsia.open_repository("az://container/prefix")
    with pytest.raises(ValueError, match="a prefix in it"):
        intarsia.open_repository("gs://bucket")
