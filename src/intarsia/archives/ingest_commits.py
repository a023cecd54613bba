"""From batches of files to commits: each batch is drafted, written and committed, for all datasets together.

A draft is made against the newest state of the datasets; if another writer was faster, it is made again.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import partial
from typing import Any

import icechunk

from intarsia._icechunk import safe_store
from intarsia.archives.dataset import Dataset, unopened_tree
from intarsia.archives.dataset_ingestion import DatasetIngestion
from intarsia.archives.groups import Bare, Groups, merged
from intarsia.archives.ingest_batches import BATCH_BYTES, Progressed, usual_files
from intarsia.archives.ingest_report import IngestReport
from intarsia.archives.plan.axis_union import GrownAxis
from intarsia.archives.plan.cube import WholeNeededError
from intarsia.archives.plan.draft import Draft
from intarsia.archives.plan.member_allocation import Stretches
from intarsia.archives.relocation import accept_restored
from intarsia.archives.source_access import with_containers
from intarsia.archives.splitting import with_splitting, with_whole_members
from intarsia.archives.write_plan import Written
from intarsia.errors import IngestError
from intarsia.logical.hierarchy import joined_path
from intarsia.progress import Progress
from intarsia.versions.access import opened_anew
from intarsia.versions.commit import Commit, settle


@dataclass
class Ingestion:
    """One call of `ingest`: the datasets that the files go into, and their commits, one per batch."""

    parts: list[DatasetIngestion]
    """One dataset, or one for every group of the files that has data."""

    bare: list[Bare] = field(default_factory=list)
    """Groups of the files without data."""

    above: str | None = None
    """The group that holds the datasets of all groups; None if only one group is ingested."""

    grown: GrownAxis | None = field(init=False, default=None)
    """What the last commit did to the first dimension; None if there are several datasets."""

    @classmethod
    def of_all_groups(cls, whole: DatasetIngestion) -> "Ingestion":
        """Take every group of the files, each as its own dataset."""
        if not whole.want.dims:
            raise IngestError("source_group='*' needs concat_dim=: each group has its own coordinates")
        groups = Groups.of(whole.urls, whole.sources, with_fields(whole.want, group=""), whole.parser)
        if not groups.with_data:
            raise IngestError(groups.words_of_no_data(whole.urls))
        parts = [
            with_fields(
                whole,
                want=with_fields(whole.want, group=path),
                group=joined_path(whole.group, path),
                urls=[*urls, *groups.unreadable],
                unreadable=groups.unreadable,
            )
            for path, urls in groups.with_data.items()
        ]
        return cls(parts, groups.bare, whole.group)

    @property
    def first(self) -> DatasetIngestion:
        """The dataset, or that of the first group; all share the same repository and branch."""
        return self.parts[0]

    @property
    def alone(self) -> bool:
        """Whether there is one dataset."""
        return len(self.parts) == 1

    def batches(
        self, urls: Sequence[str], most: int | None, progress: Progress, *, bounded: bool
    ) -> Generator[None]:
        """Parse what the datasets do not hold yet; each time, the next batch is in `parsed`.

        There is at least one batch, which may be empty. It has at most `most` files, or the default number.
        """
        for part in self.parts:
            part.compare()
        fresh = {part.want.group: dict.fromkeys(part.fresh()) for part in self.parts}
        wanted = [url for url in urls if any(url in own for own in fresh.values())]
        steps = len(wanted) + 1  # parsing every file, and the commit
        progress(0, steps)
        streams = [(part, fresh[part.want.group], part.parse(fresh[part.want.group])) for part in self.parts]
        count = held = 0
        for done, url in enumerate(wanted, start=1):
            for part, own, results in streams:
                if url in own:
                    held += part.take(next(results))
            count += 1
            progress(done, steps)
            full = count >= (most or usual_files(done - count)) or (bounded and held >= BATCH_BYTES)
            if done < len(wanted) and full:
                self._declare()
                yield
                count = held = 0
        self._declare()
        yield
        progress(steps, steps)

    def _declare(self) -> None:
        for part in self.parts:
            part.declare()

    def shown(self, batches: Generator[None], options: Iterable[str]) -> IngestReport:
        """What a commit would do; nothing is written or raised."""
        for _ in batches:  # there is only one
            report = merged({part.want.group: part.shown(options) for part in self.parts}, self.bare)
        return report

    def committed(self, batches: Generator[None], urls: Sequence[str], message: str | None) -> IngestReport:
        """Commit every batch; returns one report for all."""
        progressed = Progressed()
        with closing(batches):  # whatever happens, parsing stops
            for number, _ in enumerate(batches):
                if number:
                    self._open_anew()
                self._accept_restored()
                report = self._committed(message)
                progressed.add(report, self.grown)
                for part in self.parts:
                    part.begin_batch(report.repository, progressed.added)
        unchanged = {url for part in self.parts for url in part.unchanged}
        return progressed.report(report, urls, unchanged)

    def _open_anew(self) -> None:
        """Release the references of earlier batches, which Icechunk would keep in memory."""
        repo = self.first.opened()
        anew = None if repo is None else opened_anew(repo)
        for part in self.parts if anew is not None else ():
            part.target = anew

    def _accept_restored(self) -> None:
        """First of all, make files readable again that were restored without their times."""
        restored = {url: identity for part in self.parts for url, identity in part.restored.items()}
        repo = self.first.opened() if restored else None
        if repo is not None:
            repo = accept_restored(repo, restored, self.first.branch, self.first.sources)
            for part in self.parts:
                part.target, part.restored = repo, {}

    def _committed(self, message: str | None) -> IngestReport:
        """Write a batch in one commit; a repository is created only if something goes into it."""
        repo = self.first.opened()
        ready: list[tuple[Draft, set[str]]] | None = None
        if repo is None:
            ready = self._drafted_together([Dataset() for _ in self.parts])
            for part, (draft, _) in zip(self.parts, ready, strict=True):
                part.raise_if_asked(draft)
            if not any(draft.placed for draft, _ in ready):
                return self._merged(ready, [Dataset() for _ in self.parts], None)
        repo = repo or self.first.opened(create=True)
        assert repo is not None
        commit = Commit(repo, self.first.branch, message or "ingest")
        attempts: list[tuple[IngestReport, Written | str]] = []

        def prepare() -> Written | str:
            nonlocal ready
            report, prepared = self._written(commit.repo, ready)
            ready = None  # it was written into, and another writer was faster
            commit.message = message or f"ingest: {report.summary}"
            attempts.append((report, prepared))
            return prepared

        snapshot = settle(commit, prepare)
        report, prepared = attempts[-1]
        return report if isinstance(prepared, str) else with_fields(report, snapshot_id=snapshot)

    def _written(
        self, repo: icechunk.Repository, ready: list[tuple[Draft, set[str]]] | None = None
    ) -> tuple[IngestReport, Written | str]:
        """Draft everything and write it into a session; if nothing is new, return the current snapshot.

        `ready` are the drafts of new datasets, if they were already made.
        """
        while True:
            session = repo.writable_session(self.first.branch)
            datasets, drafted = self._drafted_in(session, ready)
            drafts = [draft for draft, _ in drafted]
            for part, draft in zip(self.parts, drafts, strict=True):
                part.raise_if_asked(draft)
            locations = {url for draft in drafts for url in draft.locations()}
            split = partial(self._split, drafts)
            options = self.first.sources.options
            reopened, prefixes = with_containers(repo, locations, self._folders(), options, split)
            report = with_fields(self._merged(drafted, datasets, reopened), containers=prefixes)
            self.grown = drafts[0].cube.axes[0] if self.alone else None
            if not any(draft.placed for draft in drafts):
                return report, session.snapshot_id
            handle = self._filling(reopened, drafts, datasets)
            if handle is not repo:  # a session keeps the configuration that it began with
                repo, drafted_at, session = (
                    reopened,
                    session.snapshot_id,
                    handle.writable_session(self.first.branch),
                )
                if session.snapshot_id != drafted_at:
                    continue
                if datasets[0].origin:
                    datasets = [self.first.read_end(session) or datasets[0]]
                else:
                    datasets = [part.read(session) for part in self.parts]
            store, fit = safe_store(session.store), True
            for part, draft, dataset in zip(self.parts, drafts, datasets, strict=True):
                fit &= not draft.placed or part.write(store, draft, dataset)
            if fit:
                if self.above is not None:
                    self._write_bare(store, self.above, drafts)
                return report, Written(session)
            ready = None  # without what was left out, everything may be different

    def _merged(
        self,
        drafted: Sequence[tuple[Draft, set[str]]],
        datasets: Sequence[Dataset],
        repo: icechunk.Repository | None,
    ) -> IngestReport:
        """One report of what the drafts do."""
        return merged(
            {
                part.want.group: part.report(draft, dataset, unchanged, repo)
                for part, dataset, (draft, unchanged) in zip(self.parts, datasets, drafted, strict=True)
            },
            self.bare,
        )

    def _write_bare(self, store: Any, above: str, drafts: Sequence[Draft]) -> None:
        """Write the groups without data; then all groups must open as one tree."""
        by_group = {part.want.group: draft for part, draft in zip(self.parts, drafts, strict=True)}
        for bare in self.bare:
            bare.write(store, above, by_group)
        if problem := unopened_tree(store, above):
            raise IngestError(
                f"the groups of the files do not open as one tree, so nothing was written: {problem}\n"
                "  Ingest such groups one by one: source_group= names one, and group= where it goes"
            )

    def _drafted_in(
        self, session: icechunk.Session, ready: list[tuple[Draft, set[str]]] | None
    ) -> tuple[list[Dataset], list[tuple[Draft, set[str]]]]:
        """The datasets as they are in a session, and their drafts; `ready` are those of new ones.

        Files that go after all others need only the end of the dataset, whatever its length.
        """
        end = self.first.read_end(session) if self.alone and not self.first.again else None
        if end is not None:
            with suppress(WholeNeededError):
                return [end], self._drafted_together([end])
        datasets = [part.read(session) for part in self.parts]
        if ready and all(dataset.is_new for dataset in datasets):
            return datasets, ready
        return datasets, self._drafted_together(datasets)

    def _drafted_together(self, datasets: Sequence[Dataset]) -> list[tuple[Draft, set[str]]]:
        """The drafts of all datasets; a file that one of them refuses goes into none."""
        while True:
            drafted = [part.drafted(dataset) for part, dataset in zip(self.parts, datasets, strict=True)]
            refused = {url: why for draft, _ in drafted for url, why in draft.refused.items()}
            left = [part for part in self.parts if any(file.url in refused for file in part.parsed)]
            if len(drafted) == 1 or not left:
                return drafted
            for part in left:
                part.failures |= {file.url: refused[file.url] for file in part.parsed if file.url in refused}
                part.parsed = [file for file in part.parsed if file.url not in refused]

    def _split(self, drafts: Sequence[Draft], config: icechunk.RepositoryConfig) -> bool:
        """Split manifests of references along the dimension that grows; returns whether `config` changed."""
        changed = [
            with_splitting(config, part.group, draft.arrays.values(), draft.cube.dims)
            for part, draft in zip(self.parts, drafts, strict=True)
            if draft.placed
        ]
        return any(changed)

    def _filling(
        self, repo: icechunk.Repository, drafts: Sequence[Draft], datasets: Sequence[Dataset]
    ) -> icechunk.Repository:
        """The repository; if this commit fills members, a handle that gives each of them one manifest."""
        config, filled = repo.config, False
        for part, draft, dataset in zip(self.parts, drafts, datasets, strict=True):
            known, groups = draft.ledger.members, dataset.logical_groups
            full = [
                (array, names)
                for name, array in draft.arrays.items()
                if (names := Stretches(array, known.get(name, {}), groups.get(name)).full)
            ]
            if full:
                config, filled = with_whole_members(config, part.group, full), True
        return repo.reopen(config=config) if filled else repo

    def _folders(self) -> set[str]:
        """The directories of all files."""
        return {url.rpartition("/")[0] + "/" for url in self.first.urls}
