"""Claim: an archive of 100,000 files is ingested as fast as one of 1,000, and one more file costs the same.

Every size has a process and a repository of its own, after one of a few files. Processor time is the measure:
other work on a machine does not change it much. Long runs are made by hand, `python -m
benchmarks.archive_scale real 100000` or `invented 1000000`, and write what they found into
`archive_scale.json`, from where this page has them.

What is real are NetCDF files, parsed one by one, with seven scales by turns. What is invented are references:
a parser makes ten up for every file, each file with a scale of its own, so that nothing is measured but what
comes after parsing. Requests are files of the repository that were opened, for reading or for writing.

What one more file writes depends on how full the last chunks of tables are, and the last manifest: each of
them is written again until it is full. So it is measured eight times, with files in between that spread these
over all that they can be. Requests, objects and bytes are the means of that, times the middle ones.

Parts and limits: What one more file costs grows with the numbers of commits and of full members, by what
Icechunk writes in any case: every commit lists all commits and all arrays. The tables have that, and what it
is by Icechunk alone. The list of commits before that stays in `overwritten/`, and is not written again: the
file is moved there, and S3 copies it by itself.
"""

import ctypes
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

import h5py
import icechunk
import numpy as np
import zarr

import intarsia
from benchmarks.ingest import by_virtualizarr
from benchmarks.measure import headed, table, with_limits
from intarsia.archives.parsed_file import ChunkRanges, ParsedFile, ParsedVariable, ParseRequest
from intarsia.archives.plan.ingest_plan import FULL
from intarsia.archives.source_files import ContentIdentity, Sources
from intarsia.versions.repository import LOG_ENTRIES

RECORD = Path(__file__).with_suffix(".json")
"""What the runs found that are too long for every day."""

SIZES = {"VirtualiZarr": (1_000,), "real": (1_000, 10_000), "invented": (1_000, 10_000)}
"""Numbers of files that are measured every time."""

CHUNKS = 10
"""References that are invented for a file."""

FIRST = 20
"""Files of an archive that is made before, so that what a process needs once, as modules, is not measured."""

MORE = 8
"""Files that are added one by one."""

BETWEEN = 574
"""Files that are added together after each of them. With so many, chunks of 1,024 to 4,096 rows and manifests
of 200 files are about half full, in the mean, wherever they began."""

KINDS = {
    "chunks": "chunks of tables and coordinates",
    "manifests": "manifests of references",
    "snapshots": "the list of arrays (snapshot)",
    "transactions": "what changed (transaction log)",
    "repo": "the list of commits (`repo`)",
    "overwritten": "lists of commits that the same call replaced (`overwritten/`)",
}
"""What a repository has in its folders."""

GRID = (6, 8)
TEMPLATES = 70
"""Real files differ in their time; the rest of them is one of so many."""


def real_files(folder: Path, count: int) -> list[Path]:
    """Daily files of one small variable."""
    made = [_template(folder / "template.nc", day) for day in range(TEMPLATES)]
    paths = []
    for day in range(count):
        content, at = made[day % TEMPLATES]
        paths.append(folder / f"{day:07d}.nc")
        paths[-1].write_bytes(content[:at] + struct.pack("<d", day) + content[at + 8 :])
    return paths


def _template(path: Path, day: int) -> tuple[bytes, int]:
    """The bytes of a file, and where its time is."""
    with h5py.File(path, "w", libver="latest") as file:
        file["time"] = np.array([float(day)])
        file["time"].attrs["units"] = "days since 1900-01-01"
        file["time"].make_scale("time")
        values = np.full((1, *GRID), day, dtype="i2")
        sst = file.create_dataset("sst", data=values, chunks=values.shape, compression="gzip")
        sst.attrs["scale_factor"] = 0.01 * (1 + day % 7)
        sst.dims[0].attach_scale(file["time"])
        at = file["time"].id.get_offset()
    content = path.read_bytes()
    path.unlink()
    return content, at


