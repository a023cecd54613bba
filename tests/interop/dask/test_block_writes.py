"""A real cluster of two processes: writing through forks, dying workers, reading, recoding, rewriting."""

import asyncio
import contextlib
import logging
import os
import signal
import warnings

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from distributed import Client, LocalCluster
from zarr.codecs import BytesCodec

import intarsia
from intarsia import parallel
from tests.interop.datasets import CODECS, stored_in_parts, weather


@contextlib.contextmanager
def two_processes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sockets and event loops, which are not ours
        cluster = LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
        with cluster, Client(cluster) as client:
            yield client


@pytest.fixture(scope="module")
def client():
    with two_processes() as client:
        yield client


@pytest.fixture
def own_client():
    """For tests after which a cluster may be short of workers."""
    with two_processes() as client:
        yield client


@pytest.fixture
def repo(tmp_path):
    return intarsia.open_repository(tmp_path / "repo", create=True)


def numbers(*shape):
    return np.arange(np.prod(shape), dtype="i4").reshape(shape)


def five_members(length, width):
    """Bounds of five regions along the first axis, each with its codecs."""
    step = length // 5
    return {((i * step, (i + 1) * step), (0, width)): codecs for i, codecs in enumerate(CODECS)}


def make_regions(repo, path, shape, regions):
    """A logical array whose regions hold nothing yet."""
    with intarsia.transaction(repo, message="make") as tx:
        array = tx.create(path, shape=shape, chunks=(10, 10), dtype="i4")
        for bounds, codecs in regions.items():
            array.add_region(bounds, codecs=codecs)


def dying(array, flag, at):
    """The array, but the first worker that computes block number `at` is killed by it."""

    def compute(block, block_info=None):
        number = block_info[0]["chunk-location"]
        if number[0] * 10 + number[1] == at:
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return block  # somebody died of it already
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    return array.map_blocks(compute, meta=np.empty((0, 0), array.dtype))


def test_200_chunks_over_5_members_survive_a_killed_worker(client, repo, tmp_path):
    source = dying(da.from_array(numbers(200, 100), chunks=(10, 10)), str(tmp_path / "died"), at=97)
    seen = []
    make_regions(repo, "a", (200, 100), five_members(200, 100))
    snapshot = intarsia.store_dask(
        source, repo, "a", bounds=((0, 200), (0, 100)),
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert (tmp_path / "died").exists()
    array = intarsia.open(repo, "a")
    assert np.array_equal(array[...], numbers(200, 100))
    assert [region.codec_names for region in array.regions] == ["gzip", "zstd", "raw", "blosc", "zstd+crc32c"]
    assert intarsia.verify(array) == ()
    assert seen == [(done, 200) for done in range(201)]  # nothing lost, nothing double
    assert repo.lookup_branch("main") == snapshot
    assert len(list(repo.ancestry(branch="main"))) == 3


def test_results_that_the_scheduler_forgets_to_send_are_requested_again(client, repo, monkeypatch):
    """As happens when a worker dies while the scheduler fetches from it."""
    handlers = client.cluster.scheduler.handlers
    fetch, forgotten = handlers["gather"], []

    async def forgetful(*args, **kwargs):
        if len(forgotten) < 3:
            forgotten.append(kwargs)
            await asyncio.Event().wait()
        return await fetch(*args, **kwargs)

    monkeypatch.setitem(handlers, "gather", forgetful)
    monkeypatch.setattr(parallel, "FIRST_TIMEOUT", 0.5)
    source = da.from_array(numbers(40, 100), chunks=(10, 10))
    intarsia.store_dask(source, repo, "a", chunks=(10, 10))
    assert np.array_equal(intarsia.open(repo, "a")[...], numbers(40, 100))
    forgotten.clear()
    intarsia.recode(repo, "a", [(0, 40), (0, 100)], codecs=["zstd"], client=client)
    assert np.array_equal(intarsia.open(repo, "a")[...], numbers(40, 100))
    assert len(forgotten) == 3


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(8))
def test_workers_killed_at_any_moment_lose_nothing(own_client, repo, seed):
    """Killed from outside, whatever they are doing, when so many blocks are written."""
    rng = np.random.default_rng(seed)
    moments = {int(moment) for moment in rng.integers(0, 200, 2)}
    print(f"seed {seed}: a worker dies after {sorted(moments)} blocks")

    def kill(done, total):
        if done in moments:
            moments.discard(done)
            alive = [nanny.pid for nanny in own_client.cluster.workers.values() if nanny.pid]
            os.kill(int(rng.choice(alive)), signal.SIGKILL)

    source = da.from_array(numbers(200, 100), chunks=(10, 10))
    make_regions(repo, "a", (200, 100), five_members(200, 100))
    intarsia.store_dask(source, repo, "a", bounds=((0, 200), (0, 100)), progress=kill)
    array = intarsia.open(repo, "a")
    assert np.array_equal(array[...], numbers(200, 100))
    assert intarsia.verify(array) == ()


