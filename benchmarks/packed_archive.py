"""Claim: an archive in which every file is packed in its own way costs what one with a single packing costs.

`python -m benchmarks.packed_archive 1000` takes fewer files. All of them are one file under many names;
what differs between them is made up while they are parsed. This is about what comes after parsing.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import icechunk
import numpy as np
from tests.servers import seaweedfs

import intarsia
from benchmarks.measure import best_times, headed, table
from intarsia.archives.formats.hdf5 import HDF5
from intarsia.archives.ingestion import BATCH_FILES

FILES, VARIABLES, GRID = 12_000, 14, (6, 8)
POINT = (slice(None), 3, 4)
MAX_ROUNDS = 8
NAMES = [f"v{i:02d}" for i in range(VARIABLES)]


def series(folder: Path, count: int) -> list[Path]:
    """Daily files, which are all the same."""
    folder.mkdir()
    axes = {"time": np.zeros(1), "lat": np.linspace(-90, 90, GRID[0]), "lon": np.linspace(0, 350, GRID[1])}
    paths = [folder / f"{day:06d}.nc" for day in range(count)]
    with h5py.File(paths[0], "w") as file:
        for name, values in axes.items():
            file[name] = values
            file[name].make_scale(name)
        file["time"].attrs["units"] = "days since 2000-01-01"
        for name in NAMES:
            values = np.arange(np.prod(GRID), dtype="i2").reshape(1, *GRID)
            variable = file.create_dataset(
                name, data=values, chunks=values.shape, compression="gzip", shuffle=True
            )
            variable.attrs.update(scale_factor=0.01, add_offset=273.15, _FillValue=np.int16(-32768))
            for axis, dimension in zip(axes, variable.dims, strict=True):
                dimension.attach_scale(file[axis])
    for path in paths[1:]:
        os.link(paths[0], path)
    return paths


class Parser:
    """Parses the first file, and takes the others for files of another day with scales of their own."""

    name = "hdf5"

    def __init__(self, scale: Callable[[], float]) -> None:
        self.scale = scale
        self.first: Any = None

    def parse(self, url: str, sources: Any, want: Any) -> Any:
        self.first = self.first or HDF5().parse(url, sources, want)
        variables = dict(self.first.variables)
        day = int(Path(url).stem)
        variables["time"] = replace(variables["time"], values=np.array([float(day)]))
        for name in NAMES:
            old = variables[name]
            attrs = old.attrs | {"scale_factor": np.float64(self.scale())}
            variables[name] = replace(old, attrs=attrs, ranges=replace(old.ranges, locations=url))
        return replace(self.first, url=url, variables=variables)

    def opened(self, url: str, sources: Any, name: str) -> AbstractContextManager[Any]:
        return HDF5().opened(url, sources, name)


class Archive:
    """The files in a repository on the server, by one ingest."""

    def __init__(self, paths: list[Path], parser: Parser, location: str, options: dict[str, str]) -> None:
        self.place = location, options
        repository = intarsia.open_repository(location, create=True, **options)
        marks: dict[int, float] = {}
        report = intarsia.ingest(
            paths,
            repository,
            concat_dim="time",
            copy="never",
            parser=parser,
            batch=BATCH_FILES,
            progress=lambda done, _: marks.setdefault(done, time.perf_counter()),
        )
        assert report.summary == f"{len(paths)} added"
        ends = [*range(BATCH_FILES, len(paths), BATCH_FILES), len(paths)]  # what follows them is a commit
        history = list(report.repository.ancestry(branch="main"))
        assert sum(each.message.startswith("ingest") for each in history) == len(ends)
        self.commit = sum(marks[end + 1] - marks[end] for end in ends)

    def opened(self) -> icechunk.Repository:
        """The repository as a process sees it that has just begun: nothing is cached."""
        location, options = self.place
        return intarsia.archives.authorize(intarsia.open_repository(location, **options))

    def array(self) -> intarsia.LogicalArray:
        return intarsia.open(self.opened(), NAMES[0])

    def series(self) -> np.ndarray:
        return self.array()[POINT]

    def counts(self) -> tuple[int, int, int, int]:
        """Regions, packings and members of all variables, and Icechunk's manifests."""
        repository = self.opened()
        arrays = [intarsia.open(repository, name) for name in NAMES]
        return (
            sum(len(array.manifest.regions) for array in arrays),
            sum(len(array.manifest.packings) for array in arrays),
            sum(len(array.members) for array in arrays),
            len(repository.list_manifest_files(repository.lookup_branch("main"))),
        )


def run(count: int = FILES) -> str:
    with tempfile.TemporaryDirectory() as directory, seaweedfs(directory) as server:
        paths, rng = series(Path(directory) / "files", count), np.random.default_rng(0)
        parsers = {
            "one packing": Parser(lambda: 0.01),
            "a packing a file": Parser(lambda: rng.uniform(0.001, 0.1)),
        }
        archives = {
            name: Archive(paths, parser, server.new_location(), server.options)
            for name, parser in parsers.items()
        }
        counts = {name: archive.counts() for name, archive in archives.items()}
        openings, reads = (
            best_times(
                {name: getattr(archive, job) for name, archive in archives.items()}, most_rounds=MAX_ROUNDS
            )
            for job in ("array", "series")
        )
    base = "one packing"
    rows = [
        (
            name,
            *map("{:,}".format, counts[name]),
            f"{archive.commit:.1f} s",
            f"{openings[name] * 1e3:.0f} ms ({openings[name] / openings[base]:.2f})",
            f"{reads[name] * 1e3:.0f} ms ({reads[name] / reads[base]:.2f})",
        )
        for name, archive in archives.items()
    ]
    title = f"{count:,} files of {VARIABLES} packed variables, Icechunk on SeaweedFS over loopback"
    what = (
        "",
        "regions",
        "packings",
        "members",
        "manifests",
        "commits, all of them",
        "open (times)",
        "point series (times)",
    )
    opening, read = (found["a packing a file"] / found[base] for found in (openings, reads))
    heading = (
        f"an archive in which every file is packed in its own way opens in {opening:.2f} of the time of one "
        f"with a single packing, and is read in {read:.2f}"
    )
    return headed(heading, table(title, rows, what))


if __name__ == "__main__":
    print(run(*map(int, sys.argv[1:])))
