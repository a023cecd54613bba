"""What a read consists of: each part alone, and all of them in a bare loop, in as many threads.

A part that takes most of a read stands in the way of a faster one. The bare loop does what has to be done for
every chunk, one after the other, and nothing else: it knows beforehand which files and bytes it needs. So it
is about as fast as Python can be with the same libraries.
"""

import os
import threading
from functools import lru_cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from zarr.storage import MemoryStore

from benchmarks.measure import table
from intarsia.engine import thread_pool
from intarsia.engine.chunk_codecs import Scratch
from intarsia.engine.config import cores
from intarsia.engine.fetch.store import FileSpan
from intarsia.engine.inner_chunks import WORTH_A_PIECE, chunk_piece
from intarsia.engine.prepared_member import PreparedMember

FILES, DECODING, COPYING = "files", "decoding", "copying"
LOOPS = {"bare loop, 1 thread": 1} | ({f"bare loop, {cores()} threads": cores()} if cores() > 1 else {})

NEAR_DECODING = 1.3
"""How many times as long as decoding alone a full read should take at most."""

SMALL_CHUNK = 256 * 256
"""Elements of chunks that should be read three times as fast as by zarr-python."""

GOALS = {"zarr-python, fused": 3.0, "TensorStore": 1.2, "zarrista": 1.2, DECODING: 1 / NEAR_DECODING}
"""How many times as fast as each a read should be."""


class Piece(NamedTuple):
    """A chunk, and where its values go."""

    path: str
    start: int
    content: Any
    """Its encoded bytes."""
    decoder: Any
    target: tuple[slice, ...]
    inside: tuple[slice, ...] | None
    """What is wanted of it; None means all."""


class Call(NamedTuple):
    """One read: the shape of what is given back, and the chunks by the files that they are in."""

    shape: tuple[int, ...]
    files: list[list[Piece]]


def call_of(array, selection) -> Call:
    """What has to be done to read slices and single indices of an array in files, or in memory."""
    given = selection if isinstance(selection, tuple) else (selection,)
    entries = [slice(entry, entry + 1) if isinstance(entry, int) else entry for entry in given]
    entries += [slice(None)] * (array.ndim - len(entries))
    wanted = [range(n)[entry] for n, entry in zip(array.shape, entries, strict=True)]
    return call_of_members([((0,) * array.ndim, array)], wanted)


def call_of_members(members, wanted) -> Call:
    """The same of arrays that lie side by side, each from an origin on."""
    files: dict[str, list[Piece]] = {}
    for origin, array in members:
        source = PreparedMember.of("", array)
        sides = zip(wanted, origin, source.grid, source.chunk_shape, strict=True)
        for cut in product(*(_cut(*side) for side in sides)):
            index, inside, target = zip(*cut, strict=True)
            whole = all(s == slice(0, n, 1) for s, n in zip(inside, source.chunk_shape, strict=True))
            piece = _found(source, index, target, None if whole else inside)
            files.setdefault(piece.path, []).append(piece)
    return Call(tuple(map(len, wanted)), [sorted(pieces, key=lambda p: p.start) for pieces in files.values()])


