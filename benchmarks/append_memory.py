"""Claim: a process that appends takes as much memory as Icechunk does for the same commits.

Every append is one commit. The same commits, key by key, are then made by Icechunk alone, in another process.
Icechunk keeps the snapshots that it has read or written, up to `num_snapshot_nodes` groups and arrays in all
of them together; the default is 500,000. So memory grows with the number of commits times the number of
members, until this cache is full.
"""

import asyncio
import itertools
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zarr.core.buffer import default_buffer_prototype

import intarsia
from benchmarks.measure import headed, numbers, table
from benchmarks.mosaic import folder

COMMITS = 1_400
FIRST = 20
"""After so many commits everything has been imported, and memory is first measured."""

DEFAULT_NODES, FEW_NODES = 500_000, 10_000

MEASURE = """
import ctypes, gc, pickle, sys
from pathlib import Path
import icechunk, numpy as np, zarr, intarsia

way, place, commits, first, regions, nodes = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
config = icechunk.RepositoryConfig(caching=icechunk.CachingConfig(num_snapshot_nodes=nodes))

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

def trimmed():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident()

def by_intarsia(repo):
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("a", shape=(0, 16), chunks=(4, 16), dtype="f8")
    yield
    for i in range(1, commits):
        merge = regions == 1 or i % (commits // regions) != 1
        intarsia.append(repo, "a", np.ones((1, 16)), merge=merge, codecs=["zstd"])
        yield

def by_icechunk(repo):
    with (place / "commits").open("rb") as file:
        for _ in range(commits):
            message, metadata, changes = pickle.load(file)
            session = repo.writable_session("main")
            zarr.core.sync.sync(put(session.store, changes))
            session.commit(message, metadata)
            yield

async def put(store, changes):
    for key, value in changes:
        await store.set(key, zarr.core.buffer.cpu.Buffer.from_bytes(value))

repo = intarsia.open_repository(place / way, create=True, config=config)
made = by_intarsia(repo) if way == "intarsia" else by_icechunk(repo)
for _ in range(first):
    next(made)
before = resident()
for _ in made:
    pass
sizes = [resident(), trimmed()]
del repo, made
print(*(size - before for size in (*sizes, trimmed())))
"""


def commits_of(place: Path) -> Iterator[tuple[str, Any, list[tuple[str, bytes]]]]:
    """What every commit of a repository stored: message, metadata, and the bytes of every key."""
    repo = intarsia.open_repository(place)
    snapshots = [*repo.ancestry(branch="main")][::-1]
    for before, after in itertools.pairwise(snapshots):
        diff = repo.diff(from_snapshot_id=before.id, to_snapshot_id=after.id)
        assert not diff.deleted_arrays | diff.deleted_groups
        nodes = (diff.new_groups, diff.updated_groups, diff.new_arrays, diff.updated_arrays)
        keys = [f"{path}/zarr.json".strip("/") for paths in nodes for path in paths]
        for path, chunks in diff.updated_chunks.items():
            keys += ["/".join([path.strip("/"), "c", *map(str, index)]) for index in chunks]
        store = repo.readonly_session(snapshot_id=after.id).store
        yield after.message, after.metadata, asyncio.run(_values(store, keys))


async def _values(store: Any, keys: list[str]) -> list[tuple[str, bytes]]:
    values = [(await store.get(key, default_buffer_prototype())).to_bytes() for key in keys]
    return list(zip(keys, values, strict=True))


def run() -> str:
    rows = []
    for regions in (1, COMMITS // 2):
        for nodes in (DEFAULT_NODES, FEW_NODES):
            with folder() as place:
                for way in ("intarsia", "Icechunk"):
                    arguments = [way, place, COMMITS, FIRST, regions, nodes]
                    program = [sys.executable, "-c", MEASURE, *map(str, arguments)]
                    done = subprocess.run(program, capture_output=True, text=True, check=True)
                    sizes = (f"{float(size):.0f} MiB" for size in done.stdout.split())
                    rows.append((f"{regions:,}", f"{nodes:,}", way, *sizes))
                    if way == "intarsia":
                        with (place / "commits").open("wb") as file:
                            for commit in commits_of(place / way):
                                pickle.dump(commit, file)
    columns = "regions", "num_snapshot_nodes", "commits by", "memory", "after malloc_trim", "handle dropped"
    text = table(f"Growth of a process from commit {FIRST} to commit {COMMITS:,}", rows, columns)
    ours = numbers(text, "memory", lambda row: row[2] == "intarsia")
    theirs = numbers(text, "memory", lambda row: row[2] == "Icechunk")
    most = max(own / other for own, other in zip(ours, theirs, strict=True))
    return headed(f"a process that appends takes at most {most:.1f} times the memory of Icechunk alone", text)


if __name__ == "__main__":
    print(run())
