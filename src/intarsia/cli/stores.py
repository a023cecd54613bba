"""From a path or URL on the command line to a store, a version of it, and its arrays."""

import os
import re
import shlex
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

import icechunk
import zarr
from zarr.storage import ZipStore

import intarsia
from intarsia._icechunk import safe_store
from intarsia.cli.arguments import Existing, Making, parse_options
from intarsia.cli.verb import CommandError
from intarsia.display import lay_out, names_text, size_text
from intarsia.engine.reader import Reader
from intarsia.errors import NotLogicalArrayError, ReadOnlyError
from intarsia.interop.convert import Node, open_source, walk
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.coercion import type_text
from intarsia.versions.access import Allowed
from intarsia.versions.locking import lock_file
from intarsia.versions.repository import check_name, is_plain_zarr, is_repository
from intarsia.versions.version import LATEST, Version, as_repository

LS_COLUMNS = ("Array", "Shape", "Data type", "Size", "Regions")
"""The columns of a table of all arrays in a store."""

SELECTION = re.compile(r"[-+\d\s:,.…\[\]]+")
"""Text that consists of numbers, colons and brackets is hardly the name of an array."""

EMPTY = "1CECHNKREP0F1RSTCMT0"
"""The snapshot with which Icechunk begins every repository."""

SEVERAL = 20
"""This many arrays are named when one has to be chosen."""

LOOKED_AT = 1000
"""This many names in a directory are examined to say what it holds instead of a store."""

SOURCES = (".nc", ".nc4", ".cdf", ".h5", ".hdf5", ".he5", ".tif", ".tiff")
"""The suffixes of files that `ingest` takes."""


def _listed(found: Sequence[Node]) -> str:
    """Arrays as a small table, for an error."""
    lines = map(str, lay_out(("Path", *LS_COLUMNS[1:]), [row_of(each) for each in found[:SEVERAL]]))
    more = len(found) - SEVERAL
    return "\n    " + "\n    ".join(lines) + (f"\n    … and {more} more" if more > 0 else "")


def row_of(found: Node) -> tuple[str, ...]:
    """An array as a row in a table of all arrays."""
    array = found.node
    assert not isinstance(array, zarr.Group)
    regions = str(len(array.manifest.regions)) if isinstance(array, LogicalArray) else "plain"
    kind = type_text(array.data_type)
    return found.path or "/", str(array.shape), kind, size_text(array.nbytes), regions


def expect_place(text: str) -> None:
    """Refuse a pattern or a file as the name of a store: it was meant as a source."""
    if "://" in text:
        return
    try:
        check_name(os.path.expanduser(text))
    except ValueError as error:
        raise CommandError(
            f"STORE: {str(error).split(chr(10))[0]}\n  Files come first, the store last"
        ) from None
    path = Path(text).expanduser()
    if path.is_file() and not zipfile.is_zipfile(path):
        raise CommandError(f"STORE: {text} is a file. Files come first, the store last")
    others = _names_in(path) if path.is_dir() and not _is_store(path) else []
    if others and not lock_file(path).exists():  # of a repository that is being made
        raise CommandError(
            f"STORE: {text} holds other things ({_some(others)}) but no store: a new one needs its own "
            "directory"
        )


def _is_store(path: Path) -> bool:
    return is_repository(path) or is_plain_zarr(path) or (path.is_file() and zipfile.is_zipfile(path))


