"""`intarsia.ingest`: an archive of files as one dataset of logical arrays, by reference.

Files are parsed, each once, and committed in batches. What was found is drafted against the newest state of
the dataset, written and committed; if another writer was faster, drafted again. What is committed stands in
the ledger: an ingest that was killed goes on there.
"""

import inspect
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import partial
from typing import Any, Literal

import icechunk

from intarsia._icechunk import safe_store
from intarsia.archives.claims import POLICIES
from intarsia.archives.combined_attrs import WORDS, Rule
from intarsia.archives.containers import with_containers
from intarsia.archives.cube import PlacingRules, WholeNeededError
from intarsia.archives.dataset import Dataset
from intarsia.archives.draft import Draft, make_draft
from intarsia.archives.drifts import drifts_of
from intarsia.archives.expected import Rules
from intarsia.archives.given import Told, as_wanted, differing, listed, named_dims, named_dtypes, with_order
from intarsia.archives.groups import ALL, Bare, Groups, joined_path, merged
from intarsia.archives.ingest_batches import BATCH_BYTES, BATCH_FILES, Progressed, bytes_held
from intarsia.archives.ingest_report import FileReport, IngestReport, Runs, runs_of
from intarsia.archives.locations import Sources
from intarsia.archives.metadata import Preprocess
from intarsia.archives.parsed import Failure, ParsedFile, Want, without_data
from intarsia.archives.parsing import made_alike, parse_all, parse_one
from intarsia.archives.places import GrownAxis
from intarsia.archives.proof import unopened
from intarsia.archives.schema import schema_of
from intarsia.archives.splitting import with_splitting
from intarsia.archives.stacking import stacks_of
from intarsia.archives.workforce import Engine, checked_engine
from intarsia.archives.writer import Writer
from intarsia.errors import IngestError, RepositoryNotFoundError
from intarsia.progress import Progress, silent
from intarsia.versions.commit import Backoff, Commit, settle
from intarsia.versions.repository import open_repository

SHOWN_PROBLEMS = 10


