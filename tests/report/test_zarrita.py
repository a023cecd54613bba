"""A member in a stranger's hands: zarrita, in a real browser, reads what intarsia stored."""

import json
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import intarsia
from tests.report.browser import Browser, executable

MODULES = Path(__file__).parent.parent.parent / "node_modules"

PAGE = """<!doctype html><meta charset=utf-8><title>zarrita</title>
<script type=importmap>{"imports": {
  "zarrita": "/node_modules/zarrita/dist/src/index.js",
  "@zarrita/storage/fetch": "/node_modules/@zarrita/storage/dist/src/fetch.js",
  "numcodecs/blosc": "/node_modules/numcodecs/dist/blosc.js",
  "numcodecs/gzip": "/node_modules/numcodecs/dist/gzip.js",
  "numcodecs/lz4": "/node_modules/numcodecs/dist/lz4.js",
  "numcodecs/zlib": "/node_modules/numcodecs/dist/zlib.js",
  "numcodecs/zstd": "/node_modules/numcodecs/dist/zstd.js"}}</script>"""

READ = """(async () => {
  const zarr = await import("zarrita");
  const place = new zarr.FetchStore(new URL(%s, location.href).href);
  const array = await zarr.open.v3(place, { kind: "array" });
  const all = await zarr.get(array);
  return { shape: all.shape, data: Array.from(all.data) };
})()"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript"}  # noqa: RUF012

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def zarrita():
    """zarrita's modules; fetched once where npm is and reaches its registry."""
    executable()  # skips first where there is no browser
    if not (MODULES / "zarrita").is_dir():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("no npm on this machine, so no zarrita")
        command = [
            npm,
            "install",
            "--silent",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--fetch-retries=0",
            "--prefix",
            ".",
            "zarrita@0.7",
        ]
        try:
            ran = subprocess.run(
                command, cwd=MODULES.parent, capture_output=True, text=True, timeout=60, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip("npm does not get zarrita: no network")
        if ran.returncode:
            pytest.skip(f"npm does not get zarrita: {ran.stderr.strip()[:200]}")
    return MODULES


@pytest.fixture
def site(tmp_path, zarrita):
    """A server of our own, on this machine, with the page, the modules and the data."""
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "node_modules").symlink_to(zarrita)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield tmp_path, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_zarrita_reads_every_member_in_a_browser(site):
    folder, address = site
    values = np.random.default_rng(0).normal(size=(30, 8)).round(2).astype("f4")
    array = intarsia.create(folder / "data.zarr", "field", shape=(0, 8), chunks=(5, 4), dtype="f4")
    for i, codecs in enumerate((["gzip"], ["zstd"], [])):
        array.append(values[10 * i : 10 * (i + 1)], codecs=codecs)
    browser = Browser()
    try:
        browser.open(address)
        for region in array.regions:
            read = browser.run(READ % json.dumps(f"data.zarr/field/{region.name}/"))
            got = np.array(read["data"], dtype="f4").reshape(read["shape"])
            (a, b), _ = region.bounds
            np.testing.assert_array_equal(got, values[a:b])
    finally:
        browser.close()
