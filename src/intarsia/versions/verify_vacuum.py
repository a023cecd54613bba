"""Looking after a repository: finding what is wrong, and removing what nobody needs any more."""

import asyncio
import datetime
from collections.abc import Collection, Iterable
from concurrent.futures import wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, overload

import icechunk
import zarr
from zarr.errors import GroupNotFoundError

from intarsia._compat import event_loop
from intarsia.codecs.compressors import ZSTD_LARGEST_BLOCK, zstd_content
from intarsia.errors import CutOffError, NotLogicalArrayError, RepositoryError, argument
from intarsia.logical.hierarchy import logical_paths, open_group, session_store
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.vacuum import vacuum as vacuum_array
from intarsia.logical.verify import Problem
from intarsia.logical.verify import verify as verify_array
from intarsia.progress import Progress, part_of, silent
from intarsia.versions.commit import Backoff
from intarsia.versions.locking import commit_lock, directory_of
from intarsia.versions.repository import RepositoryLike, describe, explain_errors, open_repository
from intarsia.versions.transaction import transaction
from intarsia.versions.version import (
    Version,
    as_repository,
    parse_time,
    refuse_without_repository,
    resolve_store,
)

ICECHUNK_HEADER = 39
"""Bytes of Icechunk's files before their content, which is a frame of zstd."""

MAX_PER_BYTE = ZSTD_LARGEST_BLOCK // 4
"""What a byte of zstd may hold: a block, of one byte again and again, takes four."""


def damaged_files(repo: icechunk.Repository) -> tuple[Problem, ...]:
    """Files of a local repository that claim more than they can hold.

    Icechunk makes room for that when it looks what versions refer to, and ends the process if it gets none.
    """
    path, problems = directory_of(repo), []
    for kind in ("manifests", "snapshots", "transactions"):
        for entry in () if path is None else sorted(path.glob(f"{kind}/*")):
            with suppress(FileNotFoundError), open(entry, "rb") as file:  # others may collect meanwhile
                file.seek(ICECHUNK_HEADER)
                claim, held = zstd_content(file.read(18)), entry.stat().st_size
                if claim is not None and claim > held * MAX_PER_BYTE:
                    what = f"{held:,} bytes cannot hold the {claim:,} they claim"
                    hint = "restore it from a copy"
                    problems.append(Problem("manifest", f"{kind}/{entry.name}", what, hint))
    return tuple(problems)


