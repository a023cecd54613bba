"""Made `version-1.zip`: two datasets as `ingest` wrote them when packings were filters of members.

It ran with intarsia before packings stood in the manifest; today's `ingest` writes another layout. Of one,
days 0 to 2 share a packing, 3 has one of its own, 4 holds plain float32, 5 is `_Unsigned`; the other has
day 4 alone. All is copied, so that the datasets stand for themselves.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr
from tests.archives.files import netcdf

import intarsia


def make(target: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        paths = [folder / f"{day}.nc" for day in range(6)]
        for day, path in enumerate(paths[:4]):
            attrs = {"scale_factor": 0.01 if day < 3 else 0.03, "add_offset": 280.0}
            netcdf(path, day, kind="i2", fill=7, attrs=attrs)
        netcdf(paths[4], 4, kind="f4", fill=np.float32(1e20))
        netcdf(paths[5], 5, kind="i1", fill=-3, attrs={"_Unsigned": "true", "scale_factor": np.float32(2)})
        for repository, kinds in (("wide", paths), ("narrow", paths[4:5])):
            intarsia.ingest(kinds, folder / "made" / repository, concat_dim="time", copy="all")
        with xr.open_mfdataset(paths) as dataset:
            np.save(folder / "made" / "values.npy", dataset.sst.values)
        shutil.make_archive(target, "zip", folder / "made")


if __name__ == "__main__":
    make(sys.argv[1])
