"""Commands about versions of an array: `log`, `diff`, `restore`; and of a store: `tag`, `branch`."""

from operator import itemgetter
from typing import Any

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.output import CommandError, Output
from intarsia.cli.stores import BranchToCommit, ExistingStore, VersionToRead
from intarsia.cli.verb import verb
from intarsia.display import MAX_SHOWN_ROWS, first_rows
from intarsia.errors import NotLogicalArrayError
from intarsia.versions.history import history
from intarsia.versions.locking import commit_lock
from intarsia.versions.repository import explain_errors
from intarsia.versions.version import find_snapshot


@verb()
def log(place: VersionToRead, array: args.Array = "", *, limit: args.Count = None) -> Output:
    """List the commits that changed an array, newest first, and what each of them did.

    Example: intarsia log data/store temperature --limit 10

    Args:
        limit (-n N): Show only the newest ones.
    """
    repo = place.repository("keeps no history")
    tip = place.resolved.snapshot_id
    path = array.strip("/") or place.open(array).path
    entries = history(repo, path, snapshot_id=tip, limit=limit)
    if not entries:
        place.node(path)  # raises an error that says what there is
    return Output(entries or f"no commit changed {path or '/'}", path=path, commits=entries)


@verb()
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
    later = after or place.resolved.snapshot_id
    path = array.strip("/")
    change = intarsia.diff(repo, path, before, later)
    if change.shape_before is None and change.shape_after is None:
        raise NotLogicalArrayError(f"there is no logical array at {path!r} in either version")
    return Output(change, path=path, before=before, after=later, change=change)


@verb()
def restore(place: BranchToCommit, array: args.OneArray, version: str) -> Output:
    """Give an array the layout, values and attributes it had in a version, as a new commit.

    No history is lost.

    Example: intarsia restore data/store temperature 2024-05-01

    Args:
        version (VERSION): A snapshot's id, a tag, a branch or a time (ISO 8601).
    """
    repo, path = place.repository("keeps no versions"), array.strip("/")
    commit = intarsia.restore(repo, path, version, **place.commit)
    return Output(f"{path} is as it was in {version}", path=path, version=version, snapshot_id=commit)


@verb()
def tag(place: ExistingStore, name: str = "", version: str = "", *, delete: bool = False) -> Output:
    """List tags, or give a version a name that stays: `tag STORE NAME [VERSION]`.

    Example: intarsia tag data/store v1 2024-05-01

    Args:
        name (NAME): The tag; all are listed if left out.
        version (VERSION): A snapshot's id, a tag, a branch or a time; the tip of main if left out.
        delete: Remove it; its snapshot stays.
    """
    return _refs(place, "tag", "tags", name, version, delete)


@verb()
def branch(place: ExistingStore, name: str = "", version: str = "", *, delete: bool = False) -> Output:
    """List branches, or begin one at a version: `branch STORE NAME [VERSION]`.

    Example: intarsia branch data/store trial v1

    Args:
        name (NAME): The branch; all are listed if left out.
        version (VERSION): A snapshot's id, a tag, a branch or a time; the tip of main if left out.
        delete: Remove it; its snapshot stays.
    """
    return _refs(place, "branch", "branches", name, version, delete)


def _refs(place: ExistingStore, kind: str, kinds: str, name: str, version: str, delete: bool) -> Output:
    """List tags or branches, or create or delete one."""
    repo = place.repository()
    lookup = getattr(repo, f"lookup_{kind}")
    with explain_errors(repo):
        known = sorted(getattr(repo, f"list_{kinds}")())
        if not name:
            refs = [{"name": each, "snapshot_id": lookup(each)} for each in known]
            columns: Any = {"Name": itemgetter("name"), "Snapshot": itemgetter("snapshot_id")}
            shown = first_rows(refs, columns, MAX_SHOWN_ROWS) if refs else [f"{place.store} has no {kinds}"]
            document: Any = {kinds: refs}
            return Output(*shown, **document)
        if not delete and name in known:
            raise CommandError(f"there is already a {kind} {name!r}; choose another name")
        snapshot = lookup(name) if delete else find_snapshot(repo, version or "main")
        with commit_lock(repo):
            if delete:
                getattr(repo, f"delete_{kind}")(name)
            else:
                getattr(repo, f"create_{kind}")(name, snapshot)
    said = f"{kind} {name} {'removed; it was at' if delete else 'created at'}"
    return Output(said, name=name, deleted=delete, snapshot_id=snapshot)