def refuse_damaged_files(repo: icechunk.Repository) -> None:
    """Raise `RepositoryError` if there are any."""
    for problem in damaged_files(repo):
        raise RepositoryError(
            f"{describe(repo)}: {problem.where} {problem.what}.\n"
            "  The file is damaged: restore it from a copy"
        )


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """What was removed from a repository, or would be.

    >>> GarbageReport(frozenset(), 2, 1, 0, 1024).is_empty
    False
    """

    expired: frozenset[str]
    """The ids of the snapshots that are no longer versions."""

    chunks: int
    """The number of chunk files."""

    snapshots: int
    """The number of snapshot files."""

    other: int
    """The number of Icechunk's other files: its chunk manifests, attributes, transaction logs, and the copies
    that it keeps of the list of snapshots."""

    nbytes: int
    """The total size of these files."""

    removed: tuple[str, ...] = ()
    """The paths of members and tables that no region referred to."""

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to remove."""
        return not (self.expired or self.chunks or self.snapshots or self.other or self.removed)

    def __str__(self) -> str:
        return (
            f"{self.chunks} chunks, {self.snapshots} snapshots and {self.other} other files, "
            f"{self.nbytes:,} bytes"
        )


def verify(
    store: Any,
    path: str = "",
    *,
    data: bool = True,
    deep: bool = False,
    progress: Progress = silent,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime.datetime | str | None = None,
) -> tuple[Problem, ...]:
    """Everything that is wrong with a logical array: its manifest, its members, every stored chunk.

    It takes an array; or a store and a path, so that it can also check an array that does not open; or a
    repository. It checks every logical array below the path; in a repository, at the tip of `main` unless you
    choose a version. `data=False` does not read the chunks; `deep=True` also compares the values of replicas
    with those of layer 0. An empty result means that all is well. What writers left behind does no harm and
    is no problem; `vacuum` removes it. `progress` is called as chunks are read.

    Args:
        store: A logical array, or a path or URL, a zarr store or group, or an Icechunk session or repository.
        path: The logical array, or a group with logical arrays below it.
        branch: Read the tip of this branch. The default is `main`.
        tag: Read the version with this tag.
        snapshot_id: Read the snapshot with this id.
        as_of: Read the version that was current at this time, in UTC unless it says otherwise.

    >>> import intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    >>> intarsia.verify(repo)
    ()
    """
    if isinstance(store, LogicalArray | zarr.Array):
        return verify_array(store, path, data=data, deep=deep, progress=progress)
    resolved = resolve_store(store, Version(branch, tag, snapshot_id, as_of))
    store, repo, damaged = resolved.store, resolved.repo, dict[str, list[str]]()
    with explain_errors(repo):
        try:
            paths = logical_paths(open_group(store, path, "r"), inside_arrays=True, damaged=damaged)
            needed = repo is None and not damaged
        except (FileNotFoundError, ValueError) as error:
            paths = []
            needed = repo is None or bool(path) or not isinstance(error, GroupNotFoundError)
        if not paths and needed:
            paths = [path]  # the check of what is there says what is wrong with it
        # A dict, so that missing authorisation is reported once, not for each array.
        problems = {Problem("manifest", where, what): None for where in damaged for what in damaged[where]}
        for i, each in enumerate(paths):
            part = part_of(progress, i * STEPS, STEPS, len(paths) * STEPS)
            problems |= dict.fromkeys(verify_array(store, each, data=data, deep=deep, progress=part))
    return (*problems, *(() if repo is None else damaged_files(repo)))


type CutOff = datetime.datetime | datetime.timedelta | str


@overload
def vacuum(
    store: Any, path: str = "", *, dry_run: bool = False, branch: str | None = None
) -> tuple[str, ...]: ...
@overload
def vacuum(
    store: Any, path: str = "", *, branch: str | None = None, forget_before: CutOff, force: bool = False
) -> GarbageReport: ...
def vacuum(
    store: Any,
    path: str = "",
    *,
    dry_run: bool = False,
    branch: str | None = None,
    forget_before: CutOff | None = None,
    force: bool = False,
) -> tuple[str, ...] | GarbageReport:
    """Remove members and tables inside logical arrays that no region refers to; returns their paths.

    It visits every logical array at the path and below. Do not run it on a store without transactions while
    somebody writes there: nothing refers yet to a member that is being written. In a repository, the removal
    is one commit to the branch, and older versions keep what was removed. `dry_run=True` only lists. Arrays
    and groups that intarsia did not make are left alone.

    With `forget_before`, versions of the repository before that time (or older than that age) are then
    forgotten, and everything that no version refers to is removed from its storage. The result is an
    `intarsia.types.GarbageReport`; its `removed` are the paths. The tips of branches and tags always stay. An
    age counts back from the newest commit, so that versions are not forgotten because nobody committed for a
    while, or because the clock of this machine is ahead. Uploads of writers that have not committed yet look
    like garbage, so a cut-off less than 24 hours ago is refused. So is a time after the newest commit, if
    there are older ones. Pass `force` if nobody is writing and the clock is right. Others may commit
    meanwhile. Open readers of forgotten versions will fail. Icechunk's log of operations (`repo.ops_log()`)
    ends where the copies do that it makes of its list of snapshots; those of a local repository are removed
    too, if they are a day old or older than the cut-off.

    Args:
        store: A logical array, a path or URL, a zarr store or group, or an Icechunk session or repository.
        path: Where to look in it.
        branch: In a repository, the branch to commit to. The default is `main`.
        forget_before: A time, as a `datetime` or as text, or an age, as a `timedelta`.
        force: Whether to skip the two checks of `forget_before`.

    >>> import datetime, intarsia
    >>> repo = intarsia.open_repository("memory://", create=True)
    >>> with intarsia.transaction(repo, message="create") as tx:
    ...     array = tx.create("a", shape=(4,), chunks=(2,), dtype="f4")
    ...     _ = array.group.create_array("mine", shape=(4,), dtype="f4")
    ...     _ = array.group.create_array("m-0123456789abcdef0123456789abcdef", shape=(4,), dtype="f4")
    >>> intarsia.vacuum(repo, dry_run=True)
    ('a/m-0123456789abcdef0123456789abcdef',)
    >>> intarsia.vacuum(repo, forget_before=datetime.timedelta(days=30)).removed
    ('a/m-0123456789abcdef0123456789abcdef',)
    >>> sorted(intarsia.open(repo, "a").group)
    ['mine']
    >>> intarsia.vacuum(repo, forget_before=datetime.timedelta(hours=1))
    Traceback (most recent call last):
    ...
    intarsia.errors.CutOffError: ... is less than 24 hours ago: ...
    """
    store = session_store(store)
    repo = None if isinstance(store, LogicalArray) else as_repository(store)
    if repo is None:
        given = {"branch": branch, "forget_before": forget_before}
        refuse_without_repository(store, [name for name, value in given.items() if value is not None])
        return vacuum_array(store, path, dry_run=dry_run)
    if forget_before is None:
        return _vacuum_repository(repo, path, branch, dry_run=dry_run)
    if dry_run:
        raise TypeError(f"{argument('forget_before')} has no dry run: leave out {argument('dry_run')}")
    now = datetime.datetime.now(datetime.UTC)
    with explain_errors(repo):
        cut_off = _cut_off(repo, forget_before, now, force=force)
    removed = _vacuum_repository(repo, path, branch, dry_run=False)
    return replace(_collect(repo, cut_off, now), removed=removed)


def _vacuum_repository(
    repo: icechunk.Repository, path: str, branch: str | None, *, dry_run: bool
) -> tuple[str, ...]:
    """Remove members that no region refers to, in one commit if there are any."""
    try:
        if dry_run:
            with explain_errors(repo):
                return vacuum_array(Version(branch).session(repo).store, path, dry_run=True)
        with transaction(repo, branch=branch or "main", message="vacuum") as changing:
            return vacuum_array(changing.store, path)
    except GroupNotFoundError as error:
        if path:
            raise NotLogicalArrayError(f"there is no Zarr group at {path!r}") from error
        return ()  # nothing was ever created


STEPS = 1000
"""The steps of the progress for every array of a repository, regardless of its size."""

MINIMUM_AGE = datetime.timedelta(hours=24)
"""The least age of a cut-off: longer than any writer takes from its first upload to its commit.

