"""The processes of a history: what each does, and how they are killed, stopped and replaced.

A process lives on from one history to the next, for it takes longer to start than to do its work; those that
are killed are replaced by new ones.
"""

import contextlib
import datetime
import os
import random
import signal
import time
from multiprocessing.connection import wait

import numpy as np
from tests.archives.files import netcdf
from tests.versions.processes import CONTEXT

import intarsia
from intarsia.codecs import ConditionalCodec
from intarsia.versions.repository import explain_errors
from soak.linear import Operation
from soak.target import Wrong

COLUMNS = 300
CODECS = [[], ["zstd"], ["gzip"], ["crc32c"], [ConditionalCodec(codecs=["zstd"])]]
STEPS = 8
"""Changes and reads of each process in a history."""

KINDS = (
    *("append",) * 10,
    *("read",) * 4,
    *("write",) * 2,
    *("recode", "grow", "drop", "consolidate", "vacuum", "transaction", "restore", "rewrite", "replica"),
    *("refresh", "maintain", "expire"),
)
INGESTING = (*KINDS, *("ingest",) * 2)
"""In some histories, files are ingested beside all that, into a dataset of the same repository."""

EXPECTED = (
    intarsia.errors.RepositoryError,
    intarsia.errors.RepositoryNotFoundError,
    intarsia.errors.ReadError,
    intarsia.errors.ConcurrentUpdateError,
    intarsia.errors.LockTimeoutError,
)
"""What may be said where a server fails or others are faster."""

GONE = (
    intarsia.errors.NoRegionError,
    intarsia.errors.BoundsError,
    intarsia.errors.AlignmentError,
    intarsia.errors.VersionNotFoundError,
    IndexError,
)
"""What is said of rows that others dropped or restored away, or of versions that are no more."""

DAY = datetime.timedelta(days=1)
DATASET = "files"


def seen(repo, rng=None, **version):
    """The value of every row; half of the time only a column is read, as replicas are made for."""
    array = intarsia.open(repo, "a", **version)
    if rng is not None and rng.random() < 0.5:
        return tuple(array[:, rng.randrange(COLUMNS)].tolist())
    values = array[...]
    if not (values == values[:, :1]).all():
        raise Wrong("a row holds several values: half a change is visible")
    return tuple(values[:, 0].tolist())


class NothingThereError(Exception):
    """The operation has nothing to work on yet; it is left out."""


class Doing:
    """What one process does to a repository; `begin` is told the argument before anything happens."""

    def __init__(self, repo, rng, files, begin):
        self.repo, self.rng, self.files, self._begin = repo, rng, files, begin

    def __call__(self, kind, number):
        return getattr(self, f"_{kind}")(number)

    def _retry(self, change):
        intarsia.retry(self.repo, lambda tx: change(tx.open("a")))

    def _some_row(self):
        length = intarsia.open(self.repo, "a").shape[0]
        if not length:
            raise NothingThereError
        return self.rng.randrange(length), length

    @staticmethod
    def _row(number):
        return np.full((1, COLUMNS), number, dtype="int32")

    def _read(self, _number):
        self._begin("read", None)
        return seen(self.repo, self.rng)

    def _append(self, number):
        self._begin("append", number)
        merge = self.rng.random() < 0.5
        intarsia.append(self.repo, "a", self._row(number), codecs=self.rng.choice(CODECS), merge=merge)

    def _transaction(self, number):
        self._begin("append", number)
        with intarsia.transaction(self.repo, message=f"{number}") as tx:
            tx.open("a").append(self._row(number))

    def _write(self, number):
        row, _ = self._some_row()
        self._begin("write", (row, number))
        intarsia.write(self.repo, "a", row, self._row(number)[0])

    def _grow(self, _number):
        self._begin("grow", 1)
        self._retry(lambda array: array.resize((array.shape[0] + 1, COLUMNS)))

    def _drop(self, _number):
        row, _ = self._some_row()
        self._begin("drop", (row, row + 1))
        self._retry(lambda array: array.drop_region([(row, row + 1), (0, COLUMNS)]))

    def _restore(self, _number):
        with explain_errors("the repository"):  # Icechunk is asked here, not intarsia
            versions = [v.id for v in self.repo.ancestry(branch="main")]
        chosen = self.rng.choice(versions[: min(len(versions), 6)])
        try:
            state = seen(self.repo, snapshot_id=chosen)
        except intarsia.errors.NotLogicalArrayError as error:  # before it was created
            raise NothingThereError from error
        self._begin("restore", state)
        intarsia.restore(self.repo, "a", chosen)

    def _recode(self, _number):
        row, length = self._some_row()
        self._begin("recode", None)
        bounds = [(row, length), (0, COLUMNS)]
        intarsia.recode(self.repo, "a", bounds, codecs=self.rng.choice(CODECS))

    def _consolidate(self, _number):
        self._begin("consolidate", None)
        self._retry(lambda array: array.consolidate())

    def _vacuum(self, _number):
        self._begin("vacuum", None)
        intarsia.vacuum(self.repo)

    def _rewrite(self, _number):
        self._begin("rewrite", None)
        try:
            self._retry(lambda array: intarsia.codecs.rewrite(array, "compress_if_smaller"))
        except intarsia.errors.CodecConfigurationError as error:  # no chunk of it has a decision
            raise NothingThereError from error

    def _replica(self, _number):
        _, length = self._some_row()
        self._begin("replica", None)
        bounds = [(0, length), (0, COLUMNS)]
        intarsia.add_replica(self.repo, "a", bounds, chunks=(4, 100), codecs=["zstd"])

    def _refresh(self, _number):
        self._begin("refresh", None)
        self._retry(lambda array: array.refresh_replicas())

    def _maintain(self, _number):
        self._begin("maintain", None)
        intarsia.maintain(self.repo, "a")

    def _expire(self, _number):
        """While others write, only what is older than a day may go."""
        self._begin("expire", None)
        intarsia.vacuum(self.repo, forget_before=DAY)

    def _ingest(self, number):
        netcdf(self.files / f"{number}.nc", number, version="NETCDF3_CLASSIC")
        self._begin("ingest", number)
        intarsia.ingest(self.files / f"{number}.nc", self.repo, group=DATASET, concat_dim="time")


