"""Maps are drawn to scale, say on hover what there is, and stay small."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import intarsia
from intarsia.inspect.region_map import draw_map
from intarsia.inspect.survey import survey
from tests.inspect import samples

SVG = "{http://www.w3.org/2000/svg}"


def drawn(array, **options):
    text = draw_map(survey(array), **options)
    return ET.fromstring(text), text


def regions_of(picture):
    return [group for group in picture.iter(f"{SVG}g") if group.get("class") == "region"]


def hover(group):
    return group.find(f"{SVG}title").text


def test_two_regions_are_drawn_to_scale():
    picture, _ = drawn(samples.two_codecs())
    upper, lower = regions_of(picture)
    boxes = [
        {k: float(g.find(f"{SVG}rect").get(k)) for k in ("x", "y", "width", "height")} for g in (upper, lower)
    ]
    assert boxes[0]["width"] * 0.6 == pytest.approx(boxes[1]["width"], rel=0.01)
    assert boxes[0]["height"] == pytest.approx(boxes[1]["height"], rel=0.01)
    assert boxes[1]["y"] == pytest.approx(boxes[0]["y"] + boxes[0]["height"], rel=0.01)


def test_hover_tells_bounds_codecs_chunks_stored_size_and_ratio():
    array = samples.two_codecs()
    words = hover(regions_of(drawn(array)[0])[1]).split("\n")
    region = array.regions[1]
    assert words[0] == "Region [500:1000, 0:600]"
    assert words[1] == "Codecs raw"
    assert words[2] == "Chunks (100, 100)"
    assert words[4] == "Stored 1.2 MB"
    assert words[5] == "Ratio 1x"
    assert words[6] == f"Member {region.name}"


def test_more_dimensions_have_a_strip_for_each_axis_that_is_not_in_the_plane():
    picture, _ = drawn(samples.series())
    names = [text.text for text in picture.iter(f"{SVG}text")]
    for name in ("time", "lat", "lon"):
        assert name in names
    strip = [g for g in regions_of(picture) if hover(g).startswith("Region [0:20")]
    assert strip


def test_in_a_mixture_each_pipeline_has_its_share_and_that_is_explained():
    """Two codecs along time on the left, one on the right: the map of lat and lon has both in one place."""
    array = intarsia.create({}, "a", shape=(50, 72, 144), chunks=(10, 36, 72), dtype="f4")
    for (start, stop), codec in (((0, 20), "gzip"), ((20, 50), "zstd")):
        for lat, lon in ((0, 0), (0, 72), (36, 0), (36, 72)):
            array.add_region(((start, stop), (lat, lat + 36), (lon, lon + 72)), codecs=[codec])
    _, text = drawn(array)
    assert "A block of several colours" in text
    assert "Codecs gzip-5: 40 %" in text
    assert "Codecs zstd-0: 60 %" in text


def test_a_standalone_picture_carries_its_legend_and_both_colour_schemes():
    picture, text = drawn(samples.two_codecs())
    words = " ".join(node.text or "" for node in picture.iter(f"{SVG}text"))
    assert "gzip-5: 1 region" in words
    assert "raw: 1 region" in words
    assert "prefers-color-scheme:dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((), ()),
        ((0,), (1,)),
        ((7,), (2,)),
        ((0, 5), (1, 5)),
        ((1, 10**9), (1, 10**6)),
        ((10**6, 3), (100, 3)),
        ((2,) * 6, (1,) * 6),
    ],
)
def test_every_shape_can_be_drawn_with_and_without_regions(shape, chunks):
    array = intarsia.create({}, "a", shape=shape, chunks=chunks, dtype="f4")
    drawn(array)
    if np.prod(shape):
        array.add_region(tuple((0, min(c, n)) for c, n in zip(chunks, shape, strict=True)), codecs=["gzip"])
        picture, _ = drawn(array)
        assert regions_of(picture)


def test_axes_of_different_scale_say_so():
    array = intarsia.create({}, "a", shape=(100_000, 10), chunks=(1000, 10), dtype="f4")
    assert "axes at different scales" in drawn(array)[1]
    assert "axes at different scales" not in drawn(samples.two_codecs())[1]


def test_hostile_names_are_text_in_the_picture():
    picture, text = drawn(samples.hostile())
    assert "<script" not in text
    assert "\x1b" not in text
    assert {node.tag.removeprefix(SVG) for node in picture.iter()} <= {
        "svg",
        "style",
        "desc",
        "defs",
        "pattern",
        "rect",
        "g",
        "title",
        "text",
        "line",
    }


def test_blocks_are_named_by_their_codecs_where_these_fit():
    picture, _ = drawn(samples.two_codecs())
    words = [each.text for each in picture.iter(f"{SVG}text")]
    assert words[:2] == ["A: gzip-5", "B: raw"]
    narrow = intarsia.create({}, "a", shape=(1000, 1000), chunks=(50, 50), dtype="u1")
    for column in range(20):
        codecs = ["gzip" if column % 2 else "zstd"]
        narrow.add_region(((0, 1000), (50 * column, 50 * column + 50)), codecs=codecs)
    picture, _ = drawn(narrow)
    assert {each.text for each in picture.iter(f"{SVG}text")} >= {"A", "B"}
    assert "A: gzip" not in {each.text for each in picture.iter(f"{SVG}text")}


def test_a_map_of_each_layer():
    array = intarsia.create({}, "a", shape=(0, 4), chunks=(1, 4), dtype="u1")
    array.append(np.ones((6, 4), "u1"), codecs=["gzip"])
    array.add_replica(((2, 6), (0, 4)), chunks=(4, 1), codecs=["zstd"])
    for layer, bounds, codecs in ((0, "[0:6, 0:4]", "gzip"), (1, "[2:6, 0:4]", "zstd")):
        picture = ET.fromstring(intarsia.region_map(array, layer=layer))
        words = [hover(group) for group in regions_of(picture)]
        assert len(words) == 1
        assert f"Region {bounds}" in words[0]
        assert f"Codecs {codecs}" in words[0]
    shown = array._repr_html_()
    assert "Layer 1: 1 replica in chunks of" in shown
