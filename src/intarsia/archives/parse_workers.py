"""Processes that parse files for this one: started as programs of their own, and fed through pipes.

They are not forked, so that no thread of Icechunk is lost, and they do not import the caller's script, as
those of `multiprocessing` do. If one cannot be started, or dies, its files are parsed here.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intarsia.archives.workforce import Parse

LENGTH = struct.Struct("<Q")
"""Before every message: its length in bytes."""

PROGRAM = "import sys; sys.path[:] = {path!r}; from intarsia.archives.parse_workers import serve; serve()"


def can_be_started() -> bool:
    """Whether this interpreter can be started as a program: one inside another program cannot."""
    name = os.path.basename(sys.executable or "").lower()
    return name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


class ParseWorkers:
    """As many processes as there may be tasks at once. Any thread may give them one."""

    def __init__(self, parse: Parse, count: int) -> None:
        self._parse = parse
        self._closed = False
        self._started: list[subprocess.Popen[bytes]] = []
        self._idle: SimpleQueue[subprocess.Popen[bytes] | None] = SimpleQueue()
        for _ in range(count):
            self._idle.put(self._start())

    def _start(self) -> subprocess.Popen[bytes] | None:
        command = [sys.executable, "-c", PROGRAM.format(path=sys.path)]
        try:
            worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError:
            return None
        self._started.append(worker)
        try:
            send(worker.stdin, self._parse)
        except OSError:
            return None
        return worker

    def parse(self, urls: Sequence[str]) -> list[Any]:
        """What a process makes of some files; where none is left, they are parsed here."""
        worker = self._idle.get()
        try:
            if worker is not None:
                send(worker.stdin, urls)
                found: list[Any] | None = receive(worker.stdout)
                if found is not None:
                    return found
        except OSError:
            pass
        finally:
            dead = worker is None or worker.poll() is not None
            self._idle.put(None if dead else worker)
        return [] if self._closed else self._parse(urls)

    def close(self) -> None:
        """End all of them, also those that are at work: nobody waits for them any more."""
        self._closed = True
        for worker in self._started:
            worker.kill()
            with suppress(OSError), worker:  # closes its pipes, and waits for its end
                pass


def send(pipe: Any, message: Any) -> None:
    """Write a message into a pipe."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: Any) -> Any:
    """The next message of a pipe; None where it has ended."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    data = pipe.read(length)
    return pickle.loads(data) if len(data) == length else None


def serve() -> None:
    """Be such a process: parse what comes, until nothing comes any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that gives out the tasks
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not an answer
    parse = receive(sys.stdin.buffer)
    while (urls := receive(sys.stdin.buffer)) is not None:
        send(answers, parse(urls))