def work(place, seed, first, files, pipe):
    """Operation after operation; tells before and after each."""
    repo, rng = None, random.Random(seed)
    for number in range(first, first + STEPS):

        def begin(name, argument, number=number):
            pipe.send(("begin", number, name, argument, time.monotonic()))

        kind = rng.choice(KINDS if files is None else INGESTING)
        try:
            repo = repo or place.open()
            result = Doing(repo, rng, files, begin)(kind, number)
            pipe.send(("end", number, time.monotonic(), result))
        except (NothingThereError, *GONE):
            pipe.send(("nothing", number))
        except EXPECTED as error:
            pipe.send(("failed", number, f"{type(error).__name__}: {error}"[:300]))
        except Exception as error:
            pipe.send(("wrong", number, f"{kind}: {type(error).__name__}: {error}"[:1500]))
    pipe.send(("done",))


def serve(pipe):
    """A process of the pool: one task after the other, until nobody has the other end."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            work(*pipe.recv(), pipe)


class Pool:
    """Processes that wait for work."""

    def __init__(self):
        self._idle = []

    def take(self):
        if self._idle:
            return self._idle.pop()
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(target=serve, args=(there,), daemon=True)
        process.start()
        there.close()
        return process, here

    def give(self, member):
        self._idle.append(member)


class WriterPool:
    """The processes of one history, and what they said."""

    def __init__(self, pool, place, seed, files):
        self.operations, self.wrong, self.failed, self.kills, self.stops = {}, [], 0, 0, 0
        self._pool, self._place, self._seed, self._files = pool, place, seed, files
        self._first, self._members = 1, {}

    def _start(self):
        process, pipe = self._pool.take()
        pipe.send((self._place, f"{self._seed}-{self._first}", self._first, self._files))
        self._first += STEPS
        self._members[pipe] = process

    def run(self, rng, count, kills):
        """Let so many processes work, and so many of them die in the middle of something."""
        for _ in range(count):
            self._start()
        # Beginnings of operations after which the process is killed.
        doomed = sorted(rng.sample(range(count * STEPS * 3 // 4), kills), reverse=True)
        begun = 0
        while self._members:
            for pipe in wait(list(self._members)):
                while pipe in self._members and (said := self._hear(pipe)):
                    if said[0] == "done":
                        self._pool.give((self._members.pop(pipe), pipe))
                    if said[0] != "begin":
                        continue
                    begun += 1
                    if doomed and begun >= doomed[-1]:
                        doomed.pop()
                        self._kill(pipe, rng.uniform(0, 0.08))
                    elif rng.random() < 0.05:
                        self._stop(pipe, rng.uniform(0, 0.2))

    def _kill(self, pipe, after):
        process = self._members.pop(pipe)
        process.join(after)
        process.kill()
        process.join()
        self.kills += 1
        while self._hear(pipe):
            pass
        pipe.close()
        self._start()

    def _stop(self, pipe, seconds):
        process = self._members[pipe]
        self.stops += 1
        os.kill(process.pid, signal.SIGSTOP)
        process.join(seconds)
        os.kill(process.pid, signal.SIGCONT)

    def _hear(self, pipe):
        """The next word of a process; None if there is none now. One that is gone leaves."""
        try:
            said = pipe.recv() if pipe.poll(0) else None
        except (EOFError, OSError):
            if self._members.pop(pipe, None) is not None:
                self.wrong.append("a process ended by itself")
            return None
        if said:
            self._take(*said)
        return said

    def _take(self, what, number=None, *rest):
        if what == "begin":
            name, argument, begun = rest
            self.operations[number] = Operation(name, argument, begun)
        elif what == "end":
            ended, result = rest
            old = self.operations[number]
            self.operations[number] = Operation(old.kind, old.argument, old.begun, ended, result)
        elif what == "failed":
            self.failed += 1
        elif what == "wrong":
            self.wrong.append(rest[0])
