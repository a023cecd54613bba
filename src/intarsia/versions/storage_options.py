"""Storage options: one vocabulary for repositories and source files, wherever they are, and how it is said to
Icechunk and obstore: options, credentials, headers.

Credentials come only from here, never out of Icechunk's objects; they are never stored.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

import icechunk

from intarsia.display import names_text
from intarsia.engine.fetch.virtual import Container
from intarsia.errors import IngestError

S3_SETTINGS = ("allow_http", "anonymous", "endpoint_url", "force_path_style", "region", "requester_pays")
"""What the container of a bucket says about it."""

SECRETS = {
    "s3": ("access_key_id", "anonymous", "secret_access_key", "session_token"),
    "gs": (
        "anonymous", "application_credentials", "bearer_token", "service_account_file", "service_account_key",
    ),
    "az": ("access_key", "anonymous", "bearer_token", "sas_token"),
}  # fmt: skip
"""Options that identify the caller; they are never stored."""

HTTP_OPTIONS = ("allow_http", "bearer_token", "headers")

SCHEME_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "file": (),
    "memory": (),
    "s3": (*S3_SETTINGS, *SECRETS["s3"], "headers"),
    "gs": ("allow_http", "endpoint_url", "headers", *SECRETS["gs"]),
    "az": ("account", "allow_http", "endpoint_url", *SECRETS["az"]),
    "http": HTTP_OPTIONS,
    "https": HTTP_OPTIONS,
}
"""The options of every scheme."""

OBSTORE_NAMES = {
    "access_key": "account_key",
    "account": "account_name",
    "anonymous": "skip_signature",
    "bearer_token": "token",
    "endpoint_url": "endpoint",
    "requester_pays": "request_payer",
    "service_account_file": "service_account",
}
"""What obstore calls our options."""


def source_options(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options for source files, which may be in several places; those that no place has are refused.

    >>> source_options({"anonymos": True})
    Traceback (most recent call last):
    ...
    intarsia.errors.IngestError: sources take no option 'anonymos'; did you mean 'anonymous'? There are ac...
    """
    options = dict(arguments or {})
    valid = sorted({name for names in SCHEME_OPTIONS.values() for name in names})
    for unknown in sorted(options.keys() - set(valid)):
        raise IngestError(f"sources take no option {unknown!r}; {names_text(unknown, valid)}")
    return options


def check_options(where: str, scheme: str, options: Iterable[str]) -> None:
    """Refuse options that the storage of a scheme does not have.

    >>> check_options("data/store", "file", {"region": "eu-central-1"})
    Traceback (most recent call last):
    ...
    TypeError: 'data/store' takes no option 'region'; there are none
    """
    valid = sorted({*SCHEME_OPTIONS[scheme]})
    for unknown in sorted({*options} - {*valid}):
        raise TypeError(f"{where!r} takes no option {unknown!r}; {names_text(unknown, valid)}")


def options_of_scheme(options: Mapping[str, Any], scheme: str) -> dict[str, Any]:
    """Those options that mean something to the storage of a scheme.

    >>> options_of_scheme({"region": "eu-central-1", "bearer_token": "secret"}, "https")
    {'bearer_token': 'secret'}
    """
    return {
        name: value for name, value in options.items() if name in SCHEME_OPTIONS[scheme] and value is not None
    }


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


TIMEOUTS = {"timeout": "60s", "connect_timeout": "5s"}

RETRIES: Any = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "base": 2,
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=3),
    },
}
"""As for repositories: a server that is down should be noticed soon."""


def for_obstore(options: Mapping[str, Any], scheme: str) -> dict[str, Any]:
    """The options for what is at a scheme, in the terms of the library that reads it without Icechunk.

    >>> arguments = for_obstore({"anonymous": True, "endpoint_url": "http://127.0.0.1:9000"}, "s3")
    >>> arguments["skip_signature"], arguments["endpoint"], arguments["client_options"]["allow_http"]
    (True, 'http://127.0.0.1:9000', True)
    """
    own = options_of_scheme(options, scheme)
    # A user who gives an http URL knows that nothing is encrypted.
    client: dict[str, Any] = {"allow_http": scheme == "http" or allows_http(own), **TIMEOUTS}
    if scheme != "az":  # obstore takes Azure's tokens by their own name
        if headers := headers_of(own):
            client["default_headers"] = headers
        if own.pop("bearer_token", None) and scheme == "gs":
            own["anonymous"] = True  # the header is enough
    others = ("allow_http", "force_path_style", "headers")
    arguments = {OBSTORE_NAMES.get(name, name): value for name, value in own.items() if name not in others}
    if "force_path_style" in own:
        arguments["virtual_hosted_style_request"] = not own["force_path_style"]
    return arguments | {"client_options": client, "retry_config": RETRIES}


FILE = "file://"

