"""Finding a logical array in a session, where there may be none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr.errors import ContainsArrayError, GroupNotFoundError

from intarsia.array.frame import Frame, open_group
from intarsia.errors import NotLogicalArrayError

if TYPE_CHECKING:
    import icechunk

    from intarsia.array.manifest import Manifest

__all__ = ["frame_at", "frame_to_edit", "manifest_at"]


def frame_at(session: icechunk.Session, path: str) -> Frame | None:
    """The logical array at `path`, to look at, or None; a damaged one is an error."""
    try:
        return Frame.load(open_group(session.store, path.strip("/"), "r"))
    except (ContainsArrayError, GroupNotFoundError, NotLogicalArrayError):
        return None


def manifest_at(session: icechunk.Session, path: str) -> Manifest | None:
    """The manifest of the logical array at `path`, or None."""
    frame = frame_at(session, path)
    return None if frame is None else frame.manifest


def frame_to_edit(session: icechunk.Session, path: str) -> Frame:
    """The logical array at `path` of a writable session."""
    try:
        return Frame.load(open_group(session.store, path.strip("/"), "r+"))
    except (ContainsArrayError, GroupNotFoundError) as error:
        raise NotLogicalArrayError(
            f"there is no logical array at {path!r} on this branch.\n"
            "  Create it in a transaction first: tx.create(path, shape=…, chunks=…, dtype=…)"
        ) from error
