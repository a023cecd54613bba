"""A proxy in front of an S3 server that drops, delays, cuts off and answers 503, by chance."""

import contextlib
import random
import socket
import threading
import time

BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nContent-Length: 62\r\n"
    b"Connection: close\r\n\r\n<Error><Code>SlowDown</Code><Message>Later</Message></Error>  "
)


class FaultyProxy:
    """Passes bytes on, both ways; every so often something goes wrong with an answer."""

    def __init__(self, port, seed, share):
        self._upstream, self._share = port, share
        self._rng, self._lock = random.Random(seed), threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        self.faults = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _fault(self):
        with self._lock:
            if self._rng.random() >= self._share:
                return None
            self.faults += 1
            return self._rng.choice(("drop request", "drop answer", "delay", "truncate", "busy"))

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        fault = [None]
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
                    fault[0] = self._fault()
                    if fault[0] == "drop request":
                        break
                    if fault[0] == "busy":
                        client.sendall(BUSY)
                        break
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _down(server, client, fault):
        while data := server.recv(1 << 16):
            kind, fault[0] = fault[0], None
            if kind == "drop answer":
                return
            if kind == "delay":
                time.sleep(0.3)
            if kind == "truncate":
                client.sendall(data[: len(data) // 2])
                return
            client.sendall(data)

    def close(self):
        self._listener.close()
