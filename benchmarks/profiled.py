"""Where the processor time of a job goes: looked at about 2,000 times a second, without slowing it down.

A timer interrupts the job. Each look counts for the processor time since the last one, so a long call into a
library, which is looked at when it returns, counts for all of its time. The instruction that the interpreter
is at says whose time it is: that of the system, a compressor, NumPy, or the Python of a file. Copies by
assignment are seen where the loop around them goes on. What `perf` says of the libraries agrees.
"""

import dis
import linecache
import signal
import sys
import threading
import time
from collections import Counter
from functools import cache
from pathlib import Path

import intarsia
from benchmarks.measure import table

OURS = f"{Path(intarsia.__file__).parent}/"
INTERVAL = 0.0005
LONG_ENOUGH = 0.4
"""Seconds of processor time."""

SYSTEM, COMPRESSORS, NUMPY, COPIES = "system calls", "compressors", "NumPy", "copies"
ASYNCIO, WAITING = "asyncio, with Icechunk's tasks", "outside Python"
KINDS = (SYSTEM, COMPRESSORS, NUMPY, COPIES, "zarr", "icechunk", "Python's library", ASYNCIO, WAITING)
LIBRARIES = {"numpy": NUMPY, "numcodecs": COMPRESSORS, "zarr": "zarr", "icechunk": "icechunk"}
CALLS = {"os.": SYSTEM, "np.": NUMPY}
IDLE = "threading.py", "selectors.py", "thread.py"
"""Where threads wait for others."""

COPYING_CALLS = ".astype(", ".tobytes(", ".join("
AFTER_A_COPY = {
    "JUMP_BACKWARD": ("engine/read.py Read._decode_batch",),
    "RESUME": ("engine/write_chunks.py _FileWriter", "engine/chunk_codecs.py packer."),
}
"""Where the interpreter comes to, next, when an assignment has copied a chunk: signals wait until then."""
FILES_SHOWN = 6
SHOWN = 0.01
"""The least part of the time that is worth a word."""


@cache
def whose(code, instruction):
    """Whose time it is while this instruction runs: one of `KINDS`, or a file of ours."""
    name = code.co_filename
    if name.startswith(OURS):
        operation = dis.opname[code.co_code[instruction]]
        line, last, first, end = list(code.co_positions())[instruction // 2]
        text = linecache.getline(name, line)[first : end if last == line else None] if line else ""
        if operation.startswith("CALL"):
            of_compressors = f"{OURS}codecs/" in name or "compress(" in text
            copies = any(call in text for call in COPYING_CALLS)
            kind = COMPRESSORS if of_compressors else COPIES if copies else CALLS.get(text[:3])
        else:
            after_a_copy = AFTER_A_COPY.get(operation, ())
            kind = (
                COPIES if f"{name.removeprefix(OURS)} {code.co_qualname}".startswith(after_a_copy) else None
            )
        return kind or name.removeprefix(OURS).removesuffix(".py")
    parts = Path(name).parts
    if "asyncio" in parts:
        return ASYNCIO
    package = parts[parts.index("site-packages") + 1] if "site-packages" in parts else ""
    return LIBRARIES.get(package, package or "Python's library")


def _writer(frame):
    """The frame of the file that an instruction is in: what Python made of a dataclass is in none."""
    while frame.f_code.co_filename.startswith("<") and frame.f_back is not None:
        frame = frame.f_back
    return frame


def shares(job, seconds=LONG_ENOUGH):
    """The part of the processor time that each has, in a job that is run again and again for some time."""
    found, before, main, running = Counter(), time.process_time(), threading.get_ident(), True

    def look(_number, here):
        nonlocal before
        spent = time.process_time() - before
        frames = sys._current_frames() | {main: here}
        busy = [frame for frame in frames.values() if not frame.f_code.co_filename.endswith(IDLE)]
        for frame in map(_writer, busy):
            if frame.f_code.co_filename != __file__:
                found[whose(frame.f_code, frame.f_lasti)] += spent / len(busy)
        if not busy:
            found[WAITING] += spent
        before = time.process_time()  # what looking takes does not count
        if running:  # a timer that repeats would interrupt looking too, again and again on a busy machine
            signal.setitimer(signal.ITIMER_REAL, INTERVAL)

    job()
    usual = signal.signal(signal.SIGALRM, look)
    before = began = time.process_time()
    signal.setitimer(signal.ITIMER_REAL, INTERVAL)
    try:
        while time.process_time() - began < seconds:
            job()
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
    total = sum(found.values())
    return {name: spent / total for name, spent in found.most_common()}


def profile_table(spent, *names):
    """The shares that jobs were found to have, each job under one or several names."""
    kinds = [kind for kind in KINDS if any(each.get(kind, 0) >= SHOWN for each in spent.values())]
    rows = []
    for row, each in spent.items():
        ours = {file: share for file, share in each.items() if file not in KINDS}
        cells = [f"{each.get(kind, 0):.0%}" for kind in kinds] + [f"{sum(ours.values()):.0%}"]
        most = [f"{file} {share:.0%}" for file, share in list(ours.items())[:FILES_SHOWN] if share >= SHOWN]
        rows.append((*row, *cells, ", ".join(most)))
    header = (*names, *kinds, "the rest, which is Python", "of it, most")
    return table("Where the processor time of intarsia goes, in one thread", rows, header)
