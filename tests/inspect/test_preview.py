"""The small picture of values: in the report, and in a notebook on request; bounded, whatever is damaged."""

import base64
import io
import re
from importlib.resources import files

import numpy as np
from PIL import Image

import intarsia
from intarsia.inspect import sample as module
from intarsia.inspect.preview import VIRIDIS, png, preview_html
from intarsia.inspect.survey import survey
from tests.inspect import samples


def preview_of(array):
    return preview_html(array, survey(array))


def pixels_of(html):
    """The pictures in a page, as arrays."""
    found = re.findall(r'href="data:image/png;base64,([^"]+)"', html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for data in found]


def made(values, chunks=None, **options):
    array = intarsia.create({}, "a", shape=values.shape, chunks=chunks or values.shape, dtype="f4", **options)
    array.add_region([(0, n) for n in values.shape], data=values)
    return array


def test_pictures_are_read_by_others():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 4)).astype("u1")
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png(pixels)))), pixels)


def test_the_page_of_the_viewer_has_the_same_colours():
    script = files("intarsia.inspect").joinpath("viewer_assets/colours.js").read_text(encoding="utf-8")
    assert f'"viridis": "{VIRIDIS}",' in script


def test_a_plane_is_a_picture_with_the_smallest_values_dark_and_the_largest_bright():
    values = np.linspace(0, 1, 300 * 500).reshape(300, 500)
    picture, bar = pixels_of(preview_of(made(values)))[:2]
    assert picture.shape == (150, 167, 4)  # every second row, every third column
    assert (picture[..., 3] == 255).all()
    assert picture[0, 0, :3].tolist() == bar[0, 0, :3].tolist()
    assert picture[-1, -1, :3].tolist() == bar[0, -1, :3].tolist()


def test_of_more_axes_the_middle_of_the_others_is_shown_and_said():
    values = np.zeros((5, 30, 40))
    values[2] = np.arange(40)
    html = preview_of(made(values, dimension_names=("time", "y", "x")))
    assert "Values at time = 2" in html
    assert len(np.unique(pixels_of(html)[0][0, :, :3], axis=0)) > 30


def test_holes_and_damage_have_colours_of_their_own(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(20, 20), chunks=(10, 10), dtype="f4")
    array.add_region([(0, 10), (0, 20)], data=np.random.default_rng(0).random((10, 20)), codecs=["gzip"])
    chunk = tmp_path / "a" / array.regions[0].name / "c" / "0" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-9])
    html = preview_of(array)
    picture = pixels_of(html)[0]
    assert picture[5, 15].tolist() == [179, 38, 30, 255]
    assert (picture[15, :, 3] < 100).all()
    assert (picture[:10, :10, 3] == 255).all()
    assert "red: cannot be read" in html


def test_where_nothing_can_be_read_it_says_why(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(4, 4), chunks=(4, 4), dtype="f4")
    array.add_region([(0, 4), (0, 4)], data=np.ones((4, 4)), codecs=["gzip"])
    (tmp_path / "a" / array.regions[0].name / "c" / "0" / "0").write_bytes(b"x")
    assert preview_of(array).startswith('<p class="soft">The values cannot be read: cannot read region')


def test_lines_and_single_values_and_nothing():
    html = preview_of(made(np.array([1.0, np.nan, 3.0, 4.0])))
    assert re.search(r'd="M[\d. ]+M[\d. ]+L[\d. ]+"', html)  # broken where there is no number
    assert "<strong>7.25</strong>" in preview_of(made(np.array(7.25)))
    empty = intarsia.create({}, "a", shape=(0, 4), chunks=(2, 4), dtype="f4")
    assert preview_of(empty) == ""


def test_it_reads_a_bounded_part(monkeypatch):
    monkeypatch.setattr(module, "MAX_CHUNKS", 10)
    html = preview_of(made(np.ones((64, 64)), chunks=(4, 4)))
    assert "one of every 32 places on each axis" in html


def test_a_notebook_shows_it_on_request():
    array = samples.two_codecs()
    assert "figure" not in re.sub(r"<style>.*?</style>", "", array._repr_html_())
    html = array.with_config(preview=True)._repr_html_()
    assert len(pixels_of(html)) == 2  # the values and their scale
    assert len(html) < 200_000


def test_hostile_names_stay_words():
    html = samples.hostile().with_config(preview=True)._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
