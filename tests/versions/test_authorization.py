"""Repositories read the files that they refer to if whoever opens them says so, wherever that is said."""

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from intarsia.errors import IngestError, NotAuthorizedError, ReadError
from tests import http_files
from tests.archives.files import netcdf


@pytest.fixture
def archive(tmp_path):
    """A repository of two files in two directories, and their values."""
    values = []
    for day, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        values.append(netcdf(tmp_path / name / "0.nc", day))
    intarsia.ingest([tmp_path / "a/0.nc", tmp_path / "b/0.nc"], tmp_path / "r", concat_dim="time")
    return tmp_path / "r", np.concatenate(values)


def opened_by_xarray(place, **options):
    with xr.open_dataset(place, engine="intarsia", **options) as dataset:
        return dataset["sst"].values


DOORS = {
    "open": lambda place, **options: intarsia.open(place, "sst", **options)[...],
    "reader": lambda place, **options: intarsia.reader(place, "sst", **options)[...],
    "repository": lambda place, **options: intarsia.open(intarsia.open_repository(place, **options), "sst")[
        ...
    ],
    "xarray": opened_by_xarray,
    "tree": lambda place, **options: xr.open_datatree(place, engine="intarsia", **options)["sst"].values,
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_every_door_takes_what_may_be_read(archive, door):
    place, values = archive
    a, b, above = (f"file://{place.parent}/{name}" for name in ("a/", "b/", ""))
    for authorize in (True, above, [above], [a, b], [a.rstrip("/"), b], {a: {}, b: {}}, str(place.parent)):
        assert np.array_equal(door(place, authorize=authorize), values)
    for nothing in (None, False, [a]):
        with pytest.raises(NotAuthorizedError) as caught:
            door(place, authorize=nothing)
        assert caught.value.prefix == above  # of both directories, not of the one that was read first
        assert f"authorize=[{above!r}]" in str(caught.value)
    with pytest.raises(IngestError, match="no virtual chunk container for file:///etc/"):
        door(place, authorize=["file:///etc/"])


def test_what_has_no_sources_to_authorise_is_refused(tmp_path, archive):
    zarr.create_group(tmp_path / "plain.zarr")
    store = intarsia.open_repository(archive[0]).readonly_session("main").store
    for source in (tmp_path / "plain.zarr", store, {}):
        with pytest.raises(TypeError, match="only an Icechunk repository takes"):
            intarsia.open(source, "sst", authorize=True)


def test_a_handle_from_before_the_containers_works_after_them(tmp_path):
    old = intarsia.open_repository(tmp_path / "r", create=True)
    trusting = intarsia.open_repository(tmp_path / "r", authorize=True)
    values = netcdf(tmp_path / "0.nc", 0)
    intarsia.ingest(tmp_path / "0.nc", tmp_path / "r", concat_dim="time")  # by a handle of its own
    with pytest.raises(NotAuthorizedError, match="authorize"):
        intarsia.open(old, "sst")[...]
    assert intarsia.archives.containers(old) == (f"file://{tmp_path}/",)
    for repo in (
        trusting,
        intarsia.archives.authorize(old),
        intarsia.archives.authorize(old, [f"file://{tmp_path}/"]),
    ):
        assert np.array_equal(intarsia.open(repo, "sst")[...], values)
        assert np.array_equal(opened_by_xarray(repo), values)


def test_the_handle_that_ingest_was_given_may_read_what_it_ingested(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    for name in "ab":
        (tmp_path / name).mkdir()
        netcdf(tmp_path / name / "0.nc", ord(name))
        intarsia.ingest(tmp_path / name / "0.nc", repo, concat_dim="time")
    assert intarsia.open(repo, "sst")[...].shape == (2, 6, 8)
    assert np.isfinite(intarsia.open(repo, "sst")[...]).all()


def test_an_old_handle_that_ingests_keeps_the_containers_of_others(tmp_path):
    old = intarsia.open_repository(tmp_path / "r", create=True)
    for name, repo in (("a", tmp_path / "r"), ("b", old)):
        (tmp_path / name).mkdir()
        netcdf(tmp_path / name / "0.nc", ord(name))
        intarsia.ingest(tmp_path / name / "0.nc", repo, concat_dim="time")
    assert len(intarsia.archives.containers(tmp_path / "r")) == 2
    assert intarsia.open(tmp_path / "r", "sst", authorize=True)[...].shape == (2, 6, 8)


def test_verify_says_once_what_may_not_be_read(archive):
    place, _ = archive
    (problem,) = intarsia.verify(place)
    assert (problem.kind, problem.where) == ("access", "/")
    assert f"below file://{place.parent}/" in problem.what
    assert intarsia.verify(intarsia.open_repository(place, authorize=True)) == ()


def test_serving_is_refused_at_the_start_not_for_every_client(archive):
    place, _ = archive
    with pytest.raises(NotAuthorizedError, match=f"below file://{place.parent}/"):
        intarsia.serve(place)
    with pytest.raises(NotAuthorizedError):
        intarsia.serve(intarsia.open(place, "sst"))
    with intarsia.serve(intarsia.open_repository(place, authorize=True)):
        pass


def test_a_zarr_source_is_one_thing_to_authorise(tmp_path):
    for day in range(2):
        group = zarr.create_group(tmp_path / f"{day}.zarr")
        time = group.create_array("time", shape=1, dtype="i4", dimension_names=["time"])
        time[:] = day
        array = group.create_array(
            "v", shape=(1, 4, 4), chunks=(1, 2, 2), dtype="f4", dimension_names=["time", "y", "x"]
        )
        array[...] = day + 1
    intarsia.ingest([tmp_path / "0.zarr", tmp_path / "1.zarr"], tmp_path / "r", concat_dim="time")
    assert intarsia.archives.containers(tmp_path / "r") == (
        f"file://{tmp_path}/",
    )  # not one for every row of chunks
    with pytest.raises(NotAuthorizedError) as caught:
        intarsia.open(tmp_path / "r", "v")[...]
    assert caught.value.prefix == f"file://{tmp_path}/"
    assert intarsia.open(tmp_path / "r", "v", authorize=[caught.value.prefix])[1, 3, 3] == 2


def test_a_token_for_web_servers_is_used_and_never_written_down(tmp_path):
    (tmp_path / "files").mkdir()
    values = netcdf(tmp_path / "files/0.nc", 0)
    with http_files.serving(tmp_path / "files", authorization="Bearer open sesame") as url:
        with pytest.raises((IngestError, ReadError)):
            intarsia.ingest(f"{url}/0.nc", tmp_path / "refused", concat_dim="time")
        options = {"bearer_token": "open sesame"}
        repo = tmp_path / "r"
        report = intarsia.ingest(f"{url}/0.nc", repo, concat_dim="time", storage_options=options)
        assert np.array_equal(intarsia.open(report.repository, "sst")[...], values)
        for door in DOORS.values():
            with pytest.raises((ReadError, RuntimeError)):
                door(repo, authorize=True)
            assert np.array_equal(door(repo, authorize=True, storage_options=options), values)
            assert np.array_equal(door(repo, authorize={f"{url}/": options}), values)
        more = intarsia.open_repository(repo, authorize=True, storage_options=options)
        (tmp_path / "1").mkdir()
        netcdf(tmp_path / "1/1.nc", 1)
        intarsia.ingest(tmp_path / "1/1.nc", more, concat_dim="time")  # which saves the configuration again
        assert intarsia.open(more, "sst")[...].shape == (2, 6, 8)
    saved = icechunk.Repository.fetch_config(intarsia.open_repository(repo).storage)
    assert "sesame" not in str(saved.virtual_chunk_containers)
    for file in repo.rglob("*"):
        assert not file.is_file() or b"sesame" not in file.read_bytes()