CREDENTIALS: Mapping[str, Callable[..., Any]] = {
    "s3": icechunk.s3_credentials,
    "gs": icechunk.gcs_credentials,
    "az": icechunk.azure_credentials,
}
"""What Icechunk makes of them."""


def scheme_of(url: str) -> str:
    """The scheme of a URL."""
    return url.split("://", 1)[0]


def container_at(
    prefix: str, options: Mapping[str, Any], *, secrets: bool = True
) -> icechunk.VirtualChunkContainer:
    """How to reach what is below a prefix. Without `secrets`, it may be stored in a repository."""
    scheme = scheme_of(prefix)
    own = options_of_scheme(options, scheme)
    endpoint = own.get("endpoint_url")
    plain = allows_http(own)
    store: Any
    if scheme == "file":
        store = icechunk.local_filesystem_store(unquote(prefix.removeprefix(FILE)))
    elif scheme == "s3":
        settings = {"force_path_style": endpoint is not None} | own | {"allow_http": plain}
        chosen = {name: settings[name] for name in S3_SETTINGS if name in settings}
        store = icechunk.s3_store(s3_compatible=endpoint is not None, **chosen)
    elif scheme == "gs":
        store = icechunk.gcs_store(cloud_config(own, "google_base_url"))
    elif scheme == "az":
        store = icechunk.storage.azure_store(account=own.get("account") or "", config=cloud_config(own))
    else:
        headers = headers_of(own) if secrets else {}
        transport = {"allow_http": "true"} if plain or scheme == "http" else None
        store = icechunk.http_store(transport, headers or None)
    return icechunk.VirtualChunkContainer(prefix, store)


def cloud_config(options: Mapping[str, Any], endpoint: str = "endpoint") -> dict[str, str] | None:
    """Where the storage of gs:// or az:// is, if not at its provider."""
    url = options.get("endpoint_url")
    if url is None:
        return None
    return {endpoint: str(url), "allow_http": str(allows_http(options)).lower()}


def credentials(options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What authorises reading below prefixes, each with its options; without any, the environment decides."""
    found: dict[str, Any] = {}
    for prefix, given in sorted(options.items()):
        scheme = scheme_of(prefix)
        if scheme in CREDENTIALS:
            names = ("anonymous",) if given.get("anonymous") else SECRETS[scheme]
            own = {name: given[name] for name in names if given.get(name) is not None}
            found[prefix] = CREDENTIALS[scheme](**own)
        else:
            access = icechunk.credentials
            found[prefix] = access.LocalFileSystemAccess if scheme == "file" else access.HttpAccess
    return icechunk.containers_credentials(found)


KEYS = ("access_key_id", "secret_access_key", "session_token")
"""Options whose environment variables have the same names, after `AWS_`."""

S3_STORES: Any = (icechunk.ObjectStoreConfig.S3, icechunk.ObjectStoreConfig.S3Compatible)


def direct_container(prefix: str, options: Mapping[str, Any]) -> Container | None:
    """How to read below a prefix without Icechunk, as these options say; None leaves it to Icechunk.

    That is where obstore might understand them differently, or would mix in the environment.
    """
    scheme, own = scheme_of(prefix), dict(options)
    if scheme == "file":
        return Container(prefix)
    if find_spec("obstore") is None or own.get("headers"):
        return None
    if scheme == "s3":
        endpoint, keys = own.get("endpoint_url"), _keys(own)
        if keys is None or own.get("region") is None or (endpoint and not own.get("force_path_style")):
            return None
        if endpoint is None and any(name.startswith("AWS_ENDPOINT") for name in os.environ):
            return None
        own = {name: own[name] for name in S3_SETTINGS if own.get(name) is not None} | keys
    elif scheme not in ("http", "https") or own.get("bearer_token"):
        return None
    return Container(prefix, for_obstore(own, scheme))


def _keys(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The caller's keys, or those in the environment; None if they are not complete."""
    if options.get("anonymous"):
        return {"anonymous": True}
    keys = {name: options[name] for name in KEYS if options.get(name)}
    environment = {name: os.environ.get(f"AWS_{name.upper()}") for name in KEYS}
    if not keys:
        keys = {name: value for name, value in environment.items() if value}
    elif "session_token" not in keys and environment["session_token"]:
        return None  # obstore would take somebody else's token
    return keys if {"access_key_id", "secret_access_key"} <= keys.keys() else None


def s3_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of S3 and its relatives; missing ones come from the environment, as in other AWS programs.

    >>> s3_options({"endpoint_url": "http://127.0.0.1:9000", "region": "us-east-1"})["force_path_style"]
    True
    """
    own, environment = dict(options), os.environ
    from_environment = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    endpoint = own.setdefault("endpoint_url", from_environment)
    own.setdefault("region", environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"))
    if endpoint is not None:
        # Servers other than AWS have no host name per bucket, and often no certificate.
        own.setdefault("force_path_style", True)
        own.setdefault("allow_http", endpoint.startswith("http://"))
        own["region"] = own["region"] or "us-east-1"
    return own
