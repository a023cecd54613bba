"""Histories: processes that append to, write, recode, resize, drop, consolidate, vacuum and read one array.

On local disk, and on S3 behind a proxy that loses and garbles, while they are killed and stopped. A model
judges what they saw.
"""

import contextlib
import datetime
import os
import random
import signal
import tempfile
import time

import numpy as np
from tests import servers
from tests.versions.places import Place
from tests.versions.processes import CONTEXT

import intarsia
from soak.faulty_proxy import FaultyProxy
from soak.linear import UNKNOWN, Operation, UndecidedError, explained
from soak.target import Target, Wrong

COLUMNS = 300
CODECS = [[], ["zstd"], ["gzip"], ["crc32c"]]
STEPS = 10
"""Changes and reads of each process."""

KINDS = (
    ("append",) * 6
    + ("read",) * 3
    + ("write", "write", "recode", "grow", "drop", "consolidate", "vacuum", "transaction")
)


EXPECTED = (
    intarsia.errors.RepositoryError,
    intarsia.errors.RepositoryNotFoundError,
    intarsia.errors.ReadError,
    intarsia.errors.ConcurrentUpdateError,
    intarsia.errors.LockTimeoutError,
)
"""What may be said where a server fails or others are faster."""


def seen(repo):
    values = intarsia.open(repo, "a")[...]
    if not (values == values[:, :1]).all():
        raise Wrong("a row holds several values: half a change is visible")
    return tuple(values[:, 0].tolist())


def do(repo, kind, number, rng):
    """One operation; gives its argument and what it showed, or raises."""
    if kind == "read":
        return None, seen(repo)
    if kind == "append":
        data = np.full((1, COLUMNS), number, dtype="int32")
        intarsia.append(repo, "a", data, codecs=rng.choice(CODECS), merge=rng.random() < 0.5)
    elif kind == "transaction":
        with intarsia.transaction(repo, message=f"{number}") as tx:
            tx.open("a").append(np.full((1, COLUMNS), number, dtype="int32"))
    return number, None


class NothingThereError(Exception):
    """The operation has nothing to work on yet; it is left out."""


def change(repo, kind, number, rng, begin):
    """One operation on what is there; `begin` is told the argument before anything happens."""
    if kind in ("append", "read", "transaction"):
        begin("append" if kind == "transaction" else kind, number if kind != "read" else None)
        return do(repo, kind, number, rng)[1]
    length = intarsia.open(repo, "a").shape[0]
    if not length:
        raise NothingThereError
    row = rng.randrange(length)
    if kind == "write":
        begin("write", (row, number))
        try:
            intarsia.write(repo, "a", row, np.full(COLUMNS, number, dtype="int32"))
        except intarsia.errors.NoRegionError as error:  # grown, or dropped by somebody
            raise NothingThereError from error
    elif kind == "recode":
        begin("recode", None)
        try:
            intarsia.recode(repo, "a", [(row, length), (0, COLUMNS)], codecs=rng.choice(CODECS))
        except intarsia.errors.NoRegionError as error:
            raise NothingThereError from error
    elif kind == "consolidate":
        begin("consolidate", None)
        intarsia.retry(repo, lambda tx: tx.open("a").consolidate())
    elif kind == "grow":
        begin("grow", 1)
        intarsia.retry(repo, lambda tx: (array := tx.open("a")).resize((array.shape[0] + 1, COLUMNS)))
    elif kind == "drop":
        begin("drop", (row, row + 1))
        try:
            intarsia.retry(repo, lambda tx: tx.open("a").drop_region([(row, row + 1), (0, COLUMNS)]))
        except intarsia.errors.NoRegionError as error:
            raise NothingThereError from error
    elif kind == "vacuum":
        begin("vacuum", None)
        intarsia.retry(repo, lambda tx: intarsia.vacuum(tx.store))
    return None


def work(place, seed, first, pipe):
    """Operation after operation; tells before and after each."""
    repo, rng = None, random.Random(seed)
    for number in range(first, first + STEPS):
        kind = rng.choice(KINDS)
        said = []

        def begin(name, argument, said=said, number=number):
            said.append(name)
            pipe.send(("begin", number, name, argument, time.monotonic()))

        try:
            repo = repo or place.open()
            result = change(repo, kind, number, rng, begin)
            pipe.send(("end", number, time.monotonic(), result))
        except NothingThereError:
            pipe.send(("nothing", number))
        except EXPECTED as error:
            pipe.send(("failed", number, f"{type(error).__name__}: {error}"[:300]))
        except Exception as error:
            pipe.send(("wrong", number, f"{kind}: {type(error).__name__}: {error}"[:1500]))
    pipe.send(("done",))


