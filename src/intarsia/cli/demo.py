"""`intarsia demo`: the main job on made-up data, in half a minute, ending with a picture and a verdict."""

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import icechunk
import numpy as np
import typer

import intarsia
from intarsia.array import LogicalArray
from intarsia.cli.arguments import Json
from intarsia.cli.verb import CommandError, print_json, say, show_table, verb
from intarsia.report.drawing import COLOURS
from intarsia.report.survey import survey
from intarsia.report.write_report import write_report
from intarsia.words import REGION_COLUMNS, ratio_text, size_text

SHAPE, LATTICE = (80, 180, 360), (20, 90, 180)
"""Of one of the three parts, and of the chunks: large enough to measure, small enough to be quick."""

MARK = ".made-by-intarsia-demo"
"""Only in a directory with this file in it is anything overwritten."""

ALTERNATIVES: dict[str, list[Any]] = {
    "raw": [],
    "gzip": [{"name": "gzip", "configuration": {"level": 6}}],
    "zstd": [{"name": "zstd", "configuration": {"level": 9, "checksum": False}}],
    "shuffle+zstd": [
        {"name": "shuffle", "configuration": {"element_size": 4}},
        {"name": "zstd", "configuration": {"level": 9, "checksum": False}},
    ],
}
"""One codec pipeline for everything: what a plain Zarr array has to choose from."""


def parts() -> dict[str, np.ndarray[Any, Any]]:
    """Three pieces of one record that differ as real data does.

    >>> {name: part.shape for name, part in parts().items()}
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


@verb
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to work in.")] = Path(
        "demo-output"
    ),
    as_json: Json = False,
) -> None:
    """Build a repository with three codecs, append, recode, travel back in time, and judge the sizes.

    Example: intarsia demo
    """
    begun = time.monotonic()
    _prepare(output)
    tell: Any = (lambda *_: None) if as_json else say
    data = parts()
    whole = np.concatenate(list(data.values()))
    repo, haste = _build(output / "store", data, tell)
    array = intarsia.open(repo, "record")
    _expect(array, whole, "the newest version")
    before = intarsia.open(repo, "record", snapshot_id=haste)
    _expect(before, whole[: len(before)], "the version before the recoding")
    tell(
        f"Travelled back to snapshot {haste}: {len(before.regions)} regions, "
        f"the middle one stored as {before.regions[1].codec_names}, all values as they were.",
        "",
    )
    seen = survey(array)
    if not as_json:
        rows = seen.rows()
        show_table(
            REGION_COLUMNS,
            [row.cells() for row in rows],
            colours={1: [COLOURS[int(seen.group[i])] for i in seen.in_order().tolist()]},
        )
        say("")
    verdict = _verdict(array, whole)
    page = write_report(repo, output / "report.html", title=str(output / "store"), read_data=True)
    if as_json:
        print_json(
            store=str(output / "store"),
            report=str(page),
            nbytes=whole.nbytes,
            encodings=[
                {"codecs": name, "nbytes_stored": stored, "read_seconds": seconds}
                for name, stored, seconds in verdict
            ],
            seconds=time.monotonic() - begun,
        )
        return
    smallest = min(verdict[1:], key=lambda entry: entry[1])
    show_table(
        ("Codecs", "Stored", "Ratio", "Read"),
        [
            (name, size_text(stored), ratio_text(whole.nbytes, stored), f"{seconds * 1000:.0f} ms")
            for name, stored, seconds in verdict
        ],
    )
    ours = verdict[0][1]
    say(
        "",
        f"Verdict: {size_text(whole.nbytes)} of values take {size_text(ours)} in three encodings, "
        f"{size_text(smallest[1])} in the smallest single one ({smallest[0]}): "
        f"{abs(1 - ours / smallest[1]):.1%} {'less' if ours < smallest[1] else 'more'}.",
        f"The report: {page.resolve()}",
    )


def _prepare(output: Path) -> None:
    """Make room for what the demo writes; whatever else is in the directory stays."""
    store, page, mark = output / "store", output / "report.html", output / MARK
    if (store.exists() or page.exists()) and not mark.exists():
        raise CommandError(f"{output} holds something else; give another directory with --output")
    shutil.rmtree(store, ignore_errors=True)
    page.unlink(missing_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _build(place: Path, data: dict[str, np.ndarray[Any, Any]], tell: Any) -> tuple[icechunk.Repository, str]:
    """The repository, and the snapshot before the recoding."""
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
    tell(f"A new Icechunk repository: {place}")
    steps = (
        ("archive", "gzip", "the archive, as it always was"),
        ("detector", "raw", "a detector that writes as fast as it can"),
        ("classes", "zstd", "classes of ground, a few values in no order"),
    )
    snapshot = ""
    for name, kind, message in steps:
        snapshot = intarsia.append(repo, "record", data[name], codecs=ALTERNATIVES[kind], message=message)
        tell(f"Appended {data[name].shape}, {kind}: {message}.")
    first, last = SHAPE[0], 2 * SHAPE[0]
    with intarsia.transaction(repo, message="compress what the detector wrote in haste") as transaction:
        array = transaction.open("record")
        array.recode([(first, last), *((0, n) for n in SHAPE[1:])], codecs=ALTERNATIVES["shuffle+zstd"])
    tell("Recoded the detector's part with shuffle and zstd; nothing else was touched.")
    return repo, snapshot


def _expect(array: LogicalArray, values: np.ndarray[Any, Any], what: str) -> None:
    if not np.array_equal(array[...].view("u4"), values.view("u4")):
        raise intarsia.errors.ReadError(f"{what} does not hold the values that were written")


def _verdict(array: LogicalArray, values: np.ndarray[Any, Any]) -> list[tuple[str, int, float]]:
    """Name, stored bytes and seconds to read: as stored, then everything in one encoding, side by side."""
    results = [("three encodings", survey(array).total_stored or 0, _seconds(array))]
    for name, codecs in ALTERNATIVES.items():
        repo = intarsia.open_repository("memory://", create=True)
        with intarsia.transaction(repo, message=name) as transaction:
            single = transaction.create("one", shape=(0, *SHAPE[1:]), chunks=LATTICE, dtype="float32")
            single.append(values, codecs=codecs)
        alone = intarsia.open(repo, "one")
        results.append((f"all {name}", survey(alone).total_stored or 0, _seconds(alone)))
    return results


def _seconds(array: LogicalArray) -> float:
    """Best of three full reads."""
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        array[...]
        best = min(best, time.perf_counter() - begun)
    return best
