"""`intarsia.ingest`: an archive of files as one dataset of logical arrays, by reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from intarsia.archives.job import Job
from intarsia.archives.normal import normal
from intarsia.archives.parsed import Failure, ParsedFile, Want
from intarsia.archives.parsing import parse_all
from intarsia.archives.reference import Rules
from intarsia.archives.sources import Sources
from intarsia.errors import IngestError
from intarsia.progress import silent

if TYPE_CHECKING:
    import os
    from concurrent.futures import Executor

    from intarsia.archives.report import IngestReport
    from intarsia.progress import Progress

__all__ = ["ingest"]


def ingest(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    repo: Any = None,
    *,
    concat_dim: str,
    variables: Iterable[str] | None = None,
    group: str = "",
    copy: Literal["needed", "all", "never"] = "needed",
    errors: Literal["raise", "skip"] = "raise",
    missing: Literal["raise", "fill"] = "raise",
    units: Literal["equal", "ignore"] = "equal",
    replace: bool = False,
    nulls: bool = False,
    dtype: Any = None,
    load: Iterable[str] = (),
    coordinate: Callable[[str], Any] | None = None,
    parser: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    workers: int | Executor | None = None,
    progress: Progress = silent,
    branch: str = "main",
    message: str | None = None,
    dry_run: bool = False,
) -> IngestReport:
    """Open an archive of files as one dataset: every variable one logical array, nothing copied, one commit.

    `files` are paths, URLs (s3://, gs://, https://) or globs of NetCDF, HDF5, Zarr, N5, TIFF or kerchunk
    references. Variables along `concat_dim` become logical arrays in `repo`, an `icechunk.Repository` or the
    path of one; their chunks are read where they are. A new region begins wherever compression, chunks, data
    type or packing change; packed values are unpacked on reading, and missing ones are NaN. Coordinates are
    loaded. Call it again to add what is new: files that are there already are recognised, and one that
    belongs in the middle is put there.

    A dry run writes nothing and returns the table of runs of equal encoding.

    `errors="skip"` leaves bad files out and takes the rest; the report says why. `copy` says whether data
    that cannot be referenced are copied. `missing="fill"` lets files lack a variable. `replace=True` takes
    files again that changed. With `nulls=True` missing values are null instead of NaN, and integers stay
    integers. `coordinate` gives the coordinate of a file that has none, from its URL.

    >>> import tempfile, h5py, numpy as np, intarsia
    >>> folder = tempfile.mkdtemp()
    >>> for day in range(3):
    ...     with h5py.File(f"{folder}/{day}.h5", "w") as file:
    ...         file["time"] = np.array([day])
    ...         file["sst"] = np.full((1, 4), day, dtype="f4")
    ...         file["time"].make_scale("time")
    ...         file["sst"].dims[0].attach_scale(file["time"])
    >>> report = intarsia.ingest(f"{folder}/*.h5", f"{folder}/repository", concat_dim="time")
    >>> print(report.summary)
    3 added
    >>> sst = intarsia.open(report.repository, "sst")
    >>> sst.shape, sst[2].tolist(), len(sst.regions)
    ((3, 4), [2.0, 2.0, 2.0, 2.0], 1)
    """
    want = Want(concat_dim, None if variables is None else tuple(variables), tuple(load))
    for name, value, allowed in (
        ("copy", copy, ("needed", "all", "never")),
        ("errors", errors, ("raise", "skip")),
        ("missing", missing, ("raise", "fill")),
        ("units", units, ("equal", "ignore")),
    ):
        if value not in allowed:
            raise IngestError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}")
    rules = Rules(copy, missing, units, _dtypes(dtype, want), nulls)
    if repo is None and not dry_run:
        raise IngestError("say where to: a repository or its path is needed (a dry run can do without)")
    sources = Sources(storage_options)
    urls = sources.expand(files)
    if not urls:
        raise IngestError(f"no file matches {files!r}")
    job = Job(repo, urls, sources, want, rules, parser, group, branch, errors, replace)
    job.unchanged, changed = job.compared()
    fresh = [url for url in urls if url not in job.unchanged]
    steps = len(fresh) + 1  # parsing every file, and the commit
    progress(0, steps)
    results: list[ParsedFile | Failure] = []
    for result in parse_all(fresh, sources, want, parser, workers):
        results.append(normal(result, concat_dim, coordinate))
        progress(len(results), steps)
    job.parsed = [result for result in results if isinstance(result, ParsedFile)]
    job.failures = {result.url: result.reason for result in results if isinstance(result, Failure)}
    if not replace:
        for url in changed:
            job.failures.setdefault(url, "it changed since it was ingested (replace=True takes it again)")
        job.parsed = [file for file in job.parsed if file.url not in changed]
    report = job.shown() if dry_run else job.committed(message)
    progress(steps, steps)
    return report


def _dtypes(dtype: Any, want: Want) -> dict[str, np.dtype[Any]]:
    if dtype is None:
        return {}
    if isinstance(dtype, Mapping):
        return {str(name): np.dtype(kind) for name, kind in dtype.items()}
    if want.variables is None:
        raise IngestError("name the variables that a dtype is for: dtype={'name': 'float32'}")
    return {name: np.dtype(dtype) for name in want.variables}
