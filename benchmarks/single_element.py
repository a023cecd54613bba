"""Claim: one element of 10,000 regions comes faster than by a loop over them, and as from one array."""

import icechunk
import numpy as np
import zarr

import intarsia
from benchmarks.measure import best_times, headed, table
from benchmarks.mosaic import DEFAULT, folder
from intarsia.logical.encoding import Encoding, create_member
from intarsia.manifest.box import Box
from intarsia.manifest.document import new_name
from intarsia.manifest.region_table import RegionTable, Row

REGIONS, LENGTH = 10_000, 1_000
CODECS = [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}]
ELEMENTS = 50


def build(store) -> None:
    """10,000 members of one chunk; those that are read hold data. And one plain array of as many chunks."""
    array = intarsia.create(store, "many", shape=(REGIONS * LENGTH,), chunks=(LENGTH,), dtype="f4")
    logical, names = array._logical, [new_name() for _ in range(REGIONS)]
    one = zarr.create_array(
        store, name="one", shape=array.shape, chunks=array.chunks, dtype="f4",
        compressors=zarr.codecs.ZstdCodec(level=1),
    )  # fmt: skip
    encoding = Encoding(codecs=CODECS)
    values = np.arange(LENGTH, dtype="f4")
    for i, name in enumerate(names):
        member = create_member(logical.group.store_path, name, logical.manifest, (LENGTH,), encoding)
        if i % (REGIONS // ELEMENTS) == 0:
            member[...] = values + i
            one[i * LENGTH : (i + 1) * LENGTH] = values + i
    rows = [Row(i, Box((i,), (i + 1,)), (0,)) for i in range(REGIONS)]
    logical.commit(logical.manifest.changed(RegionTable.from_rows(rows, 1), members=tuple(names)))


class Loop:
    """The read path of the proposal: which regions overlap, then each member by its name."""

    def __init__(self, array: intarsia.LogicalArray) -> None:
        self.group = array.group
        self.regions = [(region.bounds, region.name) for region in array.regions]

    def __getitem__(self, index: int) -> np.ndarray:
        out = np.empty((), dtype="f4")
        for ((start, stop),), name in self.regions:
            if start <= index < stop:
                out[...] = self.group[name][index - start]
        return out


def run() -> str:
    with folder() as place:
        repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(place / "repository")))
        session = repository.writable_session("main")
        build(session.store)
        session.commit("regions")
        store = repository.readonly_session("main").store
        where = [i * LENGTH + 7 for i in range(0, REGIONS, REGIONS // ELEMENTS)]
        with zarr.config.set({"codec_pipeline.path": DEFAULT}):
            one = zarr.open_array(store, path="one", mode="r")
            loop = Loop(intarsia.open(store, "many"))
        ours = intarsia.open(store, "many")
        expected = [float(one[i]) for i in where]
        for reader in (ours, loop):
            assert [float(reader[i]) for i in where] == expected

        def again():
            with zarr.config.set({"codec_pipeline.path": DEFAULT}):
                return zarr.open_array(store, path="one", mode="r")

        def fresh():
            array = intarsia.open(store, "many")
            array.region_at((0,))  # the table is sorted once a handle
            return array

        handles = iter([fresh() for _ in range(200)])
        times = best_times(
            {
                "intarsia": lambda: [ours[i] for i in where],
                "intarsia, the member opened each time": lambda h=handles: [
                    (a := next(h)),
                    [a[i] for i in where],
                ],
                "loop over the regions": lambda: [loop[i] for i in where],
                "one plain zarr array": lambda: [one[i] for i in where],
                "one plain zarr array, opened each time": lambda: [again()[i] for i in where],
            }
        )
    plain = times["one plain zarr array"]
    rows = [(name, f"{took / ELEMENTS * 1e6:.0f} us", f"{took / plain:.2f}") for name, took in times.items()]
    ours, loops = (times[name] / plain for name in ("intarsia", "loop over the regions"))
    heading = (
        f"one element of 10,000 regions takes {ours:.2f} of one of a single array, and by a loop {loops:.2f}"
    )
    text = table("One element, 10,000 regions, local Icechunk", rows, ("reader", "best", "times one array"))
    return headed(heading, text)


if __name__ == "__main__":
    print(run())
