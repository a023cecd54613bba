"""Planning an ingest: everything is decided here, and nothing is written."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.arrange import Segment, arrange
from intarsia.archives.cf import PACKING, Packing
from intarsia.archives.joins import Joined, join
from intarsia.archives.ledger import Ledger
from intarsia.archives.pieces import pieces_of
from intarsia.archives.plan import ArrayPlan, Plan, Share
from intarsia.archives.reference import Reference, Rules, widened
from intarsia.array.memory import is_nullable, values_dtype
from intarsia.errors import IngestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from intarsia.archives.arrange import Placement
    from intarsia.archives.dataset import Dataset
    from intarsia.archives.parsed import ParsedFile, Want

__all__ = ["make_plan"]


def make_plan(
    files: Sequence[ParsedFile],
    dataset: Dataset,
    want: Want,
    rules: Rules,
    replaced: Mapping[str, int] | None = None,
) -> Plan:
    """Decide everything about these files; `replaced` gives the ledger's entries of those that are in it."""
    dim = want.concat_dim
    if dataset.concat_dim and dataset.concat_dim != dim:
        raise IngestError(f"the dataset grows along {dataset.concat_dim!r}, not along {dim!r}")
    reference = Reference(dim, rules, dataset, want.variables)
    refused: dict[str, str] = {}
    fitting = []
    for file in files:
        try:
            problem = _steps_problem(file, dim) or reference.problem(file)
        except IngestError as error:
            problem = str(error)
        if problem:
            refused[file.url] = problem
        else:
            fitting.append(file)
    gone = sorted((replaced or {})[file.url] for file in fitting if file.url in (replaced or {}))
    axis = _join(dim, fitting, dataset)
    kept = _kept(dataset.ledger, gone)
    old = _segments(dataset, kept, axis)
    new = [
        Segment(file.url, None if axis is None else axis.parts[i], _steps(file, dim))
        for i, file in enumerate(fitting)
    ]
    placements, overlapping = arrange(old, new, dim, {} if axis is None else axis.attrs)
    refused |= {fitting[i].url: reason for i, reason in overlapping.items()}
    undone = [file for i, file in enumerate(fitting) if i in overlapping and file.url in (replaced or {})]
    if undone:  # what cannot take its place must not lose it
        rest = [file for file in files if file not in undone]
        plan = make_plan(rest, dataset, want, rules, replaced)
        plan.refused |= {file.url: refused[file.url] for file in undone}
        return plan
    return _assemble(fitting, placements, gone, kept, dataset, dim, rules, reference, refused)


def _steps_problem(file: ParsedFile, dim: str) -> str:
    steps = _steps(file, dim)
    if steps == 0:
        return f"it has no step along {dim!r}"
    lengths = _lengths(file, dim)
    longer = next((name for name, length in lengths.items() if length > steps), None)
    if longer is not None:
        return f"{longer!r} has {lengths[longer]} steps along {dim!r}, but its coordinate has {steps}"
    return ""


def _steps(file: ParsedFile, dim: str) -> int:
    """How many steps a file has: those of its coordinate, or of its longest variable.

    What a shorter variable lacks is a hole, as in a NetCDF file with an unlimited dimension.
    """
    lengths = _lengths(file, dim)
    return lengths.get(dim, max(lengths.values(), default=0))


def _lengths(file: ParsedFile, dim: str) -> dict[str, int]:
    return {
        name: variable.shape[variable.axis(dim)]
        for name, variable in file.variables.items()
        if variable.role != "static" and dim in variable.dims
    }


def _join(name: str, files: Sequence[ParsedFile], dataset: Dataset) -> Joined | None:
    """A coordinate over all files; None if a file has none."""
    variables = [file.variables.get(name) for file in files]
    if not variables or any(variable is None or variable.role != "joined" for variable in variables):
        if name in dataset.plain and files:
            lacking = next(f.url for f, v in zip(files, variables, strict=True) if v is None)
            raise IngestError(f"{lacking} has no coordinate {name!r}, but the dataset does")
        return None
    if not dataset.is_new and name not in dataset.plain:
        return None
    before = None if dataset.is_new else (dataset.values(name), dataset.attrs(name))
    return join(name, [variable for variable in variables if variable is not None], before)


def _kept(ledger: Ledger, gone: Sequence[int]) -> list[int]:
    return [i for i in range(len(ledger.locations)) if i not in set(gone)]


def _segments(dataset: Dataset, kept: Sequence[int], axis: Joined | None) -> list[Segment]:
    ledger, starts = dataset.ledger, dataset.ledger.starts
    values = None if axis is None else axis.before
    return [
        Segment(
            ledger.locations[i],
            None if values is None else values[starts[i] : starts[i] + ledger.lengths[i]],
            ledger.lengths[i],
        )
        for i in kept
    ]


