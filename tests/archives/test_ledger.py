"""An archive that moved is recognised where its files overlap what is there, and `relocate` is what to do."""

import re

import pytest

import intarsia
from intarsia.archives.ledger import prefixes_of_move
from intarsia.errors import IngestError
from tests.archives.files import netcdf


@pytest.fixture
def moved(tmp_path):
    """A repository, and the pattern of its files, which are elsewhere now."""
    for day, name in enumerate("ab"):
        (tmp_path / "old" / name).mkdir(parents=True)
        netcdf(tmp_path / "old" / name / "day.nc", day)
    intarsia.ingest(tmp_path / "old/*/*.nc", tmp_path / "r", concat_dim="time")
    (tmp_path / "old").rename(tmp_path / "new")
    return tmp_path / "r", tmp_path / "new/*/*.nc"


def test_the_advice_for_a_moved_archive_is_to_relocate_and_that_works(moved):
    repo, files = moved
    with pytest.raises(IngestError, match="2 of 2 files") as caught:
        intarsia.ingest(files, repo, concat_dim="time")
    advice = set(re.findall(r"intarsia\.relocate\(repo, \{'(.*?)': '(.*?)'\}\)", str(caught.value)))
    assert len(advice) == 1
    assert intarsia.relocate(repo, dict(advice)).files == 2
    assert intarsia.ingest(files, repo, concat_dim="time").summary == "nothing to do: 2 unchanged"


def test_a_file_of_another_name_is_recognised_by_its_mark(moved, tmp_path):
    repo, _ = moved
    (tmp_path / "new/a/day.nc").rename(tmp_path / "renamed.nc")
    with pytest.raises(IngestError, match=r"relocate\(repo, \{'file://\S+/old/a/day.nc': '\S+/renamed.nc'\}"):
        intarsia.ingest(tmp_path / "renamed.nc", repo, concat_dim="time")


def test_another_file_of_the_same_day_is_no_moved_one(moved, tmp_path):
    repo, _ = moved
    netcdf(tmp_path / "day.nc", 0, attrs={"history": "x" * 10_000})
    with pytest.raises(IngestError, match="overlaps") as caught:
        intarsia.ingest(tmp_path / "day.nc", repo, concat_dim="time")
    assert "relocate" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "prefixes"),
    [
        ("s3://a/x/y.nc", "s3://b/x/y.nc", ("s3://a/", "s3://b/")),
        ("s3://a/y.nc", "s3://a/in/y.nc", ("s3://a/", "s3://a/in/")),
        ("s3://a/y.nc", "s3://a/z.nc", ("s3://a/y.nc", "s3://a/z.nc")),
        ("file:///y.nc", "file:///d/y.nc", ("file:///y.nc", "file:///d/y.nc")),
    ],
)
def test_what_both_names_end_with_did_not_change(old, new, prefixes):
    assert prefixes_of_move(old, new) == prefixes
