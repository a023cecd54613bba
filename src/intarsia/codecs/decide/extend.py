"""More codecs to choose from: nested codecs added to the `conditional` codec of an array that exists."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import zarr
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import ArrayV3Metadata, sync
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.configuration import CodecLike
from intarsia.codecs.decide.routes import Route, deciding_members, find_routes
from intarsia.codecs.runtime import options_in, options_of
from intarsia.errors import CodecConfigurationError, ReadOnlyError

PURPOSE = "add nested codecs"


def extend_codecs[T](array: T, codecs: Iterable[CodecLike], *, at: str | None = None) -> T:
    """Add nested codecs to the `conditional` codec of an array; gives a handle that knows them.

    They come after those that are there. Chunks stay as they are and can be read: their bits for the new
    codecs are 0. The header of a chunk must have bits to spare; its length cannot change any more
    (`header_bits`, when the array is created). Only zarr.json is written, once. Handles that were opened
    before do not know the new codecs, and cannot read chunks that these were applied to. The decision comes
    along; where several codecs had their own, give it anew.

    Where an array has several `conditional` codecs, `at` says which one is meant: "codecs[1]", as in the
    result of `masks`. Takes zarr arrays, nullable ones, and logical ones, of which all members with a
    `conditional` codec get the new codecs, one after the other.

    >>> import zarr
    >>> from intarsia import ConditionalCodec, masks, with_decision
    >>> from zarr.codecs import BytesCodec, GzipCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[GzipCodec()], decision="always_apply")
    >>> z = zarr.create(store={}, shape=4, chunks=2, dtype="u1", codecs=[BytesCodec(), codec])
    >>> z[:2] = 7
    >>> z = extend_codecs(z, [ZstdCodec()])
    >>> with_decision(z, 0b10)[2:] = 7
    >>> masks(z).tolist()
    [1, 2]
    """
    added = list(codecs)
    kind: Any = array
    if hasattr(kind, "regions"):  # a logical array
        members = deciding_members(kind, PURPOSE).values()
        for extension in [_Extension(member, added, at) for member in members]:  # all are checked first
            extension.carry_out()
        return copy.copy(array)  # which opens the members anew
    if hasattr(kind, "zarr_array"):  # a nullable array is a view of that one
        fresh: Any = copy.copy(array)
        fresh.zarr_array = _Extension(kind.zarr_array, added, at).carry_out()
        return cast("T", fresh)
    extended: Any = _Extension(kind, added, at).carry_out()
    return cast("T", extended)


class _Extension:
    """A change of one array's zarr.json, checked before anything is written."""

    def __init__(self, array: zarr.Array[Any], added: list[CodecLike], at: str | None) -> None:
        if array.read_only:
            raise ReadOnlyError(
                f"cannot {PURPOSE}: the array is open for reading only; open it with mode='r+'"
            )
        self.array = array
        route, path, self.codec = _chosen(array, at)
        _check_room(self.codec, len(added))
        extended = ConditionalCodec(
            codecs=[*self.codec.codecs, *added], header_bits=self.codec.header_bits, name=self.codec.name
        )
        if not route.parts:  # as when an array is created: some codecs look at the data type
            extended = extended.evolve_from_array_spec(route.spec(array, array.shape))
        self.key = array.store_path / "zarr.json"
        stored = sync(self.key.get(default_buffer_prototype()))
        if stored is None:
            raise CodecConfigurationError(
                f"cannot {PURPOSE}: there is no array at {array.store_path} any more"
            )
        self.document: dict[str, Any] = json.loads(stored.to_bytes())
        nested = _find(self.document, path)["configuration"]["codecs"]
        if nested != _as_json(self.codec):
            raise CodecConfigurationError(
                f"cannot {PURPOSE}: the codecs in zarr.json are not those of this handle any more; open the "
                "array anew"
            )
        nested += _as_json(extended)[len(nested) :]
        ArrayV3Metadata.from_dict(copy.deepcopy(self.document))  # zarr checks it as if it were opened

    def carry_out(self) -> zarr.Array[Any]:
        """Write zarr.json; the array as it is then."""
        content = json.dumps(self.document, indent=2).encode()
        sync(self.key.set(default_buffer_prototype().buffer.from_bytes(content)))
        fresh = zarr.open_array(self.array.store_path, mode="r+", zarr_format=3)
        metadata: Any = self.array.metadata
        carried = options_of(metadata.codecs)
        if len(find_routes(self.array, PURPOSE)) > 1:  # each may have its own decision, but an array has one
            carried = replace(carried, decision=None)
        return options_in(self.array.async_array.config).over(carried).on(fresh)


def _chosen(array: zarr.Array[Any], at: str | None) -> tuple[Route, str, ConditionalCodec]:
    """The codec that is meant, the way to it, and where it stands in zarr.json."""
    candidates = {
        path: (route, path, codec)
        for route in find_routes(array, PURPOSE)
        for path, codec in route.conditional_codecs().items()
    }
    if at is None and len(candidates) == 1:
        return next(iter(candidates.values()))
    if at not in candidates:
        asked = "say which one is meant" if at is None else f"there is none at {at!r}"
        raise CodecConfigurationError(
            f"cannot {PURPOSE}: the array has {len(candidates)} conditional codecs, and {asked}.\n"
            f"  Give at= one of {', '.join(map(repr, candidates))}"
        )
    return candidates[at]


def _check_room(codec: ConditionalCodec, added: int) -> None:
    wanted = len(codec.codecs) + added
    if wanted > codec.header_bits:
        raise CodecConfigurationError(
            f"cannot {PURPOSE}: the header of a chunk has {codec.header_bits} bits, and {wanted} nested "
            "codecs would need a bit each. A longer header would make the stored chunks unreadable.\n"
            f"  Create an array with header_bits={(wanted + 7) // 8 * 8} or more, and copy the values"
        )


def _as_json(codec: ConditionalCodec) -> Any:
    """The nested codecs as they stand in zarr.json."""
    return json.loads(json.dumps([nested.to_dict() for nested in codec.codecs]))


def _find(document: Any, path: str) -> Any:
    """The codec object of zarr.json at "codecs[0].codecs[1]"."""
    node = document
    for step, (name, position) in enumerate(re.findall(r"(\w+)\[(\d+)\]", path)):
        node = (node if step == 0 else node["configuration"])[name][int(position)]
    return node