def _names_in(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, LOOKED_AT))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def expect_store(text: str) -> None:
    """Refuse a local path without a store, and say what is there instead and what to do."""
    path = Path(text).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is nothing at {text}")
    if _is_store(path):
        return
    names = [path.name] if path.is_file() else _names_in(path)
    stores = [] if path.is_file() else [name for name in names if _is_store(path / name)]
    files = [name for name in names if name.lower().endswith(SOURCES)]
    what, hint = "it is a file of another kind", ""
    if stores:
        what, hint = f"it is a directory that holds {_some(stores)}", f"Name one: {path / stores[0]}"
    elif files:
        pattern = text if path.is_file() else str(path / f"*{Path(files[0]).suffix}")
        what = "it is a file" if path.is_file() else f"it is a directory of files ({_some(files)})"
        hint = f"To open such files as arrays: intarsia ingest {shlex.quote(pattern)} NEW_STORE"
    elif names and path.is_dir():
        what = f"it is a directory that holds other things ({_some(names)})"
    elif not names:
        what = "the directory is empty"
        hint = "intarsia create, ingest and convert put something there"
    raise NotLogicalArrayError(
        f"there is no Zarr or Icechunk store at {text}: {what}" + (f".\n  {hint}" if hint else "")
    )


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
        wanted = True if "all" in (asked.allow or ()) else asked.allow
        repo = cls._repository(asked.store, asked.storage_option, wanted)
        if asked.allow and repo is None:
            raise CommandError(
                f"--allow is for repositories that refer to other files; {asked.store} is plain Zarr"
            )
        return cls(asked.store, repo, version)

    @classmethod
    def make(cls, asked: Making) -> Self:
        """What is at a path or URL; a new repository if there is nothing."""
        expect_place(asked.store)
        path = Path(asked.store).expanduser()
        if "://" not in asked.store and path.exists() and any(path.iterdir()):
            repo = cls._repository(asked.store, asked.storage_option)
        else:
            given = parse_options(asked.storage_option or (), "storage option")
            repo = cls._opened(asked.store, given, create=True)
        return cls(asked.store, repo, Version(asked.branch))

    @classmethod
    def _repository(
        cls, text: str, options: Sequence[str] | None, allow: Allowed = None
    ) -> icechunk.Repository | None:
        given = parse_options(options or (), "storage option")
        if given:
            return cls._opened(text, given, authorize=allow)
        repo = as_repository(os.path.expanduser(text) if "://" not in text else text, allow)
        if repo is None and "://" not in text:
            expect_store(text)
        return repo

    @staticmethod
    def _opened(
        text: str, options: dict[str, Any], *, create: bool = False, authorize: Allowed = None
    ) -> icechunk.Repository:
        try:
            return intarsia.open_repository(text, create=create, authorize=authorize, storage_options=options)
        except TypeError as error:  # an option that such a place does not take
            raise CommandError(str(error)) from error

    @property
    def plain(self) -> Any:
        """A store without versions, in a form for zarr."""
        if "://" in self.text:
            return self.text
        path = os.path.expanduser(self.text)
        return ZipStore(path, mode="r", read_only=True) if os.path.isfile(path) else path

    @property
    def writable(self) -> Any:
        """The same, if it can be written to."""
        store = self.plain
        if isinstance(store, ZipStore):
            raise ReadOnlyError(f"{self.text} is a zip file, which can only be read: unpack it to change it")
        return store

    @property
    def branch(self) -> str:
        """The branch to write to."""
        return self.version.branch or "main"

    def store(self) -> Any:
        """The zarr store of the version, for reading."""
        if self.repo is not None:
            session = self.session()
            if session.snapshot_id == EMPTY:
                raise NotLogicalArrayError(
                    f"{self.text} is an empty repository: nothing has been committed to it yet.\n"
                    "  intarsia create, ingest and convert put something there"
                )
            return safe_store(session.store)
        if self.version.is_explicit:
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
                "give only one of --branch, --tag and --snapshot; only --branch can be combined with --as-of"
            ) from None
        except ValueError as error:
            raise CommandError(f"--as-of: {error}") from error
        return self.version.session(self.repo)

    def node(self, path: str) -> LogicalArray | Reader | zarr.Group:
        """What is at a path; if there is nothing, an error that names the existing arrays."""
        name = path.strip("/")
        try:
            return open_source(self.store(), name)
        except NotLogicalArrayError as error:
            known = [each.path for each in self.found()] if name else []
            if not known:
                raise
            raise NotLogicalArrayError(
                f"there is no array {name!r} in {self.text}: {names_text(name, known)}"
            ) from error

    def found(self, path: str = "") -> list[Node]:
        """Every array at and below a path, logical or plain."""
        node = open_source(self.store(), path.strip("/"))
        return [each for each in walk(node, path.strip("/")) if not isinstance(each.node, zarr.Group)]

    def one_array(self, path: str) -> str:
        """The path, or the path of the only array."""
        if path:
            return path.strip("/")
        known = self.logical_arrays()
        if len(known) == 1:
            return known[0].path
        raise CommandError(
            f"{self.text} holds {len(known)} logical arrays; say which as PATH:{_listed(known)}"
        )

    def logical_arrays(self) -> list[Node]:
        """Every logical array; if there is none, an error that says what is there instead."""
        found = self.found()
        known = [each for each in found if isinstance(each.node, LogicalArray)]
        if not known and found:
            raise NotLogicalArrayError(
                f"{self.text} holds no logical array, only plain Zarr:{_listed(found)}\n"
                "  To turn it into logical arrays: intarsia convert STORE NEW_STORE"
            )
        if not known:
            raise NotLogicalArrayError(
                f"there is no logical array in {self.text}.\n"
                "  Create one: intarsia create STORE PATH --shape … --chunks … --dtype …"
            )
        return known

    def open(self, path: str) -> LogicalArray:
        """A logical array for reading."""
        store, name = self.store(), self.one_array(path)
        try:
            return intarsia.open(store, name)
        except NotLogicalArrayError as error:
            try:
                found = self.found()
            except NotLogicalArrayError:
                raise error from None
            if any(each.path == name and not isinstance(each.node, LogicalArray) for each in found):
                raise NotLogicalArrayError(
                    f"{name or self.text} is a plain Zarr array, not a logical one.\n"
                    "  To read it: intarsia read. To turn it into a logical array: intarsia convert"
                ) from error
            known = [each.path for each in found if isinstance(each.node, LogicalArray)]
            if not known or name in known:
                raise
            raise NotLogicalArrayError(
                f"there is no logical array {name!r} in {self.text}: {names_text(name, known)}"
            ) from error

    def readable(self, path: str) -> LogicalArray | Reader:
        """Any array for reading; if there is only one, it needs no path."""
        name = path.strip("/")
        found = self.node(name)
        if not isinstance(found, zarr.Group):
            return found
        below = self.found(name)
        if len(below) == 1 and not isinstance(below[0].node, zarr.Group):
            return below[0].node
        if name or not below:
            return self.open(name)
        raise CommandError(f"{self.text} holds {len(below)} arrays; say which as PATH:{_listed(below)}")

    def array_and_selection(self, path: str, selection: str) -> tuple[str, str]:
        """With only one array, a selection may take the place of the path: `read STORE '0, 0:3'`."""
        if selection or not SELECTION.fullmatch(path):
            return path, selection
        found = self.found()
        is_path = any(each.path == path.strip("/") for each in found)
        return (path, selection) if is_path or len(found) != 1 else (found[0].path, path)

    def changeable(self, path: str) -> LogicalArray:
        """A logical array of a store without versions, for writing."""
        self.store()  # refuses what such a store does not have
        return intarsia.open(self.writable, self.one_array(path), mode="r+")
