"""Claim: conditional is as small as the best of both; sampled is 5x as fast on noise, 2x through zarr."""

import threading
from functools import partial
from itertools import product
from tempfile import TemporaryDirectory

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import Float32
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import intarsia
from benchmarks.measure import best_times, headed, numbers, spread, table, with_limits

CHUNKS, CHUNK_ELEMENTS = 32, 1 << 18  # 1 MiB of float32 each
PIPELINES = {
    "batched": "intarsia.codecs.context.BatchedPipeline",
    "fused": "intarsia.codecs.context.FusedPipeline",
}
LITTLE = BytesCodec(endian="little")
LOCK = threading.Lock()


def noise(chunks: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**32, chunks * CHUNK_ELEMENTS, dtype="u4").view("f4")


def smooth(chunks: int) -> np.ndarray:
    return np.sin(np.linspace(0, 50 * chunks, chunks * CHUNK_ELEMENTS)).astype("f4")


def mix() -> np.ndarray:
    rows = np.empty((CHUNKS, CHUNK_ELEMENTS), dtype="f4")
    rows[::2] = noise(CHUNKS // 2).reshape(-1, CHUNK_ELEMENTS)
    rows[1::2] = smooth(CHUNKS // 2).reshape(-1, CHUNK_ELEMENTS)
    return rows.reshape(-1)


def array(codecs: list, store: object = None) -> zarr.Array:
    store = MemoryStore() if store is None else store
    return zarr.create(
        store=store,
        shape=CHUNKS * CHUNK_ELEMENTS,
        chunks=CHUNK_ELEMENTS,
        dtype="f4",
        codecs=[LITTLE, *codecs],
    )


def conditional(level: int, decision: object) -> list:
    return [intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec(level=level)], decision=decision)]


def sizes(z: zarr.Array) -> np.ndarray:
    stored = z.store_path.store._store_dict
    return np.array([len(stored[f"c/{i}"]) for i in range(CHUNKS)])


def write(z: zarr.Array, data: np.ndarray) -> None:
    z[:] = data


def read(z: zarr.Array) -> object:
    return z[:]


def space() -> str:
    data = mix()
    found = {}
    for name, codecs in {
        "raw": [],
        "zstd": [ZstdCodec(level=9)],
        "compress_if_smaller": conditional(9, "compress_if_smaller"),
        "smallest": conditional(9, "smallest"),
        "sampled": conditional(9, "sampled"),
    }.items():
        z = array(codecs)
        z[:] = data
        found[name] = sizes(z)
    best = np.minimum(found["raw"], found["zstd"]) + 1
    rows = [
        (
            name,
            f"{n.sum():,}",
            f"{n.sum() / best.sum() - 1:+.4%}",
            f"{np.count_nonzero(n > best)} of {CHUNKS}",
        )
        for name, n in found.items()
    ]
    header = ("codecs", "bytes", "against the best", "chunks above the best")
    return table(
        "A mix of noise and smooth float32, zstd-9; the best is min(raw, zstd) + 1 byte a chunk", rows, header
    )


def throughput() -> str:
    data, rows = mix(), []
    for (pipeline, path), level, kind in product(PIPELINES.items(), (3, 9), ("memory", "files")):
        with TemporaryDirectory() as folder, zarr.config.set({"codec_pipeline.path": path}):

            def store(name: str, kind: str = kind, folder: str = folder) -> object:
                return MemoryStore() if kind == "memory" else LocalStore(f"{folder}/{name}")

            plain = array([ZstdCodec(level=level)], store("plain"))
            ours = array(conditional(level, "compress_if_smaller"), store("ours"))
            jobs = {
                "plain write": partial(write, plain, data),
                "our write": partial(write, ours, data),
                "plain read": partial(read, plain),
                "our read": partial(read, ours),
            }
            times = best_times(jobs, rounds=20)
        speed = {job: data.nbytes / took / 1e6 for job, took in times.items()}
        rows.append(
            (
                f"{pipeline}, {kind}",
                f"zstd-{level}",
                f"{speed['plain write']:.0f} MB/s",
                f"{speed['our write'] / speed['plain write']:.3f}",
                f"{speed['plain read']:.0f} MB/s",
                f"{speed['our read'] / speed['plain read']:.3f}",
            )
        )
    header = ("pipeline, store", "codec", "plain write", "ours, relative", "plain read", "ours, relative")
    return table("Throughput of compress_if_smaller on the mix, against plain zstd", rows, header)


