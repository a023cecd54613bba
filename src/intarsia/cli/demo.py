"""`intarsia demo`: an archive whose encoding changed, and a detector in a hurry; all numbers are measured."""

import datetime
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import icechunk
import numpy as np

import intarsia
from intarsia.cli.output import CommandError, Output
from intarsia.cli.verb import verb
from intarsia.display import Table, percent_text, ratio_text, size_text, terminal_width, wrapped
from intarsia.extras import import_extra
from intarsia.inspect.survey import survey
from intarsia.inspect.write_report import write_report

MARK = ".made-by-intarsia-demo"
"""Only a directory that contains this file is ever overwritten."""

GRID = (180, 360)
DAYS = 10
"""The days of each era of the archive."""

FRAMES = (48, 512, 512)
"""The frames of the detector."""

AXES = ("frame", "y", "x")

CLOSE = 1e-3
"""In kelvin: values that differ by less were only rounded in another way."""

SMALL: list[Any] = [
    {"name": "shuffle", "configuration": {"element_size": 2}},
    {"name": "zstd", "configuration": {"level": 12, "checksum": False}},
]
"""How the frames of the detector are kept."""

type Values = np.ndarray[Any, Any]


class Era(NamedTuple):
    """A stretch of days whose files are written in the same way."""

    first: datetime.date
    what: str
    chunks: tuple[int, int, int]
    filters: dict[str, Any]
    own_scale: bool = False
    """Whether every file has a scale of its own, made to measure for its values."""


GZIP = {"compression": "gzip", "compression_opts": 4}
ERAS = (
    Era(datetime.date(2002, 6, 1), "gzip after shuffle", (1, 60, 90), GZIP | {"shuffle": True}),
    Era(datetime.date(2003, 9, 11), "no compression", (1, 60, 90), {}),
    Era(datetime.date(2006, 1, 1), "gzip without shuffle", (1, 60, 90), GZIP),
    Era(datetime.date(2015, 12, 24), "one chunk a day", (1, 180, 360), GZIP),
    Era(datetime.date(2019, 7, 23), "another scale in every file", (1, 180, 360), GZIP, own_scale=True),
    Era(datetime.date(2022, 11, 9), "smaller chunks", (1, 45, 60), GZIP | {"shuffle": True}, own_scale=True),
)


def temperature(day: datetime.date) -> Values:
    """Sea surface temperature in kelvin: warm at the equator, with seasons, currents and noise.

    >>> temperature(datetime.date(2002, 6, 1)).shape
    (180, 360)
    """
    lat, lon = np.radians(np.mgrid[89.5:-90:-1, -179.5:180])
    season = np.cos((day.timetuple().tm_yday - 220) / 365.25 * 2 * np.pi)
    random = np.random.default_rng(day.toordinal())
    currents = np.sin(3 * lon + 2 * np.sin(4 * lat)) + 0.6 * np.sin(7 * lat + 5 * lon)
    values: Values = 272 + 28 * np.cos(lat) ** 2 + 4 * season * np.sin(lat)
    values += random.uniform(1, 6) * currents * np.cos(lat) + random.normal(0, 0.2, GRID)
    return values


def write_day(folder: Path, day: datetime.date, era: Era) -> tuple[Path, Values]:
    """Write one day as NetCDF-4, and return its file and the values that it holds."""
    h5py = import_extra("h5py", "virtual")
    values = temperature(day)
    scale, offset = 0.001, 288.0
    if era.own_scale:
        low, high = float(values.min()), float(values.max())
        scale, offset = round((high - low) / 60_000, 8), round((high + low) / 2, 2)
    numbers = np.rint((values - offset) / scale).astype("i2")
    path = folder / f"sst-{day:%Y%m%d}.nc"
    axes = {
        "time": [(day - datetime.date(2000, 1, 1)).days],
        "lat": np.arange(89.5, -90, -1),
        "lon": np.arange(-179.5, 180),
    }
    with h5py.File(path, "w") as file:
        sst = file.create_dataset("sst", data=numbers[None], chunks=era.chunks, **era.filters)
        sst.attrs.update({"scale_factor": scale, "add_offset": offset, "units": "kelvin"})
        for i, (name, positions) in enumerate(axes.items()):
            file[name] = np.array(positions, dtype="f8")
            file[name].make_scale(name)
            sst.dims[i].attach_scale(file[name])
        file["time"].attrs["units"] = "days since 2000-01-01"
    return path, numbers * scale + offset


