"""Repositories on az://, on a real server where it is installed, and on gs://, as far as they are built."""

import numpy as np
import obstore
import pytest

import intarsia
from intarsia.errors import ReadError
from intarsia.versions.repository import CLOUDS
from intarsia.versions.storage_options import for_obstore
from tests import servers
from tests.archives.files import netcdf


@pytest.fixture(scope="module")
def azure(tmp_path_factory):
    if servers.azurite_program() is None:
        pytest.skip("azurite is not installed: npm install --prefix .venv azurite")
    with servers.azurite(tmp_path_factory.mktemp("azurite")) as options:
        yield options


def test_a_repository_in_a_container_of_azure(azure):
    place = f"az://{servers.BUCKET}/some/repository"
    repo = intarsia.open_repository(place, create=True, **azure)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    intarsia.append(repo, "t", [3, 4])
    assert intarsia.open(place, "t", storage_options=azure)[...].tolist() == [1, 2, 3, 4]
    assert intarsia.verify(repo) == ()
    with pytest.raises(OSError):
        intarsia.open_repository(place, **azure | {"access_key": "bm90IHRoZSBrZXk="})


def test_sources_in_a_container_of_azure(azure, tmp_path):
    values = netcdf(tmp_path / "0.nc", 0)
    store = obstore.store.from_url(f"az://{servers.BUCKET}", **for_obstore(azure, "az"))
    obstore.put(store, "archive/0.nc", (tmp_path / "0.nc").read_bytes())
    pattern = f"az://{servers.BUCKET}/archive/*.nc"
    report = intarsia.ingest(pattern, tmp_path / "r", concat_dim="time", storage_options=azure)
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], values)
    again = intarsia.open(tmp_path / "r", "sst", authorize=True, storage_options=azure)
    assert np.array_equal(again[...], values)
    with pytest.raises(ReadError):
        intarsia.open(tmp_path / "r", "sst")[...]


@pytest.mark.parametrize(
    "options",
    [{"anonymous": True}, {"bearer_token": "x"}, {"endpoint_url": "http://127.0.0.1:1", "anonymous": True}],
)
def test_a_repository_on_google_cloud_storage_is_built(options):
    """No registry has a server that speaks its protocol: what can be shown is that the options are taken."""
    storage = CLOUDS["gs"]("bucket", "some/prefix", options)
    assert "some/prefix" in str(storage)
