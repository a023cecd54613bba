"""Containers: as narrow as they can be, and nothing is read that was not authorised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.errors import IngestError, ReadError
from intarsia.versions.authorization import MAX_CONTAINERS, covering_prefixes, directories
from tests.archives.files import netcdf

NAMES = st.sampled_from("abc")


@given(st.lists(st.lists(NAMES, min_size=2, max_size=5), min_size=1, max_size=60))
def test_prefixes_cover_every_source_and_are_few_and_never_everything(paths):
    urls = ["file:///" + "/".join(parts) + "/f.nc" for parts in paths]
    found = covering_prefixes(urls)
    assert all(any(url.startswith(prefix) for prefix in found) for url in urls)
    assert len(found) <= MAX_CONTAINERS
    assert "file:///" not in found
    assert not any(a != b and a.startswith(b) for a in found for b in found)
    assert not covering_prefixes(urls, existing=found)


def test_few_directories_get_a_container_each():
    urls = ["s3://bucket/a/1.nc", "s3://bucket/b/2.nc", "file:///data/3.nc"]
    assert covering_prefixes(urls) == {"s3://bucket/a/", "s3://bucket/b/", "file:///data/"}


def test_a_directory_whose_name_needs_encoding_is_left_for_the_one_above():
    assert directories(["file:///data/a%20b/c/1.nc"]) == {"file:///data/"}


def test_only_the_directories_of_the_sources_are_authorised(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    netcdf(tmp_path / "a/0.nc", 0)
    netcdf(tmp_path / "b/1.nc", 1)
    report = intarsia.ingest(tmp_path / "a/0.nc", tmp_path / "r", concat_dim="time")
    assert report.containers == (f"file://{tmp_path}/a/",)
    assert report.repository.authorized_virtual_container_prefixes == {f"file://{tmp_path}/a/"}
    report = intarsia.ingest(tmp_path / "b/1.nc", report.repository, concat_dim="time")
    assert report.containers == (f"file://{tmp_path}/b/",)
    assert intarsia.archives.containers(report.repository) == (
        f"file://{tmp_path}/a/",
        f"file://{tmp_path}/b/",
    )
    assert intarsia.open(report.repository, "sst")[...].shape[0] == 2  # both


def test_a_repository_opened_elsewhere_says_what_to_authorise(tmp_path):
    values = netcdf(tmp_path / "0.nc", 0)
    intarsia.ingest(tmp_path / "0.nc", tmp_path / "r", concat_dim="time")
    repo = intarsia.open_repository(tmp_path / "r")
    prefix = f"file://{tmp_path}/"
    sst = intarsia.open(repo, "sst")  # what it is can be seen
    assert sst.shape == (1, 6, 8)
    with pytest.raises(ReadError) as caught:
        sst[...]
    assert f"{prefix}0.nc" in str(caught.value)
    assert f"repo = intarsia.archives.authorize(repo, [{prefix!r}])" in str(caught.value)
    again = intarsia.archives.authorize(repo, [prefix])
    assert np.array_equal(intarsia.open(again, "sst")[...], values)
    with pytest.raises(IngestError, match="no virtual chunk container for file:///etc/"):
        intarsia.archives.authorize(repo, ["file:///etc/"])


def test_authorising_all_and_some(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        netcdf(tmp_path / name / "0.nc", ord(name))
    intarsia.ingest(tmp_path / "*/0.nc", tmp_path / "r", concat_dim="time")
    repo = intarsia.open_repository(tmp_path / "r")
    some = intarsia.archives.authorize(repo, [f"file://{tmp_path}/a"])
    assert intarsia.open(some, "sst")[0].shape == (6, 8)
    with pytest.raises(ReadError, match="authori"):
        intarsia.open(some, "sst")[1]
    for known in (some, tmp_path / "r", str(tmp_path / "r")):
        assert len(intarsia.archives.containers(known)) == 2
        assert intarsia.open(intarsia.archives.authorize(known), "sst")[...].shape == (2, 6, 8)
