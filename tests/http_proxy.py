"""A proxy before a server: it counts requests, answers late, and damages answers where a test asks for it."""

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field


@dataclass
class Exchange:
    """One request and its answer, as a test may change it before it is sent."""

    method: str
    path: str
    headers: dict
    status: int = 0
    answer: dict = field(default_factory=dict)
    body: bytes = b""
    cut_at: int | None = None
    """Bytes of the body after which the connection breaks."""

    @property
    def range(self):
        return self.headers.get("range")

    def fail(self, status, body=b"<Error><Code>SlowDown</Code></Error>"):
        """Answer with a failure of the server."""
        self.status, self.body = status, body
        self.answer = {"content-type": "application/xml"}


class Proxy:
    """A proxy on a port of its own, which runs in a thread."""

    def __init__(self, host, port, latency=0.0, damage=None):
        self._upstream, self.latency = (host, port), latency
        self.damage = damage or (lambda exchange: None)
        """Called with every exchange before its answer is sent."""
        self.seen = []
        """All exchanges, in the order they were answered."""

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def gets(self, part=""):
        """The requests for content, of which the path has this part."""
        return [e for e in self.seen if e.method == "GET" and part in e.path]

    def _run(self, started):
        async def serve():
            server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            started.set()
            await self._stop.wait()
            server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        asyncio.run(serve())

    async def _connection(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._exchange(reader, writer):
                pass
        writer.close()

    async def _exchange(self, reader, writer):
        first, headers = await _head(reader)
        method, path, _ = first.split(" ", 2)
        content = await _body(reader, headers)
        exchange = Exchange(method, path, headers)
        await asyncio.sleep(self.latency)
        await self._ask(exchange, first, content)
        self.damage(exchange)
        self.seen.append(exchange)
        answer = exchange.answer | {
            "content-length": exchange.answer.get("content-length", str(len(exchange.body)))
        }
        if exchange.method != "HEAD" and exchange.cut_at is None:
            answer["content-length"] = str(len(exchange.body))
        head = "".join(
            f"{name}: {value}\r\n" for name, value in answer.items() if name != "transfer-encoding"
        )
        writer.write(f"HTTP/1.1 {exchange.status} X\r\n{head}\r\n".encode("latin-1"))
        writer.write(exchange.body[: exchange.cut_at])
        await writer.drain()
        return exchange.cut_at is None

    async def _ask(self, exchange, first, content):
        """A connection for each request: the server is here, and nobody measures its speed."""
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            kept = {
                n: v
                for n, v in exchange.headers.items()
                if n not in ("connection", "transfer-encoding", "expect")
            }
            kept |= {"connection": "close"} | ({"content-length": str(len(content))} if content else {})
            head = "".join(f"{name}: {value}\r\n" for name, value in kept.items())
            writer.write(f"{first}\r\n{head}\r\n".encode("latin-1") + content)
            await writer.drain()
            status, exchange.answer = await _head(reader)
            exchange.status = int(status.split(" ")[1])
            exchange.answer.pop("connection", None)
            if exchange.method != "HEAD" and exchange.status not in (204, 304):
                exchange.body = await _body(reader, exchange.answer, to_the_end=True)
        finally:
            writer.close()


async def _head(reader):
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(
        line.split(": ", 1) if ": " in line else (line.rstrip(":"), "") for line in lines[1:] if line
    )
    return lines[0], {name.lower(): value for name, value in headers.items()}


async def _body(reader, headers, *, to_the_end=False):
    if headers.get("transfer-encoding", "").lower() == "chunked":
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
        return b"".join(parts)
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return await reader.read() if to_the_end else b""


@contextlib.contextmanager
def before(endpoint, *, latency=0.0, damage=None):
    """A proxy before a server, as long as the block runs."""
    host, port = endpoint.removeprefix("http://").split(":")
    proxy, started = Proxy(host, int(port), latency, damage), threading.Event()
    thread = threading.Thread(target=proxy._run, args=(started,))
    thread.start()
    started.wait()
    try:
        yield proxy
    finally:
        proxy._loop.call_soon_threadsafe(proxy._stop.set)
        thread.join()
