"""The page to look at data, in a real browser: slices, pointer, regions, versions, series, damage."""

import json

import numpy as np
import pytest

import intarsia
from tests.inspect import stores
from tests.inspect.browser import Browser

IDLE = "viewer.plane.tiles.busy === 0 && viewer.plane.loaded.length"


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    opened.size(1200, 900)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("viewer")


@pytest.fixture(scope="module")
def versions(folder):
    with intarsia.serve(stores.repository(folder), port=0) as server:
        yield server.url


@pytest.fixture(scope="module")
def kinds(folder):
    with intarsia.serve(stores.everything(folder), port=0) as server:
        yield server.url


def show(browser, url, path, ready=IDLE):
    """Open the page at an array, and wait until it is there."""
    if browser.run("location.origin") == url:
        for name, checked in (("overlay", "false"), ("changed", "true")):
            browser.run(f"document.getElementById('{name}').checked = {checked}")
        browser.run(f"viewer.choose({json.dumps(path)})")
    else:
        browser.open(f"{url}/#array={path}")
    browser.until(f"viewer.state.path === {json.dumps(path)} && ({ready})")


def text(browser, name):
    return browser.run(f"document.getElementById({json.dumps(name)}).innerText")


def facts(browser):
    return browser.run(
        "Object.fromEntries([...document.querySelectorAll('#facts dt')]"
        ".map(t => [t.textContent, t.nextElementSibling.textContent]))"
    )


def cell(browser, row, column):
    """The middle of an element, in the window."""
    return browser.run(
        "(() => { const p = viewer.plane, b = p.canvas.getBoundingClientRect();"
        f"return [b.x + p.px({column} + 0.5), b.y + p.py({row} + 0.5)]; }})()"
    )


def colour(browser, row, column):
    """What is painted in the middle of an element."""
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return browser.run(
        "(() => { const one = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });"
        f"const [x, y] = [viewer.plane.px({column} + 0.5), viewer.plane.py({row} + 0.5)];"
        "one.drawImage(viewer.plane.canvas, Math.floor(x), Math.floor(y), 1, 1, 0, 0, 1, 1);"
        "return [...one.getImageData(0, 0, 1, 1).data]; })()"
    )


def assert_quiet(browser, url):
    """Nothing went wrong, and nobody else was asked."""
    assert browser.console == []
    assert [address for address in browser.requests if not address.startswith((url, "about:"))] == []
    assert browser.run("window.broken") is None


