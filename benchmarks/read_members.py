"""Claim: 16 members cost no more than one with the same chunks (at most 3 %)."""

import icechunk
import numpy as np

import intarsia
from benchmarks.measure import best_times, headed, numbers, spread, table
from benchmarks.mosaic import KINDS, field, fill, folder


def run() -> str:
    data = field()
    rows = []
    with folder() as place:
        for chunk in (128, 512):
            repository = icechunk.Repository.create(
                icechunk.local_filesystem_storage(str(place / f"repository-{chunk}"))
            )
            session = repository.writable_session("main")
            zstd = {"zstd": KINDS["zstd"]}
            fill(session.store, "sixteen", chunk, data, zstd)
            fill(session.store, "one", chunk, data, zstd, members=False)
            session.commit("both")
            store = repository.readonly_session("main").store
            sixteen, one = (intarsia.open(store, name) for name in ("sixteen", "one"))
            np.testing.assert_array_equal(sixteen[...], one[...])
            for title, selection in (("full read", ...), ("every 9th row", np.s_[::9])):
                times = best_times(
                    {"16": lambda s=selection: sixteen[s], "1": lambda s=selection: one[s]},  # noqa: B023
                    rounds=30,
                )
                ratio = times["16"] / times["1"]
                name = f"{title}, chunks of {chunk} x {chunk}"
                rows.append(
                    (name, f"{times['1'] * 1e3:.1f} ms", f"{times['16'] * 1e3:.1f} ms", f"{ratio:.3f}")
                )
    text = table("One member against 16", rows, ("read", "1 member", "16 members", "ratio"))
    return headed(f"16 members take {spread(numbers(text, 'ratio'))} of one with the same chunks", text)


if __name__ == "__main__":
    print(run())
