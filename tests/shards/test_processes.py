"""Many processes on one shard: what they write, what others read, and what is left when one is killed.

The small numbers here run always; `make torture` runs the large ones.
"""

import contextlib
import itertools
import random
import time

import numpy as np
import pytest
import tensorstore
import zarr
from zarr.codecs import Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec

import intarsia
from intarsia.nullable import optional_dtype
from tests.conftest import OUR_PIPELINES, PIPELINES
from tests.shards import fleet

CHUNKS, SIZE = 64, 256
OTHERS = ("zarrs", "tensorstore")

KINDS = {
    "checked chunks": {"codecs": fleet.CHECKED, "index_codecs": fleet.CHECKED},
    "bare chunks": {"codecs": fleet.BARE, "index_codecs": fleet.CHECKED},
    "bare index": {"codecs": fleet.CHECKED, "index_codecs": fleet.BARE},
    "nothing checked, index first": {
        "codecs": fleet.BARE, "index_codecs": fleet.BARE, "location": "start",
    },
}  # fmt: skip


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    """What the shards of an array look like."""
    return KINDS[request.param]


@pytest.fixture(
    params=[
        pytest.param(
            name,
            marks=[] if name in ("checked chunks", "nothing checked, index first") else pytest.mark.torture,
        )
        for name in sorted(KINDS)
    ]
)
def any_kind(request):
    """The same; two of them that have nothing in common, unless it is torture."""
    return KINDS[request.param]


def readers(path, others=OTHERS):
    """The array as zarr's two pipelines read it, and `others` that know its codecs."""
    pipelines = {name: PIPELINES[name] for name in ("zarr's batched", "zarr's fused")}
    if "zarrs" in others:
        pipelines["zarrs"] = "zarrs.ZarrsCodecPipeline"
    for name, pipeline in pipelines.items():
        with zarr.config.set({"codec_pipeline.path": pipeline}):
            yield name, zarr.open_array(path, mode="r")[...]
    if "tensorstore" in others:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
        yield "tensorstore", tensorstore.open(spec).result().read().result()


def write_together(path, options, members, rounds, seed):
    """Let a crew write for some rounds; after each, the values that everybody reads must be the expected."""
    plans = [fleet.operations(seed, i, members, CHUNKS, SIZE, rounds) for i in range(members)]
    barrier = fleet.CONTEXT.Barrier(members + 1)
    expected = np.zeros(CHUNKS * SIZE, dtype="int32")
    wrong = {}
    with fleet.crew(*((fleet.write_rounds, path, options, plan, barrier) for plan in plans)) as crew:
        for turn in range(rounds):
            barrier.wait()
            for plan in plans:
                for start, stop, value in plan[turn]:
                    expected[start:stop] = value
            barrier.wait()
            for name, values in readers(path):
                differs = (values != expected).reshape(CHUNKS, SIZE).any(axis=1)
                if differs.any():
                    wrong[name, turn] = np.flatnonzero(differs).tolist()
            barrier.wait()
        for member in crew:
            member.result()
    return wrong


@pytest.mark.parametrize(
    ("members", "rounds"),
    [
        (4, 2),
        pytest.param(2, 20, marks=pytest.mark.torture),
        pytest.param(4, 20, marks=pytest.mark.torture),
        pytest.param(8, 20, marks=pytest.mark.torture),
    ],
)
def test_processes_that_write_different_chunks_of_one_shard_lose_nothing(tmp_path, kind, members, rounds):
    fleet.make_array(tmp_path, shape=CHUNKS * SIZE, chunks=SIZE, shards=CHUNKS * SIZE, **kind)
    assert write_together(str(tmp_path), {}, members, rounds, seed=1) == {}


def test_the_same_processes_with_plain_zarr_lose_chunks(tmp_path):
    """Shows that the test above can fail."""
    fleet.make_array(tmp_path, shape=CHUNKS * SIZE, chunks=SIZE, shards=CHUNKS * SIZE)
    assert write_together(str(tmp_path), None, members=4, rounds=2, seed=1)


