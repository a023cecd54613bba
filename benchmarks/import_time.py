"""Claim: `import intarsia; intarsia.open` takes at most 1.3x as long as importing zarr and icechunk alone.

Each in a process of its own, from compiled files, as an installed package has them; in CPU time.
"""

import os
import subprocess
import sys
import tempfile

from benchmarks.measure import headed, numbers, table

STATEMENTS = {
    "zarr and icechunk": "import zarr, icechunk",
    "and intarsia": "import zarr, icechunk, intarsia",
    "and intarsia.open": "import zarr, icechunk, intarsia; intarsia.open",
}
ROUNDS = 15

MEASURE = """
import sys, time
start = time.process_time()
{statement}
print(time.process_time() - start, len(sys.modules))
"""


def run() -> str:
    best = dict.fromkeys(STATEMENTS, float("inf"))
    modules = dict.fromkeys(STATEMENTS, 0)
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        for round_ in range(1 + ROUNDS):  # the first one compiles
            for name, statement in STATEMENTS.items():
                program = [sys.executable, "-c", MEASURE.format(statement=statement)]
                done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
                seconds, count = done.stdout.split()
                modules[name] = int(count)
                if round_:
                    best[name] = min(best[name], float(seconds))
    alone = best["zarr and icechunk"]
    rows = [
        (name, f"{1000 * seconds:.0f} ms", f"{seconds / alone:.2f}", str(modules[name]))
        for name, seconds in best.items()
    ]
    header = ("what is imported", "best CPU time", "ratio", "modules")
    text = table("Imports, each in a new process", rows, header)
    took = numbers(text, "ratio")[-1]
    return headed(
        f"`import intarsia; intarsia.open` takes {took}x as long as importing zarr and icechunk alone", text
    )


if __name__ == "__main__":
    print(run())