def _assemble(
    fitting: Sequence[ParsedFile],
    placements: Sequence[Placement],
    gone: Sequence[int],
    kept: Sequence[int],
    dataset: Dataset,
    dim: str,
    rules: Rules,
    reference: Reference,
    refused: dict[str, str],
) -> Plan:
    ledger = dataset.ledger
    openings: dict[int, int] = {}
    placed, shift = [], 0
    for placement in placements:
        openings[placement.at] = openings.get(placement.at, 0) + placement.length
        placed.append((fitting[placement.file], placement.at + shift, placement.length))
        shift += placement.length
    files = [file for file, *_ in placed]
    removed = [(int(ledger.starts[i]), int(ledger.starts[i]) + ledger.lengths[i]) for i in reversed(gone)]
    length = sum(ledger.lengths[i] for i in kept) + shift
    names = dict.fromkeys(name for file in files for name, v in file.variables.items() if v.role == "joined")
    joined = {name: j for name in names if (j := _join(name, files, dataset)) is not None}
    dropped = dict(reference.dropped)
    static = {
        name: variable
        for file in reversed(files)
        for name, variable in file.variables.items()
        if variable.role == "static" and name not in dataset.plain and name not in dropped
    }
    plan = Plan(
        dim,
        removed,
        sorted(openings.items(), reverse=True),
        length,
        placed,
        {name: _array(name, placed, length, dim, rules, dataset) for name in reference.data},
        joined,
        static,
        _new_ledger(ledger, kept, placed, placements),
        dict(files[0].attrs) if files else {},
        refused,
        {name: reason for file in reversed(files) for name, reason in file.left_out.items()} | dropped,
    )
    plan.left_out |= {name: "not every file has it" for name in names if name not in joined}
    return plan


def _new_ledger(
    ledger: Ledger, kept: Sequence[int], placed: Sequence[Any], placements: Sequence[Placement]
) -> Ledger:
    starts = np.cumsum([0, *(ledger.lengths[i] for i in kept)])
    entries = [
        (int(starts[n]), 1, ledger.locations[i], ledger.contents[i], ledger.lengths[i])
        for n, i in enumerate(kept)
    ]
    for placement, (file, _, length) in zip(placements, placed, strict=True):
        entries.append((placement.at, 0, file.url, file.identity.text, length))
    entries.sort(key=lambda entry: entry[:2])
    members = {name: dict(known) for name, known in ledger.members.items()}
    return Ledger([e[2] for e in entries], [e[3] for e in entries], [e[4] for e in entries], members)


def _array(
    name: str,
    placed: Sequence[tuple[ParsedFile, int, int]],
    length: int,
    dim: str,
    rules: Rules,
    dataset: Dataset,
) -> ArrayPlan:
    """How one variable of the new files is backed."""
    found = [
        (file, file.variables[name], start)
        for file, start, _ in placed
        if name in file.variables and file.variables[name].role == "data"
    ]
    frame = dataset.frames.get(name)
    nulls = rules.nulls if frame is None else is_nullable(frame.manifest.data_type)
    packings = [Packing.of(variable.dtype, variable.attrs, nulls=nulls) for _, variable, _ in found]
    if frame is not None:
        manifest = frame.manifest
        dims = tuple(str(each) for each in manifest.dimension_names or ())
        axis = dims.index(dim)
        shape = manifest.shape[:axis] + (length,) + manifest.shape[axis + 1 :]
        dtype, fill, lattice = values_dtype(manifest.data_type), manifest.fill_value, manifest.chunk_shape
        wider = None if nulls or name in rules.dtypes else widened(dtype, {p.decoded for p in packings})
        if wider is not None:
            dtype, fill = wider, wider.type(fill)
    else:
        first = found[0][1]
        dims, axis = first.dims, first.axis(dim)
        shape = first.shape[:axis] + (length,) + first.shape[axis + 1 :]
        dtype = rules.dtypes.get(name) or _common_type(packings)
        nulls = nulls and dtype.kind in "biuf"
        fill = dtype.type(np.nan) if dtype.kind in "fc" and not nulls else None
        lattice = _lattice(shape, axis, [variable.chunks for _, variable, _ in found])
    shares = [
        Share(file, variable, start, pieces_of(variable, packing, dtype, rules.copy))
        for (file, variable, start), packing in zip(found, packings, strict=True)
    ]
    for share in shares:
        if len(share.pieces) > 1:
            chunks = share.variable.chunks
            lattice = tuple(c if d == axis else gcd(c, chunks[d]) for d, c in enumerate(lattice))
    attrs = {key: value for key, value in (found[0][1].attrs if found else {}).items() if key not in PACKING}
    return ArrayPlan(name, dims, shape, axis, dtype, fill, attrs, lattice, shares, nulls)


def _common_type(packings: Sequence[Packing]) -> np.dtype[Any]:
    kinds = {packing.decoded for packing in packings}
    if any(isinstance(kind, np.dtypes.StringDType) for kind in kinds):
        return np.dtypes.StringDType()
    return np.result_type(*kinds)


def _lattice(shape: tuple[int, ...], axis: int, chunks: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Steps along the axis; on the others the smallest chunk that all chunks are made of, or the whole axis.

    >>> _lattice((9, 100, 100), 0, [(1, 50, 30), (3, 100, 40)])
    (1, 50, 100)
    """
    found = []
    for d, size in enumerate(shape):
        if d == axis:
            found.append(1)
            continue
        grains = {min(c[d], max(size, 1)) for c in chunks}
        least = min(grains)
        fits = all(grain % least == 0 or grain == size for grain in grains)
        found.append(least if fits else max(size, 1))
    return tuple(found)
