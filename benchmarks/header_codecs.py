"""Claim: reading through pad or offset costs < 2 % over a plain read; shuffle is within 5 % of numcodecs."""

import numcodecs
import numpy as np
import zarr
from zarr.codecs import BytesCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import UInt8

import intarsia
from benchmarks.measure import best_times, table

CHUNKS, CHUNK_BYTES = 64, 1 << 20


def arrays() -> dict[str, zarr.Array]:
    data = np.random.default_rng(0).integers(0, 256, CHUNKS * CHUNK_BYTES, dtype="u1")
    chains = {
        "plain": [],
        "pad at the start": [intarsia.PadCodec(location="start", nbytes=110)],
        "pad at the end": [intarsia.PadCodec(location="end", nbytes=110)],
        "offset": [intarsia.OffsetCodec(offset=110)],
    }
    made = {}
    for name, codecs in chains.items():
        made[name] = zarr.create(
            store=zarr.storage.MemoryStore(), shape=data.size, chunks=CHUNK_BYTES, dtype="u1",
            codecs=[BytesCodec(), *codecs],
        )  # fmt: skip
        made[name][:] = data
    return made


def shuffles() -> dict[str, object]:
    data = np.random.default_rng(0).integers(0, 256, CHUNK_BYTES, dtype="u1")
    theirs = numcodecs.Shuffle(4)
    ours = intarsia.ShuffleCodec(element_size=4)
    prototype = default_buffer_prototype()
    spec = ArraySpec((CHUNK_BYTES,), UInt8(), np.uint8(0), ArrayConfig.from_dict({}), prototype)
    buffer = prototype.buffer.from_array_like(data)
    return {
        "numcodecs encode": lambda: [theirs.encode(data) for _ in range(20)],
        "ours encode": lambda: [ours._encode_sync(buffer, spec) for _ in range(20)],
        "numcodecs decode": lambda: [theirs.decode(data) for _ in range(20)],
        "ours decode": lambda: [ours._decode_sync(buffer, spec) for _ in range(20)],
    }


def run() -> str:
    reads = best_times({name: (lambda z=z: z[:]) for name, z in arrays().items()})
    rows = [(name, f"{took * 1e3:.1f} ms", f"{took / reads['plain']:.3f}") for name, took in reads.items()]
    text = table(
        "Reading 64 chunks of 1 MiB through pad and offset", rows, ("codec", "best", "ratio to plain")
    )
    times = best_times(shuffles())
    rows = [(way, f"{times[f'ours {way}'] / times[f'numcodecs {way}']:.3f}") for way in ("encode", "decode")]
    return text + "\n" + table("shuffle, 1 MiB, against numcodecs' own", rows, ("way", "ratio of times"))


if __name__ == "__main__":
    print(run())
