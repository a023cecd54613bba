"""TIFF: samples of any layout, against tifffile; damaged and unusual files are refused in words."""

import struct

import numpy as np
import pytest
import tifffile

import intarsia
from intarsia.archives import tiff
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


@pytest.mark.parametrize("bits", [1, 12])
def test_samples_that_are_no_whole_bytes_are_refused(tmp_path, bits):
    if bits == 1:
        tifffile.imwrite(tmp_path / "a.tif", np.eye(32, dtype=bool))
    else:
        tifffile.imwrite(tmp_path / "a.tif", np.ones((32, 32), "u2"))
        content = bytearray((tmp_path / "a.tif").read_bytes())
        at = _tag(content, 258)
        content[at + 8 : at + 10] = struct.pack("<H", bits)
        (tmp_path / "a.tif").write_bytes(content)
    with pytest.raises(IngestError, match=rf"a\.tif: .*its samples have {bits} bits"):
        ingested(tmp_path / "a.tif")


def _images(content):
    (at,) = struct.unpack("<I", content[4:8])
    (tags,) = struct.unpack("<H", content[at : at + 2])
    return at, tags


def _tag(content, number):
    at, tags = _images(content)
    entries = [at + 2 + 12 * k for k in range(tags)]
    return next(e for e in entries if struct.unpack("<H", content[e : e + 2]) == (number,))


@pytest.mark.parametrize(("target", "words"), [("itself", "is circular"), ("beyond the end", "truncated")])
def test_a_list_of_images_without_end_is_refused_at_once(tmp_path, target, words):
    tifffile.imwrite(tmp_path / "a.tif", np.eye(32, dtype="u1"))
    content = bytearray((tmp_path / "a.tif").read_bytes())
    at, tags = _images(content)
    following = at if target == "itself" else 1 << 30
    content[at + 2 + 12 * tags : at + 6 + 12 * tags] = struct.pack("<I", following)
    (tmp_path / "a.tif").write_bytes(content)
    with pytest.raises(IngestError, match=rf"a\.tif: .*{words}"):
        ingested(tmp_path / "a.tif")


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
def test_tags_that_the_file_cannot_hold_are_refused(tmp_path, order, big):
    path = tmp_path / "a.tif"
    _changed(path, order, big, 324, lambda kind, _, place: (kind, 1 << 20, place))
    with pytest.raises(IngestError, match=r"a\.tif: .*its tag 324 claims 1048576 values of [48] bytes"):
        ingested(path)
    _changed(path, order, big, 325, lambda kind, count, _: (kind, max(count, 9), 1 << 30))
    with pytest.raises(IngestError, match=r"a\.tif: .*its tag 325 claims \d+ values .* at byte 1073741824"):
        ingested(path)
    _changed(path, order, big, 259, lambda _, count, place: (77, count, place))
    with pytest.raises(IngestError, match=r"a\.tif: .*its tag 259 has the type 77"):
        ingested(path)


def _entries(*entries):
    """A little-endian TIFF that is nothing but a list of tags."""
    packed = b"".join(struct.pack("<HHII", *each) for each in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + packed + bytes(4)


def test_a_file_without_images_or_with_one_value_for_many_tags_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.tif"
    path.write_bytes(b"II*\0" + bytes(100))
    with pytest.raises(IngestError, match=r"a\.tif: .*it has no image"):
        ingested(path)
    monkeypatch.setattr(tiff, "SHARED_BYTES", 100)
    path.write_bytes(_entries(*((40_000 + k, 7, 200, 0) for k in range(2))) + bytes(200))
    with pytest.raises(IngestError, match=r"a\.tif: .*its tags have 400 bytes or more, but the file has 238"):
        ingested(path)


def test_images_without_number_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tiff, "MOST_TAGS", 40)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, PICTURE, photometric="minisblack")
    with pytest.raises(IngestError, match=r"a\.tif: .*tags or more; at most 40 can be read"):
        ingested(path)
