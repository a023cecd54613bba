"""Opening with xarray: lazily, from anything, at any version, and with every selection that xarray knows."""

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from tests.interop.datasets import CountingStore, stored_in_parts, weather


@pytest.fixture(scope="module")
def dataset():
    return weather()


@pytest.fixture(scope="module")
def store(dataset):
    store = zarr.storage.MemoryStore()
    stored_in_parts(
        dataset,
        store,
        lattice={"t": (2, 3, 5), "n": (1, 7)},
        encoding={"t": {"chunks": (4, 3, 2)}, "n": {"chunks": (3, 4)}},
    )
    return store


def open_dataset(source, **options):
    return xr.open_dataset(source, engine="intarsia", **options)


def test_a_stored_dataset_is_identical_and_lazy(store, dataset):
    opened = open_dataset(store)
    assert not opened["t"].variable._in_memory
    xr.testing.assert_identical(opened.load(), dataset)


# Selections


def axis_slice(rng, n):
    start, stop = (None if rng.random() < 0.3 else int(rng.integers(-n - 2, n + 3)) for _ in range(2))
    step = int(rng.choice([-3, -2, -1, 1, 2, 5]))
    if step < 0 and start is not None and start < -n:
        start = -n  # xarray takes [-n - 1 :: -1], which is empty, for [::-1], whatever the backend
    return slice(start, stop, step)


def axis_indices(rng, n):
    if rng.random() < 0.2:
        return rng.random(n) < 0.5
    return rng.integers(-n, n, int(rng.integers(0, 6)))


def basic(rng, sizes):
    return {
        dim: int(rng.integers(-n, n)) if rng.random() < 0.3 else axis_slice(rng, n)
        for dim, n in sizes.items()
        if rng.random() < 0.8
    }


def outer(rng, sizes):
    chosen = basic(rng, sizes)
    for dim, n in sizes.items():
        if rng.random() < 0.6:
            chosen[dim] = axis_indices(rng, n)
    return chosen


def vectorized(rng, sizes):
    shape = tuple(int(n) for n in rng.integers(0, 4, int(rng.integers(1, 3))))
    dims = [dim for dim in "pqrstuvw" if dim not in sizes][: len(shape)]
    chosen = basic(rng, sizes) if rng.random() < 0.5 else {}
    for dim, n in sizes.items():
        if rng.random() < 0.7:
            chosen[dim] = xr.DataArray(rng.integers(-n, n, shape), dims=dims)
    return chosen


@pytest.mark.parametrize("count", [250, pytest.param(1000, marks=pytest.mark.torture)])
@pytest.mark.parametrize("kind", [basic, outer, vectorized])
def test_selections_by_position_equal_those_in_memory(kind, count, store, dataset):
    opened = xr.open_dataset(store, engine="intarsia", cache=False)
    for seed in range(count):
        chosen = kind(np.random.default_rng(seed), dict(dataset.sizes))
        expected, actual = dataset.isel(chosen), opened.isel(chosen)
        assert expected.identical(actual.load()), f"seed {seed}: {chosen}"


def test_selections_after_selections_equal_those_in_memory(store, dataset):
    opened = xr.open_dataset(store, engine="intarsia", cache=False)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        expected, actual, steps = dataset, opened, []
        for kind in rng.choice(np.array([basic, outer, vectorized], dtype=object), 3):
            steps.append(kind(rng, dict(expected.sizes)) if 0 not in expected.sizes.values() else {})
            expected, actual = expected.isel(steps[-1]), actual.isel(steps[-1])
        assert expected.identical(actual.load()), f"seed {seed}: {steps}"


def test_selections_by_label_equal_those_in_memory(store, dataset):
    opened = open_dataset(store)
    for chosen in (
        {"time": "2024-01-05"},
        {"time": slice("2024-01-03", "2024-01-12"), "lat": slice(-30, 30)},
        {"lon": [72.0, 0.0]},
        {"time": np.array(["2024-01-16", "2024-01-02"], "M8[ns]"), "lat": -60.0},
    ):
        xr.testing.assert_identical(opened.sel(chosen).load(), dataset.sel(chosen))
    chosen = {"lat": xr.DataArray([1.0, 55.0], dims="p"), "lon": xr.DataArray([70.0, 3.0], dims="p")}
    actual = opened.sel(chosen, method="nearest")
    xr.testing.assert_identical(actual.load(), dataset.sel(chosen, method="nearest"))


def test_a_selection_reads_only_the_chunks_that_it_touches(store):
    counting = CountingStore(store)
    opened = open_dataset(counting, drop_variables=["time", "lat", "lon"])
    assert counting.chunks_read == []
    opened["t"][0, 0, 0].load()
    assert len(counting.chunks_read) == 1


