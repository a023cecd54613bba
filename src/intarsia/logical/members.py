"""Members: creating them, opening them by name, checking that they can back their regions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import zarr
import zarr.api.asynchronous
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec

from intarsia._compat import ArrayV3Metadata, sync
from intarsia.codecs import CodecLike, parse_codecs
from intarsia.codecs.base import codec_list
from intarsia.codecs.runtime_options import (
    NO_OPTIONS,
    Options,
    options_of,
    remembered,
    remembering,
    with_codecs,
)
from intarsia.display import one_line, place_text
from intarsia.engine.accessors import provided
from intarsia.engine.member_source import AnyArray
from intarsia.errors import MemberError, MissingMemberError, ShapeError, signal_failure
from intarsia.manifest.box import sizes_of
from intarsia.manifest.coercion import as_values, codecs_for, data_type_of, values_dtype
from intarsia.parallel import check_store

if TYPE_CHECKING:
    from zarr.dtype import ZDType

    from intarsia.casting import Casting
    from intarsia.manifest.manifest import Manifest
    from intarsia.manifest.packing import Packing


type Live = dict[str, tuple[Codec, ...]]
"""By member, codecs with run-time options that its zarr.json does not hold."""


ELEMENT_SIZES = ("element_size", "elementsize", "typesize")
"""The names of the element size in codecs that depend on it."""


@dataclass(frozen=True)
class Encoding:
    """How the chunks of a new member will be stored.

    >>> Encoding(codecs=("gzip",)).chunks is None
    True
    """

    codecs: Iterable[CodecLike] | None = None
    """The codec list; None means zarr's own choice."""

    chunks: tuple[int, ...] | None = None
    """The member's chunk shape; None means the logical one."""

    shards: tuple[int, ...] | None = None
    """The member's shard shape, if it is to be sharded."""

    fill_value: Any = None
    """What its unwritten chunks read as; None means the logical array's."""

    options: Options = NO_OPTIONS
    """Run-time options of the handle that writes."""

    packing: Packing | None = None
    """How values become the stored numbers; None means that the values are stored."""

    keep_packing: bool = False
    """Whether to keep the packing of the data that was there before, if it has one."""

    def __post_init__(self) -> None:
        if self.codecs is not None:  # they may be an iterator, or a single codec
            object.__setattr__(self, "codecs", codec_list(self.codecs))

    @property
    def own_options(self) -> Options:
        """The options of the codecs themselves."""
        return NO_OPTIONS if self.codecs is None else options_of(parse_codecs(self.codecs))

    @property
    def other_options(self) -> Options:
        """The handle's options, except those that the codecs have themselves."""
        return self.options.without(self.own_options)

    @property
    def is_default(self) -> bool:
        """Whether everything is left open."""
        fields = self.codecs, self.chunks, self.shards, self.fill_value, self.packing
        return all(one is None for one in fields) and not self.keep_packing

    def keeps(self, value: Any) -> bool:
        """Whether a value is read back unchanged."""
        return self.packing is None or self.packing.holds(value)

    def unpacked(self, manifest: Manifest) -> Encoding:
        """The same for values instead of numbers."""
        itemsize = values_dtype(manifest.data_type).itemsize
        codecs = None if self.codecs is None else codecs_for_size(self.codecs, itemsize)
        return replace(self, codecs=codecs, packing=None)

    def stored_fill(self, manifest: Manifest) -> Any:
        """What the unwritten chunks of a member hold; None if its packing has no suitable number.

        If packed, that is the number for the requested fill value. The array's own is suitable only if it is
        read back unchanged; otherwise unwritten values are missing.
        """
        packing = self.packing
        value = manifest.fill_value if self.fill_value is None else self.fill_value
        if packing is None or self.fill_value is not None:
            return value if packing is None else packing.encode(value)[()]
        held = (packing.encode(candidate)[()] for candidate in (value, np.nan) if packing.holds(candidate))
        return next(held, None)


