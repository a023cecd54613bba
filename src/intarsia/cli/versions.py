"""Commands about versions of an array: `log`, `diff`, `restore`; and of a store: `tag`, `branch`."""

from collections.abc import Callable, Iterable
from typing import Any

import icechunk

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.stores import BranchToCommit, ExistingStore, VersionToRead
from intarsia.cli.verb import CommandError, Output, record, verb, waiting
from intarsia.display import SHOWN_ROWS, Table, bounds_text, count_text, names_text, size_text
from intarsia.errors import NotLogicalArrayError, VersionNotFoundError
from intarsia.versions.diff import ArrayChange
from intarsia.versions.history import history
from intarsia.versions.locking import commit_lock
from intarsia.versions.repository import explain_errors
from intarsia.versions.version import Version, find_snapshot


@verb
def log(place: VersionToRead, array: args.Array = "", *, limit: args.Count = None) -> Output:
    """List the commits that changed an array, newest first, and what each of them did.

    Example: intarsia log data/store temperature --limit 10

    Args:
        limit (-n N): Show only the newest ones.
    """
    repo = place.repository("keeps no history")
    tip = place.session().snapshot_id
    path = place.one_array(array)
    with waiting("comparing versions", counted=False):
        entries = history(repo, path, snapshot_id=tip, limit=limit)
    if not entries:
        place.node(path)  # raises an error that says what there is
    rows = [
        (
            entry.snapshot_id,
            f"{entry.written_at:%Y-%m-%d %H:%M:%S}",
            entry.message,
            "; ".join(entry.changes[0].lines(most=3)) if entry.changes else "",
            size_text(entry.bytes_written),
        )
        for entry in entries
    ]
    columns = ("Snapshot", "Time (UTC)", "Message", "What changed", "Bytes")
    return Output(
        Table(columns, rows) if rows else f"no commit changed {path or '/'}",
        path=path,
        commits=[
            record(entry, "snapshot_id parent_id written_at message")
            | {"change": _change_json(entry.changes[0]) if entry.changes else None}
            for entry in entries
        ],
    )


@verb
def diff(place: VersionToRead, array: args.OneArray, before: str, after: str = "") -> Output:
    """Show what differs between two versions: regions added, dropped, recoded, written; attributes; bytes.

    Example: intarsia diff data/store temperature 2024-05-01 main

    Args:
        before (BEFORE): The earlier version: a snapshot's id, a tag, a branch or a time.
        after (AFTER): The later version, in the same form; if left out, the one that the options below name.
    """
    repo = place.repository("keeps no versions")
    if after and place.version.is_explicit:
        raise CommandError(
            "give the later version only once: as AFTER, or with --branch, --tag, --snapshot or --as-of"
        )
    later = after or place.session().snapshot_id
    path = array.strip("/")
    with waiting("comparing versions", counted=False):
        change = intarsia.diff(repo, path, before, later)
    if change.shape_before is None and change.shape_after is None:
        raise NotLogicalArrayError(f"there is no logical array at {path!r} in either version")
    document: dict[str, Any] = {
        "path": path,
        "before": before,
        "after": later,
        "change": _change_json(change),
    }
    return Output(*_change_lines(change), **document) if change else Output("no difference", **document)


def _change_lines(change: ArrayChange) -> Iterable[str | Table]:
    if change.shape_before != change.shape_after:
        was, now = ("no array" if s is None else s for s in (change.shape_before, change.shape_after))
        yield f"Shape     : {was} before, {now} after"
    if change.attributes:
        yield f"Attributes: {', '.join(change.attributes)}"
    yield f"Written   : {size_text(change.bytes_written)}"
    if change.regions:
        rows = [
            (
                region.kind,
                bounds_text(region.bounds) + (f", layer {region.layer}" if region.layer else ""),
                region.codecs_before or "",
                region.codecs_after or "",
            )
            for region in change.regions
        ]
        yield Table(change.regions.columns, rows)


def _change_json(change: ArrayChange) -> dict[str, Any]:
    """What differs between two versions of an array, as printed by `log --json` and `diff --json`."""
    names = "kind bounds codecs_before codecs_after member_before member_after layer"
    regions = [record(region, names) for region in change.regions]
    facts = record(change, "shape_before shape_after attributes bytes_written bytes_referenced")
    return facts | {"regions": regions}


