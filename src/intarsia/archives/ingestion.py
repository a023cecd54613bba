"""`intarsia.ingest`: an archive of files as one dataset of logical arrays, by reference.

`ingest` checks the caller's options before any file is opened. An `Ingestion` parses the files in batches of
bounded memory and commits each batch, for all datasets together; a `DatasetIngestion` plans and writes one
dataset. A plan is made against the newest state of the datasets, and made again if another writer was faster.
The ledger records what is committed, so an ingest that was killed continues from there. `lint` is a dry run,
and `remove` takes files out again.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import partial
from types import NoneType, SimpleNamespace
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import icechunk

from intarsia._icechunk import safe_store
from intarsia.archives import source_files
from intarsia.archives.dataset import Dataset, dataset_group
from intarsia.archives.groups import ALL, Groups
from intarsia.archives.ingest_arguments import (
    CoordinateSource,
    assign_roles,
    check_concat_dims,
    check_dtypes,
    check_stacks,
    expand_files,
    find_concat_dims,
    find_coordinate_sources,
    names_in,
)
from intarsia.archives.ingest_report import (
    IngestReport,
    after_batch,
    merge_reports,
    refusal_text,
    report_plan,
    with_drifts,
)
from intarsia.archives.ledger import Ledger, entries_of, read_ledger
from intarsia.archives.parse import add_coordinates, parse_all, parse_one
from intarsia.archives.parse_pool import Engine, check_engine
from intarsia.archives.parsed_file import ParsedFile, ParseFailure, ParseRequest
from intarsia.archives.plan.attribute_merging import Rule
from intarsia.archives.plan.compatibility import IngestRules
from intarsia.archives.plan.cube import WholeDatasetNeededError
from intarsia.archives.plan.ingest_plan import IngestPlan, plan_ingest
from intarsia.archives.plan.schema import read_schema
from intarsia.archives.preprocess import Preprocess
from intarsia.archives.relocation import accept_restored
from intarsia.archives.source_files import (
    WILDCARDS,
    Authorized,
    ContentIdentity,
    Sources,
    url_of,
)
from intarsia.archives.write_plan import PlanWriter, UncommittedChange, with_splitting, with_whole_members
from intarsia.archives.xarray_check import tree_problem, variable_problems
from intarsia.display import count_text
from intarsia.errors import IngestError, RepositoryNotFoundError, VersionNotFoundError, argument
from intarsia.extras import import_extra
from intarsia.logical.hierarchy import joined_path
from intarsia.progress import Progress, silent
from intarsia.versions.authorization import reopen_without_cache, with_containers
from intarsia.versions.commit import Commit, commit_with_retries
from intarsia.versions.repository import check_name, explain_errors, open_repository


def ingest(
    files: str | os.PathLike[str] | Iterable[Any],
    store: Any = None,
    *,
    concat_dim: str | Sequence[str] | None = None,
    combine: Literal["nested", "by_coords"] | None = None,
    dims: Mapping[str, CoordinateSource] | None = None,
    stack: Mapping[str, Any] | None = None,
    rename: Mapping[str, str] | None = None,
    preprocess: Preprocess | None = None,
    schema: Any = None,
    variables: str | Iterable[str] | None = None,
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
    dtype: Mapping[str, Any] | None = None,
    load: str | Iterable[str] = (),
    coordinate: Callable[[str], Any] | None = None,
    order_by: str | None = None,
    parser: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    authorize: Authorized = None,
    client: Engine = None,
    batch: int | None = None,
    progress: Progress = silent,
    branch: str = "main",
    message: str | None = None,
    dry_run: bool = False,
) -> IngestReport:
    """Open an archive of files as one dataset: every variable is one logical array, and nothing is copied.

    Variables along the named dimensions become logical arrays, and their chunks are read from the files. A
    new region begins wherever compression, chunks, data type or packing change; packed values are unpacked
    on reading, and missing ones are NaN. Coordinates are loaded. Call it again to add new files: files that
    are already there are recognised, and new files are inserted by coordinate, even in the middle.

    Thousands of files are committed in batches of bounded memory; readers see whole batches. If it is
    interrupted, call it again: it continues after the last commit, and does not parse committed files again.

    Files may form a cube. Every file goes where its coordinates say, and places that no file has are missing.
    A file that lacks a dimension is one step of it; its coordinate is a scalar variable of that name, or what
    `dims` gives. Axes that are reversed, rolled or transposed are shown like those of the first file.

    Args:
        files: Paths, URLs (s3://, gs://, https://) or globs of NetCDF, HDF5, GRIB, Zarr, N5, TIFF or kerchunk
            references. If there are no coordinates, nested lists give the order.
        store: An `icechunk.Repository`, or the path or URL of one, which is created if it does not exist. A
            dry run needs none.
        concat_dim: The dimension along which files are joined, or several of them.
        combine: `"by_coords"` finds the dimensions whose coordinates differ between files. `"nested"`, the
            default, joins files along `concat_dim`; if you say it, a coordinate may repeat values within a
            file, as radar sweeps do, and all steps then stay in the order of the files.
        dims: Where to find the coordinate of a dimension that the files lack, such as `{"member":
            from_attribute("realization")}` (from `intarsia.archives`).
        stack: Variables that become one array along a new dimension: `{"CMI": ("band", ["CMI_C01",
            "CMI_C02"])}`.
        rename: Other names for variables and dimensions of the files: `{"latitude": "lat"}`.
        preprocess: A function from a file to what should be ingested of it: it gets and returns an
            `xarray.Dataset` that is not decoded, has values for coordinates only, and the URL of the
            file in `encoding["source"]`.
        schema: What files are compared with, in place of the first of them: a file, an `xarray.Dataset`, or
            a dictionary from `xarray.Dataset.to_dict`.
        variables: The variables to take; by default all that the first file has.
        group: Where the dataset goes in the repository.
        source_group: The group in every file that holds the variables, such as `"PRODUCT"`. `"*"` takes all
            groups, each as a dataset at its own path, for `xarray.open_datatree`.
        copy: `"needed"` copies data that cannot be referenced, `"never"` refuses it, and `"all"` copies
            everything.
        errors: `"raise"` stops at a bad file and writes nothing; `"skip"` leaves it out, and the report says
            why.
        missing: `"fill"` lets files lack a variable; `"raise"` refuses them.
        add_variables: Whether to add variables that the first files lack. Files that are already in the
            dataset are parsed again for them if you name them.
        units: `"ignore"` takes the numbers of files with other units as they are; `"equal"` refuses them.
        convert_units: Whether to convert units that differ by a factor and an offset (°C and K, hPa and Pa)
            to those of the first file, on reading; depths in m and masses in kg m-2 as those of water.
        combine_attrs: What happens to attributes that differ between files, in xarray's terms. By default
            those of the first file stay.
        overlap: Which file is shown where several overlap: the `"first"`, the `"last"` or the `"newest"`;
            `"refuse"` refuses the later one.
        tolerance: Coordinates that differ by no more than this are equal. By default some floating-point
            noise is allowed.
        replace: Whether to ingest files again that have changed since. Otherwise they are refused. Small
            files with another time and the same bytes have not changed.
        nulls: Whether missing values become null instead of NaN, so that integers stay integers.
        dtype: The data types of variables, `{"sst": "float32"}`. Values are rounded to them.
        load: Variables to load into plain arrays instead of referring to them.
        coordinate: A function from the URL of a file to its coordinate. If it returns None, the file's own
            stays.
        order_by: Another variable, whose values take the place of the coordinate.
        parser: A VirtualiZarr parser, for formats that intarsia does not know.
        storage_options: Keys and endpoints for the bucket or server that the files are in, by the names that
            `open_repository` takes, such as `region` or `anonymous`.
        authorize: What files may refer to outside of their own folder or bucket, by kerchunk references,
            symbolic links, or external links, virtual datasets and external storage of HDF5: paths and URL
            prefixes, or `True` for everything.
        client: What parses files: a number of threads, a `dask.distributed.Client`, or an executor of
            `concurrent.futures` that does not fork. By default, remote files are parsed in threads, and
            local ones in processes if there are very many; `1` parses them one by one.
        batch: The largest number of files per commit. Memory limits it too.
        progress: A function that is called with the number of steps done and the total, see
            `intarsia.types.Progress`.
        branch: The branch that the commits go to.
        message: The commit message; by default it says what was done.
        dry_run: Whether to write nothing, and only report the runs of equal encoding and the differences
            between files. `lint` is a dry run that needs no repository.

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
    _check_choices(locals())
    along = check_concat_dims(concat_dim, combine, dims or {})
    coordinate_sources, needed = find_coordinate_sources(dims, order_by, coordinate, along)
    chosen = None if variables is None else names_in(variables)
    renamed = tuple((rename or {}).items())
    request = ParseRequest(
        along, chosen, (*names_in(load), *needed), renamed, source_group.strip("/"), preprocess,
        whole_tree=source_group.strip("/") == ALL, parser=parser,
    )  # fmt: skip
    if convert_units and units == "ignore":
        raise IngestError(
            f"{argument('units', 'ignore')} keeps numbers as they are, but "
            f"{argument('convert_units', True)} changes them: choose one"
        )
    dtypes, stacks = check_dtypes(dtype), check_stacks(stack)
    if store is None and not dry_run:
        raise IngestError("pass the repository to write to, or its path (a dry run needs none)")
    if isinstance(store, str | os.PathLike):
        check_name(store)
    if store is not None and not isinstance(store, icechunk.Repository) and not callable(store):
        store = partial(open_repository, store)
    engine = None if client is None else check_engine(client)
    if batch is not None and batch < 1:
        raise IngestError(f"{argument('batch', batch)}: a batch has at least one file")
    sources = Sources(storage_options, authorize)
    named = names_in(files)
    urls, places = expand_files(named, sources)
    if not urls:
        raise IngestError(f"no file matches {', '.join(map(str, named)) or 'an empty list'}")
    rules = IngestRules(
        copy, missing, add_variables, units, convert_units, dtypes, nulls, combine_attrs,
        stacks=stacks, overlap=overlap, tolerance=tolerance, file_order=combine == "nested", indices=places,
    )  # fmt: skip
    whole = DatasetIngestion(
        group, urls, sources, request, rules, errors, replace, coordinate_sources, schema, engine
    )  # fmt: skip
    ingestion = Ingestion(store, branch, urls, [whole])
    if request.group == ALL:
        ingestion.split_groups()
    # All files have to be known before the first goes anywhere if they determine the dimensions, or if nested
    # lists give their order.
    together = dry_run or not request.dims or bool(places)
    batches = ingestion.batches(len(urls) if together else batch, progress, bounded=not together)
    return ingestion.preview(batches) if dry_run else ingestion.commit(batches, message)


def _check_choices(arguments: Mapping[str, Any]) -> None:
    """Refuse an argument of `ingest` that is none of the words in its annotation."""
    for name, annotation in get_type_hints(ingest).items():
        kinds = (annotation, *get_args(annotation))
        words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
        value = arguments.get(name)
        if words and value not in words and not (value is None and NoneType in kinds):
            listed = ", ".join(map(repr, words))
            raise IngestError(f"{argument(name, value)} is not one of {listed}")


def _dry_run_of[**P](
    function: Callable[P, IngestReport],
) -> Callable[[Callable[..., IngestReport]], Callable[P, IngestReport]]:
    """Give a function the signature of another, without the arguments that are about a commit."""
    signature = inspect.signature(function)
    parameters = [each for name, each in signature.parameters.items() if name not in ("message", "dry_run")]

    def with_signature(lint: Any) -> Callable[P, IngestReport]:
        lint.__signature__ = signature.replace(parameters=parameters)
        return cast(Callable[P, IngestReport], lint)

    return with_signature


@_dry_run_of(ingest)
def lint(*arguments: Any, **options: Any) -> IngestReport:
    """Say what differs between files, and what an ingest would do about it; nothing is written.

    This is a dry run of `ingest` and takes the same arguments: give those that you would use, and it says
    what would happen. Without any of `concat_dim`, `combine` and `dims`, the dimensions are those whose
    coordinates differ. With a `store`, the files are compared with the dataset that is there.

    `report.runs` are the runs of equal encoding. `report.drifts` says what differs, how, in how many files,
    and what is done about it; this includes files that would be refused, with the options that would accept
    them. `report.failed` has the reason for each of those.

    >>> import tempfile, h5py, numpy as np, intarsia
    >>> folder = tempfile.mkdtemp()
    >>> for day in range(3):
    ...     with h5py.File(f"{folder}/{day}.h5", "w") as file:
    ...         file["time"] = np.array([min(day, 1)])  # the last has the time of the one before
    ...         _ = file.create_dataset("sst", data=np.ones((1, 4)), chunks=(1, 4 - day))
    ...         file["time"].make_scale("time")
    ...         file["sst"].dims[0].attach_scale(file["time"])
    >>> report = intarsia.archives.lint(f"{folder}/*.h5")
    >>> [(drift.kind, drift.variable, drift.what) for drift in report.drifts if not drift.refused]
    [('chunks', 'sst', '1x3 instead of 1x4')]
    >>> [drift.options for drift in report.drifts if drift.refused]
    [('overlap', 'order_by')]
    """
    bound = inspect.signature(lint).bind(*arguments, **options)
    if not any(map(bound.arguments.get, ("concat_dim", "combine", "dims"))):
        bound.arguments["combine"] = "by_coords"
    return ingest(*bound.args, **bound.kwargs, dry_run=True)


BATCH_FILES = 2_000
"""The size of the first batches: how many files a killed ingest has to parse again."""

BATCH_SHARE = 4
"""A later batch has the number of files before it divided by this. Every commit lists all earlier commits, so
fewer are better; and a killed ingest has to parse at most this share of its files again."""

BATCH_BYTES = 256 << 20
"""Roughly how much memory a batch may take until it is committed."""

VARIABLE_BYTES = 3_200
"""Roughly what a parsed variable and its plan take, beside its references and values."""

REFERENCE_BYTES = 250
"""Roughly what a reference takes, mostly in the session, where Icechunk keeps it until the commit."""


def bytes_held(file: ParsedFile) -> int:
    """Roughly how much memory a parsed file takes until it is committed."""
    total = VARIABLE_BYTES * len(file.variables)
    for variable in file.variables.values():
        if variable.values is not None and variable.role != "static":  # static ones are kept once
            total += variable.values.nbytes
        for ranges in variable.all_ranges():
            total += REFERENCE_BYTES * ranges.offsets.size + sum(map(len, ranges.inlined.values()))
    return total


@dataclass
class Ingestion:
    """One call of `ingest`: the datasets that the files go into, and their commits, one per batch."""

    store: Any
    """The repository, or a function that opens or creates it; None for a dry run without one."""

    branch: str
    """The branch that commits go to."""

    urls: list[str]
    """All files that were named."""

    parts: list[DatasetIngestion]
    """One dataset, or one for every group of the files that has data."""

    groups: Groups | None = None
    """All groups of the files; None if only one group is ingested."""

    above: str = ""
    """The group that holds the datasets of all groups."""

    prefixes: set[str] = field(init=False, default_factory=set)
    """The URL prefixes that the sources are below."""

    def split_groups(self) -> None:
        """Take every group of the files, each as its own dataset."""
        (whole,) = self.parts
        if not whole.request.dims:
            raise IngestError(
                f"{argument('source_group', '*')} needs {argument('concat_dim')}: each group has "
                "its own coordinates"
            )
        self.above = whole.group
        self.groups = groups = Groups.of(whole.urls, whole.sources, with_fields(whole.request, group=""))
        self.parts = []
        for path, urls in groups.with_data.items():
            request, group = with_fields(whole.request, group=path), joined_path(whole.group, path)
            failures = dict(groups.unreadable)
            self.parts.append(with_fields(whole, request=request, group=group, urls=urls, failures=failures))

    def open(self, *, create: bool = False) -> icechunk.Repository | None:
        """The repository, opened once; None if it does not exist and is not to be created."""
        if callable(self.store):
            try:
                self.store = self.store(create=create)
            except RepositoryNotFoundError:
                return None
        repo: icechunk.Repository | None = self.store
        return repo

    def batches(self, limit: int | None, progress: Progress, *, bounded: bool) -> Generator[None]:
        """Parse what the datasets do not hold yet; each time, the next batch is in `parsed`.

        There is at least one batch, which may be empty. It has at most `limit` files, or the default number.
        """
        repo = self.open()
        with explain_errors(repo):
            session = None if repo is None else repo.readonly_session(self.branch)
            streams = [(part, *part.begin(session)) for part in self.parts]
        new = [url for url in self.urls if any(url in fresh for _, fresh, _ in streams)]
        steps = len(new) + 1  # parsing every file, and the commit
        progress(0, steps)
        before = nbytes = 0
        for done, url in enumerate(new, start=1):
            nbytes += sum(part.take(next(results)) for part, fresh, results in streams if url in fresh)
            progress(done, steps)
            most = limit or max(BATCH_FILES, before // BATCH_SHARE)
            if done < len(new) and (done - before >= most or (bounded and nbytes >= BATCH_BYTES)):
                yield
                before, nbytes = done, 0
        yield
        progress(steps, steps)

    def preview(self, batches: Iterable[None]) -> IngestReport:
        """What a commit would do; nothing is written."""
        for _ in batches:  # there is only one
            repo = self.open()
            with explain_errors(repo):
                session = None if repo is None else repo.readonly_session(self.branch)
                for part in self.parts:
                    part.make_plan(Dataset() if session is None else Dataset.read(session.store, part.group))
                    part.planned.note_what_gdal_cannot_read()
                    part.end_batch()
        return self._report(None)

    def commit(self, batches: Generator[None], message: str | None) -> IngestReport:
        """Commit every batch; returns one report for all."""
        snapshot_id = None
        with closing(batches):  # whatever happens, parsing stops
            for number, _ in enumerate(batches):
                repo = self.open()
                if repo is not None and not number:
                    self._accept_restored(repo)
                elif repo is not None:
                    # otherwise Icechunk would keep the references of earlier batches in memory
                    self.store = reopen_without_cache(repo)
                snapshot_id = self._commit_batch(message) or snapshot_id
                for part in self.parts:
                    part.end_batch()
        return self._report(snapshot_id)

    def _accept_restored(self, repo: icechunk.Repository) -> None:
        """First of all, make files readable again that were restored without their times."""
        restored = {url: identity for part in self.parts for url, identity in part.restored.items()}
        if restored:
            self.store = accept_restored(repo, restored, self.branch, self.parts[0].sources)

    def _commit_batch(self, message: str | None) -> str | None:
        """Write a batch in one commit, and return its snapshot; None if there is nothing to write.

        A repository is created only if something goes into it.
        """
        repo, is_planned = self.open(), False
        if repo is None:
            if self.branch != "main":
                raise VersionNotFoundError(
                    f"a new repository has no branch {self.branch!r}, only 'main': name that one"
                )
            self._plan([Dataset() for _ in self.parts])
            if not self._adds_files:
                return None
            repo, is_planned = self.open(create=True), True
            assert repo is not None
        commit = Commit(repo, self.branch, message or "ingest")

        def prepare() -> UncommittedChange | str | None:
            nonlocal is_planned
            session = self.store.writable_session(self.branch)
            self._plan_in(session, is_planned)
            is_planned = False  # plans are written into: if another writer was faster, they are made again
            batch = self._merge([part.batch for part in self.parts])
            commit.message = message or f"ingest: {batch.summary}"
            return self._write(session)

        snapshot_id = commit_with_retries(commit, prepare)
        return snapshot_id if self._adds_files else None

    @property
    def _adds_files(self) -> bool:
        return any(part.planned.adds_files for part in self.parts)

    def _plan_in(self, session: icechunk.Session, is_planned: bool) -> None:
        """Plan for the datasets as they are in a session, unless they are new and everything is planned.

        Files that go after all others need only the end of the dataset, whatever its length.
        """
        if len(self.parts) == 1 and not self.parts[0].again:
            end = self.parts[0].read_end(session)
            if end is not None:
                with suppress(WholeDatasetNeededError):
                    self._plan([end])
                    return
        datasets = [Dataset.read(session.store, part.group) for part in self.parts]
        if not is_planned or not all(dataset.is_new for dataset in datasets):
            self._plan(datasets)

    def _plan(self, datasets: Sequence[Dataset]) -> None:
        """Plan for all datasets; a file that one of them refuses goes into none."""
        while True:
            for part, dataset in zip(self.parts, datasets, strict=True):
                part.make_plan(dataset)
            refused = {url: why for part in self.parts for url, why in part.planned.refused.items()}
            affected = [part for part in self.parts if any(file.url in refused for file in part.parsed)]
            if len(self.parts) == 1 or not affected:
                break
            for part in affected:
                part.failures |= {file.url: refused[file.url] for file in part.parsed if file.url in refused}
                part.parsed = [file for file in part.parsed if file.url not in refused]
        for part in self.parts:
            if part.planned.refused and part.errors != "skip":
                before = len(part.report.changes)
                raise IngestError(refusal_text(part.planned.refused, len(self.urls), before))

    def _write(self, session: icechunk.Session) -> UncommittedChange | str | None:
        """Write what is planned into a session; returns its snapshot if nothing is new.

        None if it has to be planned again: another writer was faster, or some of it cannot be opened.
        """
        config = self.store.config
        handle = self._configure(self.store)
        if not self._adds_files:
            return session.snapshot_id
        if handle.config != config:  # a session keeps the configuration that it began with
            planned_at, session = session.snapshot_id, handle.writable_session(self.branch)
            if session.snapshot_id != planned_at:
                return None
        store = safe_store(session.store)
        written = [part.write(store) for part in self.parts if part.planned.adds_files]
        if not all(written):
            return None
        if self.groups is not None:
            self._write_groups_without_data(store, self.groups)
        return UncommittedChange(session)

    def _configure(self, repo: icechunk.Repository) -> icechunk.Repository:
        """The handle to write the plans with; from now on, the repository may read their sources.

        Both differ if the commit fills members: each of them then gets one manifest of references.
        """
        plans = [(part.group, part.planned) for part in self.parts if part.planned.adds_files]
        locations = {url for part in self.parts for url in part.planned.locations()}
        folders = {url.rpartition("/")[0] + "/" for url in self.parts[0].urls}
        options = self.parts[0].sources.options
        split = partial(with_splitting, plans=plans)
        self.store, prefixes = with_containers(repo, locations, folders, options, split)
        self.prefixes |= set(prefixes)
        config = with_whole_members(self.store.config, plans)
        handle: icechunk.Repository = self.store if config is None else self.store.reopen(config=config)
        return handle

    def _write_groups_without_data(self, store: Any, groups: Groups) -> None:
        """Write the groups without data; then all groups must open as one tree."""
        plans = {part.request.group: part.planned for part in self.parts}
        groups.write_without_data(store, self.above, plans)
        if problem := tree_problem(store, self.above):
            raise IngestError(
                f"the groups of the files do not open as one tree, so nothing was written: {problem}\n"
                f"  Ingest such groups one by one: {argument('source_group')} names one, and "
                f"{argument('group')} where it goes"
            )

    def _merge(self, reports: Sequence[IngestReport]) -> IngestReport:
        """One report of those of all datasets."""
        above = [] if self.groups is None else [IngestReport(left_out=self.groups.left_out)]
        return merge_reports([*above, *reports])

    def _report(self, snapshot_id: str | None) -> IngestReport:
        """One report of everything that was done, or would be."""
        report = self._merge([part.report for part in self.parts])
        files = {file.url: file for file in report.files}
        return with_fields(
            with_drifts(report, inspect.signature(ingest).parameters),
            files=tuple(files[url] for url in self.urls if url in files),
            snapshot_id=snapshot_id,
            repository=self.open(),
            containers=tuple(sorted(self.prefixes)),
        )


@dataclass
class DatasetIngestion:
    """Files that were named, on their way into one dataset, batch by batch."""

    group: str
    """The group that holds the dataset."""

    urls: list[str]
    """All files that were named."""

    sources: Sources
    request: ParseRequest
    rules: IngestRules
    errors: str
    """Whether files that cannot be taken `raise` or are `skip`ped."""

    replace: bool
    """Whether changed files are taken again."""

    coordinate_sources: Mapping[str, CoordinateSource]
    """Where coordinates that are not in the files come from."""

    schema: Any
    """What the caller declared; files are checked against it."""

    engine: Engine
    """What parses the files."""

    failures: dict[str, str] = field(default_factory=dict)
    """Files of this batch that could not be parsed, and why."""

    parsed: list[ParsedFile] = field(init=False, default_factory=list)
    """Files of this batch that could be parsed."""

    again: list[ParsedFile] = field(init=False, default_factory=list)
    """Files already in the dataset, parsed again for variables that it does not have."""

    unchanged: set[str] = field(init=False, default_factory=set)
    """Files already in the dataset, with the same content."""

    changed: set[str] = field(init=False, default_factory=set)
    """Files already in the dataset, with different content."""

    restored: dict[str, ContentIdentity] = field(init=False, default_factory=dict)
    """Files with another modification time but the same bytes, and what identifies them now."""

    compared: str = field(init=False, default="")
    """The snapshot that the files were compared with."""

    planned: IngestPlan = field(init=False)
    """What becomes of the files of this batch."""

    batch: IngestReport = field(init=False)
    """What the plan does with every file."""

    report: IngestReport = field(init=False, default_factory=IngestReport)
    """What the earlier batches did."""

    def begin(
        self, session: icechunk.Session | None
    ) -> tuple[dict[str, None], Iterator[ParsedFile | ParseFailure]]:
        """Compare files with the dataset as it is in a session; returns those to parse, and what is found."""
        dims: tuple[str, ...] = ()
        if session is not None:
            group = dataset_group(session.store, self.group)
            self._compare(group, session.snapshot_id)
            dims = () if self.request.dims else read_ledger(group, rows=False).dims
        known = set() if self.rules.add_variables else self.unchanged
        fresh = [url for url in self.urls if url not in known]
        return dict.fromkeys(fresh), self._parse(fresh, dims)

    def _compare(self, group: Any, snapshot_id: str) -> None:
        """Find out which files are in the dataset, with the same or with different content."""
        self.compared = snapshot_id
        known = entries_of(group, self.urls)
        if not known:
            return
        states = source_files.source_states(
            self.sources, {url: content for url, (_, content) in known.items()}
        )
        self.unchanged = {url for url, state in states.items() if state == "present"}
        changed = {url: known[url][1] for url, state in states.items() if state == "changed"}
        self.restored = source_files.find_restored(self.sources, changed)
        self.unchanged |= self.restored.keys()
        self.changed = set(states) - self.unchanged

    def _parse(self, urls: list[str], known_dims: tuple[str, ...]) -> Iterator[ParsedFile | ParseFailure]:
        """Parse every file; if no dimensions were named, their coordinates determine them."""
        results = parse_all(urls, self.sources, self.request, self.engine)
        if self.request.dims or not urls:
            yield from results
            return
        found = list(results)
        files = [each for each in found if isinstance(each, ParsedFile)]
        if not files:  # all that can be said is what is wrong with each
            yield from found
            return
        dims = known_dims or find_concat_dims(files, self.rules.tolerance, self.rules.convert_units)
        if not dims:
            failed = [f"{each.url}: {each.reason}" for each in found if isinstance(each, ParseFailure)][:1]
            why = f"no coordinate differs between {'the other ' if failed else ''}files: "
            why += f"{argument('concat_dim')} names the dimension along which to join them"
            raise IngestError("\n  ".join([*failed, why]))
        self.request = with_fields(
            self.request, dims=(*dims, *(dim for dim in self.coordinate_sources if dim not in dims))
        )
        for each in found:
            again = each if isinstance(each, ParseFailure) else assign_roles(each, self.request)
            yield again or parse_one(each.url, self.sources, self.request)

    def take(self, parsed: ParsedFile | ParseFailure) -> int:
        """Put a parsed file where it belongs; returns roughly how much memory it takes."""
        try:
            if isinstance(parsed, ParseFailure):
                raise IngestError(parsed.reason)
            add_coordinates(parsed, self.request.dims, self.coordinate_sources)
            if parsed.url in self.changed and not self.replace:
                raise IngestError(
                    f"it has changed since it was ingested ({argument('replace', True)} ingests it again)"
                )
        except IngestError as error:
            self.failures[parsed.url] = str(error)
            return 0
        (self.again if parsed.url in self.unchanged else self.parsed).append(parsed)
        return bytes_held(parsed)

    def read_end(self, session: icechunk.Session) -> Dataset | None:
        """The end of the dataset, if the files of this batch need no more; otherwise None."""
        urls = [file.url for file in self.parsed]
        if self.compared == session.snapshot_id and self.changed.isdisjoint(urls):
            urls = []  # we already checked whether the dataset knows them
        return Dataset.read_end(session.store, self.group, urls)

    def make_plan(self, dataset: Dataset) -> None:
        """Plan what goes where; files that are there, or that others have added since, are unchanged."""
        if self.schema is not None and self.rules.schema is None:  # now the dimensions are known
            schema = read_schema(self.schema, self.request, self.sources, self.coordinate_sources)
            self.rules = with_fields(self.rules, schema=schema)
        plan = plan_ingest(
            self.parsed, dataset, self.request, self.rules, again=self.again, replaces=self.replace
        )
        plan.refused |= self.failures
        plan.unchanged |= self.unchanged
        self.planned = plan
        # the first report includes files that are unchanged
        named = [file.url for file in (*self.parsed, *self.again)] if self.report.files else self.urls
        self.batch = report_plan(plan, dict.fromkeys((*named, *plan.refused)))

    def write(self, store: Any) -> bool:
        """Write the plan; returns whether everything in it opens. What does not is removed from the files."""
        plan, dataset = self.planned, self.planned.dataset
        problems = PlanWriter(store, self.group, plan, self.sources, self.request).write()
        before = [*dataset.plain, *dataset.logical_groups]
        written = dict.fromkeys((*plan.plain, *plan.arrays))
        if not problems and not (dataset.origin and written.keys() <= set(before) and not plan.attrs):
            problems |= variable_problems(store, self.group, before, written)
        problems = {name: why for name, why in problems.items() if name in written}
        declared = [] if self.rules.schema is None else [self.rules.schema.file]
        for name, why in problems.items():
            if name in before:
                raise IngestError(
                    f"with these files {name!r} of the dataset could no longer be opened, and nothing was "
                    f"written: {why}"
                )
            parts = plan.arrays[name].parts if name in plan.arrays else [name]
            for file in (*self.parsed, *self.again, *declared):
                for part in parts:
                    if file.variables.pop(part, None) is not None:
                        file.left_out[part] = why
        return not problems

    def end_batch(self) -> None:
        """Forget the files of a batch."""
        earlier = [after_batch(self.report, self.planned.cube.axes[0])] if self.report.files else []
        self.report = merge_reports([*earlier, self.batch])
        self.parsed, self.again, self.failures = [], [], {}


def remove(
    store: Any,
    files: str | os.PathLike[str] | Iterable[Any],
    *,
    group: str = "",
    branch: str = "main",
    message: str | None = None,
) -> str:
    """Take files out of a dataset that `ingest` made, in one commit; returns the id of its snapshot.

    What they showed is then missing, and steps of an axis that no other file has are gone: the dataset is as
    if they had never been ingested. `files` are paths, URLs or globs of either, which are compared with the
    sources that the dataset knows: the files themselves need not exist any more. They are not deleted.

    >>> import tempfile, h5py, numpy as np, intarsia
    >>> folder = tempfile.mkdtemp()
    >>> for day in range(3):
    ...     with h5py.File(f"{folder}/{day}.h5", "w") as file:
    ...         file["time"] = np.array([day])
    ...         file["sst"] = np.full((1, 4), day, dtype="f4")
    ...         file["time"].make_scale("time")
    ...         file["sst"].dims[0].attach_scale(file["time"])
    >>> report = intarsia.ingest(f"{folder}/*.h5", f"{folder}/repository", concat_dim="time")
    >>> snapshot = intarsia.archives.remove(report.repository, f"{folder}/1.h5")
    >>> intarsia.open(report.repository, "sst")[:, 0].tolist()
    [0.0, 2.0]
    """
    opened = store if isinstance(store, icechunk.Repository) else open_repository(store)
    commit, named = Commit(opened, branch, message or "remove"), names_in(files)

    def prepare() -> UncommittedChange:
        session = opened.writable_session(branch)
        dataset = Dataset.read(session.store, group)
        gone = _entries(named, dataset.ledger)
        if set(dataset.ledger.file_regions.member.tolist()) <= set(gone):
            raise IngestError(
                "these are all the files of the dataset that show anything, so nothing would be left: delete "
                "its group instead"
            )
        request = ParseRequest(dataset.ledger.dims)
        plan = plan_ingest((), dataset, request, IngestRules(), removed=gone)
        problems = PlanWriter(safe_store(session.store), group, plan, Sources(), request).write()
        if problems:
            raise IngestError(f"without these files the dataset cannot be written: {problems}")
        commit.message = message or f"remove {count_text(len(gone), 'file')}"
        return UncommittedChange(session)

    return commit_with_retries(commit, prepare)


def _entries(named: Iterable[Any], ledger: Ledger) -> list[int]:
    """The ledger entries of the files that were named; globs are those of `ingest`."""
    known = {unquote(url): i for i, url in enumerate(ledger.locations)}
    listing = SimpleNamespace(list=lambda **_: [[{"path": name} for name in known]])
    found: dict[int, None] = {}
    for name in named:
        text = os.fspath(name)
        path = unquote(url_of(text))
        hits = [path] if path in known else []
        if not hits and WILDCARDS.search(text):
            hits = list(import_extra("obspec_utils.glob", "virtual").glob(listing, path))
        if not hits:
            raise IngestError(
                f"{text} is not a source of the dataset, which has {count_text(len(known), 'file')}"
            )
        found |= dict.fromkeys(known[hit] for hit in hits)
    return list(found)
