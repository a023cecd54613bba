"""`intarsia.archives.sources`: which file holds which part of a dataset, and whether it still does."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from zarr.errors import ContainsArrayError

from intarsia._icechunk import VIRTUAL, chunk_table
from intarsia.archives import source_files
from intarsia.archives.dataset import dataset_group
from intarsia.archives.ledger import read_ledger
from intarsia.archives.source_files import Sources, State
from intarsia.display import Listing, bounds_text
from intarsia.engine.plan import chunks_along, plan
from intarsia.engine.request import Request, parse_selection
from intarsia.errors import BoundsError, IngestError, NotLogicalArrayError
from intarsia.logical.hierarchy import is_logical, open_group
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.opening import open as open_array
from intarsia.manifest.box import Box
from intarsia.versions.repository import explain_errors
from intarsia.versions.version import Version, resolve_store

if TYPE_CHECKING:
    from intarsia.archives.ledger import Ledger


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A box of an array, or of the axes of a dataset, that a file shows.

    >>> print(SourcePart(("sst",), ((0, 1), (0, 180))))
    [0:1, 0:180]
    """

    variables: tuple[str, ...]
    """The variables, by their names in the file unless they were renamed."""

    bounds: tuple[tuple[int, int], ...]
    """The bounds: for an array, on all its axes; for a dataset, on those that grow from file to file."""

    def __str__(self) -> str:
        return bounds_text(self.bounds)


@dataclass(frozen=True, slots=True)
class SourceChunk:
    """A chunk, and where its bytes are.

    >>> SourceChunk("file:///a.nc", 8192, 400, ((0, 1), (0, 90)), "m-1", (0, 0)).nbytes
    400
    """

    url: str
    """The file that holds it; empty if it was copied into the repository."""

    offset: int
    """The first byte."""

    nbytes: int
    """The stored size."""

    bounds: tuple[tuple[int, int], ...]
    """The elements of it that a region shows."""

    member: str
    """The name of the member behind that region."""

    index: tuple[int, ...]
    """Its place in the member's chunk grid."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a dataset.

    >>> print(SourceFile("file:///a.nc", "gone", (SourcePart(("sst",), ((0, 1), (0, 180))),)))
    gone file:///a.nc: [0:1, 0:180] of sst
    """

    url: str
    """Where it is, or was."""

    state: State | None
    """`present`, `changed`, `gone` or `unreachable`; None if it was not checked."""

    parts: tuple[SourcePart, ...]
    """The parts of it that are shown; empty if other files cover all of it."""

    chunks: tuple[SourceChunk, ...] = ()
    """The chunks that hold the selection."""

    @property
    def shows(self) -> str:
        """The first of its parts in words, and how many more there are."""
        shown = list(dict.fromkeys(map(str, self.parts)))
        more = f" and {len(shown) - 1} more" if len(shown) > 1 else ""
        return shown[0] + more if shown else "nothing"

    @property
    def variables(self) -> str:
        """The variables of all its parts."""
        return ", ".join(dict.fromkeys(name for part in self.parts for name in part.variables))

    def __str__(self) -> str:
        names = f" of {self.variables}" if self.variables else ""
        return f"{self.state or ''} {self.url}: {self.shows}".strip() + names


class SourceFiles(Listing[SourceFile]):
    """The files of a dataset, in the order in which they were added.

    >>> print(SourceFiles((SourceFile("file:///a.nc", "present", (SourcePart(("sst",), ((0, 1),)),)),)))
    State    File          Shows  Of
    present  file:///a.nc  [0:1]  sst
    """

    columns: ClassVar = {"State": "state", "File": "url", "Shows": "shows", "Of": "variables"}
    empty = "no files"

    @property
    def missing(self) -> tuple[SourceFile, ...]:
        """The files that no longer hold what they held."""
        return tuple(file for file in self if file.state not in ("present", None))


