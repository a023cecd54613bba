"""Files are written whole or not at all."""

import os

import pytest

import intarsia
from intarsia.inspect.write_report import whole_file
from intarsia.logical.attributes import Attributes


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


def test_the_work_of_a_report_does_not_grow_with_the_square_of_the_attributes(tmp_path, monkeypatch):
    attributes = {f"k{i:05}": i for i in range(3000)}
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4", attributes=attributes)
    copies = []
    each = Attributes.__iter__
    monkeypatch.setattr(Attributes, "__iter__", lambda self: copies.append(1) or each(self))
    page = intarsia.write_report(array.group.store, "a", tmp_path / "report.html").read_text()
    assert "k00099" in page
    assert "k00100" not in page
    assert len(copies) < 20