@pytest.mark.torture
def test_an_append_survives_a_killed_worker(client, repo, tmp_path):
    intarsia.store_dask(da.from_array(numbers(15, 100), chunks=(10, 10)), repo, "a", codecs=["gzip"])
    source = dying(da.from_array(numbers(60, 100), chunks=(10, 10)), str(tmp_path / "died"), at=23)
    intarsia.store_dask(source, repo, "a", axis=0, codecs=["zstd"])
    assert (tmp_path / "died").exists()
    assert np.array_equal(intarsia.open(repo, "a")[...], np.concatenate([numbers(15, 100), numbers(60, 100)]))


@pytest.mark.torture
def test_a_plain_store_survives_a_killed_worker_too(client, tmp_path):
    source = dying(da.from_array(numbers(60, 100), chunks=(10, 10)), str(tmp_path / "died"), at=23)
    intarsia.store_dask(source, tmp_path / "plain.zarr", "a", codecs=["zstd"])
    assert (tmp_path / "died").exists()
    assert np.array_equal(intarsia.open(tmp_path / "plain.zarr", "a")[...], numbers(60, 100))


def test_a_block_that_fails_is_tried_again_and_then_leaves_nothing(client, repo, tmp_path):
    flag = str(tmp_path / "failed")

    def fail_once(block):
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return block
        raise RuntimeError("the network is down")

    source = da.from_array(numbers(20, 10), chunks=(5, 10)).map_blocks(fail_once, meta=np.empty((0, 0), "i4"))
    with pytest.raises(RuntimeError, match="the network is down"):
        intarsia.store_dask(source, repo, "a", retries=0)
    assert len(list(repo.ancestry(branch="main"))) == 1
    os.remove(flag)
    intarsia.store_dask(source, repo, "a")
    assert np.array_equal(intarsia.open(repo, "a")[...], numbers(20, 10))


def test_memory_of_this_process_is_refused(client):
    source = da.from_array(numbers(20, 10), chunks=(5, 10))
    with pytest.raises(intarsia.errors.UnsharedStorageError, match="memory of this process"):
        intarsia.store_dask(source, zarr.storage.MemoryStore(), "a")
    repo = intarsia.open_repository("memory://", create=True)
    with pytest.raises(intarsia.errors.UnsharedStorageError, match="memory of another process"):
        intarsia.store_dask(source, repo, "a")
    assert len(list(repo.ancestry(branch="main"))) == 1


def test_datasets_are_written_read_and_reduced_by_the_workers(client, repo):
    dataset = weather(times=60)
    intarsia.from_xarray(dataset.chunk(time=7), repo, codecs={"t": ["gzip"], "n": ["zstd"]})
    opened = xr.open_dataset(repo, engine="intarsia", chunks={})
    xr.testing.assert_identical(opened.compute(), dataset)
    for work in (
        lambda data: data["t"].mean(),
        lambda data: data["t"].groupby("time.month").mean(),
        lambda data: data["t"].rolling(time=5).mean(),
    ):
        xr.testing.assert_allclose(work(opened).compute(), work(dataset))
    lazy = xr.open_dataset(repo, engine="intarsia")
    assert client.submit(lambda data: float(data["t"][3].sum()), lazy).result() == pytest.approx(
        float(dataset["t"][3].sum())
    )


def messages(error):
    while error is not None:
        yield str(error)
        error = error.__cause__ or error.__context__


