"""The page to look at data, and what it asks this server: bounded answers, for itself and nobody else.

The server decodes. So a page of a few files shows every data type and codec, a hundred million elements are
not sent to draw one pixel, and damage comes with a reason.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from intarsia.codecs.base import in_thread_for
from intarsia.errors import BoundsError, NotLogicalArrayError, VersionNotFoundError
from intarsia.inspect.drawing import COLOURS, LETTERS
from intarsia.inspect.preview import COLOUR_MAPS
from intarsia.inspect.sample import Span

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from intarsia.inspect.answers import Answers

LOG = logging.getLogger("uvicorn.error")

PREFIX = "__view__"
"""Everything that belongs to the page is below this. The Zarr specification reserves such names."""

AT_ONCE = 4
"""Answers in work at a time, for values and for all else: pictures do not delay the pointer. Others wait."""

MOST_WAITING = 64
"""If this many are already waiting, the next one is told to come back."""

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""The headers of every answer to the page: it loads and runs only what is served here."""

INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
NOT_FOUND = (FileNotFoundError, NotLogicalArrayError, VersionNotFoundError)


class Viewer:
    """Answers the page.

    >>> [path for path, _ in Viewer(answers=None).endpoints()][:2]
    ['arrays', 'array']
    """

    def __init__(self, answers: Answers | Any, *, is_open: bool = False) -> None:
        self._answers, self._is_open = answers, is_open
        self._assets = {
            asset.name: asset.read_bytes()
            for asset in files(__package__).joinpath("viewer_assets").iterdir()
            if any(asset.name.endswith(kind) for kind in TYPES)
        }
        self._limits: dict[bool, asyncio.Semaphore] = {}
        self._waiting = 0

    def endpoints(self) -> list[tuple[str, Callable[[Any], Any]]]:
        """What the page can ask, and the functions that answer."""
        return [
            ("arrays", self._arrays),
            ("array", lambda query: self._answers.about(*_which(query))),
            ("versions", lambda query: self._answers.versions(query.get("path", ""))),
            ("labels", self._labels),
            ("place", lambda query: self._answers.place(*_which(query), _numbers(query.get("index", "")))),
            ("regions", self._regions),
            ("values", self._values),
        ]

    def routes(self) -> list[BaseRoute]:
        """The routes for the application, before those of the arrays."""
        from starlette.routing import Route

        return [
            Route("/", self._page),
            *(Route(f"/{PREFIX}/{name}", self._answered(answer)) for name, answer in self.endpoints()),
            Route(f"/{PREFIX}/{{name}}", self._asset),
        ]

    # Files of the page

    async def _page(self, request: Request) -> Response:
        return self._file("index.html")

    async def _asset(self, request: Request) -> Response:
        return self._file(request.path_params["name"])

    def _file(self, name: str) -> Response:
        from starlette.responses import Response

        content = self._assets.get(name)
        if content is None:
            return Response(status_code=404, headers=HEADERS)
        kind = TYPES[name[name.rindex(".") :]]
        return Response(content, media_type=kind, headers={**HEADERS, "Cache-Control": "no-cache"})

    # What the page asks

    def _answered(self, answer: Callable[[Any], Any]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint: threads answer, a few at a time, unless the page has lost interest."""
        from starlette.responses import JSONResponse, Response

        async def endpoint(request: Request) -> Response:
            if not self._is_open and request.headers.get("sec-fetch-site", "same-origin") not in (
                "same-origin",
                "none",
            ):
                # Another site could not read the answer, but it could keep this machine busy.
                return Response(status_code=403, headers=HEADERS)
            if self._waiting >= MOST_WAITING:
                return Response(status_code=503, headers={**HEADERS, "Retry-After": "1"})
            limit = self._limits.setdefault(answer == self._values, asyncio.Semaphore(AT_ONCE))
            self._waiting += 1
            try:
                async with limit:
                    if await request.is_disconnected():
                        return Response(status_code=499, headers=HEADERS)
                    told = await in_thread_for("views", answer, request.query_params)
            except NOT_FOUND:
                return JSONResponse({"error": "there is no such array or version"}, 404, HEADERS)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:  # no array can have that path
                    return JSONResponse({"error": "there is no such array or version"}, 404, HEADERS)
                return self._failed(request, error)
            except BoundsError as error:
                return JSONResponse({"error": str(error)[:200]}, 400, HEADERS)
            except Exception as error:
                return self._failed(request, error)
            finally:
                self._waiting -= 1
            if isinstance(told, dict):
                return JSONResponse(told, headers=HEADERS)
            body, more = told
            return Response(body, media_type="application/octet-stream", headers={**HEADERS, **more})

        return endpoint

    @staticmethod
    def _failed(request: Request, error: Exception) -> Response:
        from starlette.responses import JSONResponse

        LOG.error("%s: %s", request.url.path, error)
        return JSONResponse({"error": "this cannot be read: see the log of the server"}, 500, HEADERS)

    def _arrays(self, query: Any) -> dict[str, Any]:
        maps = {name: colours.split() for name, colours in COLOUR_MAPS.items()}
        drawing = {"maps": maps, "colours": list(COLOURS), "letters": LETTERS}
        return {**self._answers.arrays(query.get("at", "")), **drawing}

    def _labels(self, query: Any) -> dict[str, Any]:
        told: dict[str, Any] = self._answers.labels(
            *_which(query), _integer(query.get("axis", "0")), _numbers(query.get("places", ""))
        )
        return told

    def _regions(self, query: Any) -> dict[str, Any]:
        told: dict[str, Any] = self._answers.regions(
            *_which(query),
            _numbers(query.get("axes", "")),
            _numbers(query.get("index", "")),
            _integer(query.get("layer", "0")),
        )
        return told

    def _values(self, query: Any) -> tuple[bytes, dict[str, str]]:
        """Values, then one byte for each that says what it is; the headers give their number and type."""
        taken = query.get("take", "")
        seen = self._answers.values(*_which(query), lambda shape: _spans(taken, shape))
        if seen.problem:
            LOG.error("%s: %s", query.get("path", ""), seen.problem)
        little = seen.values.astype(seen.values.dtype.newbyteorder("<"), copy=False)
        about = {
            "X-Shape": ",".join(map(str, seen.values.shape)),
            "X-Type": str(seen.values.dtype),
            "X-Coarser": str(seen.coarser),
        }
        return little.tobytes() + seen.status.tobytes(), about


def _which(query: Any) -> tuple[str, str]:
    return query.get("path", ""), query.get("at", "")


def _numbers(text: str) -> list[int]:
    """Whole numbers separated by commas."""
    return [_integer(part) for part in text.split(",")] if text else []


def _integer(text: str) -> int:
    if not INTEGER.fullmatch(text):
        raise BoundsError("give whole numbers")
    return int(text)


def _spans(text: str, shape: tuple[int, ...]) -> Sequence[Span]:
    """An index, or `start:count:step`, for every axis; anything beyond the end is left out.

    >>> _spans("3,0:4:5", (10, 12))
    [3, range(0, 15, 5)]
    """
    parts = text.split(",") if text else []
    if len(parts) != len(shape):
        raise BoundsError(f"{len(parts)} places for {len(shape)} axes")
    spans: list[Span] = []
    for part, size in zip(parts, shape, strict=True):
        if ":" not in part:
            spans.append(_integer(part))
            continue
        numbers = [_integer(number) for number in part.split(":")]
        start, count, step = numbers if len(numbers) == 3 else (-1, 0, 0)
        if start < 0 or count < 0 or step < 1:
            raise BoundsError(f"{part} is not start:count:step")
        spans.append(range(start, size, step)[:count] if start < size else range(0))
    return spans
