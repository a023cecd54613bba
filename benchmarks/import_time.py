"""Claim: `import intarsia; intarsia.open` takes at most 1.3x as long as importing zarr and icechunk alone.

Each in a process of its own, from compiled files, as an installed package has them; in CPU time. The
second table has the first `zarr.create_array` of a process that does not import intarsia, which is installed
or hidden.
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

HIDE = """
import importlib.metadata as metadata
known = metadata.entry_points
metadata.entry_points = lambda **asked: metadata.EntryPoints(
    each for each in known(**asked) if not each.value.startswith("intarsia.")
)
"""

FIRST_ARRAY = """
import sys, time, zarr
start = time.process_time()
zarr.create_array({}, shape=4, dtype="i4")
took = time.process_time() - start
print(took, sum(name.split(".")[0] == "intarsia" for name in sys.modules))
"""

PLAIN = {"hidden": HIDE + FIRST_ARRAY, "installed": FIRST_ARRAY}


def best_of(programs: dict[str, str]) -> tuple[dict[str, float], dict[str, int]]:
    """The least seconds that each program prints, and the modules that it counts."""
    best, modules = dict.fromkeys(programs, float("inf")), dict.fromkeys(programs, 0)
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        for round_ in range(1 + ROUNDS):  # the first one compiles
            for name, program in programs.items():
                command = [sys.executable, "-c", program]
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                seconds, count = done.stdout.split()
                modules[name] = int(count)
                if round_:
                    best[name] = min(best[name], float(seconds))
    return best, modules


def run() -> str:
    best, modules = best_of({name: MEASURE.format(statement=each) for name, each in STATEMENTS.items()})
    alone = best["zarr and icechunk"]
    rows = [
        (name, f"{1000 * seconds:.0f} ms", f"{seconds / alone:.2f}", str(modules[name]))
        for name, seconds in best.items()
    ]
    header = ("what is imported", "best CPU time", "ratio", "modules")
    text = table("Imports, each in a new process", rows, header)
    took = numbers(text, "ratio")[-1]
    best, modules = best_of(PLAIN)
    rows = [(name, f"{1000 * best[name]:.1f} ms", str(modules[name])) for name in PLAIN]
    header = ("intarsia", "best CPU time", "modules of intarsia")
    text += "\n" + table("The first plain `zarr.create_array`", rows, header)
    return headed(
        f"`import intarsia; intarsia.open` takes {took}x as long as importing zarr and icechunk alone", text
    )


if __name__ == "__main__":
    print(run())