def set_slider(browser, selector, value):
    browser.run(
        f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {value};"
        "e.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def change(browser, name, value):
    """Choose or type something."""
    browser.run(
        f"(e => {{ e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change')); }})"
        f"(document.getElementById({json.dumps(name)}))"
    )


def test_it_opens_with_the_largest_array_and_labels_it(browser, versions):
    browser.open(f"{versions}/")
    browser.until(IDLE)
    assert browser.run("viewer.state.path") == "temperature"
    assert text(browser, "about").startswith("Air temperature · 20 ")
    browser.until("document.querySelector('#sliders output').textContent === '2020-01-10'")
    assert browser.run("viewer.plane.flipped")  # latitudes grow upwards
    browser.picture("view-light")
    assert_quiet(browser, versions)


def test_a_slider_moves_through_an_axis_by_keyboard_and_the_address_remembers(browser, versions):
    show(browser, versions, "temperature")
    browser.run("document.querySelector('#sliders input[type=range]').focus()")
    browser.press("Home")
    assert browser.run("viewer.state.index[0]") == 0
    browser.press("ArrowRight")
    browser.until(IDLE)
    assert browser.run("document.querySelector('#sliders input[type=number]').value") == "1"
    browser.until("document.querySelector('#sliders output').textContent === '2020-01-02'")
    seen = browser.run("viewer.plane.sampleAt([7, 11]).value")
    assert seen == pytest.approx(float(stores.weather([1])[0, 7, 11]))
    assert "index=1%2C" in browser.run("location.hash")
    address = browser.run("location.href")
    browser.open("about:blank")
    browser.open(address)
    browser.until(f"{IDLE} && viewer.state.index[0] === 1")
    assert_quiet(browser, versions)


def test_any_two_axes_are_the_picture(browser, versions):
    show(browser, versions, "temperature")
    change(browser, "axis-x", "0")
    browser.until(f"String(viewer.state.axes) === '1,0' && {IDLE}")
    values = stores.weather(range(20))
    assert browser.run("viewer.plane.size") == [40, 20]
    lon = browser.run("viewer.state.index[2]")
    assert browser.run("viewer.plane.sampleAt([5, 13]).value") == pytest.approx(float(values[13, 5, lon]))
    browser.run("document.getElementById('stage').focus()")
    browser.press("x")
    browser.until(f"String(viewer.state.axes) === '0,1' && {IDLE}")
    assert browser.run("viewer.plane.sampleAt([13, 5]).value") == pytest.approx(float(values[13, 5, lon]))
    assert_quiet(browser, versions)


def test_the_pointer_tells_value_region_codecs_and_chunk(browser, versions):
    show(browser, versions, "temperature")
    set_slider(browser, "#sliders input[type=range]", 12)
    browser.until(IDLE)
    browser.mouse(*cell(browser, 30, 40))
    browser.until("document.querySelector('#facts').dataset.index === '12,30,40'")
    told = facts(browser)
    assert float(text(browser, "value").split()[0]) == pytest.approx(
        float(stores.weather([12])[0, 30, 40]), rel=1e-5
    )
    assert text(browser, "value").endswith(" K")
    assert told["Region"] == "[10:20, 20:40, 30:60]"
    assert told["Codecs"].startswith("gzip")
    assert told["File"] == "in the repository"
    browser.until("document.querySelector('#facts dd').textContent === '12 · 2020-01-13'")
    browser.run("document.getElementById('stage').focus()")
    browser.press("ArrowRight")
    browser.until("document.querySelector('#facts').dataset.index === '12,30,41'")
    browser.press("ArrowUp")
    browser.until("document.querySelector('#facts').dataset.index === '12,31,41'")
    assert_quiet(browser, versions)


def test_the_file_of_a_virtual_chunk_is_told(browser, folder):
    place, file = stores.with_a_file(folder)
    with intarsia.serve(intarsia.archives.authorize(intarsia.open_repository(place)), port=0) as server:
        show(browser, server.url, "rain")
        browser.mouse(*cell(browser, 1, 20))
        browser.until("document.querySelector('#facts').dataset.index === '1,20'")
        assert facts(browser)["File"].startswith(f"{file.as_uri()} @ ")
        assert_quiet(browser, server.url)


def test_regions_are_laid_over_the_picture_on_request(browser, versions):
    show(browser, versions, "temperature")
    set_slider(browser, "#sliders input[type=range]", 12)
    browser.until(IDLE)
    before = colour(browser, 30, 40)
    assert browser.run("viewer.plane.rectangles.length") == 0
    browser.run("document.getElementById('overlay').click()")
    browser.until("viewer.plane.rectangles.length === 3")
    assert colour(browser, 30, 40) != before
    legend = browser.run("[...document.querySelectorAll('#legend .how')].map(e => e.textContent)")
    assert sorted(legend) == ["gzip-5", "raw", "zstd-0"]
    browser.picture("view-regions")
    browser.run("document.getElementById('overlay').click()")
    browser.until("viewer.plane.rectangles.length === 0")
    assert colour(browser, 30, 40) == before


def test_the_regions_are_those_of_the_layer_that_is_chosen(browser, kinds):
    show(browser, kinds, "plain")
    assert browser.run("document.getElementById('layers').checkVisibility()") is False
    array = intarsia.create({}, "twice", shape=(20, 30), chunks=(10, 10), dtype="f4")
    array.add_region([(0, 20), (0, 30)], data=np.ones((20, 30)), codecs=["gzip"])
    array.add_replica([(0, 10), (0, 30)], chunks=(10, 5), codecs=["zstd"])
    with intarsia.serve(array.store, port=0) as server:
        show(browser, server.url, "twice")
        assert browser.run("document.getElementById('layers').checkVisibility()")
        for layer, codec, rows in (("1", "zstd-0", 10), ("0", "gzip-5", 20)):
            change(browser, "layer", layer)
            browser.until(f"document.querySelector('#legend .how').textContent === '{codec}'")
            assert browser.run("viewer.plane.rectangles.map(r => r.slice(0, 4))") == [[0, 0, rows, 30]]
        assert_quiet(browser, server.url)


def test_the_version_slider_shows_what_each_commit_changed(browser, versions):
    show(browser, versions, "temperature", f"{IDLE} && !document.getElementById('versions').hidden")
    assert "a corner recoded" in text(browser, "version-label")
    browser.run("document.getElementById('overlay').click()")
    set_slider(browser, "#sliders input[type=range]", 12)
    browser.until("viewer.plane.rectangles.length === 3")
    assert browser.run("viewer.plane.boxes") == [["recoded", 20, 30, 40, 60]]  # before any is chosen
    browser.run("document.getElementById('version').focus()")
    browser.press("ArrowLeft")
    browser.until("document.getElementById('version-label').innerText.includes('ten more')")
    browser.until(f"viewer.plane.rectangles.length === 1 && {IDLE}")
    assert "added [10:20, 0:40, 0:60] (raw)" in text(browser, "version-lines")
    assert browser.run("viewer.plane.boxes") == [["added", 0, 0, 40, 60]]
    assert browser.run("viewer.plane.sampleAt([3, 4]).value") == pytest.approx(
        float(stores.weather([12])[0, 3, 4])
    )
    browser.run("document.getElementById('earlier').click()")
    browser.until("viewer.plane.slice.shape[0] === 10")
    assert browser.run("viewer.state.index[0]") == 9  # the last there was
    browser.press("Home")
    browser.until("!document.getElementById('message').hidden")
    assert "no elements yet" in text(browser, "message")
    browser.press("End")
    browser.until(
        "viewer.plane.boxes.length === 0 && viewer.plane.slice.shape[0] === 20 "
        "&& document.getElementById('message').hidden"
    )
    set_slider(browser, "#sliders input[type=range]", 15)
    browser.until("viewer.plane.boxes.length === 1")
    browser.run("document.getElementById('changed').click()")
    browser.until("viewer.plane.boxes.length === 0")
    assert_quiet(browser, versions)


def test_a_click_shows_the_series_at_that_point_along_any_axis(browser, versions):
    show(browser, versions, "temperature")
    browser.until("viewer.state.flipped")  # once the labels are there, latitudes point upwards
    browser.mouse(*cell(browser, 30, 40), "mousePressed", "mouseReleased")
    browser.until("viewer.chart.line && viewer.chart.line.shape[0] === 20")
    values = stores.weather(range(20))
    assert browser.run("[...viewer.chart.line.values]") == pytest.approx(values[:, 30, 40].tolist())
    assert text(browser, "series-where") == "at lat 30, lon 40"
    browser.until("document.getElementById('series-note').textContent.startsWith('lowest')")
    change(browser, "series-axis", "1")
    browser.until("viewer.chart.line.shape[0] === 40")
    time = browser.run("viewer.state.index[0]")
    assert browser.run("[...viewer.chart.line.values]") == pytest.approx(values[time, :, 40].tolist())
    change(browser, "series-axis", "0")
    browser.until("viewer.chart.line.shape[0] === 20")
    left = "viewer.chart.px({} + 0.5) + viewer.chart.canvas.getBoundingClientRect().x"
    y = browser.run(
        "(() => { viewer.chart.canvas.scrollIntoView();"
        "return viewer.chart.canvas.getBoundingClientRect().y + 50; })()"
    )
    browser.mouse(browser.run(left.format(3)), y, "mousePressed", "mouseReleased")
    browser.until("viewer.state.index[0] === 3")  # a click in the series goes there
    assert "2020-01-04" in browser.until(
        "document.getElementById('series-note').textContent.includes('(2020')"
        "&& document.getElementById('series-note').textContent"
    )
    assert_quiet(browser, versions)


def test_colours_have_limits_by_percentile_by_hand_and_by_logarithm(browser, kinds):
    show(browser, kinds, "cube")
    first = browser.run("[viewer.state.low, viewer.state.high]")
    values = sorted(browser.run("[...viewer.plane.loaded[0].values]"))
    assert first == [values[24], values[-25]]  # 2 of 100
    before = colour(browser, 29, 39)
    change(browser, "high", "100000")
    assert browser.run("viewer.state.high") == 100000
    assert colour(browser, 29, 39) != before
    change(browser, "high", "x")
    assert browser.run("viewer.state.high") == 100000
    browser.run("document.getElementById('auto').click()")
    assert browser.run("[viewer.state.low, viewer.state.high]") == first
    linear = colour(browser, 15, 20)
    browser.run("document.getElementById('log').click()")
    assert browser.run("viewer.plane.tiles.scale.log")
    assert colour(browser, 15, 20) != linear
    change(browser, "map", "grey")
    red, green, blue, _ = colour(browser, 15, 20)
    assert red == green == blue
    assert_quiet(browser, kinds)


def test_a_damaged_chunk_is_marked_and_the_rest_stays(browser, kinds):
    show(browser, kinds, "damaged")
    for row, column in ((2, 22), (18, 38)):
        red, green, blue, _ = colour(browser, row, column)
        assert red > 180 > green
        assert green - blue < 20
    assert browser.run("viewer.plane.sampleAt([30, 10]).status") == 0
    assert "cannot be read" in text(browser, "note")
    browser.mouse(*cell(browser, 5, 25))
    browser.until("document.querySelector('#facts').dataset.index === '5,25'")
    assert text(browser, "value") == "cannot be read"
    assert facts(browser)["Chunk"].startswith("0, 1 · ")
    browser.mouse(*cell(browser, 35, 25))
    browser.until("document.querySelector('#facts').dataset.index === '35,25'")
    assert float(text(browser, "value")) > 0
    browser.picture("view-damaged")
    assert_quiet(browser, kinds)


def test_an_array_that_cannot_be_opened_says_so_and_others_can(browser, tmp_path):
    for name in "ab":
        array = intarsia.create(tmp_path, name, shape=(4, 4), chunks=(2, 2), dtype="f4")
        array.add_region([(0, 4), (0, 4)], data=np.eye(4))
    with intarsia.serve(tmp_path, port=0) as server:
        show(browser, server.url, "a")
        (tmp_path / "a" / "zarr.json").write_text(
            (tmp_path / "a" / "zarr.json").read_text().replace('"chunk_shape"', '"chunk_shapes"')
        )
        browser.run("viewer.choose('a')")
        browser.until("!document.getElementById('message').hidden")
        assert "see the log" in text(browser, "message")
        assert browser.run("document.getElementById('stage').hidden")
        show(browser, server.url, "b")
        assert browser.run("document.getElementById('message').hidden")
        assert browser.run("viewer.plane.sampleAt([1, 1]).value") == 1
        assert {kind for kind, _ in browser.console} <= {"error"}  # the answer 500, told by the browser
        browser.open("about:blank")


def test_nulls_and_holes_are_no_values(browser, kinds):
    show(browser, kinds, "nullable")
    assert browser.run("viewer.plane.sampleAt([0, 0]).status") == 1
    browser.mouse(*cell(browser, 0, 0))
    browser.until("document.querySelector('#facts').dataset.index === '0,0'")
    assert text(browser, "value") == "null"
    show(browser, kinds, "holed")
    browser.mouse(*cell(browser, 15, 25))
    browser.until("document.querySelector('#facts').dataset.index === '15,25'")
    assert text(browser, "value") == "0.0 (fill value)"
    assert facts(browser)["Region"] == "none: reads as the fill value"
    assert colour(browser, 15, 25) != colour(browser, 5, 5)
    assert_quiet(browser, kinds)


def test_dates_words_and_truth(browser, kinds):
    for path, index, words in (
        ("days", "1,2", "2020-01-09"),
        ("words", "0,1", "ash"),
        ("flags", "0,0", "True"),
    ):
        show(browser, kinds, path)
        browser.mouse(*cell(browser, *map(int, index.split(","))))
        browser.until(f"document.querySelector('#facts').dataset.index === '{index}'")
        assert text(browser, "value") == words
    show(browser, kinds, "words")
    assert colour(browser, 0, 0) == colour(browser, 1, 1) != colour(browser, 0, 1)
    assert_quiet(browser, kinds)


def test_arrays_of_one_axis_of_none_and_of_five(browser, kinds):
    show(browser, kinds, "line", "viewer.chart.line && viewer.chart.line.shape[0] === 1000")
    assert browser.run("document.getElementById('stage').hidden")
    assert "one of 3 places" in text(browser, "series-note")
    x, y = browser.run(
        "(() => { const b = viewer.chart.canvas.getBoundingClientRect();"
        "return [b.x + b.width / 2, b.y + 40]; })()"
    )
    browser.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-1200)
    browser.until("viewer.chart.line.shape[0] < 900 && viewer.chart.line.step === 1")
    show(browser, kinds, "scalar", "document.getElementById('single').textContent.includes('42.5')")
    assert text(browser, "single") == "42.5 m"
    show(browser, kinds, "cube")
    assert browser.run("document.querySelectorAll('#sliders input[type=range]').length") == 3
    set_slider(browser, "#sliders [data-axis='2'] input[type=range]", 3)
    browser.until(IDLE)
    index = browser.run("viewer.state.index")
    expected = ((index[0] * 3 + index[1]) * 4 + 3) * 1200 + 4 * 40 + 5
    assert browser.run("viewer.plane.sampleAt([4, 5]).value") == expected
    assert_quiet(browser, kinds)


