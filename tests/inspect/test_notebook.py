"""Notebook output: self-contained, small, safe, and in the same words as everything else."""

from html.parser import HTMLParser

import pytest

import intarsia
from intarsia.inspect.survey import PIPELINE_COLUMNS, REGION_COLUMNS
from tests.inspect import samples


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.cells = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells and self.tags[-1] in ("th", "td", "span"):
            self.cells[-1] += data


@pytest.mark.parametrize(("side", "ndim"), [(10_000, 1), (100, 2), (22, 3), (5, 6)])
def test_ten_thousand_regions_stay_below_200_kilobytes(side, ndim):
    html = samples.tiles(side, ndim)._repr_html_()
    assert side**ndim >= 10_000
    assert len(html.encode()) < 200_000


def test_hostile_names_and_attributes_are_inert():
    page = Page(samples.hostile()._repr_html_())
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_nothing_is_loaded_from_elsewhere():
    page = Page(samples.two_codecs()._repr_html_())
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not [n for n, v in page.attributes if n in ("src", "href", "srcset")]


def test_the_tables_use_the_words_of_the_text_in_their_order():
    array = samples.two_codecs()
    cells = Page(array._repr_html_()).cells
    assert [cell for cell in cells if cell in PIPELINE_COLUMNS][: len(PIPELINE_COLUMNS)] == list(
        PIPELINE_COLUMNS
    )
    columns = [name for name in REGION_COLUMNS if name not in ("Packing", "View", "Shards")]
    at = cells.index(columns[0])
    assert cells[at : at + len(columns)] == columns
    names = [name for name, _ in array.info.fields]
    assert [cell for cell in cells if cell in names][-len(names) :] == names


def test_repr_and_info_share_their_words():
    array = samples.two_codecs()
    text = repr(array)
    places = [text.index(f"{word}=") for word in ("shape", "dtype", "chunks", "regions")]
    assert places == sorted(places)
    shown = dict(array.info.fields)
    assert f"shape={shown['Shape']} dtype={shown['Data type']} chunks={shown['Chunks']}" in text
    assert f"regions={shown['Regions']}" in text


def test_an_array_whose_chunks_are_too_many_to_measure_says_so():
    html = samples.tiles(60, 2)._repr_html_()
    assert "not measured" in html


def test_a_region_table_is_cut_and_says_how_much():
    html = samples.tiles(20, 2)._repr_html_()
    assert "and 300 more regions" in html


def test_empty_arrays_have_a_picture_too():
    assert (
        "no elements yet" in intarsia.create({}, "a", shape=(0, 3), chunks=(1, 3), dtype="f4")._repr_html_()
    )
