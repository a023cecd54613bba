"""Histories: processes that change one array in every way there is, and read it, all at the same time.

They append, write, recode, rewrite, resize, drop, restore, consolidate, vacuum, replicate, maintain, expire
and ingest, on local disk and on S3 behind a proxy that loses and garbles, while they are killed and stopped,
and on local disk while the clock of all of them jumps. A model judges what they saw.
"""

import contextlib
import datetime
import random
import tempfile
import threading
import time
from pathlib import Path

import zarr
from tests import servers
from tests.versions.places import Place

import intarsia
from soak import shim
from soak.crew import COLUMNS, DATASET, Pool, WriterPool, seen
from soak.faulty_proxy import FaultyProxy
from soak.linear import UNKNOWN, Operation, UndecidedError, explained
from soak.target import Target, Wrong


def judge(crew, final):
    """Every acknowledged change exactly once, in an order that explains every read."""
    if crew.wrong:
        raise Wrong(f"{len(crew.wrong)} operations failed otherwise than by a named reason: {crew.wrong[:3]}")
    operations = list(crew.operations.values())
    appended = {o.argument for o in operations if o.kind == "append" and o.is_sure}
    overwritten = any(o.kind in ("write", "drop", "restore") for o in operations)
    lost = appended - set(final)
    if lost and not overwritten:
        raise Wrong(f"acknowledged appends are lost: {sorted(lost)}")
    values = [v for v in final if v]
    if len(values) != len(set(values)):
        raise Wrong(f"a change was made twice: {sorted(final)}")
    now = time.monotonic()
    history = [o for o in operations if o.kind != "read" or o.is_sure]
    try:
        if not explained([*history, Operation("read", None, now, now, final)]):
            raise Wrong(f"no order explains what was read: {history}, at the end {final}")
    except UndecidedError:
        return "too long to try all orders"
    return "explained"


def judge_files(crew, repo):
    """Every file whose ingest was acknowledged is there, none twice, and none that nobody ingested."""
    ingests = [o for o in crew.operations.values() if o.kind == "ingest"]
    if not ingests:
        return
    try:
        store = repo.readonly_session("main").store
        days = zarr.open_array(store, path=f"{DATASET}/time", mode="r")[...].astype(int).tolist()
    except FileNotFoundError:
        days = []
    if len(days) != len(set(days)):
        raise Wrong(f"a file was ingested twice: {sorted(days)}")
    if lost := {o.argument for o in ingests if o.is_sure} - set(days):
        raise Wrong(f"acknowledged files are lost: {sorted(lost)}, there are {sorted(days)}")
    if more := set(days) - {o.argument for o in ingests}:
        raise Wrong(f"nobody ingested {sorted(more)}")


FORWARDS, BACK = (1, 3, 20), (1, 5, 60, 100_000)
FAR = (3_600, 3 * 86_400, 400 * 86_400)
"""Seconds by which clocks jump.

Icechunk refuses commits by a clock that is minutes from that of the storage, but not that versions are
forgotten; after that it refuses everything by clocks that are right, until the time has come.
"""


class Clock:
    """Moves the clock of all processes, again and again; in the end it is ahead of all that it ever said.

    In one history of five also by days: if versions are forgotten meanwhile, most of what it asks for
    afterwards is refused, after many tries.
    """

    def __init__(self, folder, rng):
        self._shim, self._rng, self._end = shim.Shim(folder), rng, threading.Event()
        self._far = FAR if rng.random() < 0.2 else FORWARDS
        self.jumps = self._steady = self._furthest = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._end.wait(self._rng.uniform(0, 0.5)):
            self.jumps += 1
            kind = self._rng.random()
            if kind < 0.6:
                self._steady += self._rng.choice(FORWARDS)
                self._set(self._steady)
            else:
                self._set(
                    self._steady - self._rng.choice(BACK)
                    if kind < 0.95
                    else self._steady + self._rng.choice(self._far)
                )
        self._set(self._furthest + 1)

    def _set(self, seconds):
        self._furthest = max(self._furthest, seconds)
        self._shim.set_clock(seconds)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