def sources(
    store: Any,
    path: str = "",
    *,
    at: Any = None,
    check: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
) -> SourceFiles:
    """Which file holds which part of an ingested dataset, and whether each file is still what it was.

    `path` is that of a dataset, or of an array in it. `at` chooses a part: an index, a selection as between
    the brackets of the array, or one by dimension, `{"time": 3}`. For an array, the answer then lists the
    chunks that hold it. The axes of a dataset are those that grow from file to file.

    A file is `present` if its size and its mark (its time of change, or its ETag on S3) are the same as when
    it was ingested, and `changed` otherwise; or it is `gone`, or `unreachable`. This costs one request per
    file, which `check=False` saves.

    Args:
        store: An Icechunk repository, or the path or URL of one.
        storage_options: The keys of the bucket that the files are in, as in `ingest`.
        branch: Read the tip of this branch. The default is `main`.
        tag: Read the version with this tag.
        snapshot_id: Read the snapshot with this id.
        as_of: Read the version that was current at this time, in UTC unless it says otherwise.

    >>> import tempfile, h5py, numpy as np, intarsia
    >>> folder = tempfile.mkdtemp()
    >>> for day in range(3):
    ...     with h5py.File(f"{folder}/{day}.h5", "w") as file:
    ...         file["time"] = np.array([day])
    ...         _ = file.create_dataset("sst", data=np.ones((1, 4), "f4"), chunks=(1, 2))
    ...         file["time"].make_scale("time")
    ...         file["sst"].dims[0].attach_scale(file["time"])
    >>> report = intarsia.ingest(f"{folder}/*.h5", f"{folder}/repository", concat_dim="time")
    >>> (file,) = intarsia.archives.sources(report.repository, "sst", at=(2, 3))
    >>> file.url.endswith("/2.h5"), file.state, [chunk.bounds for chunk in file.chunks]
    (True, 'present', [((2, 3), (2, 4))])
    """
    resolved = resolve_store(store, Version(branch, tag, snapshot_id, as_of))
    path = path.strip("/")
    with explain_errors(resolved.repo):
        array, parent = _array_at(resolved.store, path)
        ledger = read_ledger(dataset_group(resolved.store, parent))
    if not ledger.locations:
        raise IngestError(f"{path or '/'} was not ingested: no source files are known")
    if array is None:
        dims, shape = ledger.dims, tuple(ledger.file_regions.stop[:, :-1].max(axis=0, initial=0).tolist())
    else:
        dims, shape = tuple(str(dim) for dim in array.dimension_names or ()), array.shape
    request = _request(dims, shape, at)
    parts = _parts(ledger, array, dims, shape, request)
    chunks = _chunks(array, request) if array is not None and at is not None else []
    by_file: dict[int, list[SourceChunk]] = {}
    by_url = {ledger.locations[number]: number for number in parts}
    for chunk in chunks:
        number = by_url.get(chunk.url)
        if number is None:  # copied, or in a file that the source shows
            box = Box.of(chunk.bounds)
            shown = (i for i, own in parts.items() for part in own if box.intersect(Box.of(part.bounds)))
            number = next(shown, -1)
        by_file.setdefault(number, []).append(chunk)
    numbers = range(len(ledger.locations)) if at is None and array is None else [*parts]
    states: Mapping[str, State] = {}
    if check:
        known = {ledger.locations[i]: ledger.contents[i] for i in numbers}
        states = source_files.source_states(Sources(storage_options), known)
    return SourceFiles(
        tuple(
            SourceFile(url, states.get(url), tuple(parts.get(i, ())), tuple(by_file.get(i, ())))
            for i in numbers
            for url in [ledger.locations[i]]
        )
    )


def _array_at(store: Any, path: str) -> tuple[LogicalArray | None, str]:
    """The array at a path, if it is one, and the path of the dataset."""
    try:
        group = open_group(store, path, "r")
    except FileNotFoundError:
        raise NotLogicalArrayError(f"there is nothing at {path or '/'}") from None
    except ContainsArrayError:
        dataset = path.rpartition("/")[0] or "/"
        raise NotLogicalArrayError(
            f"{path} is a plain array: its values were loaded, and do not come from one file or another.\n"
            f"  The files of the dataset are those of {dataset}"
        ) from None
    if not is_logical(group):
        return None, path
    return open_array(store, path), path.rpartition("/")[0]


