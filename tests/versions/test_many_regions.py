"""Appends to arrays of very many regions: each is one region more, and the others stay as they are."""

import time

import numpy as np
import pytest

import intarsia
from intarsia.manifest.box import Box
from intarsia.manifest.manifest import NewRegion

APPENDS = 20
CODECS = (["gzip"], ["crc32c"])


@pytest.mark.parametrize(
    "count", [1_000, *(pytest.param(n, marks=pytest.mark.torture) for n in (10_000, 100_000))]
)
def test_regions_that_are_appended_one_by_one(count, tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("a", shape=(count, 4), chunks=(1, 4), dtype="int32")
        numbers = np.repeat(np.arange(count, dtype="int32")[:, None], 4, axis=1)
        for name in ("even", "odd"):
            array.group.create_array(name, data=numbers, chunks=(100, 4))
        rows = (NewRegion(Box((i, 0), (i + 1, 1)), ("even", "odd")[i % 2], (i, 0)) for i in range(count))
        handle = array._logical
        handle.begin_edit()
        handle.commit(handle.manifest.replace_boxes([], rows))
    begun = time.perf_counter()
    for i in range(count, count + APPENDS):
        intarsia.append(repo, "a", np.full((1, 4), i, "int32"), codecs=CODECS[i % 2], merge=False)
    each = (time.perf_counter() - begun) / APPENDS
    print(f"{count:,} regions: {1000 * each:.0f} ms for each of {APPENDS} appends, with its commit")
    array = intarsia.open(intarsia.open_repository(tmp_path / "r"), "a")
    assert len(array.regions) == count + APPENDS
    np.testing.assert_array_equal(array[:, 1], np.arange(count + APPENDS))
    assert intarsia.verify(array, data=False) == ()
