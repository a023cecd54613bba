"""The store that a command line names: how to reach it, which version of it is meant, and its arrays."""

import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import icechunk
import zarr
from zarr.storage import ZipStore

import intarsia
from intarsia.cli.arguments import Allowed, Pairs, Snapshot
from intarsia.cli.output import CommandError
from intarsia.display import Column, Table, names_text
from intarsia.engine.reader import Reader
from intarsia.errors import MissingArrayError, NotLogicalArrayError, ReadOnlyError
from intarsia.interop.node_copies import SourceNode, open_source, walk
from intarsia.logical.hierarchy import is_plain_zarr, not_logical, open_node
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.data_types import type_text
from intarsia.versions.locking import lock_file
from intarsia.versions.repository import check_name, is_repository
from intarsia.versions.version import ResolvedStore, Version, resolve_store

SELECTION = re.compile(r"[-+\d\s:,.…\[\]]+")
"""Text that consists of numbers, colons and brackets is hardly the name of an array."""

PUT_SOMETHING = "Create one: intarsia create STORE PATH --shape … --chunks … --dtype …"

MAX_NAMED = 20
"""This many arrays are named when one has to be chosen."""


class ListedArray(NamedTuple):
    """An array in the list of all arrays of a store."""

    path: str
    kind: Literal["logical", "plain"]
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    regions: int | None


LS_COLUMNS: Mapping[str, Column[ListedArray]] = {
    "Array": lambda each: each.path or "/",
    "Shape": lambda each: str(each.shape),
    "Data type": "dtype",
    "Size": "nbytes",
    "Regions": lambda each: each.kind if each.regions is None else each.regions,
}


def listed(nodes: Iterable[SourceNode]) -> list[ListedArray]:
    """A line for each array."""
    arrays = []
    for path, node in nodes:
        array: Any = node
        regions = len(array.manifest.regions) if isinstance(array, LogicalArray) else None
        kind: Any = "plain" if regions is None else "logical"
        dtype = type_text(array.data_type)
        arrays.append(ListedArray(path, kind, array.shape, dtype, array.nbytes, regions))
    return arrays


def expect_place(text: str) -> None:
    """Refuse a pattern, a file or a directory of other things as the name of a store."""
    if "://" in text:
        return
    path = Path(text).expanduser()
    with usage_errors():
        check_name(path)
    if path.is_file() and not zipfile.is_zipfile(path):
        raise CommandError(f"STORE: {text} is a file, and a store is a directory. Files come before it")
    is_new = not path.is_dir() or lock_file(path).exists()  # or just being made
    if not (is_new or is_repository(path) or is_plain_zarr(path)) and any(path.iterdir()):
        raise CommandError(
            f"STORE: {text} holds other things but no store: a new one needs its own directory"
        )


