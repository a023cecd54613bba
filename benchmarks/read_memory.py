"""Claim: a full read takes at most 64 MiB beside its result."""

import subprocess
import sys

from benchmarks.measure import headed, numbers, table
from benchmarks.mosaic import Mosaic, folder

MEASURE = """
import sys
from pathlib import Path
import icechunk, numpy as np, zarr, intarsia
from benchmarks.mosaic import DEFAULT, FUSED, SIDE, TILE

way, place, chunk = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(place / f"repository-{chunk}")))
store = repository.readonly_session("main").store
if way == "intarsia":
    array = intarsia.open(store, "mosaic")
    def read(y, x):
        return array[y, x]
elif way == "TensorStore":
    import tensorstore
    plain = intarsia.open(zarr.storage.LocalStore(place / f"files-{chunk}"), "mosaic")
    layers = []
    for region in plain.regions:
        spec = {"driver": "file", "path": str(place / f"files-{chunk}" / "mosaic" / region.name)}
        opened = tensorstore.open({"driver": "zarr3", "kvstore": spec}).result()
        layers.append(opened.translate_to[[a for a, _ in region.bounds]])
    whole = tensorstore.overlay(layers)
    def read(y, x):
        return whole[y, x].read().result()
else:
    with zarr.config.set({"codec_pipeline.path": DEFAULT if way == "zarr-python" else FUSED}):
        one = zarr.open_array(store, path="one", mode="r")
    def read(y, x):
        return one[y, x]

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10

read(slice(0, 4096, 512), slice(0, 4096, 512))
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
out = read(slice(0, 4096), slice(0, 4096))
print((status("VmHWM") - before - out.nbytes) / 2**20)
"""


def run() -> str:
    rows = []
    with folder() as place:
        for chunk in (128, 512):
            Mosaic(place, chunk)
            for way in ("intarsia", "zarr-python", "zarr-python, fused pipeline", "TensorStore"):
                peaks = []
                for _ in range(3):
                    program = [sys.executable, "-c", MEASURE, way, str(place), str(chunk)]
                    done = subprocess.run(program, capture_output=True, text=True, check=True)
                    peaks.append(float(done.stdout))
                rows.append((way, f"{chunk} x {chunk}", f"{max(peaks):.0f} MiB"))
    text = table("Peak memory beside the 64 MiB of the result", rows, ("reader", "chunks", "peak of 3 runs"))
    most = max(numbers(text, "peak of 3 runs", lambda row: row[0] == "intarsia"))
    return headed(f"a full read takes at most {most:.0f} MiB beside its result", text)


if __name__ == "__main__":
    print(run())
