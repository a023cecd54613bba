"""What `slotted` accepts, what it refuses and why, and when bytes are on disk."""

import contextlib
import errno
import os

import numpy as np
import pytest
import tensorstore
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec

import intarsia
from intarsia.shards import files
from tests.shards import fleet


def test_an_array_without_shards_is_refused(tmp_path):
    for array in (
        zarr.create_array(tmp_path / "a", shape=64, chunks=8, dtype="u2"),
        zarr.create_array(tmp_path / "b", shape=64, chunks=8, dtype="u2", zarr_format=2),
    ):
        with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="no shards"):
            intarsia.shards.slotted(array)


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_codecs_around_the_shard_are_refused(tmp_path):
    array = zarr.create_array(
        tmp_path,
        shape=64,
        chunks=32,
        dtype="u2",
        serializer=ShardingCodec(chunk_shape=(8,)),
        compressors="auto",
    )
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="codecs around its shards"):
        intarsia.shards.slotted(array)


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@pytest.mark.parametrize(
    "codec", [zarr.codecs.numcodecs.Delta(dtype="<u2"), zarr.codecs.TransposeCodec(order=(0,))]
)
def test_codecs_before_the_shard_are_refused(tmp_path, codec):
    array = zarr.create_array(
        tmp_path, shape=64, chunks=32, dtype="u2", filters=[codec],
        serializer=ShardingCodec(chunk_shape=(8,)), compressors=None,
    )  # fmt: skip
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="'transpose', inside the shards"):
        intarsia.shards.slotted(array)


def test_a_logical_array_is_refused_with_a_pointer_to_members(tmp_path):
    array = intarsia.create(str(tmp_path), "a", shape=(4,), chunks=(2,), dtype="f4")
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match=r"LogicalArray.*arr\.members"):
        intarsia.shards.slotted(array)


def test_shards_that_differ_in_shape_are_refused(tmp_path):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array(
            tmp_path, shape=12, chunks=[[4, 8]], dtype="u2", serializer=ShardingCodec(chunk_shape=(4,)),
            compressors=None,
        )  # fmt: skip
        with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="regular grid"):
            intarsia.shards.slotted(array)


def test_a_pipeline_with_a_sharding_of_its_own_is_refused(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=32)
    with (
        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}),
        pytest.raises(intarsia.errors.SlotsUnsupportedError, match=r"ZarrsCodecPipeline(.|\n)*can read"),
    ):
        intarsia.shards.slotted(array)


class Slow(BytesBytesCodec):
    """Does nothing, but only when awaited."""

    is_fixed_size = True

    def to_dict(self):
        return {"name": "slow"}

    def compute_encoded_size(self, input_byte_length, _chunk_spec):
        return input_byte_length

    async def _encode_single(self, chunk_data, _chunk_spec):
        return chunk_data

    _decode_single = _encode_single


def test_a_codec_that_only_works_in_an_event_loop_is_refused(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=32, codecs=(BytesCodec(), Slow()))
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match="event loop"):
        intarsia.shards.slotted(array)


def test_an_array_inside_a_group_is_written_where_it_is(tmp_path):
    group = zarr.create_group(tmp_path)
    array = group.create_array("a/b", shape=64, chunks=8, shards=32, dtype="u2", compressors=None)
    intarsia.shards.slotted(array)[8:16] = 1
    assert (tmp_path / "a/b/c/0").is_file()
    assert array[:].sum() == 8


def test_other_chunk_key_encodings_work(tmp_path):
    array = zarr.create_array(
        tmp_path, shape=(8, 8), chunks=(2, 2), shards=(4, 4), dtype="u2", compressors=None,
        chunk_key_encoding={"name": "v2", "configuration": {"separator": "."}},
    )  # fmt: skip
    intarsia.shards.slotted(array)[4:, 4:] = 1
    assert (tmp_path / "1.1").is_file()
    intarsia.shards.compact(array)
    assert array[:].sum() == 16


