"""`intarsia.ingest`: an archive of files as one dataset of logical arrays, by reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, Any, Literal

import icechunk
import numpy as np

from intarsia.errors import ConcurrentUpdateError, IngestError, RepositoryNotFoundError
from intarsia.ingest.containers import with_containers
from intarsia.ingest.dataset import Dataset
from intarsia.ingest.parsed import Failure, ParsedFile, ParsedVariable, Want
from intarsia.ingest.parsing import REMOTE_THREADS, parse_all
from intarsia.ingest.pieces import with_new_axis
from intarsia.ingest.planning import make_plan
from intarsia.ingest.reference import Rules
from intarsia.ingest.report import FileReport, IngestReport, Runs
from intarsia.ingest.sources import Sources
from intarsia.ingest.write import Writer
from intarsia.progress import silent
from intarsia.versions.backoff import Backoff
from intarsia.versions.commit import Commit
from intarsia.versions.failures import explained
from intarsia.versions.repository import describe, open_repository

if TYPE_CHECKING:
    import os

    from intarsia.ingest.plan import Plan
    from intarsia.progress import Progress

__all__ = ["ingest"]

SHOWN_PROBLEMS = 10


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
    job = _Job(urls, sources, want, rules, parser, group, branch, errors, dry_run)
    repository = _opened(repo, create=not dry_run)
    unchanged, changed = job.compared(repository)
    fresh = [url for url in urls if url not in unchanged]
    steps = len(fresh) + 1  # parsing every file, and the commit
    progress(0, steps)
    results: list[ParsedFile | Failure] = []
    for result in parse_all(fresh, sources, want, parser, workers):
        results.append(_normal(result, concat_dim, coordinate))
        progress(len(results), steps)
    job.parsed = [result for result in results if isinstance(result, ParsedFile)]
    job.failures = {result.url: result.reason for result in results if isinstance(result, Failure)}
    job.unchanged, job.replace = unchanged, replace
    if not replace:
        for url in changed:
            job.failures.setdefault(url, "it changed since it was ingested (replace=True takes it again)")
        job.parsed = [file for file in job.parsed if file.url not in changed]
    report = job.run(repository, message)
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


def _opened(repo: Any, *, create: bool) -> icechunk.Repository | None:
    if repo is None or isinstance(repo, icechunk.Repository):
        return repo
    try:
        return open_repository(repo, create=create)
    except RepositoryNotFoundError:
        return None  # a dry run into a repository that is still to be made


def _normal(
    result: ParsedFile | Failure, dim: str, coordinate: Callable[[str], Any] | None
) -> ParsedFile | Failure:
    """A file that is one step gets the axis that it lacks; and every file its coordinate."""
    if isinstance(result, Failure):
        return result
    _name_units_of_bounds(result)
    if result.new_dim:
        for variable in result.variables.values():
            if variable.role == "data":
                with_new_axis(variable, dim)
            elif variable.role == "joined" and variable.values is not None:
                variable.dims, variable.shape = (dim,), (1,)
                variable.values = variable.values.reshape(1)
    if coordinate is not None and dim not in result.variables:
        try:
            values = np.atleast_1d(np.asarray(coordinate(result.url)))
        except Exception as error:
            return Failure(result.url, f"coordinate() failed for it: {error}")
        attrs: dict[str, Any] = {}
        if values.dtype.kind == "M":
            values = values.astype("datetime64[ns]").astype("i8")
            attrs = {"units": "nanoseconds since 1970-01-01", "calendar": "proleptic_gregorian"}
        elif values.dtype.kind in "US":
            values = values.astype(np.dtypes.StringDType())
        result.variables[dim] = ParsedVariable(
            dim, "joined", (dim,), values.shape, attrs, values.dtype, values=values
        )
    return result


def _name_units_of_bounds(file: ParsedFile) -> None:
    """Bounds are counted like the coordinate that they belong to, which CF says once."""
    for variable in file.variables.values():
        attrs = variable.attrs
        bounds = file.variables.get(str(attrs.get("bounds", attrs.get("climatology", ""))))
        if bounds is not None and bounds.role == "joined" and " since " in str(attrs.get("units", "")):
            for key in {"units", "calendar"} & attrs.keys():
                bounds.attrs.setdefault(key, attrs[key])


@dataclass
class _Job:
    """Plans against the newest state, writes, commits; again from the newest state if another was faster."""

    urls: list[str]
    sources: Sources
    want: Want
    rules: Rules
    parser: Any
    group: str
    branch: str
    errors: str
    dry_run: bool
    parsed: list[ParsedFile] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)
    replace: bool = False

    def compared(self, repo: icechunk.Repository | None) -> tuple[set[str], set[str]]:
        """Of the files that are in the dataset: those whose content is the same, and those that changed."""
        if repo is None:
            return set(), set()
        ledger = Dataset.read_ledger(repo.readonly_session(self.branch).store, self.group)
        known = dict(zip(ledger.locations, ledger.contents, strict=True))
        there = [url for url in self.urls if url in known]

        def content(url: str) -> str:
            try:
                return self.sources.identity(url).text
            except OSError as error:
                return f"unreadable: {error}"

        if not there:
            return set(), set()
        with ThreadPoolExecutor(max_workers=REMOTE_THREADS) as pool:
            found = dict(zip(there, pool.map(content, there), strict=True))
        same = {url for url in there if found[url] == known[url]}
        return same, set(there) - same

    def run(self, repo: icechunk.Repository | None, message: str | None) -> IngestReport:
        """The report of the commit, or of what it would be."""
        if self.dry_run or repo is None:
            dataset = Dataset() if repo is None else self._read(repo.readonly_session(self.branch))
            plan, unchanged = self._planned(dataset)
            return self._report(plan, dataset, unchanged, repo)
        for _ in Backoff().tries():
            session = repo.writable_session(self.branch)
            dataset = self._read(session)
            plan, unchanged = self._planned(dataset)
            self._raise_if_asked(plan)
            report = self._report(plan, dataset, unchanged, repo)
            repo, prefixes = with_containers(repo, _referenced(plan), self.urls, self.sources.options)
            if not plan.placed:
                return with_fields(report, repository=repo, containers=prefixes)
            if repo is not report.repository:  # a session knows the containers that it began with
                planned_at, session = session.snapshot_id, repo.writable_session(self.branch)
                dataset = self._read(session)
                if session.snapshot_id != planned_at:
                    continue
            with explained(describe(repo)):
                Writer(session.store, self.group, plan, dataset, self.sources, self.parser).write()
                try:
                    commit = Commit(repo, self.branch, message or f"ingest: {report.summary}")
                    snapshot = commit.make(session)
                except icechunk.ConflictError:
                    continue
            return with_fields(report, snapshot_id=snapshot, repository=repo, containers=prefixes)
        raise ConcurrentUpdateError(message or "ingest", self.branch, ["the branch moved at every attempt"])

    def _read(self, session: icechunk.Session) -> Dataset:
        return Dataset.read(session.store, self.group)

    def _planned(self, dataset: Dataset) -> tuple[Plan, set[str]]:
        """The plan, and the files that another process added meanwhile or that were there before."""
        entries = {url: i for i, url in enumerate(dataset.ledger.locations)}
        twice = set() if self.replace else {file.url for file in self.parsed if file.url in entries}
        files = [file for file in self.parsed if file.url not in twice]
        plan = make_plan(files, dataset, self.want, self.rules, entries)
        plan.refused |= self.failures
        return plan, self.unchanged | twice

    def _raise_if_asked(self, plan: Plan) -> None:
        if self.errors == "skip" or not plan.refused:
            return
        listed = [f"{url}: {reason}" for url, reason in plan.refused.items()]
        more = [f"… and {len(listed) - SHOWN_PROBLEMS} more"] if len(listed) > SHOWN_PROBLEMS else []
        head = f"{len(listed)} of {len(self.urls)} files cannot be taken, and nothing was written:"
        tail = "errors='skip' takes the others"
        raise IngestError("\n  ".join([head, *listed[:SHOWN_PROBLEMS], *more, tail]))

    def _report(
        self, plan: Plan, dataset: Dataset, unchanged: set[str], repo: icechunk.Repository | None
    ) -> IngestReport:
        placed = {file.url: (start, length) for file, start, length in plan.placed}
        before = set(dataset.ledger.locations)
        copied = _copied(plan)
        files = []
        for url in self.urls:
            if url in placed:
                status: Any = "replaced" if url in before else "added"
                files.append(FileReport(url, status, *placed[url], copied.get(url, "")))
            elif url in plan.refused:
                files.append(FileReport(url, "failed", reason=plan.refused[url]))
            elif url in unchanged:
                files.append(FileReport(url, "unchanged"))
        runs = plan.runs() if plan.placed else Runs(())
        return IngestReport(runs, tuple(files), repository=repo, left_out=plan.left_out)


def _referenced(plan: Plan) -> set[str]:
    """Every location that a reference of the plan points to."""
    return {
        url
        for array in plan.arrays.values()
        for share in array.shares
        if share.variable.references is not None and not all(piece.by_copy for piece in share.pieces)
        for url in share.variable.references.urls()
    }


def _copied(plan: Plan) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name, array in plan.arrays.items():
        for share in array.shares:
            for piece in share.pieces:
                if piece.encoding.copy_reason:
                    found.setdefault(share.file.url, []).append(
                        f"{name!r} copied: {piece.encoding.copy_reason}"
                    )
    return {url: "; ".join(dict.fromkeys(reasons)) for url, reasons in found.items()}