@verb
def restore(place: BranchToCommit, array: args.OneArray, version: str) -> Output:
    """Give an array the layout, values and attributes it had in a version, as a new commit.

    No history is lost.

    Example: intarsia restore data/store temperature 2024-05-01

    Args:
        version (VERSION): A snapshot's id, a tag, a branch or a time (ISO 8601).
    """
    repo, path = place.repository("keeps no versions"), array.strip("/")
    words = place.message or f"restore {path} to {version}"
    with waiting("restoring", counted=False):
        commit = intarsia.restore(repo, path, version, branch=place.branch_name, message=words)
    return Output(f"{path} is as it was in {version}", path=path, version=version, snapshot_id=commit)


@verb
def tag(place: ExistingStore, name: str = "", version: str = "", *, delete: bool = False) -> Output:
    """List tags, or give a version a name that stays: `tag STORE NAME [VERSION]`.

    Example: intarsia tag data/store v1 2024-05-01

    Args:
        name (NAME): The tag; all are listed if left out.
        version (VERSION): A snapshot's id, a tag, a branch or a time; the tip of main if left out.
        delete: Remove it; its snapshot stays.
    """
    repo = place.repository()
    with explain_errors(place.store):
        if not name:
            return _refs(place, "tags", repo.list_tags(), repo.lookup_tag)
        if delete:
            _check_known(name, repo.list_tags(), "tag", place.store)
            snapshot = repo.lookup_tag(name)
        elif name in repo.list_tags():
            raise CommandError(f"there is already a tag {name!r}: tags do not move; choose another name")
        else:
            snapshot = _snapshot(repo, version)
        with commit_lock(repo):
            repo.delete_tag(name) if delete else repo.create_tag(name, snapshot)
    return _changed_ref("tag", name, snapshot, delete)


@verb
def branch(place: ExistingStore, name: str = "", version: str = "", *, delete: bool = False) -> Output:
    """List branches, or begin one at a version: `branch STORE NAME [VERSION]`.

    Example: intarsia branch data/store trial v1

    Args:
        name (NAME): The branch; all are listed if left out.
        version (VERSION): A snapshot's id, a tag, a branch or a time; the tip of main if left out.
        delete: Remove it; its snapshot stays.
    """
    repo = place.repository()
    with explain_errors(place.store):
        if not name:
            return _refs(place, "branches", repo.list_branches(), repo.lookup_branch)
        if delete:
            _check_known(name, repo.list_branches(), "branch", place.store)
            if name == "main":
                raise CommandError("the branch main cannot be removed")
            snapshot = repo.lookup_branch(name)
        elif name in repo.list_branches():
            raise CommandError(f"there is already a branch {name!r}: choose another name")
        else:
            snapshot = _snapshot(repo, version)
            Version(snapshot_id=snapshot).session(repo)  # raises an error if it does not exist
        with commit_lock(repo):
            repo.delete_branch(name) if delete else repo.create_branch(name, snapshot)
    return _changed_ref("branch", name, snapshot, delete)


def _snapshot(repo: icechunk.Repository, version: str) -> str:
    return find_snapshot(repo, version) if version else repo.lookup_branch("main")


def _check_known(name: str, known: Iterable[str], what: str, store: str) -> None:
    if name not in known:
        raise VersionNotFoundError(f"{store} has no {what} {name!r}: {names_text(name, sorted(known))}")


def _refs(place: ExistingStore, what: str, names: Iterable[str], lookup: Callable[[str], str]) -> Output:
    refs = {name: lookup(name) for name in sorted(names)}
    shown: list[str | Table] = [Table(("Name", "Snapshot"), list(refs.items())[:SHOWN_ROWS])]
    if len(refs) > SHOWN_ROWS:
        shown.append(f"… and {count_text(len(refs) - SHOWN_ROWS, 'more', 'more')}")
    document: Any = {what: [{"name": name, "snapshot_id": snapshot} for name, snapshot in refs.items()]}
    return Output(*(shown if refs else [f"{place.store} has no {what}"]), **document)


def _changed_ref(what: str, name: str, snapshot: str, deleted: bool) -> Output:
    said = f"{what} {name} {'removed; it was at' if deleted else 'is'}"
    return Output(said, name=name, deleted=deleted, snapshot_id=snapshot)
