"""store_dask by local schedulers: creating, appending, filling boxes; all of it or nothing."""

import asyncio
import threading

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import intarsia
from intarsia.manifest.box import Box
from tests.grids import dear
from tests.logical import backings
from tests.logical.places import AsyncOnly
from tests.logical.strategies import arrays, codec_lists, tilings


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def repo():
    return intarsia.open_repository("memory://", create=True)


def numbers(*shape, dtype="i4"):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


# Creating


def test_a_new_array_takes_the_blocks_for_chunks_and_everything_else_that_create_takes(repo):
    snapshot = intarsia.store_dask(
        da.from_array(numbers(10, 6), chunks=(4, 3)), repo, "a/b", codecs=["gzip"],
        dimension_names=["y", "x"], attributes={"units": "m"}, fill_value=-1,
        message="stored", metadata={"n": 1},
    )  # fmt: skip
    array = intarsia.open(repo, "a/b")
    assert np.array_equal(array[...], numbers(10, 6))
    assert (array.chunks, array.dimension_names, dict(array.attrs), array.fill_value) == (
        (4, 3), ("y", "x"), {"units": "m"}, -1,
    )  # fmt: skip
    tip = next(iter(repo.ancestry(branch="main")))
    assert (tip.id, tip.message, tip.metadata["n"]) == (snapshot, "stored", 1)


def test_regions_have_their_own_codecs_chunks_and_shards(repo):
    regions = {
        ((0, 4), (0, 6)): {"codecs": ["gzip"], "chunks": (4, 6)},
        ((4, 10), (0, 3)): {"codecs": ["zstd"], "chunks": (2, 3)},
        ((4, 10), (3, 6)): {"codecs": [], "chunks": (1, 1), "shards": (2, 3)},
    }
    source = da.from_array(numbers(10, 6), chunks=(3, 4))
    with intarsia.transaction(repo, message="make") as tx:
        array = tx.create("a", shape=(10, 6), chunks=(2, 3), dtype="i4")
        for bounds, encoding in regions.items():
            array.add_region(bounds, **encoding)
    intarsia.store_dask(source, repo, "a", bounds=((0, 10), (0, 6)))
    array = intarsia.open(repo, "a")
    assert np.array_equal(array[...], numbers(10, 6))
    assert [(r.bounds, r.codec_names, r.chunks, r.member.shards) for r in array.regions] == [
        (((0, 4), (0, 6)), "gzip", (4, 6), None),
        (((4, 10), (0, 3)), "zstd", (2, 3), None),
        (((4, 10), (3, 6)), "raw", (1, 1), (2, 3)),
    ]


@dear
@given(st.data())
def test_any_layout_and_any_blocks_give_the_values(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=3)))
    lattice = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    model = numbers(*shape)
    store = zarr.storage.MemoryStore()
    array = intarsia.create(store, "a", shape=shape, chunks=lattice, dtype="i4")
    tiles = data.draw(tilings(Box((0,) * len(shape), array.manifest.lattice)))
    for tile in tiles:
        bounds = tuple(zip(*array.manifest.elements(tile), strict=True))
        chunks = tuple(data.draw(st.integers(1, 5)) for _ in shape)
        array.add_region(bounds, codecs=data.draw(codec_lists(len(shape))), chunks=chunks)
    blocks = tuple(data.draw(st.integers(1, 5)) for _ in shape)
    whole = tuple((0, n) for n in shape)
    intarsia.store_dask(da.from_array(model, chunks=blocks), store, "a", bounds=whole)
    stored = intarsia.open(store, "a")
    assert np.array_equal(stored[...], model)
    assert intarsia.verify(stored) == ()


def test_empty_and_zero_dimensional_arrays_are_stored(repo):
    intarsia.store_dask(da.zeros((0, 3), chunks=(1, 3)), repo, "empty")
    assert intarsia.open(repo, "empty").shape == (0, 3)
    intarsia.store_dask(da.from_array(np.array(3.5)), repo, "scalar", codecs=["gzip"])
    assert intarsia.open(repo, "scalar")[...] == 3.5


