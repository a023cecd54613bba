"""GRIB through gribberish: values as GDAL reads them; what gribberish leaves out is reported."""

import struct
import sys

import numpy as np
import pytest
import rasterio
import xarray as xr
from rasterio.shutil import copy

import intarsia
from intarsia.archives.formats.grib import Message, list_messages
from intarsia.errors import IngestError, MissingExtraError

CELSIUS = 273.15
"""GDAL shows temperatures in degrees Celsius."""


def grib(path, day=1, *, shape=(4, 6), level=2, parameter=0, category=0, discipline=0):
    """Write one field at a height above ground; returns it as GDAL reads it."""
    values = np.random.default_rng(day + level).integers(-20, 30, (1, *shape)).astype("f4")
    profile = {"count": 1, "height": shape[0], "width": shape[1], "dtype": "float32", "crs": "EPSG:4326"}
    with rasterio.MemoryFile() as memory:
        with memory.open(driver="GTiff", transform=rasterio.Affine(1, 0, 9.5, 0, -1, 50), **profile) as image:
            image.write(values)
        numbers = f"{category} {parameter} 2 0 0 0 0 0 1 0 0 0 0 103 0 0 0 0 {level} 255 0 0 0 0 0"
        copy(
            memory.name, path, driver="GRIB", DATA_ENCODING="SIMPLE_PACKING", NBITS="16", PDS_PDTN="0",
            IDS=f"REF_TIME=2020-01-{day:02}T00:00:00Z", PDS_TEMPLATE_NUMBERS=numbers,
            DISCIPLINE=str(discipline),
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
    assert messages[0].grid_name == "latitude and longitude (template 3.0)"
    assert messages[0].parameter == "parameter 0-0-0 (template 4.0)"
    for end in range(0, len(first), 7):  # whatever is cut off
        list(list_messages(first[:end]))


def test_a_message_of_edition_1_has_its_grid_in_its_second_section():
    product = (28).to_bytes(3) + bytes(4) + b"\x80" + bytes(20)
    grid = (32).to_bytes(3) + b"\0\xff\x04" + bytes(26)
    content = product + grid + b"7777"
    (message,) = list_messages(b"GRIB" + (8 + len(content)).to_bytes(3) + b"\1" + content)
    assert (message.start, message.fields, message.grid) == (0, 1, grid)
    assert message.grid_name == message.problem == "Gaussian (type 4 of edition 1)"
    assert message.parameter == "parameter 0 of table 0 of centre 0"


def test_without_gribberish_the_error_names_the_extra(tmp_path, monkeypatch):
    grib(tmp_path / "a.grib2")
    monkeypatch.setitem(sys.modules, "gribberish", None)
    monkeypatch.setitem(sys.modules, "gribberish.virtualizarr", None)
    with pytest.raises(MissingExtraError, match=r"gribberish is not installed: .*\[grib\]"):
        intarsia.ingest(tmp_path / "a.grib2", "memory://", concat_dim="time")


def with_grid(path, at, value):
    """Change bytes in the definition of the grid of a file's first message."""
    content = bytearray(path.read_bytes())
    message = next(list_messages(bytes(content)))
    at += content.index(message.grid)
    content[at : at + len(value)] = value
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (12, struct.pack(">H", 40), r"Gaussian \(template 3\.40\)"),
        (12, struct.pack(">H", 150), r"HEALPix \(template 3\.150\)"),
        (12, struct.pack(">H", 77), r"template 3\.77"),
        (30, b"\xff" * 4, r"latitude and longitude \(template 3\.0\) with rows of different lengths"),
        (38, struct.pack(">II", 1, 3), r"latitude and longitude \(template 3\.0\) in units of its own"),
        (12, struct.pack(">HB", 30, 7), r"Lambert \(template 3\.30\) on an Earth of shape 7"),
        (71, b"\x50", "with rows in alternating directions"),
        (71, b"\x60", "with its points stored column by column"),
        (71, b"\x48", "with shifted rows"),
    ],
)
def test_grids_that_gribberish_misreads_are_refused_by_name(tmp_path, at, value, words):
    pytest.importorskip("gribberish")
    grib(tmp_path / "a.grib2")
    with_grid(tmp_path / "a.grib2", at, value)
    with pytest.raises(IngestError, match=rf"a\.grib2: gribberish cannot read its grids: .*{words}"):
        intarsia.ingest(tmp_path / "a.grib2", "memory://", concat_dim="time")


def test_parameters_that_gribberish_does_not_know_are_refused_by_number(tmp_path):
    pytest.importorskip("gribberish")
    grib(tmp_path / "a.grib2", parameter=191)
    with pytest.raises(
        IngestError, match=r"gribberish cannot read it: .* \(parameter 0-0-191 \(template 4\.0\)"
    ):
        intarsia.ingest(tmp_path / "a.grib2", "memory://", concat_dim="time")


