"""Files are written whole or not at all."""

import os

import pytest

from intarsia.inspect.write_report import whole_file


def test_a_file_appears_complete_or_stays_as_it_was(tmp_path):
    file = tmp_path / "page.html"
    with whole_file(file) as stream:
        stream.write(b"old")
        assert not file.exists()
    with pytest.raises(TypeError), whole_file(file) as stream:
        stream.writelines([b"new", None])
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_others_may_read_it_as_the_mask_of_the_process_says(tmp_path):
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "page.html"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o640
