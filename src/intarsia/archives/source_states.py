"""What has become of source files: their content compared with the known content, in few requests."""

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from typing import Literal

from intarsia.archives.locations import Identity, Sources, identity_in, is_glob, split_entry, url_of
from intarsia.errors import IngestError
from intarsia.extras import extra
from intarsia.versions.access import scheme_of

type State = Literal["present", "changed", "gone", "unreachable"]
"""What has become of a source since it was ingested."""

HEADS_AT_ONCE = 16
"""How many sources are asked for their identity at once."""

LISTED_SCHEMES = ("s3", "gs", "az")
"""Stores whose listings give sizes and marks."""

LEAST_LISTED = 20
"""If there are fewer sources than this, each is asked for separately."""

LISTED_BESIDE, LISTED_PAGES = 4, 10_000
"""A listing is abandoned after this many objects per requested one, plus this many."""


def check_states(sources: Sources, known: Mapping[str, str]) -> dict[str, State]:
    """Whether sources still have their known content, by URL."""
    failures = extra("obstore.exceptions", "virtual").BaseError
    known = {url: split_entry(entry)[0] for url, entry in known.items()}

    def state(url: str) -> State:
        try:
            return "present" if sources.identity(url).text == known[url] else "changed"
        except FileNotFoundError:
            return "gone"
        except (OSError, failures):
            return "unreachable"

    listed = _listed(sources, known)
    found: dict[str, State] = {url: "present" for url in known if listed.get(url) == known[url]}
    found |= for_each([url for url in known if url not in found], state)
    return {url: found[url] for url in known}


def for_each[R](urls: Iterable[str], function: Callable[[str], R]) -> dict[str, R]:
    """The result of a function that waits for a store, for every URL; in a few threads."""
    names = list(urls)
    shares = [names[i::HEADS_AT_ONCE] for i in range(min(HEADS_AT_ONCE, len(names)))]
    found: dict[str, R] = {}
    with ThreadPoolExecutor(max_workers=HEADS_AT_ONCE) as pool:
        results = pool.map(lambda share: [function(url) for url in share], shares)
        for share, values in zip(shares, results, strict=True):
            found |= dict(zip(share, values, strict=True))
    return {name: found[name] for name in names}


def find_restored(sources: Sources, known: Mapping[str, str]) -> dict[str, Identity]:
    """Changed sources that hold the same bytes as before, with what identifies them now."""
    failures = extra("obstore.exceptions", "virtual").BaseError

    def same(url: str) -> Identity | None:
        text, digest = split_entry(known[url])
        try:
            identity = sources.identity(url)
            if not digest or text.split(" ")[0] != str(identity.size):
                return None
            found = sources.digest(url, identity)
            return identity if found == digest and sources.identity(url) == identity else None
        except (OSError, failures):
            return None

    return {url: identity for url, identity in for_each(known, same).items() if identity is not None}


def content_marks(sources: Sources, files: Iterable[str]) -> dict[str, str]:
    """Everything that was named, in order, with a mark of its content; in as few requests as possible.

    Local files are given by their paths, others by their URLs. Missing files have no mark. If many files are
    in one place of a bucket, their marks come from a listing.
    """
    marks: dict[str, str] = {}
    alone: list[str] = []
    for name in files:
        if "://" in name:
            marks |= sources.objects(name) if is_glob(name) else {name: ""}
            alone += [] if is_glob(name) else [name]
            continue
        for path in sorted(glob(name, recursive=True)) if is_glob(name) else [name]:
            mark = _local_mark(sources, path)
            if mark is not None:
                marks[path] = mark
    marks |= _marks_of(sources, alone)
    return {name: mark for name, mark in marks.items() if mark}


def _local_mark(sources: Sources, path: str) -> str | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return sources.identity(url_of(path)).text
    return f"{status.st_size} {status.st_mtime_ns}"


def _marks_of(sources: Sources, urls: list[str]) -> dict[str, str]:
    """Marks of individual objects; if many are in one place, from a listing."""
    marks = _listed(sources, urls) if urls else {}
    left = [url for url in urls if url not in marks]
    failures = extra("obstore.exceptions", "virtual").BaseError

    def mark(url: str) -> str:
        try:
            return sources.identity(url).text
        except FileNotFoundError:
            return ""
        except failures as error:
            raise IngestError(f"{url} cannot be reached: {error}") from error

    return marks | for_each(left, mark)


def _listed(sources: Sources, known: Iterable[str]) -> dict[str, str]:
    """What identifies the content of sources according to listings: a thousand in one request.

    Empty if a store has no listing or does not return it, or if most of it would be other objects: then every
    source is asked for separately.
    """
    by_root: dict[str, list[str]] = {}
    for url in known:
        if scheme_of(url) in LISTED_SCHEMES:
            by_root.setdefault("/".join(url.split("/", 3)[:3]), []).append(url)
    failures = extra("obstore.exceptions", "virtual").BaseError
    found: dict[str, str] = {}
    for urls in by_root.values():
        if len(urls) < LEAST_LISTED:
            continue
        store, _ = sources.resolve(urls[0])
        places = {sources.resolve(url)[1]: url for url in urls}
        folder = os.path.commonpath([path.rpartition("/")[0] for path in places])
        seen, most = 0, LISTED_BESIDE * len(urls) + LISTED_PAGES
        try:
            for batch in extra("obstore", "virtual").list(store, folder):
                for meta in batch:
                    path = meta["path"]
                    if path in places:
                        found[places[path]] = identity_in(places[path], meta).text
                seen += len(batch)
                if seen > most:
                    break
        except (OSError, failures):
            continue
    return found
