"""The store that a command line names: how to reach it, which version of it is meant, and its arrays."""

import os
import re
import shlex
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import icechunk
import zarr
from zarr.storage import ZipStore

import intarsia
from intarsia.cli.arguments import Allowed, Pairs
from intarsia.cli.output import CommandError
from intarsia.display import Column, first_rows, names_text, size_text
from intarsia.engine.reader import Reader
from intarsia.errors import MissingArrayError, NotLogicalArrayError, ReadOnlyError
from intarsia.interop.node_copies import SourceNode, open_source, walk
from intarsia.logical.hierarchy import is_plain_zarr
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.data_types import type_text
from intarsia.versions.authorization import store_of
from intarsia.versions.locking import lock_file
from intarsia.versions.repository import check_name, is_repository
from intarsia.versions.version import Version, as_repository

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


LS_COLUMNS: Mapping[str, Column[Any]] = {
    "Array": lambda each: each.path or "/",
    "Shape": lambda each: str(each.node.shape),
    "Data type": lambda each: type_text(each.node.data_type),
    "Size": lambda each: size_text(each.node.nbytes),
    "Regions": lambda each: (
        len(each.node.manifest.regions) if isinstance(each.node, LogicalArray) else "plain"
    ),
}
"""The columns of a table of all arrays in a store."""


def _listed(nodes: Sequence[SourceNode]) -> str:
    """Arrays as a small table, for an error."""
    blocks = first_rows(nodes, LS_COLUMNS, SEVERAL)
    return "".join(f"\n    {line}" for block in blocks for line in str(block).split("\n"))


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
        raise CommandError(f"STORE: {text} is a file, and a store is a directory. Files come before it")
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
        along = " --concat-dim NAME" if len(files) == 1 else ""  # with several, coordinates tell
        hint = f"To open such files as arrays: intarsia ingest {shlex.quote(pattern)} NEW_STORE{along}"
    elif names and path.is_dir():
        what = f"it is a directory that holds other things ({_some(names)})"
    elif not names:
        what = "the directory is empty"
        hint = "intarsia create, ingest and convert put something there"
    raise NotLogicalArrayError(
        f"there is no Zarr or Icechunk store at {text}: {what}" + (f".\n  {hint}" if hint else "")
    )


