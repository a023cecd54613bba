"""The process that runs cases, one after the other: `python -m soak.child` is started by `soak.run` alone.

What it says goes to standard output, a JSON object a line. The number of the case that it is at lies in a
file that is mapped into memory, so that it is known even of a process that crashed.
"""

import contextlib
import ctypes
import faulthandler
import gc
import json
import mmap
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from soak.target import choice_of, tally, targets

TOLD_EVERY = 2.0
"""Seconds between two words about what was done so far."""

MAX_ADDRESS_SPACE = 2 << 30
"""Bytes that a case may ask the system for, used or not: what wants a hundred gigabytes is told no."""

MAX_WORDS = 200_000
"""Characters of a traceback that are kept: a history without an explanation can be studied from them."""

PAGE = resource.getpagesize()


class Memory:
    """How much of the machine's memory this process holds."""

    def __init__(self):
        self.at_start = self.held()

    @staticmethod
    def held(field="VmRSS"):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) << 10
        return 0

    def forget_peak(self):
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    @property
    def now(self):
        """What is held now, in less time than `held` takes."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

    @property
    def grown(self):
        """The most that was held since the peak was forgotten, beyond what was held at the start."""
        return self.held("VmHWM") - self.at_start


def processor_seconds():
    """What this process and those that it waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def say(**words):
    print(json.dumps(words), flush=True)


def limit():
    """What no case may exceed, whatever it reads."""
    data = Memory.held("VmData")
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (data + MAX_ADDRESS_SPACE, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(target, seed, start, stop, place):
    """Run cases; tells what came of them."""
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        try:
            case = target.prepare(Path(folder), seed)
        except Exception:
            say(unprepared=traceback.format_exc()[-MAX_WORDS:])
            return
        say(prepared=True)
        gc.collect()
        gc.freeze()  # what the preparation left is not looked through again and again
        memory = Memory()
        memory.forget_peak()
        if target.memory is not None:
            limit()
        counted, since, first, used = Counter(), time.monotonic(), start, 0.0
        for number in range(start, stop):
            place[:8] = number.to_bytes(8, "little")
            try:
                counted += tally(case(number, choice_of(seed, target, number)))
            except Exception:
                counted["WRONG"] += 1
                say(failure=number, text=traceback.format_exc()[-MAX_WORDS:])
            if target.memory is not None and memory.now - memory.at_start > target.memory // 4:
                gc.collect()  # what errors before this one hold in cycles is not what this case takes
            if time.monotonic() - since > TOLD_EVERY or number + 1 == stop:
                grown = memory.grown
                before, used = used, processor_seconds()
                say(
                    start=first,
                    stop=number + 1,
                    counts=counted,
                    grown=grown,
                    processor=round(used - before, 2),
                )
                if target.memory is not None and grown > target.memory:
                    say(
                        failure=number,
                        text=f"held {grown} bytes more than at the start, between {first} and here",
                    )
                    return
                memory.forget_peak()
                counted, since, first = Counter(), time.monotonic(), number + 1


def main(label, seed, start, stop, place):
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # gone with whoever started it
    (target,) = [each for each in targets(label.split()[0]) if each.label == label]
    with open(place, "r+b") as file, mmap.mmap(file.fileno(), 8) as mapped:
        run(target, int(seed), int(start), int(stop), mapped)


if __name__ == "__main__":
    main(*sys.argv[1:])
