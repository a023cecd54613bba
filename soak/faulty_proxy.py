"""A proxy in front of an S3 server that drops, delays, cuts off, answers 500 or 503 and lists old names."""

import contextlib
import random
import re
import socket
import threading
import time

HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/xml\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
REFUSALS = {
    kind: HEAD % (status, len(body), body)
    for kind, status, code in (
        ("busy", b"503 Service Unavailable", b"SlowDown"),
        ("failed", b"500 Internal Server Error", b"InternalError"),
    )
    for body in (b"<Error><Code>%s</Code><Message>Later</Message></Error>" % code,)
}
DELAYS = (0.3, 0.3, 3.0)
STALE = 0.3
"""How many lists are old ones, where anything goes wrong at all."""


def whole(answer, server):
    """All of an answer that tells its length, of which the beginning is here."""
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    left = int(length[1]) - len(body) if length else 0
    while left > 0 and (more := server.recv(left)):
        answer, left = answer + more, left - len(more)
    return answer


class FaultyProxy:
    """Passes bytes on, both ways; every so often something goes wrong with an answer."""

    def __init__(self, port, seed, share):
        self._upstream, self._share = port, share
        self._rng, self._lock = random.Random(seed), threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        self.faults = 0
        self._lists = {}
        """The first answer to every question for a list."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _fault(self):
        with self._lock:
            if self._rng.random() >= self._share:
                return None
            self.faults += 1
            return self._rng.choice(("drop request", "drop answer", "delay", "truncate", *REFUSALS))

    def _list(self, question, answer):
        """An answer to a question for a list: this one, or the first that there ever was."""
        with self._lock:
            old = self._lists.setdefault(question, answer)
            if old == answer or not self._share or self._rng.random() >= STALE:
                return answer
            self.faults += 1
            return old

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        fault = [None, None]
        with contextlib.ExitStack() as stack:
            stack.callback(client.close)
            with contextlib.suppress(OSError):
                server = socket.create_connection(("127.0.0.1", self._upstream))
                stack.callback(server.close)
                up = threading.Thread(target=self._up, args=(client, server, fault), daemon=True)
                up.start()
                self._down(server, client, fault)
                for each in (client, server):
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                up.join()

    def _up(self, client, server, fault):
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if data[:4] in (b"GET ", b"PUT ", b"POST", b"HEAD", b"DELE"):
                    fault[:] = self._fault(), data.split(b"\r\n")[0] if b"list-type=2" in data else None
                    if fault[0] == "drop request":
                        break
                    if fault[0] in REFUSALS:
                        client.sendall(REFUSALS[fault[0]])
                        break
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _down(self, server, client, fault):
        while data := server.recv(1 << 16):
            (kind, question), fault[:] = fault, (None, None)
            if question is not None:
                data = self._list(question, whole(data, server))
            if kind == "drop answer":
                return
            if kind == "delay":
                time.sleep(self._rng.choice(DELAYS))
            if kind == "truncate":
                client.sendall(data[: len(data) // 2])
                return
            client.sendall(data)

    def close(self):
        self._listener.close()