def test_ten_thousand_million_elements_are_seen_by_strides(browser, kinds):
    show(browser, kinds, "large")
    assert "values" in text(browser, "note")
    tiles = [url for url in browser.requests if "/values?" in url]
    assert len(tiles) < 40
    for _ in range(12):
        browser.run("viewer.plane.zoom(2, {x: viewer.plane.px(50500), y: viewer.plane.py(50500)})")
    browser.until(f"{IDLE} && viewer.plane.sampleAt([50500, 50500])")
    assert browser.run("viewer.plane.sampleAt([50500, 50500]).value") == 100
    assert browser.run("viewer.plane.tiles.nbytes") < 100 << 20
    assert_quiet(browser, kinds)


def test_what_nobody_looks_at_any_more_is_withdrawn_and_forgotten(browser, kinds):
    show(browser, kinds, "large")
    browser.run(
        "viewer.plane.tiles.kept.clear(); viewer.plane.tiles.nbytes = 0;"
        "for (let i = 0; i < 9; i++) viewer.plane.zoom(2);"
        "for (let i = 0; i < 40; i++) viewer.plane.pan(-300, -200);"
    )
    browser.until(IDLE)
    wanted = browser.run("viewer.plane.seen(viewer.plane.slice, viewer.plane.level).length")
    level = "k => k.split('|')[1] === String(viewer.plane.level)"
    assert browser.run(f"[...viewer.plane.tiles.kept.keys()].filter({level}).length") <= wanted + 5
    browser.run("viewer.plane.tiles.nbytes = 2 ** 40")
    browser.run("viewer.plane.pan(-2000, 0)")
    browser.until(IDLE)
    assert browser.run("viewer.plane.tiles.kept.size") <= 3