What a writer has uploaded is in no version until it commits, so only its age distinguishes it from garbage.
"""

FIRST_AND_LAST = 2
"""The versions that always stay in every history: the first, which is empty, and the tip."""

LOOK_SECONDS = 0.002
"""Seconds between checks whether a collection still needs the lock: less than a commit takes."""

NOTED_COPIES = 16 * 1024 * 1024
"""Old copies of the list of snapshots are reported from this size on: a few hundred commits make less."""


def _collect(repo: icechunk.Repository, cut_off: datetime.datetime, now: datetime.datetime) -> GarbageReport:
    """Forget versions before the cut-off, and remove everything that no version refers to.

    If others change the list of snapshots at the same moment, it is tried again.
    """
    expired: set[str] = set()
    with explain_errors(repo):
        for _ in Backoff().tries():
            with suppress(icechunk.ConflictError):
                with commit_lock(repo):
                    expired |= repo.expire_snapshots(cut_off)
                summary = _collect_garbage(repo, cut_off)
                copies = _copies(repo, max(cut_off, now - MINIMUM_AGE))
                for copy in copies:
                    copy.unlink(missing_ok=True)
                return _garbage_report(summary, expired, copies.values())
    raise RepositoryError(
        "others changed the repository every time, so nothing old was removed.\n"
        "  Call vacuum again when there are fewer writers"
    )


def _cut_off(
    repo: icechunk.Repository, forget_before: CutOff, now: datetime.datetime, *, force: bool
) -> datetime.datetime:
    """The time before which versions and garbage are removed; refused if that could remove too much."""
    if force:
        return _time_before(now, forget_before)
    tips = repo.list_branches()
    histories = [list(islice(repo.ancestry(branch=tip), FIRST_AND_LAST + 1)) for tip in tips]
    newest = max(versions[0].written_at for versions in histories)
    latest = min(now, newest) if isinstance(forget_before, datetime.timedelta) else now
    cut_off = _time_before(latest, forget_before)
    text = cut_off.isoformat(timespec="seconds")
    if cut_off > latest - MINIMUM_AGE:
        why = "less than 24 hours ago: what writers have uploaded but not committed yet would be removed"
    elif cut_off > newest and any(len(versions) > FIRST_AND_LAST for versions in histories):
        last = newest.isoformat(timespec="seconds")
        why = f"after the newest commit, {last}: all versions but the last one would be forgotten"
    else:
        return cut_off
    raise CutOffError(
        f"the cut-off {text} is {why}.\n"
        "  Give an earlier one, or, if nobody is writing and the clock of this machine is right: "
        "intarsia.vacuum(store, forget_before=…, force=True)",
        command="Give an earlier time",
    )


def _time_before(latest: datetime.datetime, forget_before: CutOff) -> datetime.datetime:
    """A time as it is; an age counts back from the latest time."""
    if isinstance(forget_before, datetime.timedelta):
        return latest - forget_before
    return parse_time(forget_before)


def _collect_garbage(repo: icechunk.Repository, cut_off: datetime.datetime) -> icechunk.GCSummary:
    """Let Icechunk remove what no version refers to, without keeping others from committing for long.

    Icechunk determines what the versions refer to, writes the list of snapshots without those that nothing
    points to, and then removes files, which takes longest. Writing the list is like a commit, and must not
    happen at the same time as one: on a local file system, the later would undo the earlier. So the lock is
    held until the list is written, which no other process can do meanwhile, and no longer.

    Removing files needs no lock, here as on object stores, which have none. A file is removed only if it is
    older than the cut-off and no version in the list refers to it. The uploads of active writers are newer,
    and what their commits share with existing versions is kept by those.
    """
    path = directory_of(repo)
    if path is None:
        return repo.garbage_collect(cut_off)
    refuse_damaged_files(repo)
    with ExitStack() as stack:
        with commit_lock(repo):
            before = _identity(path)
            running = asyncio.run_coroutine_threadsafe(repo.garbage_collect_async(cut_off), event_loop())
            stack.callback(running.cancel)  # after Ctrl-C; it does nothing to one that is done
            while not running.done() and _identity(path) == before:
                wait([running], timeout=LOOK_SECONDS)
        return running.result()


def _identity(path: Path) -> tuple[int, int] | None:
    """What distinguishes a list of snapshots from the one that replaces it; None before Icechunk 2."""
    try:
        listed = (path / "repo").stat()
    except FileNotFoundError:
        return None
    return listed.st_ino, listed.st_mtime_ns


def _copies(repo: icechunk.Repository, cut_off: datetime.datetime) -> dict[Path, int]:
    """The copies from before a time that Icechunk keeps of a local list of snapshots, and their sizes.

    No version needs them. They are for people, after a disaster, and for Icechunk's log of operations.
    """
    path, copies = directory_of(repo), {}
    for copy in () if path is None else path.glob("overwritten/*"):
        with suppress(FileNotFoundError):  # somebody else has removed it
            status = copy.stat()
            if status.st_mtime < cut_off.timestamp():
                copies[copy] = status.st_size
    return copies


def unreferenced_objects(repo: RepositoryLike) -> GarbageReport:
    """What no version refers to: remains of interrupted writers, or the uploads of active ones.

    Copies of the list of snapshots count if they are a day old and large.
    """
    opened = open_repository(repo)
    now = datetime.datetime.now(datetime.UTC)
    refuse_damaged_files(opened)
    with explain_errors(opened):
        summary = opened.garbage_collect(now, dry_run=True)
        copies = _copies(opened, now - MINIMUM_AGE).values()
    return _garbage_report(summary, (), copies if sum(copies) > NOTED_COPIES else ())


def _garbage_report(
    summary: icechunk.GCSummary, expired: Iterable[str], copies: Collection[int]
) -> GarbageReport:
    files = summary.manifests_deleted + summary.attributes_deleted + summary.transaction_logs_deleted
    return GarbageReport(
        expired=frozenset(expired),
        chunks=summary.chunks_deleted,
        snapshots=summary.snapshots_deleted,
        other=files + len(copies),
        nbytes=summary.bytes_deleted + sum(copies),
    )