def test_an_array_that_is_there_is_not_replaced_unless_asked(repo):
    intarsia.store_dask(da.zeros(4, chunks=2), repo, "a")
    with pytest.raises(FileExistsError, match=r"already.*\n.*overwrite=True"):
        intarsia.store_dask(da.ones(4, chunks=2), repo, "a")
    assert intarsia.open(repo, "a")[...].sum() == 0
    intarsia.store_dask(da.ones(6, chunks=2), repo, "a", overwrite=True)
    assert intarsia.open(repo, "a")[...].sum() == 6


def test_masked_arrays_become_nullable_ones(repo):
    masked = da.ma.masked_equal(da.from_array(numbers(7), chunks=3), 4)
    intarsia.store_dask(masked, repo, "a")
    assert intarsia.open(repo, "a")[...].tolist() == [0, 1, 2, 3, None, 5, 6]
    intarsia.store_dask(masked[3:], repo, "a", axis=0, codecs=["gzip"])
    assert intarsia.open(repo, "a")[7:].tolist() == [3, None, 5, 6]
    intarsia.store_dask(da.from_array(numbers(7), chunks=3), repo, "b")
    with pytest.raises(intarsia.errors.NullsPresentError, match=r"1 of . values are masked"):
        intarsia.store_dask(masked, repo, "b", axis=0)
    assert intarsia.open(repo, "b").shape == (7,)


def test_codecs_auto_looks_at_a_block(repo):
    intarsia.store_dask(da.from_array(numbers(100, 10), chunks=(10, 10)), repo, "a", codecs="auto")
    assert intarsia.open(repo, "a").regions[0].codecs


# Appending


@dear
@given(st.data())
def test_appending_equals_concatenating(data):
    array, model = data.draw(arrays(max_ndim=3).filter(lambda drawn: drawn[1].ndim > 0))
    axis = data.draw(st.integers(0, array.ndim - 1))
    shape = model.shape[:axis] + (data.draw(st.integers(0, 7)),) + model.shape[axis + 1 :]
    values = numbers(*shape, dtype=model.dtype)
    blocks = tuple(data.draw(st.integers(1, 4)) for _ in shape)
    codecs = data.draw(st.none() | codec_lists(array.ndim))
    intarsia.store_dask(da.from_array(values, chunks=blocks), array.store, "a", axis=axis, codecs=codecs)
    stored = intarsia.open(array.store, "a")
    assert np.array_equal(stored[...], np.concatenate([model, values], axis=axis))
    assert intarsia.verify(stored) == ()


@dear
@given(st.data())
def test_appending_to_packed_and_turned_regions_equals_concatenating(data):
    array, model = data.draw(backings.arrays().filter(lambda drawn: drawn[1].ndim > 0))
    axis = data.draw(st.integers(0, array.ndim - 1))
    shape = model.shape[:axis] + (data.draw(st.integers(0, 5)),) + model.shape[axis + 1 :]
    values = numbers(*shape, dtype=model.dtype) + 0.123
    intarsia.store_dask(da.from_array(values, chunks=2), array.store, "a", axis=axis)
    stored = intarsia.open(array.store, "a")
    np.testing.assert_array_equal(stored[...], np.concatenate([model, values], axis=axis))


@dear
@given(st.data())
def test_packed_and_turned_regions_are_written_into(data):
    array, model = data.draw(backings.arrays().filter(lambda drawn: drawn[1].ndim and drawn[0].regions))
    for region in array.regions:
        box = tuple(slice(a, b) for a, b in region.bounds)
        values = numbers(*region.shape, dtype=model.dtype) % 20
        blocks = tuple(data.draw(st.integers(1, 4)) for _ in model.shape)
        source = da.from_array(values, chunks=blocks)
        intarsia.store_dask(source, array.store, "a", bounds=region.bounds)
        model[box] = (
            values if region.packing is None else region.packing.decode(region.packing.encode(values))
        )
    np.testing.assert_array_equal(intarsia.open(array.store, "a")[...], model)


