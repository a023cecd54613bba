"""What a store says about itself to other processes: its snapshot, and whether it may go there."""

from __future__ import annotations

from typing import Any

import icechunk

from intarsia.errors import WritableSessionError

__all__ = ["check_travels", "snapshot_of"]


def snapshot_of(store: Any) -> str | None:
    """The snapshot that a read-only Icechunk session shows; None where values may change.

    >>> snapshot_of({}) is None
    True
    """
    if isinstance(store, icechunk.IcechunkStore) and store.session.read_only:
        return store.session.snapshot_id
    return None


def check_travels(store: Any, what: str) -> None:
    """Refuse to pickle what belongs to a writable session: changes made elsewhere would be lost."""
    if not isinstance(store, icechunk.IcechunkStore):
        return
    session = store.session
    if session.read_only or isinstance(session, icechunk.ForkSession):
        return
    raise WritableSessionError(
        f"{what} belongs to a writable Icechunk session, which cannot travel to another process: what is "
        "written there would be lost.\n"
        "  To write from several processes, use intarsia.store_dask(dask_array, repo, path, …)\n"
        "  To read there, open it from a read-only session: intarsia.open(repo, path)"
    )
