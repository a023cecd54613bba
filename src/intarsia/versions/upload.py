"""Data that is in a repository's storage, but in no version yet: uploaded once, attached when it fits."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol

from intarsia.array import append as appending
from intarsia.array.frame import open_group
from intarsia.array.member import create_member, new_name

if TYPE_CHECKING:
    import icechunk

    from intarsia.array.frame import Frame
    from intarsia.array.member import AnyArray, Encoding

__all__ = ["Incoming", "Upload"]


class Incoming(Protocol):
    """Data to be appended, wherever it is."""

    def addition(self, frame: Frame) -> appending.Addition:
        """The data, and where it would go in the array as it is now; refused if it does not fit."""

    def write(
        self, fork: icechunk.ForkSession, member: AnyArray | None, addition: appending.Addition
    ) -> None:
        """Write what the new logical chunks hold into a member, which is in this fork alone.

        Called once for every upload, before any lock is taken: the place for whatever takes long. Without
        a member there is nothing to write, as the data fits into the partial last chunk.
        """


@dataclass(frozen=True)
class Upload:
    """The new member of an append, held by a fork of a session."""

    group: str
    """Path of the logical array."""

    node: str
    """Icechunk's identity of the group: another one of the same path is not ours to write to."""

    name: str | None
    """Of the new member; None if the data fits into the last, partial chunk."""

    shape: tuple[int, ...] | None
    """Of the new member: what the wholly new logical chunks hold."""

    encoding: Encoding
    """Of the new member, complete."""

    fork: icechunk.ForkSession
    """Holds the member."""

    @classmethod
    def of(cls, session: icechunk.Session, frame: Frame, incoming: Incoming, encoding: Encoding) -> Upload:
        """Upload the part of the data that goes into a new member."""
        addition = incoming.addition(frame)
        encoding = appending.completed(frame, addition.axis, encoding)
        fork = session.fork()
        path = frame.group.path
        shape, name, member = _rest_shape(addition), None, None
        if shape is not None:
            name = new_name()
            place = open_group(fork.store, path, "r+").store_path
            member = create_member(place, name, addition.grown, shape, encoding)
            member = frame.options(encoding.other_options).on(member)
        incoming.write(fork, member, addition)
        return cls(path, session.get_node_id("/" + path), name, shape, encoding, fork)

    def fits(self, session: icechunk.Session, addition: appending.Addition) -> bool:
        """Whether the uploaded member can still be attached, as it is, to what the array is now."""
        same_group = session.get_node_id("/" + self.group) == self.node
        return same_group and _rest_shape(addition) == self.shape

    def attach(self, session: icechunk.Session, frame: Frame, addition: appending.Addition) -> None:
        """Make the member part of a session, and of the manifest."""
        if self.name is None:
            appending.append(frame, addition.values, self.encoding, axis=addition.axis, merge=False)
            return
        session.merge(self.fork)
        appending.attach(frame, addition, self.name, self.encoding)


def _rest_shape(addition: appending.Addition) -> tuple[int, ...] | None:
    if not prod(addition.rest.shape):
        return None
    return addition.grown.elements(addition.rest).shape
