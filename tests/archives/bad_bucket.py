"""A proxy before an S3 server: it counts requests, and does to some of them what bad servers do."""

import contextlib
import http.client
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

KEPT = {"content-type", "etag", "last-modified", "content-range", "accept-ranges", "x-amz-version-id"}


class Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, endpoint):
        super().__init__(("127.0.0.1", 0), Forwarding)
        self.target = urlsplit(endpoint)
        self.requests = Counter()
        self.fault = lambda kind, path: None
        """Says `refuse` (403), `busy` (503) or `cut` of a request; None lets it through."""

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Forwarding(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        query = urlsplit(self.path).query
        kind = "LIST" if "list-type" in query else self.command
        self.server.requests[kind] += 1
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        fault = self.server.fault(kind, self.path)
        if fault in ("refuse", "busy"):
            return self.answer(403 if fault == "refuse" else 503, {}, b"<Error><Code>No</Code></Error>")
        connection = http.client.HTTPConnection(self.server.target.hostname, self.server.target.port)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            reply = connection.getresponse()
            headers = {key: value for key, value in reply.getheaders() if key.lower() in KEPT}
            length = reply.getheader("content-length") if self.command == "HEAD" else None
            self.answer(reply.status, headers, reply.read(), length, cut=fault == "cut")
        finally:
            connection.close()

    def answer(self, status, headers, body, length=None, cut=False):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True

    def log_message(self, *_):
        pass


for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
    setattr(Forwarding, f"do_{method}", Forwarding.forward)


@contextlib.contextmanager
def proxy_before(endpoint):
    """A proxy that runs as long as it is needed."""
    server = Proxy(endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
