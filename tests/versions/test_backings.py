"""Packed regions, and regions seen through views, in repositories: committed, compared, restored, divided."""

import os

import numpy as np
import pytest
import zarr

import intarsia
from intarsia import Packing, View
from intarsia.errors import PackingError
from tests.versions.places import memory
from tests.versions.test_virtual import THEN, place

__all__ = ["place"]

HALVES = Packing("int16", scale=0.5, missing=-1)
TENTHS = Packing("int16", scale=0.1, missing=-1)
TURNED = View.identity(2).transpose(1, 0).flip(0, length=4)


def packings(repo):
    return [region.packing for region in intarsia.open(repo, "t").regions]


@pytest.fixture
def repo():
    """A packed region, of numbers that lie the other way round."""
    repo = memory()
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("t", shape=(4, 6), chunks=(2, 2), dtype="float64", fill_value=-7)
        numbers = np.arange(24, dtype="int16").reshape(6, 4)
        array.group.create_array("there", data=numbers, chunks=(3, 2))
        array.add_region(((0, 4), (0, 6)), member="there", packing=HALVES, view=TURNED)
    return repo


MODEL = np.arange(24).reshape(6, 4).T[::-1] * 0.5


def values(repo, **version):
    return intarsia.open(repo, "t", **version)[...]


def test_what_was_committed_is_read_and_restored(repo):
    first = next(iter(intarsia.history(repo, "t"))).snapshot_id
    np.testing.assert_array_equal(values(repo), MODEL)
    intarsia.recode(repo, "t", codecs=["zstd"])
    assert packings(repo) == [HALVES]
    np.testing.assert_array_equal(values(repo), MODEL)
    kinds = [change.kind for change in intarsia.diff(repo, "t", first, "main").regions]
    assert kinds == ["recoded"]
    with intarsia.transaction(repo, message="write") as tx:
        tx.open("t")[1, 2:4] = [100, np.nan]
    assert values(repo)[1, 2] == 100
    intarsia.restore(repo, "t", first)
    np.testing.assert_array_equal(values(repo), MODEL)
    assert packings(repo) == [HALVES]
    assert intarsia.open(repo, "t").regions[0].view == TURNED
    assert intarsia.verify(intarsia.open(repo, "t")) == ()


def backings(repo):
    return [(r.bounds, r.codec_names, r.packing, r.view) for r in intarsia.open(repo, "t").regions]


@pytest.mark.parametrize("change", ["unpacked", "packed otherwise", "shortened", "dropped"])
def test_packings_and_views_come_back_whatever_became_of_them(repo, change):
    with intarsia.transaction(repo, message="a region with another packing") as tx:
        array = tx.open("t")
        array.resize((4, 8))
        array.add_region(((0, 4), (6, 8)), data=np.ones((4, 2)), packing=TENTHS)
    then, data = backings(repo), values(repo)
    first = next(iter(intarsia.history(repo, "t"))).snapshot_id
    assert [(packing, view) for *_, packing, view in then] == [(HALVES, TURNED), (TENTHS, None)]
    with intarsia.transaction(repo, message="change") as tx:
        array = tx.open("t")
        if change == "shortened":
            array.resize((4, 4))
        elif change == "dropped":
            array.drop_region(((0, 4), (0, 6)))
        else:
            array.recode(codecs=["zstd"], packing=None if change == "unpacked" else TENTHS)
    assert backings(repo) != then
    intarsia.restore(repo, "t", first)
    assert backings(repo) == then
    np.testing.assert_array_equal(values(repo), data)
    assert intarsia.verify(intarsia.open(repo, "t")) == ()


def test_another_packing_of_the_same_type_is_another_encoding(repo):
    intarsia.recode(repo, "t", codecs=["zstd"])
    first = next(iter(intarsia.history(repo, "t"))).snapshot_id
    intarsia.recode(repo, "t", codecs=["zstd"], packing=TENTHS)
    assert packings(repo) == [TENTHS]
    np.testing.assert_allclose(values(repo), MODEL, atol=0.05)
    assert [change.kind for change in intarsia.diff(repo, "t", first, "main").regions] == ["recoded"]


def test_workers_write_shares_of_what_is_packed_and_turned(repo):
    with intarsia.transaction(repo, message="by three workers") as tx:
        shares = tx.open("t").fork_for(3)
        assert sum(share.size for share in shares) == 4
        for share in shares:
            for box in share.boxes:
                share[box] = share[box] + 1
        tx.merge(*shares)
    np.testing.assert_array_equal(values(repo), MODEL + 1)