def test_strangers_names_and_attributes_stay_words(browser, kinds):
    path = "evil<script>alert(1)</script>"
    browser.open("about:blank")
    browser.open(f"{kinds}/")
    browser.until("viewer.state.path")
    change(browser, "array", path)
    browser.until(f"viewer.state.path === {json.dumps(path)} && {IDLE}")
    browser.mouse(*cell(browser, 1, 1), "mousePressed", "mouseReleased")
    browser.until("document.querySelector('#facts').dataset.index === '1,1'")
    assert "window.broken=1" in browser.run("document.getElementById('attributes').textContent")
    assert "<script>" in browser.run("document.querySelector('#array option:checked').textContent")
    assert browser.run("document.querySelectorAll('script').length") == 1
    assert browser.run("document.querySelectorAll('img').length") == 1
    assert_quiet(browser, kinds)
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.broken = 3';"
        "document.body.append(s)"
    )
    browser.run("fetch('http://127.0.0.1:9/').catch(() => 0)")
    assert browser.run("window.broken") is None
    assert sum("Content Security Policy" in json.dumps(entry) for entry in browser.console) >= 2


def test_another_size_is_painted_at_once(browser, versions):
    """A canvas is empty after it was resized; nobody sees that."""
    show(browser, versions, "temperature")
    seen = browser.run(
        "(() => { viewer.plane.resize(); const one = new OffscreenCanvas(1, 1).getContext('2d');"
        "one.drawImage(viewer.plane.canvas, viewer.plane.px(30), viewer.plane.py(20), 1, 1, 0, 0, 1, 1);"
        "return one.getImageData(0, 0, 1, 1).data[3]; })()"
    )
    assert seen == 255