def test_a_message_on_an_unknown_grid_does_not_hide_the_others(tmp_path):
    pytest.importorskip("gribberish")
    paths = tmp_path / "a.grib2", tmp_path / "b.grib2"
    for path in paths:
        grib(path)
    with_grid(paths[1], 12, struct.pack(">H", 150))
    whole = joined(tmp_path / "x.grib2", *paths)
    report = intarsia.ingest(whole, "memory://", concat_dim="time", source_group="*")
    assert "does not take 1 of 2 messages" in str(report.left_out)
    assert "HEALPix (template 3.150)" in str(report.left_out)
    assert intarsia.open(report.repository, "hag/instant/tmp").shape == (1, 4, 6)


def test_coordinates_lie_between_the_corners_whatever_the_steps_are(tmp_path):
    pytest.importorskip("gribberish")
    path = tmp_path / "a.grib2"
    grib(path)
    path.write_bytes(b"a bulletin's heading\r\r\n" + path.read_bytes())
    options = {"concat_dim": "time", "source_group": "hag/instant"}
    for steps in (b"", b"\xff" * 8):
        with_grid(path, 63, steps)
        dataset = xr.open_dataset(intarsia.ingest(path, "memory://", **options).repository, engine="intarsia")
        assert dataset.latitude.values.tolist() == [46.5, 47.5, 48.5, 49.5]
        assert dataset.longitude.values.tolist() == [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("first", "last", "mode", "expected"),
    [(350, 10, 0x40, [350, 0, 10]), (10, 350, 0xC0, [10, 0, 350]), (0, 0, 0x40, [0, 180, 0])],
)
def test_longitudes_go_around_the_globe(first, last, mode, expected):
    grid = bytearray(72)
    grid[30:38] = struct.pack(">II", 3, 1)
    grid[50:54], grid[59:63] = (struct.pack(">I", each * 1_000_000) for each in (first, last))
    grid[71] = mode
    message = Message(0, 2, 1, "", bytes(grid))
    assert message.axes()[1].tolist() == expected


def test_values_are_those_of_gdal_and_nothing_is_copied(tmp_path):
    pytest.importorskip("gribberish")
    expected = [grib(tmp_path / f"{day}.grib2", day) for day in (1, 2, 3)]
    options = {"concat_dim": "time", "copy": "never"}
    with pytest.raises(IngestError, match="'hag/instant'"):
        intarsia.ingest(tmp_path / "*.grib2", "memory://", **options)
    report = intarsia.ingest(tmp_path / "*.grib2", "memory://", source_group="hag/instant", **options)
    dataset = xr.open_dataset(report.repository, engine="intarsia")
    assert dataset.time.dt.day.values.tolist() == [1, 2, 3]
    found = dataset.tmp.sortby("latitude", ascending=False).values
    np.testing.assert_allclose(found - CELSIUS, expected, atol=1e-3)
    assert dataset.tmp.attrs["units"] == "K"
    assert dataset.latitude.attrs["units"] == "degrees_north"
    assert not report.left_out
    tree = intarsia.ingest(tmp_path / "*.grib2", "memory://", source_group="*", **options)
    assert intarsia.open(tree.repository, "hag/instant/tmp").shape == (3, 4, 6)


def test_units_that_change_between_tables_are_converted(tmp_path):
    pytest.importorskip("gribberish")
    ecmwf = {"parameter": 228, "discipline": 192, "shape": (4, 6)}
    expected = [
        grib(tmp_path / "1.grib2", 1, category=128, **ecmwf),  # metres
        grib(tmp_path / "2.grib2", 2, category=228, **ecmwf) / 1000,  # kg m-2
    ]
    options = {"concat_dim": "time", "source_group": "hag/instant"}
    words = r"'tp' has the units 'kg m-2', but .* has 'm' \(convert_units=True converts them"
    with pytest.raises(IngestError, match=words):
        intarsia.ingest(tmp_path / "*.grib2", "memory://", **options)
    report = intarsia.ingest(tmp_path / "*.grib2", "memory://", convert_units=True, **options)
    dataset = xr.open_dataset(report.repository, engine="intarsia").sortby("latitude", ascending=False)
    assert dataset.tp.attrs["units"] == "m"
    np.testing.assert_allclose(dataset.tp, expected, atol=1e-3)
    assert report.copied == 0


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
    paths["high"] = tmp_path / "high.grib2"
    grib(paths["high"], shape=(3, 5), level=10)
    grib(paths["c"], shape=(3, 5), parameter=6)
    for other in ("high", "c"):
        two_grids = joined(tmp_path / "z.grib2", paths["a"], paths[other])
        with pytest.raises(IngestError, match=r"'tmp': the fields of its group are on different grids"):
            intarsia.ingest(two_grids, "memory://", **options)
