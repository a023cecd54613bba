"""`intarsia demo`: the main use on made-up data, in half a minute, ending with a picture and a verdict."""

import shutil
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import icechunk
import numpy as np

import intarsia
from intarsia.cli.output import CommandError, Output
from intarsia.cli.verb import verb
from intarsia.display import Table, ratio_text, size_text, terminal_width, wrapped
from intarsia.inspect.drawing import COLOURS
from intarsia.inspect.survey import survey
from intarsia.inspect.write_report import write_report
from intarsia.logical.logical_array import LogicalArray

SHAPE, LATTICE = (80, 180, 360), (20, 90, 180)
"""The shapes of one of the three parts, and of the chunks: large enough to measure, but quick."""

MARK = ".made-by-intarsia-demo"
"""Only a directory that contains this file is ever overwritten."""

ALTERNATIVES: dict[str, list[Any]] = {
    "raw": [],
    "gzip": [{"name": "gzip", "configuration": {"level": 6}}],
    "zstd": [{"name": "zstd", "configuration": {"level": 9, "checksum": False}}],
    "shuffle+zstd": [
        {"name": "shuffle", "configuration": {"element_size": 4}},
        {"name": "zstd", "configuration": {"level": 9, "checksum": False}},
    ],
}
"""One codec pipeline for everything: the choices for a plain Zarr array."""


def sample_pieces() -> dict[str, np.ndarray[Any, Any]]:
    """Three pieces of one record that differ like real data.

    >>> {name: part.shape for name, part in sample_pieces().items()}
    {'archive': (80, 180, 360), 'detector': (80, 180, 360), 'classes': (80, 180, 360)}
    """
    random = np.random.default_rng(2002)
    time_, lat, lon = np.meshgrid(*(np.arange(n, dtype="f4") for n in SHAPE), indexing="ij", sparse=True)
    waves = 285 + 12 * np.sin(lat / 40 + time_ / 60) + 6 * np.cos(lon / 70 - time_ / 25)
    classes = random.normal(300, 50, size=64).astype("f4")  # a value for each class of ground
    return {
        "archive": (np.round(waves * 8) / 8).astype("f4"),
        "detector": random.normal(0, 1000, size=SHAPE).astype("f4"),
        "classes": classes[random.integers(0, len(classes), size=SHAPE)],
    }


@verb()
def demo(*, output: Path = Path("demo-output")) -> Iterator[Output]:
    """Build an array in three encodings, recode a part, go back in time, and measure what that saves.

    Example: intarsia demo

    Args:
        output (-o FOLDER): Directory to work in.
    """
    begun = time.monotonic()
    _prepare(output)
    data = sample_pieces()
    whole = np.concatenate(list(data.values()))
    repo, haste = yield from _build(output / "store", data)
    array = intarsia.open(repo, "record")
    _expect(array, whole, "the newest version")
    before = intarsia.open(repo, "record", snapshot_id=haste)
    _expect(before, whole[: len(before)], "the version before the recoding")
    yield _tell(
        f"Nothing is lost: snapshot {haste} still has the detector's part {before.regions[1].codec_names}, "
        "and both versions hold the values that were written. The array now looks like this:"
    )
    seen = survey(array)
    colours = [COLOURS[int(seen.group[i])] for i in seen.manifest.regions.in_order().tolist()]
    yield Output(Table.of(seen.rows(), seen.columns, colours={1: colours}), "")
    verdict = _verdict(array, whole)
    page = write_report(repo, file=output / "report.html", title=str(output / "store"), read_data=True)
    yield _tell("For comparison, we store all values in one encoding, and read everything as fast as we can:")
    rows = [
        (name, size_text(stored), ratio_text(whole.nbytes, stored), f"{seconds * 1000:.0f} ms")
        for name, stored, seconds in verdict
    ]
    smallest = min(verdict[1:], key=lambda entry: entry[1])
    part = data["detector"]
    fast, slow = _haste(part)
    yield Output(Table(("Codecs", "Stored", "Ratio", "Read"), rows), "")
    yield _tell("The numbers that matter:")
    numbers = [
        ("bytes stored", size_text(verdict[0][1]), f"{size_text(smallest[1])} at best"),
        ("time to store the detector's part", f"{fast * 1000:.0f} ms", f"{slow * 1000:.0f} ms"),
        ("bytes encoded to compress it later", size_text(part.nbytes), size_text(whole.nbytes)),
    ]
    yield Output(
        Table(("What", "In several encodings", "In one"), numbers),
        "",
        f"A page to look at: {page.resolve()}",
        store=output / "store",
        report=page,
        nbytes=whole.nbytes,
        encodings=[
            {"codecs": name, "nbytes_stored": stored, "read_seconds": seconds}
            for name, stored, seconds in verdict
        ],
        seconds=time.monotonic() - begun,
    )