@pytest.mark.parametrize("width", [390, 1200])
def test_buttons_and_names_cover_nothing(browser, versions, width):
    browser.size(width, 800)
    try:
        show(browser, versions, "temperature")
        covered = browser.run(
            "(() => { const box = (e) => e.getBoundingClientRect();"
            "const stage = box(document.getElementById('stage'));"
            "const { x, y, width, height } = viewer.plane.plot;"
            "return [...document.querySelectorAll('.buttons button')].filter((button) => {"
            "const b = box(button), left = b.left - stage.left, top = b.top - stage.top;"
            "return left < x + width && left + b.width > x && top < y + height && top + b.height > y;"
            "}).length; })()"
        )
        assert covered == 0
        browser.run("void (document.getElementById('about').textContent = '60 x 120 float32, 3 regions')")
        chosen = browser.run("document.getElementById('array').getBoundingClientRect().width")
        assert chosen > (300 if width == 390 else 150)
    finally:
        browser.size(1200, 900)


def test_dark_and_on_a_phone(browser, versions):
    browser.prefer("dark")
    browser.size(390, 800)
    try:
        show(browser, versions, "temperature")
        assert browser.run("document.documentElement.scrollWidth") <= 390
        browser.picture("view-phone-dark")
        ground = browser.run("getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, ground[4:-1].split(","))) < 150
        box = browser.run(
            "(b => [b.x, b.y, b.width, b.height])(document.getElementById('stage').getBoundingClientRect())"
        )
        before = browser.run("viewer.plane.view.scaleX")
        x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
        touch = lambda kind, *points: browser.call(  # noqa: E731
            "Input.dispatchTouchEvent",
            type=kind,
            touchPoints=[{"x": a, "y": b, "id": i} for i, (a, b) in enumerate(points)],
        )
        touch("touchStart", (x - 20, y), (x + 20, y))
        touch("touchMove", (x - 60, y), (x + 60, y))
        touch("touchEnd")
        assert browser.run("viewer.plane.view.scaleX") > before * 1.5
        x, y = cell(browser, 20, 30)
        touch("touchStart", (x, y))
        touch("touchEnd")
        browser.until("viewer.chart.line && viewer.chart.line.shape[0] === 20")  # a tap is a click
    finally:
        browser.size(1200, 900)
        browser.prefer("light")
    assert_quiet(browser, versions)


def test_everything_can_be_reached_with_the_tab_key_and_has_a_name(browser, versions):
    show(browser, versions, "temperature")
    reached = set()
    for _ in range(30):
        browser.press("Tab")
        reached.add(
            browser.run(
                "(e => (e.id || e.tagName) + '|' + (e.getAttribute('aria-label')"
                "|| e.labels?.[0]?.textContent || e.textContent).trim())(document.activeElement)"
            )
        )
    names = {entry.split("|")[0] for entry in reached}
    assert {
        "array",
        "stage",
        "low",
        "high",
        "auto",
        "log",
        "map",
        "axis-y",
        "axis-x",
        "version",
        "overlay",
    } <= names
    assert all(entry.split("|")[1] for entry in reached if not entry.startswith("BODY"))
