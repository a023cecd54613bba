"""Notebook output and the report page in a real browser: the DOM, the console, the keyboard, the network."""

import json

import numpy as np
import pytest

import intarsia
from intarsia.display import Table
from tests.inspect import samples
from tests.inspect.browser import Browser

PAGE = (
    "<!doctype html><meta charset=utf-8><title>notebook</title>"
    "<body style='background:Canvas;color-scheme:light dark'>{}</body>"
)


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    opened.size(1000, 900)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A repository with a history, hostile words everywhere, and its report."""
    folder = tmp_path_factory.mktemp("report")
    repo = intarsia.open_repository(folder / "store", create=True)
    with intarsia.transaction(repo, message=f"create {samples.HOSTILE}") as tx:
        tx.create(
            "temperature",
            shape=(0, 72, 144),
            chunks=(10, 36, 72),
            dtype="float32",
            dimension_names=("time", samples.HOSTILE, "lon"),
            attributes={samples.HOSTILE: samples.HOSTILE},
        )
        samples.hostile(tx.store)
    random = np.random.default_rng(0)
    conditional = {"name": "conditional", "configuration": {"codecs": [{"name": "zstd"}]}}
    for i, codec in enumerate(["gzip", conditional, "zstd"]):
        intarsia.append(
            repo,
            "temperature",
            random.normal(size=(20 + 10 * i, 72, 144)).round(1),
            codecs=[codec],
            message=f"year {i} {samples.HOSTILE}",
        )
    return intarsia.write_report(repo, file=folder / "report.html", title=f"title {samples.HOSTILE}")


def open_output(browser, tmp_path, array):
    file = tmp_path / "notebook.html"
    file.write_text(PAGE.format(array._repr_html_()), encoding="utf-8")
    browser.open(file.as_uri())


def assert_quiet(browser):
    assert browser.console == []
    assert [url for url in browser.requests if not url.startswith("file:")] == []
    assert browser.run("window.broken") is None


def test_notebook_tables_fit_a_phone(browser, tmp_path):
    """Wide ones are scrolled inside their box, and the map has letters one can read."""
    long = (
        "[0:20, 0:60, 0:90]",
        "shuffle+zstd",
        "432 kB",
        "m-0123456789abcdef",
        "a message of several words",
    )
    wide = Table(("Region", "Codecs", "Size", "Member", "Message"), [long])._repr_html_()
    file = tmp_path / "notebook.html"
    file.write_text(PAGE.format(wide + samples.two_codecs()._repr_html_()), encoding="utf-8")
    browser.size(390, 900)
    browser.open(file.as_uri())
    try:
        assert browser.run("document.documentElement.scrollWidth") <= 390
        assert browser.run("document.querySelector('.wide > svg').getBoundingClientRect().width") > 700
        assert browser.run("document.querySelector('.wide').clientWidth") <= 390  # it scrolls
    finally:
        browser.size(1000, 900)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_notebook_output_shows_map_legend_and_table(browser, tmp_path, scheme):
    browser.prefer(scheme)
    open_output(browser, tmp_path, samples.two_codecs())
    browser.picture(f"notebook-{scheme}")
    assert_quiet(browser)
    legend = browser.run("[...document.querySelectorAll('table.legend tbody tr')].map(r => r.innerText)")
    assert [line.split("\t")[0].split() for line in legend] == [["A", "gzip-5"], ["B", "raw"]]
    hover = browser.run("[...document.querySelectorAll('.wide .region title')].map(t => t.textContent)")
    assert len(hover) == 2
    for word in ("Region [0:500, 0:1000]", "Codecs gzip-5", "Chunks (100, 100)", "Stored", "Ratio"):
        assert word in hover[0]
    assert browser.run("document.querySelectorAll('table.regions tbody tr').length") == 2


def brightness(browser, expression):
    """Of a computed colour, 0 to 255."""
    text = browser.run(expression)
    return sum(map(float, text.split("(")[1].rstrip(")").split(",")[:3])) / 3


@pytest.mark.parametrize(("scheme", "bright"), [("light", False), ("dark", True)])
def test_text_stands_out_from_the_page_in_both_schemes(browser, tmp_path, report, scheme, bright):
    browser.prefer(scheme)
    open_output(browser, tmp_path, samples.two_codecs())
    ink = brightness(browser, "getComputedStyle(document.querySelector('.intarsia')).color")
    assert (ink > 180) == bright
    browser.open(report.as_uri())
    ink = brightness(browser, "getComputedStyle(document.body).color")
    ground = brightness(browser, "getComputedStyle(document.body).backgroundColor")
    assert abs(ink - ground) > 150
    assert (ground < 60) == bright
    browser.picture(f"report-{scheme}")


def test_hostile_names_do_nothing_in_a_notebook(browser, tmp_path):
    open_output(browser, tmp_path, samples.hostile())
    assert_quiet(browser)
    assert browser.run("document.querySelectorAll('script, img').length") == 0
    assert "<script>alert(1)</script>" in browser.run("document.querySelector('.intarsia code').textContent")


def test_ten_thousand_regions_show_as_a_picture(browser, tmp_path):
    open_output(browser, tmp_path, samples.tiles(100, 2))
    browser.picture("notebook-10000-regions")
    assert_quiet(browser)
    box = browser.run(
        "(() => { const r = document.querySelector('svg').getBoundingClientRect();"
        "return [r.width, r.height]; })()"
    )
    assert min(box) > 200


def test_the_report_opens_from_disk_without_errors_or_requests(browser, report):
    browser.prefer("light")
    browser.open(report.as_uri())
    assert_quiet(browser)
    assert browser.requests == [report.as_uri()]
    assert browser.run("document.querySelectorAll('section').length") == 2
    assert browser.run("document.querySelectorAll('img, iframe, link').length") == 0


def shown(browser):
    return browser.run(
        "[...document.querySelectorAll('#array-1 .moment')]"
        ".map((m, i) => m.hidden ? -1 : i).filter(i => i >= 0)"
    )


def test_the_slider_goes_through_the_history_by_keyboard_and_by_button(browser, report):
    browser.open(report.as_uri())
    count = browser.run("document.querySelectorAll('#array-1 .moment').length")
    assert count == 4
    assert shown(browser) == [3]
    browser.run("document.querySelector('#array-1 input[type=range]').focus()")
    browser.press("Home")
    assert shown(browser) == [0]
    browser.press("ArrowRight")
    assert shown(browser) == [1]
    assert browser.run("document.querySelector('#array-1 input').getAttribute('aria-valuetext')").startswith(
        "2 of 4"
    )
    assert browser.run("document.querySelector('#array-1 output').textContent").startswith("2 of 4")
    browser.run("document.querySelectorAll('#array-1 .controls button')[1].click()")
    assert shown(browser) == [2]
    legend = browser.run(
        "[...document.querySelectorAll('#array-1 .moment:not([hidden]) table.legend tbody tr')]"
        ".map(r => r.innerText)"
    )
    assert len(legend) == 2
    assert browser.console == []


def test_a_codec_keeps_its_colour_while_the_slider_moves(browser, report):
    browser.open(report.as_uri())
    colours = browser.run(
        "[...document.querySelectorAll('#array-1 .moment')].map(m => Object.fromEntries("
        "[...m.querySelectorAll('table.legend tbody td:first-child')].map("
        "c => [c.lastChild.textContent.trim(), c.querySelector('span').style.background])))"
    )
    assert {moment["gzip-5"] for moment in colours[1:]} == {colours[-1]["gzip-5"]}
    assert len(set(colours[-1].values())) == 3


def test_pointing_at_a_region_and_arrow_keys_tell_about_it(browser, report):
    browser.open(report.as_uri())
    browser.point_at("#array-1 .moment:not([hidden]) .region rect", 0)
    readout = "document.querySelector('#array-1 .moment:not([hidden]) .readout').textContent"
    first = browser.run(readout)
    assert "Codecs" in first
    assert "Ratio" in first
    browser.run("document.querySelector('#array-1 .moment:not([hidden]) .map').focus()")
    browser.press("ArrowRight")
    assert browser.run(readout) != first
    browser.run("document.querySelector('#array-1 .map:has(+ .scale)').focus()")
    browser.press("Home")
    words = browser.run("document.querySelector('#array-1 .map:has(+ .scale) .readout').textContent")
    assert words.startswith("[")
    assert "Ratio" in words


def test_everything_can_be_reached_with_the_tab_key_and_has_a_name(browser, report):
    browser.open(report.as_uri())
    reached = set()
    for _ in range(60):
        browser.press("Tab")
        reached.add(
            browser.run(
                "(() => { const e = document.activeElement;"
                "return e.tagName + '|' + (e.getAttribute('aria-label') || e.textContent.trim()); })()"
            )
        )
    kinds = {entry.split("|")[0] for entry in reached}
    assert {"A", "INPUT", "DIV", "SUMMARY"} <= kinds
    assert all(entry.split("|")[1] for entry in reached if not entry.startswith("BODY"))
    unnamed = browser.run(
        "[...document.querySelectorAll('svg')].filter(s => !s.getAttribute('aria-label')).length"
    )
    assert unnamed == 0


def test_the_policy_of_the_page_forbids_foreign_scripts(browser, report):
    browser.open(report.as_uri())
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.broken = 3';"
        "document.body.append(s);"
    )
    assert browser.run("window.broken") is None
    assert any("Content Security Policy" in json.dumps(entry) for entry in browser.console)


def test_a_narrow_window_needs_no_sideways_scrolling(browser, report):
    browser.size(380, 800)
    browser.open(report.as_uri())
    browser.picture("report-narrow")
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    wide = browser.run("document.documentElement.scrollWidth")
    scrolling = browser.run(
        "[...document.querySelectorAll('.map, figure, .w:has(.legend, .regions, .overview, .bytes)')]"
        ".filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.innerText)"
    )
    smallest = browser.run(
        "Math.min(...[...document.querySelectorAll('svg')].filter((s) => s.getClientRects().length)"
        ".map((s) => s.getBoundingClientRect().width / s.viewBox.baseVal.width))"
    )
    browser.run("document.querySelector('#array-1 .moment:not([hidden]) .map').focus()")
    browser.press("End")
    told = browser.run("document.querySelector('#array-1 .moment:not([hidden]) .readout').textContent")
    browser.size(1000, 900)
    assert wide <= 380
    assert scrolling == []
    assert smallest > 0.9  # letters are as large as they were drawn
    assert "Codecs" in told


def test_a_replica_unfolds_with_a_map_of_its_own_in_the_colours_of_the_page(browser, tmp_path):
    array = intarsia.create(tmp_path / "a.zarr", "a", shape=(0, 40), chunks=(10, 40), dtype="f4")
    array.append(np.zeros((40, 40)), codecs=["gzip"])
    array.add_replica([(0, 40), (0, 40)], chunks=(40, 10), codecs=["zstd"])
    page = intarsia.write_report(tmp_path / "a.zarr", file=tmp_path / "report.html")
    browser.open(page.as_uri())
    maps = "[...document.querySelectorAll('details.layer svg')].filter((s) => s.checkVisibility())"
    assert browser.run(f"{maps}.length") == 0
    assert browser.run("document.querySelector('details.layer summary').textContent").startswith("Layer 1")
    browser.run("document.querySelector('details.layer summary').click()")
    assert browser.run(f"{maps}.length") == 1
    assert "zstd" in browser.run(f"{maps}[0].querySelector('.region title').textContent")
    fill = "getComputedStyle(document.querySelector('{} .region rect')).fill"
    assert browser.run(fill.format("details.layer")) != browser.run(fill.format(".moment"))
    assert_quiet(browser)