def _request(dims: Sequence[str], shape: tuple[int, ...], at: Any) -> Request:
    """The selection of an array, or of the axes of a dataset that grow, along which `at` chooses a part."""
    if isinstance(at, Mapping):
        unknown = [dim for dim in at if dim not in dims]
        if unknown:
            raise BoundsError(f"there is no dimension {unknown[0]!r}, only {', '.join(dims)}")
        at = tuple(at.get(dim, slice(None)) for dim in dims)
    try:
        return parse_selection(shape, ... if at is None else at, "orthogonal")
    except IndexError as error:
        raise BoundsError(f"selection {at!r} of shape {shape}: {error}") from error


def _parts(
    ledger: Ledger, array: LogicalArray | None, dims: Sequence[str], shape: tuple[int, ...], request: Request
) -> dict[int, list[SourcePart]]:
    """What each file shows of the selection, by the file's number in the ledger."""
    assert request.axes is not None  # it is an orthogonal selection
    selected = [np.unique(np.asarray(axis, dtype=np.int64)) for axis in request.axes]
    regions, names = ledger.file_regions, ledger.variables
    steps: dict[int, int | None] = dict.fromkeys(range(len(names)))
    if array is not None:
        shown = [(i, ledger.stacked.get(name, (name, None))) for i, name in enumerate(names)]
        steps = {i: step for i, (own, step) in shown if own == array.path.rpartition("/")[2]}
    axes = [dims.index(dim) for dim in ledger.dims]
    hit = np.ones(len(regions), dtype=bool)
    for k, axis in enumerate(axes):
        first, last = (np.searchsorted(selected[axis], each[:, k]) for each in (regions.start, regions.stop))
        hit &= first < last
    found: dict[int, list[SourcePart]] = {}
    for i in np.flatnonzero(hit).tolist():
        (*start, first), (*stop, last) = regions.start[i].tolist(), regions.stop[i].tolist()
        bounds = [(0, n) for n in shape]
        for axis, a, b in zip(axes, start, stop, strict=True):
            bounds[axis] = a, b
        variables: dict[int | None, list[str]] = {}
        for number in range(first, last):
            if number in steps:
                variables.setdefault(steps[number], []).append(names[number])
        for step, named in variables.items():
            if step is not None:
                bounds[0] = step, step + 1
            if step is None or step in selected[0]:
                part = SourcePart(tuple(named), tuple(bounds))
                found.setdefault(int(regions.member[i]), []).append(part)
    return dict(sorted(found.items()))


def _chunks(array: LogicalArray, request: Request) -> list[SourceChunk]:
    """The stored chunks that hold a selection."""
    manifest, tables, found = array.manifest, {}, dict[SourceChunk, None]()
    for part in plan(manifest, request).parts:
        row = manifest.regions.row(part.row)
        name = manifest.members[row.member]
        if name not in tables:
            member = array.members[name]
            path = f"{array.path}/{name}".strip("/")
            tables[name] = member.shards or member.chunks, chunk_table(array.store, path, member.ndim)
        grain, table = tables[name]
        hit = np.ones(len(table.index), dtype=bool)
        for axis, (selector, size) in enumerate(zip(part.member_selection, grain, strict=True)):
            hit &= np.isin(table.index[:, axis], list(chunks_along(selector, size)))
        for j in np.flatnonzero(hit).tolist():
            index = tuple(table.index[j].tolist())
            whole = Box.of((k * c, (k + 1) * c) for k, c in zip(index, grain, strict=True))
            shown = manifest.from_member(row, whole).intersect(manifest.elements(row.box))
            assert shown is not None
            url = table.location[j] if table.kind[j] == VIRTUAL else ""
            place = int(table.offset[j]), int(table.nbytes[j])
            found[SourceChunk(url, *place, shown.bounds, name, index)] = None
    return list(found)