@contextmanager
def _taken_for_usage() -> Iterator[None]:
    """A URL that is none, or an option that such a place does not take, is a mistake on the command line."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if isinstance(error, intarsia.IntarsiaError):
            raise
        raise CommandError(str(error)) from error


VERSIONS = "--branch, --tag, --snapshot and --as-of"


@dataclass(frozen=True)
class ExistingStore:
    """The store that a command line names, an Icechunk repository or plain Zarr; it must exist.

    Args:
        store (STORE): Path or URL of an Icechunk repository (s3://, gs://, az://, http://) or of a Zarr
            store.

    Store and version:
        storage_option (KEY=VALUE): For s3://, gs://, az://, http://: endpoint_url, region, anonymous,
            bearer_token, …; what is left out comes from the environment.
        allow (PREFIX): Let the repository read source files below this URL prefix; 'all' for all that it
            names.
    """

    store: str
    storage_option: Pairs = None
    allow: Allowed = None

    @cached_property
    def repo(self) -> icechunk.Repository | None:
        """The repository; None for plain Zarr."""
        repo = self._existing_repository(self.allow)
        if self.allow and repo is None:
            raise CommandError(
                f"--allow is for repositories that refer to other files; {self.store} is plain Zarr"
            )
        return repo

    def repository(self, what: str = "has no versions") -> icechunk.Repository:
        """The repository; an error for plain Zarr, which lacks `what` a repository has."""
        if self.repo is None:
            raise CommandError(
                f"{self.store} is a plain Zarr store, which {what}; an Icechunk repository does"
            )
        return self.repo

    def _existing_repository(self, allow: Any) -> icechunk.Repository | None:
        if self.storage_option:
            return self._open_repository(authorize=allow)
        is_url = "://" in self.store
        with _taken_for_usage():
            repo = as_repository(self.store if is_url else os.path.expanduser(self.store), allow)
        if repo is None and not is_url:
            expect_store(self.store)
        return repo

    def _open_repository(self, **settings: Any) -> icechunk.Repository:
        with _taken_for_usage():
            return intarsia.open_repository(self.store, storage_options=self.storage_option or {}, **settings)

    @property
    def version(self) -> Version:
        """The version that is meant."""
        return Version(*(getattr(self, name, None) for name in ("branch", "tag", "snapshot", "as_of")))

    @property
    def branch_name(self) -> str:
        """The branch to write to."""
        return self.version.branch or "main"

    @property
    def plain(self) -> Any:
        """A store without versions, in a form for zarr."""
        if "://" in self.store:
            return self.store
        path = os.path.expanduser(self.store)
        return ZipStore(path, mode="r", read_only=True) if os.path.isfile(path) else path

    @property
    def writable(self) -> Any:
        """The same, if it can be written to."""
        store = self.plain
        if isinstance(store, ZipStore):
            raise ReadOnlyError(f"{self.store} is a zip file, which can only be read: unpack it to change it")
        return store

    def zarr_store(self) -> Any:
        """The zarr store of the version, for reading."""
        if self.repo is not None:
            session = self.session()
            if session.snapshot_id == EMPTY:
                raise NotLogicalArrayError(
                    f"{self.store} is an empty repository: nothing has been committed to it yet.\n"
                    "  intarsia create, ingest and convert put something there"
                )
            return store_of(session, self.repo)
        if self.version.is_explicit:
            raise CommandError(
                f"{self.store} is a plain Zarr store, which has no versions: {VERSIONS} need an Icechunk "
                "repository"
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

    def at_version(self) -> tuple[Any, dict[str, Any]]:
        """The store, and the arguments that tell a function of the library which version is meant."""
        store = self.zarr_store()
        return (store, {}) if self.repo is None else (self.repo, {"snapshot_id": self.session().snapshot_id})

    def node(self, path: str) -> LogicalArray | Reader | zarr.Group:
        """What is at a path; if there is nothing, an error that names the existing arrays."""
        name = path.strip("/")
        try:
            return open_source(self.zarr_store(), name)
        except MissingArrayError as error:
            known = [each.path or "/" for each in self.array_nodes()] if name else []
            if not known:
                raise
            raise NotLogicalArrayError(
                f"there is no array {name!r} in {self.store}: {names_text(name, known)}"
            ) from error

    def array_nodes(self, path: str = "") -> list[SourceNode]:
        """Every array at and below a path, logical or plain."""
        node = open_source(self.zarr_store(), path.strip("/"))
        return [each for each in walk(node, path.strip("/")) if not isinstance(each.node, zarr.Group)]

    def readable(self, path: str) -> LogicalArray | Reader:
        """Any array for reading; if there is only one, it needs no path."""
        node = self.node(path)
        return self._only_array(path, (LogicalArray, Reader)) if isinstance(node, zarr.Group) else node

    def open(self, path: str) -> LogicalArray:
        """A logical array for reading; if there is only one, it needs no path."""
        node = self.node(path)
        if isinstance(node, Reader):
            raise NotLogicalArrayError(
                f"{path.strip('/') or self.store} is a plain Zarr array, not a logical one.\n"
                "  To read it: intarsia read. To turn it into a logical array: intarsia convert"
            )
        return self._only_array(path, (LogicalArray,)) if isinstance(node, zarr.Group) else node

    def _only_array(self, path: str, kinds: tuple[type, ...]) -> Any:
        """The only array in a group; if there are none or several, an error that says what there is."""
        nodes, where = self.array_nodes(path), f"{self.store} {path.strip('/')}".strip()
        arrays = [each for each in nodes if isinstance(each.node, kinds)]
        if len(arrays) == 1:
            return arrays[0].node
        if arrays:
            raise CommandError(f"{where} holds {len(arrays)} arrays; say which as PATH:{_listed(arrays)}")
        if nodes:
            raise NotLogicalArrayError(
                f"{where} holds no logical array, only plain Zarr:{_listed(nodes)}\n"
                "  To turn it into logical arrays: intarsia convert STORE NEW_STORE"
            )
        raise NotLogicalArrayError(
            f"there is no logical array in {where}.\n"
            "  Create one: intarsia create STORE PATH --shape … --chunks … --dtype …"
        )

    def array_and_selection(self, path: str, selection: str) -> tuple[str, str]:
        """With only one array, a selection may take the place of the path: `read STORE '0, 0:3'`."""
        if selection or not SELECTION.fullmatch(path):
            return path, selection
        nodes = self.array_nodes()
        is_path = any(each.path == path.strip("/") for each in nodes)
        return (path, selection) if is_path or len(nodes) != 1 else (nodes[0].path, path)

    @contextmanager
    def change(self, message: str) -> Iterator[Any]:
        """A `store` to write to; in a repository, a transaction, with the `snapshot_id` of its commit."""
        if self.repo is None:
            self.zarr_store()  # refuses what such a store does not have
            yield SimpleNamespace(store=self.writable, snapshot_id=None)
            return
        words = getattr(self, "message", None) or message
        with intarsia.transaction(self.repo, branch=self.branch_name, message=words) as transaction:
            yield transaction

    @contextmanager
    def change_array(self, path: str, message: str) -> Iterator[tuple[LogicalArray, Any]]:
        """A logical array to change, and what `change` yields."""
        with self.change(message) as change:
            yield intarsia.open(change.store, path, mode="r+"), change

    def call(
        self, name: str, path: str, *arguments: Any, message: str, **options: Any
    ) -> tuple[LogicalArray, str | None]:
        """Change a logical array: with `intarsia.NAME` in a repository, with its method elsewhere.

        Returns the array and the snapshot of the commit.
        """
        if self.repo is None:
            with self.change_array(path, message) as (array, _):
                getattr(array, name)(*arguments, **options)
                return array, None
        options |= {"branch": self.branch_name, "message": getattr(self, "message", None) or message}
        commit = getattr(intarsia, name)(self.repo, path, *arguments, **options)
        return self.open(path), commit


@dataclass(frozen=True)
class BranchToChange(ExistingStore):
    """A store that a command changes.

    Store and version:
        branch (NAME): The branch to commit to; main if left out.
    """

    branch: str | None = None


@dataclass(frozen=True)
class BranchToCommit(BranchToChange):
    """A store that a command changes in one commit.

    Args:
        message (-m TEXT): Message of the commit.
    """

    message: str | None = None


@dataclass(frozen=True)
class VersionToRead(ExistingStore):
    """A store of which a command looks at one version.

    Store and version:
        branch (NAME): The tip of this branch; main if left out.
        tag (NAME): This tag.
        snapshot (ID): The snapshot with this id.
        as_of (TIME): The version that was current at this time (ISO 8601, UTC unless it says otherwise).
    """

    branch: str | None = None
    tag: str | None = None
    snapshot: str | None = None
    as_of: str | None = None


@dataclass(frozen=True)
class NewStore(BranchToCommit):
    """A store that is made if there is none."""

    allow: None = field(default=None, init=False)

    @cached_property
    def repo(self) -> icechunk.Repository | None:
        """The repository, which may be new; None for plain Zarr."""
        expect_place(self.store)
        path = Path(self.store).expanduser()
        if "://" not in self.store and path.exists() and any(path.iterdir()):
            return self._existing_repository(None)
        return self._open_repository(create=True)
