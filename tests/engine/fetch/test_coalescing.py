"""Coalesced byte ranges hold exactly the bytes that were requested."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intarsia.engine.fetch import byte_ranges
from intarsia.engine.fetch.store import ByteRanges

BLOBS = [bytes(range(200)), bytes(reversed(range(200)))]


def fetched(spans):
    """What a store gives for these spans."""
    found = []
    for item in spans:
        if item.start is None:
            found += [BLOBS[object_index] for object_index in item.object_index]
            continue
        for object_index, start, nbytes in zip(item.object_index, item.start, item.nbytes, strict=True):
            data = BLOBS[object_index]
            found.append(data[start:] if start < 0 else data[start : start + nbytes])
    return found


ranges = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 150), st.integers(1, 50)), max_size=12)


@st.composite
def spans(draw):
    kind = draw(st.sampled_from(["ranges", "whole", "suffix"]))
    chosen = draw(ranges)
    object_index, start, nbytes = np.array(chosen, dtype=np.int64).reshape(-1, 3).T
    if kind == "whole":
        return ByteRanges(None, object_index)
    return ByteRanges(None, object_index, start if kind == "ranges" else -nbytes, nbytes)


@given(st.lists(spans(), max_size=3))
def test_the_pieces_are_what_was_asked_for(spans):
    ranges, parts = byte_ranges.coalesce_spans(spans)
    assert [bytes(piece) for piece in parts(fetched(ranges))] == fetched(spans)


def test_neighbours_are_asked_for_together_and_far_ones_alone():
    limits = byte_ranges.Limits(most_gap=10, share=10, free=16, most_bytes=1000)
    spans = ByteRanges(None, np.array([0, 0, 0, 1]), np.array([20, 0, 100, 25]), np.array([5, 15, 5, 5]))
    ((_, object_index, start, nbytes, *_),), _ = byte_ranges.coalesce_spans([spans], limits)
    assert (object_index.tolist(), start.tolist(), nbytes.tolist()) == ([0, 0, 1], [0, 100, 25], [25, 5, 5])


def test_a_joined_range_stays_small():
    limits = byte_ranges.Limits(most_gap=10, share=10, free=16, most_bytes=20)
    spans = ByteRanges(None, np.zeros(5, dtype=int), np.arange(5) * 10, np.full(5, 10))
    ((_, _, start, nbytes, *_),), _ = byte_ranges.coalesce_spans([spans], limits)
    assert (start.tolist(), nbytes.tolist()) == ([0, 20, 40], [20, 20, 10])


def test_a_failure_reaches_every_piece_of_its_range():
    spans = ByteRanges(None, np.zeros(2, dtype=int), np.array([0, 10]), np.array([10, 10]))
    _, parts = byte_ranges.coalesce_spans([spans])
    error = OSError("gone")
    assert parts([error]) == [error, error]
    assert parts([None]) == [None, None]
