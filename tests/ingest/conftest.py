"""Repositories, and an S3 server, for the tests of ingest."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import obstore
import pytest

SERVER_STARTS_WITHIN = 60


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """Options of an S3 server of our own on this machine, with the bucket `archive`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("moto_server")
    log = (tmp_path_factory.mktemp("s3") / "log").open("wb")
    server = subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log, env={**os.environ}
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _wait_for(endpoint, server)
        options = {
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
            "client_options": {"allow_http": True},
        }
        import boto3

        client = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="key",
            aws_secret_access_key="secret",
        )  # fmt: skip
        client.create_bucket(Bucket="archive")
        yield options
    finally:
        server.terminate()
        server.wait(30)
        log.close()


def _wait_for(endpoint, server):
    deadline = time.monotonic() + SERVER_STARTS_WITHIN
    while time.monotonic() < deadline:
        assert server.poll() is None, "the S3 server ended"
        try:
            urlopen(endpoint, timeout=5).close()
            return
        except HTTPError:
            return
        except OSError:
            time.sleep(0.05)  # between polls of the server's port
    raise AssertionError("the S3 server did not start")


@pytest.fixture
def bucket(s3):
    """The bucket as an obstore store, empty."""
    store = obstore.store.S3Store("archive", **s3)
    for batch in obstore.list(store):
        obstore.delete(store, [meta["path"] for meta in batch])
    return store
