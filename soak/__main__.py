"""Run all of it, or some parts: `python -m soak [part …] [--cases N] [--seed S] [--state FILE]`.

Without `--cases`, as many as docs/trust.md has for a full run; with it, so many of each part. A run that was
interrupted goes on where it stopped. `--target NAME --case NUMBER` runs one case again, in this process.
`--report` runs nothing, and writes what the state file knows into docs/trust.md.
"""

import argparse
import datetime
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from soak import FULL, PARTS
from soak.record import Record
from soak.run import run_all
from soak.target import choice_of, targets

STATE = Path("soak-state") / "run.jsonl"
MAX_SHOWN_LINES = 12
PAGE = Path(__file__).parent.parent / "docs" / "trust.md"
BEGIN, END = "<!-- written by python -m soak --report -->", "<!-- until here -->"
HISTORY_GOALS = {"acknowledged appends": 10_000, "kills": 1_000}


def wanted_cases(parts, cases, only):
    """The targets, and how many cases each has."""
    found = []
    for part in parts:
        all_of_it = targets(part)
        of_part = [t for t in all_of_it if not only or t.name.startswith(tuple(only))]
        total = sum(t.share for t in (all_of_it if cases is None else of_part))
        goal = FULL[part] if cases is None else cases
        for target in of_part:
            reason = target.needs()
            if reason:
                print(f"{target.label}: left out, {reason}")
                continue
            # up, so that no part has fewer than its goal; rounded before that, as shares are not exact
            found.append((target, math.ceil(round(goal * target.share / total, 6))))
    return found


def table(wanted, seed, record):
    """What was tried, and what came of it."""
    lines = [
        "| part | what | cases | of | of them | most memory | processor time | wrong |",
        "|---|---|---:|---:|---|---:|---:|---:|",
    ]
    for target, goal in wanted:
        row = record.row(target.label, seed)
        outcomes = ", ".join(f"{n:,} {word}" for word, n in sorted(row.counts.items()) if word != "WRONG")
        grown = "" if target.memory is None else f"{max(row.grown, 0) / 2**20:.0f} MiB"
        lines.append(
            f"| {target.part} | {target.name} | {row.cases:,} | {goal:,} | {outcomes} | {grown} "
            f"| {row.processor:,.0f} s | {len(row.failures)} |"
        )
    return "\n".join(lines)


def sums(wanted, seed, record):
    """The goals that are no numbers of cases, and how far each part is."""
    lines = ["| part | cases | of | wrong |", "|---|---:|---:|---:|"]
    told = Counter()
    for part in dict.fromkeys(target.part for target, _ in wanted):
        rows = [(record.row(t.label, seed), goal) for t, goal in wanted if t.part == part]
        done, goal = sum(row.cases for row, _ in rows), sum(goal for _, goal in rows)
        lines.append(f"| {part} | {done:,} | {goal:,} | {sum(len(row.failures) for row, _ in rows)} |")
        if part == "histories":
            told = sum((row.counts for row, _ in rows), Counter())
    for word, goal in HISTORY_GOALS.items():
        if told:
            lines.append(f"| histories: {word} | {told[word]:,} | {goal:,} | |")
    return "\n".join(lines)


def write_page(wanted, seed, record):
    """Put the tables of a run between the marks of docs/trust.md."""
    state = os.path.relpath(record.path)
    command = f"python -m soak --seed {seed} --state {state}"
    text = (
        f"{datetime.date.today()}, seed {seed}: `{command}`; the tables by the same with `--report`.\n\n"
        f"{sums(wanted, seed, record)}\n\n{table(wanted, seed, record)}"
    )
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def report(target, seed, number, text):
    """A case that went wrong: what was said, and how to see it again."""
    shown = "\n  ".join(text.strip().splitlines()[-MAX_SHOWN_LINES:])
    print(f"\n{target.label}, case {number}:\n  {shown}\n  {command(target, seed, number)}", flush=True)


def command(target, seed, number):
    return f"python -m soak {target.part} --target {target.name!r} --seed {seed} --case {number}"


def one_case(part, name, seed, number):
    (target,) = [t for t in targets(part) if t.name == name]
    with tempfile.TemporaryDirectory() as folder:
        wanted = target.environment(Path(folder))
        if wanted.keys() <= os.environ.keys():
            case = target.prepare(Path(folder), seed)
            print(case(number, choice_of(seed, target, number)))
            return 0
        again = [
            sys.executable,
            "-m",
            "soak",
            part,
            "--target",
            name,
            "--seed",
            str(seed),
            "--case",
            str(number),
        ]
        return subprocess.run(again, env={**os.environ, **wanted}, check=False).returncode


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--cases", type=int, help="cases of each part")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, default=STATE, help="where it is kept what was done")
    parser.add_argument("--target", action="append", help="only targets whose names begin so")
    parser.add_argument("--case", type=int, help="run this case of the target again, here")
    parser.add_argument("--processes", type=int, default=3, help="at a time; more than cores, as some wait")
    parser.add_argument("--minutes", type=float, help="begin nothing new after so many minutes")
    parser.add_argument("--report", action="store_true", help="write the tables into docs/trust.md")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}: there are {', '.join(PARTS)}")
    if given.case is not None:
        return one_case(given.parts[0], given.target[0], given.seed, given.case)
    wanted = wanted_cases(given.parts or PARTS, given.cases, given.target)
    record = Record(given.state)
    if given.report:
        write_page(wanted, given.seed, record)
        return 0
    until = given.minutes and time.monotonic() + 60 * given.minutes
    print(f"{datetime.date.today()}: python -m soak {' '.join(sys.argv[1:])}")
    run_all(wanted, given.seed, record, report, processes=given.processes, until=until)
    print(table(wanted, given.seed, record))
    rows = [(target, record.row(target.label, given.seed), goal) for target, goal in wanted]
    left = [target.label for target, row, goal in rows if row.next < goal]
    if left:
        print(f"not finished: {', '.join(left)}")
    in_time = until is None or time.monotonic() < until
    return int(any(row.failures for _, row, _ in rows) or bool(left and in_time))


if __name__ == "__main__":
    sys.exit(main())