@pytest.mark.parametrize(
    ("codecs", "safe_readers", "copies"),
    [
        (fleet.BARE, True, 2),
        (fleet.BARE, False, 1),
        (fleet.CHECKED, True, 2),
        (fleet.CHECKED, False, 1),
    ],
)
def test_a_chunk_has_two_slots_unless_told_otherwise(tmp_path, codecs, safe_readers, copies):
    array = fleet.make_array(tmp_path, shape=640, chunks=80, shards=640, codecs=codecs)
    intarsia.shards.slotted(array, safe_readers=safe_readers)[:80] = 1
    size = intarsia.shards.slot_stats(array).bytes_stored
    assert size // (8 * (320 + 8 * (codecs == fleet.CHECKED))) == copies


def test_with_two_slots_a_rewrite_leaves_the_old_bytes_until_the_next(tmp_path):
    array = fleet.make_array(tmp_path, shape=640, chunks=80, shards=640, codecs=fleet.BARE)
    slots = intarsia.shards.slotted(array)
    entries = []
    for value in (1, 2, 3):
        slots[:80] = value
        table, _ = files_index(tmp_path / "c/0", array)
        entries.append(int(table[0, 0]))
        assert (array[:80] == value).all()
    assert entries[0] == entries[2] != entries[1]


def files_index(path, array):
    from intarsia.shards.handle import ShardedArray

    with files.open_existing(path, write=False) as fd:
        return files.read_entries(fd, ShardedArray(array).index)


def test_two_slots_are_the_default_and_a_shard_with_one_is_refused(tmp_path):
    array = fleet.make_array(tmp_path, shape=640, chunks=80, shards=640)
    one = intarsia.shards.slotted(array, safe_readers=False)
    one[:] = 1
    with pytest.raises(intarsia.errors.SlotsGoneError, match="2 slots of 328 bytes"):
        intarsia.shards.slotted(array)[:80] = 3
    assert intarsia.shards.reslot(array) == 1
    intarsia.shards.slotted(array)[:80] = 2
    one[80:160] = 3
    assert array[:240].sum() == 80 * 6


@pytest.fixture
def calls(monkeypatch):
    """The calls that write or make durable, in order, and of the latter the file concerned."""
    made = []
    for name in ("pwritev", "fdatasync", "fsync", "link"):
        real = getattr(os, name)

        def call(*args, name=name, real=real):
            synced = f" {os.path.basename(os.readlink(f'/proc/self/fd/{args[0]}'))}" if "sync" in name else ""
            made.append(name + synced)
            return real(*args)

        monkeypatch.setattr(os, name, call)
    return made


@pytest.mark.parametrize(("codecs", "safe"), [(fleet.BARE, True), (fleet.CHECKED, True), (fleet.BARE, False)])
def test_with_fsync_the_payload_is_on_disk_before_the_index_names_it(tmp_path, calls, codecs, safe):
    array = fleet.make_array(tmp_path / "a", shape=640, chunks=80, shards=640, codecs=codecs)
    calls.clear()
    slots = intarsia.shards.slotted(array, fsync=True, safe_readers=safe)
    slots[:80] = 1
    written = ["pwritev", "fdatasync 0"]
    assert calls[:2] == ["pwritev", "link"]
    assert calls[2:6] == written * 2
    calls.clear()
    slots[:80] = 2
    marked = [] if safe else written  # an only slot is marked before it is overwritten
    assert [call for call in calls if not call.startswith("fsync")] == marked + written * 2


def test_with_fsync_all_is_on_disk_without_which_the_array_cannot_be_opened(tmp_path, calls, monkeypatch):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    array = fleet.make_array(tmp_path / "g.zarr/a", shape=640, chunks=80, shards=640)
    assert group["a"].shape == (640,)
    intarsia.shards.slotted(array)[:80] = 1  # creates the shard, and promises nothing
    assert "fsync c" not in calls
    slots = intarsia.shards.slotted(array, fsync=True)
    slots[:80] = 2
    others = {f"fsync {parent.name}" for parent in tmp_path.parents}  # change while other tests run

    def synced():
        return [call for call in calls if call.startswith("fsync") and call not in others]

    assert synced()[:6] == [
        "fsync c", "fsync zarr.json", "fsync a", "fsync zarr.json", "fsync g.zarr", f"fsync {tmp_path.name}",
    ]  # fmt: skip
    calls.clear()
    monkeypatch.setattr(files, "CLOCK_TICK", -(10**18))  # time passes
    slots[:80] = 3
    calls.clear()
    slots[:80] = 4
    assert not synced()  # nothing has a new name
    slots.attrs["changed"] = True
    slots[:80] = 5
    assert synced() == ["fsync zarr.json", "fsync a"]