def clip(wanted: range, start: int, size: int) -> tuple[slice, slice]:
    """Which of the wanted indices lie in a tile: where in the tile, and where in the output.

    >>> clip(range(0, 20, 3), 4, 4)
    (slice(2, 3, 3), slice(2, 3, None))
    """
    first = max(0, -(-(start - wanted.start) // wanted.step))
    last = min(len(wanted), -(-(start + size - wanted.start) // wanted.step))
    begin = wanted.start + first * wanted.step - start
    return slice(begin, begin + (last - first - 1) * wanted.step + 1, wanted.step), slice(first, last)


def _cut(wanted, origin, count, size):
    """Along one axis: the chunks, with what is wanted of each and where it goes."""
    for number in range(count):
        inside, target = clip(wanted, origin + number * size, size)
        if target.start < target.stop:
            yield number, inside, target


def _found(source, index, target, inside) -> Piece:
    """A chunk, or the piece of it that is enough."""
    per_shard = source.shards.per_shard if source.shards is not None else (1,) * len(index)
    object_index = tuple(i // n for i, n in zip(index, per_shard, strict=True))
    (key,) = source.keys(np.array([np.ravel_multi_index(object_index, source.object_grid)]))
    store, decoder = source.array.store, source.decoder
    if isinstance(store, MemoryStore):
        return Piece(key, 0, store._store_dict[key].to_bytes(), decoder, target, inside)
    path = f"{store.root}/{key}"
    content = _content(path)
    start, nbytes = 0, len(content)
    if source.shards is not None:
        table = content[-16 * prod(per_shard) - 4 : -4]  # pairs of numbers, then a checksum
        pairs = np.frombuffer(table, "<u8").reshape(*per_shard, 2)
        start, nbytes = pairs[tuple(i % n for i, n in zip(index, per_shard, strict=True))].tolist()
    elif decoder.is_raw and inside is not None and nbytes >= WORTH_A_PIECE:
        piece = chunk_piece(inside, decoder.stored_shape)
        if piece is not None:
            itemsize = decoder.stored_dtype.itemsize
            start, nbytes = piece.first * itemsize, piece.size * itemsize
    return Piece(path, start, content[start : start + nbytes], decoder, target, inside)


@lru_cache(maxsize=8)
def _content(path):
    return Path(path).read_bytes()


def all_of(things, do, threads):
    left = iter(things)
    thread_pool.run_in_threads(lambda: next(left, None), do, threads)


class Reads:
    """Reads of the same arrays, done without an engine: `parts` has each part alone, `loops` all together."""

    def __init__(self, calls: list[Call], dtype, threads: int, *, in_memory=False) -> None:
        self._calls, self._dtype, self._threads, self._in_memory = calls, dtype, threads, in_memory
        self._files = [pieces for call in calls for pieces in call.files]
        self._pieces = [piece for pieces in self._files for piece in pieces]
        self._own = threading.local()

    @property
    def parts(self):
        """The jobs that do one thing only, in as many threads as the engine takes."""
        parts = {FILES: self.read_files, DECODING: self._decode, COPYING: self._copy}
        if all(piece.decoder.is_raw for piece in self._pieces):
            del parts[DECODING]
        if all(_is_straight(call) for call in self._calls):
            del parts[COPYING]
        if self._in_memory:
            del parts[FILES]
        return parts

    @property
    def loops(self):
        """The jobs that do all of it; what is one chunk is left to one thread."""
        most = max(sum(map(len, call.files)) for call in self._calls)
        return {
            name: (lambda n=threads: [self._read(call, n) for call in self._calls])
            for name, threads in LOOPS.items()
            if threads <= most
        }

    def _scratch(self):
        if not hasattr(self._own, "scratch"):
            self._own.scratch = Scratch()
        return self._own.scratch

    def read_files(self, threads=None):
        all_of(self._files, _read_file, threads or self._threads)

    def _decode(self):
        all_of(self._pieces, lambda p: p.decoder.values(p.content, self._scratch()), self._threads)

    def _copy(self):
        for call in self._calls:
            out = np.empty(call.shape, self._dtype)

            def copy(piece, out=out):
                decoder = piece.decoder
                memory = self._scratch().bytes_for(decoder.nbytes)
                values = memory.view(decoder.stored_dtype).reshape(decoder.stored_shape)
                out[piece.target] = values if piece.inside is None else values[piece.inside]

            all_of([piece for pieces in call.files for piece in pieces], copy, self._threads)

    def _read(self, call, threads):
        out = np.empty(call.shape, self._dtype)

        def place(piece, encoded):
            piece.decoder.place(encoded, out, piece.target, piece.inside, self._scratch())

        def read(pieces):
            if self._in_memory:
                place(pieces[0], pieces[0].content)
                return
            file = os.open(pieces[0].path, os.O_RDONLY)
            if len(pieces) > 1 or not pieces[0].decoder.is_raw:
                content, first = _bytes_of(file, pieces), pieces[0].start
                os.close(file)
                for piece in pieces:
                    at = piece.start - first
                    place(piece, content if len(pieces) == 1 else content[at : at + len(piece.content)])
            else:  # right to its place
                place(pieces[0], FileSpan(file, pieces[0].start, len(pieces[0].content)))
                os.close(file)

        files = call.files if len(call.files) >= threads else _parted(call.files, threads)
        all_of(files, read, threads)
        return out


def _is_straight(call):
    """Whether a read is one whole chunk, which is decoded right into what is given back."""
    return len(call.files) == 1 and len(call.files[0]) == 1 and call.files[0][0].inside is None


def _parted(files, count):
    """The chunks of each file in so many groups."""
    return [
        group
        for pieces in files
        for at in range(count)
        if (group := pieces[at * len(pieces) // count : (at + 1) * len(pieces) // count])
    ]


def _bytes_of(file, pieces):
    first, last = pieces[0].start, pieces[-1].start + len(pieces[-1].content)
    return os.pread(file, last - first, first)


def _read_file(pieces):
    file = os.open(pieces[0].path, os.O_RDONLY)
    _bytes_of(file, pieces)
    os.close(file)


LIMITS = (
    "threads", "intarsia", "files alone", "decoding alone", "copying alone", *LOOPS,
    *(f"{name} / {factor:g}" for name, factor in GOALS.items() if name != DECODING),
    f"decoding x {NEAR_DECODING}", "missed", "missed by the bare loop, too", "who is faster, and why",
)  # fmt: skip
"""What the table of limits says of a read, after its name."""

VERDICTS = {
    "missed", "missed by the bare loop, too", "who is faster, and why", "who is faster",
    "than the bare loop, too",
}  # fmt: skip
"""Columns that say much by being empty."""


def limits_table(rows, header, of=""):
    """A table of what stands in the way, without columns in which nothing was measured."""
    kept = [i for i, name in enumerate(header) if name in VERDICTS or any(row[i] for row in rows)]
    title = f"What stands in the way{of}, ms by the clock (and of the processor)"
    return table(title, [tuple(row[i] for i in kept) for row in rows], tuple(header[i] for i in kept))


def limits(costs, threads, *, elements, full=False):
    """The cells of a row of limits: of a read of chunks of so many elements."""
    goals = {name: costs[name].over(factor) for name, factor in GOALS.items() if name in costs}
    if elements > SMALL_CHUNK:
        goals.pop("zarr-python, fused", None)
    if not full:
        goals.pop(DECODING, None)
    cells = [costs.get(name) for name in ("intarsia", FILES, DECODING, COPYING, *LOOPS)]
    cells += [goals.get(name) for name in GOALS]
    return str(threads), *map(milliseconds, cells), *missed(costs, goals), why_slower(costs)


def milliseconds(cost):
    """By the clock, and in brackets those of the processor; nothing where nothing was measured."""
    if cost is None:
        return ""
    clock, processor = (f"{seconds * 1e3:.{2 if cost.clock < 1e-3 else 1}f}" for seconds in cost)
    return f"{clock} ({processor})"


def why_slower(costs):
    """Who reads faster than we do, each with the first of three reasons that its numbers bear out."""
    ours, reasons = costs["intarsia"], []
    alone = [costs[part].clock for part in (FILES, DECODING, COPYING) if part in costs]
    for name in ("TensorStore", "zarrista"):
        if name not in costs or costs[name].clock >= ours.clock:
            continue
        if costs[name].processor >= ours.processor:
            more = costs[name].processor / ours.processor
            reasons.append(f"{name}: by more cores, with {more:.2f} times the processor time of ours")
        elif sum(alone) >= costs[name].clock:
            reasons.append(f"{name}: what others do for us takes {sum(alone) * 1e3:.3g} ms alone")
        else:
            rest = (ours.clock - sum(alone)) * 1e3
            reasons.append(f"{name}: Python takes {rest:.2g} ms beside files, decoding and copying")
    return "; ".join(reasons)


def missed(costs, goals, measure="clock"):
    """Whose goals were missed, and which of these the faster of the bare loops misses as well."""
    ours = getattr(costs["intarsia"], measure)
    best = min(getattr(costs[name], measure) for name in LOOPS if name in costs)
    those = {name: at for name, goal in goals.items() if (at := getattr(goal, measure)) < ours}
    return "; ".join(those), "; ".join(name for name, goal in those.items() if goal < best)