def test_a_series_keeps_its_chunks_and_grows_while_its_codecs_stay(repo):
    for day in range(4):
        intarsia.store_dask(
            da.from_array(numbers(3, 6) + day, chunks=(1, 2)), repo, "a", axis="time", codecs=["gzip"],
            dimension_names=["time", "x"], chunks=(4, 6) if not day else None,
        )  # fmt: skip
    intarsia.store_dask(da.from_array(numbers(3, 6), chunks=(1, 2)), repo, "a", axis=0, codecs=["zstd"])
    array = intarsia.open(repo, "a")
    assert [(r.bounds[0], r.chunks) for r in array.regions] == [((0, 12), (4, 6)), ((12, 15), (4, 6))]
    assert np.array_equal(array[:12], np.concatenate([numbers(3, 6) + day for day in range(4)]))


@pytest.mark.parametrize("codecs", [["gzip"], ["zstd"], None])
@pytest.mark.parametrize("theirs", [2, 3])  # so that what was uploaded still fits, and so that it does not
def test_an_append_in_between_moves_this_one_on_and_computes_nothing_twice(repo, codecs, theirs):
    intarsia.store_dask(da.from_array(numbers(6, 4), chunks=(2, 4)), repo, "a", codecs=["gzip"])
    calls = []

    def meanwhile(block):
        calls.append(1)
        if len(calls) == 1:
            intarsia.append(repo, "a", np.full((theirs, 4), -1, "i4"), codecs=["gzip"])
        return block

    source = da.from_array(numbers(5, 4), chunks=(-1, -1)).map_blocks(meanwhile, meta=np.empty((0, 0), "i4"))
    intarsia.store_dask(source, repo, "a", axis=0, codecs=codecs)
    expected = np.concatenate([numbers(6, 4), np.full((theirs, 4), -1), numbers(5, 4)])
    array = intarsia.open(repo, "a")
    assert np.array_equal(array[...], expected)
    assert intarsia.verify(array) == ()
    assert len(calls) == 1


@pytest.mark.parametrize("theirs", [2, 3])
def test_what_a_turned_region_took_moves_on_as_the_array_has_it(repo, theirs):
    with intarsia.transaction(repo, message="turned") as tx:
        array = tx.create("a", shape=(6, 4), chunks=(2, 4), dtype="f8")
        member = array.group.create_array("m", shape=(4, 6), chunks=(4, 2), dtype="f8", compressors=None)
        member[...] = numbers(6, 4).T
        turned = intarsia.View.identity(2).transpose(1, 0).flip(1, length=4)
        array.add_region(((0, 6), (0, 4)), member="m", view=turned)
    others = np.full((theirs, 4), -1.0)

    def slow(block):
        if not done:
            done.append(intarsia.append(repo, "a", others))
        return block

    done = []
    source = da.from_array(numbers(5, 4) + 100.0, chunks=(5, 4)).map_blocks(
        slow, dtype="f8", meta=np.empty((0, 0))
    )
    intarsia.store_dask(source, repo, "a", axis=0)
    found = intarsia.open(repo, "a")
    whole = np.concatenate([numbers(6, 4)[:, ::-1], others, numbers(5, 4) + 100.0])
    np.testing.assert_array_equal(found[...], whole)


def test_nulls_move_on_as_well(repo):
    with intarsia.transaction(repo, message="make") as tx:
        tx.create("a", shape=(0,), chunks=(2,), dtype="optional[int32]").append([None, 1, 2])

    def meanwhile(block):
        if len(intarsia.open(repo, "a")) == 3:
            intarsia.append(repo, "a", [None], codecs=["gzip"])
        return block

    masked = da.ma.masked_equal(da.from_array(numbers(5), chunks=5).map_blocks(meanwhile, meta=numbers(0)), 1)
    intarsia.store_dask(masked, repo, "a", axis=0, codecs=["zstd"])
    assert intarsia.open(repo, "a")[...].tolist() == [None, 1, 2, None, 0, None, 2, 3, 4]


