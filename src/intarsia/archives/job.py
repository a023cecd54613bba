"""One ingest against a repository: plan, write, commit; again if another was faster; report."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, Any

import icechunk

from intarsia._icechunk import safe_store
from intarsia.archives.containers import with_containers
from intarsia.archives.dataset import Dataset
from intarsia.archives.parsing import REMOTE_THREADS
from intarsia.archives.planning import make_plan
from intarsia.archives.report import FileReport, IngestReport, Runs
from intarsia.archives.write import Writer
from intarsia.errors import ConcurrentUpdateError, IngestError, RepositoryNotFoundError
from intarsia.versions.backoff import Backoff
from intarsia.versions.commit import Commit
from intarsia.versions.failures import explained
from intarsia.versions.repository import describe, open_repository

if TYPE_CHECKING:
    from intarsia.archives.parsed import ParsedFile, Want
    from intarsia.archives.plan import Plan
    from intarsia.archives.reference import Rules
    from intarsia.archives.sources import Sources

__all__ = ["Job"]

SHOWN_PROBLEMS = 10


@dataclass
class Job:
    """Plans against the newest state, writes, commits; again from the newest state if another was faster."""

    target: Any
    """The repository, or where it is or will be; None for a dry run into nowhere."""

    urls: list[str]
    """All files that were named."""

    sources: Sources
    """Where they are."""

    want: Want
    """What is asked of each."""

    rules: Rules
    """How strict to be."""

    parser: Any
    """The caller's own parser, if he gave one."""

    group: str
    """The group that holds the dataset."""

    branch: str
    """The branch to commit to."""

    errors: str
    """Whether files that cannot be taken `raise` or are `skip`ped."""

    replace: bool
    """Whether files that changed are taken again."""

    parsed: list[ParsedFile] = field(default_factory=list)
    """Files that could be parsed."""

    failures: dict[str, str] = field(default_factory=dict)
    """Files that could not, and why."""

    unchanged: set[str] = field(default_factory=set)
    """Files that the dataset holds already."""

    def opened(self, *, create: bool = False) -> icechunk.Repository | None:
        """The repository; None if it does not exist yet and is not to be made."""
        if self.target is None or isinstance(self.target, icechunk.Repository):
            return self.target
        try:
            return open_repository(self.target, create=create)
        except RepositoryNotFoundError:
            return None

    def compared(self) -> tuple[set[str], set[str]]:
        """Of the files that are in the dataset: those whose content is the same, and those that changed."""
        repo = self.opened()
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

    def shown(self) -> IngestReport:
        """What a commit would do; nothing is written, and nothing raised."""
        repo = self.opened()
        dataset = Dataset() if repo is None else self._read(repo.readonly_session(self.branch))
        plan, unchanged = self._planned(dataset)
        return self._report(plan, dataset, unchanged, repo)

    def committed(self, message: str | None) -> IngestReport:
        """Write everything in one commit; a repository is made only when something is to go into it."""
        repo = self.opened()
        if repo is None:
            plan, unchanged = self._planned(Dataset())
            self._raise_if_asked(plan)
            if not plan.placed:
                return self._report(plan, Dataset(), unchanged, None)
            repo = self.opened(create=True)
        assert repo is not None
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
                Writer(
                    safe_store(session.store), self.group, plan, dataset, self.sources, self.parser
                ).write()
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
