"""Fair timing on a noisy machine: interleaved, best of several, repeated until the ratios are stable."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

ROUNDS = 5
STABLE = 0.02
MOST_ROUNDS = 60


class Cost(NamedTuple):
    """What one run of a job takes."""

    clock: float
    processor: float
    """Of all threads of this process together."""


def best_costs(
    jobs: Mapping[str, Callable[[], object]],
    *,
    rounds: int = ROUNDS,
    most_rounds: int = MOST_ROUNDS,
    before: Callable[[], object] = lambda: None,
) -> dict[str, Cost]:
    """Least seconds of each job, the jobs taking turns, until so many rounds bring no gain above 2 %.

    Jobs that take many seconds get fewer rounds (`most_rounds`), close calls get more (`rounds`). What is
    done before each job, every time, does not count.
    """
    best = dict.fromkeys(jobs, Cost(float("inf"), float("inf")))
    quiet = done = 0
    while quiet < rounds and done < most_rounds:
        gained = False
        for name, job in jobs.items():
            before()
            start, worked = time.perf_counter(), time.process_time()
            job()
            took = Cost(time.perf_counter() - start, time.process_time() - worked)
            gained |= took.clock < best[name].clock * (1 - STABLE)
            best[name] = Cost(*map(min, took, best[name]))
        quiet = 0 if gained else quiet + 1
        done += 1
    return best


def best_times(
    jobs: Mapping[str, Callable[[], object]], *, rounds: int = ROUNDS, most_rounds: int = MOST_ROUNDS
) -> dict[str, float]:
    """The same by the clock alone."""
    costs = best_costs(jobs, rounds=rounds, most_rounds=most_rounds)
    return {name: cost.clock for name, cost in costs.items()}


def table(title: str, rows: list[tuple[str, ...]], header: tuple[str, ...]) -> str:
    """A Markdown table under a heading."""
    lines = [f"### {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def against(costs: Mapping[str, Cost], ours: str, rivals: tuple[str, ...]) -> list[str]:
    """The cells of a row: our time, and how many times as long the rivals take, also by processor time."""
    own = costs[ours]
    cells = [f"{own.clock * 1e3:.1f} ms"]
    for name in rivals:
        cost = costs.get(name)
        ratio = "" if cost is None else f"{cost.clock / own.clock:.2f} ({cost.processor / own.processor:.2f})"
        cells.append(ratio)
    return cells
