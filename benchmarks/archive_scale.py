"""Claim: an archive of 100,000 files is ingested as fast as one of 1,000, and one more file costs the same.

`python -m benchmarks.archive_scale 100000 1000000` ends with as many real files and as many that are made up.
What is real are NetCDF files, parsed one by one. What is made up are references: a parser invents them, so
that nothing is measured but what comes after parsing.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import intarsia
from benchmarks.measure import headed, numbers, table
from intarsia.archives.locations import Identity, Sources
from intarsia.archives.parsed import ChunkRanges, ParsedFile, ParsedVariable, Want

REAL, INVENTED = 10_000, 100_000
FIRST = 1_000
MORE = 5
"""Files that are added one by one, after which the middle one of their costs is shown."""

GRID = (6, 8)


def real_files(folder: Path, count: int) -> Iterator[Path]:
    """Daily files of one small variable."""
    for day in range(count):
        path = folder / f"{day:07d}.nc"
        with h5py.File(path, "w", libver="latest") as file:
            file["time"] = np.array([float(day)])
            file["time"].attrs["units"] = "days since 1900-01-01"
            file["time"].make_scale("time")
            values = np.full((1, *GRID), day % 1000, dtype="i2")
            sst = file.create_dataset("sst", data=values, chunks=values.shape, compression="gzip")
            sst.attrs["scale_factor"] = 0.01 * (1 + day % 7)
            sst.dims[0].attach_scale(file["time"])
        yield path


@dataclass
class Inventor:
    """A parser that opens nothing: every file is a day, with as many chunks as it is told."""

    chunks: int = 1
    own_scales: bool = True
    name: str = field(default="invented", init=False)

    def parse(self, url: str, sources: Sources, want: Want) -> ParsedFile:
        """One day, with a scale of its own."""
        day = int(url.rsplit("/", 1)[1].split(".")[0])
        grid = (1, self.chunks, 1)
        offsets = np.arange(self.chunks, dtype=np.uint64).reshape(grid) * np.uint64(100) + np.uint64(4096)
        ranges = ChunkRanges(url, offsets, np.full(grid, 100, dtype=np.uint64))
        attrs: dict[str, Any] = {"units": "K"}
        if self.own_scales:
            attrs["scale_factor"] = np.float64(0.01 + day * 1e-9)
        shape = (1, 6 * self.chunks, 8)
        codecs = (
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "gzip", "configuration": {"level": 4}},
        )
        sst = ParsedVariable(
            "sst", "data", ("time", "lat", "lon"), shape, attrs, np.dtype("i2"), (1, *GRID), codecs, 0, ranges
        )  # fmt: skip
        units = {"units": "days since 1900-01-01"}
        values = np.array([float(day)])
        clock = ParsedVariable("time", "joined", ("time",), (1,), units, values.dtype, values=values)
        return ParsedFile(url, sources.identity(url), self.name, {"sst": sst, "time": clock})

    def opened(self, url: str, sources: Sources, name: str) -> Any:
        """Never called: everything is referred to."""
        raise NotImplementedError


def invented_identity(sources: Sources, url: str) -> Identity:
    """Of files that are not there: all have one size and one age."""
    return Identity(10_000_000, datetime(2020, 1, 1, tzinfo=UTC))


def written(folder: Path) -> dict[str, int]:
    """Objects of a repository, and their sizes."""
    return {entry.path: entry.stat().st_size for entry in _walk(folder)}


def _walk(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _walk(entry.path)
        else:
            yield entry


@dataclass
class Archive:
    """A repository that grows."""

    folder: Path
    options: dict[str, Any]
    names: Any
    """Gives the file of a day."""

    repo: Any = None
    count: int = 0

    def ingest(self, count: int) -> float:
        """Take in some more files; returns how long that took."""
        files = [self.names(day) for day in range(self.count, self.count + count)]
        start = time.perf_counter()
        report = intarsia.ingest(
            files, self.repo or self.folder, concat_dim="time", copy="never", **self.options
        )
        took = time.perf_counter() - start
        assert len(report.of("added")) == count
        self.repo, self.count = report.repository, self.count + count
        return took

    def one_more(self) -> tuple[float, int, int]:
        """Seconds, objects and bytes that one more file takes: the middle of several."""
        costs = []
        for _ in range(MORE):
            before = written(self.folder)
            took = self.ingest(1)
            after = written(self.folder)
            fresh = {path: size for path, size in after.items() if before.get(path) != size}
            costs.append((took, len(fresh), sum(fresh.values())))
        return tuple(sorted(column)[MORE // 2] for column in zip(*costs, strict=True))  # type: ignore[return-value]


def resident() -> int:
    """The most memory that this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def growth(archive: Archive, last: int, chunks: int = 1) -> list[tuple[str, ...]]:
    """A row for every power of ten."""
    rows = []
    size = FIRST
    first: tuple[float, ...] = ()
    while size <= last:
        added = size - archive.count
        took = archive.ingest(added)
        own = (took / added, *archive.one_more())
        first = first or own
        rows.append(
            (
                f"{size:,}", f"{size * chunks:,}", f"{added / took:,.0f}", f"{resident():,} MB",
                f"{own[1] * 1e3:.0f} ms", f"{own[2]}", f"{own[3] / 1e3:,.1f} kB",
                " / ".join(f"{a / b:.2f}" for a, b in zip(own[1:], first[1:], strict=True)),
            )
        )  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
        size *= 10
    return rows


HEADER = (
    "files",
    "references",
    "files/s",
    "memory",
    "one more file",
    "objects",
    "bytes",
    "against 1,000 files",
)


def run(real: int = REAL, invented: int = INVENTED, chunks: int = 1) -> str:
    """The tables."""
    parts = []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        if real:
            (folder / "files").mkdir()
            paths = list(real_files(folder / "files", real + MORE * 10))
            rows = growth(Archive(folder / "real", {}, paths.__getitem__), real)
            parts.append(table("Real files, parsed in one process, then one more", rows, HEADER))
        if invented:
            Sources.identity = invented_identity  # type: ignore[method-assign]
            options = {"parser": Inventor(chunks)}
            archive = Archive(folder / "invented", options, lambda day: f"{folder}/none/{day:08d}.nc")
            title = f"References that a parser invented, {chunks} for each file, each with a scale of its own"
            parts.append(table(title, growth(archive, invented, chunks), HEADER))
    text = "\n".join(parts)
    counts, speed = (numbers(parts[-1], column) for column in ("files", "files/s"))
    heading = (
        f"an archive of {counts[-1]:,.0f} files is ingested at {speed[-1] / speed[0]:.2f} of the speed of "
        f"one of {counts[0]:,.0f}; what one more file costs is in the last column"
    )
    return headed(heading, text)


if __name__ == "__main__":
    print(run(*map(int, sys.argv[1:])))
