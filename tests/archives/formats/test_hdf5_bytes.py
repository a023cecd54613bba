"""Global heaps of HDF5 that are damaged: refused before HDF5 goes round in them for ever."""

import subprocess
import sys

import pytest

import intarsia
from intarsia.archives.formats.hdf5_files import HEAD, OBJECT, SIGNATURE
from tests.archives.files import netcdf

INGEST = "import sys, intarsia; intarsia.ingest(sys.argv[1], 'memory://', concat_dim='time')"


@pytest.mark.parametrize("damage", ["free space without a length", "objects that lead back"])
def test_heaps_without_an_end_are_refused_with_the_file(tmp_path, damage):
    place = tmp_path / "a.nc"
    netcdf(place, 0)
    data = bytearray(place.read_bytes())
    start = data.index(SIGNATURE)
    size = HEAD.unpack_from(data, start)[1]
    first = start + HEAD.size + OBJECT.size + 8  # behind the first object, which is a reference
    if damage == "objects that lead back":
        data[start + HEAD.size : start + 80] = b"\xff" * (80 - HEAD.size)
    else:
        data[first : start + size] = bytes(start + size - first)
    place.write_bytes(data)
    # In a process of its own: without the check, nothing but its end stops it.
    ran = subprocess.run([sys.executable, "-c", INGEST, place], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1, ran.stderr
    assert "a.nc" in ran.stderr
    assert "free space in it has no length" in ran.stderr


def test_heaps_that_are_sound_are_read(tmp_path):
    netcdf(tmp_path / "a.nc", 0)
    report = intarsia.ingest(tmp_path / "a.nc", "memory://", concat_dim="time")
    assert "sst" in intarsia.reader(report.repository)
