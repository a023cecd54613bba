"""GRIB through gribberish: values as GDAL reads them; what gribberish leaves out is reported."""

import struct
import sys

import numpy as np
import pytest
import rasterio
import xarray as xr
from rasterio.shutil import copy

import intarsia
from intarsia.archives.formats.grib import list_messages
from intarsia.errors import IngestError, MissingExtraError

CELSIUS = 273.15
"""GDAL shows temperatures in degrees Celsius."""


def grib(path, day=1, *, shape=(4, 6), level=2, parameter=0):
    """Write one field at a height above ground; returns it as GDAL reads it."""
    values = np.random.default_rng(day + level).integers(-20, 30, (1, *shape)).astype("f4")
    profile = {"count": 1, "height": shape[0], "width": shape[1], "dtype": "float32", "crs": "EPSG:4326"}
    with rasterio.MemoryFile() as memory:
        with memory.open(driver="GTiff", transform=rasterio.Affine(1, 0, 9.5, 0, -1, 50), **profile) as image:
            image.write(values)
        numbers = f"0 {parameter} 2 0 0 0 0 0 1 0 0 0 0 103 0 0 0 0 {level} 255 0 0 0 0 0"
        copy(
            memory.name, path, driver="GRIB", DATA_ENCODING="SIMPLE_PACKING", NBITS="16", PDS_PDTN="0",
            IDS=f"REF_TIME=2020-01-{day:02}T00:00:00Z", PDS_TEMPLATE_NUMBERS=numbers,
        )  # fmt: skip
    with rasterio.open(path) as file:
        return file.read(1)


def joined(target, *paths):
    """A file of several messages."""
    target.write_bytes(b"".join(path.read_bytes() for path in paths))
    return target


def two_fields(content):
    """A message with its field twice: sections 4 to 7 are repeated."""
    at, repeated = 16, b""
    while content[at : at + 4] != b"7777":
        (length,) = struct.unpack_from(">I", content, at)
        if content[at + 4] >= 4:
            repeated += content[at : at + length]
        at += length
    whole = content[:at] + repeated + content[at:]
    return whole[:8] + struct.pack(">Q", len(whole)) + whole[16:]


def test_messages_are_listed_with_their_grids_and_fields(tmp_path):
    grib(tmp_path / "a.grib2")
    grib(tmp_path / "b.grib2", shape=(3, 5))
    first, second = ((tmp_path / name).read_bytes() for name in ("a.grib2", "b.grib2"))
    between = b"a bulletin's heading"
    messages = list(list_messages(first + between + two_fields(second)))
    assert [message.start for message in messages] == [0, len(first) + len(between)]
    assert [message.fields for message in messages] == [1, 2]
    assert messages[0].grid != messages[1].grid
    assert messages[0].grid_name == "latitude and longitude"
    for end in range(0, len(first), 7):  # whatever is cut off
        list(list_messages(first[:end]))


def test_a_message_of_edition_1_has_its_grid_in_its_second_section():
    product = (28).to_bytes(3) + bytes(4) + b"\x80" + bytes(20)
    grid = (32).to_bytes(3) + b"\0\xff\x04" + bytes(26)
    content = product + grid + b"7777"
    (message,) = list_messages(b"GRIB" + (8 + len(content)).to_bytes(3) + b"\1" + content)
    assert (message.start, message.fields, message.grid, message.grid_name) == (0, 1, grid, "Gaussian")


def test_without_gribberish_the_error_names_the_extra(tmp_path, monkeypatch):
    grib(tmp_path / "a.grib2")
    monkeypatch.setitem(sys.modules, "gribberish", None)
    monkeypatch.setitem(sys.modules, "gribberish.virtualizarr", None)
    with pytest.raises(MissingExtraError, match=r"gribberish is not installed: .*\[grib\]"):
        intarsia.ingest(tmp_path / "a.grib2", "memory://", concat_dim="time")


def test_grids_without_coordinates_are_refused_by_name(tmp_path):
    pytest.importorskip("gribberish")
    grib(tmp_path / "a.grib2")
    content = bytearray((tmp_path / "a.grib2").read_bytes())
    (message,) = list_messages(bytes(content))
    at = content.index(message.grid) + 12
    content[at : at + 2] = struct.pack(">H", 40)
    (tmp_path / "a.grib2").write_bytes(content)
    with pytest.raises(IngestError, match=r"a\.grib2: gribberish cannot read its grids: Gaussian"):
        intarsia.ingest(tmp_path / "a.grib2", "memory://", concat_dim="time")


def test_values_are_those_of_gdal_and_nothing_is_copied(tmp_path):
    pytest.importorskip("gribberish")
    expected = [grib(tmp_path / f"{day}.grib2", day) for day in (1, 2, 3)]
    options = {"concat_dim": "time", "copy": "never"}
    with pytest.raises(IngestError, match="source_group='hag/instant' ingests one of them"):
        intarsia.ingest(tmp_path / "*.grib2", "memory://", **options)
    report = intarsia.ingest(tmp_path / "*.grib2", "memory://", source_group="hag/instant", **options)
    dataset = xr.open_dataset(report.repository, engine="intarsia")
    assert dataset.time.dt.day.values.tolist() == [1, 2, 3]
    found = dataset.tmp.sortby("latitude", ascending=False).values
    np.testing.assert_allclose(found - CELSIUS, expected, atol=1e-3)
    assert not report.left_out
    tree = intarsia.ingest(tmp_path / "*.grib2", "memory://", source_group="*", **options)
    assert intarsia.open(tree.repository, "hag/instant/tmp").shape == (3, 4, 6)


def test_fields_that_gribberish_does_not_read_are_left_out_in_words(tmp_path):
    pytest.importorskip("gribberish")
    for name, options in {"a": {}, "b": {"shape": (3, 5)}, "c": {"parameter": 6}}.items():
        grib(tmp_path / f"{name}.grib2", **options)
    paths = {name: tmp_path / f"{name}.grib2" for name in "abc"}
    paths["c"].write_bytes(two_fields(paths["c"].read_bytes()))
    options = {"concat_dim": "time", "source_group": "hag/instant"}
    report = intarsia.ingest(joined(tmp_path / "x.grib2", paths["a"], paths["c"]), "memory://", **options)
    (words,) = report.left_out.values()
    assert "hold 1 fields more, and gribberish reads the first of each" in words
    same_time = joined(tmp_path / "y.grib2", paths["a"], paths["a"])
    report = intarsia.ingest(same_time, "memory://", concat_dim="time", source_group="*")
    assert "gribberish does not take 1 of 2 messages" in str(report.left_out)
    levels = [tmp_path / "low.grib2", tmp_path / "high.grib2"]
    for path, shape, level in zip(levels, [(4, 6), (3, 5)], [2, 10], strict=True):
        grib(path, shape=shape, level=level)
    two_grids = joined(tmp_path / "z.grib2", *levels)
    with pytest.raises(IngestError, match=r"'tmp': its fields are on different grids"):
        intarsia.ingest(two_grids, "memory://", **options)
