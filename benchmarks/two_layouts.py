"""Claim: with a replica, maps and series take at most 1.3x of what the layout made for each takes.

Four years of days on a grid of 2 degrees, float32, zstd, in a local repository that stays open: maps in layer
0, series in layer 1. The last column of the first table has what the wrong layout alone takes. Of random
boxes, the worst is in the table. Beside them is the control: the better layout, opened once more and
compared with itself in the same rounds. Each read follows one of its own size; and once more, one of the
worse layout, which leaves the processor's caches cold. Ratios are those of processor time, which other jobs
disturb less.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import intarsia
from benchmarks.measure import Cost, best_costs, headed, table
from benchmarks.mosaic import folder

SHAPE = (1461, 90, 180)
MAPS, SERIES = (1, 90, 180), (1461, 6, 6)
CODECS = ["zstd"]
SLAB = 250
BOXES = 40
LAYOUTS = ("maps alone", "series alone", "both")
COMPARED = {
    "both, to the better": ("both", False),
    "control: the better, to itself": ("control", False),
    "both, to the better, each after the worse": ("both", True),
    "control, each after the worse": ("control", True),
}


def field(days: range) -> np.ndarray:
    """Something like temperatures: smooth, with noise, to a tenth of a degree."""
    day = np.array(days)[:, None, None]
    lat, lon = np.linspace(-90, 90, SHAPE[1])[:, None], np.linspace(0, 360, SHAPE[2])
    smooth = 290 - lat**2 / 120 + 8 * np.sin((day + lon) / 58) * np.sign(lat)
    noise = np.random.default_rng(days.start).normal(0, 1, (len(days), *SHAPE[1:]))
    return (smooth + noise).round(1).astype("float32")


def build(place: Path) -> None:
    """One repository with three arrays of the same values."""
    repository = intarsia.open_repository(place, create=True)
    with intarsia.transaction(repository, message="maps") as tx:
        arrays = [
            tx.create(name, shape=(0, *SHAPE[1:]), chunks=MAPS, dtype="float32")
            for name in ("maps alone", "both")
        ]
        for start in range(0, SHAPE[0], SLAB):
            days = field(range(start, min(start + SLAB, SHAPE[0])))
            for array in arrays:
                array.append(days, codecs=CODECS, chunks=MAPS)
        tx.create("series alone", shape=SHAPE, chunks=SHAPE, dtype="float32").add_region(
            [(0, n) for n in SHAPE], codecs=CODECS, chunks=SERIES, data=arrays[0][...]
        )
    intarsia.add_replica(repository, "both", chunks=SERIES, codecs=CODECS)


def boxes() -> list[tuple[slice, ...]]:
    """Boxes of all shapes: each axis is as often short as long."""
    random, found = np.random.default_rng(7), []
    while len(found) < BOXES:
        lengths = [int(n ** random.uniform(0, 1)) for n in SHAPE]
        starts = [int(random.integers(0, n - m + 1)) for n, m in zip(SHAPE, lengths, strict=True)]
        found.append(tuple(slice(a, a + m) for a, m in zip(starts, lengths, strict=True)))
    return found


def timed(
    arrays: dict[str, intarsia.LogicalArray],
    selection: object,
    rounds: int,
    before: Callable[[], object] = lambda: None,
) -> dict[str, Cost]:
    def reading(array: intarsia.LogicalArray) -> Callable[[], object]:
        return lambda: array[selection]

    jobs = {name: reading(array) for name, array in arrays.items()}
    return best_costs(jobs, most_rounds=rounds, most_seconds=4.0, before=before)


def run() -> str:
    with folder() as root:
        build(root / "repository")
        repository = intarsia.open_repository(root / "repository")
        arrays = {name: intarsia.open(repository, name) for name in LAYOUTS}
        rows = []
        for name, selection in (("a map", np.s_[700]), ("a series", np.s_[:, 45, 90])):
            for array in arrays.values():
                np.testing.assert_array_equal(array[selection], arrays["both"][selection])
            # The wrong layout leaves the caches cold for whoever comes next: it is timed by itself.
            wrong = LAYOUTS[1 if name == "a map" else 0]
            costs = timed({wrong: arrays[wrong]}, selection, 4)
            costs |= timed({each: arrays[each] for each in LAYOUTS if each != wrong}, selection, 40)
            alone = sorted(costs[layout].processor for layout in LAYOUTS[:2])
            took, both = (
                [f"{costs[layout].clock * 1e3:.1f} ms" for layout in LAYOUTS],
                costs["both"].processor,
            )
            rows.append((name, *took, f"{both / alone[0]:.2f}", f"{alone[1] / both:.0f}x"))
        better = dict.fromkeys(LAYOUTS[:2], 0)
        ratios: dict[str, list[tuple[float, tuple[int, ...]]]] = {title: [] for title in COMPARED}
        for box in boxes():
            costs = timed({each: arrays[each] for each in LAYOUTS[:2]}, box, 4)
            best = min(LAYOUTS[:2], key=lambda layout: costs[layout].processor)
            better[best] += 1
            worse = arrays[next(each for each in LAYOUTS[:2] if each != best)]
            same = {best: arrays[best], "both": arrays["both"], "control": intarsia.open(repository, best)}
            shape = tuple(axis.stop - axis.start for axis in box)
            after_its_like = timed(same, box, 25)
            after_the_worse = timed(same, box, 25, before=partial(worse.__getitem__, box))
            for title, (name, is_after_the_worse) in COMPARED.items():
                costs = after_the_worse if is_after_the_worse else after_its_like
                ratios[title].append((costs[name].processor / costs[best].processor, shape))
    header = ("read", *LAYOUTS, "both, to the better", "the worse, to both")
    text = table(f"{SHAPE[0]:,} days of {SHAPE[1]} x {SHAPE[2]}, local Icechunk", rows, header)
    random = []
    for title, found in ratios.items():
        worst, shape = max(found)
        median = float(np.median([ratio for ratio, _ in found]))
        random.append((title, f"{median:.2f}", f"{worst:.2f}", " x ".join(map(str, shape))))
    counted = f"maps are better for {better['maps alone']}, series for {better['series alone']}"
    title = f"{BOXES} random boxes: {counted}"
    fitting = " and ".join(row[4] for row in rows)
    heading = f"with a replica, maps and series take {fitting} of what the layout made for each takes"
    return headed(heading, text + "\n" + table(title, random, ("", "median", "worst", "the worst box")))


if __name__ == "__main__":
    print(run())
