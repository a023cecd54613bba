"""A directory behind a web server: files, and the parts of files that Icechunk asks for."""

import contextlib
import functools
import http.server
import threading


class Ranges(http.server.BaseHTTPRequestHandler):
    """Gives files out, whole or in part, to whoever says the right `Authorization`, if there is one.

    `whole_only` is a server that knows no ranges.
    """

    protocol_version = "HTTP/1.1"

    def __init__(self, root, whole_only, authorization, *arguments):
        self.root, self.whole_only, self.authorization = root, whole_only, authorization
        super().__init__(*arguments)

    def do_GET(self):
        if self.authorization is not None and self.headers.get("Authorization") != self.authorization:
            self.send_error(401)
            return
        file = self.root / self.path.split("?")[0].lstrip("/")
        if not file.is_file():
            self.send_error(404)
            return
        data, status = file.read_bytes(), 200
        size = len(data)
        if (wanted := self.headers.get("Range")) and not self.whole_only:
            first, last = wanted.removeprefix("bytes=").split("-")
            start = int(first) if first else size - int(last)
            stop = min(int(last) + 1, size) if first and last else size
            data, status = data[start:stop], 206
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", self.date_time_string(int(file.stat().st_mtime)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(directory, *, whole_only=False, authorization=None):
    """The URL of the directory, as long as the block runs."""
    handler = functools.partial(Ranges, directory, whole_only, authorization)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