@dataclass
class Inventor:
    """A parser that opens nothing: every file is a day, with as many chunks as it is told."""

    chunks: int = CHUNKS
    name: str = field(default="invented", init=False)

    def parse(self, url: str, sources: Sources, request: ParseRequest) -> ParsedFile:
        """One day, with a scale of its own."""
        day = int(url.rsplit("/", 1)[1].split(".")[0])
        grid = (1, self.chunks, 1)
        offsets = np.arange(self.chunks, dtype=np.uint64).reshape(grid) * np.uint64(100) + np.uint64(4096)
        ranges = ChunkRanges(url, offsets, np.full(grid, 100, dtype=np.uint64))
        attrs: dict[str, Any] = {"units": "K", "scale_factor": np.float64(0.01 + day * 1e-9)}
        shape = (1, GRID[0] * self.chunks, GRID[1])
        codecs = (
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "gzip", "configuration": {"level": 4}},
        )
        sst = ParsedVariable(
            "sst", "data", ("time", "lat", "lon"), shape, attrs, np.dtype("i2"), (1, *GRID), codecs, 0, ranges
        )  # fmt: skip
        units = {"units": "hours since 1900-01-01"}
        values = np.array([float(day)])
        clock = ParsedVariable("time", "concat", ("time",), (1,), units, values.dtype, values=values)
        return ParsedFile(url, sources.identity(url), self.name, {"sst": sst, "time": clock})

    def opened(self, url: str, sources: Sources, name: str) -> Any:
        """Never called: everything is referred to."""
        raise NotImplementedError


def invented_identity(sources: Sources, url: str) -> ContentIdentity:
    """Of files that are not there: all have one size and one age."""
    return ContentIdentity(10_000_000, datetime(2020, 1, 1, tzinfo=UTC))


type Written = dict[str, tuple[int, int, int]]
"""Objects of a repository by their paths: the file, when it was written, and its size."""


def written(folder: Path | str) -> Written:
    """What a repository consists of."""
    found: Written = {}
    for entry in os.scandir(folder):
        if entry.is_dir():
            found |= written(entry.path)
        else:
            status = entry.stat()
            found[entry.path] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def fresh_sizes(folder: Path | str, before: Written) -> dict[str, int]:
    """Sizes of objects that were written since then, by kind; a file that was only moved is not."""
    sizes, known = dict.fromkeys(KINDS, 0), set(before.values())
    for path, status in written(folder).items():
        if status not in known:
            sizes[Path(path).relative_to(folder).parts[0]] += status[-1]
    return sizes


@contextmanager
def counted_opens(folder: Path) -> Iterator[Callable[[], int]]:
    """Tells how often a file below a folder was opened, as Linux (inotify) reports it."""
    libc, opened, is_folder = ctypes.CDLL(None, use_errno=True), 0x20, 0x40000000
    watch = libc.inotify_init1(os.O_NONBLOCK)
    for place, *_ in os.walk(folder):
        libc.inotify_add_watch(watch, os.fsencode(place), opened)
    events = bytearray()

    def count() -> int:
        while True:
            try:
                events.extend(os.read(watch, 1 << 20))
            except BlockingIOError:
                break
        at = found = 0
        while at < len(events):
            _, mask, _, length = struct.unpack_from("iIII", events, at)
            found += mask & opened and not mask & is_folder
            at += 16 + length
        return found

    try:
        yield count
    finally:
        os.close(watch)


@dataclass
class Measured:
    """What one size of an archive took."""

    files: int
    references: int
    clock: float
    """Seconds for all files."""

    processor: float
    memory: int
    """The most that the process ever had, in MB."""

    day: str
    """When it was measured."""

    more: list[tuple[float, float, int, int, int]] = field(default_factory=list)
    """One more file, several times: seconds, of the processor, requests, objects and bytes written."""

    kinds: dict[str, float] = field(default_factory=dict)
    """These bytes by kind, in the mean."""

    listed: tuple[int, int, int] = (0, 0, 0)
    """How many commits, arrays and manifests there are in the end."""

    def one_more(self) -> tuple[float, ...]:
        """The middle of times, and the means of the rest."""
        clock, processor, *counts = zip(*self.more, strict=True)
        return (median(clock), median(processor), *map(fmean, counts))


