"""How files get into one dataset: compared with what it has, parsed, drafted, written and reported."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any

import icechunk

from intarsia.archives import source_states
from intarsia.archives.dataset import Dataset, schema_of, unopened
from intarsia.archives.ingest_arguments import Told, as_wanted, differing
from intarsia.archives.ingest_batches import bytes_held
from intarsia.archives.ingest_report import FileReport, IngestReport, Runs, runs_of, words_of_refused
from intarsia.archives.lint_findings import drifts_of
from intarsia.archives.locations import Identity, Sources
from intarsia.archives.parse import made_alike, parse_all, parse_one
from intarsia.archives.parse_pool import Engine
from intarsia.archives.parsed_file import Failure, ParsedFile, Want, without_data
from intarsia.archives.plan.compatibility import Rules
from intarsia.archives.plan.draft import Draft, make_draft
from intarsia.archives.write_plan import Writer
from intarsia.errors import IngestError, RepositoryNotFoundError
from intarsia.versions.repository import open_repository


@dataclass
class DatasetIngestion:
    """Files that were named, on their way into one dataset, batch by batch."""

    target: Any
    """The repository, or where it is or will be; None for a dry run without one."""

    urls: list[str]
    """All files that were named."""

    sources: Sources
    want: Want
    rules: Rules
    parser: Any
    """The caller's own parser, if given."""

    group: str
    """The group that holds the dataset."""

    branch: str
    errors: str
    """Whether files that cannot be taken `raise` or are `skip`ped."""

    replace: bool
    """Whether changed files are taken again."""

    told: Mapping[str, Told] = field(default_factory=dict)
    """Where coordinates that are not in the files come from."""

    schema: Any = None
    """What the caller declared; files are checked against it."""

    engine: Engine = None
    """What parses the files."""

    coordinate: Callable[[str], Any] | None = None
    """Returns the coordinate of a file from its URL; if it returns None, the file's own stays."""

    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Files that cannot be read, and why: something is wrong outside of the group that is ingested."""

    parsed: list[ParsedFile] = field(init=False, default_factory=list)
    """Files of this batch that could be parsed."""

    again: list[ParsedFile] = field(init=False, default_factory=list)
    """Files already in the dataset, parsed again for variables that it does not have."""

    failures: dict[str, str] = field(init=False, default_factory=dict)
    """Files of this batch that could not be parsed, and why."""

    unchanged: set[str] = field(init=False, default_factory=set)
    """Files already in the dataset, with the same content."""

    changed: set[str] = field(init=False, default_factory=set)
    """Files already in the dataset, with different content."""

    restored: dict[str, Identity] = field(init=False, default_factory=dict)
    """Files with another modification time but the same bytes, and what identifies them now."""

    compared: str = field(init=False, default="")
    """The snapshot that the files were compared with."""

    before: int = field(init=False, default=0)
    """How many files the earlier batches added."""

    def compare(self) -> None:
        """Find out which files are in the dataset, with the same or with different content."""
        repo = self.opened()
        if repo is None:
            return
        session = repo.readonly_session(self.branch)
        self.compared = session.snapshot_id
        known = Dataset.entries(session.store, self.group, self.urls)
        states = source_states.states(self.sources, {url: content for url, (_, content) in known.items()})
        self.unchanged = {url for url, state in states.items() if state == "present"}
        changed = {url: known[url][1] for url, state in states.items() if state == "changed"}
        self.restored = source_states.restored(self.sources, changed)
        self.unchanged |= self.restored.keys()
        self.changed = set(states) - self.unchanged

    def fresh(self) -> list[str]:
        """The files that are to be parsed."""
        known = set() if self.rules.add_variables else self.unchanged
        return [url for url in self.urls if url not in known]

    def parse(self, fresh: Iterable[str]) -> Iterator[ParsedFile | Failure]:
        """Parse every file; if no dimensions were named, their coordinates determine them."""
        urls = list(fresh)
        results = parse_all(urls, self.sources, self.want, self.parser, self.engine)
        if self.want.dims or not urls:
            yield from results
            return
        found = list(results)
        files = [each for each in found if isinstance(each, ParsedFile)]
        if not files:  # all that can be said is what is wrong with each
            yield from found
            return
        dims = self._known_dims() or differing(files, self.rules.placing.tolerance, self.rules.convert_units)
        if not dims:
            failed = next((each for each in found if isinstance(each, Failure)), None)
            why = "the files do not differ in any coordinate" if len(files) > 1 else "there is only one file"
            if failed is not None:
                why = f"{failed.url}: {failed.reason}.\n  Without it, {why}"
            raise IngestError(f"{why}: concat_dim= names the dimension along which to join files")
        self.want = with_fields(self.want, dims=(*dims, *(dim for dim in self.told if dim not in dims)))
        for each in found:
            yield self._as_wanted(each)

    def _as_wanted(self, result: ParsedFile | Failure) -> ParsedFile | Failure:
        if isinstance(result, Failure):
            return result
        known = as_wanted(result, self.want)
        return known or parse_one(result.url, self.sources, self.want, self.parser)

    def _known_dims(self) -> tuple[str, ...]:
        repo = self.opened()
        if repo is None:
            return ()
        return Dataset.read_ledger(repo.readonly_session(self.branch).store, self.group).dims

    def take(self, parsed: ParsedFile | Failure) -> int:
        """Put a parsed file where it belongs; returns roughly how much memory it takes."""
        if parsed.url in self.unreadable:
            parsed = Failure(parsed.url, self.unreadable[parsed.url])
        result = made_alike(parsed, self.want.dims, self.told, self.coordinate)
        if isinstance(result, ParsedFile) and result.url in self.unchanged:
            self.again.append(result)
        elif not isinstance(result, ParsedFile):
            self.failures[result.url] = result.reason
        elif self.replace or result.url not in self.changed:
            self.parsed.append(result)
        else:
            self.failures[result.url] = "it has changed since it was ingested (replace=True ingests it again)"
        return bytes_held(result)

    def declare(self) -> None:
        """Process what the caller declared: only now do we know which dimensions grow from file to file."""
        if self.schema is not None and self.rules.schema is None:
            declared = schema_of(self.schema, self.want, self.sources, self.parser, self.told)
            self.rules = with_fields(self.rules, schema=declared)

    def begin_batch(self, repo: icechunk.Repository | None, before: int) -> None:
        """Forget the files of the committed batch; all batches so far added `before` files."""
        self.target = self.target if repo is None else repo
        self.before = before
        self.parsed, self.again, self.failures = [], [], {}

    def opened(self, *, create: bool = False) -> icechunk.Repository | None:
        """The repository, opened once; None if it does not exist and is not to be created."""
        if self.target is not None and not isinstance(self.target, icechunk.Repository):
            try:
                self.target = open_repository(self.target, create=create)
            except RepositoryNotFoundError:
                return None
        repo: icechunk.Repository | None = self.target
        return repo

    def read(self, session: icechunk.Session) -> Dataset:
        """The dataset as a session sees it."""
        return Dataset.read(session.store, self.group)

    def read_end(self, session: icechunk.Session) -> Dataset | None:
        """The end of the dataset, if the files of this batch need no more; otherwise None."""
        urls = [file.url for file in self.parsed]
        if self.compared == session.snapshot_id and self.changed.isdisjoint(urls):
            urls = []  # we already checked whether the dataset knows them
        return Dataset.read_end(session.store, self.group, urls)

    def drafted(self, dataset: Dataset) -> tuple[Draft, set[str]]:
        """The draft, and the files that were there before or that another process has added since."""
        entries = {url: i for i, url in enumerate(dataset.ledger.locations)}
        twice = set() if self.replace else {file.url for file in self.parsed if file.url in entries}
        files = [file for file in self.parsed if file.url not in twice]
        known = [(file, entries[file.url]) for file in self.again if file.url in entries]
        parted = [without_data(file, dataset.ledger.shown(number)) for file, number in known]
        extending = [file for file in parted if any(v.role == "data" for v in file.variables.values())]
        draft = make_draft(files, dataset, self.want, self.rules, entries, extending)
        draft.refused |= self.failures
        return draft, self.unchanged | twice

    def shown(self, options: Iterable[str]) -> IngestReport:
        """What a commit would do, and which options of `ingest` would change that."""
        repo = self.opened()
        dataset = Dataset() if repo is None else self.read(repo.readonly_session(self.branch))
        draft, unchanged = self.drafted(dataset)
        report = self.report(draft, dataset, unchanged, repo)
        drifts = drifts_of(draft, dataset, self.rules, report.runs, options)
        return with_fields(report, drifts=drifts)

    def write(self, store: Any, draft: Draft, dataset: Dataset) -> bool:
        """Write a draft; returns whether everything in it opens. What does not is removed from the files."""
        source_group = self.want.group
        writer = Writer(store, self.group, draft, dataset, self.sources, self.parser, source_group)
        problems = writer.write()
        before = [*dataset.plain, *dataset.logical_groups]
        written = [*draft.joined, *draft.static, *draft.arrays]
        if not problems and not (draft.cube.origin and set(written) <= set(before) and not draft.attrs):
            problems |= unopened(store, self.group, before, written)
        problems = {name: why for name, why in problems.items() if name in set(written)}
        for name, why in problems.items():
            if name in before:
                raise IngestError(
                    f"with these files {name!r} of the dataset could no longer be opened, and nothing was "
                    f"written: {why}"
                )
            parts = [part for part, stack in self.rules.stacks.items() if stack.array == name] or [name]
            declared = [] if self.rules.schema is None else [self.rules.schema.file]
            for file in (*self.parsed, *self.again, *declared):
                for part in parts:
                    if file.variables.pop(part, None) is not None:
                        file.left_out[part] = why
        return not problems

    def raise_if_asked(self, draft: Draft) -> None:
        """Raise an error for files that cannot be taken, unless they are to be skipped."""
        if self.errors == "skip" or not draft.refused:
            return
        raise IngestError(words_of_refused(draft.refused, len(self.urls), self.before))

    def report(
        self, draft: Draft, dataset: Dataset, unchanged: set[str], repo: icechunk.Repository | None
    ) -> IngestReport:
        """What a draft does with every file, as the report that the caller gets."""
        origin = draft.cube.origin
        placed = {each.file.url: (origin + each.start, each.steps) for each in draft.placed}
        before = set(dataset.ledger.locations)
        copied = draft.copy_reasons()
        files = []
        taken = dict.fromkeys((*(file.url for file in (*self.parsed, *self.again)), *draft.refused))
        for url in taken if self.before else self.urls:
            if url in placed:
                status: Any = "added"
                if url in before:
                    status = "extended" if url in unchanged else "replaced"
                files.append(FileReport(url, status, *placed[url], copied.get(url, "")))
            elif url in draft.refused:
                files.append(FileReport(url, "failed", reason=draft.refused[url]))
            elif url in unchanged and (url in taken or not self.before):
                files.append(FileReport(url, "unchanged"))
        runs = runs_of(draft) if draft.placed else Runs(())
        return IngestReport(
            runs, tuple(files), repository=repo, left_out=draft.left_out, copied=draft.copied()
        )
