"""The servers that tests start: gone with whoever started them."""

import os
import socket
import subprocess
import sys

OWNER = """
import sys
from tests import servers
with servers.moto(sys.argv[1]) as server:
    print(server.port, flush=True)
    sys.stdin.read()
"""


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_dies_with_an_owner_that_is_killed(tmp_path):
    os.mkfifo(tmp_path / "moto.log")
    reader = os.open(tmp_path / "moto.log", os.O_RDONLY | os.O_NONBLOCK)
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    port = int(owner.stdout.readline())
    assert answers(port)
    owner.kill()
    owner.communicate()
    os.set_blocking(reader, True)
    with open(reader, "rb") as log:
        log.read()  # ends when nobody can write to it any more
    assert not answers(port)
