"""What the tests of repositories share."""

import pytest

from intarsia.versions.commit import Commit
from tests.versions.clocks import host

__all__ = ["host", "meddle"]


@pytest.fixture
def meddle(monkeypatch):
    """Run something right before the next commits: what others do at just that moment."""

    def install(*interruptions):
        waiting = list(interruptions)
        plain = Commit.make

        def interrupted(self, session, since=None):
            if waiting:
                waiting.pop(0)()
            return plain(self, session, since)

        monkeypatch.setattr(Commit, "make", interrupted)

    return install
