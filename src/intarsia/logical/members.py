"""The members of a logical array: opening them by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import zarr
import zarr.api.asynchronous
from zarr.abc.codec import Codec

from intarsia._compat import concurrent_map, sync
from intarsia.codecs.runtime_options import options_of, with_codecs
from intarsia.display import one_line, place_text
from intarsia.errors import MemberError, MissingMemberError, signal_failure
from intarsia.parallel import check_store

type AnyArray = zarr.Array[Any]

type Live = dict[str, tuple[Codec, ...]]
"""By member, codecs with run-time options that its zarr.json does not hold."""


class Members(Mapping[str, AnyArray]):
    """The members of a logical array by name, each opened on demand.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> array.append([1, 2], codecs=["gzip"])
    >>> [type(member).__name__ for member in array.members.values()]
    ['Array']
    """

    def __init__(self, group: zarr.Group, names: tuple[str, ...], live: Live | None = None) -> None:
        self.group = group
        """The group that holds them."""
        self.live: Live = dict(live or {})
        """Codecs with run-time options; they go where the members go."""
        self._names = dict.fromkeys(names)
        self._opened: dict[str, AnyArray] = {}

    def __getitem__(self, name: str) -> AnyArray:
        if name not in self._opened:
            if name not in self._names:
                raise KeyError(name)
            self._opened[name] = self.child(name)
        return self._opened[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Members({list(self._names)})"

    def child(self, name: str) -> AnyArray:
        """An array of the group by name, whether it is a member or not."""
        check_store(self.group.store)
        try:
            return sync(self._open(name))
        except FileNotFoundError as error:
            raise MissingMemberError(
                f"the member {name!r} of {place_text(self.group.store_path)} is missing.\n"
                "  intarsia.verify lists everything that is wrong with the array"
            ) from error
        except Exception as error:
            if signal_failure(error) is not None:
                raise
            place, why = place_text(self.group.store_path), one_line(error)
            raise MemberError(f"the member {name!r} of {place} cannot be opened: {why}") from error

    def open_together(self, names: Iterable[str]) -> None:
        """Open several members at once; one that fails is left to be opened alone."""
        closed = [name for name in dict.fromkeys(names) if name not in self._opened]
        if len(closed) > 1:
            check_store(self.group.store)
            limit = zarr.config.get("async.concurrency")
            sync(concurrent_map([(name,) for name in closed], self._try_to_open, limit))

    async def _try_to_open(self, name: str) -> None:
        with suppress(Exception):
            self._opened[name] = await self._open(name)

    async def _open(self, name: str) -> AnyArray:
        mode: Any = "r" if self.group.store.read_only else "r+"
        path = self.group.store_path / name
        opened = await zarr.api.asynchronous.open_array(store=path, mode=mode, zarr_format=3)
        return with_codecs(zarr.Array(opened), self.live.get(name))

    def renamed(self, names: tuple[str, ...]) -> Members:
        """The mapping for another list of names, keeping members that are already open."""
        members = Members(self.group, names, self.live)
        members._opened = {name: array for name, array in self._opened.items() if name in members._names}
        return members

    def reopened(self, group: zarr.Group, names: tuple[str, ...]) -> Members:
        """The mapping for the group as it is now, where members are opened again; new ones are kept."""
        members = Members(group, names, self.live)
        members._opened = {name: array for name, array in self._opened.items() if name not in self._names}
        return members

    def adopt(self, name: str, array: AnyArray) -> None:
        """Keep an array as it is here, with its run-time options; a new one is not listed before it is a
        member."""
        self._opened[name] = array
        codecs: Any = getattr(array.metadata, "codecs", ())
        if options_of(codecs):
            self.live[name] = codecs
        else:
            self.live.pop(name, None)

    def forget(self, name: str) -> None:
        """Forget an array that is about to be removed."""
        self._opened.pop(name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Members, (self.group, tuple(self._names), self.live)  # open members may be gone by then
