"""Which tables make sense without their checksum, and how chunks are led astray and back."""

import numpy as np
import pytest

from intarsia.codecs.shard_index import is_absent
from intarsia.shards.chunks import is_plausible_table
from intarsia.shards.inner_codecs import EncodedBound
from intarsia.shards.slots import PARKED, SlotIndex, SlotLayout, is_marked, without_marks

INDEX = SlotIndex(grid=(4,), first=False)
LAYOUTS = [SlotLayout(INDEX, EncodedBound(10, fixed=True), copies) for copies in (1, 2)]


def table(*entries):
    made = INDEX.empty()
    for number, entry in entries:
        made[number] = entry
    return made


@pytest.mark.parametrize(
    ("entries", "size", "verdict"),
    [
        ([], LAYOUTS[0].file_bytes, True),
        ([(1, (16, 10)), (3, (48, 10))], LAYOUTS[0].file_bytes, True),
        ([(1, (16, 10)), (3, (64 + 48, 10))], LAYOUTS[1].file_bytes, True),  # the second slot
        ([(1, (16, 10)), (3, (48, 10))], LAYOUTS[0].file_bytes + 1, False),
        ([(1, (32, 10))], LAYOUTS[0].file_bytes, False),  # another chunk's slot
        ([(1, (16, 9))], LAYOUTS[0].file_bytes, False),
        ([(0, (5, 3)), (2, (0, 5))], 8 + INDEX.nbytes, True),  # without gaps, in any order
        ([(0, (5, 3)), (2, (0, 4))], 8 + INDEX.nbytes, False),
        ([(0, (5, 3)), (2, (0, 5))], 9 + INDEX.nbytes, False),
        ([], INDEX.nbytes, True),
    ],
)
def test_what_can_be_believed(entries, size, verdict):
    assert is_plausible_table(INDEX, size, table(*entries), LAYOUTS) == verdict


def test_an_index_at_the_start_is_counted():
    first = SlotIndex(grid=(4,), first=True)
    made = table((2, (first.nbytes, 7)))
    assert is_plausible_table(first, first.nbytes + 7, made, ())
    assert not is_plausible_table(first, first.nbytes + 8, made, ())


def test_parking_leads_beyond_every_file_and_back():
    made = table((1, (16, 10)), (3, (48, 10)))
    away = made.copy()
    away[3, 0] |= PARKED
    assert is_marked(away, PARKED).tolist() == [False, False, False, True]
    assert is_absent(away).tolist() == [True, False, True, False]
    assert int(away[3, 0]) > 1 << 60
    assert np.array_equal(without_marks(away, PARKED), made)
    assert np.array_equal(without_marks(made, PARKED), made)
