"""`rewrite`: the same values under another decision, in place, whatever happens meanwhile."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import icechunk
import numpy as np
import obstore
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.codecs.numcodecs import Delta, FixedScaleOffset
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, ObjectStore, WrapperStore

import intarsia
from intarsia.codecs import (
    ConditionalCodec,
    PadCodec,
    ShuffleCodec,
    masks,
    rewrite,
    with_decision,
)
from intarsia.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigurationError, ReadOnlyError
from tests.codecs.stores import NotedWrites

LITTLE = BytesCodec(endian="little")
NESTED = [ShuffleCodec(element_size=4), ZstdCodec(level=1)]


def mixed(shape, seed=0):
    """Some rows of noise, some smooth ones."""
    rng = np.random.default_rng(seed)
    values = np.sin(np.linspace(0, 9, int(np.prod(shape)))).astype("f4").reshape(shape)
    values[::8] = rng.integers(0, 2**32, values[::8].shape, dtype="u4").view("f4")
    return values


def create(
    store, codecs=None, *, shards=None, nested=NESTED, after=(), shape=(64, 96), chunks=(8, 32), **fields
):
    chain = [LITTLE, ConditionalCodec(codecs=nested), *after]
    if shards:
        chain = [ShardingCodec(chunk_shape=chunks, codecs=chain)]
    return zarr.create(
        store=store, shape=shape, chunks=shards or chunks, dtype="f4", codecs=codecs or chain, **fields
    )


@pytest.mark.parametrize("shards", [None, (16, 96)], ids=["plain", "sharded"])
@pytest.mark.parametrize("decision", ["compress_if_smaller", "smallest", "sampled", "always_apply"])
def test_write_fast_and_compress_later(shards, decision, tmp_path, our_pipeline):
    z = create(tmp_path / "a", shards=shards, after=[Crc32cCodec()])
    data = mixed(z.shape)
    z[:] = data
    metadata = (tmp_path / "a/zarr.json").read_bytes()
    files = sorted((tmp_path / "a/c").rglob("[0-9]*"))
    before = sum(f.stat().st_size for f in files if f.is_file())
    steps = []
    result = rewrite(z, decision, progress=lambda done, total: steps.append((done, total)))
    after = sum(f.stat().st_size for f in (tmp_path / "a/c").rglob("[0-9]*") if f.is_file())
    assert (result.chunks, result.bytes_before, result.bytes_after) == (24, before, after)
    assert result.rewritten == np.count_nonzero(masks(z)) > 0
    objects = 4 if shards else 24
    assert steps == [(done, objects) for done in range(objects + 1)]
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a")[:].view("u4"), data.view("u4"))
    assert (tmp_path / "a/zarr.json").read_bytes() == metadata
    # What would have been written with the decision at once is what is there now.
    twin = with_decision(create(tmp_path / "b", shards=shards, after=[Crc32cCodec()]), decision)
    twin[:] = data
    np.testing.assert_array_equal(masks(twin), masks(z))
    assert sum(f.stat().st_size for f in (tmp_path / "b/c").rglob("[0-9]*") if f.is_file()) == after


@pytest.mark.parametrize("shards", [None, (16, 96)], ids=["plain", "sharded"])
def test_chunks_that_would_not_change_are_not_written(shards):
    store = NotedWrites(MemoryStore())
    z = create(store, shards=shards)
    z[:] = mixed(z.shape)
    rewrite(z, "compress_if_smaller")
    store.written.clear()
    again = rewrite(z, "compress_if_smaller")
    assert again.rewritten == 0
    assert again.bytes_before == again.bytes_after
    assert store.written == []
    plan = masks(z).filled(0)
    plan[2, 1] ^= 1
    assert rewrite(z, plan).rewritten == 1
    assert store.written == ["c/1/0" if shards else "c/2/1"]


def test_what_comes_before_the_codec_is_not_run_again():
    """A lossy filter would lose a little more each time, if it were."""
    store = NotedWrites(MemoryStore())
    pad, codec = PadCodec(location="end", nbytes=4, padding=b"live"), ConditionalCodec(codecs=[ZstdCodec()])
    z = create(store, codecs=[TransposeCodec(order=(1, 0)), LITTLE, pad, codec])
    z[:] = mixed(z.shape)
    path = z.store_path
    key = "c/1/1"
    raw = path.store._store._store_dict[key].to_bytes()[:-4] + b"DEAD"  # what `pad` would never write itself
    path.store._store._store_dict[key] = path.store._store._store_dict[key].from_bytes(raw)
    rewrite(z, "always_apply")
    rewrite(z, "never_apply")
    assert path.store._store._store_dict[key].to_bytes() == raw


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@pytest.mark.parametrize(
    "codecs",
    [
        lambda c: [FixedScaleOffset(offset=0, scale=100, dtype="f4", astype="i2"), LITTLE, c],
        lambda c: [Delta(dtype="f4"), LITTLE, c, GzipCodec()],
        lambda c: [
            ShardingCodec(
                chunk_shape=(16, 32), codecs=[ShardingCodec(chunk_shape=(8, 32), codecs=[LITTLE, c])]
            )
        ],
        lambda c: [
            TransposeCodec(order=(1, 0)),
            ShardingCodec(
                chunk_shape=(32, 8), codecs=[TransposeCodec(order=(1, 0)), LITTLE, c], index_location="start"
            ),
            Crc32cCodec(),
        ],
    ],
    ids=["lossy filter", "compressor after", "nested shards", "transposed shards"],
)
def test_wherever_the_codec_is(codecs):
    codec = ConditionalCodec(codecs=[ZstdCodec(level=1), Crc32cCodec()])
    z = create(
        MemoryStore(), codecs=codecs(codec), chunks=(32, 96) if "Sharding" in str(codecs(codec)) else (8, 32)
    )
    z[:] = np.round(mixed(z.shape)[1:2].repeat(64, axis=0), 2)
    before = z[:]
    plan = np.arange(24).reshape(8, 3) % 4
    result = rewrite(z, plan)
    np.testing.assert_array_equal(masks(z), plan)
    assert result.rewritten == np.count_nonzero(plan)
    assert z[:].tobytes() == before.tobytes()


def test_chunks_that_are_not_stored_stay_so():
    z = create(MemoryStore())
    z[8:16, 32:64] = mixed((8, 32))
    assert rewrite(z, "always_apply").chunks == 1
    assert masks(z).count() == 1


def test_the_arrays_own_decision_is_the_default():
    z = create(MemoryStore())
    z[:] = 1
    with pytest.raises(CodecConfigurationError, match="no decision, so give one"):
        rewrite(z)
    assert rewrite(with_decision(z, "smallest")).rewritten == 24
    with zarr.config.set({"intarsia.decision": "never_apply"}):
        assert rewrite(z).rewritten == 24
    lender = ConditionalCodec(codecs=NESTED, decision="always_apply")
    assert rewrite(z, lender).rewritten == 24
    assert masks(z).min() == 0b11


def test_a_codec_that_decides_for_itself_inside_is_rewritten_too():
    inner = ConditionalCodec(codecs=[ZstdCodec()])
    z = create(MemoryStore(), nested=[inner])
    z[:] = 1
    rewrite(z, lambda: True)  # applies the inner codec, which applies nothing
    large = rewrite(z, lambda: True).bytes_after
    assert large > z.nbytes
    assert rewrite(z, "always_apply").bytes_after < large / 10
    assert (z[:] == 1).all()


def test_a_read_only_array_is_refused(tmp_path):
    create(tmp_path / "a")[:] = 1
    with pytest.raises(ReadOnlyError, match="mode='r\\+'"):
        rewrite(zarr.open_array(tmp_path / "a", mode="r"), "smallest")
    with pytest.raises(CodecConfigurationError, match="cannot rewrite: the array has no conditional codec"):
        rewrite(zarr.create(store={}, shape=4, dtype="u1"), "smallest")
    with pytest.raises(CodecConfigurationError, match="chunk grid"):
        rewrite(zarr.open_array(tmp_path / "a", mode="r+"), [1, 2])


@pytest.mark.parametrize("shards", [None, (16, 96)], ids=["plain", "sharded"])
def test_damaged_chunks_are_left_alone_and_reported_at_the_end(shards, tmp_path):
    z = create(tmp_path / "a", shards=shards, nested=[ZstdCodec()], after=[Crc32cCodec()])
    data = mixed(z.shape)
    z[:] = data
    rewrite(z, "always_apply")
    file = tmp_path / ("a/c/1/0" if shards else "a/c/3/1")
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    with pytest.raises(ChunkDecodeError, match=r"'crc32c'.* of chunk \([23], [01]\)") as caught:
        rewrite(z, "never_apply")
    assert "1 damaged chunks or shards were left alone" in caught.value.__notes__[-1]
    assert file.read_bytes() == content
    good = np.ones(64, dtype=bool)
    good[16:32] = False
    np.testing.assert_array_equal(z[:16].view("u4"), data[:16].view("u4"))
    np.testing.assert_array_equal(z[32:].view("u4"), data[32:].view("u4"))


def test_a_decision_that_raises_stops_it_and_a_later_start_goes_on():
    z = create(MemoryStore())
    data = mixed(z.shape)
    z[:] = data

    def moody(chunk_index, unencoded_chunk):
        if chunk_index == (5, 1):
            raise RuntimeError("not today")
        return True

    with pytest.raises(RuntimeError, match="not today"):
        rewrite(z, moody)
    assert masks(z)[5, 1] == 0
    np.testing.assert_array_equal(z[:].view("u4"), data.view("u4"))
    done = np.count_nonzero(masks(z))
    assert rewrite(z, "always_apply").rewritten == 24 - done
    assert masks(z).min() == 0b11


def test_an_interrupt_stops_it_and_a_later_start_goes_on():
    z = create(MemoryStore())
    data = mixed(z.shape)
    z[:] = data

    def interrupt(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with zarr.config.set({"async.concurrency": 1}), pytest.raises(KeyboardInterrupt):
        rewrite(z, "always_apply", progress=interrupt)
    done = np.count_nonzero(masks(z))
    assert done >= 3
    assert rewrite(z, "always_apply").rewritten == 24 - done
    np.testing.assert_array_equal(z[:].view("u4"), data.view("u4"))


class Forgetful(Crc32cCodec):
    """A broken codec: what it encodes cannot be decoded to the same."""

    def _encode_sync(self, chunk_bytes, chunk_spec):
        return super()._encode_sync(
            chunk_spec.prototype.buffer.from_bytes(bytes(len(chunk_bytes))), chunk_spec
        )


def test_a_broken_codec_does_not_destroy_data():
    z = create(MemoryStore(), nested=[Forgetful()])
    data = mixed(z.shape)
    z[:] = data
    with pytest.raises(ChunkEncodeError, match=r"do not restore the bytes of chunk .* left as it is"):
        rewrite(z, "always_apply")
    np.testing.assert_array_equal(z[:].view("u4"), data.view("u4"))
    assert masks(z).max() == 0


class Failing(WrapperStore[LocalStore]):
    """A disk that is full after some writes."""

    left = 5

    async def set(self, key, value):
        self.set_sync(key, value)

    def set_sync(self, key, value):
        if not self.left:
            raise OSError("no space left on device")
        self.left -= 1
        super().set_sync(key, value)


def test_a_store_that_fails_midway_leaves_everything_readable(tmp_path):
    data = mixed((64, 96))
    create(tmp_path / "a")[:] = data
    z = zarr.open_array(Failing(LocalStore(tmp_path / "a")), mode="r+")
    with pytest.raises(OSError, match="no space left"):
        rewrite(z, "always_apply")
    assert np.count_nonzero(masks(z)) == 5
    np.testing.assert_array_equal(z[:].view("u4"), data.view("u4"))


@pytest.mark.parametrize("shards", [None, (16, 96)], ids=["plain", "sharded"])
def test_in_an_icechunk_repository_it_is_a_commit_like_any_other(shards, our_pipeline):
    repo = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repo.writable_session("main")
    z = create(session.store, shards=shards, path="a")
    data = mixed(z.shape)
    z[:] = data
    first = session.commit("fast")
    session = repo.writable_session("main")
    z = zarr.open_array(session.store, path="a", mode="r+")
    assert rewrite(z, "compress_if_smaller").rewritten > 0
    session.commit("small")
    new = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    old = zarr.open_array(repo.readonly_session(snapshot_id=first).store, path="a", mode="r")
    for z in (new, old):
        np.testing.assert_array_equal(z[:].view("u4"), data.view("u4"))
    assert masks(old).max() == 0
    assert masks(new).max() == 0b11


def kill_a_rewrite(path, rounds, seed):
    """Starts `rewrite` over and over, each time with the other decision, and kills it in the middle."""
    script = textwrap.dedent("""
        import sys, zarr, intarsia
        z = zarr.open_array(sys.argv[1], mode="r+")
        decision = "compress_if_smaller"
        while True:
            intarsia.codecs.rewrite(z, decision, progress=lambda done, total: print(done, flush=True))
            decision = "never_apply" if decision == "compress_if_smaller" else "compress_if_smaller"
    """)
    rng = random.Random(seed)
    for _ in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for _ in range(rng.randrange(1, 100)):
            assert process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        yield


@pytest.mark.parametrize("shards", [None, (16, 96)], ids=["plain", "sharded"])
@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.torture)])
def test_killing_it_at_any_moment_leaves_every_chunk_readable_with_the_same_values(kills, shards, tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    z = create(tmp_path / "a", shards=shards, after=[Crc32cCodec()], shape=(512, 96))
    data = mixed(z.shape)
    z[:] = data
    seen = set()
    for _ in kill_a_rewrite(tmp_path / "a", kills, seed):
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "a")[:].view("u4"), data.view("u4"))
        seen.add(masks(z).tobytes())
    assert len(seen) > 1 or kills < 10  # it was really in the middle of something
    rewrite(z, "compress_if_smaller")
    twin = with_decision(
        create(tmp_path / "b", shards=shards, after=[Crc32cCodec()], shape=(512, 96)), "smallest"
    )
    twin[:] = data
    np.testing.assert_array_equal(masks(z) > 0, masks(twin) > 0)


def length(encoded):
    return b"LEN%05d" % len(encoded)


def always(codec):
    return True


def test_headers_are_written_anew_or_nothing_is(tmp_path):
    pad = intarsia.codecs.PadCodec(location="start", nbytes=8, padding_func=length)
    chain = [BytesCodec(), ConditionalCodec(codecs=[ZstdCodec()]), pad]
    zarr.create(store=tmp_path, shape=100, dtype="u1", codecs=chain)[:] = 7
    before = (tmp_path / "c/0").read_bytes()
    again = zarr.open_array(tmp_path)
    with pytest.raises(intarsia.errors.ChunkEncodeError, match="with_padding"):
        rewrite(again, "always_apply")
    assert (tmp_path / "c/0").read_bytes() == before
    rewrite(intarsia.codecs.with_padding(again, length), "always_apply")
    assert (tmp_path / "c/0").read_bytes()[:9] == b"LEN%05d\x01" % ((tmp_path / "c/0").stat().st_size - 8)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_decision_is_asked_once_for_each_chunk_and_codec(sharded):
    asked = []

    def decide(chunk_index, codec_index):
        asked.append((*chunk_index, codec_index))
        return True

    chain = [BytesCodec(), ConditionalCodec(codecs=[ZstdCodec(), Crc32cCodec()])]
    if sharded:
        chain = [ShardingCodec(chunk_shape=(10,), codecs=chain)]
    z = zarr.create(store={}, shape=40, chunks=20 if sharded else 10, dtype="u1", codecs=chain)
    z[:] = 7
    rewrite(z, decide)
    assert sorted(asked) == [(i, k) for i in range(4) for k in range(2)]
    assert masks(z).tolist() == [3] * 4


def test_an_empty_object_in_an_object_store_is_a_damaged_chunk_like_any_other():
    store = ObjectStore(obstore.store.MemoryStore())
    z = zarr.create(
        store=store, shape=4, chunks=2, dtype="u1",
        codecs=[BytesCodec(), ConditionalCodec(codecs=[ZstdCodec()])],
    )  # fmt: skip
    z[:] = 1
    sync(store.set("c/0", default_buffer_prototype().buffer.from_bytes(b"")))
    with pytest.raises(ChunkDecodeError, match=r"0 bytes of chunk \(0,\)") as caught:
        rewrite(z, "always_apply")
    assert "1 damaged chunks or shards were left alone; of the others, 1 of 1" in caught.value.__notes__[0]


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed`")
def test_several_codecs_and_nested_ones_are_all_decided_anew(monkeypatch):
    inner = ConditionalCodec(codecs=[GzipCodec()])
    chain = [LITTLE, ConditionalCodec(codecs=[ShuffleCodec(element_size=4), inner])]
    chain += [ConditionalCodec(codecs=[Crc32cCodec()])]
    codecs = [ShardingCodec(chunk_shape=(8, 32), codecs=chain), ConditionalCodec(codecs=[ZstdCodec()])]
    z = create(MemoryStore(), codecs, chunks=(16, 96))
    data = mixed(z.shape)
    z[:] = data
    result = rewrite(z, "always_apply")
    assert (result.chunks, result.rewritten) == (24, 24)
    found = masks(z)
    assert {path: set(values.compressed()) for path, values in found.items()} == {
        "codecs[0].codecs[1]": {3},
        "codecs[0].codecs[1].codecs[1]": {1},
        "codecs[0].codecs[2]": {1},
        "codecs[1]": {1},
    }
    np.testing.assert_array_equal(z[:].view("u4"), data.view("u4"))
    monkeypatch.setattr(time, "time", lambda: 10**9)  # gzip writes the time, which is no change
    assert rewrite(z, "always_apply").rewritten == 0


@pytest.mark.parametrize("sharded", [False, True])
def test_codecs_inside_the_codec_of_nulls_are_decided_anew(sharded):
    layout = {"chunks": (8,), "shards": (16,)} if sharded else {"chunks": (8,)}
    z = intarsia.nullable.create_array(
        {}, shape=32, dtype="f4", data_codecs=[LITTLE, ConditionalCodec(codecs=NESTED)],
        mask_codecs=["packbits", ConditionalCodec(codecs=[ZstdCodec()])], **layout,
    )  # fmt: skip
    values = np.ma.masked_array(np.arange(32, dtype="f4"), np.arange(32) % 5 == 0)
    values[8:16] = np.ma.masked
    z[:] = values
    rewrite(z, 0b1)
    inside = "codecs[0].codecs[0]" if sharded else "codecs[0]"
    assert {path: found.tolist() for path, found in masks(z).items()} == {
        f"{inside}.mask_codecs[1]": [1, None, 1, 1],
        f"{inside}.data_codecs[1]": [1, None, 1, 1],
    }
    np.testing.assert_array_equal(intarsia.nullable.as_masked(z[:]).filled(-1), values.filled(-1))


@pytest.mark.parametrize("where", ["plain", "transaction"])
def test_all_members_of_a_logical_array_that_can_be_are_rewritten(where, tmp_path):
    data = np.repeat(np.arange(8, dtype="f4"), 8)

    def fill(array):
        array.append(data, codecs=["gzip"])
        array.append(data, codecs=[ConditionalCodec(codecs=NESTED)])
        array.append(data, codecs=[ConditionalCodec(codecs=[ZstdCodec()]), "crc32c"], chunks=(32,))

    def check(array, steps):
        result = rewrite(array, "always_apply", progress=lambda done, total: steps.append((done, total)))
        assert (result.chunks, result.rewritten) == (4 + 2, 4 + 2)
        assert steps[-1] == (6, 6)
        assert [set(found.compressed()) for found in masks(array).values()] == [{3}, {1}]
        np.testing.assert_array_equal(array[:], np.tile(data, 3))

    if where == "plain":
        array = intarsia.create({}, "a", shape=(0,), chunks=(16,), dtype="f4")
        fill(array)
        check(array, [])
        return
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    with intarsia.transaction(repo, message="first") as tx:
        fill(tx.create("a", shape=(0,), chunks=(16,), dtype="f4"))
    with intarsia.transaction(repo, message="second") as tx:
        array = tx.open("a")
        array[:]  # what was read is not remembered for ever
        check(array, [])
    np.testing.assert_array_equal(intarsia.open(repo, "a")[:], np.tile(data, 3))


def test_a_logical_array_with_nothing_to_rewrite_is_refused():
    array = intarsia.create({}, "a", shape=(0,), chunks=(16,), dtype="f4")
    array.append(np.zeros(16, "f4"), codecs=["gzip"])
    with pytest.raises(CodecConfigurationError, match="none of the 1 members"):
        rewrite(array, "always_apply")


def test_a_grid_of_many_places_costs_what_is_stored():
    """Ten million places, one chunk: asking for each would take hours."""
    z = create(MemoryStore(), shape=(10**7, 4), chunks=(1, 4))
    z[4_000_000] = 7
    steps = []
    assert rewrite(z, 0b11, progress=lambda done, total: steps.append((done, total))).rewritten == 1
    assert steps == [(0, 1), (1, 1)]
