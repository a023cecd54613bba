"""Ctrl-C at any moment: it ends at once, no lock is left, and the data is as before."""

import ast
import subprocess
import sys
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr
from filelock import FileLock
from zarr.storage import LocalStore

import intarsia
from intarsia._icechunk import IcechunkStore
from intarsia.engine import write_chunks
from intarsia.versions import locking

INTERRUPTED = """
import concurrent.futures, faulthandler, random, signal, sys, tempfile
import numpy as np, intarsia

count, seed = int(sys.argv[1]), sys.argv[2]
choose = random.Random(seed)
repo = intarsia.open_repository(sys.argv[3], create=True)
ones = np.ones((150, 64), "i8")
with intarsia.transaction(repo, message="create") as tx:
    tx.create("a", shape=(0, 64), chunks=(1, 16), dtype="i8").append(ones, codecs=["zstd"])

def there_and_back(tx):
    array = tx.open("a")
    array.append(ones[:20], codecs=["gzip"], merge=False)
    array.consolidate()
    array.resize((150, 64))

def change():
    kind = choose.choice(["recode", "transaction", "write"])
    if kind == "recode":
        intarsia.recode(repo, "a", codecs=choose.choice([["zstd"], ["gzip"], []]))
    elif kind == "write":
        intarsia.write(repo, "a", ..., ones, cross_region_writes=True)
    else:
        intarsia.retry(repo, there_and_back, message="there and back")

# CPython cannot be interrupted while it takes the lock of a future, or loops while it holds one, as zarr does
# whenever it waits: the lock stays taken, and zarr's event loop waits for it for ever. Such an interrupt
# comes a little later.
FUTURES = concurrent.futures.Future.result.__code__.co_filename
TAKES_LOCKS = {f"{kind}.__{end}__" for kind in ("Condition", "_AcquireFutures") for end in ("enter", "exit")}
TAKES_LOCKS |= {"Condition._release_save", "Condition._acquire_restore", "Event.wait"}

def interrupt(number, frame):
    if frame.f_code.co_filename == FUTURES or frame.f_code.co_qualname in TAKES_LOCKS:
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
    else:
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
interrupts, longest = 0, 0.1
while interrupts < count:
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        signal.setitimer(signal.ITIMER_REAL, choose.uniform(0.0001, longest))
        try:
            change()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        longest *= 0.8  # a fast machine
    except KeyboardInterrupt:
        interrupts += 1
        with intarsia.versions.commit_lock(repo, timeout=0):
            pass
    assert (intarsia.open(repo, "a")[...] == ones).all()
assert intarsia.verify(repo) == ()
print("whole")
"""


def interrupt_often(count, tmp_path):
    seed = str(np.random.SeedSequence().entropy)
    command = [sys.executable, "-c", INTERRUPTED, str(count), seed, str(tmp_path / "repository")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "whole\n", f"seed {seed}\n{done.stderr}"


def test_interrupts_at_any_moment(tmp_path):
    interrupt_often(15, tmp_path)


LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp)


def loops_in(node):
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS):
            if isinstance(child, LOOPS):
                yield child
            yield from loops_in(child)


def test_no_lock_is_held_around_a_loop_of_the_same_function():
    """CPython 3.13 leaves it taken for ever if Ctrl-C comes when the loop jumps back."""
    held = [
        f"{path.name}:{loop.lineno}"
        for path in sorted(Path(intarsia.__file__).parent.rglob("*.py"))
        if "_lock" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.With) and any("_lock" in ast.unparse(item) for item in node.items)
        if "commit_lock" not in ast.unparse(node.items[0])  # a file, which ends with the process
        for loop in loops_in(ast.Module(node.body, []))
    ]
    assert held == []


FUNCTIONS_OF_LOCKS = [
    locking.lock_directory.__wrapped__,
    locking._open_lock,
    locking._acquire,
    locking._LockFile.__init__,
    locking._LockFile.close,
]


class Interrupts:
    """Ctrl-C at an instruction of the code that takes the commit lock."""

    def __init__(self):
        self.left = 0
        self.tool, events = sys.monitoring.DEBUGGER_ID, sys.monitoring.events
        sys.monitoring.use_tool_id(self.tool, "interrupts")
        sys.monitoring.register_callback(self.tool, events.INSTRUCTION, self.interrupt)
        for function in FUNCTIONS_OF_LOCKS:
            sys.monitoring.set_local_events(self.tool, function.__code__, events.INSTRUCTION)

    def interrupt(self, *_):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def lock(self, path, at):
        """Take the lock, interrupted at an instruction; whether there were so many."""
        self.left = at
        try:
            with locking.lock_directory(path):
                pass
        except KeyboardInterrupt:
            with locking.lock_directory(path, timeout=0):
                pass
        return self.left <= 0

    def end(self):
        for function in FUNCTIONS_OF_LOCKS:
            sys.monitoring.set_local_events(self.tool, function.__code__, 0)
        sys.monitoring.free_tool_id(self.tool)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_instruction_leaves_no_lock(tmp_path):
    interrupts, at = Interrupts(), 1
    try:
        while interrupts.lock(tmp_path, at):
            lock = FileLock(locking.lock_file(tmp_path))
            lock.acquire(timeout=0)  # as another process would
            lock.release()
            at += 1
    finally:
        interrupts.end()
    assert at > 40


@pytest.mark.torture
def test_many_interrupts_at_any_moment(tmp_path):
    interrupt_often(3000, tmp_path)


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.fixture
def repo(tmp_path):
    repo = intarsia.open_repository(tmp_path / "repository", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("a", shape=(0,), chunks=(2,), dtype="i4").append([1, 2, 3, 4], codecs=["zstd"])
    return repo


WAYS_TO_ASK = {"discard_changes", "delete_dir", "__contains__", "__delitem__"}

CHANGES = {
    "append": lambda array: array.append([5, 6], codecs=["gzip"]),
    "add_region": lambda array: array.add_region([(4, 6)], codecs=["gzip"], data=[5, 6]),
    "recode": lambda array: array.recode([(0, 4)], codecs=["gzip"]),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_session_with_writes_on_their_way_is_asked_nothing(change, repo, monkeypatch):
    asked = []
    tx = intarsia.transaction(repo, message="x")
    monkeypatch.setattr(write_chunks.ChunkWriter, "write", interrupt)

    def changed():
        with tx:
            array = tx.open("a")
            array.resize((6,))
            for kind in (icechunk.Session, icechunk.IcechunkStore, IcechunkStore, zarr.Group):
                for name in WAYS_TO_ASK & vars(kind).keys():
                    monkeypatch.setattr(kind, name, lambda *_, name=name: asked.append(name))
            CHANGES[change](array)

    with pytest.raises(KeyboardInterrupt):
        changed()
    monkeypatch.undo()
    assert asked == []
    assert intarsia.open(repo, "a")[...].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_nothing_is_left_in_a_directory(change, tmp_path, monkeypatch):
    array = intarsia.create(LocalStore(tmp_path), "a", shape=(0,), chunks=(2,), dtype="i4")
    array.append([1, 2, 3, 4], codecs=["zstd"])
    array.resize((6,))
    before = sorted(tmp_path.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(write_chunks.ChunkWriter, "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            CHANGES[change](array)
    assert sorted(tmp_path.rglob("*")) == before
    assert intarsia.open(tmp_path, "a")[:4].tolist() == [1, 2, 3, 4]