class Histories:
    """One case: one array, its processes, its kills; then all is judged."""

    def __init__(self, folder, kind):
        self._folder, self._kind, self._pool = folder, kind, Pool()
        self._jumps = kind == "jumping"
        self._stack = contextlib.ExitStack()
        self._server = None
        if kind not in ("local", "jumping"):
            made = tempfile.mkdtemp(dir=folder)
            self._server = self._stack.enter_context(getattr(servers, kind)(made))

    def __call__(self, number, rng):
        place, proxy = self._place(number, rng)
        if self._jumps:
            shim.Shim(self._folder).set_clock(0)
        direct = place if proxy is None else Place(place.location, self._server.options)
        repo = direct.open(create=True)
        with intarsia.transaction(repo, message="create") as tx:
            array = tx.create("a", shape=(0, COLUMNS), chunks=(1, COLUMNS), dtype="int32")
            if rng.random() < 0.5:
                array.set_policy(replica={"chunks": (4, 100), "after": "2 chunks"})
        with tempfile.TemporaryDirectory(dir=self._folder) as files:
            ingesting = Path(files) if rng.random() < 0.2 else None
            crew = WriterPool(self._pool, place, f"{number}", ingesting)
            clock = (
                Clock(self._folder, random.Random(rng.random())) if self._jumps else contextlib.nullcontext()
            )
            with clock:
                crew.run(rng, rng.choice((4, 4, 6, 8, 16)), kills=rng.choice((2, 3, 4)))
            if rng.random() < 0.3:  # nobody writes now: all old versions may go
                intarsia.vacuum(direct.open(), forget_before=datetime.timedelta(0), force=True)
            crew.run(rng, 4, kills=1)
        if proxy is not None:
            proxy.close()
        repo = direct.open()
        verdict = judge(crew, seen(repo))
        judge_files(crew, repo)
        problems = [p for p in intarsia.verify(repo, "a", deep=True) if p.kind != "leftover"]
        if problems:
            raise Wrong(f"verify finds {problems[:3]}")
        before = seen(repo)
        intarsia.vacuum(repo, forget_before=datetime.timedelta(0), force=True)
        if (final := seen(direct.open())) != before:
            raise Wrong(f"collecting changed {before} to {final}")
        return self._told(crew, verdict, proxy) | {"jumps of clocks": clock.jumps if self._jumps else 0}

    @staticmethod
    def _told(crew, verdict, proxy):
        sure = [o for o in crew.operations.values() if o.is_sure]
        return {
            verdict: 1,
            "acknowledged appends": sum(o.kind == "append" for o in sure),
            "reads": sum(o.kind == "read" for o in sure),
            **{name: sum(o.kind == kind for o in sure) for kind, name in OTHERS.items()},
            "unacknowledged": sum(o.ended == UNKNOWN for o in crew.operations.values()),
            "kills": crew.kills,
            "stops": crew.stops,
            "refused with a reason": crew.failed,
            "faults of the proxy": proxy.faults if proxy is not None else 0,
        }

    def _place(self, number, rng):
        if self._server is None:
            return Place(str(self._folder / f"r{number}-{time.monotonic_ns()}")), None
        proxy = FaultyProxy(self._server.port, rng.random(), share=rng.choice((0.0, 0.01, 0.03)))
        options = {**self._server.options, "endpoint_url": f"http://127.0.0.1:{proxy.port}"}
        return Place(self._server.new_location(), options), proxy


OTHERS = {
    **{kind: f"{kind}s" for kind in ("write", "grow", "drop", "restore", "recode", "consolidate", "vacuum")},
    **{kind: f"{kind}s" for kind in ("rewrite", "replica", "maintain", "expire", "ingest")},
    "refresh": "refreshes",
}


def of(kind):
    return lambda folder, _seed: Histories(folder, kind)


TARGETS = [
    Target(
        "histories", "local disk", of("local"), share=3, seconds=10, patience=900, memory=None, stretch=50
    ),
    Target(
        "histories",
        "local disk, clocks that jump",
        of("jumping"),
        share=1,
        seconds=15,
        patience=900,
        memory=None,
        stretch=20,
        environment=shim.environment,
        needs=shim.missing,
    ),
    Target(
        "histories",
        "S3 (moto) behind a faulty proxy",
        of("moto"),
        share=1,
        seconds=25,
        patience=900,
        memory=None,
        stretch=20,
    ),
    Target(
        "histories",
        "S3 (SeaweedFS) behind a faulty proxy",
        of("seaweedfs"),
        share=1,
        seconds=10,
        patience=900,
        memory=None,
        stretch=20,
    ),
]
