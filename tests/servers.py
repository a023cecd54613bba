"""S3 servers for tests, from PyPI packages: on free loopback ports, stopped afterwards."""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path

KEY, SECRET = "intarsia-tests", "not-a-secret"
BUCKET = "tests"
"""One for all: weed sets volumes aside for every bucket, and runs out of them."""

WITH_ITS_OWNER = """
import subprocess, sys, threading
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

def watch():
    sys.stdin.buffer.read()
    server.kill()  # it has nothing to keep, and would take its time to end well

threading.Thread(target=watch, daemon=True).start()
sys.exit(server.wait())
"""
"""Runs a server as long as somebody has the other end of standard input: whoever started it has it, and a
process that is killed, as pytest-xdist's are, lets go of it as well."""

START_SECONDS = 60
POLL_SECONDS = 0.02


def free_ports(count):
    """Ports that nobody listens on now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass
class S3Server:
    """A running server, and how to reach it."""

    name: str
    process: subprocess.Popen
    port: int

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self):
        """For `intarsia.open_repository`."""
        return {
            "endpoint_url": self.endpoint,
            "region": "us-east-1",
            "access_key_id": KEY,
            "secret_access_key": SECRET,
        }

    def client(self):
        import boto3  # late: it takes its time, and few tests need a server
        import botocore.config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=botocore.config.Config(retries={"max_attempts": 1}, connect_timeout=2, read_timeout=10),
        )

    def new_location(self):
        """The URL of a place for a new repository."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex[:16]}/repository"

    def wait(self):
        """Until it answers and takes an object."""
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode} before it answered")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not answer within {START_SECONDS} seconds")
            time.sleep(POLL_SECONDS)

    def _is_ready(self):
        import botocore.exceptions

        client = self.client()
        try:
            if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
            return False
        return True

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def _running(name, command, port, directory):
    with open(Path(directory) / f"{name}.log", "wb") as log:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", WITH_ITS_OWNER, *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=directory,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the tests, which stop it in their time
        )
        server = S3Server(name, process, port)
        try:
            server.wait()
            yield server
        finally:
            server.stop()


def moto(directory):
    """moto: in memory, takes any credentials, enforces conditional writes (see moto_server.py)."""
    (port,) = free_ports(1)
    return _running(
        "moto",
        [sys.executable, "-P", str(Path(__file__).with_name("moto_server.py")), str(port)],
        port,
        directory,
    )


def seaweedfs(directory):
    """weed: on disk, checks credentials, enforces conditional writes."""
    program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    identities = {
        "identities": [
            {
                "name": "tests",
                "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                "actions": ["Admin", "Read", "Write", "List", "Tagging"],
            }
        ]
    }
    config = Path(directory) / "s3.json"
    config.write_text(json.dumps(identities))
    data = Path(directory) / "weed"
    data.mkdir()
    names = ["s3", "s3.grpc", "master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    command = [
        program,
        "server",
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=20",
        "-volume.minFreeSpace=0",
        "-master.electionTimeout=1s",
        "-master.heartbeatInterval=100ms",
        "-filer",
        "-s3",
        f"-s3.config={config}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-filer.localSocket={directory}/filer.sock",
        f"-s3.localSocket={directory}/s3.sock",
    ]
    for name, port in ports.items():
        part, _, kind = name.partition(".")
        command.append(f"-{part}.port{'.' + kind if kind else ''}={port}")
    return _running("seaweedfs", command, ports["s3"], directory)


AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Those that every Azurite has; they open nothing else."""


def azurite_program():
    """Azurite, if it is installed: on the path, or by `npm install --prefix .venv azurite`."""
    beside = Path(sys.prefix) / "node_modules/.bin/azurite-blob"
    return shutil.which("azurite-blob") or (str(beside) if beside.exists() else None)


@contextlib.contextmanager
def azurite(directory):
    """Options of an Azure Blob Storage of our own, which has the container `tests`."""
    (port,) = free_ports(1)
    command = [
        azurite_program(), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(directory),
        "--silent", "--skipApiVersionCheck", "--disableTelemetry",
    ]  # fmt: skip
    process = subprocess.Popen([sys.executable, "-P", "-c", WITH_ITS_OWNER, *command], stdin=subprocess.PIPE)
    endpoint = f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _container_made(endpoint):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("azurite did not answer")
            time.sleep(POLL_SECONDS)
        yield {"account": AZURE_ACCOUNT, "access_key": AZURE_KEY, "endpoint_url": endpoint}
    finally:
        process.stdin.close()
        process.wait()


def _container_made(endpoint):
    """Ask for the container, signed as Azure wants it; whether the server answered."""
    now = email.utils.formatdate(usegmt=True)
    headers = {"x-ms-date": now, "x-ms-version": "2021-08-06"}
    told = "".join(f"{name}:{value}\n" for name, value in headers.items())
    path = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
    said = "PUT" + "\n" * 12 + told + path
    digest = hmac.new(base64.b64decode(AZURE_KEY), said.encode(), hashlib.sha256).digest()
    headers |= {"Authorization": f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"}
    headers["Content-Length"] = "0"
    url = f"{endpoint}/{BUCKET}?restype=container"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)):
            return True
    except OSError:
        return False