def test_async_loading_reads_the_same(store, dataset):
    import asyncio

    xr.testing.assert_identical(asyncio.run(open_dataset(store).load_async()), dataset)


# Many regions


def many_regions(count):
    """An array of `count` regions with a member each, made by copying the files of one."""
    store = {}
    array = intarsia.create(
        store, "t", shape=(0, 4), chunks=(2, 4), dtype="f4", dimension_names=["time", "x"]
    )
    array.append(np.ones((2, 4), "f4"), codecs=["gzip"])
    (name,) = array.manifest.members
    table = array.manifest.regions
    names = (name, *(f"m-{i:032x}" for i in range(1, count)))
    for copy in names[1:]:
        for key in [key for key in store if key.startswith(f"t/{name}/")]:
            store[key.replace(name, copy)] = store[key]
    starts = np.arange(count, dtype=np.int64)
    column = np.stack([starts, np.zeros_like(starts)], axis=1)
    regions = type(table).of(starts, column, column + [1, 1], np.zeros_like(column))
    logical = array._logical
    logical.commit(replace(array.manifest, members=names).changed(regions, shape=(2 * count, 4)))
    return store


def test_opening_a_thousand_regions_reads_no_chunk_and_less_than_2_mb():
    store = CountingStore(zarr.storage.MemoryStore(many_regions(1000)))
    opened = open_dataset(store)
    assert opened["t"].shape == (2000, 4)
    assert store.chunks_read == []
    assert store.bytes_read < 2_000_000
    chunked = open_dataset(store, chunks={})
    assert chunked["t"].data.numblocks == (1000, 1)
    assert store.chunks_read == []
    assert store.bytes_read < 2_000_000


# What can be opened


@pytest.fixture
def repo(tmp_path):
    return intarsia.open_repository(tmp_path / "repo", create=True)


def test_a_repository_opens_by_object_path_url_session_store_group_and_array(repo, tmp_path, dataset):
    intarsia.from_xarray(dataset, repo, "ocean/daily")
    session = repo.readonly_session("main")
    group = zarr.open_group(session.store, path="ocean", mode="r")
    path = tmp_path / "repo"
    for source in (repo, path, str(path), f"file://{path}", session, session.store):
        xr.testing.assert_identical(open_dataset(source, group="ocean/daily").load(), dataset)
        xr.testing.assert_identical(open_dataset(source, group="/ocean/daily/").load(), dataset)
    xr.testing.assert_identical(open_dataset(group, group="daily").load(), dataset)
    array = open_dataset(intarsia.open(repo, "ocean/daily/t"))
    xr.testing.assert_identical(array["t"].load(), dataset["t"])


def test_a_transaction_shows_what_it_has_not_committed_yet(repo, dataset):
    with intarsia.transaction(repo, message="first") as tx:
        intarsia.from_xarray(dataset, tx)
        xr.testing.assert_identical(open_dataset(tx).load(), dataset)
        xr.testing.assert_identical(open_dataset(tx.session).load(), dataset)
    xr.testing.assert_identical(open_dataset(repo).load(), dataset)


def test_a_plain_directory_opens_by_path(tmp_path, dataset):
    intarsia.from_xarray(dataset, str(tmp_path / "plain.zarr"))
    xr.testing.assert_identical(open_dataset(tmp_path / "plain.zarr").load(), dataset)


def test_repositories_are_recognised_without_naming_the_engine(repo, tmp_path, dataset):
    intarsia.from_xarray(dataset, repo)
    session = repo.readonly_session("main")
    for source in (tmp_path / "repo", repo, session, session.store):
        xr.testing.assert_identical(xr.open_dataset(source).load(), dataset)


def test_versions_are_options(repo, dataset):
    first = intarsia.from_xarray(dataset[{"time": slice(5)}], repo)
    when = next(repo.ancestry(snapshot_id=first)).written_at
    repo.create_tag("v1", first)
    repo.create_branch("old", first)
    intarsia.from_xarray(dataset[{"time": slice(5, None)}], repo, append_dim="time")
    assert open_dataset(repo).sizes["time"] == 17
    for version in ({"snapshot_id": first}, {"tag": "v1"}, {"branch": "old"}, {"as_of": when}):
        opened = open_dataset(repo, **version)
        xr.testing.assert_identical(opened.load(), dataset[{"time": slice(5)}])
        assert xr.open_datatree(repo, engine="intarsia", **version).sizes["time"] == 5


def test_a_version_of_something_without_versions_is_refused(store):
    with pytest.raises(TypeError, match=r"only an Icechunk repository takes.*but this is 'MemoryStore'"):
        open_dataset(store, branch="main")


