"""Processes that write, read and die, and the work they do: what the tests of slotted shards share."""

import os
import random
import traceback
from contextlib import contextmanager

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

import intarsia
from intarsia.shards.handle import ShardedArray
from tests.versions.processes import CONTEXT

CHECKED = (BytesCodec(), Crc32cCodec())
BARE = (BytesCodec(),)


def make_array(
    directory, *, shape, chunks, shards, codecs=CHECKED, index_codecs=CHECKED, location="end", **more,
):  # fmt: skip
    """A sharded array in a local directory."""
    serializer = ShardingCodec(
        chunk_shape=chunks, codecs=codecs, index_codecs=index_codecs, index_location=location
    )
    return zarr.create_array(
        store=str(directory), shape=shape, chunks=shards, serializer=serializer, compressors=None,
        **({"dtype": "int32"} | more),
    )  # fmt: skip


@contextmanager
def crew(*tasks):
    """Start a process for each (function, arguments); stop those that still run at the end."""
    members = [Member(function, arguments) for function, *arguments in tasks]
    try:
        yield members
    finally:
        for member in members:
            member.end()


class Member:
    """One process of a crew."""

    def __init__(self, function, arguments):
        self.inbox, outbox = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(target=_perform, args=(outbox, function, arguments), daemon=True)
        self.process.start()
        outbox.close()

    def result(self):
        """What the function returned; its exception is raised here."""
        kind, value = self.inbox.recv()
        self.process.join()
        if kind == "error":
            raise AssertionError(f"a process failed:\n{value}")
        return value

    def kill(self):
        """SIGKILL, if it still runs; its number may be another process's by now if it does not."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()

    def end(self):
        """Whatever it does, it is over."""
        self.kill()
        self.process.close()
        self.inbox.close()


def _perform(outbox, function, arguments):
    try:
        outbox.send(("done", function(*arguments)))
    except BaseException:
        outbox.send(("error", traceback.format_exc()))


def handle(path, options, mode="r+"):
    """The array at `path`, slotted with `options`, or plain if they are None."""
    array = zarr.open_array(path, mode=mode)
    return array if options is None else intarsia.shards.slotted(array, **options)


def chunk_slice(array, chunk):
    """The part of a one-dimensional array that one inner chunk holds."""
    size = array.chunks[0]
    return slice(chunk * size, (chunk + 1) * size)


def operations(seed, member, members, chunks, size, rounds):
    """What one member of a crew writes: for each round a list of (start, stop, value) in its own chunks."""
    rng = random.Random(f"{seed}-{member}")
    own = list(range(member, chunks, members))
    plan = []
    for turn in range(rounds):
        rng.shuffle(own)
        steps = []
        for chunk in own:
            start, stop = chunk * size, (chunk + 1) * size
            value = turn * chunks + chunk + 1
            kind = rng.choice(("whole", "whole", "part", "part", "erase"))
            if kind == "part":
                start += rng.randrange(size // 2)
                stop -= rng.randrange(size // 2)
            steps.append((start, stop, 0 if kind == "erase" else value))
        plan.append(steps)
    return plan


def write_rounds(path, options, plan, barrier):
    """Carry out a plan of `operations`, all members of the crew beginning each round together."""
    array = handle(path, options)
    for steps in plan:
        barrier.wait()
        for start, stop, value in steps:
            array[start:stop] = np.full(stop - start, value, dtype=array.dtype)
        barrier.wait()  # everybody has written
        barrier.wait()  # everything has been looked at


def decide_by_index(codec, chunk_index):
    """A decision of a user's: chunk by chunk."""
    return sum(chunk_index) % 2 == 0


def write_boxes(array, own, turns, barrier):
    """Write whole chunks and parts of chunks of an array with two axes, given by their index."""
    high, wide = ShardedArray(array).chunk_spec.shape
    barrier.wait()
    for turn in range(turns):
        for row, column in own:
            y, x = row * high, column * wide
            array[y : y + high, x : x + wide] = turn
            array[y : y + high - 1, x + 1 : x + wide] = 1000 * row + column