def diffraction(shape: tuple[int, int, int]) -> Values:
    """Frames of an X-ray detector: rings, counted photon by photon.

    >>> diffraction((2, 8, 8)).dtype
    dtype('uint16')
    """
    radius = np.hypot(*np.meshgrid(*(np.linspace(-1, 1, n) for n in shape[1:]), indexing="ij"))
    rings = 5 + 40 * np.exp(-2 * radius) * (1 + 0.6 * np.cos(40 * radius))
    frames: Values = np.random.default_rng(1).poisson(rings, shape).astype("u2")
    return frames


@verb()
def demo(*, output: Path = Path("demo-output")) -> Iterator[Output]:
    """Open an archive whose encoding changed five times as one dataset, and compress a detector's data later.

    What another program makes of the same files is tried, too. It takes a few seconds.

    Example: intarsia demo

    Args:
        output (-o FOLDER): Directory to work in.
    """
    _prepare(output)
    days = [(era.first + datetime.timedelta(i), era) for era in ERAS for i in range(DAYS)]
    pairs = [write_day(output / "files", day, era) for day, era in days]
    files, expected = [file for file, _ in pairs], np.stack([values for _, values in pairs])
    size, store = sum(file.stat().st_size for file in files), output / "store"
    yield _tell(
        f"An archive: {len(files)} daily files of sea surface temperature, {size_text(size)}. As in the real "
        f"ones, the way they are written has changed since 2002, here {len(ERAS) - 1} times:"
    )
    columns: dict[str, Any] = {"First day": "first", "Written with": "what", "Chunks": "chunks"}
    yield Output(Table.of(ERAS, columns), "")

    seconds, report = _timed(lambda: intarsia.ingest(files, store, concat_dim="time"))
    written = _size(store)
    yield _tell(
        f"`intarsia ingest` makes one dataset of them in {seconds:.1f} s. It copies {report.copied} bytes: "
        f"the values stay in the files, and {size_text(written)} of references are written."
    )
    repo = intarsia.open_repository(store, authorize=True)
    series = intarsia.open(repo, "sst")
    ways: dict[str, Callable[[list[int]], Values]] = {
        f"VirtualiZarr {version('virtualizarr')}": lambda rows: _by_virtualizarr([files[i] for i in rows]),
        "intarsia": lambda rows: np.asarray(series.oindex[rows]),
    }
    every, scaled = list(range(len(days))), [i for i, (_, era) in enumerate(days) if era is ERAS[4]]
    verdicts = [
        (name, *(_verdict(way, rows, expected) for rows in (every, scaled))) for name, way in ways.items()
    ]
    yield _tell("Compared with every value in the files, and with what another program makes of them:")
    yield Output(Table(("Opened with", "All files", "Only those with a scale each"), verdicts), "")

    file, values = write_day(output / "files", days[-1][0] + datetime.timedelta(1), ERAS[-1])
    day_seconds, _ = _timed(lambda: intarsia.ingest([file], repo, concat_dim="time"))
    day_bytes = _size(store) - written
    if not np.allclose(intarsia.open(repo, "sst")[-1], values, rtol=0, atol=CLOSE):
        raise intarsia.errors.ReadError("the dataset does not hold the values of the last file")
    yield _tell(
        f"One more day arrives: {day_seconds * 1000:.0f} ms and {size_text(day_bytes)} later, it is in the "
        "dataset."
    )

    frames = diffraction(FRAMES)
    with intarsia.transaction(repo, message="a detector is switched on") as tx:
        tx.create("xray", shape=(0, *FRAMES[1:]), chunks=(4, *FRAMES[1:]), dtype="u2", dimension_names=AXES)
    raw_seconds, raw = _timed(lambda: intarsia.append(repo, "xray", frames, codecs=[], message="raw frames"))
    aside = intarsia.create({}, shape=(0, *FRAMES[1:]), chunks=(4, *FRAMES[1:]), dtype="u2")
    slow_seconds, _ = _timed(lambda: aside.append(frames, codecs=SMALL))
    later, _ = _timed(lambda: intarsia.recode(repo, "xray", codecs=SMALL, message="compress the frames"))
    versions = [intarsia.open(repo, "xray", snapshot_id=raw), intarsia.open(repo, "xray")]
    if not all(np.array_equal(each[...], frames) for each in versions):
        raise intarsia.errors.ReadError("the frames are not those that were written")
    stored = [survey(each).total_stored or 0 for each in versions]
    fast, slow = (f"{frames.nbytes / 1e6 / each:,.0f} MB/s" for each in (raw_seconds, slow_seconds))
    yield _tell(
        f"A detector writes {size_text(frames.nbytes)} raw, as fast as it can: {fast}. Had it waited for a "
        f"compressor, it would have been {slow}. Later, in {later:.1f} s, its frames are compressed, "
        f"{ratio_text(*stored)}. It is still the same array, with the same values, in this version and in "
        "the one before."
    )

    page = write_report(repo, file=output / "report.html", title="An archive and a detector")
    intarsia.export(repo, output / "copy.zarr", source_path="sst")
    yield _tell("The numbers that matter:")
    copied, wrong = size_text(_size(output / "copy.zarr")), verdicts[0][2].partition(",")[0]
    numbers = [
        ("written for one dataset", f"{size_text(written)}, no value", f"{copied} as a copy"),
        ("values that are wrong", "none", wrong.removeprefix("wrong in ")),
        ("one more day", f"{day_seconds * 1000:.0f} ms", f"{seconds * 1000:.0f} ms for all files again"),
        ("writing beside a detector", fast, f"{slow} compressed at once"),
        ("what it stores in the end", size_text(stored[1]), f"{size_text(stored[0])} raw"),
    ]
    yield Output(
        Table(("What", "With intarsia", "Otherwise"), numbers),
        "",
        f"A page with the pictures, in any browser: {page.resolve()}",
        store=store,
        report=page,
        nbytes_copied=report.copied,
        verdicts=[dict(zip(("way", "all_files", "own_scales"), row, strict=True)) for row in verdicts],
    )


