"""Parts of files are read and written to the end, however little the system takes at a time."""

import os
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia import file_io
from intarsia.errors import ChunkDecodeError


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_buffers_are_written_to_their_end(buffers, most, data):
    content = bytearray()

    def take_a_little(_file, views, offset):
        assert len(views) <= most
        assert offset == 3 + len(content)
        offered = b"".join(views)
        taken = data.draw(st.integers(min(1, len(offered)), len(offered)))
        content.extend(offered[:taken])
        return taken

    with (
        mock.patch.object(file_io, "MAX_BUFFERS", most),
        mock.patch.object(file_io.os, "pwritev", take_a_little),
    ):
        assert file_io.write_all(0, buffers, 3) == 3 + len(b"".join(buffers))
    assert content == b"".join(buffers)


def test_short_reads_are_finished_and_a_file_that_is_cut_off_is_named(tmp_path, monkeypatch):
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda file, nbytes, offset: pread(file, min(nbytes, 5), offset))
    monkeypatch.setattr(os, "preadv", lambda file, views, offset: preadv(file, [views[0][:7]], offset))
    content = bytes(range(193))
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file:
        assert file_io.read_exactly(file.fileno(), 3, 190) == content[3:]
        with pytest.raises(ChunkDecodeError, match=r"cut off: .*file has 190 of 193 bytes from 3 on"):
            file_io.read_exactly(file.fileno(), 3, 193)


@pytest.mark.parametrize("window", [7, 64, 1000])
def test_bytes_are_copied_from_file_to_file(window, tmp_path, monkeypatch):
    monkeypatch.setattr(file_io, "WINDOW", window)
    content = bytes(range(193))
    (tmp_path / "old").write_bytes(content)
    with (tmp_path / "old").open("rb") as old, (tmp_path / "new").open("w+b") as new:
        file_io.copy_range(old.fileno(), 3, new.fileno(), 5, 190)
        assert new.read() == bytes(5) + content[3:]
        with pytest.raises(ChunkDecodeError, match="cut off"):
            file_io.copy_range(old.fileno(), 3, new.fileno(), 5, 191)
