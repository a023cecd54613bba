"""Claim: small chunks are written faster than by zarr-python; large ones are not, by its fused pipeline."""

import icechunk
import zarr

import intarsia
from benchmarks.measure import best_times, table
from benchmarks.mosaic import DEFAULT, FUSED, KINDS, field
from intarsia.codecs import parse_codecs

ROWS = 1024


def session():
    return icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")


def run() -> str:
    data = field()[:ROWS]
    text = []
    for chunk in (128, 512):
        rows = []
        for kind in ("zstd", "blosc"):

            def ours(chunk=chunk, kind=kind):
                array = intarsia.create(
                    session().store, "a", shape=data.shape, chunks=(chunk, chunk), dtype="f4"
                )
                array.add_region(((0, ROWS), (0, 4096)), codecs=KINDS[kind], data=data)

            def theirs(pipeline, chunk=chunk, kind=kind):
                with zarr.config.set({"codec_pipeline.path": pipeline}):
                    array = zarr.create_array(
                        session().store, name="a", shape=data.shape, chunks=(chunk, chunk), dtype="f4",
                        compressors=parse_codecs(KINDS[kind])[1:],
                    )  # fmt: skip
                array[...] = data

            times = best_times(
                {
                    "intarsia": ours,
                    "zarr-python": lambda t=theirs: t(DEFAULT),
                    "zarr-python, fused pipeline": lambda t=theirs: t(FUSED),
                },
                most_rounds=20,
            )
            rows += [
                (kind, name, f"{took * 1e3:.0f} ms", f"{took / times['intarsia']:.2f}")
                for name, took in times.items()
            ]
        title = f"Writing {ROWS} x 4096 float32 to Icechunk in memory, chunks of {chunk} x {chunk}"
        text.append(table(title, rows, ("codec", "writer", "best", "times ours")))
    return "\n".join(text)


if __name__ == "__main__":
    print(run())
