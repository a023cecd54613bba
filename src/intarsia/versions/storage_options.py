"""Storage options: one vocabulary for repositories and for source files, wherever they are."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from intarsia.errors import IngestError

S3_OPTIONS = (
    "access_key_id", "allow_http", "anonymous", "endpoint_url", "expires_after", "force_path_style",
    "get_credentials", "headers", "network_stream_timeout_seconds", "region", "requester_pays",
    "secret_access_key", "session_token",
)  # fmt: skip
GS_OPTIONS = (
    "allow_http", "anonymous", "application_credentials", "bearer_token", "endpoint_url", "get_credentials",
    "headers", "service_account_file", "service_account_key",
)  # fmt: skip
AZ_OPTIONS = (
    "access_key", "account", "allow_http", "anonymous", "bearer_token", "endpoint_url", "sas_token",
)  # fmt: skip
HTTP_OPTIONS = ("allow_http", "bearer_token", "headers")

TAKEN: Mapping[str, tuple[str, ...]] = {
    "file": (),
    "memory": (),
    "s3": S3_OPTIONS,
    "gs": GS_OPTIONS,
    "az": AZ_OPTIONS,
    "http": HTTP_OPTIONS,
    "https": HTTP_OPTIONS,
}
"""The options of every scheme."""

OF_REPOSITORIES = ("expires_after", "get_credentials", "network_stream_timeout_seconds")
"""Options that only Icechunk uses."""

OF_SOURCES = ("client_options", "retry_config")
"""Options of obstore, which reads source files, that keep their names here."""

SPELLINGS = {
    "account_key": "access_key",
    "account_name": "account",
    "endpoint": "endpoint_url",
    "request_payer": "requester_pays",
    "service_account": "service_account_file",
    "service_account_path": "service_account_file",
    "skip_signature": "anonymous",
    "token": "bearer_token",
}
"""obstore's names, which are accepted too."""

ELSEWHERE = {
    "anon": "anonymous",
    "client_kwargs": "endpoint_url",
    "key": "access_key_id",
    "secret": "secret_access_key",
}
"""The names of options in fsspec, for messages."""

OWNERS = ("aws_", "google_", "azure_", "azure_storage_")
"""The prefixes that obstore's names may have."""


def source_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options for source files, each by its one name.

    >>> source_options({"skip_signature": True, "aws_region": "eu-central-1"})
    {'anonymous': True, 'region': 'eu-central-1'}
    >>> source_options({"anon": True})
    Traceback (most recent call last):
    ...
    intarsia.errors.IngestError: sources take no option 'anon'; did you mean 'anonymous'?
      Their options: access_key, access_key_id, account, allow_http, anonymous, ...
    """
    known = sorted({name for names in TAKEN.values() for name in names} - set(OF_REPOSITORIES)) + [
        *OF_SOURCES
    ]
    options: dict[str, Any] = {}
    for key, value in (given or {}).items():
        name = key
        for owner in OWNERS:
            name = name.removeprefix(owner)
        if name == "virtual_hosted_style_request":
            name, value = "force_path_style", not value
        name = SPELLINGS.get(name, name)
        if name not in known:
            raise IngestError(unknown_option("sources take", key, known, "Their"))
        options[name] = value
    return options


def check_options(where: str, scheme: str, options: Iterable[str]) -> None:
    """Refuse options that the storage of a scheme does not have.

    >>> check_options("data/store", "file", {"region": "eu-central-1"})
    Traceback (most recent call last):
    ...
    TypeError: 'data/store' takes no option 'region'; its options: none
    """
    known = TAKEN[scheme]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(unknown_option(f"{where!r} takes", unknown[0], known, "Its"))


def unknown_option(who: str, name: str, known: Iterable[str], whose: str) -> str:
    """What to say about an option that does not exist: the nearest one that does, and all of them."""
    names = list(known)
    near = [ELSEWHERE[name]] if ELSEWHERE.get(name) in names else get_close_matches(name, names, 1, 0.7)
    if near:
        return f"{who} no option {name!r}; did you mean {near[0]!r}?\n  {whose} options: {', '.join(names)}"
    return f"{who} no option {name!r}; {whose.lower()} options: {', '.join(names) or 'none'}"


def of_scheme(options: Mapping[str, Any], scheme: str) -> dict[str, Any]:
    """Those options that mean something to the storage of a scheme.

    >>> of_scheme({"region": "eu-central-1", "bearer_token": "secret"}, "https")
    {'bearer_token': 'secret'}
    """
    return {name: value for name, value in options.items() if name in TAKEN[scheme] and value is not None}


def headers_of(options: Mapping[str, Any]) -> dict[str, str]:
    """The headers of every request: those that were given, and the token.

    >>> headers_of({"bearer_token": "secret"})
    {'authorization': 'Bearer secret'}
    """
    token = options.get("bearer_token")
    return dict(options.get("headers") or {}) | ({"authorization": f"Bearer {token}"} if token else {})


def allows_http(options: Mapping[str, Any]) -> bool:
    """Whether encryption is unnecessary, by the options or by the endpoint's URL."""
    plain = str(options.get("endpoint_url") or "").startswith("http://")
    return bool(options.get("allow_http", plain))


def for_obstore(options: Mapping[str, Any], scheme: str) -> dict[str, Any]:
    """The options for sources of a scheme, in the terms of the library that reads them.

    >>> for_obstore({"anonymous": True, "endpoint_url": "http://127.0.0.1:9000"}, "s3")
    {'skip_signature': True, 'endpoint': 'http://127.0.0.1:9000', 'client_options': {'allow_http': True}}
    """
    names = {
        "access_key": "account_key", "account": "account_name", "anonymous": "skip_signature",
        "endpoint_url": "endpoint", "requester_pays": "request_payer",
        "service_account_file": "service_account",
    }  # fmt: skip
    own = of_scheme(options, scheme)
    # A user who gives an http URL knows that nothing is encrypted.
    client: dict[str, Any] = {"allow_http": True} if scheme == "http" or allows_http(own) else {}
    headers = headers_of(own if scheme != "az" else {})
    client |= ({"default_headers": headers} if headers else {}) | dict(options.get("client_options") or {})
    said: dict[str, Any] = {}
    for name, value in own.items():
        if name == "force_path_style":
            said["virtual_hosted_style_request"] = not value
        elif name == "bearer_token" and scheme == "az":
            said["token"] = value
        elif name == "bearer_token" and scheme == "gs":
            said["skip_signature"] = True  # the header is enough
        elif name not in ("allow_http", "headers", "bearer_token"):
            said[names.get(name, name)] = value
    if "retry_config" in options:
        said["retry_config"] = options["retry_config"]
    return said | ({"client_options": client} if client else {})
