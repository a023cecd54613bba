"""A proxy in front of a server that can lose answers, or everything."""

import contextlib
import socket
import threading


class Proxy:
    """Passes bytes on, both ways. `lose` makes it drop the answer to a request that was carried out."""

    def __init__(self, port):
        self._upstream = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.lost = 0
        self._lose = None
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def lose(self, times, *, method, ending):
        """Lose the next answers to requests of a method for a path with an ending."""
        self._lose = [times, method.encode() + b" ", ending.encode()]

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._upstream))
            self._open += [client, server]
            doomed = threading.Event()
            threading.Thread(target=self._up, args=(client, server, doomed), daemon=True).start()
            threading.Thread(target=self._down, args=(server, client, doomed), daemon=True).start()

    def _matches(self, data):
        if self._lose is None or not self._lose[0] or not data.startswith(self._lose[1]):
            return False
        path = data.split(b" ", 2)[1].split(b"?")[0]
        if not path.endswith(self._lose[2]):
            return False
        self._lose[0] -= 1
        return True

    def _up(self, client, server, doomed):
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self._matches(data):
                    doomed.set()
                server.sendall(data)
        self._close(client, server)

    def _down(self, server, client, doomed):
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if doomed.is_set() and not data.startswith(b"HTTP/1.1 100"):
                    self.lost += 1
                    break
                client.sendall(data)
        self._close(client, server)

    @staticmethod
    def _close(*sockets):
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self):
        """From now on, nobody answers."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._close(*self._open)


@contextlib.contextmanager
def in_front_of(server):
    proxy = Proxy(server.port)
    try:
        yield proxy
    finally:
        proxy.close()
