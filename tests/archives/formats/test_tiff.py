"""TIFF: samples of any layout, against tifffile; damaged and unusual files are refused in words."""

import struct
from pathlib import Path

import numpy as np
import pytest
import tifffile

import intarsia
from intarsia.archives.formats import tiff
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
    monkeypatch.setattr(tiff, "MAX_TAGS", 40)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, PICTURE, photometric="minisblack")
    with pytest.raises(IngestError, match=r"a\.tif: .*tags or more; at most 40 can be read"):
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


REFUSED = {
    "bits of bytes reversed": ({266: 2}, r"its tag FillOrder \(266\) is 2, and only 1 can be read"),
    "several layers": ({32997: 2, 257: 16, 278: 16}, r"its tag ImageDepth \(32997\) is 2"),
    "tiles of several layers": ({32998: 2}, r"its tag TileDepth \(32998\) is 2"),
    "another predictor": ({317: 34892}, r"its tag Predictor \(317\) is 34892, and only 1, 2, 3"),
    "predictor of raw bytes": ({317: 2}, r"Predictor \(317\) 2 with Compression \(259\) 1"),
    "another compression": ({259: 32809}, r"its tag Compression \(259\) is 32809, and that cannot be read"),
    "another meaning of colours": ({262: 32844}, r"its tag PhotometricInterpretation \(262\) is 32844"),
    "another order of samples": ({284: 3}, r"its tag PlanarConfiguration \(284\) is 3, and only 1, 2"),
    "another extra sample": ({338: 77}, r"its tag ExtraSamples \(338\) is 77, and only 0, 1, 2"),
    "another sample": ({339: 5}, r"its tag SampleFormat \(339\) is 5"),
    "short floats": ({339: 3}, r"floating-point numbers of 8 bits, which is not supported"),
    "other images below": ({330: 8}, r"it has the tag SubIFDs \(330\), which is not supported"),
    "no meaning of colours": ({262: None}, r"it lacks the tag PhotometricInterpretation \(262\)"),
    "no width": ({256: None}, r"it lacks the tag ImageWidth \(256\)"),
    "no number of samples": ({277: None}, r"it lacks the tag SamplesPerPixel \(277\)"),
    "no strips": ({278: None}, r"it lacks the tag RowsPerStrip \(278\)"),
    "tiles and strips": ({324: 8}, r"it lacks the tag TileWidth \(322\)"),
    "too few strips": ({278: 16}, r"StripOffsets \(273\) has 1 values instead of 2"),
    "a shorter strip": ({278: 5}, r"its 32 rows are in strips of 5, but"),
    "a strip that is too long": ({257: 16, 278: 16}, r"of 16x32 samples has 1024 bytes instead of 512"),
}


@FORMS
@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_what_a_tag_would_change_is_refused_by_its_name(tmp_path, changes, words, order):
    _image(tmp_path / "a.tif", changes, order=order)
    with pytest.raises(IngestError, match=rf"a\.tif: .*{words}.*GDAL or tifffile can write a copy"):
        ingested(tmp_path / "a.tif")


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
    refused = (
        kind == "i8"
        or (encoding.get("predictor") == 3 and (order == ">" or colours == "interleaved"))
        or (encoding["compression"] == "jpegxl" and order == ">")
    )
    if refused:
        with pytest.raises(IngestError, match=r"a\.tif: .*, which is not supported: GDAL or tifffile"):
            ingested(tmp_path / "a.tif")
        return
    expected = tifffile.imread(tmp_path / "a.tif")
    expected = np.moveaxis(expected, 2, 0) if colours == "interleaved" else expected
    assert np.array_equal(ingested(tmp_path / "a.tif")[1][0], expected)


def test_an_image_after_the_first_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as writer:
        for _ in range(2):
            writer.write(np.eye(32, dtype="u1"), photometric="minisblack", metadata=None)
    content = bytearray(path.read_bytes())
    at, tags = _images(content)
    (second,) = struct.unpack_from("<I", content, at + 2 + 12 * tags)
    entries = [second + 2 + 12 * k for k in range(tags)]
    place = next(each for each in entries if struct.unpack_from("<H", content, each) == (262,))
    struct.pack_into("<H", content, place + 8, 32845)
    path.write_bytes(content)
    with pytest.raises(IngestError, match=r"PhotometricInterpretation \(262\) of image 2 is 32845"):
        ingested(path)


def test_the_specification_lists_what_happens_to_every_tag():
    page = Path(tiff.__file__).parents[4] / "docs" / "spec" / "ingest.md"
    if not page.exists():
        pytest.skip("the documentation is not part of this installation")
    section = page.read_text().partition("## TIFF\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    listed = {int(row[1]): [each.strip() for each in row] for row in rows}
    for number, tag in tiff.TAGS.items():
        name, _, use, *accepted = listed[number]
        assert (name, use == "refused") == (tag.name, tag.refused)
        values = ", ".join(map(str, tag.values))
        assert "".join(accepted) == "; ".join(filter(None, [values, "needed" if tag.needed else ""]))
    decisive = {
        number for number, (_, _, use, *accepted) in listed.items() if use == "refused" or any(accepted)
    }
    assert decisive <= tiff.TAGS.keys()