def codecs_for_size(codecs: Iterable[CodecLike], itemsize: int) -> list[CodecLike]:
    """The bytes -> bytes codecs of a list, for elements of another size and type.

    >>> shuffle = {"name": "shuffle", "configuration": {"element_size": 2}}
    >>> codecs_for_size(["bytes", shuffle], itemsize=4)
    [{'name': 'shuffle', 'configuration': {'element_size': 4}}]
    """
    fitted: list[CodecLike] = []
    for codec in parse_codecs(codecs):
        if isinstance(codec, BytesBytesCodec):
            document = codec.to_dict()
            resized = _with_size(document, itemsize)
            fitted.append(codec if resized == document else resized)
    return fitted


def _with_size(part: Any, itemsize: int) -> Any:
    """A part of a codec's document, with every element size replaced."""
    if isinstance(part, list | tuple):
        return [_with_size(entry, itemsize) for entry in part]
    if not isinstance(part, Mapping):
        return part
    resized = {
        key: itemsize if key in ELEMENT_SIZES else _with_size(value, itemsize) for key, value in part.items()
    }
    return remembering(resized, remembered(part))


def create_member(
    store: Any, name: str | None, manifest: Manifest, shape: tuple[int, ...], encoding: Encoding
) -> AnyArray:
    """A new Zarr array that decodes to the logical data type, or to the numbers of the packing."""
    options: dict[str, Any] = {}
    data_type, fill_value, codecs = _stored_form(manifest, encoding)
    if codecs is not None:
        options["filters"] = [c for c in codecs if isinstance(c, ArrayArrayCodec)] or None
        options["serializer"] = next(c for c in codecs if isinstance(c, ArrayBytesCodec))
        options["compressors"] = [c for c in codecs if isinstance(c, BytesBytesCodec)] or None
    return zarr.create_array(
        store,
        name=name,
        shape=shape,
        dtype=data_type,
        chunks=encoding.chunks or manifest.chunk_shape,
        shards=encoding.shards,
        fill_value=fill_value,
        dimension_names=manifest.dimension_names,
        **options,
    )


def _stored_form(
    manifest: Manifest, encoding: Encoding
) -> tuple[ZDType[Any, Any], Any, tuple[Codec, ...] | None]:
    """The data type, fill value and codecs of a new member; None for zarr's own choice of codecs."""
    for what, value in (("chunks", encoding.chunks), ("shards", encoding.shards)):
        sizes = None if value is None else sizes_of(value, what)
        if sizes is not None and (len(sizes) != manifest.ndim or min(sizes, default=1) < 1):
            raise ShapeError(
                f"{what} {sizes}: a member of this array needs {manifest.ndim} sizes of at least 1"
            )
    packing, fill_value = encoding.packing, encoding.stored_fill(manifest)
    data_type = manifest.data_type if packing is None else data_type_of(packing.stored)
    fill_value = data_type.default_scalar() if fill_value is None else fill_value
    return data_type, fill_value, codecs_for(data_type, encoding.codecs)


def planned_metadata(manifest: Manifest, shape: tuple[int, ...], encoding: Encoding) -> ArrayV3Metadata:
    """The metadata of the member that `create_member` would create.

    >>> from intarsia.manifest.manifest import Manifest
    >>> metadata = planned_metadata(Manifest.empty((4,), (2,), "u1"), (4,), Encoding(["gzip"]))
    >>> [type(codec).__name__ for codec in metadata.codecs]
    ['BytesCodec', 'GzipCodec']
    """
    data_type, fill_value, codecs = _stored_form(manifest, encoding)
    if codecs is None:  # only zarr knows
        example: Any = create_member({}, None, manifest, shape, replace(encoding, shards=None))
        codecs = example.metadata.codecs
    chunks = tuple(encoding.chunks or manifest.chunk_shape)
    if encoding.shards is not None:
        codecs = (ShardingCodec(chunk_shape=chunks, codecs=codecs or ()),)
        chunks = tuple(encoding.shards)
    return ArrayV3Metadata(
        shape=shape,
        data_type=data_type,
        chunk_grid={"name": "regular", "configuration": {"chunk_shape": chunks}},
        chunk_key_encoding={"name": "default", "configuration": {"separator": "/"}},
        fill_value=fill_value,
        codecs=codecs,
        attributes={},
        dimension_names=manifest.dimension_names,
    )


