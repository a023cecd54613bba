"""Claim: an archive in which every file is packed in its own way costs what one with a single packing costs.

`python -m benchmarks.packed_archive 12000` takes as many files.
"""

import itertools
import sys
import tempfile
import time
from pathlib import Path

import icechunk
import netCDF4
import numpy as np
from tests.servers import seaweedfs

import intarsia
from benchmarks.measure import best_times, table

FILES, VARIABLES, GRID = 1_000, 14, (6, 8)
MOST_ROUNDS = 8
POINT = (slice(None), 3, 4)
TIME, OFFSET = np.float64(12345.678), np.float64(273.15)
NAMES = [f"v{i:02d}" for i in range(VARIABLES)]
SCALES = {name: np.float64(0.0012345 * (i + 1)) for i, name in enumerate(NAMES)}
LEVELS = itertools.cycle([1, 4, 9])


def template(path: Path) -> bytes:
    """One file, whose time and scales are found again among its bytes."""
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", 1), ("lat", GRID[0]), ("lon", GRID[1])):
            file.createDimension(name, size)
        axis = file.createVariable("time", "f8", ("time",))
        axis.units = "days since 2000-01-01"
        axis[:] = TIME
        file.createVariable("lat", "f4", ("lat",))[:] = np.linspace(-90, 90, GRID[0])
        file.createVariable("lon", "f4", ("lon",))[:] = np.linspace(-180, 180, GRID[1])
        for name, level in zip(NAMES, LEVELS, strict=False):
            variable = file.createVariable(
                name,
                "i2",
                ("time", "lat", "lon"),
                compression="zlib",
                complevel=level,
                chunksizes=(1, *GRID),
                fill_value=-32768,
            )
            variable.set_auto_maskandscale(False)
            variable.setncatts({"scale_factor": SCALES[name], "add_offset": OFFSET})
            variable[0] = np.arange(np.prod(GRID)).reshape(GRID)
    return path.read_bytes()


def series(folder: Path, count: int, *, alike: bool) -> list[Path]:
    """Daily files: the template's bytes, with another time and other scales put in."""
    folder.mkdir()
    data = template(folder / "template")
    places = {name: data.index(scale.tobytes()) for name, scale in SCALES.items()}
    rng = np.random.default_rng(0)
    paths = []
    for day in range(count):
        file = bytearray(data)
        at = data.index(TIME.tobytes())
        file[at : at + 8] = np.float64(day).tobytes()
        for place in () if alike else places.values():
            file[place : place + 8] = np.float64(rng.uniform(0.001, 0.1)).tobytes()
        paths.append(folder / f"{day:06d}.nc")
        paths[-1].write_bytes(file)
    return paths


class Archive:
    """The files in a repository on the server, by one ingest."""

    def __init__(self, paths: list[Path], location: str, options: dict[str, str]) -> None:
        self.options = location, options
        repository = intarsia.open_repository(location, create=True, **options)
        marks: list[float] = [time.perf_counter()]

        def progress(done: int, steps: int) -> None:
            marks.append(time.perf_counter())

        report = intarsia.ingest(paths, repository, concat_dim="time", progress=progress)
        assert report.summary == f"{len(paths)} added"
        self.parsing, self.commit = marks[-2] - marks[0], marks[-1] - marks[-2]

    def opened(self) -> icechunk.Repository:
        """The repository as a process sees it that has just begun: nothing is cached."""
        location, options = self.options
        return intarsia.authorize(intarsia.open_repository(location, **options))

    def array(self) -> intarsia.LogicalArray:
        return intarsia.open(self.opened(), NAMES[0])

    def series(self) -> np.ndarray:
        return self.array()[POINT]

    def counts(self) -> tuple[int, int, int, int]:
        """Regions, packings and members of all variables, and Icechunk's manifests."""
        repository = self.opened()
        arrays = [intarsia.open(repository, name) for name in NAMES]
        return (
            sum(len(array.regions) for array in arrays),
            sum(len(array.manifest.packings) for array in arrays),
            sum(len(array.members) for array in arrays),
            len(repository.list_manifest_files(repository.lookup_branch("main"))),
        )


def run(count: int = FILES) -> str:
    with tempfile.TemporaryDirectory() as directory, seaweedfs(directory) as server:
        root = Path(directory)
        archives = {}
        for name, alike in (("one packing", True), ("a packing a file", False)):
            paths = series(root / name.replace(" ", "-"), count, alike=alike)
            archives[name] = Archive(paths, server.new_location(), server.options)
        openings = best_times(
            {name: archive.array for name, archive in archives.items()}, most_rounds=MOST_ROUNDS
        )
        reads = best_times(
            {name: archive.series for name, archive in archives.items()}, most_rounds=MOST_ROUNDS
        )
        counts = {name: archive.counts() for name, archive in archives.items()}
    base = "one packing"
    rows = [
        (
            name,
            *map("{:,}".format, counts[name]),
            f"{archive.parsing:.1f} s",
            f"{archive.commit:.1f} s",
            f"{openings[name] * 1e3:.0f} ms ({openings[name] / openings[base]:.2f})",
            f"{reads[name] * 1e3:.0f} ms ({reads[name] / reads[base]:.2f})",
        )
        for name, archive in archives.items()
    ]
    title = f"{count:,} files of {VARIABLES} packed variables, Icechunk on SeaweedFS over loopback"
    header = (
        "",
        "regions",
        "packings",
        "members",
        "manifests",
        "parse",
        "commit",
        "open, cold (times)",
        "point series, cold (times)",
    )
    return table(title, rows, header)


if __name__ == "__main__":
    print(run(*map(int, sys.argv[1:])))