def _tell(sentence: str) -> Output:
    """A step of the story, in lines that fit the terminal."""
    return Output(*wrapped(sentence, min(terminal_width() or 100, 100)), "")


def _prepare(output: Path) -> None:
    """Make room for what the demo writes; everything else in the directory stays."""
    store, page, mark = output / "store", output / "report.html", output / MARK
    if (store.exists() or page.exists()) and not mark.exists():
        raise CommandError(f"{output} holds something else; give another directory with --output")
    shutil.rmtree(store, ignore_errors=True)
    page.unlink(missing_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _build(
    place: Path, data: dict[str, np.ndarray[Any, Any]]
) -> Generator[Output, None, tuple[icechunk.Repository, str]]:
    """Tell the steps, and return the repository, and the snapshot before the recoding."""
    repo = intarsia.open_repository(place, create=True)
    with intarsia.transaction(repo, message="create an empty record") as transaction:
        transaction.create(
            "record",
            shape=(0, *SHAPE[1:]),
            chunks=LATTICE,
            dtype="float32",
            dimension_names=("time", "lat", "lon"),
            attributes={"title": "three kinds of data in one array"},
        )
    yield _tell(f"We make an empty array that grows along time, in a new Icechunk repository: {place}.")
    steps = (
        ("archive", "gzip", "the archive, as it always was"),
        ("detector", "raw", "a detector that writes as fast as it can"),
        ("classes", "zstd", "land classes, a few values in no particular order"),
    )
    snapshot = ""
    for name, kind, message in steps:
        snapshot = intarsia.append(repo, "record", data[name], codecs=ALTERNATIVES[kind], message=message)
        yield _tell(f"We append {size_text(data[name].nbytes)} encoded as {kind}: {message}.")
    first, last = SHAPE[0], 2 * SHAPE[0]
    with intarsia.transaction(repo, message="compress what the detector wrote in haste") as transaction:
        array = transaction.open("record")
        array.recode([(first, last), *((0, n) for n in SHAPE[1:])], codecs=ALTERNATIVES["shuffle+zstd"])
    yield _tell("Later we compress the detector's part with shuffle and zstd; nothing else is touched.")
    return repo, snapshot


def _expect(array: LogicalArray, values: np.ndarray[Any, Any], what: str) -> None:
    if not np.array_equal(array[...].view("u4"), values.view("u4")):
        raise intarsia.errors.ReadError(f"{what} does not hold the values that were written")


def _verdict(array: LogicalArray, values: np.ndarray[Any, Any]) -> list[tuple[str, int, float]]:
    """Name, stored bytes and seconds to read: as stored, then with one encoding for everything."""
    results = [("three encodings", survey(array).total_stored or 0, _seconds(lambda: array[...]))]
    for name, codecs in ALTERNATIVES.items():
        repo = intarsia.open_repository("memory://", create=True)
        with intarsia.transaction(repo, message=name) as transaction:
            single = transaction.create("one", shape=(0, *SHAPE[1:]), chunks=LATTICE, dtype="float32")
            single.append(values, codecs=codecs)
        alone = intarsia.open(repo, "one")
        results.append(
            (f"all {name}", survey(alone).total_stored or 0, _seconds(partial(alone.__getitem__, ...)))
        )
    return results


def _haste(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Seconds to append some values in memory, raw and compressed."""

    def append(codecs: list[Any]) -> None:
        array = intarsia.create({}, "one", shape=(0, *SHAPE[1:]), chunks=LATTICE, dtype="float32")
        array.append(values, codecs=codecs)

    raw, compressed = (partial(append, ALTERNATIVES[name]) for name in ("raw", "shuffle+zstd"))
    return _seconds(raw), _seconds(compressed)


def _seconds(work: Callable[[], object]) -> float:
    """The best of three runs."""
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best