def test_what_fits_into_the_partial_last_chunk_goes_there(repo):
    intarsia.store_dask(da.from_array(numbers(5), chunks=4), repo, "a", codecs=["gzip"])
    intarsia.store_dask(da.from_array(numbers(2), chunks=1), repo, "a", axis=0, codecs=["zstd"])
    array = intarsia.open(repo, "a")
    assert array[...].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert len(array.regions) == 1
    before = repo.lookup_branch("main")
    assert intarsia.store_dask(da.from_array(numbers(0), chunks=1), repo, "a", axis=0) == before


def test_a_wrong_axis_or_shape_is_refused_and_nothing_changes(repo):
    intarsia.store_dask(da.from_array(numbers(4, 3), chunks=2), repo, "a", dimension_names=["y", "x"])
    before = repo.lookup_branch("main")
    data = da.from_array(numbers(2, 3), chunks=2)
    for axis, source, error in (
        ("z", data, intarsia.errors.BoundsError),
        (2, data, intarsia.errors.BoundsError),
        (1, data, intarsia.errors.ShapeError),
        (0, data[0], intarsia.errors.ShapeError),
        (0, data.astype("f8") + 0.5, intarsia.errors.DataTypeError),
    ):
        with pytest.raises(error):
            intarsia.store_dask(source, repo, "a", axis=axis)
    assert repo.lookup_branch("main") == before


# Boxes


def test_a_free_box_becomes_a_region_and_a_covered_one_is_written_into(repo):
    with intarsia.transaction(repo, message="make") as tx:
        tx.create("a", shape=(8, 8), chunks=(2, 2), dtype="i4", fill_value=-1)
    model = np.full((8, 8), -1)
    for bounds, codecs in (
        (((0, 4), (0, 8)), ["gzip"]),
        (((4, 8), (0, 4)), ["zstd"]),
        (((1, 6), (1, 4)), None),
    ):
        box = tuple(slice(a, b) for a, b in bounds)
        values = numbers(*(b - a for a, b in bounds)) * 10
        intarsia.store_dask(da.from_array(values, chunks=3), repo, "a", bounds=bounds, codecs=codecs)
        model[box] = values
    array = intarsia.open(repo, "a")
    assert np.array_equal(array[...], model)
    assert len(array.regions) == 2


def test_two_regions_of_one_member_that_share_a_chunk_do_not_lose_each_other():
    store = zarr.storage.MemoryStore()
    array = intarsia.create(store, "a", shape=(12,), chunks=(2,), dtype="i4")
    array.add_region(((0, 12),), codecs=["gzip"], data=np.zeros(12, "i4"), chunks=(12,))
    array.drop_region(((4, 6),))
    array.add_region(((4, 6),), codecs=["zstd"])
    intarsia.store_dask(da.from_array(numbers(12), chunks=3), store, "a", bounds=((0, 12),))
    assert np.array_equal(intarsia.open(store, "a")[...], numbers(12))


def test_boxes_that_make_no_sense_are_refused(repo):
    with intarsia.transaction(repo, message="make") as tx:
        tx.create("a", shape=(8,), chunks=(2,), dtype="i4").add_region(((0, 4),), codecs=["gzip"])
    data = da.from_array(numbers(4), chunks=2)
    for bounds, options, error, message in (
        (((6, 10),), {}, intarsia.errors.BoundsError, "outside the array"),
        (((0, 3),), {}, intarsia.errors.ShapeError, r"the data has shape \(4,\)"),
        (((2, 6),), {}, intarsia.errors.NoRegionError, "2 of the 4 elements"),
        (((0, 4),), {"codecs": ["zstd"]}, intarsia.errors.OverlapError, r"arr\.recode"),
        (((0, 4),), {"axis": 0}, TypeError, "not both"),
    ):
        with pytest.raises(error, match=message):
            intarsia.store_dask(data, repo, "a", bounds=bounds, **options)
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match="with a box to fill"):
        intarsia.store_dask(data, repo, "b", bounds=((0, 4),))


# Refusals, failures, targets