def ingest(
    files: str | os.PathLike[str] | Iterable[Any],
    repo: Any = None,
    *,
    concat_dim: str | Sequence[str] | None = None,
    combine: Literal["nested", "by_coords"] | None = None,
    dims: Mapping[str, Told] | None = None,
    stack: Mapping[str, Any] | None = None,
    rename: Mapping[str, str] | None = None,
    preprocess: Preprocess | None = None,
    schema: Any = None,
    variables: Iterable[str] | None = None,
    group: str = "",
    source_group: str = "",
    copy: Literal["needed", "all", "never"] = "needed",
    errors: Literal["raise", "skip"] = "raise",
    missing: Literal["raise", "fill"] = "raise",
    add_variables: bool = False,
    units: Literal["equal", "ignore"] = "equal",
    convert_units: bool = False,
    combine_attrs: Rule = "override",
    overlap: Literal["refuse", "first", "last", "newest"] = "refuse",
    tolerance: float | None = None,
    replace: bool = False,
    nulls: bool = False,
    dtype: Any = None,
    load: Iterable[str] = (),
    coordinate: Callable[[str], Any] | None = None,
    order_by: str | None = None,
    parser: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Engine = None,
    workers: Engine = None,
    batch: int | None = None,
    progress: Progress = silent,
    branch: str = "main",
    message: str | None = None,
    dry_run: bool = False,
) -> IngestReport:
    """Open an archive of files as one dataset: every variable one logical array, nothing copied.

    Variables along the named dimensions become logical arrays, and their chunks are read where they are. A
    new region begins wherever compression, chunks, data type or packing change; packed values are unpacked
    on reading, and missing ones are NaN. Coordinates are loaded. Call it again to add what is new: files
    that are there already are recognised, and new files are inserted by coordinate, even in the middle.

    Thousands of files are committed in batches of bounded memory; readers see whole batches. If it is
    interrupted, call it again: it goes on after the last commit, and parses no file of that again.

    Files may make a cube. Every file goes where its coordinates say, and what no file has is missing. A
    file that lacks a dimension is one step of it; its coordinate is a scalar variable of that name, or what
    `dims` gives. Axes that are reversed, rolled or transposed are seen as those of the first file.

    Args:
        files: Paths, URLs (s3://, gs://, https://) or globs of NetCDF, HDF5, Zarr, N5, TIFF or kerchunk
            references. Where there are no coordinates, nested lists give the order.
        repo: An `icechunk.Repository`, or the path or URL of one, which is created if it is not there. A dry
            run needs none.
        concat_dim: The dimension along which files are joined, or several of them.
        combine: `"by_coords"` finds the dimensions whose coordinates differ between files. `"nested"`, the
            default, joins files along `concat_dim`.
        dims: Where the coordinate of a dimension is found that the files do not have, such as `{"member":
            from_attribute("realization")}` (from `intarsia.archives`).
        stack: Variables that become one array along a new dimension: `{"CMI": ("band", ["CMI_C01",
            "CMI_C02"])}`.
        rename: Other names for variables and dimensions of the files: `{"latitude": "lat"}`.
        preprocess: A function from the metadata of a file to what should be ingested, see
            `intarsia.archives.FileMetadata`.
        schema: What files are judged against, in place of the first of them: a file, an `xarray.Dataset`, or
            a dictionary as `xarray.Dataset.to_dict` gives it.
        variables: The variables to take; by default all that the first file has.
        group: Where the dataset goes in the repository.
        source_group: The group of every file that holds the variables, such as `"PRODUCT"`. `"*"` takes all
            groups, each as a dataset of its own at its own path, for `xarray.open_datatree`.
        copy: `"needed"` copies data that cannot be referenced, `"never"` refuses them, and `"all"` copies
            everything.
        errors: `"raise"` stops at a bad file and writes nothing; `"skip"` leaves it out, and the report says
            why.
        missing: `"fill"` lets files lack a variable; `"raise"` refuses them.
        add_variables: Whether to add variables that begin later, also from named files that are there
            already.
        units: `"ignore"` takes the numbers of files with other units as they are; `"equal"` refuses them.
        convert_units: Whether to convert units that differ by a factor and an offset (°C and K, hPa and Pa)
            to those of the first file, on reading.
        combine_attrs: What becomes of attributes in which files differ, in xarray's words. By default those
            of the first file stay.
        overlap: Which file is shown where several are: the `"first"`, the `"last"` or the `"newest"`;
            `"refuse"` refuses the later one.
        tolerance: Coordinates that differ by no more than this are equal. By default some floating-point
            noise is allowed.
        replace: Whether to take files again that changed since they were ingested. Otherwise they are
            refused.
        nulls: Whether missing values become null instead of NaN, so that integers stay integers.
        dtype: The data types of variables, `{"sst": "float32"}`, or one for all that `variables` names.
            Values are rounded to it.
        load: Variables to load into plain arrays instead of referring to them.
        coordinate: A function from the URL of a file to its coordinate. Where it gives None, the file's own
            stays.
        order_by: Another variable, whose values take the place of the coordinate.
        parser: A parser of VirtualiZarr, for formats that are not known here.
        storage_options: Keys and endpoints for the bucket or server that the files are in, by the names that
            `open_repository` takes, such as `region` or `anonymous`.
        client: Who parses: a number of threads, a `dask.distributed.Client`, or an executor of
            `concurrent.futures` that does not fork.
        workers: The old name of `client`.
        batch: The largest number of files per commit. Memory limits it, too.
        progress: A function that is called with the number of steps done and of all steps, see
            `intarsia.types.Progress`.
        branch: The branch that the commits go to.
        message: The message of the commits; by default it says what was done.
        dry_run: Whether to write nothing, and only report the runs of equal encoding and what differs between
            files. `lint` is a dry run that needs no repository.

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
    along = named_dims(concat_dim, combine, dims or {})
    told, asked = with_order(order_by, dims or {}, along)
    chosen = None if variables is None else tuple(variables)
    names = tuple((rename or {}).items())
    want = Want(along, chosen, (*load, *asked), names, source_group.strip("/"), preprocess)
    if coordinate is not None and (len(along) != 1 or along[0] in told):
        raise IngestError(
            "coordinate= is for one dimension that nothing else tells: dims={'name': …} says which"
        )
    for name, value, allowed in (
        ("copy", copy, ("needed", "all", "never")),
        ("errors", errors, ("raise", "skip")),
        ("missing", missing, ("raise", "fill")),
        ("units", units, ("equal", "ignore")),
        ("overlap", overlap, POLICIES),
        ("combine_attrs", WORDS[0] if callable(combine_attrs) else combine_attrs, WORDS),
    ):
        if value not in allowed:
            raise IngestError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}")
    if convert_units and units == "ignore":
        raise IngestError("units='ignore' takes numbers as they are, and convert_units=True does not: choose")
    dtypes, stacks = named_dtypes(dtype, want), stacks_of(stack)
    if repo is None and not dry_run:
        raise IngestError("say where to: a repository or its path is needed (a dry run can do without)")
    engine = checked_engine(client, workers)
    if batch is not None and batch < 1:
        raise IngestError(f"batch={batch}: a batch has one file or more")
    sources = Sources(storage_options)
    urls, places = listed(files, sources)
    if not urls:
        raise IngestError(f"no file matches {files!r}")
    placing = PlacingRules(overlap, tolerance, places)
    rules = Rules(
        copy, missing, add_variables, units, convert_units, dtypes, nulls, combine_attrs,
        placing=placing, stacks=stacks,
    )  # fmt: skip
    ingestion = Ingestion(
        repo, urls, sources, want, rules, parser, group, branch, errors, replace, told, schema, engine,
        coordinate,
    )  # fmt: skip
    if want.group == ALL:
        ingestion.spread()
    # All files have to be known before the first goes anywhere if they tell the dimensions, or nested lists
    # their order, or a function what becomes of all of their attributes.
    together = dry_run or not want.dims or bool(places) or callable(combine_attrs)
    most = len(urls) if together else batch or BATCH_FILES
    batches = ingestion.batches(urls, most, progress, bounded=not together)
    return ingestion.shown(batches) if dry_run else ingestion.committed(batches, urls, message)


@dataclass(frozen=True)
class Written:
    """A draft that is written, but not committed."""

    session: icechunk.Session

    def follow(self) -> list[str]:
        """Where files go depends on all that is there: whatever others committed, a new draft is needed."""
        return ["the dataset may have changed"]


@dataclass
class Ingestion:
    """One call of `ingest`: the files that were named, on their way into one commit."""

    target: Any
    """The repository, or where it is or will be; None for a dry run into nowhere."""

    urls: list[str]
    """All files that were named."""

    sources: Sources
    want: Want
    rules: Rules
    parser: Any
    """The caller's own parser, if he gave one."""

    group: str
    """The group that holds the dataset."""

    branch: str
    errors: str
    """Whether files that cannot be taken `raise` or are `skip`ped."""

    replace: bool
    """Whether files that changed are taken again."""

    told: Mapping[str, Told] = field(default_factory=dict)
    """Where coordinates come from that are not in the files."""

    schema: Any = None
    """What the caller declared, against which files are judged."""

    engine: Engine = None
    """Who parses."""

    coordinate: Callable[[str], Any] | None = None
    """Gives the coordinate of a file that has none, from its URL."""

    beside: list["Ingestion"] = field(init=False, default_factory=list)
    """Datasets of other groups of the files, which are committed together with this one."""

    bare: list[Bare] = field(init=False, default_factory=list)
    """Groups of the files without data."""

    above: str = field(init=False, default="")
    """The group that holds the datasets of all groups."""

    parsed: list[ParsedFile] = field(init=False, default_factory=list)
    """Files of this batch that could be parsed."""

    again: list[ParsedFile] = field(init=False, default_factory=list)
    """Files that the dataset holds already, parsed again for variables that it does not have."""

    failures: dict[str, str] = field(init=False, default_factory=dict)
    """Files of this batch that could not, and why."""

    unchanged: set[str] = field(init=False, default_factory=set)
    """Files that the dataset holds already."""

    changed: set[str] = field(init=False, default_factory=set)
    """Files that it holds with another content."""

    before: int = field(init=False, default=0)
    """How many files the batches before this one added."""

    grown: GrownAxis | None = field(init=False, default=None)
    """What the last commit did to the first dimension; None where there are several datasets."""

    def spread(self) -> None:
        """Take every group of the files, each as a dataset of its own; this one is that of the first."""
        if not self.want.dims:
            raise IngestError("source_group='*' needs concat_dim=: every group has coordinates of its own")
        groups = Groups.of(self.urls, self.sources, with_fields(self.want, group=""), self.parser)
        if not groups.with_data:
            raise IngestError("no group of the files has variables")
        self.bare, self.above = groups.bare, self.group
        first, *others = (
            with_fields(
                self, want=with_fields(self.want, group=path), group=joined_path(self.group, path), urls=urls
            )
            for path, urls in groups.with_data.items()
        )
        self.want, self.group, self.urls, self.beside = first.want, first.group, first.urls, others

    @property
    def parts(self) -> tuple["Ingestion", ...]:
        """This dataset and those beside it."""
        return self, *self.beside

    def batches(
        self, urls: Sequence[str], most: int, progress: Progress, *, bounded: bool
    ) -> Generator[None]:
        """Parse what the datasets do not hold yet; each time, the next batch of it is in `parsed`.

        There is one batch at least, which may be empty.
        """
        for part in self.parts:
            part.unchanged, part.changed = part._compared()
        fresh = {part.want.group: dict.fromkeys(part._fresh()) for part in self.parts}
        wanted = [url for url in urls if any(url in own for own in fresh.values())]
        steps = len(wanted) + 1  # parsing every file, and the commit
        progress(0, steps)
        streams = [
            (part, fresh[part.want.group], part._parsed(fresh[part.want.group])) for part in self.parts
        ]
        count = held = 0
        for done, url in enumerate(wanted, start=1):
            for part, own, results in streams:
                if url in own:
                    held += part._take(next(results))
            count += 1
            progress(done, steps)
            if done < len(wanted) and (count >= most or (bounded and held >= BATCH_BYTES)):
                self._declare()
                yield
                count = held = 0
        self._declare()
        yield
        progress(steps, steps)

    def _fresh(self) -> list[str]:
        known = set() if self.rules.add_variables else self.unchanged
        return [url for url in self.urls if url not in known]

    def _take(self, parsed: ParsedFile | Failure) -> int:
        """Put a parsed file where it belongs; returns about how much memory it takes."""
        result = made_alike(parsed, self.want.dims, self.told, self.coordinate)
        if isinstance(result, ParsedFile) and result.url in self.unchanged:
            self.again.append(result)
        elif not isinstance(result, ParsedFile):
            self.failures[result.url] = result.reason
        elif self.replace or result.url not in self.changed:
            self.parsed.append(result)
        else:
            self.failures[result.url] = "it changed since it was ingested (replace=True takes it again)"
        return bytes_held(result)

    def _declare(self) -> None:
        """Take in what the caller declared: only now it is known along which dimensions files follow one
        another."""
        for part in self.parts:
            if part.schema is not None and part.rules.schema is None:
                declared = schema_of(part.schema, part.want, part.sources, part.parser, part.told)
                part.rules = with_fields(part.rules, schema=declared)

    def _parsed(self, fresh: Iterable[str]) -> Iterator[ParsedFile | Failure]:
        """Every file; if nobody named the dimensions, their coordinates tell."""
        urls = list(fresh)
        results = parse_all(urls, self.sources, self.want, self.parser, self.engine)
        if self.want.dims or not urls:
            yield from results
            return
        found = list(results)
        files = [each for each in found if isinstance(each, ParsedFile)]
        if not files:  # what is wrong with each is all that can be said
            yield from found
            return
        dims = self._known_dims() or differing(files, self.rules.placing.tolerance, self.rules.convert_units)
        if not dims:
            raise IngestError(
                "the files do not differ in any coordinate: concat_dim= says along which dimension they go"
            )
        self.want = with_fields(self.want, dims=(*dims, *(dim for dim in self.told if dim not in dims)))
        for each in found:
            yield self._as_wanted(each)

    def _as_wanted(self, result: ParsedFile | Failure) -> ParsedFile | Failure:
        if isinstance(result, Failure):
            return result
        known = as_wanted(result, self.want)
        return known or parse_one(result.url, self.sources, self.want, self.parser)

    def _known_dims(self) -> tuple[str, ...]:
        repo = self._opened()
        if repo is None:
            return ()
        return Dataset.read_ledger(repo.readonly_session(self.branch).store, self.group).dims

    def _compared(self) -> tuple[set[str], set[str]]:
        """Of the files that are in the dataset: those whose content is the same, and those that changed."""
        repo = self._opened()
        if repo is None:
            return set(), set()
        known = Dataset.entries(repo.readonly_session(self.branch).store, self.group, self.urls)
        states = self.sources.states({url: content for url, (_, content) in known.items()})
        same = {url for url, state in states.items() if state == "present"}
        return same, set(states) - same

    def _opened(self, *, create: bool = False) -> icechunk.Repository | None:
        """The repository; None if it does not exist yet and is not to be made."""
        if self.target is None or isinstance(self.target, icechunk.Repository):
            return self.target
        try:
            return open_repository(self.target, create=create)
        except RepositoryNotFoundError:
            return None

    def shown(self, batches: Generator[None]) -> IngestReport:
        """What a commit would do; nothing is written, and nothing raised."""
        for _ in batches:  # which is one
            report = merged({part.want.group: part._shown_alone() for part in self.parts})
        return report

    def _shown_alone(self) -> IngestReport:
        repo = self._opened()
        dataset = Dataset() if repo is None else self._read(repo.readonly_session(self.branch))
        draft, unchanged = self._drafted(dataset)
        report = self._report(draft, dataset, unchanged, repo)
        drifts = drifts_of(draft, dataset, self.rules, report.runs, inspect.signature(ingest).parameters)
        return with_fields(report, drifts=drifts)

    def committed(self, batches: Generator[None], urls: Sequence[str], message: str | None) -> IngestReport:
        """Commit every batch; returns one report of all."""
        progressed = Progressed()
        with closing(batches):  # whatever happens, nobody goes on parsing
            for _ in batches:
                report = self._committed(message)
                progressed.add(report, self.grown)
                for part in self.parts:
                    part.target = report.repository if report.repository is not None else part.target
                    part.before = progressed.added
                    part.parsed, part.again, part.failures = [], [], {}
        unchanged = {url for part in self.parts for url in part.unchanged}
        return progressed.report(report, urls, unchanged)

    def _committed(self, message: str | None) -> IngestReport:
        """Write a batch in one commit; a repository is made only when something is to go into it."""
        repo = self._opened()
        ready: tuple[Draft, set[str]] | None = None
        if repo is None and not self.beside:
            ready = draft, unchanged = self._drafted(Dataset())
            self._raise_if_asked(draft)
            if not draft.placed:
                return self._report(draft, Dataset(), unchanged, None)
        repo = repo or self._opened(create=True)
        assert repo is not None
        commit = Commit(repo, self.branch, message or "ingest")
        attempts: list[tuple[IngestReport, Written | str]] = []

        def prepare() -> Written | str:
            nonlocal ready
            report, prepared = self._written(commit.repo, ready)
            ready = None  # it was written into, and somebody was faster
            commit.message = message or f"ingest: {report.summary}"
            attempts.append((report, prepared))
            return prepared

        snapshot = settle(commit, prepare, Backoff())
        report, prepared = attempts[-1]
        return report if isinstance(prepared, str) else with_fields(report, snapshot_id=snapshot)

    def _written(
        self, repo: icechunk.Repository, ready: tuple[Draft, set[str]] | None = None
    ) -> tuple[IngestReport, Written | str]:
        """Draft everything and write it into a session; if nothing is new, that is the snapshot as it is.

        `ready` is the draft of a new dataset, if there is one already.
        """
        while True:
            session = repo.writable_session(self.branch)
            datasets, drafted = self._drafted_in(session, ready)
            drafts = [draft for draft, _ in drafted]
            for part, draft in zip(self.parts, drafts, strict=True):
                part._raise_if_asked(draft)
            locations = {url for draft in drafts for url in draft.locations()}
            split = partial(self._split, drafts)
            options = self.sources.options
            reopened, prefixes = with_containers(repo, locations, self._folders(), options, split)
            reports = {
                part.want.group: part._report(draft, dataset, unchanged, reopened)
                for part, dataset, (draft, unchanged) in zip(self.parts, datasets, drafted, strict=True)
            }
            report = with_fields(merged(reports), containers=prefixes)
            self.grown = None if self.beside else drafts[0].cube.axes[0]
            if not any(draft.placed for draft in drafts):
                return report, session.snapshot_id
            if reopened is not repo:  # a session knows the containers that it began with
                repo, drafted_at, session = (
                    reopened,
                    session.snapshot_id,
                    reopened.writable_session(self.branch),
                )
                if session.snapshot_id != drafted_at:
                    continue
                if datasets[0].origin:
                    datasets = [self._read_end(session) or datasets[0]]
                else:
                    datasets = [part._read(session) for part in self.parts]
            store, bad = safe_store(session.store), False
            for part, draft, dataset in zip(self.parts, drafts, datasets, strict=True):
                bad |= bool(draft.placed) and part._unfit(store, draft, dataset)
            if not bad:
                for bare in self.bare:
                    bare.write(store, self.above, dict(zip(reports, drafts, strict=True)))
                return report, Written(session)
            ready = None  # with what was left out, everything may be different

    def _drafted_in(
        self, session: icechunk.Session, ready: tuple[Draft, set[str]] | None
    ) -> tuple[list[Dataset], list[tuple[Draft, set[str]]]]:
        """The datasets as they are in a session, and their drafts; `ready` is that of a new one.

        Files that go behind all others need no more than the end of the dataset, whatever its length.
        """
        end = None if self.beside or self.again else self._read_end(session)
        if end is not None:
            with suppress(WholeNeededError):
                return [end], self._drafted_together([end])
        datasets = [part._read(session) for part in self.parts]
        if ready and datasets[0].is_new:
            return datasets, [ready]
        return datasets, self._drafted_together(datasets)

    def _read_end(self, session: icechunk.Session) -> Dataset | None:
        return Dataset.read_end(session.store, self.group, [file.url for file in self.parsed])

    def _drafted_together(self, datasets: Sequence[Dataset]) -> list[tuple[Draft, set[str]]]:
        """The drafts of all datasets; a file that one of them refuses goes into none."""
        while True:
            drafted = [part._drafted(dataset) for part, dataset in zip(self.parts, datasets, strict=True)]
            refused = {url: why for draft, _ in drafted for url, why in draft.refused.items()}
            left = [part for part in self.parts if any(file.url in refused for file in part.parsed)]
            if len(drafted) == 1 or not left:
                return drafted
            for part in left:
                part.failures |= {file.url: refused[file.url] for file in part.parsed if file.url in refused}
                part.parsed = [file for file in part.parsed if file.url not in refused]

    def _unfit(self, store: Any, draft: Draft, dataset: Dataset) -> bool:
        """Write a draft; whether that left something that does not open. It is not to be taken, then."""
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
                    f"with these files {name!r} of the dataset could not be opened any more, and nothing was "
                    f"written: {why}"
                )
            parts = [part for part, stack in self.rules.stacks.items() if stack.array == name] or [name]
            declared = [] if self.rules.schema is None else [self.rules.schema.file]
            for file in (*self.parsed, *self.again, *declared):
                for part in parts:
                    if file.variables.pop(part, None) is not None:
                        file.left_out[part] = why
        return bool(problems)

    def _read(self, session: icechunk.Session) -> Dataset:
        return Dataset.read(session.store, self.group)

    def _drafted(self, dataset: Dataset) -> tuple[Draft, set[str]]:
        """The draft, and the files that another process added meanwhile or that were there before."""
        entries = {url: i for i, url in enumerate(dataset.ledger.locations)}
        twice = set() if self.replace else {file.url for file in self.parsed if file.url in entries}
        files = [file for file in self.parsed if file.url not in twice]
        known = [(file, entries[file.url]) for file in self.again if file.url in entries]
        parted = [without_data(file, dataset.ledger.shown(number)) for file, number in known]
        extending = [file for file in parted if any(v.role == "data" for v in file.variables.values())]
        draft = make_draft(files, dataset, self.want, self.rules, entries, extending)
        draft.refused |= self.failures
        return draft, self.unchanged | twice

    def _split(self, drafts: Sequence[Draft], config: icechunk.RepositoryConfig) -> bool:
        """Have manifests of references split along the dimension that grows."""
        changed = [
            with_splitting(config, part.group, draft.arrays.values(), len(self.urls))
            for part, draft in zip(self.parts, drafts, strict=True)
            if draft.placed
        ]
        return any(changed)

    def _folders(self) -> set[str]:
        """Where all files are."""
        return {url.rpartition("/")[0] + "/" for url in self.urls}

    def _raise_if_asked(self, draft: Draft) -> None:
        if self.errors == "skip" or not draft.refused:
            return
        listed = [f"{url}: {reason}" for url, reason in draft.refused.items()]
        more = [f"… and {len(listed) - SHOWN_PROBLEMS} more"] if len(listed) > SHOWN_PROBLEMS else []
        head = f"{len(listed)} of {len(self.urls)} files cannot be taken, and nothing was written:"
        if self.before:
            head = (
                f"{len(listed)} of {len(self.urls)} files cannot be taken, and nothing of their batch was "
                f"written; the {self.before} before it are committed:"
            )
        tail = ["errors='skip' takes the others"] if len(listed) < len(self.urls) else []
        raise IngestError("\n  ".join([head, *listed[:SHOWN_PROBLEMS], *more, *tail]))

    def _report(
        self, draft: Draft, dataset: Dataset, unchanged: set[str], repo: icechunk.Repository | None
    ) -> IngestReport:
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
