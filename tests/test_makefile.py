"""What the Makefile and the packaging promise."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_ci_runs_make_test_and_nothing_hidden():
    commands = [
        line
        for line in (ROOT / ".ci/run").read_text().splitlines()
        if line and not line.startswith(("#", "set ", "cd "))
    ]
    assert commands == ["exec make test"]


def test_constraints_are_plain_pins():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[^\s;@/]+", line), line
