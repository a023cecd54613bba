"""The timeline of an ingested dataset, on the report page."""

import re

import numpy as np
import pytest
import xarray as xr
from examples.archives import ERAS, aodn_like, mur_like

import intarsia
from intarsia.inspect.page import encodings_sections
from intarsia.inspect.survey import survey
from tests.archives.files import netcdf
from tests.inspect import samples


def section(page):
    return re.search(r'<section class="encodings">(.*?)</section>', page, re.DOTALL)[1]


@pytest.fixture(scope="module")
def mur(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mur")
    report = intarsia.ingest(mur_like(folder, 2), folder / "repository", concat_dim="time", missing="fill")
    return report.repository


def test_every_variable_has_a_bar_and_every_encoding_a_colour(mur, tmp_path):
    page = intarsia.write_report(mur, file=tmp_path / "page.html").read_text(encoding="utf-8")
    drawn = section(page)
    for name in ("analysed_sst", "analysis_error", "mask", "sst_anomaly"):
        assert f">{name}<" in drawn
    for day in ("2002-06-01", "2019-07-23", "2022-11-10"):  # both ends, and where the encoding changes
        assert f">{day}<" in drawn
    assert drawn.count("<rect") == 7 + 7 + 7 + 4
    legend = re.findall(r"</span> (.*?)</td>", drawn)
    assert "shuffle+zlib-4, chunks 1x10x20, packed" in legend
    assert len(legend) == 6
    one = intarsia.write_report(mur, "mask", tmp_path / "one.html").read_text(encoding="utf-8")
    assert section(one).count("<rect") == 7


def test_codecs_have_one_colour_on_the_whole_page(mur, tmp_path):
    page = intarsia.write_report(mur, file=tmp_path / "page.html").read_text(encoding="utf-8")
    swatches = re.findall(r'background:(#\w+);color:#\w+;[^"]*">\w</span> (.*?)</td>', page)
    colours = {}
    for colour, words in swatches:
        colours.setdefault(words, set()).add(colour)
    assert set(colours) >= {"raw", "shuffle+zlib-4", "zlib-7"}
    assert {names: len(each) for names, each in colours.items()} == dict.fromkeys(colours, 1)


def test_the_page_says_what_lies_in_files_and_names_days_on_the_axis(mur, tmp_path):
    page = intarsia.write_report(mur, file=tmp_path / "page.html").read_text(encoding="utf-8")
    overview = re.search(r'<nav aria-label="Arrays">(.*?)</nav>', page, re.DOTALL)[1]
    assert overview.count("<tr") == 1 + 4
    assert ", 45, 90)" in overview
    stored, referenced = (
        re.search(rf"<dt>{name}</dt><dd>(.*?)</dd>", page)[1] for name in ("Stored", "Referenced in files")
    )
    assert stored == referenced
    assert f">{ERAS[2].first}<" in page
    assert ">2022-11-10<" in page  # where the axis ends, the last day


def test_thousands_of_packings_stay_a_small_picture(tmp_path):
    report = intarsia.ingest(aodn_like(tmp_path, 200, (4, 5)), tmp_path / "repository", concat_dim="time")
    arrays = {
        name: intarsia.open(report.repository, name) for name in ("sea_surface_temperature", "quality_level")
    }
    (drawn,) = encodings_sections(
        next(iter(arrays.values())).store, {name: survey(array) for name, array in arrays.items()}
    )
    assert drawn.count("<rect") == 161
    assert ", :] 2 regions" in drawn


def test_tiles_in_one_place_share_the_bar(tmp_path):
    for i in range(4):
        y, x = divmod(i, 2)
        ds = xr.Dataset(
            {"v": (("y", "x"), np.ones((2, 2)))}, {"y": [2 * y, 2 * y + 1], "x": [2 * x, 2 * x + 1]}
        )
        ds.to_netcdf(tmp_path / f"{i}.nc", encoding={"v": {"chunksizes": (2, 1 + i % 2)}})
    report = intarsia.ingest(tmp_path / "*.nc", "memory://", concat_dim=["y", "x"], group="some/tiles")
    page = intarsia.write_report(report.repository, file=tmp_path / "page.html").read_text(encoding="utf-8")
    drawn = section(page)
    assert "<code>some/tiles</code>" in drawn
    assert set(re.findall(r'height="(\d+)" fill', drawn)) == {"9"}


def test_arrays_that_nobody_ingested_have_no_timeline(tmp_path):
    page = intarsia.write_report(samples.two_codecs().store, file=tmp_path / "page.html").read_text(
        encoding="utf-8"
    )
    assert "Encodings" not in page


def test_hostile_names_stay_names(tmp_path):
    netcdf(tmp_path / "0.nc", 0, name="a<b>&'x")
    report = intarsia.ingest(tmp_path / "0.nc", "memory://", concat_dim="time")
    page = intarsia.write_report(report.repository, file=tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>" not in section(page)
    assert "a&lt;b&gt;" in section(page)