def test_what_cannot_be_stored_is_refused(repo):
    with pytest.raises(TypeError, match="'ndarray' is not a dask array"):
        intarsia.store_dask(numbers(3), repo, "a")
    unknown = da.from_array(numbers(9), chunks=3)
    unknown = unknown[unknown > 4]
    with pytest.raises(intarsia.errors.ShapeError, match="compute_chunk_sizes"):
        intarsia.store_dask(unknown, repo, "a")
    with pytest.raises(intarsia.errors.ReadOnlyError, match="can only be read"):
        intarsia.store_dask(da.zeros(4, chunks=2), repo.readonly_session("main"), "a")
    assert len(list(repo.ancestry(branch="main"))) == 1


@pytest.mark.parametrize("axis", [None, 0])
def test_a_block_that_fails_leaves_nothing_behind(repo, axis):
    store = zarr.storage.MemoryStore()
    for target in (repo, store):
        intarsia.store_dask(da.from_array(numbers(5), chunks=4), target, "a", codecs=["gzip"])
    keys, commits = set(store._store_dict), len(list(repo.ancestry(branch="main")))

    def fail(block):
        if block[0] >= 4:
            raise RuntimeError("no more data")
        return block

    source = da.from_array(numbers(8), chunks=2).map_blocks(fail, meta=np.empty(0, "i4"))
    for target in (repo, store):
        with pytest.raises(RuntimeError, match="no more data"):
            intarsia.store_dask(source, target, "b" if axis is None else "a", axis=axis, codecs=["zstd"])
        assert intarsia.open(target, "a")[...].tolist() == [0, 1, 2, 3, 4]
    assert len(list(repo.ancestry(branch="main"))) == commits
    assert {key for key in store._store_dict if "/c/" not in key} == {key for key in keys if "/c/" not in key}


class Hesitant(zarr.storage.MemoryStore):
    """Stores the first chunk some time after another block has failed."""

    def __init__(self):
        super().__init__()
        self.storing = threading.Event()
        self.removed = threading.Event()

    def set_sync(self, key, value):
        if key.endswith("c/0"):
            self.storing.set()
            self.removed.wait(0.3)
        super().set_sync(key, value)

    async def delete_dir(self, prefix):
        await super().delete_dir(prefix)
        if prefix.strip("/") == "a":  # the last thing to be removed
            self.removed.set()


@pytest.mark.parametrize("late", [False, True], ids=["being written", "being computed"])
def test_a_block_that_has_begun_when_another_fails_leaves_nothing_behind(late):
    store, begun, failing = Hesitant(), threading.Event(), threading.Event()

    def compute(block, block_id=()):
        if block_id == (1,):
            (begun if late else store.storing).wait()
            failing.set()
            raise RuntimeError("no more data")
        begun.set()
        if late:
            failing.wait()
            store.removed.wait(0.3)
        return block

    source = da.ones(4, chunks=2, dtype="i4").map_blocks(compute, meta=np.empty(0, "i4"))
    with (
        dask.config.set(scheduler="threads", num_workers=2),
        pytest.raises(RuntimeError, match="no more data"),
    ):
        intarsia.store_dask(source, store, "a", codecs=["gzip"])
    assert store.removed.is_set()
    assert set(store._store_dict) <= {"zarr.json"}


class Stuck(AsyncOnly):
    """Does not end storing the first chunk before it is told to."""

    storing, released = threading.Event(), threading.Event()

    async def set(self, key, value):
        if key.endswith("c/0"):
            self.storing.set()
            await asyncio.to_thread(self.released.wait)
        await super().set(key, value)


def test_ctrl_c_does_not_wait_for_a_block_that_is_being_written():
    store = Stuck(zarr.storage.MemoryStore())

    def second_later(block, block_id=()):
        if block_id == (1,):
            store.storing.wait()
        return block

    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    source = da.ones(4, chunks=2, dtype="i4").map_blocks(second_later, meta=np.empty(0, "i4"))
    with dask.config.set(scheduler="threads", num_workers=2), pytest.raises(KeyboardInterrupt):
        intarsia.store_dask(source, store, "a", codecs=["gzip"], progress=interrupt)
    store.released.set()


