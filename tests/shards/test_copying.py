"""Copying chunks between files, whatever their order, their gaps and their sizes."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.shards import copying
from intarsia.shards.copying import Piece, copy_pieces


@pytest.fixture(scope="module", autouse=True)
def small_windows():
    """Constants so small that a few bytes need several windows, groups and steps."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("WINDOW", 64), ("GAP", 5), ("STEP", 100)):
            patch.setattr(copying, name, value)
        yield


@given(data=st.data())
def test_every_piece_arrives_in_its_place(tmp_path_factory, data):
    lengths = data.draw(st.lists(st.integers(1, 150), max_size=12))
    source, starts = b"", []
    for length in lengths:
        source += bytes(data.draw(st.integers(0, 9)))
        starts.append(len(source))
        source += os.urandom(length)
    chosen = data.draw(st.permutations(range(len(lengths))))
    pieces, expected = [], bytearray()
    for number in chosen:
        expected += bytes(data.draw(st.integers(0, 12)))
        start, length = starts[number], lengths[number]
        replacement = data.draw(st.sampled_from([None, None, None, b"another"]))
        pieces.append(Piece(start, length, len(expected), replacement))
        expected += source[start : start + length] if replacement is None else replacement
    directory = tmp_path_factory.mktemp("copy")
    (directory / "old").write_bytes(source)
    (directory / "new").touch()
    with (directory / "old").open("rb") as old, (directory / "new").open("r+b") as new:
        copy_pieces(old.fileno(), new.fileno(), pieces)
    assert (directory / "new").read_bytes() == bytes(expected)


def test_a_file_that_ends_too_early_is_an_error(tmp_path):
    (tmp_path / "old").write_bytes(b"abc")
    with (
        (tmp_path / "old").open("rb") as old,
        (tmp_path / "new").open("w+b") as new,
        pytest.raises(intarsia.errors.ChunkDecodeError, match="shorter"),
    ):
        copy_pieces(old.fileno(), new.fileno(), [Piece(1, 9, 0, None)])
