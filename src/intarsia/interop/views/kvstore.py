"""A zarr store as TensorStore names it: the `kvstore` of a spec."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from zarr.storage import FsspecStore, LocalStore, ObjectStore, ZipStore

from intarsia.errors import UnreachableMembersError

__all__ = ["SERVE_INSTEAD", "kvstore_of"]

SERVE_INSTEAD = (
    "TensorStore reads it over HTTP: with intarsia.serving(array) as server, "
    '{"driver": "zarr3", "kvstore": server.url}'
)

S3_SCHEMES = frozenset(("s3", "s3a"))
GCS_SCHEMES = frozenset(("gs", "gcs"))
WEB_SCHEMES = frozenset(("http", "https"))


def kvstore_of(store: Any, path: str) -> dict[str, Any]:
    """Where TensorStore finds the directory `path` of a store. Credentials are left to its own environment.

    >>> kvstore_of(LocalStore("/data/a.zarr"), "t")
    {'driver': 'file', 'path': '/data/a.zarr/t/'}
    """
    found = None
    if isinstance(store, LocalStore):
        found = _file(store.root, path)
    elif isinstance(store, ZipStore) and store.path is not None:
        archive = {"driver": "file", "path": str(Path(store.path).absolute())}
        found = {"driver": "zip", "base": archive, "path": f"{path}/"}
    elif isinstance(store, FsspecStore):
        found = _of_fsspec(store, path)
    elif isinstance(store, ObjectStore):
        found = _of_obstore(store.store, path)
    if found is None:
        raise UnreachableMembersError(
            "TensorStore cannot read the members where they are: in a store of the kind "
            f"{type(store).__name__}, not in files or objects that it could open itself.\n  {SERVE_INSTEAD}"
        )
    return found


def _file(root: Any, path: str) -> dict[str, Any]:
    return {"driver": "file", "path": os.path.join(os.path.abspath(root), path) + "/"}


def _in_bucket(driver: str, bucket: str, *parts: str, **options: Any) -> dict[str, Any]:
    return {"driver": driver, "bucket": bucket, "path": _joined(*parts) + "/", **options}


def _joined(*parts: str) -> str:
    return "/".join(part.strip("/") for part in parts if part.strip("/"))


def _web(url: str, *parts: str) -> dict[str, Any]:
    return {"driver": "http", "base_url": url.rstrip("/"), "path": f"/{_joined(*parts)}/"}


def _of_fsspec(store: FsspecStore, path: str) -> dict[str, Any] | None:
    spoken = store.fs.protocol
    schemes = {spoken} if isinstance(spoken, str) else set(spoken)
    place = str(store.path)
    if schemes & {"file", "local"}:
        return _file(place, path)
    if schemes & WEB_SCHEMES:
        parts = urlsplit(place)
        return _web(f"{parts.scheme}://{parts.netloc}", parts.path, path) if parts.scheme else None
    bucket, _, prefix = place.strip("/").partition("/")
    if schemes & GCS_SCHEMES:
        return _in_bucket("gcs", bucket, prefix, path)
    if not schemes & S3_SCHEMES:
        return None
    said: dict[str, Any] = getattr(store.fs, "client_kwargs", None) or {}
    endpoint = getattr(store.fs, "endpoint_url", None) or said.get("endpoint_url")
    anonymous = bool(getattr(store.fs, "anon", False))
    return _in_bucket("s3", bucket, prefix, path, **_s3(endpoint, said.get("region_name"), anonymous))


def _of_obstore(store: Any, path: str) -> dict[str, Any] | None:
    prefix = str(getattr(store, "prefix", None) or "")
    match type(store).__name__:
        case "LocalStore":
            return _file(prefix or "/", path)
        case "HTTPStore":
            parts = urlsplit(str(store.url))
            return _web(f"{parts.scheme}://{parts.netloc}", parts.path, path)
        case "S3Store":
            said = store.config
            anonymous = str(said.get("skip_signature", "")).lower() == "true"
            place = _s3(said.get("endpoint"), said.get("region"), anonymous)
            return _in_bucket("s3", said["bucket"], prefix, path, **place)
        case "GCSStore":
            return _in_bucket("gcs", store.config["bucket"], prefix, path)
    return None


def _s3(endpoint: Any, region: Any, anonymous: bool) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if endpoint:
        options["endpoint"] = str(endpoint)
    if region:
        options["aws_region"] = str(region)
    if anonymous:
        options["aws_credentials"] = {"type": "anonymous"}
    return options
