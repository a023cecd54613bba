"""Appending a dask array to a repository beside other writers: uploaded once, by whoever computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np

from intarsia.array.hierarchy import open_group
from intarsia.array.member import Members, grain
from intarsia.array.values import as_values, shown
from intarsia.errors import NotLogicalArrayError
from intarsia.extras import extra
from intarsia.interop.dask.jobs import addition_of, continued
from intarsia.nullable import NullableArray, OptionalDType
from intarsia.versions.append import append_incoming

if TYPE_CHECKING:
    from intarsia.array.append import Addition
    from intarsia.array.frame import Frame
    from intarsia.array.member import Encoding
    from intarsia.array.reserve import Reservation
    from intarsia.interop.dask.cluster import Cluster
    from intarsia.versions.commit import Commit

__all__ = ["append_dask"]


def append_dask(
    source: Any, commit: Commit, path: str, axis: int | str, encoding: Encoding, cluster: Cluster
) -> str | None:
    """Append beside other writers; None if there is nothing yet to append to."""
    incoming = _Deferred(source, axis, encoding, cluster)
    try:
        return append_incoming(commit, path, incoming)
    except NotLogicalArrayError:
        if incoming.has_met_the_array:
            raise  # somebody removed it
        return None


@dataclass
class _Deferred:
    """A dask array to be appended; the cluster writes it, but for what fills a partial last chunk."""

    source: Any
    axis: int | str
    asked: Encoding
    cluster: Cluster
    nulls: bool = False
    has_met_the_array: bool = False
    head: np.ndarray[Any, Any] | None = None
    """What goes into the partial last chunk: computed with the upload, as nobody else can write later."""

    stored: tuple[Frame, Reservation, int] | None = None
    """Where it was written, and on which axis: if it has to move, it is read back, not computed again."""

    def addition(self, frame: Frame) -> Addition:
        """Where the data would go."""
        self.has_met_the_array = True
        return addition_of(self.source, frame, self.axis)

    def encoding(self, frame: Frame) -> Encoding:
        """As asked for, in the chunks of the series."""
        return continued(self.source, frame, self.addition(frame).axis, self.asked)

    def fill(self, frame: Frame, room: Reservation) -> None:
        """Compute everything: what the room is for into members, what goes before it into memory."""
        if self.stored is not None:
            self.source = self._read_back(*self.stored)
        axis = self.addition(frame).axis
        split = min([piece.source.start[axis] for piece in room.pieces], default=self.source.shape[axis])
        head = self.source[(slice(None),) * axis + (slice(0, split),)]
        self.head = as_values(frame.manifest, np.asanyarray(head.compute())) if split else None
        self.cluster.write([(self.source, frame, room)])
        self.stored = frame, room, axis

    def fill_head(self, frame: Frame, room: Reservation) -> None:
        """Write what was computed into memory."""
        head: Any = self.head
        room.fill(frame, lambda source: head[source.slices])

    def _read_back(self, frame: Frame, room: Reservation, axis: int) -> Any:
        """The data as it is stored now."""
        da = extra("dask.array", "dask")
        session = frame.group.store.session  # type: ignore[attr-defined]
        fork = session if isinstance(session, icechunk.ForkSession) else session.fork()
        members = Members(open_group(fork.store, frame.group.path, "r"), ())
        parts = [] if self.head is None else [da.from_array(shown(self.head), name=False)]
        for piece in room.pieces:
            member: Any = members.child(piece.member)
            nothing: Any = np.empty((0,) * member.ndim, dtype=member.dtype)
            readable, chunks = member, grain(member)
            if isinstance(member.metadata.dtype, OptionalDType):
                readable, nothing = NullableArray(member), np.ma.masked_array(nothing)
            stored = da.from_array(readable, chunks=chunks, name=False, asarray=False, meta=nothing)
            parts.append(stored[piece.target.slices])
        return da.concatenate(parts, axis=axis)
