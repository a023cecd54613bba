"""Logical arrays over HTTP, each as one ordinary Zarr array, with a page to look at them at the root."""

from __future__ import annotations

import datetime
import errno
import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import icechunk
import zarr
from zarr.storage import LocalStore

from intarsia.codecs import CodecLike
from intarsia.engine.fetch.read_errors import check_access
from intarsia.engine.fetch.symlinks import refuse_links_out
from intarsia.errors import IntarsiaError
from intarsia.extras import import_extra
from intarsia.inspect.viewer import LOG, Viewer
from intarsia.interop.fused_view import ViewStore, view_store
from intarsia.logical.hierarchy import logical_arrays
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.opening import open as open_array
from intarsia.versions.locking import directory_of
from intarsia.versions.repository import describe
from intarsia.versions.version import Version, resolve_store

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from zarr_http_server import BackgroundServer
else:
    BackgroundServer = Any  # the command line looks at the annotations of `serve`


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1", "[::1]")
"""What programs on a machine call that machine."""


def serve(
    store: Any,
    path: str = "",
    *,
    host: str = "127.0.0.1",
    port: int | Literal["auto"] = "auto",
    codecs: Iterable[CodecLike] | None = None,
    chunks: Sequence[int] | None = None,
    cors_origins: Iterable[str] = (),
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
) -> BackgroundServer:
    """Serve arrays over HTTP from a thread of this process, each as one ordinary Zarr array.

    `with intarsia.serve(store) as server:` serves during the block, at `server.url`. Without `with`, as in a
    notebook, `server.shutdown()` ends it. `intarsia serve STORE` serves until Ctrl-C. A browser finds a page
    at the address to look at the arrays, their regions and, in a repository, their earlier versions. This
    needs the extra `serve`.

    Browsers let no page of another site read it. `cors_origins` lists sites that may, such as
    `"https://viewer.example.org"`; `"*"` stands for all.

    Args:
        store: A path or URL, a zarr store or group, an Icechunk session or repository, or a logical array.
        path: What is served as the root of the address.
        host: The address to listen on. The default is reached from this machine only; `"0.0.0.0"` is reached
            from others.
        port: The port; 0 means any free one. `"auto"` is 8000, or any free one if 8000 is taken.
        codecs: How served chunks are encoded; by default with fast zstd.
        chunks: Another chunk shape, if one array is served.
        branch: Read the tip of this branch. The default is `main`.
        tag: Read the version with this tag.
        snapshot_id: Read the snapshot with this id.
        as_of: Read the version that was current at this time, in UTC unless it says otherwise.

    >>> import intarsia, urllib.request
    >>> array = intarsia.create({}, "t", shape=(0,), chunks=(2,), dtype="u1")
    >>> array.append([7, 8], codecs=["gzip"])
    >>> with intarsia.serve(array, codecs=[]) as server:
    ...     urllib.request.urlopen(f"{server.url}/c/0").read()
    b'\\x07\\x08'
    """
    http = import_extra("zarr_http_server", "serve")
    resolved = resolve_store(
        store.group if isinstance(store, LogicalArray) else store, Version(branch, tag, snapshot_id, as_of)
    )
    view = view_store(resolved.store, path, codecs, chunks, consolidated=True)
    place = view.place
    check_access(place.store, _members(place.store, place.path))  # refused at once, and not to every client
    directory = place.store.root if isinstance(place.store, LocalStore) else None
    if resolved.repo is not None:
        directory = directory_of(resolved.repo)
    if directory is not None:
        refuse_links_out(directory)
    sites = [cors_origins] if isinstance(cors_origins, str) else cors_origins
    origins = [site.rstrip("/") for site in sites]  # as browsers spell them
    zarr.open(view, mode="r")  # what cannot be shown is an error now, not for every client
    app = http.store_app(view, cors_options={"allow_origins": origins} if origins else None)
    title = os.fspath(store) if isinstance(store, str | os.PathLike) else ""
    if resolved.repo is not None:
        title = describe(resolved.repo)
    where = place.store, place.path, resolved.repo, resolved.snapshot_id
    app.router.routes[:0] = Viewer(*where, title, is_open=bool(origins)).routes()
    for failure in (IntarsiaError, OSError, icechunk.IcechunkError):
        app.add_exception_handler(failure, _failure_response)
    app.add_middleware(_Totals, store=view)
    if _is_loopback(host) and "*" not in origins:
        from starlette.middleware.trustedhost import TrustedHostMiddleware

        # To a browser, a site whose name points to this machine would be of the same origin.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK_NAMES, host])
    _check_free(host, port)
    # The program does other things meanwhile: its logging is left alone, and only failures are reported.
    quiet = {"log_level": "warning", "log_config": None, "access_log": False}
    server: BackgroundServer = http.serve_background(app, host=host, port=port, uvicorn_options=quiet)
    return server


def _members(store: Any, path: str) -> Iterator[tuple[str, int]]:
    """The path and number of axes of every member of all logical arrays below a path."""
    for name in logical_arrays(store, path):
        array = open_array(store, name)
        yield from ((f"{name}/{member}".strip("/"), array.ndim) for member in array.manifest.members)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Totals:
    """Adds the total size to every part of a value.

    The server leaves it out, as HTTP allows; but readers that are built on object_store (obstore, zarrs)
    reject a part without it.
    """

    def __init__(self, app: Any, store: ViewStore) -> None:
        self._app, self._store = app, store

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with_total(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 206:
                total = b"/%d" % await self._store.getsize(scope["path"].lstrip("/"))
                message["headers"] = [
                    (name, value.replace(b"/*", total) if name.lower() == b"content-range" else value)
                    for name, value in message["headers"]
                ]
            await send(message)

        await self._app(scope, receive, send_with_total if scope["type"] == "http" else send)


def _failure_response(request: Request, error: Exception) -> Response:
    """An answer that cannot be mistaken for a chunk that was never written; the server's log says why."""
    from starlette.responses import PlainTextResponse

    LOG.error("%s: %s", request.url.path, error)
    return PlainTextResponse("this value cannot be read: see the log of the server\n", status_code=500)


def _check_free(host: str, port: int | Literal["auto"]) -> None:
    """Complain about an address that cannot be used, in the thread of the caller."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, 0 if port == "auto" else port))
    except (OSError, OverflowError) as error:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen at port {port} of {host}: {error}") from error
