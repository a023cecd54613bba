"""Which chunk am I? The index that reaches functions, under every pipeline, shard and key encoding."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.codec_pipeline import BatchedCodecPipeline, FusedCodecPipeline
from zarr.registry import register_pipeline
from zarr.storage import LocalStore, MemoryStore, WrapperStore

from intarsia.codecs import ConditionalCodec, PadCodec
from intarsia.codecs.codec_path import find_codecs
from intarsia.codecs.context import (
    BatchedPipeline,
    FusedPipeline,
    Grid,
    current_chunk_index,
    inner_position,
    working_on,
)
from intarsia.errors import ChunkDecodeError, ChunkIndexUnknownError
from tests.codecs.stores import AsyncOnly
from tests.grids import spread

LITTLE = BytesCodec(endian="little")


def stamp(encoded, chunk_index):
    """The index of the chunk, as the padding of it: wherever it lands in the store, it can be checked."""
    return np.array(chunk_index, dtype="<i4").tobytes()


def stamping(ndim):
    return PadCodec(location="start", nbytes=4 * ndim, padding_func=stamp)


def stamps(stored, ndim):
    return tuple(np.frombuffer(stored[: 4 * ndim], dtype="<i4").tolist())


def plain_chunks(store):
    """key -> bytes of everything but the metadata."""
    while isinstance(store, WrapperStore):
        store = store._store
    return {
        key: value.to_bytes() for key, value in store._store_dict.items() if not key.endswith("zarr.json")
    }


def recorded(seen):
    def record(chunk_index, unencoded_chunk):
        seen.append((chunk_index, bytes(unencoded_chunk)))
        return False

    return record


def chunk_of(data, index, shape):
    return data[tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, shape, strict=True))]


def assert_every_chunk_came_with_its_own_index(seen, data, shape):
    """`data` has no value twice, so that a chunk can be told by its values, in whatever order."""
    for index, content in seen:
        values = np.sort(np.frombuffer(content, dtype=data.dtype))
        np.testing.assert_array_equal(values, np.sort(chunk_of(data, index, shape), axis=None))
    grid = tuple(-(-n // m) for n, m in zip(data.shape, shape, strict=True))
    assert sorted(index for index, _ in seen) == sorted(np.ndindex(grid))


@pytest.mark.parametrize("encoding", [("default", "/"), ("default", "."), ("v2", "/"), ("v2", ".")])
@pytest.mark.parametrize("store_class", [MemoryStore, AsyncOnly])
def test_padding_functions_learn_the_index(encoding, store_class, our_pipeline):
    store = AsyncOnly(MemoryStore()) if store_class is AsyncOnly else MemoryStore()
    z = zarr.create(
        store=store, path="some/7/3", shape=(6, 6, 6), chunks=(2, 3, 2), dtype="u1",
        chunk_key_encoding=encoding, codecs=[LITTLE, stamping(3)],
    )  # fmt: skip
    data = np.random.default_rng(0).integers(1, 256, (6, 6, 6), dtype="u1")
    z[:] = data
    stored = plain_chunks(store)
    assert len(stored) == 18
    for index in np.ndindex(3, 2, 3):
        key = "some/7/3/" + z.metadata.encode_chunk_key(index)
        assert stamps(stored[key], 3) == index
    np.testing.assert_array_equal(z[:], data)


@pytest.mark.parametrize("encoding", [("default", "/"), ("default", "."), ("v2", "/"), ("v2", ".")])
def test_an_array_without_axes_has_one_chunk(encoding, our_pipeline):
    seen = []
    codec = ConditionalCodec(codecs=[ZstdCodec()], decision=recorded(seen))
    z = zarr.create(
        store=MemoryStore(),
        path="a/0",
        shape=(),
        dtype="u1",
        chunk_key_encoding=encoding,
        codecs=[LITTLE, codec],
    )
    z[...] = 3
    assert seen == [((), b"\x03")]


def layouts():
    """name -> shape of the inner chunk in the array's axes, codecs around the conditional one."""
    inner = (2, 3, 2)

    def shard(codecs, chunk_shape=inner, **options):
        return ShardingCodec(chunk_shape=chunk_shape, codecs=codecs, **options)

    return {
        "one shard level": lambda c: [shard([LITTLE, c])],
        "index at the start": lambda c: [shard([LITTLE, c], index_location="start")],
        "two shard levels": lambda c: [shard([shard([LITTLE, c])], chunk_shape=(4, 6, 2))],
        "transpose in the shard": lambda c: [shard([TransposeCodec(order=(2, 0, 1)), LITTLE, c])],
        "checksum after the shard": lambda c: [shard([LITTLE, c]), Crc32cCodec()],
        "transpose before the shard": lambda c: [
            TransposeCodec(order=(2, 0, 1)),
            shard([TransposeCodec(order=(1, 2, 0)), LITTLE, c], chunk_shape=(2, 2, 3)),
        ],
        "transposes at two levels": lambda c: [
            TransposeCodec(order=(2, 0, 1)),
            shard(
                [TransposeCodec(order=(2, 1, 0)), shard([TransposeCodec(order=(1, 0, 2)), LITTLE, c],
                                                        chunk_shape=(3, 2, 2))],
                chunk_shape=(2, 4, 6),
            ),
        ],
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@pytest.mark.parametrize(("layout", "store_class"), spread(layouts(), [MemoryStore, AsyncOnly]))
def test_inside_shards_the_index_counts_inner_chunks(layout, store_class, our_pipeline):
    seen = []
    codec = ConditionalCodec(codecs=[ZstdCodec()], decision=recorded(seen))
    store = AsyncOnly(MemoryStore()) if store_class is AsyncOnly else MemoryStore()
    z = zarr.create(
        store=store, path="g/a", shape=(24, 12, 12), chunks=(12, 12, 12), dtype="u2",
        codecs=layouts()[layout](codec),
    )  # fmt: skip
    data = np.arange(1, 24 * 12 * 12 + 1, dtype="u2").reshape(24, 12, 12)
    z[:] = data
    assert_every_chunk_came_with_its_own_index(seen, data, (2, 3, 2))
    np.testing.assert_array_equal(z[:], data)


def test_a_rectilinear_grid_of_shards(our_pipeline):
    seen = []
    codec = ConditionalCodec(codecs=[ZstdCodec()], decision=recorded(seen))
    with zarr.config.set({"array.rectilinear_chunks": True}):
        z = zarr.create_array(
            store=MemoryStore(), shape=(12, 8), chunks=(2, 4), shards=[[4, 6, 2], [4, 4]], dtype="u1",
            compressors=[codec],
        )  # fmt: skip
    data = np.arange(1, 97, dtype="u1").reshape(12, 8)
    z[:] = data
    assert_every_chunk_came_with_its_own_index(seen, data, (2, 4))


def test_a_partial_write_into_a_shard_asks_about_the_chunks_it_touches(our_pipeline):
    seen = []
    codec = ConditionalCodec(codecs=[ZstdCodec()], decision=recorded(seen))
    shards = ShardingCodec(chunk_shape=(2,), codecs=[LITTLE, codec])
    z = zarr.create(store=MemoryStore(), shape=16, chunks=8, dtype="u1", codecs=[shards])
    z[:] = np.arange(1, 17)
    seen.clear()
    z[7:11] = 99
    assert sorted(seen) == [((3,), b"\x07\x63"), ((4,), b"\x63\x63"), ((5,), b"\x63\x0c")]


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@given(data=st.data())
def test_any_order_of_axes_and_any_shapes(data):
    ndim = data.draw(st.integers(1, 3))
    inner = tuple(data.draw(st.integers(1, 3)) for _ in range(ndim))
    order = tuple(data.draw(st.permutations(range(ndim))))
    # zarr checks that shards divide evenly before it reorders the axes as well as after.
    shard = (6,) * ndim
    shape = (data.draw(st.sampled_from([6, 12])), *shard[1:])
    seen = []
    codec = ConditionalCodec(codecs=[ZstdCodec()], decision=recorded(seen))
    back = tuple(order.index(axis) for axis in range(ndim))
    codecs = [
        TransposeCodec(order=order),
        ShardingCodec(
            chunk_shape=tuple(inner[axis] for axis in order),
            codecs=[TransposeCodec(order=back), LITTLE, codec],
        ),
    ]
    path = data.draw(st.sampled_from(["Batched", "Fused"]))
    with zarr.config.set({"codec_pipeline.path": f"intarsia.codecs.context.{path}Pipeline"}):
        z = zarr.create(store=MemoryStore(), shape=shape, chunks=shard, dtype="u2", codecs=codecs)
        values = np.arange(1, np.prod(shape) + 1, dtype="u2").reshape(shape)
        z[...] = values
    assert_every_chunk_came_with_its_own_index(seen, values, inner)


MASKS = [int(mask) for mask in np.random.default_rng(5).permutation(64)]


def numbered(chunk_index, codec_index):
    """64 chunks, 64 different masks of six codecs."""
    return MASKS[chunk_index[0]] >> codec_index & 1


@pytest.mark.parametrize("batch_size", [1, 7])
@pytest.mark.parametrize("sharded", [False, True], ids=["plain", "sharded"])
@pytest.mark.parametrize("threads", [1, 4])
def test_64_concurrent_chunks_get_64_right_headers(batch_size, sharded, threads, our_pipeline, tmp_path):
    codec = ConditionalCodec(codecs=[Crc32cCodec()] * 6, decision=numbered)
    chain = [LITTLE, codec]
    if sharded:
        chain = [ShardingCodec(chunk_shape=(64,), codecs=chain)]
    with zarr.config.set({"codec_pipeline.batch_size": batch_size}):
        z = zarr.create(
            store=LocalStore(tmp_path / "a"),
            shape=64 * 64,
            chunks=256 if sharded else 64,
            dtype="u1",
            codecs=chain,
        )
        data = np.random.default_rng(1).integers(1, 256, z.shape, dtype="u1")
        pieces = [slice(i, i + z.shape[0] // threads) for i in range(0, z.shape[0], z.shape[0] // threads)]

        def write(piece):
            z[piece] = data[piece]

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(write, pieces))
        np.testing.assert_array_equal(z[:], data)
    headers = []
    for position in range(16 if sharded else 64):
        stored = (tmp_path / f"a/c/{position}").read_bytes()
        if sharded:
            index = np.frombuffer(stored[-(16 * 4 + 4) : -4], dtype="<u8").reshape(4, 2)
            headers += [stored[start] for start, _ in index]
        else:
            headers.append(stored[0])
    assert headers == MASKS


def test_functions_may_use_other_arrays(our_pipeline):
    other = zarr.create(store=MemoryStore(), shape=4, chunks=1, dtype="u1", codecs=[LITTLE, stamping(1)])
    other[:] = [9, 8, 7, 6]
    seen = []

    def decide(chunk_index):
        seen.append((chunk_index, int(other[chunk_index[0]])))
        return False

    codec = ConditionalCodec(codecs=[ZstdCodec()], decision=decide)
    z = zarr.create(store=MemoryStore(), shape=8, chunks=2, dtype="u1", codecs=[LITTLE, codec])
    z[:] = 1
    assert sorted(seen) == [((0,), 9), ((1,), 8), ((2,), 7), ((3,), 6)]


class ForeignBatchedPipeline(BatchedCodecPipeline):
    """Stands for a pipeline of another package."""


class ForeignFusedPipeline(FusedCodecPipeline):
    """Stands for another one."""


register_pipeline(ForeignBatchedPipeline)
register_pipeline(ForeignFusedPipeline)
FOREIGN = f"{__name__}.Foreign{{}}Pipeline"


@pytest.mark.parametrize("kind", ["Batched", "Fused"])
@pytest.mark.parametrize("sharded", [False, True], ids=["plain", "sharded"])
def test_under_a_foreign_pipeline_asking_for_the_index_is_an_error(kind, sharded, tmp_path):
    seen = []
    chain = [LITTLE, ConditionalCodec(codecs=[ZstdCodec()], decision=recorded(seen))]
    if sharded:
        chain = [ShardingCodec(chunk_shape=(2,), codecs=chain)]
    with zarr.config.set({"codec_pipeline.path": FOREIGN.format(kind)}):
        z = zarr.create(store=tmp_path / "a", shape=8, chunks=4, dtype="u1", codecs=chain)
        with pytest.raises(ChunkIndexUnknownError, match=r"Foreign[^\n]*\n.*codec_pipeline\.path"):
            z[:] = 1
    assert not seen
    assert not (tmp_path / "a/c").exists()


@pytest.mark.parametrize("outer", ["intarsia.codecs.context.{}Pipeline", FOREIGN])
@pytest.mark.parametrize("kind", ["Batched", "Fused"])
def test_a_pipeline_changed_after_opening_never_gives_the_shards_index_for_the_chunks(outer, kind):
    """zarr takes the pipeline inside shards from the settings of the moment, the outer one from opening."""
    seen = []
    inner = [LITTLE, ConditionalCodec(codecs=[ZstdCodec()], decision=recorded(seen))]
    ours = outer.startswith("intarsia")
    with zarr.config.set({"codec_pipeline.path": outer.format(kind)}):
        z = zarr.create(
            store=MemoryStore(),
            shape=8,
            chunks=4,
            dtype="u1",
            codecs=[ShardingCodec(chunk_shape=(2,), codecs=inner)],
        )
    other = FOREIGN.format("Batched") if ours else "intarsia.codecs.context.BatchedPipeline"
    with zarr.config.set({"codec_pipeline.path": other}), pytest.raises(ChunkIndexUnknownError):
        z[:] = 1
    assert not seen


class Flatten(TransposeCodec):
    """An array -> array codec after which chunks have no axes of the array any more."""

    def resolve_metadata(self, chunk_spec):
        return replace(chunk_spec, shape=(int(np.prod(chunk_spec.shape)), 1))


def test_a_codec_that_does_more_than_reorder_axes_leaves_the_index_unknown():
    z = zarr.create(
        store={}, shape=(4, 4), dtype="u1", codecs=[LITTLE, ConditionalCodec(codecs=[ZstdCodec()])]
    )
    spec = find_codecs(z, "test")[0].spec
    shard = Grid.of(z.metadata).position_of("c/0/0", spec, (Flatten(order=(0, 1)),))
    assert shard.index == (0, 0)
    assert inner_position(lambda: shard, (0, 0), spec, ()).index is None


@pytest.mark.parametrize("path", ["c/0", "c/0/x", "0/0", "", "c/01/2"])
def test_a_key_that_the_array_would_not_write_has_no_index(path):
    z = zarr.create(store={}, shape=(40, 40), chunks=2, dtype="u1")
    assert Grid.of(z.metadata).index_of(path) is None


@pytest.mark.parametrize("sharded", [False, True], ids=["plain", "sharded"])
def test_errors_name_the_damaged_chunk(sharded, our_pipeline, tmp_path):
    chain = [LITTLE, PadCodec(location="end", nbytes=2), ConditionalCodec(codecs=[ZstdCodec()])]
    if sharded:
        chain = [ShardingCodec(chunk_shape=(2, 2), codecs=chain)]
    z = zarr.create(
        store=tmp_path / "a", shape=(8, 8), chunks=(4, 4) if sharded else (2, 2), dtype="u1", codecs=chain
    )
    z[:] = 1
    file = tmp_path / ("a/c/1/0" if sharded else "a/c/3/1")
    stored = bytearray(file.read_bytes())
    start = int(np.frombuffer(stored[-68:-4], dtype="<u8").reshape(2, 2, 2)[1, 1, 0]) if sharded else 0
    stored[start] = 0x80
    file.write_bytes(stored)
    with pytest.raises(ChunkDecodeError, match=r"header of chunk \(3, 1\) says 0b10000000"):
        z[:]
    with pytest.raises(ChunkDecodeError, match=r"chunk \(3, 1\)"):
        z[6:7, 2:3] = 5  # a partial write reads first


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_without_our_codecs_run_through_zarrs_own_code(zarr_format, our_pipeline, monkeypatch):
    def fail(*_):
        raise AssertionError("nobody asked for places")

    monkeypatch.setattr(BatchedPipeline, "locators", fail)
    monkeypatch.setattr(FusedPipeline, "locators", fail)
    z = zarr.create(store=MemoryStore(), shape=100, chunks=10, dtype="u1", zarr_format=zarr_format)
    z[:] = np.arange(100)
    np.testing.assert_array_equal(z[:], np.arange(100))
    assert type(z.async_array.codec_pipeline).__module__ == "zarr.core.codec_pipeline"


def test_pipelines_pickle(our_pipeline):
    z = zarr.create(
        store=MemoryStore(), path="p", shape=(4, 4), chunks=2, dtype="u1", codecs=[LITTLE, stamping(2)]
    )
    copy = pickle.loads(pickle.dumps(z))
    copy[:] = 5
    assert stamps(plain_chunks(copy.store_path.store)["p/c/1/0"], 2) == (1, 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("zarr.core.codec_pipeline.BatchedCodecPipeline", "intarsia.codecs.context.BatchedPipeline"),
        ("zarr.core.codec_pipeline.FusedCodecPipeline", "intarsia.codecs.context.FusedPipeline"),
        ("somebody.elses.Pipeline", "somebody.elses.Pipeline"),
    ],
)
def test_a_codec_replaces_zarrs_pipelines_and_no_others(before, after):
    script = (
        f"import zarr, intarsia; zarr.config.set({{'codec_pipeline.path': {before!r}}}); "
        f"intarsia.codecs.PadCodec; assert zarr.config.get('codec_pipeline.path') == {before!r}; "
        f"intarsia.codecs.PadCodec(location='end', nbytes=1); "
        f"assert zarr.config.get('codec_pipeline.path') == {after!r}"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_opening_an_array_with_a_conditional_codec_is_enough(tmp_path):
    z = zarr.create(
        store=tmp_path / "a",
        shape=8,
        chunks=4,
        dtype="u1",
        codecs=[LITTLE, ConditionalCodec(codecs=[ZstdCodec()])],
    )
    z[:] = 1
    script = (
        "import sys, zarr; assert 'intarsia' not in sys.modules; "
        f"z = zarr.open({str(tmp_path / 'a')!r}); assert z[:].tolist() == [1] * 8; "
        "assert type(z.async_array.codec_pipeline).__name__ == 'BatchedPipeline'"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_outside_of_any_chunk_there_is_no_index():
    with working_on(None), pytest.raises(ChunkIndexUnknownError):
        current_chunk_index()


def test_a_write_that_needs_no_index_takes_zarrs_fused_way_even_into_shards(monkeypatch):
    with zarr.config.set({"codec_pipeline.path": "intarsia.codecs.context.FusedPipeline"}):
        chain = [LITTLE, ConditionalCodec(codecs=[ZstdCodec()], decision="compress_if_smaller")]
        z = zarr.create(
            store={},
            shape=1000,
            chunks=500,
            dtype="u1",
            codecs=[ShardingCodec(chunk_shape=(100,), codecs=chain)],
        )
        monkeypatch.setattr(BatchedPipeline, "write", lambda *_: pytest.fail("this is the slow way"))
        z[:] = 7
        np.testing.assert_array_equal(z[:], 7)


def test_of_several_chunks_that_fail_the_error_is_one_of_them(our_pipeline):
    def refuse(chunk_index):
        if chunk_index[0] % 2:
            raise ZeroDivisionError(str(chunk_index))
        return False

    codec = ConditionalCodec(codecs=[ZstdCodec()], decision=refuse)
    z = zarr.create(store={}, shape=32, chunks=2, dtype="u1", codecs=[LITTLE, codec])
    with pytest.raises(ZeroDivisionError, match=r"\(\d*[13579],\)"):
        z[:] = 7
    assert not [key for key in z.store_path.store._store_dict if key in {f"c/{i}" for i in range(1, 16, 2)}]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_checksum_after_one_of_our_codecs_names_the_chunk(sharded, tmp_path, our_pipeline):
    chain = [BytesCodec(), ConditionalCodec(codecs=[ZstdCodec()]), Crc32cCodec()]
    if sharded:
        chain = [ShardingCodec(chunk_shape=(2,), codecs=chain)]
    z = zarr.create(store=tmp_path, shape=8, chunks=4, dtype="u1", codecs=chain)
    z[:] = 7
    stored = bytearray((tmp_path / "c/1").read_bytes())
    stored[2] ^= 1
    (tmp_path / "c/1").write_bytes(stored)
    with pytest.raises(ChunkDecodeError, match=rf"of chunk \({2 if sharded else 1},\) .*checksum"):
        z[:]