def test_a_refused_write_leaves_nothing_to_commit(repo):
    with intarsia.transaction(repo, message="write") as tx:
        array = tx.open("t")
        with pytest.raises(PackingError, match=r"region .*: cannot hold 1000000\.0: values lie"):
            array[2:, 0] = [1, 1e6]
        array[0, 0] = 2
    expected = MODEL.copy()
    expected[0, 0] = 2
    np.testing.assert_array_equal(values(repo), expected)


def series(packing, data, **options):
    repo = memory()
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("t", shape=(len(data),), chunks=(2,), dtype="float64")
        array.add_region([(0, len(data))], data=data, packing=packing, **options)
    return repo


def test_appends_keep_the_packing_where_nothing_is_lost():
    repo = series(HALVES, [0, 1, 2, 3])
    intarsia.append(repo, "t", [4.5, 5, np.nan])
    assert packings(repo) == [HALVES]
    intarsia.append(repo, "t", [0.123])  # into the partial chunk, which is unpacked for it
    np.testing.assert_array_equal(values(repo), [0, 1, 2, 3, 4.5, 5, np.nan, 0.123])
    assert packings(repo) == [HALVES, None]


@pytest.mark.parametrize("merge", [True, False])
def test_appends_round_where_that_is_asked_for(merge):
    repo = series(HALVES, [0, 1, 2])
    intarsia.append(repo, "t", [0.6, 1.1, 2], packing="keep", merge=merge)
    assert values(repo).tolist() == [0, 1, 2, 0.5, 1, 2]
    assert packings(repo) == [HALVES] * (1 if merge else 2)
    intarsia.append(repo, "t", [0.11], packing={"stored": "int8", "scale": 0.1}, merge=merge)
    assert values(repo)[-1] == 0.1
    with pytest.raises(PackingError, match=r"cannot hold 1000000.0"):
        intarsia.append(repo, "t", [1e6], packing="keep", merge=merge)
    assert values(repo).shape == (7,)


def test_codecs_are_chosen_for_the_numbers_of_a_packing():
    repo = series(None, np.zeros(4))
    intarsia.append(repo, "t", [0.5, 1, 2], packing=HALVES, codecs="auto")
    intarsia.recode(repo, "t", [(0, 4)], packing=HALVES, codecs="auto")
    assert packings(repo) == [HALVES, HALVES]
    assert values(repo).tolist() == [0, 0, 0, 0, 0.5, 1, 2]


def test_an_append_that_is_disturbed_keeps_the_packing_of_what_was_uploaded(meddle):
    repo = series(HALVES, [0, 1, 2, 3])

    def disturb():
        with intarsia.transaction(repo, message="another") as tx:
            tx.open("t").append([7.25, 8.25], packing=TENTHS)

    meddle(disturb)
    intarsia.append(repo, "t", [0.6, 1.1], packing="keep", merge=False)
    assert packings(repo) == [HALVES, TENTHS, HALVES]
    np.testing.assert_allclose(values(repo), [0, 1, 2, 3, 7.2, 8.2, 0.5, 1], rtol=1e-14)


def test_numbers_in_other_files_are_read_through_packings_and_views(place):
    repo, files = place
    numbers = np.arange(24, dtype=">i2").reshape(6, 4)
    numbers.tofile(files / "numbers.bin")
    os.utime(files / "numbers.bin", (1_000_000_000, 1_000_000_000))
    with intarsia.transaction(repo, message="refer") as tx:
        array = tx.create("t", shape=(1, 4, 6), chunks=(1, 2, 6), dtype="float64")
        zarr.create_array(
            array.store,
            name="t/there",
            shape=(6, 4),
            chunks=(3, 4),
            dtype="int16",
            compressors=None,
            serializer={"name": "bytes", "configuration": {"endian": "big"}},
        )
        for i in range(2):
            url = f"file://{files}/numbers.bin"
            array.store.set_virtual_ref(f"t/there/c/{i}/0", url, offset=24 * i, length=24, checksum=THEN)
        array.add_region(((0, 1), (0, 4), (0, 6)), member="there", packing=HALVES, view=TURNED.expand(0))
    np.testing.assert_array_equal(values(repo), MODEL[None])
    np.testing.assert_array_equal(intarsia.open(repo, "t")[0, ::-2, 1:5:3], MODEL[::-2, 1:5:3])
    (files / "numbers.bin").write_bytes(b"changed")
    with pytest.raises(intarsia.errors.ReadError, match=r"region \[0:1, 0:4, 0:6\].*member there, chunk"):
        values(repo)