def boxes_written(shape, high, wide, turns):
    """What a crew that shares all chunks leaves behind."""
    expected = np.full(shape, turns - 1, dtype="int32")
    for y, x in np.ndindex(shape):
        if y % high < high - 1 and x % wide:
            expected[y, x] = 1000 * (y // high) + x // wide
    return expected


def count_up(path, options, own, stop):
    """Write ever higher numbers into chunks, until told to stop; returns the last number of each chunk."""
    array = handle(path, options)
    last = dict.fromkeys(own, 0)
    turn = 0
    while not stop.is_set():
        turn += 1
        for chunk in own:
            part = chunk_slice(array, chunk)
            array[part] = np.full(part.stop - part.start, chunk << 20 | turn, dtype=array.dtype)
            last[chunk] = turn
    return last


def watch(path, options, chunks, seed, stop, loud_is_fine):
    """Read chunks at random until told to stop; every one must be of one piece, its own, and never older.

    Returns how many reads went well and how many failed.
    """
    array = handle(path, options, "r")
    rng = random.Random(seed)
    newest = dict.fromkeys(range(chunks), 0)
    good = loud = 0
    while not stop.is_set():
        chunk = rng.randrange(chunks)
        try:
            values = array[chunk_slice(array, chunk)]
        except Exception:
            if not loud_is_fine:
                raise
            loud += 1
            continue
        first = int(values[0])
        assert (values == first).all(), f"chunk {chunk} holds {np.unique(values)}"
        if first:
            assert first >> 20 == chunk, f"chunk {chunk} holds the value of chunk {first >> 20}"
            turn = first & 0xFFFFF
            assert turn >= newest[chunk], f"chunk {chunk} went back from {newest[chunk]} to {turn}"
            newest[chunk] = turn
        else:
            assert newest[chunk] == 0, f"chunk {chunk} vanished after {newest[chunk]}"
        good += 1
    return good, loud


def write_for_ever(path, options, seed, chunks, outbox):
    """Write random numbers into random chunks, telling before and after; meant to be killed."""
    array = handle(path, options)
    rng = random.Random(seed)
    while True:
        first = rng.randrange(chunks)
        last = min(chunks, first + rng.choice((1, 1, 2)))
        value = rng.randrange(1, 1 << 30)
        outbox.send(("begin", list(range(first, last)), value))
        start, stop = chunk_slice(array, first).start, chunk_slice(array, last - 1).stop
        array[start:stop] = np.full(stop - start, value, dtype=array.dtype)
        outbox.send(("end", list(range(first, last)), value))


def rebuild_for_ever(path, outbox):
    """Compact and reslot an array in turn; meant to be killed."""
    array = zarr.open_array(path, mode="r+")
    while True:
        intarsia.shards.compact(array)
        outbox.send("compacted")
        intarsia.shards.reslot(array)
        outbox.send("slotted")


FATAL_CALLS = (
    "pwritev", "posix_fallocate", "ftruncate", "link", "replace", "unlink", "fsync", "fdatasync",
    "setxattr",
)  # fmt: skip


def die_at(fatal, share, function, *arguments):
    """Run a function in a process that is gone at the `fatal`-th call that changes a file.

    Of a write, `share` of the bytes still arrive. Nothing is cleaned up, as when the process is killed.
    Returns what `function` returns if there are fewer such calls.
    """
    calls = 0

    def deadly(call):
        def fated(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == fatal:
                if call is real_pwritev:
                    fd, buffers, offset = args
                    data = b"".join(bytes(buffer) for buffer in buffers)
                    end = offset + int(len(data) * share)
                    # The kernel stops between pages; so never inside 16 aligned bytes.
                    end -= end % 16 if share < 1 else 0
                    os.pwrite(fd, data[: max(0, end - offset)], offset)
                os._exit(DIED)
            return call(*args, **kwargs)

        return fated

    real_pwritev = os.pwritev
    for name in FATAL_CALLS:
        setattr(os, name, deadly(getattr(os, name)))
    return function(*arguments)


DIED = 77


def assign(path, options, start, stop, value):
    """One assignment."""
    array = handle(path, options)
    array[start:stop] = np.full(stop - start, value, dtype=array.dtype)


def compact_array(path):
    """Compact, returning nothing."""
    intarsia.shards.compact(zarr.open_array(path, mode="r+"))


def reslot_array(path, options):
    """Reslot, returning nothing."""
    intarsia.shards.reslot(zarr.open_array(path, mode="r+"), **options)
