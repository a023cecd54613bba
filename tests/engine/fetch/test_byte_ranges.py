"""Requests hold every range, stay within the limits, and are no more than that takes."""

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from intarsia.engine.fetch.byte_ranges import REMOTE, Limits, coalesce_ranges

ranges = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(1, 40)), max_size=9)
limits = st.builds(
    Limits,
    most_gap=st.integers(0, 60),
    share=st.integers(1, 10),
    free=st.integers(0, 30),
    most_bytes=st.just(10**6),
)


def columns(chosen):
    return np.array(chosen, dtype=np.int64).reshape(-1, 3).T


def wanted_bytes(chosen, owner):
    return {byte for o, start, nbytes in chosen if o == owner for byte in range(start, start + nbytes)}


@given(ranges, limits)
def test_every_range_lies_in_its_request(chosen, within):
    found = coalesce_ranges(*columns(chosen), within)
    for (owner, start, nbytes), number in zip(chosen, found.request.tolist(), strict=True):
        assert found.owner[number] == owner
        assert found.first[number] <= start
        assert start + nbytes <= found.last[number]
    assert sorted(set(found.request.tolist())) == list(range(found.owner.size))


@given(ranges, limits)
def test_no_more_is_read_than_the_limits_allow(chosen, within):
    found = coalesce_ranges(*columns(chosen), within)
    for owner in {o for o, _, _ in chosen}:
        wanted = wanted_bytes(chosen, owner)
        own = found.owner == owner
        read = int((found.last[own] - found.first[own]).sum())
        assert len(wanted) <= read <= len(wanted) + max(len(wanted) // within.share, within.free)


@given(ranges, limits)
def test_no_other_choice_takes_fewer_requests(chosen, within):
    found = coalesce_ranges(*columns(chosen), within)
    for owner in {o for o, _, _ in chosen}:
        wanted = sorted(wanted_bytes(chosen, owner))
        gaps = [b - a - 1 for a, b in pairwise(wanted) if b - a > 1]
        allowed = max(len(wanted) // within.share, within.free)
        most = max(
            count
            for count in range(len(gaps) + 1)
            for some in combinations(gaps, count)
            if sum(some) <= allowed and all(gap <= within.most_gap for gap in some)
        )
        assert int((found.owner == owner).sum()) == len(gaps) + 1 - most


def test_long_runs_are_cut_between_ranges():
    start = np.arange(10) * 100
    found = coalesce_ranges(np.zeros(10, dtype=int), start, np.full(10, 100), Limits(0, 10, 0, 250))
    assert found.first.tolist() == [0, 300, 500, 800]
    assert found.last.tolist() == [300, 500, 800, 1000]


def test_the_chunks_of_a_file_with_a_little_between_them_are_one_request():
    start = np.arange(20) * 101_000
    found = coalesce_ranges(np.zeros(20, dtype=int), start, np.full(20, 100_000), REMOTE)
    assert found.owner.size == 1
    assert found.nbytes <= 1.1 * 20 * 100_000
