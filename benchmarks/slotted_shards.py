"""Claim: slots rewrite a chunk >= 10x faster than zarr; shards are compacted as fast as copied and removed.

Filling one shard from four processes is bound by the system, which lets one of them write a file at a time.
Compaction leads readers of the old file astray for 0.2 s, all shards at once, before it replaces them.
"""

import multiprocessing
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

import intarsia
from benchmarks.measure import best_times, headed, numbers, spread, table

MIB = 1 << 20
WRITERS = 4
RAW_TOGETHER = "raw pwrite, one file"  # of which the system lets one process at a time write
CHAINS = {"bytes": [BytesCodec()], "bytes, crc32c": [BytesCodec(), Crc32cCodec()]}


def make(path: Path, nbytes: int, chunk: int, codecs: list, shard: int | None = None) -> zarr.Array:
    serializer = ShardingCodec(chunk_shape=(chunk,), codecs=codecs)
    return zarr.create_array(
        path, shape=nbytes, chunks=shard or nbytes, dtype="u1", serializer=serializer, compressors=None,
        filters=None,
    )  # fmt: skip


def noise(nbytes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 256, nbytes, dtype="u1")


def rewriting(directory: Path) -> str:
    """Single inner chunks of 1 MiB in a shard of 64 MiB."""
    rows = []
    data = noise(MIB)
    for name, codecs in CHAINS.items():
        plain = make(directory / f"plain {name}", 64 * MIB, MIB, codecs)
        plain[:] = noise(64 * MIB)
        slots = intarsia.shards.slotted(make(directory / f"slots {name}", 64 * MIB, MIB, codecs))
        slots[:] = noise(64 * MIB)
        turn = iter(range(10**9))

        def rewrite(array: zarr.Array, turn=turn) -> None:
            chunk = next(turn) % 64
            array[chunk * MIB : (chunk + 1) * MIB] = data

        times = best_times({"zarr": lambda p=plain: rewrite(p), "slots": lambda s=slots: rewrite(s)})
        ratio = times["zarr"] / times["slots"]
        rows.append((name, f"{times['zarr'] * 1e3:.1f} ms", f"{times['slots'] * 1e3:.2f} ms", f"{ratio:.0f}"))
    return table(
        "Rewriting one chunk of 1 MiB in a shard of 64 MiB", rows, ("codecs", "zarr", "slots", "times faster")
    )


def fill(
    me: int, directory: Path, nbytes: int, step: int, jobs: list[str], durable: bool, barrier, times
) -> None:
    """One of the writers: its share of each job, in steps, all writers starting together."""
    share = nbytes // WRITERS
    data = noise(share, me)
    for job in jobs:
        path = directory / job
        array = None if job.startswith("raw") else intarsia.shards.slotted(zarr.open_array(path, mode="r+"))
        together = job.startswith(RAW_TOGETHER)
        barrier.wait()
        start = time.perf_counter()
        if array is None:
            fd = os.open(path if together else f"{path}-{me}", os.O_RDWR | os.O_CREAT)
            first = me * share if together else 0
            if together:
                os.posix_fallocate(fd, first, share)
            for offset in range(0, share, step):
                os.pwrite(fd, data[offset : offset + step], first + offset)
        else:
            fd = -1
            for offset in range(0, share, step):
                first = me * share + offset
                array[first : first + step] = data[offset : offset + step]
        if durable:
            os.fsync(fd) if array is None else intarsia.shards.flush_slots(array)
        times.put((start, time.perf_counter()))
        if array is None:
            os.close(fd)
        barrier.wait()  # all have written
        barrier.wait()  # the files are gone


