"""TIFF: samples of any layout, against tifffile and GDAL; files that nobody can read are refused in words."""

import re
import struct

import numpy as np
import pytest
import tifffile
import xarray as xr

import intarsia
from intarsia.errors import IngestError

PICTURE = np.random.default_rng(0).integers(0, 255, (48, 32, 3)).astype("u1")


def ingested(path, dim="time"):
    report = intarsia.ingest(path, "memory://", concat_dim=dim)
    return report, intarsia.open(report.repository, "0")


@pytest.mark.parametrize("kind", ["u1", "<u2", ">f4"])
@pytest.mark.parametrize(
    "layout",
    [
        {"tile": (16, 16)},
        {"tile": (16, 16), "compression": "deflate"},
        {"tile": (32, 16), "bigtiff": True},
        {"rowsperstrip": 16},
        {"tile": (16, 16), "planarconfig": "separate"},
    ],
    ids=["tiles", "deflated", "big", "strips", "planes"],
)
def test_colours_are_a_dimension_before_the_others(tmp_path, kind, layout):
    picture = PICTURE.astype(kind)
    planes = np.moveaxis(picture, 2, 0)
    options = {**layout, "byteorder": ">" if kind[0] == ">" else "<", "photometric": "rgb"}
    separate = options.get("planarconfig") == "separate"
    tifffile.imwrite(tmp_path / "a.tif", planes if separate else picture, **options)
    report, picture_step = ingested(tmp_path / "a.tif")
    assert picture_step.dimension_names == ("time", "band", "y", "x")
    assert np.array_equal(picture_step[0], planes)
    assert not report.copied
    assert np.array_equal(ingested(tmp_path / "a.tif", "y")[1][...], planes)


def test_differences_of_colours_are_undone(tmp_path):
    tifffile.imwrite(
        tmp_path / "a.tif", PICTURE, photometric="rgb", tile=(16, 16), compression="deflate", predictor=2
    )
    report, picture = ingested(tmp_path / "a.tif", "y")
    assert np.array_equal(picture[...], np.moveaxis(PICTURE, 2, 0))
    assert not report.copied


def as_tifffile_reads(path):
    """The first image with its samples as the first axis; None if tifffile cannot read it."""
    try:
        with tifffile.TiffFile(path) as file:
            page = file.pages.first
            values = page.asarray()
    except Exception:
        return None
    return np.moveaxis(values, -1, 0) if page.axes.endswith("S") else values


def assert_same_or_refused(path, words=""):
    """Values are those of tifffile; a file that it cannot read is refused."""
    expected = as_tifffile_reads(path)
    report = intarsia.ingest(path, "memory://", concat_dim="time", errors="skip")
    if report.failed:
        assert expected is None or words
        assert re.search(words, report.failed[0].reason)
        return None
    assert np.array_equal(intarsia.open(report.repository, "0")[0], expected)
    return report


@pytest.mark.parametrize("bits", [1, 12])
def test_samples_that_are_no_whole_bytes_are_copied(tmp_path, bits):
    pytest.importorskip("imagecodecs")
    if bits == 1:
        tifffile.imwrite(tmp_path / "a.tif", np.eye(32, dtype=bool))
    else:
        tifffile.imwrite(tmp_path / "a.tif", np.ones((32, 32), "u2"), rowsperstrip=32)
        content = bytearray((tmp_path / "a.tif").read_bytes())
        at = _tag(content, 258)
        content[at + 8 : at + 10] = struct.pack("<H", bits)
        (tmp_path / "a.tif").write_bytes(content)
    report = assert_same_or_refused(tmp_path / "a.tif")
    assert f"its samples have {bits} bits" in str(report)
    with pytest.raises(IngestError, match=rf"its samples have {bits} bits, and copy='never' was requested"):
        intarsia.ingest(tmp_path / "a.tif", "memory://", concat_dim="time", copy="never")


def _images(content):
    (at,) = struct.unpack("<I", content[4:8])
    (tags,) = struct.unpack("<H", content[at : at + 2])
    return at, tags


def _tag(content, number):
    at, tags = _images(content)
    entries = [at + 2 + 12 * k for k in range(tags)]
    return next(e for e in entries if struct.unpack("<H", content[e : e + 2]) == (number,))


@pytest.mark.parametrize("target", ["itself", "beyond the end"])
def test_images_after_the_first_are_not_looked_at(tmp_path, target):
    tifffile.imwrite(tmp_path / "a.tif", np.eye(32, dtype="u1"))
    content = bytearray((tmp_path / "a.tif").read_bytes())
    at, tags = _images(content)
    following = at if target == "itself" else 1 << 30
    content[at + 2 + 12 * tags : at + 6 + 12 * tags] = struct.pack("<I", following)
    (tmp_path / "a.tif").write_bytes(content)
    assert np.array_equal(ingested(tmp_path / "a.tif")[1][0], np.eye(32))


FORMS = pytest.mark.parametrize("order", "<>")
BIG = pytest.mark.parametrize("big", [False, True], ids=["plain", "big"])


