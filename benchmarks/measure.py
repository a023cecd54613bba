"""Fair timing on a noisy machine: interleaved, best of several, repeated until the ratios are stable."""

import time
from collections.abc import Callable, Mapping

ROUNDS = 5
STABLE = 0.02
MOST_ROUNDS = 60


def best_times(
    jobs: Mapping[str, Callable[[], object]], *, rounds: int = ROUNDS, most_rounds: int = MOST_ROUNDS
) -> dict[str, float]:
    """Best seconds of each job, the jobs taking turns, until so many rounds bring no gain above 2 %.

    Jobs that take many seconds get fewer rounds (`most_rounds`), close calls get more (`rounds`).
    """
    best = dict.fromkeys(jobs, float("inf"))
    quiet = done = 0
    while quiet < rounds and done < most_rounds:
        gained = False
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            took = time.perf_counter() - start
            gained |= took < best[name] * (1 - STABLE)
            best[name] = min(best[name], took)
        quiet = 0 if gained else quiet + 1
        done += 1
    return best


def table(title: str, rows: list[tuple[str, ...]], header: tuple[str, ...]) -> str:
    """A Markdown table under a heading."""
    lines = [f"### {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
