"""Claim: reading through pad or offset costs < 5 %, decoding it < 1 %; shuffle is as fast as numcodecs."""

from tempfile import TemporaryDirectory

import numcodecs
import numpy as np
import zarr
from zarr.codecs import BytesCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import UInt8

import intarsia
from benchmarks.measure import best_times, headed, numbers, spread, table

CHUNKS, CHUNK_BYTES = 64, 1 << 20


CHAINS = {
    "plain": [],
    "pad at the start": [intarsia.codecs.PadCodec(location="start", nbytes=110)],
    "pad at the end": [intarsia.codecs.PadCodec(location="end", nbytes=110)],
    "offset": [intarsia.codecs.OffsetCodec(offset=110)],
}
PIPELINES = ("BatchedPipeline", "FusedPipeline")


def arrays(folder: str) -> dict[str, zarr.Array]:
    """The same bytes in files, through each codec. In memory the plain chunks would be views of the data,
    in larger pages than the others, and the ratio that of the pages."""
    data = np.random.default_rng(0).integers(0, 256, CHUNKS * CHUNK_BYTES, dtype="u1")
    made = {}
    for name, codecs in CHAINS.items():
        made[name] = zarr.create(
            store=f"{folder}/{name}", shape=data.size, chunks=CHUNK_BYTES, dtype="u1",
            codecs=[BytesCodec(), *codecs],
        )  # fmt: skip
        made[name][:] = data
    return made


def reads() -> tuple[str, float]:
    """The table, and what one chunk takes in the fastest plain read."""
    rows, plain = [], float("inf")
    for pipeline in PIPELINES:
        path = f"intarsia.codecs.context.{pipeline}"
        with TemporaryDirectory() as folder, zarr.config.set({"codec_pipeline.path": path}):
            times = best_times({name: (lambda z=z: z[:]) for name, z in arrays(folder).items()}, rounds=30)
        plain = min(plain, times["plain"] / CHUNKS)
        rows += [
            (pipeline, name, f"{took * 1e3:.1f} ms", f"{took / times['plain']:.3f}")
            for name, took in times.items()
        ]
    header = ("pipeline", "codec", "best", "ratio to plain")
    return table("Reading 64 files of 1 MiB through pad and offset", rows, header), plain


def decoding(plain: float) -> str:
    """What the codec itself takes, which is less than the noise of reading files."""
    prototype = default_buffer_prototype()
    spec = ArraySpec((CHUNK_BYTES,), UInt8(), np.uint8(0), ArrayConfig.from_dict({}), prototype)
    buffer = prototype.buffer.from_array_like(np.ones(CHUNK_BYTES + 110, dtype="u1"))
    jobs = {
        name: (lambda c=chain[0]: [c._decode_sync(buffer, spec) for _ in range(100)])
        for name, chain in CHAINS.items()
        if chain
    }
    rows = [
        (name, f"{took * 1e4:.1f} us", f"{took / 100 / plain:.2%}") for name, took in best_times(jobs).items()
    ]
    header = ("codec", "best", "part of the fastest plain read of a chunk")
    return table("Decoding one chunk of 1 MiB", rows, header)


def shuffles() -> dict[str, object]:
    data = np.random.default_rng(0).integers(0, 256, CHUNK_BYTES, dtype="u1")
    theirs = numcodecs.Shuffle(4)
    ours = intarsia.codecs.ShuffleCodec(element_size=4)
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
    text, plain = reads()
    times = best_times(shuffles())
    rows = [(way, f"{times[f'ours {way}'] / times[f'numcodecs {way}']:.3f}") for way in ("encode", "decode")]
    shuffling = table("shuffle, 1 MiB, against numcodecs' own", rows, ("way", "ratio of times"))
    text = "\n".join([text, decoding(plain), shuffling])
    read = spread(numbers(text, "ratio to plain", lambda row: row[1] != "plain"))
    decode = max(numbers(text, "part of the fastest plain read of a chunk"))
    heading = (
        f"a read through pad or offset takes {read} of a plain one, and decoding them at most {decode} %; "
        f"shuffle takes {spread(numbers(text, 'ratio of times'))} of what it takes numcodecs"
    )
    return headed(heading, text)


if __name__ == "__main__":
    print(run())
