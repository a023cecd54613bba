"""Threads that live as long as the work, however it ends."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from intarsia.engine import thread_pool
from intarsia.engine.thread_pool import run_in_threads


def ours():
    return [thread for thread in threading.enumerate() if thread.name == "intarsia"]


def handing_out(count):
    left = iter(range(count))
    lock = threading.Lock()

    def take():
        with lock:
            return next(left, None)

    return take


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_everything_is_done_once(threads):
    done = []
    run_in_threads(handing_out(100), done.append, threads)
    assert sorted(done) == list(range(100))
    assert not ours()


def test_threads_that_have_a_context_of_their_own_work(monkeypatch):
    """As from Python 3.14 on; a name of ours once took its place."""
    make, begin = threading.Thread.__init__, threading.Thread._bootstrap_inner

    def made(thread, *args, **kwargs):
        make(thread, *args, **kwargs)
        thread._context = None

    def begun(thread):
        (thread._context or copy_context()).run(begin, thread)

    if sys.version_info < (3, 14):
        monkeypatch.setattr(threading.Thread, "__init__", made)
        monkeypatch.setattr(threading.Thread, "_bootstrap_inner", begun)
    together = threading.Barrier(2, timeout=30)
    run_in_threads(handing_out(2), lambda _: together.wait(), threads=2)


def test_threads_work_at_the_same_time_and_the_calling_one_among_them():
    together = threading.Barrier(3, timeout=30)
    workers = set()

    def work(_):
        workers.add(threading.get_ident())
        together.wait()

    run_in_threads(handing_out(3), work, 3)
    assert threading.get_ident() in workers
    assert len(workers) == 3


def test_the_first_failure_is_raised_and_stops_the_rest():
    started = threading.Barrier(2, timeout=30)
    gave_up, done = threading.Event(), []

    def work(piece):
        if piece < 2:
            started.wait()
        if piece == 0:
            raise OSError("broken")
        assert gave_up.wait(30)  # as one that waits for a fetch, which giving up cancels
        done.append(piece)

    with pytest.raises(OSError, match="broken"):
        run_in_threads(handing_out(1000), work, 2, give_up=lambda _: gave_up.set())
    assert len(done) <= 2
    assert not ours()


def test_all_runs_together_have_no_more_helpers_than_one():
    running, most, lock = 0, 0, threading.Lock()
    callers = 6
    all_in = threading.Barrier(callers, timeout=30)

    def work(_):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1

    def call(_):
        all_in.wait()
        run_in_threads(handing_out(200), work, 3)

    with ThreadPoolExecutor(callers) as executor:
        list(executor.map(call, range(callers)))
    assert most <= callers + 2
    assert thread_pool._helpers._busy == 0


def test_helpers_see_the_context_of_the_caller():
    from intarsia.codecs.context import current_chunk_index, working_on

    seen = []
    together = threading.Barrier(2, timeout=30)

    def work(_):
        together.wait()
        seen.append(current_chunk_index())

    with working_on((4, 2)):
        run_in_threads(handing_out(2), work, 2)
    assert seen == [(4, 2)] * 2


FORKED = """
import os
from intarsia.engine import thread_pool
thread_pool._helpers.take(5)
child = os.fork()
if not child:
    os._exit(thread_pool._helpers.take(3))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), thread_pool._helpers.take(1))
"""


def test_a_forked_child_has_helpers_of_its_own():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["3", "0"], done.stderr


INTERRUPTED = """
import asyncio, os, signal, sys, threading
import numpy as np, intarsia
from zarr.storage import MemoryStore, WrapperStore

class Slow(WrapperStore):
    "Answers for chunks when told so; says when it was asked."
    _supports_sync_io = sys.argv[1] == "threads"
    asked, go_on = threading.Event(), threading.Event()

    def get_sync(self, key, **options):
        if "/c/" in key:
            self.asked.set()
            self.go_on.wait(30)
        return super().get_sync(key, **options)

    async def get(self, key, prototype=None, byte_range=None):
        if "/c/" in key:
            self.asked.set()
            while not self.go_on.is_set():
                await asyncio.sleep(0.001)
        return await super().get(key, prototype, byte_range)

inner = MemoryStore()
array = intarsia.create(inner, "a", shape=(64, 65536), chunks=(1, 65536), dtype="f8")
array.add_region(((0, 64), (0, 65536)), codecs=[], data=np.ones((64, 65536)))
array = intarsia.open(Slow(inner), "a").with_config(threads=4)

def interrupt():
    Slow.asked.wait(30)
    os.kill(os.getpid(), signal.SIGINT)
    if sys.argv[1] == "threads":
        Slow.go_on.set()

threading.Thread(target=interrupt, name="interrupter").start()
try:
    array[...]
except KeyboardInterrupt:
    left = [t.name for t in threading.enumerate() if t.name == "intarsia"]
    print("interrupted, left:", left)
    Slow.go_on.set()
    assert (array[...] == 1).all()
    print("and read")
"""


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_keyboard_interrupt_leaves_no_thread_behind(kind):
    """Neither with a store that is read in the decoding threads, nor with one that never answers."""
    program = [sys.executable, "-c", INTERRUPTED, kind]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["interrupted, left: []", "and read"], done.stderr


NO_THREADS = """
import asyncio, sys, threading
import numpy as np, intarsia

def start(self):
    raise RuntimeError("can't start new thread")

usual = threading.Thread.start
if sys.argv[1] == "all":
    threading.Thread.start = start
    for _ in range(2):  # zarr would wait for ever the second time
        try:
            intarsia.create({}, "a", shape=(0, 65536), chunks=(1, 65536), dtype="f8")
        except intarsia.errors.ReadError as error:
            print("none can be started" in str(error))
    threading.Thread.start = usual
values = np.random.default_rng(0).random((64, 65536))
array = intarsia.create({}, "a", shape=(0, 65536), chunks=(1, 65536), dtype="f8")
array.append(values, codecs=["zstd"])
threading.Thread.start = start
print(np.array_equal(array.with_config(threads=4)[...], values))
for read in (lambda: asyncio.run(array.read_async(...)), lambda: intarsia.fused_view(array)[...]):
    try:
        read()
    except intarsia.errors.ReadError as error:
        print("none can be started" in str(error))
threading.Thread.start = usual
print(np.array_equal(intarsia.fused_view(array)[...], values))
"""


@pytest.mark.parametrize(("which", "answers"), [("later ones", 4), ("all", 6)])
def test_threads_that_cannot_start_are_done_without_or_named(which, answers):
    program = [sys.executable, "-c", NO_THREADS, which]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True"] * answers, done.stderr
