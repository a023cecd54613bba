"""Processes whose clock is wrong: a library that is loaded before all others moves it."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

SOURCE = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdlib.h>
    #include <time.h>

    int clock_gettime(clockid_t clock, struct timespec *now) {
        static int (*plain)(clockid_t, struct timespec *);
        if (!plain) plain = dlsym(RTLD_NEXT, "clock_gettime");
        int answer = plain(clock, now);
        if (clock == CLOCK_REALTIME) now->tv_sec += atol(getenv("SECONDS_AHEAD"));
        return answer;
    }
"""


class Host:
    """A machine of its own as far as the time goes."""

    def __init__(self, library):
        self._library = library

    def run(self, seconds_ahead, code, *arguments):
        """Run Python code in a process whose clock is ahead, or behind if negative; returns its output."""
        environment = {**os.environ, "LD_PRELOAD": str(self._library), "SECONDS_AHEAD": str(seconds_ahead)}
        command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def host(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("moving the clock of a process takes Linux and a C compiler")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(SOURCE)
    library = folder / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "clock.c", "-ldl"], check=True)
    return Host(library)