class Crew:
    """The processes of one history, and what they said."""

    def __init__(self, place, seed, count):
        self.operations, self.wrong, self.failed, self.kills, self.stops = {}, [], 0, 0, 0
        self._place, self._seed, self._count = place, seed, count
        self._first, self._members = 1, []

    def _start(self):
        here, there = CONTEXT.Pipe(duplex=False)
        arguments = (self._place, f"{self._seed}-{self._first}", self._first, there)
        process = CONTEXT.Process(target=work, args=arguments, daemon=True)
        process.start()
        there.close()
        self._first += STEPS
        self._members.append((process, here))

    def run(self, rng, kills):
        for _ in range(self._count):
            self._start()
        while self._members:
            member = rng.choice(self._members)
            process, pipe = member
            if self.kills < kills and self.operations and rng.random() < 0.3:
                self.kills += 1
                process.join(rng.uniform(0, 0.3))
                process.kill()
                process.join()
                self._hear(pipe)
                self._leave(member)
                self._start()
                continue
            if rng.random() < 0.1 and process.is_alive():
                self.stops += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGSTOP)
                    process.join(rng.uniform(0, 0.5))
                    os.kill(process.pid, signal.SIGCONT)
            if pipe.poll(0.2):
                self._hear(pipe)
            if not process.is_alive():
                self._hear(pipe)
                self._leave(member)

    def _leave(self, member):
        self._members.remove(member)
        member[1].close()

    def _hear(self, pipe):
        with contextlib.suppress(EOFError, OSError):
            while pipe.poll(0):
                self._take(*pipe.recv())

    def _take(self, what, number=None, *rest):
        if what == "begin":
            name, argument, begun = rest
            self.operations[number] = Operation(name, argument, begun)
        elif what == "end":
            ended, result = rest
            old = self.operations[number]
            self.operations[number] = Operation(old.kind, old.argument, old.begun, ended, result)
        elif what == "nothing":
            self.operations.pop(number, None)
        elif what == "failed":
            self.failed += 1
        elif what == "wrong":
            self.wrong.append(rest[0])


def judge(crew, final):
    """Every acknowledged change exactly once, in an order that explains every read."""
    if crew.wrong:
        raise Wrong(f"{len(crew.wrong)} operations failed otherwise than by a named reason: {crew.wrong[:3]}")
    operations = list(crew.operations.values())
    appended = {o.argument for o in operations if o.kind == "append" and o.is_sure}
    overwritten = any(o.kind in ("write", "drop") for o in operations)
    lost = appended - set(final)
    if lost and not overwritten:
        raise Wrong(f"acknowledged appends are lost: {sorted(lost)}")
    values = [v for v in final if v]
    if len(values) != len(set(values)):
        raise Wrong(f"a change was made twice: {sorted(final)}")
    now = time.monotonic()
    reads = [o for o in operations if o.kind != "read" or o.is_sure]
    history = [*reads, Operation("read", None, now, now, final)]
    try:
        if not explained(history):
            raise Wrong(f"no order explains what was read: {history}")
    except UndecidedError:
        return "too long to try all orders"
    return "explained"


class Histories:
    """One case: one array, its processes, its kills; then all is judged."""

    def __init__(self, folder, kind):
        self._folder, self._kind = folder, kind
        self._stack = contextlib.ExitStack()
        self._server = None
        if kind != "local":
            made = tempfile.mkdtemp(dir=folder)
            self._server = self._stack.enter_context(getattr(servers, kind)(made))

    def __call__(self, number, rng):
        place, proxy = self._place(number, rng)
        direct = place if proxy is None else Place(place.location, self._server.options)
        repo = direct.open(create=True)
        with intarsia.transaction(repo, message="create") as tx:
            tx.create("a", shape=(0, COLUMNS), chunks=(1, COLUMNS), dtype="int32")
        crew = Crew(place, f"{number}", count=rng.choice((4, 4, 6, 8)))
        crew.run(rng, kills=rng.choice((2, 3, 4)))
        if proxy is not None:
            proxy.close()
        verdict = judge(crew, seen(direct.open()))
        problems = [p for p in intarsia.verify(direct.open()) if p.kind != "leftover"]
        if problems:
            raise Wrong(f"verify finds {problems[:3]}")
        intarsia.expire_and_collect(direct.open(), datetime.timedelta(0), force=True)
        final = seen(direct.open())
        sure = [o for o in crew.operations.values() if o.is_sure]
        return {
            verdict: 1,
            "acknowledged appends": sum(o.kind == "append" for o in sure),
            "other changes": sum(o.kind not in ("append", "read") for o in sure),
            "reads": sum(o.kind == "read" for o in sure),
            "unacknowledged": sum(o.ended == UNKNOWN for o in crew.operations.values()),
            "kills": crew.kills,
            "stops": crew.stops,
            "refused with a reason": crew.failed,
            "faults of the proxy": proxy.faults if proxy is not None else 0,
            "rows at the end": len(final),
        }

    def _place(self, number, rng):
        if self._kind == "local":
            return Place(str(self._folder / f"r{number}-{time.monotonic_ns()}")), None
        proxy = FaultyProxy(self._server.port, rng.random(), share=rng.choice((0.0, 0.01, 0.03)))
        options = {**self._server.options, "endpoint_url": f"http://127.0.0.1:{proxy.port}"}
        return Place(self._server.new_location(), options), proxy


def of(kind):
    return lambda folder, _seed: Histories(folder, kind)


TARGETS = [
    Target("histories", "local disk", of("local"), share=3, patience=900, memory=None, stretch=50),
    Target(
        "histories",
        "S3 (moto) behind a faulty proxy",
        of("moto"),
        share=1,
        patience=900,
        memory=None,
        stretch=20,
    ),
    Target(
        "histories",
        "S3 (SeaweedFS) behind a faulty proxy",
        of("seaweedfs"),
        share=1,
        patience=900,
        memory=None,
        stretch=20,
    ),
]
