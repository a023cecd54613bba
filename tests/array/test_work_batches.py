"""Batches hold every chunk once, and no more than they may."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intarsia.array.work import batches


class Chunks:
    """As much of a work as batches look at."""

    def __init__(self, sizes):
        self.nbytes = np.array(sizes, dtype=np.int64)
        self.present = np.flatnonzero(self.nbytes >= 0)


works = st.lists(st.lists(st.integers(-1, 50), min_size=1, max_size=20).map(Chunks), max_size=5)


@given(works, st.integers(0, 120), st.integers(1, 9))
def test_every_chunk_is_in_one_batch_and_batches_are_small(found, most_bytes, most_chunks):
    found = [work for work in found if work.present.size]
    made = list(batches(found, most_bytes, most_chunks))
    taken = [(id(work), k) for batch in made for work, positions in batch for k in positions.tolist()]
    assert taken == [(id(work), k) for work in found for k in work.present.tolist()]
    for batch in made:
        sizes = np.concatenate([work.nbytes[positions] for work, positions in batch])
        assert 0 < sizes.size <= most_chunks
        assert sizes.size == 1 or sizes.sum() <= most_bytes


def test_small_parts_share_a_batch():
    found = [Chunks([1]) for _ in range(10)]
    assert [len(batch) for batch in batches(found, 100, 4)] == [4, 4, 2]
