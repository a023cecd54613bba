"""Places for repositories, by name: what the tests that run on several kinds of storage share."""

from dataclasses import dataclass, field

import intarsia

KINDS = ["local", "moto", "seaweedfs"]


@dataclass
class Place:
    """Where a repository is, for this process and for others."""

    location: str
    options: dict = field(default_factory=dict)

    def open(self, **more):
        return intarsia.open_repository(self.location, **self.options, **more)


def place(kind, request, tmp_path):
    """A fresh place of a kind; starts a server if it needs one."""
    if kind == "local":
        return Place(str(tmp_path / "repository"))
    server = request.getfixturevalue(f"{kind}_server")
    return Place(server.new_location(), server.options)


def memory():
    """A repository in memory."""
    return intarsia.open_repository("memory://", create=True)


def create(repo, path="a", **fields):
    """A logical array in a commit of its own; returns the snapshot's id."""
    defaults = {"shape": (0, 4), "chunks": (1, 4), "dtype": "int32"}
    with intarsia.transaction(repo, message=f"create {path}") as tx:
        tx.create(path, **{**defaults, **fields})
    return tx.snapshot_id
