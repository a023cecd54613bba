"""`intarsia.ingest`: an archive of files as one dataset of logical arrays, by reference.

The caller's options are checked here, before any file is opened; `lint` only looks. `dataset_ingestion.py`
takes files into one dataset, and `ingest_commits.py` commits them in batches. The ledger records what is
committed, so an ingest that was killed continues from there. `remove` takes files out again.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import icechunk

from intarsia._icechunk import safe_store
from intarsia.archives.dataset import Dataset
from intarsia.archives.dataset_ingestion import DatasetIngestion
from intarsia.archives.groups import ALL
from intarsia.archives.ingest_arguments import Told, listed, named_dims, named_dtypes, stacks_of, with_order
from intarsia.archives.ingest_commits import Ingestion
from intarsia.archives.ingest_report import IngestReport
from intarsia.archives.locations import WILDCARDS, Sources, local_path, url_of
from intarsia.archives.parse_pool import Engine, checked_engine
from intarsia.archives.parsed_file import Want
from intarsia.archives.permissions import Authorized, Permissions
from intarsia.archives.plan.attribute_merging import WORDS, Rule
from intarsia.archives.plan.compatibility import Rules
from intarsia.archives.plan.cube import PlacingRules
from intarsia.archives.plan.draft import emptied
from intarsia.archives.plan.overlaps import POLICIES
from intarsia.archives.preprocess import Preprocess
from intarsia.archives.write_plan import Writer, Written
from intarsia.errors import IngestError
from intarsia.progress import Progress, silent
from intarsia.versions.commit import Commit, settle
from intarsia.versions.repository import check_name, open_repository
from intarsia.words import count_text

if TYPE_CHECKING:
    from intarsia.archives.ledger import Ledger


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
        files: Paths, URLs (s3://, gs://, https://) or globs of NetCDF, HDF5, Zarr, N5, TIFF or kerchunk
            references. If there are no coordinates, nested lists give the order.
        repo: An `icechunk.Repository`, or the path or URL of one, which is created if it does not exist. A
            dry run needs none.
        concat_dim: The dimension along which files are joined, or several of them.
        combine: `"by_coords"` finds the dimensions whose coordinates differ between files. `"nested"`, the
            default, joins files along `concat_dim`.
        dims: Where to find the coordinate of a dimension that the files lack, such as `{"member":
            from_attribute("realization")}` (from `intarsia.archives`).
        stack: Variables that become one array along a new dimension: `{"CMI": ("band", ["CMI_C01",
            "CMI_C02"])}`.
        rename: Other names for variables and dimensions of the files: `{"latitude": "lat"}`.
        preprocess: A function from the metadata of a file to what should be ingested, see
            `intarsia.archives.FileMetadata`.
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
        add_variables: Whether to add variables that begin later, even from given files that are already
            there.
        units: `"ignore"` takes the numbers of files with other units as they are; `"equal"` refuses them.
        convert_units: Whether to convert units that differ by a factor and an offset (°C and K, hPa and Pa)
            to those of the first file, on reading.
        combine_attrs: What happens to attributes that differ between files, in xarray's terms. By default
            those of the first file stay.
        overlap: Which file is shown where several overlap: the `"first"`, the `"last"` or the `"newest"`;
            `"refuse"` refuses the later one.
        tolerance: Coordinates that differ by no more than this are equal. By default some floating-point
            noise is allowed.
        replace: Whether to ingest files again that have changed since. Otherwise they are refused. Small
            files with another time and the same bytes have not changed.
        nulls: Whether missing values become null instead of NaN, so that integers stay integers.
        dtype: The data types of variables, `{"sst": "float32"}`, or one for all of `variables`. Values are
            rounded to it.
        load: Variables to load into plain arrays instead of referring to them.
        coordinate: A function from the URL of a file to its coordinate. If it returns None, the file's own
            stays.
        order_by: Another variable, whose values take the place of the coordinate.
        parser: A VirtualiZarr parser, for formats that intarsia does not know.
        storage_options: Keys and endpoints for the bucket or server that the files are in, by the names that
            `open_repository` takes, such as `region` or `anonymous`.
        authorize: What files may refer to outside of their own folder or bucket, by kerchunk references,
            external storage of HDF5 or symbolic links: paths and URL prefixes, or `True` for everything.
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
    along = named_dims(concat_dim, combine, dims or {})
    told, asked = with_order(order_by, dims or {}, along)
    chosen = None if variables is None else tuple(variables)
    names = tuple((rename or {}).items())
    want = Want(
        along, chosen, (*load, *asked), names, source_group.strip("/"), preprocess,
        whole_tree=source_group.strip("/") == ALL,
    )  # fmt: skip
    if coordinate is not None and (len(along) != 1 or along[0] in told):
        raise IngestError(
            "coordinate= is for one dimension that nothing else describes: dims={'name': …} says which"
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
        raise IngestError(
            "units='ignore' keeps numbers as they are, but convert_units=True changes them: choose one"
        )
    dtypes, stacks = named_dtypes(dtype, want), stacks_of(stack)
    if repo is None and not dry_run:
        raise IngestError("pass the repository to write to, or its path (a dry run needs none)")
    if isinstance(repo, str | os.PathLike):
        check_name(repo)
    engine = checked_engine(client)
    if batch is not None and batch < 1:
        raise IngestError(f"batch={batch}: a batch has at least one file")
    sources = Sources(storage_options, Permissions.of(authorize))
    urls, places = listed(files, sources)
    if not urls:
        patterns: Any = [files] if isinstance(files, str | os.PathLike) else files
        raise IngestError(f"no file matches {', '.join(map(str, patterns)) or 'an empty list'}")
    placing = PlacingRules(overlap, tolerance, places)
    rules = Rules(
        copy, missing, add_variables, units, convert_units, dtypes, nulls, combine_attrs,
        placing=placing, stacks=stacks,
    )  # fmt: skip
    whole = DatasetIngestion(
        repo, urls, sources, want, rules, parser, group, branch, errors, replace, told, schema, engine,
        coordinate,
    )  # fmt: skip
    ingestion = Ingestion.of_all_groups(whole) if want.group == ALL else Ingestion([whole])
    # All files have to be known before the first goes anywhere if they determine the dimensions, or if nested
    # lists give their order, or a function combines all of their attributes.
    together = dry_run or not want.dims or bool(places) or callable(combine_attrs)
    most = len(urls) if together else batch
    batches = ingestion.batches(urls, most, progress, bounded=not together)
    if dry_run:
        return ingestion.shown(batches, inspect.signature(ingest).parameters)
    return ingestion.committed(batches, urls, message)


def lint(files: str | os.PathLike[str] | Iterable[Any], repo: Any = None, **options: Any) -> IngestReport:
    """Say what differs between files, and what an ingest would do about it; nothing is written.

    This is a dry run of `ingest` and takes the same `files` and `options`: give those that you would use, and
    it says what would happen. Without options, the dimensions are those whose coordinates differ. With a
    `repo`, the files are compared with the dataset that is there.

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
    >>> report = intarsia.lint(f"{folder}/*.h5")
    >>> [(drift.kind, drift.variable, drift.what) for drift in report.drifts if not drift.refused]
    [('chunks', 'sst', '1x3 instead of 1x4')]
    >>> [drift.options for drift in report.drifts if drift.refused]
    [('overlap', 'order_by')]
    """
    for name in ("dry_run", "message"):
        if name in options:
            raise TypeError(f"lint() has no argument {name}: it writes nothing")
    if not any(options.get(name) for name in ("concat_dim", "combine", "dims")):
        options["combine"] = "by_coords"
    return ingest(files, repo, **options, dry_run=True)


def remove(
    repo: Any,
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
    opened = repo if isinstance(repo, icechunk.Repository) else open_repository(repo)
    named = [files] if isinstance(files, str | os.PathLike) else list(files)
    commit = Commit(opened, branch, message or "remove")

    def prepare() -> Written:
        session = opened.writable_session(branch)
        dataset = Dataset.read(session.store, group)
        gone = _entries(named, dataset.ledger)
        draft = emptied(dataset, gone)
        problems = Writer(safe_store(session.store), group, draft, dataset, Sources()).write()
        if problems:
            raise IngestError(f"without these files the dataset cannot be written: {problems}")
        commit.message = message or f"remove {count_text(len(gone), 'file')}"
        return Written(session)

    return settle(commit, prepare)


def _entries(named: Iterable[Any], ledger: Ledger) -> list[int]:
    """The ledger entries of the files that were named."""
    known = {url: i for i, url in enumerate(ledger.locations)}
    found: dict[int, None] = {}
    for name in named:
        text = os.fspath(name)
        url = None if WILDCARDS.search(text) else url_of(text)
        hits = [i for each, i in known.items() if each == url or (url is None and _matches(each, text))]
        if not hits:
            raise IngestError(
                f"{text} is not a source of the dataset, which has {count_text(len(known), 'file')}"
            )
        found |= dict.fromkeys(hits)
    if len(found) == len(known):
        raise IngestError(
            "these are all the files of the dataset, so nothing would be left: delete its group instead"
        )
    return list(found)


def _matches(url: str, pattern: str) -> bool:
    path = local_path(url)
    if path is None or "://" in pattern:
        return fnmatchcase(url, pattern)
    return fnmatchcase(str(path), os.path.abspath(pattern))
