"""zarrita in a real browser: its modules, a page that imports them, and a server of our own for both."""

import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

from tests.inspect.browser import executable
from tests.standard import javascript

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


@contextmanager
def serving_files(folder, handler=Quiet):
    """The address at which the files of a directory can be fetched."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def site(folder):
    """The address of a directory, with a page that can import zarrita; skips where that cannot be."""
    executable()  # skips first where there is no browser
    (folder / "index.html").write_text(PAGE)
    (folder / "node_modules").symlink_to(javascript.modules())
    return serving_files(folder)
