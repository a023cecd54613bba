"""The page to look at data, and its server side.

The server decodes. So a page of a few files shows every data type and codec, a hundred million elements are
not sent to draw one pixel, and damage comes with a reason. Answers are bounded. Names and texts in them are
untrusted: they are made plain here, and stay text in the page.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from itertools import islice
from math import prod
from mimetypes import MimeTypes
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import zarr
from icechunk import IcechunkStore

from intarsia._compat import sync
from intarsia._icechunk import INLINE, VIRTUAL, ChunkTable, chunk_table, is_immutable
from intarsia.codecs.base import in_thread_for
from intarsia.display import Table, plain, size_text
from intarsia.engine.chunk_cache import BoundedCache
from intarsia.engine.prepared_member import object_shape, short_codecs
from intarsia.engine.reader import chunk_shape
from intarsia.engine.stored_array import StoredArray
from intarsia.errors import BoundsError, NotLogicalArrayError, VersionNotFoundError
from intarsia.inspect.axis_labels import AxisLabels, attribute_texts, open_any_array, texts_of
from intarsia.inspect.drawing import COLOURS
from intarsia.inspect.sample import FAILURES, Span, sample
from intarsia.inspect.survey import LETTERS, MAX_REQUESTS, PIPELINE_COLUMNS, Survey, survey
from intarsia.logical.hierarchy import is_any_array, is_logical, nodes_below, open_node
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.opening import reader
from intarsia.manifest.box import Box
from intarsia.manifest.data_types import type_text
from intarsia.versions.authorization import store_of
from intarsia.versions.history import history
from intarsia.versions.version import Version

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute


LOG = logging.getLogger("uvicorn.error")
"""The server's own log, so that everything it says is in one place."""

MAX_ARRAYS = 2_000
MAX_VERSIONS = 200
"""The most versions that are listed: the newest ones."""

MAX_RECTANGLES = 4_000
"""More regions than this cannot be seen in one picture: the largest ones are drawn."""

MAX_LABELS = 256
MAX_CHANGES = 200
"""The most changed boxes of a version that are drawn."""


PREFIX = "__view__"
"""Everything that belongs to the page is below this. The Zarr specification reserves such names."""

AT_ONCE = 4
"""Answers in work at a time, for values and for all else: pictures do not delay the pointer. Others wait."""

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

QUESTIONS = ("arrays", "array", "versions", "labels", "place", "regions", "values")
"""The questions of the page; methods with these names answer them."""

INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
NOT_FOUND = (FileNotFoundError, NotLogicalArrayError, VersionNotFoundError)


class Query:
    """What the page asks about: an array at a `path`, in the version `at`, and places in it.

    >>> Query({"path": "a", "index": "3,-1"}).numbers("index")
    [3, -1]
    """

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = parameters
        self.path, self.at, self.take = (parameters.get(name, "") for name in ("path", "at", "take"))

    def numbers(self, name: str) -> list[int]:
        """The whole numbers in a parameter."""
        text = self._parameters.get(name, "")
        return [_integer(part) for part in text.split(",")] if text else []


