"""An archive of mixed chunks goes on to other programs, or the refusal names the call that takes it there."""

import re

import numpy as np
import pytest
import xarray as xr

import intarsia
from intarsia.errors import CodecConfigurationError, UnreachableMembersError
from tests.archives.files import hdf5

CALL = r"intarsia\.export\(array, '(plain\.zarr)'\)"


@pytest.fixture
def dataset(tmp_path):
    """Files of two chunk shapes, neither of which holds the other."""
    for day in range(4):

        def build(file, shape, day=day):
            values = np.arange(48, dtype="i2").reshape(1, 6, 8) + day
            chunks = (1, 4, 8) if day < 2 else (1, 6, 3)
            yield file.create_dataset("sst", data=values, chunks=chunks, compression="gzip")

        hdf5(tmp_path / f"{day}.h5", day, build)
    report = intarsia.ingest(sorted(tmp_path.glob("*.h5")), tmp_path / "repository", concat_dim="time")
    assert len(report.runs) == 2
    return report.repository


def test_to_zarr_takes_what_is_open_with_chunks(dataset, tmp_path):
    with xr.open_dataset(dataset, engine="intarsia", chunks={}) as lazy:
        lazy.to_zarr(tmp_path / "plain.zarr", consolidated=False)
        with xr.open_zarr(tmp_path / "plain.zarr", consolidated=False) as plain:
            xr.testing.assert_equal(plain.load(), lazy.load())


@pytest.mark.parametrize(
    ("refused", "error"),
    [(intarsia.tensorstore_spec, UnreachableMembersError), (intarsia.fuse, CodecConfigurationError)],
)
def test_a_refusal_names_the_call_that_does(dataset, tmp_path, refused, error):
    array = intarsia.open(dataset, "sst")
    with pytest.raises(error, match=CALL) as raised:
        refused(array)
    place = tmp_path / re.search(CALL, str(raised.value))[1]
    assert np.array_equal(intarsia.export(array, place)[...], array[...])
