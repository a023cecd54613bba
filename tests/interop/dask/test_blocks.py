"""Blocks of whole chunks, and groups of pieces that share no chunk."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from intarsia.interop.dask.block_writes import align, conflict_free_groups
from intarsia.logical.staging import DataPiece
from intarsia.manifest.box import Box


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 20), st.integers(1, 7))
def test_every_cut_lies_between_chunks_and_nothing_is_lost(sizes, start, chunk):
    length = sum(sizes)
    piece = DataPiece("m-1", Box((0,), (length,)), Box((start,), (start + length,)))
    (blocks,) = align([tuple(sizes)], piece, (chunk,))
    assert sum(blocks) == length
    assert min(blocks) > 0
    cut = start
    for block in blocks[:-1]:
        cut += block
        assert cut % chunk == 0


def test_source_blocks_that_are_whole_chunks_stay():
    piece = DataPiece("m-1", Box((0,), (20,)), Box((0,), (20,)))
    assert align([(10, 10)], piece, (5,)) == ((10, 10),)


intervals = st.tuples(st.integers(0, 30), st.integers(1, 6)).map(lambda t: (t[0], t[0] + t[1]))


@given(st.lists(st.tuples(st.sampled_from("ab"), intervals), max_size=8), st.integers(1, 5))
def test_no_two_pieces_of_a_round_share_a_chunk(places, grain):
    parts = [
        (None, SimpleNamespace(piece=DataPiece(name, Box((a,), (b,)), Box((a,), (b,))), grain=(grain,)))
        for name, (a, b) in places
    ]
    groups = conflict_free_groups(parts)
    assert sum(len(group) for group in groups) == len(parts)
    for group in groups:
        chunks = [
            (part.piece.member, i)
            for _, part in group
            for i in range(part.piece.target.start[0] // grain, -(-part.piece.target.stop[0] // grain))
        ]
        assert len(chunks) == len(set(chunks))