def _changed(path, order, big, number, change):
    """Write a file, and change the entry of one of its tags: (type, count, place)."""
    tifffile.imwrite(path, PICTURE[..., 0], tile=(16, 16), byteorder=order, bigtiff=big)
    content = bytearray(path.read_bytes())
    offset, head, entry = (8, "Q", "HHQQ") if big else (4, "H", "HHII")
    (at,) = struct.unpack_from(order + entry[-1], content, offset)
    (tags,) = struct.unpack_from(order + head, content, at)
    form, at = struct.Struct(order + entry), at + struct.calcsize(order + head)
    places = [at + k * form.size for k in range(tags)]
    place = next(each for each in places if form.unpack_from(content, each)[0] == number)
    form.pack_into(content, place, number, *change(*form.unpack_from(content, place)[1:]))
    path.write_bytes(content)


@FORMS
@BIG
def test_tags_that_the_file_cannot_hold_are_no_tags(tmp_path, order, big):
    path = tmp_path / "a.tif"
    for number, change in {
        324: lambda kind, _, place: (kind, 1 << 20, place),
        325: lambda kind, count, _: (kind, max(count, 9), 1 << 30),
        259: lambda _, count, place: (77, count, place),
        256: lambda kind, _, place: (kind, (1 << 63 if big else 1 << 31), place),
    }.items():
        _changed(path, order, big, number, change)
        assert_same_or_refused(path, "cannot read it|truncated|empty|axes|no image|strips or tiles instead")


def test_a_file_without_images_is_refused(tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(b"II*\0" + bytes(100))
    with pytest.raises(IngestError, match=r"a\.tif: .*tifffile cannot read it"):
        ingested(path)


def _image(path, changes, samples=1, order="<"):
    """Write an image of 32x32 bytes in one strip, with some tags changed, added or (None) left out."""
    raw = (np.arange(32 * 32 * samples) % 251).astype("u1").tobytes()
    tags = {256: 32, 257: 32, 258: 8, 259: 1, 262: 1 if samples == 1 else 2, 273: 0, 277: samples, 278: 32}
    tags |= {279: len(raw)} | changes
    numbers = sorted(number for number, value in tags.items() if value is not None)
    start = 8 + 2 + 12 * len(numbers) + 4
    tags[273] = start if tags[273] == 0 else tags[273]
    entries = b"".join(struct.pack(order + "HHIHH", number, 3, 1, tags[number], 0) for number in numbers)
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HIH", 42, 8, len(numbers))
    path.write_bytes(head + entries + bytes(4) + raw)


CHANGES = {
    "bits of bytes reversed": {266: 2},
    "several layers": {32997: 2, 257: 16, 278: 16},
    "tiles of several layers": {32998: 2},
    "another predictor": {317: 34892},
    "predictor of raw bytes": {317: 2},
    "another compression": {259: 32809},
    "unknown compression": {259: 32},
    "another meaning of colours": {262: 32844},
    "colours of JPEG": {262: 6},
    "another order of samples": {284: 3},
    "another extra sample": {338: 77},
    "another sample": {339: 5},
    "short floats": {339: 3},
    "other images below": {330: 8},
    "no meaning of colours": {262: None},
    "no width": {256: None},
    "no number of samples": {277: None},
    "no strips": {278: None},
    "tiles and strips": {324: 8},
    "too few strips": {278: 16},
    "too few of many strips": {278: 5},
    "a strip that is too long": {257: 16, 278: 16},
    "a strip that is too short": {279: 512},
}


@FORMS
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_whatever_a_tag_says_values_are_those_of_tifffile(tmp_path, changes, samples, order):
    _image(tmp_path / "a.tif", changes, samples, order)
    assert_same_or_refused(
        tmp_path / "a.tif", "tifffile cannot read it|NumPy has no type|has the axes|strips or tiles instead"
    )


@FORMS
@pytest.mark.parametrize(
    "changes", [{}, {266: 1}, {274: 3}, {32997: 1}, {338: 1}, {320: 7}, {262: 0}], ids=str
)
def test_what_a_tag_does_not_change_is_as_in_tifffile(tmp_path, changes, order):
    _image(tmp_path / "a.tif", changes, order=order)
    assert np.array_equal(ingested(tmp_path / "a.tif")[1][0], tifffile.imread(tmp_path / "a.tif"))


@FORMS
@pytest.mark.parametrize("colours", ["grey", "interleaved", "planes"])
@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("f4", {"compression": "deflate", "predictor": 3}),
        ("f4", {"compression": "lzw", "predictor": 1}),
        ("u2", {"compression": "lzw", "predictor": 2}),
        ("u2", {"compression": "jpegxl"}),
        ("i8", {}),
    ],
    ids=["differences of floats", "floats", "differences", "pictures", "long integers"],
)
@pytest.mark.filterwarnings("ignore:Imagecodecs codecs:UserWarning")
def test_values_are_those_of_tifffile_or_the_file_is_refused(tmp_path, kind, encoding, colours, order):
    pytest.importorskip("imagecodecs")
    picture = (PICTURE / 7).astype(kind)
    layout = {"photometric": "rgb", "tile": (16, 16), "byteorder": order}
    if colours == "grey":
        picture, layout["photometric"] = picture[..., 0].copy(), "minisblack"
    elif colours == "planes":
        picture, layout["planarconfig"] = np.moveaxis(picture, 2, 0).copy(), "separate"
    tifffile.imwrite(tmp_path / "a.tif", picture, **layout, **encoding)
    report = assert_same_or_refused(tmp_path / "a.tif")
    is_big = order == ">"
    by_copy = encoding.get("predictor") == 3 or (encoding.get("compression") == "jpegxl" and is_big)
    assert bool(report.copied) == by_copy


