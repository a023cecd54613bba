"""Appending a dask array to a repository beside other writers: uploaded once, by whoever computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.array.append import Addition, checked, neighbour_to_grow
from intarsia.array.box import Box
from intarsia.array.frame import Frame, open_group
from intarsia.array.logical import LogicalArray
from intarsia.array.member import grain
from intarsia.array.memory import shown
from intarsia.array.reserve import Piece, Reservation
from intarsia.array.write import as_values
from intarsia.codecs.runtime import options_in
from intarsia.errors import ConcurrentUpdateError
from intarsia.extras import extra
from intarsia.interop.dask.jobs import axis_number, carry_out, continued, onto_axis, open_frame
from intarsia.nullable import NullableArray, OptionalDType
from intarsia.versions.append import append_apart
from intarsia.versions.backoff import Backoff
from intarsia.versions.transaction import transaction

if TYPE_CHECKING:
    import icechunk
    import zarr

    from intarsia.array.member import Encoding
    from intarsia.interop.dask.cluster import Cluster
    from intarsia.versions.commit import Commit

__all__ = ["append_dask"]


def append_dask(
    source: Any, commit: Commit, path: str, axis: int | str, encoding: Encoding, cluster: Cluster
) -> str | None:
    """Append beside other writers; None if there is nothing yet to append to."""
    session = commit.repo.writable_session(commit.branch)
    frame = open_frame(session.store, path)
    if frame is None:
        return None
    number = axis_number(frame, axis)
    addition = _Deferred(source, number, cluster).addition(frame)
    if addition.new == addition.old:
        return str(session.snapshot_id)
    encoding = continued(source, frame, number, encoding)
    if neighbour_to_grow(frame, addition, encoding) is not None:
        try:
            with transaction(
                commit.repo, commit.branch, commit.message, commit.metadata, backoff=Backoff(attempts=2)
            ) as tx:
                opened = open_frame(tx.store, path)
                assert opened is not None
                carry_out([onto_axis(source, opened, number, encoding)], cluster)
            return tx.snapshot_id
        except ConcurrentUpdateError:
            # Others append too. What was computed is kept: it is read back and stored apart from them.
            source = _uploaded(tx.session, path, addition)
    return append_apart(commit, path, _Deferred(source, number, cluster), encoding, Backoff())


def _uploaded(session: icechunk.Session, path: str, addition: Addition) -> Any:
    """The data as it stands in a session that could not be committed."""
    array = LogicalArray(Frame.load(open_group(session.fork().store, path, "r")))
    where = [slice(None)] * array.ndim
    where[addition.axis] = slice(addition.old, addition.new)
    return array.to_dask()[tuple(where)]


@dataclass
class _Deferred:
    """A dask array to be appended; the cluster writes it, but for what fills a partial last chunk."""

    source: Any
    axis: int
    cluster: Cluster
    head: np.ndarray[Any, Any] | None = None
    """What goes into the partial last chunk: computed with the upload, as nobody else can write later."""

    def addition(self, frame: Frame) -> Addition:
        """Where the data would go."""
        as_values(frame.manifest, np.empty(0, dtype=self.source.dtype))
        values: Any = _Values(tuple(self.source.shape), self.head)
        return checked(frame.manifest, values, self.axis)

    def write(self, fork: icechunk.ForkSession, member: zarr.Array[Any] | None, addition: Addition) -> None:
        """Compute everything: the head into memory, the rest into the new member."""
        axis = addition.axis
        whole = Box.sized(self.source.shape)
        fresh = addition.fresh(addition.rest).shape[axis] if member is not None else 0
        split = self.source.shape[axis] - fresh
        head = self.source[(slice(None),) * axis + (slice(0, split),)]
        self.head = as_values(addition.before, np.asanyarray(head.compute())) if split else None
        if member is None:
            return
        frame = Frame(open_group(fork.store, member.path.rpartition("/")[0], "r+"), addition.before)
        rest = whole.with_axis(axis, split, self.source.shape[axis])
        piece = Piece(member.path.rpartition("/")[2], rest, Box.sized(rest.shape))
        frame.members.adopt(piece.member, member)
        options = {piece.member: options_in(member.async_array.config)}
        room = Reservation((piece,), addition.before, options=options)
        self.cluster.write([(self.source, frame, room)])
        self.source = self._read_back(member)

    def _read_back(self, member: zarr.Array[Any]) -> Any:
        """The data as it is stored now: should it have to move, nothing is computed again."""
        da = extra("dask.array", "dask")
        nothing: Any = np.empty((0,) * member.ndim, dtype=member.dtype)
        readable: Any = member
        if isinstance(member.metadata.dtype, OptionalDType):
            readable, nothing = NullableArray(member), np.ma.masked_array(nothing)
        stored = da.from_array(readable, chunks=grain(member), name=False, asarray=False, meta=nothing)
        if self.head is None:
            return stored
        return da.concatenate([da.from_array(shown(self.head), name=False), stored], axis=self.axis)


@dataclass(frozen=True)
class _Values:
    """The data as `append` sees it: its shape, and the values that do not stand in the new member."""

    shape: tuple[int, ...]
    head: np.ndarray[Any, Any] | None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: Any) -> np.ndarray[Any, Any]:
        assert self.head is not None
        part: np.ndarray[Any, Any] = self.head[index]
        return part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self[...]