def test_transactions_sessions_groups_and_paths_are_written_to_without_a_commit(repo, tmp_path):
    data = da.from_array(numbers(4), chunks=2)
    with intarsia.transaction(repo, message="both") as tx:
        assert intarsia.store_dask(data, tx, "a") is None
        assert intarsia.store_dask(data, tx.session, "b") is None
        group = zarr.open_group(tx.store, path="deep", mode="a")
        assert intarsia.store_dask(data, group, "c") is None
    assert len(list(repo.ancestry(branch="main"))) == 2
    for path in ("a", "b", "deep/c"):
        assert np.array_equal(intarsia.open(repo, path)[...], numbers(4))
    intarsia.store_dask(data, tmp_path / "plain.zarr", "a")
    assert np.array_equal(intarsia.open(tmp_path / "plain.zarr", "a")[...], numbers(4))


def test_progress_is_told_from_nothing_to_all(repo):
    seen = []
    source = da.from_array(numbers(10), chunks=2)
    intarsia.store_dask(source, repo, "a", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 5) for done in range(6)]


def test_threads_write_into_the_memory_of_this_process(repo):
    with dask.config.set(scheduler="threads"):
        intarsia.store_dask(da.from_array(numbers(40, 10), chunks=(3, 4)), repo, "a", codecs=["zstd"])
    assert np.array_equal(intarsia.open(repo, "a")[...], numbers(40, 10))


def length(encoded):
    return b"LEN%05d" % len(encoded)


PAD = intarsia.codecs.PadCodec(location="start", nbytes=8, padding_func=length)
DECIDING = intarsia.codecs.ConditionalCodec(codecs=["zstd"], decision="compress_if_smaller")


def written_with_options(array):
    """Whether all chunks are compressed and have their headers."""
    for member in array.members.values():
        assert intarsia.codecs.masks(member).all()
        for i in range(member.cdata_shape[0]):
            key = f"{member.path}/{member.metadata.encode_chunk_key((i, 0))}"
            assert sync(member.store.get(key, default_buffer_prototype())).to_bytes()[:3] == b"LEN"
    return True


@pytest.mark.parametrize("kind", ["repository", "directory"])
def test_blocks_are_written_with_the_options_of_the_call(kind, tmp_path):
    target = str(tmp_path / "x")
    if kind == "repository":
        target = intarsia.open_repository(target, create=True)
    data = da.ones((32, 64), chunks=(16, 64), dtype="u2")
    intarsia.store_dask(data, target, "x", codecs=[DECIDING, PAD])
    intarsia.store_dask(data, target, "x", axis=0, codecs=[DECIDING, PAD])  # the member grows
    for part in (data, data[:8], data):
        intarsia.store_dask(part, target, "x", axis=0, codecs=[DECIDING, PAD, "crc32c"])
    array = intarsia.open(target, "x")
    assert array.shape == (136, 64)
    assert written_with_options(array)
    box = [(16, 48), (0, 64)]
    with pytest.raises(intarsia.errors.ChunkEncodeError, match="with_padding"):
        intarsia.store_dask(data, target, "x", bounds=box)
    with pytest.raises(intarsia.errors.OverlapError):
        intarsia.store_dask(data, target, "x", bounds=box, codecs=[PAD])
    intarsia.store_dask(data + 1, target, "x", bounds=box, codecs=[DECIDING, PAD])  # those that are there
    assert written_with_options(intarsia.open(target, "x"))
    assert (intarsia.open(target, "x")[16:48] == 2).all()
    with pytest.raises(intarsia.errors.ChunkEncodeError, match="with_padding"):
        intarsia.store_dask(data, target, "x", axis=0)
    assert intarsia.open(target, "x").shape == (136, 64)


@pytest.mark.parametrize("path", ["", "a/b"])
def test_a_new_directory_may_be_the_array_itself(path, tmp_path):
    for axis in (None, 0):
        intarsia.store_dask(da.from_array(numbers(4), chunks=2), tmp_path / "new.zarr", path, axis=axis)
    assert intarsia.open(tmp_path / "new.zarr", path)[...].tolist() == [0, 1, 2, 3] * 2