@dataclass(frozen=True, eq=False)
class Viewer:
    """Answers the page about the arrays below `root` of a store, in a repository also about earlier versions.

    >>> [route.path for route in Viewer({}, "").routes()][:2]
    ['/', '/__view__/arrays']
    """

    store: Any
    """The version that is served."""

    root: str
    """The path in the store of what is served."""

    repo: icechunk.Repository | None = None
    """The repository, if the store is a version of one."""

    snapshot_id: str = ""
    """The id of that version."""

    title: str = ""
    """A title for people."""

    is_open: bool = False
    """Whether pages of other sites may ask, too."""

    _limits: dict[bool, asyncio.Semaphore] = field(default_factory=dict)

    _kept: BoundedCache[Hashable, Any] = field(default_factory=lambda: BoundedCache(16, lambda _: 1))
    """The last things that were opened or surveyed, of versions that do not change."""

    # Where things are

    def _store_at(self, at: str) -> Any:
        """The store of a version, but only of one that led to the served version."""
        if not at or at == self.snapshot_id:
            return self.store
        repo = self.repo
        if repo is None:
            raise VersionNotFoundError("there are no versions here")
        ancestry = partial(repo.ancestry, snapshot_id=self.snapshot_id)
        if at not in self._kept.get_or_make("ancestry", lambda: {snapshot.id for snapshot in ancestry()}):
            raise VersionNotFoundError("no version that is served")
        return self._kept.get_or_make(at, lambda: store_of(Version(snapshot_id=at).session(repo), repo))

    def _inside(self, path: str) -> str:
        """A path of the page as a path of the store; it never leaves the root."""
        segments = path.split("/") if path else []
        if any(s in ("", ".", "..") or "\\" in s or "\0" in s for s in segments):
            raise FileNotFoundError("no such array")
        return "/".join(filter(None, (self.root, path)))

    def _once(self, store: Any, name: Hashable, make: Callable[[], Any]) -> Any:
        """The result of `make`, which is made once if the store cannot change."""
        return self._kept.get_or_make(name, make) if is_immutable(store) else make()

    def _open(self, query: Query) -> Any:
        """An array in a version; opened once if it cannot change."""
        store, inside = self._store_at(query.at), self._inside(query.path)
        return self._once(store, ("open", query.at, inside), partial(open_any_array, store, inside))

    # What there is

    def arrays(self, query: Query) -> dict[str, Any]:
        """All arrays, by path; and how the page draws."""
        return {
            "title": plain(self.title),
            "arrays": list(islice(self._walk(self._store_at(query.at)), MAX_ARRAYS)),
            "snapshot": self.snapshot_id,
            "colours": list(COLOURS),
            "letters": LETTERS,
        }

    def _walk(self, store: Any) -> Iterator[dict[str, Any]]:
        """A few facts about every array; for a logical array that cannot be opened, that it is damaged."""
        root: Any = open_node(store, self.root)
        for path, node in [("", root)] if is_any_array(root) else nodes_below(root):
            entry = {"path": path, "logical": is_logical(node)}
            if is_any_array(node):
                try:
                    array: Any = reader(node)
                    yield entry | {"shape": list(array.shape), "dtype": type_text(array.data_type)}
                except FAILURES as error:
                    LOG.error("%s: %s", node.path, error)
                    yield entry | {"shape": [], "dtype": "?", "damaged": True}

    def array(self, query: Query) -> dict[str, Any]:
        """What an array is."""
        array = self._open(query)
        logical = isinstance(array, LogicalArray)
        attributes = dict(array.attrs)
        axes = []
        for axis, (name, size) in enumerate(zip(_names(array), array.shape, strict=True)):
            labels = self._labels(query, axis)
            axes.append(
                {
                    "name": plain(name or f"axis {axis}", 60),
                    "size": size,
                    "chunk": chunk_shape(array)[axis],
                    "labelled": labels is not None,
                    "units": labels.units if labels is not None else "",
                }
            )
        names = [attributes.get(name) for name in ("long_name", "standard_name")]
        units = attributes.get("units")
        return {
            "path": query.path,
            "shape": list(array.shape),
            "dtype": type_text(array.data_type),
            "kind": _kind(array.dtype),
            "logical": logical,
            "regions": len(array.manifest.regions) if logical else 0,
            "members": len(array.manifest.members) if logical else 0,
            "layers": list(array.manifest.layers) if logical else [0],
            "fill": plain(array.fill_value, 80),
            "nbytes": size_text(prod(array.shape) * array.dtype.itemsize),
            "axes": axes,
            "units": plain(units, 60) if isinstance(units, str) else "",
            "name": next((plain(name, 200) for name in names if name), ""),
            "attributes": [[plain(key, 100), plain(text)] for key, text in attribute_texts(attributes)],
        }

    def _labels(self, query: Query, axis: int) -> AxisLabels | None:
        array, store = self._open(query), self._store_at(query.at)
        where = store, self._inside(query.path), _names(array)[axis], array.shape[axis]
        name = ("labels", query.at, query.path, axis)
        labels: AxisLabels | None = self._once(store, name, partial(AxisLabels.beside, *where))
        return labels

    def labels(self, query: Query) -> dict[str, Any]:
        """Labels for positions on an axis; none if it has no coordinate, or one that cannot be read."""
        array, (axis,), places = self._open(query), query.numbers("axis"), query.numbers("places")
        if not 0 <= axis < array.ndim or len(places) > MAX_LABELS:
            raise BoundsError(f"at most {MAX_LABELS} places of one of {array.ndim} axes")
        inside = [place for place in places if 0 <= place < array.shape[axis]]
        labels = self._labels(query, axis)
        try:
            texts = labels.at(inside) if labels is not None else []
        except FAILURES:
            texts = []
        return {"labels": dict(zip(map(str, inside), texts, strict=False))}

    # Values

    def place(self, query: Query) -> dict[str, Any]:
        """One element: its value, its region, and the stored chunk that holds it."""
        array, point = self._open(query), tuple(query.numbers("index"))
        if len(point) != array.ndim or any(not 0 <= i < n for i, n in zip(point, array.shape, strict=True)):
            raise BoundsError(f"the index {point} is outside the shape {tuple(array.shape)}")
        answer: dict[str, Any] = {"index": list(point), "value": None, "region": None, "chunk": None}
        place = point
        if isinstance(array, LogicalArray):
            region = array.region_at(point)
            if region is None:
                return answer | {"value": f"{plain(array.fill_value, 80)} (fill value)"}
            answer["region"] = {
                "bounds": region.bounds,
                "member": plain(region.name, 80),
                "packing": None if region.packing is None else plain(region.packing, 200),
                "view": None if region.view is None else plain(region.view, 200),
            }
            try:
                member = region.member
            except FAILURES:
                return answer | {"error": "its member cannot be opened: see the log of the server"}
            one = Box(point, tuple(i + 1 for i in point))
            place = array.manifest.to_member(region.row, one).start
        else:
            member = array.zarr_array
        chunks = member.chunks if isinstance(array, LogicalArray) else chunk_shape(array)
        answer |= {"codecs": plain(short_codecs(member), 200), "chunks": chunks}
        answer["chunk"] = self._chunk(query.at, member, place)
        try:
            answer["value"] = texts_of(array[point], dict(array.attrs))[0]
        except FAILURES:
            answer["error"] = "this chunk cannot be read: see the log of the server"
        return answer

    def _chunk(self, at: str, member: zarr.Array[Any], place: tuple[int, ...]) -> dict[str, Any] | None:
        """The stored chunk (or shard) that holds an element of a member, and the file that it is in."""
        index: tuple[int, ...] = ()
        try:
            index = tuple(i // g for i, g in zip(place, object_shape(member), strict=True))
            store, key = member.store_path.store, f"{member.path}/{member.metadata.encode_chunk_key(index)}"
            if not isinstance(store, IcechunkStore):
                nbytes = size_text(sync(store.getsize(key)))
                return {"index": list(index), "file": plain(key), "nbytes": nbytes}
            make = partial(chunk_table, store, member.path, member.ndim)
            table: ChunkTable = self._once(store, ("chunks", at, member.path), make)
        except FileNotFoundError:
            return None
        except FAILURES:
            return {"index": list(index), "file": None, "nbytes": "?"}
        rows = np.flatnonzero(np.all(table.index == np.array(index, dtype=np.int64), axis=1))
        if not rows.size:
            return None
        row = int(rows[0])
        kind, named = int(table.kind[row]), {VIRTUAL: table.location[row], INLINE: "in the manifest"}
        return {
            "index": list(index),
            "nbytes": size_text(int(table.nbytes[row])),
            "offset": int(table.offset[row]),
            "virtual": kind == VIRTUAL,
            "file": plain(named.get(kind, "in the repository")),
        }

    # Regions and versions

    def regions(self, query: Query) -> dict[str, Any]:
        """The regions of a layer that a plane cuts, as rectangles in it; the plane extends along `axes`
        through `index`."""
        array, axes, index = self._open(query), query.numbers("axes"), query.numbers("index")
        layer = sum(query.numbers("layer"))
        if not isinstance(array, LogicalArray):
            return {"pipelines": [], "rectangles": [], "left_out": 0}
        if len(index) != array.ndim or len({*axes} & {*range(array.ndim)}) != len(axes):
            raise BoundsError(f"axes {tuple(axes)} and index {tuple(index)} of {array.ndim} axes")
        name = ("survey", query.at, query.path, layer, array.generation, array.manifest.members[:1])
        seen: Survey = self._kept.get_or_make(name, partial(survey, array, MAX_REQUESTS, layer))
        others = [axis for axis in range(array.ndim) if axis not in axes]
        fixed = np.array([index[axis] for axis in others], dtype=np.int64)
        crosses = np.all((seen.start[:, others] <= fixed) & (seen.stop[:, others] > fixed), axis=1)
        rows, columns = np.flatnonzero(crosses), list(axes)
        total = len(rows)
        if total > MAX_RECTANGLES:
            sizes = np.prod((seen.stop - seen.start)[rows][:, columns], axis=1)
            rows = np.sort(rows[np.argsort(-sizes, kind="stable")[:MAX_RECTANGLES]])
        kinds = seen.pipelines()
        boxes = [seen.start[rows][:, columns], seen.stop[rows][:, columns], seen.group[rows]]
        return {
            "pipelines": [
                {"label": plain(kind.codecs, 200), "place": kind.place, "cells": cells[1:]}
                for kind, cells in zip(kinds, Table.of(kinds, PIPELINE_COLUMNS).rows, strict=True)
            ],
            "rectangles": np.column_stack(boxes).tolist(),
            "left_out": total - len(rows),
        }

    def versions(self, query: Query) -> dict[str, Any]:
        """The versions of a logical array that led to the served one, oldest first."""
        repo = self.repo
        if repo is None:
            return {"versions": []}
        make = partial(self._history, repo, self._inside(query.path))
        versions: dict[str, Any] = self._kept.get_or_make(("versions", query.path), make)
        return versions

    def _history(self, repo: icechunk.Repository, path: str) -> dict[str, Any]:
        entries = history(repo, path, snapshot_id=self.snapshot_id, limit=MAX_VERSIONS)
        versions = []
        for entry in reversed(entries):
            if not entry.changes or entry.changes[0].shape_after is None:
                continue
            change = entry.changes[0]
            versions.append(
                {
                    "id": entry.snapshot_id,
                    "message": plain(entry.message, 200),
                    "when": f"{entry.written_at:%Y-%m-%d %H:%M} UTC",
                    "lines": [plain(line, 200) for line in change.lines()],
                    "boxes": [(region.kind, region.bounds) for region in change.regions[:MAX_CHANGES]],
                }
            )
        return {"versions": versions}

    def values(self, query: Query) -> tuple[bytes, dict[str, str]]:
        """Values, then one byte for each that says what it is; the headers give their number and type."""
        array = self._open(query)
        seen = sample(array, _spans(query.take, array.shape))
        if seen.problem:
            LOG.error("%s: %s", query.path, seen.problem)
        values = seen.values
        headers = {
            "X-Shape": ",".join(map(str, values.shape)),
            "X-Type": str(values.dtype),
            "X-Coarser": str(seen.coarser),
        }
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        return little.tobytes() + seen.status.tobytes(), headers

    # HTTP

    def routes(self) -> list[BaseRoute]:
        """The routes for the application, before those of the arrays."""
        from starlette.routing import Route

        return [
            Route("/", self._asset),
            *(Route(f"/{PREFIX}/{name}", self._answered(getattr(self, name))) for name in QUESTIONS),
            Route(f"/{PREFIX}/{{name}}", self._asset),
        ]

    # Files of the page

    async def _asset(self, request: Request) -> Response:
        from starlette.responses import Response

        name = request.path_params.get("name", "index.html")
        content = _assets().get(name)
        if content is None:
            return Response(status_code=404, headers=HEADERS)
        kind, _ = MimeTypes().guess_type(name)
        return Response(content, media_type=kind, headers={**HEADERS, "Cache-Control": "no-cache"})

    # Questions of the page

    def _answered(self, answer: Callable[[Any], Any]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint: threads answer, a few at a time, unless the page has lost interest."""
        from starlette.responses import JSONResponse, Response

        async def endpoint(request: Request) -> Response:
            if not self.is_open and request.headers.get("sec-fetch-site", "same-origin") not in (
                "same-origin",
                "none",
            ):
                # Another site could not read the answer, but it could keep this machine busy.
                return Response(status_code=403, headers=HEADERS)
            limit = self._limits.setdefault(answer == self.values, asyncio.Semaphore(AT_ONCE))
            try:
                async with limit:
                    if await request.is_disconnected():
                        return Response(status_code=499, headers=HEADERS)
                    content = await in_thread_for("views", lambda: answer(Query(request.query_params)))
            except Exception as error:
                status, words = _failure(request, error)
                return JSONResponse({"error": words}, status, HEADERS)
            if isinstance(content, dict):
                return JSONResponse(content, headers=HEADERS)
            body, more = content
            return Response(body, media_type="application/octet-stream", headers={**HEADERS, **more})

        return endpoint


def _names(array: StoredArray) -> tuple[str | None, ...]:
    return array.dimension_names or (None,) * array.ndim


def _kind(dtype: np.dtype[Any]) -> str:
    """How values look to people: numbers on a scale, times, true or false, or words."""
    return {"M": "time", "b": "bool"}.get(dtype.kind, "number" if dtype.kind in "iufcm" else "text")


@cache
def _assets() -> dict[str, bytes]:
    """The files of the page."""
    folder = files(__package__).joinpath("viewer_assets")
    return {asset.name: asset.read_bytes() for asset in folder.iterdir() if asset.is_file()}


def _failure(request: Request, error: Exception) -> tuple[int, str]:
    """The status of an answer that failed, and what the page says about it."""
    # No array can have a path that is too long.
    if isinstance(error, NOT_FOUND) or getattr(error, "errno", None) == errno.ENAMETOOLONG:
        return 404, "there is no such array or version"
    if isinstance(error, BoundsError):
        return 400, str(error)[:200]
    LOG.error("%s: %s", request.url.path, error)
    return 500, "this cannot be read: see the log of the server"


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