def test_a_group_that_is_not_there_says_so(repo):
    intarsia.from_xarray(weather(), repo)
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match="'nowhere'"):
        open_dataset(repo, group="nowhere")


def test_a_store_that_is_not_there_is_a_file_that_is_not_found(tmp_path):
    for engine in ("zarr", "intarsia"):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            xr.open_dataset(tmp_path / "nowhere", engine=engine)


def test_dropped_variables_are_not_even_looked_at(dataset):
    store = zarr.storage.MemoryStore()
    intarsia.from_xarray(dataset, store)
    document = dict(zarr.open_group(store, path="n").attrs)
    del document["intarsia"]["members"]
    zarr.open_group(store, path="n").attrs.put(document)  # damaged
    with pytest.raises(intarsia.errors.ManifestError):
        open_dataset(store)
    xr.testing.assert_identical(open_dataset(store, drop_variables="n").load(), dataset.drop_vars("n"))


def test_a_tree_has_groups_for_nodes_and_logical_arrays_for_variables(repo, dataset):
    nodes = {"/": dataset[["n"]], "/a": xr.Dataset({"v": ("x", [1, 2])}), "/a/b": dataset[["t"]]}
    tree = xr.DataTree.from_dict(nodes)
    intarsia.from_xarray(tree, repo)
    opened = xr.open_datatree(repo, engine="intarsia")
    xr.testing.assert_identical(opened.load(), tree)
    below = xr.open_datatree(repo, engine="intarsia", group="a")
    own = {path: tree[path].to_dataset(inherit=False) for path in ("a", "a/b")}
    xr.testing.assert_identical(below.load(), xr.DataTree.from_dict({"/": own["a"], "/b": own["a/b"]}))


# Travelling


def test_an_opened_dataset_travels_to_another_process(repo, dataset, tmp_path):
    intarsia.from_xarray(dataset, repo)
    expected = float(dataset["t"].sum())
    (tmp_path / "lazy.pickle").write_bytes(pickle.dumps(open_dataset(repo)))
    (tmp_path / "dask.pickle").write_bytes(pickle.dumps(open_dataset(repo, chunks={})))
    program = """
import pickle, sys
for name in sys.argv[1:]:
    print(float(pickle.load(open(name, "rb"))["t"].sum()))
"""
    command = [
        sys.executable,
        "-c",
        program,
        *(str(tmp_path / f"{name}.pickle") for name in ("lazy", "dask")),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [float(line) for line in answer.stdout.split()] == pytest.approx([expected] * 2)


def test_the_dataset_of_a_writable_session_does_not_travel_and_says_what_to_use(repo, dataset):
    intarsia.from_xarray(dataset, repo)
    opened = open_dataset(repo.writable_session("main"))
    for data in (opened, opened.chunk(), opened["t"].chunk().data):
        with pytest.raises(intarsia.errors.WritableSessionError, match=r"use intarsia\.store_dask"):
            pickle.dumps(data)
    opened.copy(deep=True).load()  # while copies within the process are no problem


# dask


def test_chunks_follow_the_members(store):
    chunked = open_dataset(store, chunks={})
    assert chunked["t"].chunks == ((4, 2, 4, 4, 3), (3, 3, 1), (2, 2, 1))
    assert chunked["n"].chunks == ((3, 2, 3, 1, 3, 3, 2), (4, 3))


def test_blocks_of_different_versions_have_different_names(repo, dataset):
    intarsia.from_xarray(dataset, repo)
    before = open_dataset(repo, chunks={})
    assert before["t"].data.name == open_dataset(repo, chunks={})["t"].data.name
    intarsia.store_dask(dataset["t"].chunk().data[:4] * 0, repo, "t", bounds=((0, 4), (0, 7), (0, 5)))
    after = open_dataset(repo, chunks={})
    assert after["t"].data.name != before["t"].data.name
    assert float(abs(before["t"] - after["t"])[:4].max()) > 0


def test_mean_groupby_and_rolling_through_dask_equal_numpy(store, dataset):
    chunked = open_dataset(store, chunks={})
    xr.testing.assert_allclose(chunked.mean().compute(), dataset.mean())
    for work in (
        lambda data: data["t"].groupby("time.dayofyear").mean(),
        lambda data: data["t"].rolling(time=4).mean(),
        lambda data: data["n"].cumsum("time"),
        lambda data: data["t"].isel(time=[3, 16, 0], lat=slice(None, None, -2)) * 2,
    ):
        xr.testing.assert_allclose(work(chunked).compute(), work(dataset))
