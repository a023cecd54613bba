"""Interpreters that end in the middle of their work: at once, in silence, and the repository is whole."""

import random
import signal
import subprocess
import sys

import numpy as np
import pytest

import intarsia

COLUMNS = 400
SECONDS = 120
"""After so many an interpreter hangs."""

BEGIN = """
import asyncio, atexit, concurrent.futures, faulthandler, os, signal, sys, threading, time
faulthandler.enable()
faulthandler.dump_traceback_later(120, exit=True)
import numpy as np, intarsia

place = sys.argv[1]
repo = intarsia.open_repository(place)
row = np.full((1, 400), 7, "int32")
working = threading.Event()

def append_for_ever():
    while True:
        intarsia.append(repo, "a", row, codecs=["gzip"], merge=False)
        working.set()

def read_for_ever():
    array = intarsia.open(repo, "a")
    while True:
        assert (array[...] == array[:, :1]).all()
        working.set()

def begin(function, **options):
    thread = threading.Thread(target=function, **options)
    thread.start()
    return thread

def say_begun():
    working.wait()
    print("begun", flush=True)
"""
ENDINGS = {
    "daemon threads that append": "[begin(append_for_ever, daemon=True) for _ in range(2)]; say_begun()",
    "daemon threads that read": "[begin(read_for_ever, daemon=True) for _ in range(4)]; say_begun()",
    "sys.exit beside daemon threads": """
[begin(each, daemon=True) for each in (append_for_ever, read_for_ever)]; say_begun(); sys.exit(3)
""",
    "sys.exit in a thread": """
def once():
    intarsia.append(repo, "a", row)
    sys.exit(5)
begin(once).join(); working.set(); say_begun()
""",
    "a thread that commits after the end of the main one": """
def later():
    threading.main_thread().join()
    for _ in range(3):
        intarsia.append(repo, "a", row, codecs=["gzip"], merge=False)
begin(later); working.set(); say_begun()
""",
    "os._exit beside threads": "begin(append_for_ever); begin(read_for_ever); say_begun(); os._exit(4)",
    "os._exit in a transaction": """
with intarsia.transaction(repo, message="never") as tx:
    tx.open("a").append(row, codecs=["zstd"]); working.set(); say_begun(); os._exit(4)
""",
    "sys.exit in a transaction": """
with intarsia.transaction(repo, message="never") as tx:
    tx.open("a").append(row, codecs=["zstd"]); working.set(); say_begun(); sys.exit(3)
""",
    "a transaction that nobody ends": """
tx = intarsia.transaction(repo, message="never").__enter__()
tx.open("a").append(row, codecs=["zstd"]); working.set(); say_begun()
""",
    "a transaction at exit": """
def last():
    with intarsia.transaction(repo, message="last") as tx:
        tx.open("a").append(row)
atexit.register(last); intarsia.open(repo, "a")[...]; working.set(); say_begun()
""",
    "a transaction that atexit ends": """
tx = intarsia.transaction(repo, message="last")
tx.__enter__().open("a").append(row, codecs=["zstd"])
atexit.register(tx.__exit__, None, None, None); working.set(); say_begun()
""",
    "a pool that is not waited for": """
pool = concurrent.futures.ThreadPoolExecutor(4)
futures = [pool.submit(intarsia.append, repo, "a", row) for _ in range(8)]
working.set(); say_begun(); pool.shutdown(wait=False, cancel_futures=True)
""",
    "tasks of asyncio that are cancelled": """
async def read():
    array = intarsia.open(repo, "a")
    while True:
        await array.read_async()
        working.set()
async def main():
    tasks = [asyncio.create_task(read()) for _ in range(4)]
    while not working.is_set():
        await asyncio.sleep(0)
    say_begun()
asyncio.run(main())
""",
    "a server that nobody stops": """
import urllib.request
server = intarsia.serve(place)
urllib.request.urlopen(server.url).read(); working.set(); say_begun()
""",
    "dask that is not waited for": """
import dask, xarray as xr
lazy = xr.open_dataset(place, engine="intarsia", chunks={"dim_0": 1})["a"].data
begin(lambda: [lazy.compute() for _ in iter(int, 1)], daemon=True); working.set(); say_begun()
""",
    "SIGTERM": "[begin(each) for each in (append_for_ever, read_for_ever)]; say_begun(); signal.pause()",
    "SIGTERM that raises": """
def end(*_):
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
[begin(each, daemon=True) for each in (append_for_ever, read_for_ever)]; say_begun()
while True:
    intarsia.append(repo, "a", row)
""",
    "SIGTERM in the command line": None,
}
CODES = {"sys.exit": 3, "os._exit": 4, "SIGTERM that": 3, "SIGTERM": -signal.SIGTERM}
DAEMONS = ("daemon", "dask", "that raises")
"""Words of those whose threads the interpreter does not wait for.

Before 3.14 CPython ends such a thread in the middle of C++ or Rust, which ends the process by a signal; and
zarr's event loop, which is stopped, speaks of what it drops.
"""
UNTOUCHED = ("that read", "in a transaction", "nobody", "asyncio", "dask", "command line")
"""Words of those that change nothing."""


def ended(name, place, wait):
    """Run it, and end it with a signal if it is for that; gives how it ended and what it said."""
    command = [sys.executable, "-c", BEGIN + (ENDINGS[name] or ""), str(place)]
    if ENDINGS[name] is None:
        command = [sys.executable, "-u", "-m", "intarsia", "serve", str(place), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline(), process.stderr.read()
        if name.startswith("SIGTERM"):
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(wait)
            process.terminate()
        _, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    return process.returncode, errors


@pytest.mark.parametrize("times", [1, pytest.param(15, marks=pytest.mark.torture)])
@pytest.mark.parametrize("name", ENDINGS)
def test_an_interpreter_ends_at_once_and_the_repository_is_whole(name, times, tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("a", shape=(0, COLUMNS), chunks=(1, COLUMNS), dtype="int32")
        array.append(np.ones((3, COLUMNS), "int32"), codecs=["zstd"])
    code = next(
        (code for begin, code in CODES.items() if name.startswith(begin) and "in a thread" not in name), 0
    )
    for _ in range(times):
        before = intarsia.open(repo, "a").shape[0]
        found, errors = ended(name, tmp_path / "r", random.uniform(0, 0.1))
        if any(word in name for word in DAEMONS):
            assert found in (code, -signal.SIGSEGV, -signal.SIGABRT), errors
        else:
            assert (found, errors) == (code, "")
        values = intarsia.open(repo, "a")[...]
        assert (values == values[:, :1]).all()
        assert set(values[3:, 0].tolist()) <= {7}
        assert len(values) >= before
        assert len(values) == before or not any(word in name for word in UNTOUCHED)
        assert intarsia.verify(repo, deep=True) == ()
        intarsia.append(repo, "a", np.full((1, COLUMNS), 7, "int32"))  # no lock is left