MANY = intarsia.codecs.ConditionalCodec(
    codecs=[
        intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec()], decision=fleet.decide_by_index),
        Crc32cCodec(),
    ],
    decision=fleet.decide_by_index,
)
TURNED = TransposeCodec(order=(1, 0))
NESTED = ShardingCodec(chunk_shape=(2, 2), codecs=fleet.CHECKED)
NULLABLE = intarsia.nullable.NullableCodec(data_codecs=[*fleet.BARE, MANY])
RAW = intarsia.nullable.NullableCodec(
    data_codecs=[*fleet.BARE, intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec()], header_bits=16)]
)
SHARDS = {
    "transposed chunks": ({"codecs": (TURNED, *fleet.CHECKED)}, OTHERS),
    "nested shards": ({"codecs": (NESTED,)}, OTHERS),
    "nested shards, transposed": ({"codecs": (TURNED, NESTED)}, ("zarrs", "tensorstore")),
    "conditional in conditional": ({"codecs": (*fleet.BARE, MANY)}, ()),
    "nullable": ({"codecs": (NULLABLE,), "dtype": optional_dtype("int32")}, ()),
    "nullable, transposed, nested": (
        {
            "codecs": (ShardingCodec(chunk_shape=(2, 4), codecs=(TURNED, RAW)), *fleet.CHECKED[1:]),
            "dtype": optional_dtype("int32"),
        },
        (),
    ),
}


# Each with one pipeline of ours; with the other one it is torture.
SHARDS_AND_PIPELINES = [
    pytest.param(what, pipeline, marks=[pytest.mark.torture] * ((i + j) % 2))
    for i, what in enumerate(SHARDS)
    for j, pipeline in enumerate(sorted(OUR_PIPELINES))
]


@pytest.mark.parametrize(("what", "our_pipeline"), SHARDS_AND_PIPELINES, indirect=["our_pipeline"])
@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_processes_share_every_kind_of_shard_with_bounded_chunks(tmp_path, what, our_pipeline):
    kind, others = SHARDS[what]
    array = fleet.make_array(tmp_path, shape=(16, 32), chunks=(4, 8), shards=(16, 16), **kind)
    slots = intarsia.shards.slotted(array)
    everything = list(np.ndindex(4, 4))
    barrier = fleet.CONTEXT.Barrier(4)
    with fleet.crew(*((fleet.write_boxes, slots, everything[i::4], 3, barrier) for i in range(4))) as crew:
        for member in crew:
            member.result()
    expected = fleet.boxes_written((16, 32), 4, 8, turns=3)

    def check(*, slotted):
        for name, values in (("slots", slots[...]), *readers(tmp_path, others)):
            assert np.array_equal(getattr(values, "values", values), expected), name
        stats = intarsia.shards.slot_stats(array)
        assert (stats.shards, stats.slotted, stats.slots_used) == (2, slotted, 8 * slotted)
        assert intarsia.verify(array) == ()

    check(slotted=2)
    intarsia.shards.compact(slots)
    check(slotted=0)
    assert intarsia.shards.reslot(slots) == 2
    check(slotted=2)
    if not others:
        intarsia.shards.compact(array, decision="compress_if_smaller")
        check(slotted=0)
    slots[3, 5] = expected[3, 5] = 77  # makes slots again where compaction took them
    slots[9:, 20:] = expected[9:, 20:] = 78
    check(slotted=2)


def after_a_kill(path, options, settled, in_flight):
    """Look at everything after a kill; returns the values, None for chunks that fail to be read."""
    found = {}
    slots, plain = fleet.handle(path, options, "r"), fleet.handle(path, None, "r")
    for chunk, old in settled.items():
        allowed = (old, in_flight.get(chunk, old))
        found[chunk] = value_of(slots, chunk, allowed, may_fail=chunk in in_flight)
        shard = f"c/{chunk // 4} "
        stale = any(shard in f"{problem.where} " for problem in intarsia.verify(plain, data=False))
        value_of(plain, chunk, allowed, may_fail=stale or chunk in in_flight)
    return found


def value_of(array, chunk, allowed, *, may_fail):
    """The value of a chunk, which must be one of those allowed, and the same everywhere; None if it fails."""
    try:
        values = array[fleet.chunk_slice(array, chunk)]
    except Exception:
        if not may_fail:
            raise
        return None
    assert (values == values[0]).all(), f"chunk {chunk} is torn: {np.unique(values)}"
    assert int(values[0]) in allowed, f"chunk {chunk}"
    return int(values[0])