def codec_alone() -> str:
    """What the header costs: the result must be copied behind it, and a copy is all it costs."""
    prototype = default_buffer_prototype()
    spec = ArraySpec((CHUNK_ELEMENTS,), Float32(), np.float32(0), ArrayConfig.from_dict({}), prototype)
    rows = []
    for (kind, data), level in product({"noise": noise(CHUNKS), "smooth": smooth(CHUNKS)}.items(), (3, 9)):
        buffers = [prototype.buffer.from_array_like(chunk.view("u1")) for chunk in data.reshape(CHUNKS, -1)]
        (plain,), (ours,) = [ZstdCodec(level=level)], conditional(level, "compress_if_smaller")

        def encode(codec: object, buffers: list = buffers, *, copied: bool = False) -> None:
            for buffer in buffers:  # the results are let go one by one, as when they go to files
                result = codec._encode_sync(buffer, spec)
                if copied:
                    b"".join((b"\1", result.as_numpy_array().data))

        jobs = {
            "plain": partial(encode, plain),
            "copied": partial(encode, plain, copied=True),
            "ours": partial(encode, ours),
        }
        times = best_times(jobs, rounds=10)
        rows.append((
            kind, f"zstd-{level}", f"{times['plain'] / CHUNKS * 1e6:.0f} us",
            f"{times['plain'] / times['copied']:.3f}", f"{times['plain'] / times['ours']:.3f}",
        ))  # fmt: skip
    header = ("chunks", "codec", "plain, a chunk", "plain and a copy, relative speed", "ours, relative speed")
    return table("compress_if_smaller without zarr around it, one thread", rows, header)


def noisy() -> str:
    data, rows = noise(CHUNKS), []
    prototype = default_buffer_prototype()
    spec = ArraySpec((CHUNK_ELEMENTS,), Float32(), np.float32(0), ArrayConfig.from_dict({}), prototype)
    buffers = [prototype.buffer.from_array_like(chunk.view("u1")) for chunk in data.reshape(CHUNKS, -1)]
    (plain,), (ours,) = [ZstdCodec(level=9)], conditional(9, "sampled")

    def encode(codec: object) -> None:
        for buffer in buffers:  # the results are let go one by one, as when they go to files
            codec._encode_sync(buffer, spec)

    times = best_times({"plain": partial(encode, plain), "ours": partial(encode, ours)}, rounds=10)
    rows.append((
        "the codec alone", f"{data.nbytes / times['plain'] / 1e6:.0f} MB/s",
        f"{data.nbytes / times['ours'] / 1e6:.0f} MB/s", f"{times['plain'] / times['ours']:.1f}",
    ))  # fmt: skip
    for pipeline, path in PIPELINES.items():
        with zarr.config.set({"codec_pipeline.path": path}):
            z9, sampled, raw = array([plain]), array([ours]), array([])
            times = best_times(
                {
                    "plain": lambda z=z9: write(z, data),
                    "ours": lambda z=sampled: write(z, data),
                    "raw": lambda z=raw: write(z, data),
                }
            )
        rows.append((
            f"zarr, {pipeline} pipeline", f"{data.nbytes / times['plain'] / 1e6:.0f} MB/s",
            f"{data.nbytes / times['ours'] / 1e6:.0f} MB/s",
            f"{times['plain'] / times['ours']:.1f} (no codec at all: {times['plain'] / times['raw']:.1f})",
        ))  # fmt: skip
    return table("Pure noise: sampled against plain zstd-9", rows, ("where", "zstd-9", "sampled", "ratio"))


class Counting(WrapperStore[MemoryStore]):
    """Counts the bytes that are read."""

    total = 0

    def get_sync(self, key, *, prototype=None, byte_range=None):  # type: ignore[no-untyped-def]
        found = super().get_sync(key, prototype=prototype, byte_range=byte_range)
        with LOCK:
            self.total += 0 if found is None else len(found)
        return found


def headers() -> str:
    rows = []
    for sharded in (False, True):
        store = Counting(MemoryStore())
        chain = [LITTLE, intarsia.codecs.ConditionalCodec(codecs=[Crc32cCodec()])]
        if sharded:
            chain = [zarr.codecs.ShardingCodec(chunk_shape=(64, 64), codecs=chain)]
        z = zarr.create(
            store=store,
            shape=(6400, 6400),
            chunks=(640, 640) if sharded else (64, 64),
            dtype="f4",
            codecs=chain,
        )
        z[:] = 1.5
        stored = sum(len(v) for k, v in store._store._store_dict.items() if k != "zarr.json")
        store.total = 0
        times = best_times({"masks": lambda z=z: intarsia.codecs.masks(z)})
        store.total = 0
        assert intarsia.codecs.masks(z).count() == 10_000
        rows.append((
            "100 shards of 100 chunks" if sharded else "10,000 chunks", f"{stored:,}", f"{store.total:,}",
            f"{store.total / stored:.3%}", f"{times['masks'] * 1e3:.0f} ms",
        ))  # fmt: skip
    return table(
        "masks of 10,000 chunks of 16 KiB", rows, ("array", "bytes stored", "bytes read", "part", "time")
    )


def run() -> str:
    text = "\n".join([space(), throughput(), noisy(), headers()])
    alone, *through = numbers(text, "ratio")
    above = max(numbers(text, "chunks above the best", lambda row: row[0] not in ("raw", "zstd")))
    heading = (
        f"conditional stores {above:.0f} chunks larger than the best of both; on noise, sampled is {alone}x "
        f"as fast as zstd alone, {spread(through)}x through zarr"
    )
    return headed(heading, with_limits(text, codec_alone()))


if __name__ == "__main__":
    print(run())
