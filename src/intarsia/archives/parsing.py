"""Parsing many files at once: in turn, in threads or in other processes; a bad file never stops the rest."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.formats import format_for, format_of
from intarsia.archives.parsed import Failure, ParsedFile
from intarsia.archives.sources import scheme_of
from intarsia.errors import MissingExtraError
from intarsia.parallel import check_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from intarsia.archives.parsed import Want
    from intarsia.archives.sources import Sources

__all__ = ["parse_all", "parse_one"]

REMOTE_THREADS = 16
"""Parsing a remote file is mostly waiting."""


def parse_one(url: str, sources: Sources, want: Want, parser: Any = None) -> ParsedFile | Failure:
    """One file; what is wrong with it is an answer, not an error."""
    try:
        before = sources.identity(url)
        if before.size == 0:
            return Failure(url, "the file is empty")
        format = format_of(url, sources) if parser is None else format_for(parser)
        parsed = format.parse(url, sources, want)
        if parsed.identity != before:
            return Failure(url, "the file changed while it was read")
        problem = _beyond_the_end(parsed)
        return Failure(url, problem) if problem else parsed
    except MissingExtraError:
        raise  # the same for every file, and not the file's fault
    except Exception as error:
        return Failure(url, f"{type(error).__name__}: {' '.join(str(error).split())}")


def _beyond_the_end(parsed: ParsedFile) -> str:
    """Whether a reference points past the end of its file, as in one that was cut off."""
    for variable in parsed.variables.values():
        references = variable.references
        if (
            references is None
            or not isinstance(references.locations, str)
            or references.locations != parsed.url
        ):
            continue
        end = int((references.offsets + references.lengths)[references.lengths > 0].max(initial=0))
        if end > parsed.identity.size:
            return (
                f"the file is truncated: a chunk of {variable.name!r} ends at byte {end}, "
                f"but there are {parsed.identity.size}"
            )
    return ""


def parse_all(
    urls: list[str], sources: Sources, want: Want, parser: Any = None, workers: int | Executor | None = None
) -> Iterator[ParsedFile | Failure]:
    """Every file, in the order of `urls`.

    `workers` is a number of threads, or an executor. Threads help with remote files; for many local ones
    hand in a `ProcessPoolExecutor`. By default remote files are parsed in threads and local ones in turn.
    """
    job = partial(parse_one, sources=sources, want=want, parser=parser)
    known: dict[bytes, Any] = {}
    with _mapped(job, urls, workers) as results:
        for result in results:
            if isinstance(result, ParsedFile):
                _share(result, known)
            yield result


@contextmanager
def _mapped(job: Any, urls: list[str], workers: int | Executor | None) -> Iterator[Iterable[Any]]:
    remote = any(scheme_of(url) != "file" for url in urls)
    if workers is None:
        workers = REMOTE_THREADS if remote else 1
    if isinstance(workers, Executor):
        if remote:
            check_client(workers)
        yield workers.map(job, urls, chunksize=max(1, min(32, len(urls) // 16)))
    elif workers <= 1 or len(urls) < 2:
        yield map(job, urls)
    else:
        pool = ThreadPoolExecutor(max_workers=workers)
        try:
            yield pool.map(job, urls)
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C nobody wants the files that are left


def _share(parsed: ParsedFile, known: dict[bytes, Any]) -> None:
    """Grids that are the same in every file are kept in memory once."""
    for variable in parsed.variables.values():
        values = variable.values
        if variable.role != "static" or values is None or values.dtype.kind not in "biufc":
            continue
        key = np.ascontiguousarray(values).tobytes() if values.nbytes <= 64 else _digest(values)
        same = known.get(key)
        if same is not None and same.dtype == values.dtype and same.shape == values.shape:
            variable.values = same
        else:
            known[key] = values


def _digest(values: np.ndarray[Any, Any]) -> bytes:
    from hashlib import blake2b

    return blake2b(np.ascontiguousarray(values).view("u1").data, digest_size=16).digest()