def test_without_fsync_nothing_waits_for_the_disk_until_it_is_flushed(tmp_path, calls):
    array = fleet.make_array(tmp_path / "a", shape=640, chunks=80, shards=320)
    slots = intarsia.shards.slotted(array)
    slots[:] = 1
    assert not [call for call in calls if "sync" in call]
    assert intarsia.shards.flush_slots(slots) == 2
    assert {"fsync 0", "fsync 1", "fsync c", "fsync zarr.json", "fsync a"} <= set(calls)


@contextlib.contextmanager
def disk_full_after(allocations):
    """Let the file system run out of space after some allocations."""
    real, left = os.posix_fallocate, iter(range(allocations))

    def allocate(*args):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "posix_fallocate", allocate)
        yield


@pytest.mark.parametrize("size", [1 << 10, 1 << 17])
@pytest.mark.parametrize("safe_readers", [False, True])
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("allocations", [0, 1])
def test_a_full_disk_leaves_the_old_values(tmp_path, size, safe_readers, checked, allocations):
    codec = intarsia.codecs.ConditionalCodec(codecs=["zstd"], decision="compress_if_smaller")
    codecs = (BytesCodec(), codec, *fleet.CHECKED[1:][:checked])
    array = fleet.make_array(
        tmp_path, shape=8 * size, chunks=size, shards=8 * size, codecs=codecs, dtype="u1"
    )
    slots = intarsia.shards.slotted(array, safe_readers=safe_readers)
    slots[:] = 1
    noise = np.random.default_rng(0).integers(0, 255, 2 * size, dtype="u1")
    noise[: size // 2] = 3  # the first of two chunks leaves room in its slot, so that there are two writes
    with disk_full_after(allocations):
        if safe_readers and size < 1 << 16:
            slots[: 2 * size] = 1  # to the other slots, which need no allocation beforehand
        else:
            with pytest.raises(OSError, match="No space"):
                slots[: 2 * size] = noise
    assert (slots[:] == 1).all()
    assert (array[:] == 1).all()
    slots[: 2 * size] = noise
    assert np.array_equal(array[: 2 * size], noise)


def test_threads_of_one_process_may_write_one_shard(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    array = fleet.make_array(tmp_path, shape=6400, chunks=100, shards=6400)
    slots = intarsia.shards.slotted(array)

    def write(chunk):
        slots[chunk * 100 : (chunk + 1) * 100] = chunk

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(64)))
    assert np.array_equal(array[:], np.repeat(np.arange(64), 100))


def test_two_writers_may_even_update_parts_of_the_same_chunk(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    array = fleet.make_array(tmp_path, shape=64, chunks=64, shards=64)
    slots = intarsia.shards.slotted(array)

    def write(element):
        slots[element] = element

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(64)))
    assert array[:].tolist() == list(range(64))


def test_dask_stores_its_blocks_into_one_shard_without_a_lock(tmp_path):
    import dask.array

    array = fleet.make_array(tmp_path, shape=(64, 64), chunks=(8, 8), shards=(64, 64))
    values = np.arange(64 * 64).reshape(64, 64)
    blocks = dask.array.from_array(values, chunks=(8, 8))
    dask.array.store(blocks, intarsia.shards.slotted(array), lock=False, compute=True)
    assert np.array_equal(array[:], values)


@pytest.fixture
def array(tmp_path):
    return fleet.make_array(tmp_path, shape=(24, 24), chunks=(4, 4), shards=(12, 12))


def plain_zarr(path, values):
    zarr.open_array(path)[:12, :12] = values


def zarrs(path, values):
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        zarr.open_array(path)[:12, :12] = values


def tensorstore_(path, values):
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
    tensorstore.open(spec).result()[:12, :12].write(values).result()