def measured(kind: str, count: int) -> Measured:
    """Ingest so many files, and then one more several times."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        options: dict[str, Any] = {"concat_dim": "time", "copy": "never", "client": 1}
        total = count + MORE * (1 + BETWEEN)
        files: list[Any]
        if kind == "invented":
            options = invented_options()
            files = [f"{folder}/none/{day:08d}.nc" for day in range(total)]
        else:
            (folder / "files").mkdir()
            files = list(real_files(folder / "files", total))
        target: Any = folder / "repository"

        def ingest(some: list[Any], target: Any) -> None:
            if kind == "VirtualiZarr":
                by_virtualizarr(some, target, ["time"])
            else:
                report = intarsia.ingest(some, target, **options)
                assert len(report.of("added")) == len(some)

        ingest(files[:FIRST], folder / "first")
        clock, processor = time.perf_counter(), time.process_time()
        ingest(files[:count], target)
        took = time.perf_counter() - clock, time.process_time() - processor
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        references = count * (CHUNKS if kind == "invented" else 1)
        found = Measured(count, references, *took, memory, f"{datetime.now(UTC):%Y-%m-%d}")
        if kind != "VirtualiZarr":
            add_one_by_one(found, files[count:], target, options)
    return found


def add_one_by_one(found: Measured, files: list[Any], target: Path, options: dict[str, Any]) -> None:
    """Measure what one more file takes, several times, with others in between."""
    for at in range(0, len(files), 1 + BETWEEN):
        before = written(target)
        with counted_opens(target) as requests:
            clock, processor = time.perf_counter(), time.process_time()
            intarsia.ingest(files[at : at + 1], target, **options)
            took = time.perf_counter() - clock, time.process_time() - processor
            opened = requests()
        objects = len(set(written(target).values()) - set(before.values()))
        sizes = fresh_sizes(target, before)
        found.more.append((*took, opened, objects, sum(sizes.values())))
        for kind, size in sizes.items():
            found.kinds[kind] = found.kinds.get(kind, 0) + size / MORE
        intarsia.ingest(files[at + 1 : at + 1 + BETWEEN], target, **options)
    found.listed = listed_in(intarsia.open_repository(target))


def listed_in(repo: icechunk.Repository) -> tuple[int, int, int]:
    """How many commits, arrays and manifests a repository has."""
    snapshot: Any = repo.inspect_snapshot(repo.lookup_branch("main"))
    arrays = sum(node["node_type"] == "array" for node in snapshot["nodes"])
    return len(list(repo.ancestry(branch="main"))), arrays, len(snapshot["manifests"])


def filled() -> str:
    """What the commit took that filled a member, and what that is for each of the files in it."""
    with tempfile.TemporaryDirectory() as directory:
        target, options = Path(directory, "repository"), invented_options()
        files = [f"{directory}/none/{day:08d}.nc" for day in range(FULL // CHUNKS + 1)]
        for part in (files[:-2], files[-2:-1]):
            intarsia.ingest(part, target, **options)
        before, processor = written(target), time.process_time()
        intarsia.ingest(files[-1:], target, **options)
        took = time.process_time() - processor
        size = sum(fresh_sizes(target, before).values())
    return (
        f"A member is full with {FULL:,} references. The commit of one file that filled it wrote "
        f"{size / 1e3:,.1f} kB in {took * 1e3:.0f} ms of the processor: {size / len(files):.0f} bytes and "
        f"{took / len(files) * 1e6:.0f} µs for each of the {len(files):,} files in it.\n"
    )


def account_table(first: Measured, last: Measured) -> str:
    """What one more file writes, after few files and after many, by kind."""
    rows = [
        (
            KINDS[kind], f"{size / 1e3:,.1f} kB", f"{last.kinds[kind] / 1e3:,.1f} kB",
            f"{(last.kinds[kind] - size) / 1e3:+,.1f} kB",
        )
        for kind, size in first.kinds.items()
        if size or last.kinds[kind]
    ]  # fmt: skip
    total, grown = (sum(row.kinds.values()) for row in (first, last))
    rows.append(
        ("all", f"{total / 1e3:,.1f} kB", f"{grown / 1e3:,.1f} kB", f"{(grown - total) / 1e3:+,.1f} kB")
    )
    header = ("written", f"after {first.files:,} files", f"after {last.files:,}", "more")
    return table("What one more file writes, of those that are invented", rows, header)


def icechunk_alone(first: Measured, last: Measured) -> str:
    """What a commit of a small chunk writes by Icechunk alone, after as many others, with as many arrays and
    manifests."""
    rows = []
    for commits, arrays, manifests in (first.listed, last.listed):
        sizes = one_more_commit(commits, arrays, manifests)
        kinds = [sizes[kind] for kind in ("snapshots", "repo")]
        cells = (f"{commits:,}", f"{arrays:,}", f"{manifests:,}")
        rows.append((*cells, *(f"{size / 1e3:,.1f} kB" for size in (*kinds, sum(kinds)))))
    header = (
        "after so many commits", "with so many arrays", "and manifests", "snapshot", "`repo`", "both",
    )  # fmt: skip
    return table("One more commit, by Icechunk alone, of as many things as these archives have", rows, header)


def one_more_commit(commits: int, arrays: int, manifests: int) -> dict[str, int]:
    """Sizes of what Icechunk writes, by kind."""
    with tempfile.TemporaryDirectory() as directory:
        config = icechunk.RepositoryConfig.default()
        config.num_updates_per_repo_info_file = LOG_ENTRIES
        each = {icechunk.ManifestSplitCondition.AnyArray(): {icechunk.ManifestSplitDimCondition.Any(): 1}}
        splitting = icechunk.ManifestSplittingConfig.from_dict(each)
        config.manifest = icechunk.ManifestConfig(splitting=splitting)
        repo = icechunk.Repository.create(icechunk.local_filesystem_storage(directory), config)
        for number in range(commits):
            before = written(directory)
            session = repo.writable_session("main")
            group = zarr.open_group(session.store)
            for name in range(arrays if not number else 0):
                array = group.create_array(f"{name}", shape=(manifests,), chunks=(1,), dtype="i2")
                array[: 1 if name else manifests - arrays + 1] = 1
            group["0"][0] = number + 2
            session.commit("one more")
        return fresh_sizes(directory, before)


def invented_options() -> dict[str, Any]:
    """Options of an ingest of files that are not there."""
    Sources.identity = invented_identity  # type: ignore[method-assign]
    return {"concat_dim": "time", "copy": "never", "client": 1, "parser": Inventor()}


def in_a_process(kind: str, count: int) -> Measured:
    """The same, so that memory is of nothing else."""
    command = [sys.executable, "-m", "benchmarks.archive_scale", "measure", kind, str(count)]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return Measured(**json.loads(text))


def recorded() -> dict[str, dict[str, Any]]:
    """What long runs found, by kind and number of files."""
    found: dict[str, dict[str, Any]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def record(kind: str, count: int) -> None:
    """Measure a size, and keep what was found."""
    found = asdict(in_a_process(kind, count))
    known = recorded()
    known.setdefault(kind, {})[str(count)] = found
    RECORD.write_text(json.dumps(known, indent=1) + "\n")


def rows_of(kind: str) -> list[Measured]:
    """All sizes of a kind: those of every day, and those of long runs."""
    kept = {int(count): Measured(**found) for count, found in recorded().get(kind, {}).items()}
    fresh = {count: in_a_process(kind, count) for count in SIZES[kind]}
    return [found for _, found in sorted((kept | fresh).items())]


def speed_table(title: str, rows: list[tuple[str, Measured]]) -> str:
    """How fast files were ingested."""
    cells = [
        (
            name, f"{row.files:,}", f"{row.references:,}", f"{row.files / row.clock:,.0f}",
            f"{row.files / row.processor:,.0f}", f"{row.processor / row.files * 1e3:.2f} ms",
            f"{row.memory:,} MB", row.day,
        )
        for name, row in rows
    ]  # fmt: skip
    header = (
        "", "files", "references", "files/s", "files/s of the processor", "a file", "most memory", "measured"
    )  # fmt: skip
    return table(title, cells, header)


def more_table(title: str, rows: list[tuple[str, Measured]]) -> str:
    """What one more file took."""
    cells = []
    first: dict[str, tuple[float, ...]] = {}
    for name, row in rows:
        clock, processor, requests, objects, size = own = row.one_more()
        base = first.setdefault(name, own)
        cells.append(
            (
                name, f"{row.files:,}", f"{clock * 1e3:.0f} ms", f"{processor * 1e3:.0f} ms",
                f"{requests:.1f}", f"{objects:.1f}", f"{size / 1e3:,.1f} kB",
                " / ".join(f"{own[i] / base[i]:.2f}" for i in (1, 2, 4)), row.day,
            )
        )  # fmt: skip
    header = (
        "", "after so many files", "clock", "processor", "requests", "objects written", "bytes written",
        "processor / requests / bytes against the first row", "measured",
    )  # fmt: skip
    return table(title, cells, header)


def run() -> str:
    """The tables."""
    rows = [(kind, row) for kind in SIZES for row in rows_of(kind)]
    ours = [(kind, row) for kind, row in rows if row.more]
    first, *_, last = [row for kind, row in ours if kind == "invented" and row.kinds]
    claimed = (
        speed_table("Archives of many files, in one process, by one call", rows),
        more_table("One more file", ours),
        filled(),
    )
    limits = account_table(first, last), icechunk_alone(first, last), on_paper(rows)
    return headed(heading(ours), with_limits("\n".join(claimed), *limits))


def heading(rows: list[tuple[str, Measured]]) -> str:
    """What the tables say of real files, and of one more after the invented ones."""
    real = [row for kind, row in rows if kind == "real"]
    first, *_, last = [row for kind, row in rows if kind == "invented"]
    more = [after / before for before, after in zip(first.one_more(), last.one_more(), strict=True)]
    each = [f"{row.processor / row.files * 1e3:.1f} ms" for row in (real[0], real[-1])]
    return (
        f"a file of {real[-1].files:,} takes {each[1]} to ingest, one of {real[0].files:,} {each[0]}; "
        f"one more after {last.files:,} takes {more[1]:.1f} times the processor, {more[2]:.1f} the "
        f"requests and {more[4]:.1f} the bytes of one after {first.files:,}"
    )


def on_paper(rows: list[tuple[str, Measured]]) -> str:
    """What 10^8 references would take, from how memory and time grew last."""
    *_, before, last = [row for kind, row in rows if kind == "invented"]
    grown = last.references - before.references
    memory = last.memory + (last.memory - before.memory) / grown * (10**8 - last.references)
    seconds = last.processor / last.references * 10**8
    return (
        f"On paper: from {before.references:,} to {last.references:,} invented references memory grew by "
        f"{last.memory - before.memory:,} MB. At that rate 100,000,000 take {memory / 1e3:,.1f} GB, and "
        f"{seconds / 3600:.1f} hours of one processor.\n"
    )


def main(arguments: list[str]) -> None:
    match arguments:
        case []:
            print(run())
        case ["measure", kind, count]:
            print(json.dumps(asdict(measured(kind, int(count)))))
        case [kind, count] if kind in SIZES:
            record(kind, int(count))
        case _:
            raise SystemExit(f"say a kind ({', '.join(SIZES)}) and a number of files, or nothing")


if __name__ == "__main__":
    main(sys.argv[1:])
