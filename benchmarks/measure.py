"""Fair timing on a noisy machine: interleaved, best of several, repeated until the ratios are stable."""

import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

ROUNDS = 5
STABLE = 0.02
MAX_ROUNDS = 60
MAX_SECONDS = 12.0
"""After this long a comparison ends with the round it is in, if there were `MIN_ROUNDS` of them."""

MIN_ROUNDS = 4


class Cost(NamedTuple):
    """What one run of a job takes."""

    clock: float
    processor: float
    """Of all threads of this process together."""

    def over(self, factor: float) -> "Cost":
        """What so many times as fast would take."""
        return Cost(self.clock / factor, self.processor / factor)


def best_costs(
    jobs: Mapping[str, Callable[[], object]],
    *,
    rounds: int = ROUNDS,
    most_rounds: int = MAX_ROUNDS,
    most_seconds: float = MAX_SECONDS,
    before: Callable[[], object] = lambda: None,
) -> dict[str, Cost]:
    """Least seconds of each job, the jobs taking turns, until so many rounds bring no gain above 2 %.

    Jobs that take many seconds get fewer rounds (`most_rounds`, `most_seconds`), close calls get more
    (`rounds`). What is done before each job, every time, does not count.
    """
    began = time.perf_counter()
    best = dict.fromkeys(jobs, Cost(float("inf"), float("inf")))
    quiet = done = 0
    while quiet < rounds and done < most_rounds:
        if done >= MIN_ROUNDS and time.perf_counter() - began > most_seconds:
            break
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
    jobs: Mapping[str, Callable[[], object]],
    *,
    rounds: int = ROUNDS,
    most_rounds: int = MAX_ROUNDS,
    most_seconds: float = MAX_SECONDS,
) -> dict[str, float]:
    """The same by the clock alone."""
    costs = best_costs(jobs, rounds=rounds, most_rounds=most_rounds, most_seconds=most_seconds)
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


def headed(heading: str, text: str) -> str:
    """Tables under a heading that was made of their numbers, so that it is true of them."""
    return f"## {heading}\n\n{text}"


LIMITS_BELOW = "<!-- parts and limits -->"
"""What a benchmark prints below this goes to `benchmarks/results/`, and not to the page of claims."""


def with_limits(text: str, *tables: str) -> str:
    """What backs a claim, and tables that say what stands in the way of more."""
    return "\n".join([text, LIMITS_BELOW, "", *tables])


def numbers(text: str, column: str, where: Callable[[list[str]], bool] = lambda row: True) -> list[float]:
    """What the tables of a text have in the columns of this name: the first number of each cell.

    >>> numbers(table("t", [("a", "1,024 ms (2)"), ("b", "")], ("", "best")), "best")
    [1024.0]
    """
    found, header = [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip()[1:-1].split("|")] if line.startswith("|") else None
        if cells is None:
            header = None
        elif header is None:
            header = cells
        elif not line.startswith("|---") and column in header and where(cells):
            at = header.index(column)
            number = re.search(r"-?[0-9][0-9,]*(\.[0-9]+)?", cells[at] if at < len(cells) else "")
            found += [float(number[0].replace(",", ""))] if number else []
    return found


def spread(values: list[float]) -> str:
    """From the least to the largest.

    >>> spread([1.234, 0.5, 127.9]), spread([2.0])
    ('0.50 to 128', '2.00')
    """
    texts = [f"{value:.2f}" if value < 10 else f"{value:.0f}" for value in (min(values), max(values))]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def times_ours(
    text: str, columns: Mapping[str, str], where: Callable[[list[str]], bool] = lambda row: True
) -> str:
    """How long the others take, in words: each by its name, with the column that has the ratios."""
    return ", ".join(
        f"{name} {spread(values)}"
        for name, column in columns.items()
        if (values := numbers(text, column, where))
    )