def test_a_writable_session_does_not_travel_and_the_error_says_what_to_use(client, repo):
    stored_in_parts(weather(), repo)
    opened = xr.open_dataset(repo.writable_session("main"), engine="intarsia", chunks={})
    with pytest.raises(Exception) as caught:
        opened["t"].sum().compute()
    assert any("use intarsia.store_dask" in text for text in messages(caught.value))


def test_the_workers_make_a_replica_and_maintain_it(client, repo):
    intarsia.store_dask(da.from_array(numbers(60, 100), chunks=(10, 50)), repo, "a", codecs=["gzip"])
    seen = []
    intarsia.add_replica(repo, "a", chunks=(60, 10), client=client, progress=lambda *n: seen.append(n))
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1] > 0
    intarsia.write(repo, "a", np.s_[3], 0)
    assert [step.what for step in intarsia.maintain(repo, client=client)][:1] == ["replica"]
    array, expected = intarsia.open(repo, "a"), numbers(60, 100)
    expected[3] = 0
    for layer in (0, 1):
        np.testing.assert_array_equal(array.with_config(layer=layer)[...], expected)
    assert {part.layer for part in intarsia.explain(array, np.s_[:, 5]).parts} == {1}


def test_the_workers_recode(client, repo):
    intarsia.store_dask(da.from_array(numbers(60, 100), chunks=(10, 50)), repo, "a", codecs=["gzip"])
    seen = []
    with intarsia.transaction(repo, message="recode") as tx:
        array = tx.open("a")
        array.recode(((20, 50), (0, 100)), codecs=["zstd"], client=client, progress=lambda *n: seen.append(n))
    intarsia.recode(repo, "a", ((0, 20), (0, 50)), codecs=[], client=client)
    array = intarsia.open(repo, "a")
    assert np.array_equal(array[...], numbers(60, 100))
    assert array.region_at((30, 0)).codec_names == "zstd"
    assert array.region_at((0, 0)).codec_names == "raw"
    assert array.region_at((0, 60)).codec_names == "gzip"
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1] > 0


def length(encoded):
    return b"LEN%05d" % len(encoded)


def test_workers_write_with_the_options_of_this_process(client, repo, tmp_path):
    data = da.ones((32, 64), chunks=(16, 64), dtype="u2")
    undecided = intarsia.codecs.ConditionalCodec(codecs=["zstd"])
    deciding = undecided.with_decision(lambda codec: True)
    pad = intarsia.codecs.PadCodec(location="start", nbytes=8, padding_func=lambda encoded: length(encoded))
    intarsia.store_dask(data, repo, "codecs", codecs=[deciding, pad], client=client)
    intarsia.store_dask(data, repo, "codecs", axis=0, codecs=[deciding, pad], client=client)
    with zarr.config.set({"intarsia.decision": "always_apply"}):  # of this process alone
        intarsia.store_dask(data, repo, "default", codecs=[undecided], client=client)
        intarsia.recode(repo, "default", codecs=[undecided, "crc32c"], client=client)
    for name, chunks in (("codecs", 4), ("default", 2)):
        (member,) = intarsia.open(repo, name).members.values()
        assert intarsia.codecs.masks(member).ravel().tolist() == [1] * chunks
    z = zarr.create(
        store=tmp_path / "z", shape=(32, 64), chunks=(16, 64), dtype="u2",
        codecs=[BytesCodec(), undecided, intarsia.codecs.PadCodec(location="start", nbytes=8)],
    )  # fmt: skip
    array = intarsia.create(tmp_path, "logical", shape=(0, 64), chunks=(16, 64), dtype="u2")
    array.append(np.zeros((32, 64), "u2"), codecs=[undecided])
    da.store(
        data,
        intarsia.codecs.with_padding(intarsia.codecs.with_decision(z, "always_apply"), length),
        lock=False,
    )
    da.store(data, intarsia.codecs.with_decision(array, lambda codec: True), lock=False)
    assert (tmp_path / "z/c/1/0").read_bytes()[:3] == b"LEN"
    assert intarsia.codecs.masks(z).ravel().tolist() == [1, 1]
    (member,) = array.members.values()
    assert intarsia.codecs.masks(member).ravel().tolist() == [1, 1]
