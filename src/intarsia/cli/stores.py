"""From a path or URL on the command line to a store, a version of it, and its arrays."""

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import icechunk
from zarr.storage import ZipStore

import intarsia
from intarsia._icechunk import safe_store
from intarsia.array import LogicalArray
from intarsia.array.hierarchy import logical_arrays
from intarsia.cli.arguments import Existing, Making, parse_options
from intarsia.cli.verb import CommandError
from intarsia.errors import NotLogicalArrayError, ReadOnlyError
from intarsia.versions.version import LATEST, Version, as_repository

SEVERAL = 20
"""This many arrays are named when one has to be chosen."""


@dataclass(frozen=True)
class NamedStore:
    """The store that a command line names: a repository, or plain Zarr."""

    text: str
    """As the user wrote it."""

    repo: icechunk.Repository | None
    """The repository; None for plain Zarr."""

    version: Version = LATEST
    """The version that is meant."""

    @classmethod
    def find(cls, asked: Existing) -> Self:
        """What is at a path or URL; a repository may read sources below the prefixes in `allow`."""
        version = Version(*(getattr(asked, name, None) for name in ("branch", "tag", "snapshot", "as_of")))
        repo = cls._repository(asked.store, asked.storage_option)
        if asked.allow:
            if repo is None:
                raise CommandError(
                    f"--allow is for repositories that refer to other files; {asked.store} is plain Zarr"
                )
            repo = intarsia.authorize(repo, None if "all" in asked.allow else list(asked.allow))
        return cls(asked.store, repo, version)

    @classmethod
    def make(cls, asked: Making) -> Self:
        """What is at a path or URL; a new repository if nothing is."""
        path = Path(asked.store).expanduser()
        if "://" not in asked.store and path.exists() and any(path.iterdir()):
            repo = cls._repository(asked.store, asked.storage_option)
        else:
            given = parse_options(asked.storage_option or (), "storage option")
            repo = cls._opened(asked.store, given, create=True)
        return cls(asked.store, repo, Version(asked.branch))

    @classmethod
    def _repository(cls, text: str, options: Sequence[str] | None) -> icechunk.Repository | None:
        given = parse_options(options or (), "storage option")
        if given:
            return cls._opened(text, given)
        if "://" not in text and not Path(text).expanduser().exists():
            raise FileNotFoundError(f"there is nothing at {text}")
        repo = as_repository(os.path.expanduser(text) if "://" not in text else text)
        if repo is None and "://" not in text:
            cls._expect_zarr(text)
        return repo

    @staticmethod
    def _opened(text: str, options: dict[str, Any], *, create: bool = False) -> icechunk.Repository:
        try:
            return intarsia.open_repository(text, create=create, **options)
        except TypeError as error:  # an option that such a place does not take
            raise CommandError(str(error)) from error

    @staticmethod
    def _expect_zarr(text: str) -> None:
        path = Path(text).expanduser()
        if (path / "zarr.json").is_file() or zipfile.is_zipfile(path):
            return
        older = (path / ".zgroup").is_file() or (path / ".zarray").is_file()
        raise NotLogicalArrayError(
            f"{text} is neither an Icechunk repository nor a Zarr v3 store"
            + (": it is Zarr v2.\n  Logical arrays need Zarr v3" if older else "")
        )

    @property
    def plain(self) -> Any:
        """A store without versions, as zarr takes it."""
        if "://" in self.text:
            return self.text
        path = os.path.expanduser(self.text)
        return ZipStore(path, mode="r", read_only=True) if os.path.isfile(path) else path

    @property
    def writable(self) -> Any:
        """The same, if it can be written to."""
        store = self.plain
        if isinstance(store, ZipStore):
            raise ReadOnlyError(f"{self.text} is a zip file, which is only read: unpack it to change it")
        return store

    @property
    def branch(self) -> str:
        """The branch to write to."""
        return self.version.branch or "main"

    def store(self) -> Any:
        """The zarr store of the version, for reading."""
        if self.repo is not None:
            return safe_store(self.session().store)
        if self.version.is_given:
            raise CommandError(
                f"{self.text} is a plain Zarr store, which has no versions: "
                "--branch, --tag, --snapshot and --as-of need an Icechunk repository"
            )
        return self.plain

    def session(self) -> icechunk.Session:
        """The version of a repository, for reading."""
        assert self.repo is not None
        try:
            self.version.check()
        except TypeError:
            raise CommandError(
                "give one of --branch, --tag and --snapshot; only --branch goes together with --as-of"
            ) from None
        except ValueError as error:
            raise CommandError(f"--as-of: {error}") from error
        return self.version.session(self.repo)

    def arrays(self) -> list[str]:
        """Paths of all logical arrays."""
        return logical_arrays(self.store())

    def one_array(self, path: str) -> str:
        """The path, or the only one there is."""
        if path:
            return path.strip("/")
        known = self.arrays()
        if len(known) == 1:
            return known[0]
        if not known:
            raise NotLogicalArrayError(
                f"there is no logical array in {self.text}.\n"
                "  Create one: intarsia create STORE PATH --shape … --chunks … --dtype …"
            )
        names = "\n    ".join(known[:SEVERAL]) + ("\n    …" if len(known) > SEVERAL else "")
        raise CommandError(f"{self.text} holds {len(known)} logical arrays; say which:\n    {names}")

    def open(self, path: str) -> LogicalArray:
        """A logical array for reading."""
        store, name = self.store(), self.one_array(path)
        try:
            return intarsia.open(store, name)
        except NotLogicalArrayError as error:
            known = logical_arrays(store)
            if not known or name in known:
                raise
            listed = ", ".join(known[:SEVERAL]) + (", …" if len(known) > SEVERAL else "")
            raise NotLogicalArrayError(
                f"there is no logical array {name!r} in {self.text}.\n  It holds {listed}"
            ) from error

    def changeable(self, path: str) -> LogicalArray:
        """A logical array of a store without versions, for writing."""
        self.store()  # refuses what such a store has not
        return intarsia.open(self.writable, self.one_array(path), mode="r+")