@pytest.mark.parametrize("writer", [plain_zarr, zarrs, tensorstore_])
def test_a_shard_that_another_program_rewrote_is_refused_until_it_has_slots_again(tmp_path, array, writer):
    slots = intarsia.shards.slotted(array)
    slots[:] = 1
    values = np.arange(144, dtype="int32").reshape(12, 12)
    values[0:4, 0:4] = 0  # a chunk that is not stored
    writer(tmp_path, values)
    before = (tmp_path / "c/0/0").read_bytes()
    with pytest.raises(
        intarsia.errors.SlotsGoneError,
        match=r"c/0/0 does not have 2 slots of 72 bytes(.|\n)*intarsia\.shards\.reslot",
    ):
        slots[4:8, 4:8] = 5
    assert (tmp_path / "c/0/0").read_bytes() == before
    slots[12:16, 12:16] = 6  # the other shards still have theirs
    assert intarsia.shards.reslot(slots) == 1
    slots[4:8, 4:8] = values[4:8, 4:8] = 5
    assert np.array_equal(array[:12, :12], values)
    assert intarsia.shards.slot_stats(array).slotted == 4
    assert intarsia.verify(array) == ()


def test_a_write_that_another_program_undoes_at_that_moment_does_not_pass_for_done(
    tmp_path, array, monkeypatch
):
    slots = intarsia.shards.slotted(array)
    slots[:] = 1
    pwritev = os.pwritev

    def meanwhile(*args):
        monkeypatch.setattr(os, "pwritev", pwritev)
        plain_zarr(tmp_path, 2)
        return pwritev(*args)

    monkeypatch.setattr(os, "pwritev", meanwhile)
    with pytest.raises(intarsia.errors.SlotsGoneError, match=r"the write is lost(.|\n)*reslot"):
        slots[0:4, 0:4] = 5
    assert (array[:12, :12] == 2).all()


def test_it_changes_between_one_and_two_slots_a_chunk(array):
    one, two = (
        intarsia.shards.slotted(array, safe_readers=False),
        intarsia.shards.slotted(array, safe_readers=True),
    )
    one[:] = 1
    with pytest.raises(intarsia.errors.SlotsGoneError, match="2 slots of 72 bytes per chunk"):
        two[0, 0] = 2
    assert intarsia.shards.reslot(array, safe_readers=True) == 4
    two[0, 0] = 2
    one[0, 1] = 2  # who asks for less than there is gets more
    assert array[:].sum() == 24 * 24 + 2
    assert intarsia.shards.reslot(two) == 0


def test_chunks_that_are_too_large_for_a_slot_are_named(tmp_path):
    codec = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec(level=1)], decision="always_apply")
    array = fleet.make_array(
        tmp_path, shape=32, chunks=8, shards=32, codecs=(BytesCodec(), codec), dtype="u1"
    )
    array[:] = np.random.default_rng(0).integers(0, 256, 32)  # eight bytes grow under zstd
    before = (tmp_path / "c/0").read_bytes()
    with pytest.raises(intarsia.errors.SlotsUnsupportedError, match=r"chunk \(0,\).*slot holds only 9"):
        intarsia.shards.reslot(array)
    assert (tmp_path / "c/0").read_bytes() == before
    intarsia.codecs.rewrite(array, "compress_if_smaller")
    assert intarsia.shards.reslot(array) == 1


def test_progress_goes_shard_by_shard(array):
    array[:] = 1
    steps = []
    assert intarsia.shards.reslot(array, progress=lambda done, total: steps.append((done, total))) == 4
    assert steps == [(n, 4) for n in range(5)]


def test_a_shard_in_which_one_chunk_lies_elsewhere_is_not_written_to(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64, index_codecs=fleet.BARE)
    intarsia.shards.slotted(array)[:] = 1
    with (tmp_path / "c/0").open(
        "r+b"
    ) as file:  # of the size that it has, but with another chunk out of place
        file.seek(-3 * 16, os.SEEK_END)
        file.write((8).to_bytes(8, "little"))
    before = (tmp_path / "c/0").read_bytes()
    with pytest.raises(intarsia.errors.SlotsGoneError, match="does not have 2 slots"):
        intarsia.shards.slotted(array)[:8] = 2
    assert (tmp_path / "c/0").read_bytes() == before


def test_an_array_that_is_open_for_reading_only_keeps_its_shards(tmp_path):
    array = fleet.make_array(tmp_path, shape=64, chunks=8, shards=64)
    array[:] = 1
    before = (tmp_path / "c/0").read_bytes()
    for change in (intarsia.shards.reslot, intarsia.shards.compact):
        with pytest.raises(intarsia.errors.ReadOnlyError, match="reading only"):
            change(zarr.open_array(tmp_path, mode="r"))
    assert (tmp_path / "c/0").read_bytes() == before