def encoding_of(metadata: Any) -> dict[str, Any]:
    """Everything that decides how a member's chunks are stored: equal for members that may be joined."""
    document = dict(metadata.to_dict())
    return {
        key: document[key]
        for key in ("data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs")
    }


class Members(Mapping[str, AnyArray]):
    """The members of a logical array by name, each opened on demand.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> array.append([1, 2], codecs=["gzip"])
    >>> [type(member).__name__ for member in array.members.values()]
    ['Array']
    """

    def __init__(self, group: zarr.Group, names: tuple[str, ...], live: Live | None = None) -> None:
        self._group = group
        self.live: Live = dict(live or {})
        """Codecs with run-time options; they go where the members go."""
        self._names = dict.fromkeys(names)
        self._opened: dict[str, AnyArray] = {}

    def __getitem__(self, name: str) -> AnyArray:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._opened:
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
        check_store(self._group.store)
        mode: Any = "r" if self._group.store.read_only else "r+"
        try:
            array = zarr.open_array(self._group.store_path / name, mode=mode, zarr_format=3)
            return with_codecs(array, self.live.get(name))
        except FileNotFoundError as error:
            raise MissingMemberError(
                f"the member {name!r} of {place_text(self._group.store_path)} is missing: the manifest names "
                "it, but there is no array of that name.\n"
                "  intarsia.verify lists everything that is wrong with the array"
            ) from error
        except Exception as error:
            if signal_failure(error) is not None:
                raise
            place, why = place_text(self._group.store_path), one_line(error)
            raise MemberError(f"the member {name!r} of {place} cannot be opened: {why}") from error

    def open_together(self, names: Iterable[str]) -> None:
        """Open several members at once; one that fails is left to be opened alone."""
        closed = [name for name in dict.fromkeys(names) if name not in self._opened]
        if len(closed) > 1:
            check_store(self._group.store)
            for name, opened in zip(closed, sync(self._open_all(closed)), strict=True):
                if not isinstance(opened, BaseException):
                    self._opened[name] = with_codecs(zarr.Array(opened), self.live.get(name))

    async def _open_all(self, names: list[str]) -> list[Any]:
        gate = asyncio.Semaphore(zarr.config.get("async.concurrency"))
        mode: Any = "r" if self._group.store.read_only else "r+"

        async def one(name: str) -> Any:
            async with gate:
                path = self._group.store_path / name
                return await zarr.api.asynchronous.open_array(store=path, mode=mode, zarr_format=3)

        return await asyncio.gather(*map(one, names), return_exceptions=True)

    def renamed(self, names: tuple[str, ...]) -> Members:
        """The mapping for another list of names, keeping members that are already open."""
        members = Members(self._group, names, self.live)
        members._opened = {name: array for name, array in self._opened.items() if name in members._names}
        return members

    def adopt(self, name: str, array: AnyArray) -> None:
        """Add a member as it is here: just created, or with codecs that have run-time options."""
        self._names[name] = None
        self._opened[name] = array
        codecs: Any = getattr(array.metadata, "codecs", ())
        if options_of(codecs):
            self.live[name] = codecs
        else:
            self.live.pop(name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Members, (self._group, tuple(self._names), self.live)  # open members may be gone by then


def choose_codecs(
    codecs: Iterable[CodecLike] | Literal["auto"] | None,
    data: Any,
    bounds: Any = None,
    packing: Packing | None = None,
    *,
    manifest: Manifest | None = None,
    casting: Casting = "same_kind",
) -> Iterable[CodecLike] | None:
    """The codec list; "auto" means the one that suits the data best, or the numbers that it is packed as.

    Data from elsewhere is tried in the type of the array with this `manifest`, as it will be stored.
    """
    if codecs != "auto":
        return codecs
    if data is None:
        raise ShapeError('codecs="auto" chooses by the data, but there is no data: give a codec list')
    if manifest is not None:
        data = as_values(manifest, data, casting, all_axes=True)
    chosen: Iterable[CodecLike] = provided("advise", data, bounds=bounds).codecs
    return chosen if packing is None else codecs_for_size(chosen, packing.stored.itemsize)
