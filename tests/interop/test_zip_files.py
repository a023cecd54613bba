"""Archives inside zip files, stored or deflated: every door reads them; damage is an error or no change."""

import random
import zipfile
import zlib

import numpy as np
import pytest
import tensorstore
import xarray as xr
from zarr.storage import ZipStore

import intarsia

VALUES = np.arange(48, dtype="i4").reshape(8, 6)
METHODS = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED}
DOORS = {
    "open": lambda store: intarsia.open(store, "a")[...],
    "reader": lambda store: intarsia.reader(store, "a")[...],
    "xarray": lambda store: xr.open_dataset(store, engine="intarsia")["a"].values,
    "dask": lambda store: xr.open_dataset(store, engine="intarsia", chunks={})["a"].values,
    "fused_view": lambda store: intarsia.fused_view(store, "a")[...],
    "convert": lambda store: intarsia.convert(store, {})["a"][...],
    "export": lambda store: intarsia.export(store, {})["a"][...],
}
BROKEN = (intarsia.IntarsiaError, zipfile.BadZipFile, zlib.error, OSError, ValueError, KeyError, RuntimeError)
"""Python's zipfile and zarr say themselves what is wrong with a zip file that cannot be opened."""


@pytest.fixture(params=METHODS)
def file(request, tmp_path):
    array = intarsia.create(
        tmp_path / "s", "a", shape=(0, 6), chunks=(2, 3), dtype="i4", dimension_names="yx"
    )
    array.append(VALUES[:4], codecs=["zstd", "crc32c"])
    array.append(VALUES[4:], codecs=["gzip"])
    with zipfile.ZipFile(tmp_path / "a.zip", "w", METHODS[request.param]) as packed:
        for path in sorted(each for each in (tmp_path / "s").rglob("*") if each.is_file()):
            packed.write(path, path.relative_to(tmp_path / "s"))
    return tmp_path / "a.zip"


@pytest.mark.parametrize("door", DOORS)
def test_every_door_reads_them(door, file):
    with ZipStore(file, mode="r") as store:
        np.testing.assert_array_equal(DOORS[door](store), VALUES)


def test_they_are_checked_and_shown_and_never_changed(file, tmp_path):
    before = file.read_bytes()
    with ZipStore(file, mode="r") as store:
        assert intarsia.verify(store, deep=True) == ()
        assert "</html>" in intarsia.write_report(store, file=tmp_path / "page.html").read_text()
        with pytest.raises(intarsia.errors.ReadOnlyError):
            intarsia.open(store, "a", mode="r+").append(VALUES[:2])
        found = tensorstore.open(intarsia.tensorstore_spec(intarsia.open(store, "a"))).result()
        np.testing.assert_array_equal(found.read().result(), VALUES)
        with pytest.raises(intarsia.errors.ReadOnlyError, match="can only be read"):
            intarsia.vacuum(store)
    assert file.read_bytes() == before


def test_the_name_of_one_is_refused_with_the_way_to_open_it(file):
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match=r"is a zip file.\n.*ZipStore\('"):
        intarsia.open(file, "a")


@pytest.mark.parametrize("flips", [60, pytest.param(3_000, marks=pytest.mark.torture)])
def test_damage_is_an_error_or_changes_nothing(flips, file, tmp_path):
    """Not in the directory at the end, which has no checksum: a chunk whose name changed there is missing."""
    plain, rng, refused = file.read_bytes(), random.Random(flips), 0
    with zipfile.ZipFile(file) as packed:
        entries = packed.start_dir
    for number in range(flips):
        raw = bytearray(plain)
        at = rng.randrange(entries)
        raw[at] ^= 1 << rng.randrange(8)
        (tmp_path / "bad.zip").write_bytes(raw if number % 4 else raw[:at])
        try:
            with ZipStore(tmp_path / "bad.zip", mode="r") as store:
                found = DOORS["open"](store)
        except BROKEN:
            refused += 1
            continue
        np.testing.assert_array_equal(found, VALUES, err_msg=f"bit at {at}")
    print(f"{refused} of {flips} refused")
    assert refused