def filling(directory: Path, nbytes: int, chunk: int, step: int, durable: bool, rounds: int = 6) -> str:
    """Four processes fill one shard; four others write as many bytes to a file each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.slotted_shards"])
    kinds = ["raw pwrite, own files", RAW_TOGETHER, *(f"one shard: {name}" for name in CHAINS)]
    jobs = [f"{kind} {turn}" for turn in range(rounds) for kind in kinds]
    for job in jobs:
        for name, codecs in CHAINS.items():
            if job.startswith(f"one shard: {name} "):
                make(directory / job, nbytes, chunk, codecs)
    barrier, times = context.Barrier(WRITERS + 1), context.Queue()
    writers = [
        context.Process(target=fill, args=(me, directory, nbytes, step, jobs, durable, barrier, times))
        for me in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    best = dict.fromkeys(kinds, float("inf"))
    for job in jobs:
        barrier.wait()
        barrier.wait()
        spans = [times.get() for _ in writers]
        kind = job.rsplit(" ", 1)[0]
        best[kind] = min(best[kind], max(end for _, end in spans) - min(start for start, _ in spans))
        for path in directory.glob(f"{job}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        barrier.wait()
    for writer in writers:
        writer.join()
    rows = [(kind, f"{took * 1e3:.0f} ms", f"{best[kinds[0]] / took:.2f}") for kind, took in best.items()]
    how = "and fsync" if durable else "into the page cache"
    title = f"Four processes write {nbytes // MIB} MiB {how}, {chunk // MIB} MiB a chunk"
    return table(title, rows, ("to", "best", "times the speed of raw files"))


def compaction(directory: Path, rounds: int = 9) -> str:
    """Eight shards of 32 MiB of chunks, and copies of what compaction makes of them."""
    rows = []
    for kind in ("one slot a chunk", "two slots a chunk, half of them in use"):
        rows += _compaction(directory / kind, kind, rounds)
    title = "Compacting eight shards of 32 MiB of chunks, which end on the disk, and copying the results"
    return table(title, rows, ("shards", "what", "best", "times the speed of cp"))


def _compaction(directory: Path, kind: str, rounds: int) -> list[tuple[str, ...]]:
    array = make(directory / "array", 256 * MIB, MIB, CHAINS["bytes, crc32c"], shard=32 * MIB)
    twice = kind.startswith("two")
    slots = intarsia.shards.slotted(array, safe_readers=twice)
    data = noise(256 * MIB)
    slots[:] = data
    if twice:
        slots[: 128 * MIB] = data[: 128 * MIB]
    shards, slotted, compacted, copy = (
        directory / name for name in ("array/c", "slotted", "compacted", "copy")
    )
    copying = ["cp", "-r", "--sparse=always"]
    subprocess.run([*copying, shards, slotted], check=True)
    intarsia.shards.compact(array)
    subprocess.run([*copying, shards, compacted], check=True)
    of, to, old = (shlex.quote(str(path)) for path in (compacted, copy, shards))
    jobs = {
        "cp": f"cp -r {of} {to}",
        "cp, then sync": f"cp -r {of} {to} && sync {to}/*",
        "cp, sync, rm of the old files": f"cp -r {of} {to} && sync {to}/* && rm -r {old}",
        "intarsia.shards.compact": None,
    }
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, command in jobs.items():
            for path in (copy, shards):
                shutil.rmtree(path, ignore_errors=True)
            subprocess.run([*copying, slotted, shards], check=True)
            os.sync()  # nobody pays for what others left to be written
            start = time.perf_counter()
            intarsia.shards.compact(array) if command is None else subprocess.run(
                command, shell=True, check=True
            )
            best[name] = min(best[name], time.perf_counter() - start)
    return [(kind, name, f"{took * 1e3:.0f} ms", f"{best['cp'] / took:.2f}") for name, took in best.items()]


def run() -> str:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        text = "\n".join(
            [
                rewriting(directory),
                filling(directory, 1024 * MIB, 4 * MIB, 256 * MIB, durable=False),
                filling(directory, 1024 * MIB, 4 * MIB, 256 * MIB, durable=True),
                compaction(directory),
            ]
        )
    speed = "times the speed of cp"
    ours, removed = (
        spread(numbers(text, speed, lambda row, name=name: row[1] == name))
        for name in ("intarsia.shards.compact", "cp, sync, rm of the old files")
    )
    heading = (
        f"slots rewrite a chunk {spread(numbers(text, 'times faster'))} times as fast as zarr; shards are "
        f"compacted at {ours} of the speed of cp; cp, sync and rm reach {removed}"
    )
    return headed(heading, text)


if __name__ == "__main__":
    print(run())
