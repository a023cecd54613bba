"""`intarsia serve` and `view`: what they print, what others read there, how they end."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
import tensorstore

import intarsia
from intarsia.errors import install_command
from tests.cli.program import FORMS, failure, has_form

PROGRAM = [sys.executable, "-m", "intarsia"]


@contextmanager
def running(*arguments, verb="serve", end=signal.SIGINT, code=130, env=None):
    """The program, and the lines it prints; ended by Ctrl-C, as people do."""
    process = subprocess.Popen(
        [*PROGRAM, verb, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        yield process
        process.send_signal(end)
        _, err = process.communicate()
        assert process.returncode == code, err
        assert "Traceback" not in err
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def read(url):
    return tensorstore.open({"driver": "zarr3", "kvstore": f"{url}/"}).result().read().result()


def said(process):
    document = json.loads(process.stdout.readline())
    assert has_form(document, FORMS["serve"])
    return document


def test_it_says_where_and_what_and_others_read_it(made, data):
    with running(made[0], "--port", "0") as process:
        first = process.stdout.readline()
        assert first.startswith(f"{made[0]} is served at http://127.0.0.1:")
        url = first.split()[-1]
        assert process.stdout.readline().split() == ["Array", "Shape", "Data", "type", "Lattice"]
        assert process.stdout.readline().split()[:2] == [f"{url}/temperature", "(50,"]
        assert "Ctrl-C" in process.stdout.readline()
        np.testing.assert_array_equal(read(f"{url}/temperature"), data)


def test_for_machines_one_array_of_one_version(made, data):
    options = ("--tag", "v1", "--port", "0", "--codec", "raw", "--chunks", "7,6,8", "--json")
    with running(made[0], "temperature", *options) as process:
        document = said(process)
        assert document["path"] == "temperature"
        (array,) = document["arrays"]
        assert array == {
            "path": "temperature",
            "url": document["url"],
            "shape": [20, 6, 8],
            "dtype": "float32",
        }
        np.testing.assert_array_equal(read(document["url"]), data[:20])


def test_plain_stores_are_served_too(plain, data):
    with running(plain, "--port", "0", "--json") as process:
        np.testing.assert_array_equal(read(said(process)["arrays"][0]["url"]), data)


def test_a_port_that_is_taken(plain):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"cannot listen at port {port} of 127.0.0.1" in failure("serve", plain, "--port", port, code=2)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("-c", "auto"), 4, "there is no codec 'auto'"),
        (("-c", "nonsense"), 2, "nonsense"),
        (("--chunks", "1,2,3"), 4, "one logical array"),
        (("temperature", "--chunks", "1,2"), 4, "zarr cannot create an array with this encoding: chunks"),
        (("--host", "256.0.0.1"), 2, "256.0.0.1"),
        (("temperature/nothing",), 3, "nothing"),
    ],
)
def test_what_it_refuses(plain, arguments, code, words):
    assert words in failure("serve", plain, *arguments, code=code)


def test_without_the_package_it_names_the_command(plain, tmp_path):
    (tmp_path / "zarr_http_server.py").write_text(
        "raise ModuleNotFoundError('none', name='zarr_http_server')"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [*PROGRAM, "serve", str(plain)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert ran.returncode == 7
    assert install_command("serve") in ran.stderr


def test_what_cannot_be_read_is_said_on_the_error_stream(plain):
    array = intarsia.open(plain, "temperature")
    file = plain / "temperature" / array.regions[0].name / "c" / "0" / "0" / "0"
    file.write_bytes(file.read_bytes()[:-9])
    with running(plain, "--port", "0", "--json") as process:
        with pytest.raises(urllib.error.HTTPError, match="500") as answer:
            urllib.request.urlopen(f"{said(process)['arrays'][0]['url']}/c/0/0/0")
        answer.value.close()
        assert "cannot read region" in process.stderr.readline()


def test_view_says_where_the_page_is_and_knows_the_history(made):
    with running(made[0], "temperature", "--port", "0", "--no-browser", "--json", verb="view") as process:
        document = json.loads(process.stdout.readline())
        assert has_form(document, FORMS["view"])
        with urllib.request.urlopen(document["url"]) as page:
            assert b"<!doctype html>" in page.read()
        with urllib.request.urlopen(f"{document['url']}/__view__/versions?path=") as answer:
            assert len(json.load(answer)["versions"]) == 4


def test_view_of_a_version_shows_what_led_to_it(made):
    with running(made[0], "--tag", "v1", "--port", "0", "--no-browser", verb="view") as process:
        url = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(f"{url}/__view__/versions?path=temperature") as answer:
            assert [entry["message"] for entry in json.load(answer)["versions"]] == ["create", "with gzip"]


def test_view_opens_a_browser(plain, tmp_path):
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > "$0.asked"\n')
    browser.chmod(0o755)
    with running(plain, "--port", "0", verb="view", env={"BROWSER": str(browser)}) as process:
        url = process.stdout.readline().split()[-1]
        assert "Ctrl-C" in process.stdout.readline()
        asked = tmp_path / "browser.asked"
        while not (asked.exists() and asked.read_text()):
            assert process.poll() is None
        assert asked.read_text().strip() == url