@FORMS
@pytest.mark.parametrize("rows", [1, 5, 20, 31])
@pytest.mark.parametrize("colours", ["grey", "interleaved", "planes"])
@pytest.mark.parametrize(
    "encoding", [{}, {"compression": "deflate", "predictor": 2}, {"compression": "lzw"}], ids=str
)
@pytest.mark.filterwarnings("ignore:Imagecodecs codecs:UserWarning")
def test_strips_that_do_not_divide_the_height_are_two_members(tmp_path, colours, encoding, rows, order):
    pytest.importorskip("imagecodecs")
    picture = np.arange(32 * 7 * 3, dtype=">u2" if order == ">" else "<u2").reshape(32, 7, 3) * 97
    layout = {"photometric": "rgb", "rowsperstrip": rows, "byteorder": order}
    if colours == "grey":
        picture, layout["photometric"] = picture[..., 0].copy(), "minisblack"
    elif colours == "planes":
        picture, layout["planarconfig"] = np.moveaxis(picture, 2, 0).copy(), "separate"
    tifffile.imwrite(tmp_path / "a.tif", picture, **layout, **encoding)
    report = assert_same_or_refused(tmp_path / "a.tif")
    assert not report.copied
    image = intarsia.open(report.repository, "0")
    assert len(image.regions) == (1 if 32 % rows == 0 else 2)
    expected = as_tifffile_reads(tmp_path / "a.tif")
    for y in (slice(3, 32), slice(30, 32), slice(0, 21), slice(31, None, -5)):
        assert np.array_equal(image[0, ..., y, 2:5], expected[..., y, 2:5])


def test_short_strips_are_placed_in_any_cube(tmp_path):
    for number in range(3):
        values = np.full((10 + number, 6), number, "u1") + np.arange(6, dtype="u1") * 10
        tifffile.imwrite(tmp_path / f"{number}.tif", values, rowsperstrip=4)
    files = [tmp_path / f"{number}.tif" for number in range(3)]
    report = intarsia.ingest(files, "memory://", concat_dim="y")
    expected = np.concatenate([tifffile.imread(file) for file in files])
    assert np.array_equal(intarsia.open(report.repository, "0")[...], expected)
    assert not report.copied
    copied = intarsia.ingest(files, "memory://", concat_dim="y", copy="all")
    assert np.array_equal(intarsia.open(copied.repository, "0")[...], expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda ds: ds.isel(y=slice(3, 9)),
        lambda ds: ds.isel(y=slice(None, None, -1)),
        lambda ds: ds.isel(y=9),
        lambda ds: ds.isel(y=2),
        lambda ds: ds.transpose("x", "y"),
        lambda ds: ds.isel(y=[9, 0, 4], x=[1, 0]),
    ],
    ids=["part", "turned", "last row", "a row", "transposed", "picked"],
)
def test_preprocess_sees_short_strips_as_any_other_array(tmp_path, change):
    values = np.arange(60, dtype="u1").reshape(10, 6)
    tifffile.imwrite(tmp_path / "a.tif", values, rowsperstrip=4)
    report = intarsia.ingest(tmp_path / "a.tif", "memory://", concat_dim="time", preprocess=change)
    expected = change(xr.Dataset({"0": (("y", "x"), values)}))["0"].values
    assert np.array_equal(intarsia.open(report.repository, "0")[0], expected)
    assert not report.copied


def test_gdals_files_have_their_values_and_the_number_for_missing_ones(tmp_path):
    rasterio = pytest.importorskip("rasterio")
    values = np.arange(3 * 102 * 50, dtype="i2").reshape(3, 102, 50)
    profile = {"driver": "GTiff", "count": 3, "height": 102, "width": 50, "dtype": "int16", "nodata": 7}
    place = {"crs": "EPSG:32618", "transform": rasterio.Affine(300, 0, 101985, 0, -300, 2826915)}
    with rasterio.open(tmp_path / "a.tif", "w", **profile, **place, interleave="pixel", blockysize=10) as to:
        to.write(values)
    with rasterio.open(tmp_path / "a.tif") as file:
        expected = file.read()
    report, image = ingested(tmp_path / "a.tif")
    assert not report.copied
    assert np.array_equal(image[0], np.where(expected == 7, np.nan, expected), equal_nan=True)
    assert image.attrs["projected_type"] == 32618
    assert image.attrs["model_pixel_scale"] == [300, 300, 0]