def _by_virtualizarr(files: list[Path]) -> Values:
    """Concatenated and committed by references, and decoded by xarray."""
    virtualizarr, xr = import_extra("virtualizarr", "virtual"), import_extra("xarray", "xarray")
    registry = import_extra("obspec_utils.registry", "virtual").ObjectStoreRegistry(
        {"file://": import_extra("obstore.store", "virtual").LocalStore()}
    )
    parts = virtualizarr.open_virtual_mfdataset(
        [f"file://{file.resolve()}" for file in files],
        parser=import_extra("virtualizarr.parsers", "virtual").HDFParser(),
        registry=registry,
        concat_dim="time",
        combine="nested",
        coords="minimal",
        compat="override",
        join="override",
        data_vars="minimal",
    )
    prefix, config = f"file://{files[0].resolve().parent}/", icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(
            prefix, icechunk.local_filesystem_store(prefix.removeprefix("file://"))
        )
    )
    access = icechunk.containers_credentials({prefix: icechunk.credentials.LocalFileSystemAccess})
    storage = icechunk.in_memory_storage()
    repo = icechunk.Repository.create(storage, config, authorize_virtual_chunk_access=access)
    session = repo.writable_session("main")
    parts.vz.to_icechunk(session.store)
    values: Values = xr.open_zarr(session.store, consolidated=False, chunks=None)["sst"].values
    return values


def _verdict(way: Callable[[list[int]], Values], rows: list[int], expected: Values) -> str:
    """What one way makes of some of the files, in a few words."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of other programs, about their own future
            values = way(rows)
    except intarsia.IntarsiaError:
        raise
    except Exception as error:  # whatever another program raises is its answer
        return f"refuses ({type(error).__name__})"
    wrong = ~np.isclose(values, expected[rows], rtol=0, atol=CLOSE)
    if not wrong.any():
        return "equal"
    worst = np.nanmax(np.abs(values - expected[rows]))
    return f"wrong in {percent_text(float(wrong.mean()))}, by up to {worst:.1f} K, in silence"


def _tell(sentence: str) -> Output:
    """A step of the story, in lines that fit the terminal."""
    return Output(*wrapped(sentence, min(terminal_width() or 100, 100)), "")


def _prepare(output: Path) -> None:
    """Make room for what the demo writes; everything else in the directory stays."""
    mark = output / MARK
    if output.is_dir() and any(output.iterdir()) and not mark.exists():
        raise CommandError(f"{output} holds something else; give another directory with --output")
    for name in ("files", "store", "copy.zarr"):
        shutil.rmtree(output / name, ignore_errors=True)
    (output / "files").mkdir(parents=True)
    mark.touch()


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _timed[T](work: Callable[[], T]) -> tuple[float, T]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result
