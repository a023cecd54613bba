"""Stores that are not a directory: S3, by options and by environment, and HTTP for reading."""

import numpy as np
import pytest

from tests import servers
from tests.cli.program import document, failure, succeed
from tests.http_files import serving


def options(server):
    return [word for key, value in server.options.items() for word in ("--storage-option", f"{key}={value}")]


def test_s3_by_options_from_nothing_to_a_report(moto_server, tmp_path, data):
    place, given = moto_server.new_location(), options(moto_server)
    np.save(tmp_path / "a.npy", data[:20])
    document("create", place, "t", "--shape", "0,6,8", "--chunks", "10,3,4", "--dtype", "float32", *given)
    document("append", place, "t", tmp_path / "a.npy", "-c", "gzip", *given)
    document("recode", place, "t", "-c", "zstd", *given)
    assert document("info", place, *given)["pipelines"][0]["codecs"] == "zstd-0"
    assert document("read", place, "t", "0, 0, 0", *given)["values"] == float(data[0, 0, 0])
    assert [c["message"] for c in document("log", place, "t", *given)["commits"]][-1] == "create t"
    succeed("report", place, "-o", tmp_path / "r.html", *given)
    succeed("verify", place, *given)


def test_s3_by_environment(moto_server, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL": moto_server.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": servers.KEY,
        "AWS_SECRET_ACCESS_KEY": servers.SECRET,
    }.items():
        monkeypatch.setenv(name, value)
    place = moto_server.new_location()
    document("create", place, "t", "--shape", "4", "--dtype", "u1")
    assert document("info", place)["shape"] == [4]


def test_s3_that_is_not_there_or_not_a_repository(moto_server):
    failure("info", moto_server.new_location(), *options(moto_server), code=3)
    failure("info", moto_server.new_location(), "--storage-option", "nonsense=1", code=2)
    failure("info", moto_server.new_location(), "--storage-option", "nonsense", code=2)


@pytest.fixture
def served(made):
    """The repository, behind a server that only gives files out."""
    with serving(made[0].parent) as url:
        yield f"{url}/{made[0].name}"


def test_http_is_read_and_never_written(served, data, tmp_path):
    assert document("info", served)["shape"] == [50, 6, 8]
    assert document("read", served, "temperature", "49, 5, :")["values"] == data[49, 5].tolist()
    np.save(tmp_path / "a.npy", data[:10])
    failure("append", served, "temperature", tmp_path / "a.npy", code=4)
    failure("recode", served, "temperature", "-c", "gzip", code=4)


def test_a_server_without_ranges_is_named_as_the_reason(made):
    with serving(made[0].parent, whole_only=True) as url:
        message = failure("read", f"{url}/{made[0].name}", "temperature", "0, 0, 0", code=5)
    assert "ignores the Range header" in message
    assert "context:" not in message
