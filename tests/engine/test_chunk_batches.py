"""Batches hold every chunk once, and no more than they may."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intarsia.engine.thread_pool import batches


class Chunks:
    """As much of a work as batches look at."""

    def __init__(self, sizes):
        self.nbytes = np.array(sizes, dtype=np.int64)
        self.present = np.flatnonzero(self.nbytes >= 0)
        self.request = None


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


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 6)), min_size=1, max_size=9), st.integers(1, 120)
)
def test_what_comes_with_one_request_stays_together(requests, most_bytes):
    work = Chunks([nbytes for nbytes, count in requests for _ in range(count)])
    work.request = np.repeat(np.arange(len(requests)), [count for _, count in requests])
    made = [positions for batch in batches([work], most_bytes, 1000) for _, positions in batch]
    np.testing.assert_array_equal(np.concatenate(made), work.present)
    for number, (nbytes, count) in enumerate(requests):
        holding = [positions for positions in made if (work.request[positions] == number).any()]
        assert len(holding) == 1 or nbytes * count > most_bytes
