"""Starts the processes that run cases, watches them, and keeps what they say."""

import json
import mmap
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOOK_EVERY = 0.5
SECONDS_TO_TELL = 5
PREPARATION = 900
"""Seconds that a process may take before its first case; many of them may begin at a time."""
MAX_FAILURES = 200
"""After so many, a target is not continued."""


class Stretch:
    """A process that runs some cases of a target."""

    def __init__(self, target, seed, start, stop, record, report):
        self.target, self.seed, self.record, self.report = target, seed, record, report
        self.done = start
        self.gives_up = False
        """Whether nothing can be run of it at all, or too much went wrong already."""
        self._stop = stop

    def run(self):
        """Until all is done, or the process is gone; then `done` is the first case that is left."""
        with tempfile.TemporaryDirectory(prefix="soak-run-") as folder:
            try:
                environment = {**os.environ, "MALLOC_ARENA_MAX": "2", "PYTHONFAULTHANDLER": "1"}
                environment |= self.target.environment(Path(folder))
            except Exception:
                self.gives_up = True
                self._failed(-1, traceback.format_exc())
                return
            place, errors = Path(folder) / "at", Path(folder) / "stderr"
            place.write_bytes(bytes(8))
            with place.open("r+b") as file, mmap.mmap(file.fileno(), 8) as at, errors.open("w+") as said:
                place_of = lambda: int.from_bytes(at[:8], "little")  # noqa: E731
                at[:8] = self.done.to_bytes(8, "little")
                command = [
                    *(sys.executable, "-m", "soak.child", self.target.label),
                    *(str(self.seed), str(self.done), str(self._stop), str(place)),
                ]
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True,
                    cwd=ROOT, env=environment,
                )  # fmt: skip
                lines = queue.SimpleQueue()
                listener = threading.Thread(target=self._listen, args=(process, lines), daemon=True)
                listener.start()
                hung = self._watch(process, place_of, lines)
                process.wait()
                listener.join()
                self._take(lines)
                self._bury(process, place_of(), hung, errors.read_text(errors="replace")[-6000:])

    @staticmethod
    def _listen(process, lines):
        with process.stdout as said:
            for line in said:
                lines.put((time.monotonic(), line))

    def _watch(self, process, place_of, lines):
        """Take what is said until the process ends; whether it had to be ended."""
        self._since = last = time.monotonic()
        self._prepared = False
        at = place_of()
        while True:
            try:
                process.wait(LOOK_EVERY)
                return False
            except subprocess.TimeoutExpired:
                pass
            self._take(lines)
            now = time.monotonic()
            if place_of() != at:
                at, last = place_of(), now
            if now - last > (self.target.patience if self._prepared else PREPARATION):
                process.send_signal(signal.SIGUSR1)  # tells all stacks
                time.sleep(SECONDS_TO_TELL)
                process.kill()
                return True

    def _take(self, lines):
        while not lines.empty():
            when, line = lines.get()
            try:
                words = json.loads(line)
            except ValueError:
                continue  # something else that printed
            if "prepared" in words:
                self._prepared = True
                continue
            if "unprepared" in words:
                self.gives_up = True
                self._failed(-1, words["unprepared"])
                continue
            if "failure" in words:
                self._failed(words["failure"], words["text"])
                continue
            self.done = words["stop"]
            self.record.add(
                label=self.target.label, seed=self.seed, seconds=round(when - self._since, 2), **words
            )
            self._since = when

    def _bury(self, process, at, hung, said):
        if self.gives_up or (process.returncode == 0 and self.done >= self._stop):
            return
        if process.returncode == 0 and self.done > at:  # it stopped itself: too much memory
            return
        why = "hung" if hung else f"ended with {process.returncode}"
        if at > self.done:  # what it did before, and did not tell any more
            self._done(self.done, at)
        self._failed(at, f"{why}\n{said}")
        self._done(at, at + 1)

    def _done(self, start, stop):
        self.record.add(
            label=self.target.label, seed=self.seed, seconds=0, grown=0, start=start, stop=stop,
            counts={"WRONG": 1} if stop == start + 1 and start == self.done else {"not told": stop - start},
        )  # fmt: skip
        self.done = stop

    def _failed(self, number, text):
        self.record.add(label=self.target.label, seed=self.seed, failure=number, text=text)
        self.report(self.target, self.seed, number, text)
        if len(self.record.row(self.target.label, self.seed).failures) > MAX_FAILURES:
            self.gives_up = True


def run_all(wanted, seed, record, report, *, processes, until=None):
    """Run every target up to its number of cases, `processes` at a time.

    The one that has the longest to go comes first, so that no long one is left alone in the end.
    """
    lock = threading.Lock()
    waiting = [(t, cases) for t, cases in wanted if record.row(t.label, seed).next < cases]

    def to_go(each):
        target, cases = each
        return target.seconds * (cases - record.row(target.label, seed).next)

    def work():
        while not (until and time.monotonic() > until):
            with lock:
                if not waiting:
                    return
                longest = max(waiting, key=to_go)
                waiting.remove(longest)
            target, cases = longest
            start = record.row(target.label, seed).next
            stretch = Stretch(target, seed, start, min(cases, start + target.stretch), record, report)
            stretch.run()
            if stretch.done < cases and not stretch.gives_up:
                with lock:
                    waiting.append(longest)

    threads = [threading.Thread(target=work) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