@contextmanager
def usage_errors() -> Iterator[None]:
    """A URL that is none, or an option that such a place does not take, is a mistake on the command line."""
    try:
        yield
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        if isinstance(error, intarsia.IntarsiaError):
            raise
        raise CommandError(str(error.args[0])) from error


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
    authorize: Allowed = None

    @cached_property
    def resolved(self) -> ResolvedStore:
        """The version that is meant, for reading, and the repository that it is of."""
        source: Any = self.store
        with usage_errors():
            if self.storage_option:
                source = intarsia.open_repository(source, storage_options=self.storage_option)
            elif "://" not in source:
                source = os.path.expanduser(source)
                if zipfile.is_zipfile(source):
                    source = ZipStore(source, mode="r", read_only=True)
                elif not is_repository(source):
                    open_node(source, "")  # raises an error that says what is there instead
            return resolve_store(source, self.version, self.authorize)

    @property
    def repo(self) -> icechunk.Repository | None:
        """The repository; None for plain Zarr."""
        return self.resolved.repo

    def repository(self, what: str = "has no versions") -> icechunk.Repository:
        """The repository; an error for plain Zarr, which lacks `what` a repository has."""
        if self.repo is None:
            raise CommandError(
                f"{self.store} is a plain Zarr store, which {what}; an Icechunk repository does"
            )
        return self.repo

    @property
    def version(self) -> Version:
        """The version that is meant."""
        return Version(*(getattr(self, name, None) for name in ("branch", "tag", "snapshot_id", "as_of")))

    @property
    def branch_name(self) -> str:
        """The branch to write to."""
        return self.version.branch or "main"

    @property
    def target(self) -> Any:
        """What functions of the library that write there take as `store`."""
        if self.repo is not None:
            return self.repo
        if isinstance(self.resolved.store, ZipStore):
            raise ReadOnlyError(f"{self.store} is a zip file, which can only be read: unpack it to change it")
        return self.resolved.store

    def at_version(self) -> tuple[Any, dict[str, Any]]:
        """The store, and the arguments that tell a function of the library which version is meant."""
        found = self.resolved
        return (found.store, {}) if found.repo is None else (found.repo, {"snapshot_id": found.snapshot_id})

    def node(self, path: str) -> LogicalArray | Reader | zarr.Group:
        """What is at a path; if there is nothing, an error that names the existing arrays."""
        name = path.strip("/")
        try:
            return open_source(self.resolved.store, name)
        except MissingArrayError as error:
            known = [each.path or "/" for each in self.array_nodes()] if name else []
            if known:
                words = f"there is no array {name!r} in {self.store}: {names_text(name, known)}"
            elif self.repo is not None:
                words = f"there is no array in {self.store}.\n  {PUT_SOMETHING}"
            else:
                raise
            raise NotLogicalArrayError(words) from error

    def array_to_change(self, store: Any, path: str) -> zarr.Array[Any] | LogicalArray:
        """The plain or logical array at a path of a `store` to write to."""
        if isinstance(self.node(path), zarr.Group):
            raise CommandError(f"{path or '/'} is a group: name an array in it")
        node = zarr.open(store, path=path, mode="r+", zarr_format=3)
        return node if isinstance(node, zarr.Array) else intarsia.open(node, mode="r+")

    def array_nodes(self, path: str = "") -> list[SourceNode]:
        """Every array at and below a path, logical or plain."""
        nodes = walk(self.node(path), path.strip("/"))
        return [each for each in nodes if not isinstance(each.node, zarr.Group)]

    def readable(self, path: str) -> LogicalArray | Reader:
        """Any array for reading; if there is only one, it needs no path."""
        array: LogicalArray | Reader = self._array(path, (LogicalArray, Reader))
        return array

    def open(self, path: str) -> LogicalArray:
        """A logical array for reading; if there is only one, it needs no path."""
        array: LogicalArray = self._array(path, (LogicalArray,))
        return array

    def _array(self, path: str, kinds: tuple[type, ...]) -> Any:
        """The array at a path, or the only one in the group there."""
        node = self.node(path)
        nodes = self.array_nodes(path) if isinstance(node, zarr.Group) else [SourceNode(path, node)]
        arrays = [each for each in nodes if isinstance(each.node, kinds)]
        if len(arrays) == 1:
            return arrays[0].node
        where = f"{self.store} {path.strip('/')}".strip()
        if arrays:
            table = str(Table.of(listed(arrays[:MAX_NAMED]), LS_COLUMNS)).replace("\n", "\n    ")
            raise CommandError(f"{where} holds {len(arrays)} arrays; say which as PATH:\n    {table}")
        if nodes:
            raise not_logical(self.resolved.store, nodes[0].path, "")
        raise NotLogicalArrayError(f"there is no array in {where}.\n  {PUT_SOMETHING}")

    def array_and_selection(self, path: str, selection: str) -> tuple[str, str]:
        """With only one array, a selection may take the place of the path: `read STORE '0, 0:3'`."""
        if selection or not SELECTION.fullmatch(path):
            return path, selection
        names = [each.path for each in self.array_nodes()]
        return (path, "") if len(names) != 1 or path.strip("/") in names else (names[0], path)


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

    @property
    def commit(self) -> dict[str, Any]:
        """What a function of the library is told about the commit."""
        return {"branch": self.branch_name, "message": self.message}

    @contextmanager
    def change(self, message: str) -> Iterator[Any]:
        """A `store` to write to; in a repository, a transaction, with the `snapshot_id` of its commit."""
        if self.repo is None:
            yield SimpleNamespace(store=self.target, snapshot_id=None)
            return
        words = self.message or message
        with intarsia.transaction(self.repo, branch=self.branch_name, message=words) as transaction:
            yield transaction

    @contextmanager
    def change_array(self, path: str, message: str) -> Iterator[tuple[LogicalArray, Any]]:
        """A logical array to change, and what `change` yields."""
        with self.change(message) as change:
            yield intarsia.open(change.store, path, mode="r+"), change

    def call(self, name: str, path: str, *arguments: Any, **options: Any) -> tuple[LogicalArray, str | None]:
        """Change a logical array: with `intarsia.NAME` in a repository, with its method elsewhere.

        Returns the array and the snapshot of the commit.
        """
        if self.repo is None:
            array = intarsia.open(self.target, path, mode="r+")
            getattr(array, name)(*arguments, **options)
            return array, None
        commit = getattr(intarsia, name)(self.repo, path, *arguments, **self.commit, **options)
        return intarsia.open(self.repo, path, snapshot_id=commit), commit


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
    snapshot_id: Snapshot = None
    as_of: str | None = None


@dataclass(frozen=True)
class NewStore(BranchToCommit):
    """A store that is made if there is none."""

    authorize: None = field(default=None, init=False)

    @cached_property
    def resolved(self) -> ResolvedStore:
        """The store, which may be new."""
        expect_place(self.store)
        path = Path(self.store).expanduser()
        if "://" not in self.store and path.exists() and any(path.iterdir()):
            return super().resolved
        with usage_errors():
            repo = intarsia.open_repository(self.store, create=True, storage_options=self.storage_option)
        return ResolvedStore(None, repo)