@pytest.mark.parametrize("safe_readers", [True, False])
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.torture)])
def test_a_killed_writer_leaves_old_or_new_values_or_loud_errors(tmp_path, any_kind, kills, safe_readers):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    chunks, size = 12, 1 << 17  # half a megabyte each, so that a write takes a while; 4 chunks a shard
    path, options = str(tmp_path), {"safe_readers": safe_readers}
    fleet.make_array(tmp_path, shape=chunks * size, chunks=size, shards=4 * size, **any_kind)
    settled = dict.fromkeys(range(chunks), 0)
    for kill in range(kills):
        inbox, outbox = fleet.CONTEXT.Pipe(duplex=False)
        with fleet.crew((fleet.write_for_ever, path, options, f"{seed}-{kill}", chunks, outbox)) as (writer,):
            outbox.close()
            messages = [inbox.recv() for _ in range(rng.randrange(1, 8))]
            moment = time.perf_counter() + rng.random() * 0.003
            while time.perf_counter() < moment:  # not to wait for anything: to strike at a random moment
                pass
            writer.kill()
            with contextlib.suppress(EOFError):
                while True:
                    messages.append(inbox.recv())
        inbox.close()
        in_flight = {}
        for what, numbers, value in messages:
            if what == "begin":
                in_flight = dict.fromkeys(numbers, value)
            else:
                settled |= in_flight
                in_flight = {}
        settled = mended(path, options, after_a_kill(path, options, settled, in_flight))
    array = fleet.handle(path, options)
    assert intarsia.verify(array) == ()
    intarsia.shards.compact(array)
    assert intarsia.verify(array) == ()
    for _, values in readers(tmp_path):
        assert np.array_equal(values.reshape(chunks, size)[:, 0], list(settled.values()))


def mended(path, options, found):
    """Write chunks again that cannot be read; afterwards everything can."""
    array = fleet.handle(path, options)
    for chunk, value in found.items():
        if value is None:
            array[fleet.chunk_slice(array, chunk)] = found[chunk] = 7
    assert intarsia.verify(array) == ()
    return found


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.torture)])
def test_a_killed_compaction_loses_nothing(tmp_path, any_kind, kills):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = str(tmp_path)
    array = fleet.make_array(tmp_path, shape=16 * 4096, chunks=4096, shards=8 * 4096, **any_kind)
    slots = intarsia.shards.slotted(array)
    expected = np.zeros(16 * 4096, dtype="int32")
    for chunk in (1, 2, 3, 6, 7, 8, 11):
        expected[chunk * 4096 : (chunk + 1) * 4096] = slots[chunk * 4096 : (chunk + 1) * 4096] = chunk
    for _ in range(kills):
        inbox, outbox = fleet.CONTEXT.Pipe(duplex=False)
        with fleet.crew((fleet.rebuild_for_ever, path, outbox)):
            outbox.close()
            for _ in range(rng.randrange(1, 3)):
                inbox.recv()
            moment = time.perf_counter() + rng.random() * 0.01
            while time.perf_counter() < moment:  # not to wait for anything: to strike at a random moment
                pass
        inbox.close()
        assert np.array_equal(fleet.handle(path, {}, "r")[:], expected)
        try:
            values = zarr.open_array(path, mode="r")[:]
        except Exception:  # it may fail, until the compaction is done again
            continue
        assert np.array_equal(values, expected), "a wrong value"
    intarsia.shards.compact(array)
    for _, values in readers(tmp_path):
        assert np.array_equal(values, expected)
    assert [p.name for p in (tmp_path / "c").iterdir() if p.name not in "01"] == []  # nothing left over


@pytest.mark.parametrize("chunks_written", ["all", "some"])
@pytest.mark.parametrize("compactions", [3, pytest.param(100, marks=pytest.mark.torture)])
def test_compaction_beside_writers_and_readers_loses_nothing(tmp_path, any_kind, compactions, chunks_written):
    path, options = str(tmp_path), {}
    array = fleet.make_array(tmp_path, shape=CHUNKS * SIZE, chunks=SIZE, shards=CHUNKS * SIZE, **any_kind)
    own = [c for c in range(CHUNKS) if chunks_written == "all" or c % 3]
    slots = intarsia.shards.slotted(array)
    for chunk in own:
        slots[fleet.chunk_slice(array, chunk)] = chunk << 20
    # Other programs must fail where they would read something wrong; that takes a checksum of the chunk.
    other = None if any_kind["codecs"] == fleet.CHECKED else options
    stop = fleet.CONTEXT.Event()
    with fleet.crew(
        *((fleet.count_up, path, options, own[i::4], stop) for i in range(4)),
        (fleet.watch, path, options, CHUNKS, 1, stop, False),
        (fleet.watch, path, other, CHUNKS, 2, stop, other is None),
    ) as crew:
        for _ in range(compactions):
            intarsia.shards.compact(array)
        stop.set()
        last = dict(itertools.chain(*(writer.result().items() for writer in crew[:4])))
        for reader in crew[4:]:
            reader.result()
    for _, values in readers(tmp_path):
        for chunk, turn in last.items():
            assert (values[fleet.chunk_slice(array, chunk)] == chunk << 20 | turn).all()
    assert intarsia.verify(array) == ()
