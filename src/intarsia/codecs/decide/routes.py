"""The way from a stored chunk to its `conditional` codec: through which shards, past which codecs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import zarr
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec
from zarr.core.buffer import Buffer, default_buffer_prototype

from intarsia._compat import ArraySpec, ArrayV3Metadata
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.current_chunk import axes_after, to_array_axes
from intarsia.codecs.runtime import config_of
from intarsia.errors import CodecConfigurationError


@dataclass(frozen=True, slots=True)
class Step[T: (ShardingCodec, ConditionalCodec)]:
    """One codec on the way, and its neighbours in the same list of codecs."""

    before: tuple[Codec, ...]
    """The codecs that encode before it."""

    codec: T
    """The codec itself."""

    after: tuple[BytesBytesCodec, ...]
    """The codecs that encode after it, and so have to be undone to reach it."""


class Divided(Protocol):
    """An array -> bytes codec whose chunks have parts with codecs of their own, such as `optional`."""

    @property
    def chains(self) -> Mapping[str, tuple[Codec, ...]]:
        """The codecs of each part, by the part's name."""

    @property
    def frame_bytes(self) -> int:
        """What a chunk has beside its parts."""

    def largest_parts(self, spec: ArraySpec) -> list[tuple[tuple[Codec, ...], ArraySpec]]:
        """The codecs of each part, with what they are told of the largest that a chunk may have."""

    def open_parts(self, data: Buffer, spec: ArraySpec) -> dict[str, tuple[Buffer, ArraySpec]]:
        """The encoded parts that a chunk has, each with what its codecs are told of it."""

    def close_parts(self, parts: Mapping[str, Buffer], spec: ArraySpec) -> Buffer:
        """A chunk of these encoded parts."""


@dataclass(frozen=True, slots=True)
class PartStep:
    """A part of a chunk on the way."""

    before: tuple[Codec, ...]
    """The codecs that encode before the one that divides the chunk."""

    codec: Divided
    """The one that divides it."""

    after: tuple[BytesBytesCodec, ...]
    """The codecs that encode after that."""

    name: str
    """Which part it is."""


@dataclass(frozen=True, slots=True)
class Route:
    """How to reach one `conditional` codec of an array."""

    shards: tuple[Step[ShardingCodec], ...]
    """The shards it lies in, outermost first."""

    end: Step[ConditionalCodec]
    """The codec."""

    parts: tuple[PartStep, ...] = ()
    """The parts of chunks it lies in, outermost first; inside the shards."""

    path: str = ""
    """Where the codec stands in zarr.json, leaving out `configuration`: "codecs[0].codecs[1]"."""

    def step_into(self, level: int) -> Step[ShardingCodec] | PartStep | Step[ConditionalCodec]:
        """The step in the list of codecs that lies inside this many shards."""
        if level < len(self.shards):
            return self.shards[level]
        return self.parts[0] if self.parts else self.end

    def conditional_codecs(self) -> dict[str, ConditionalCodec]:
        """The codec and those nested in it, by where they stand in zarr.json."""
        codecs: dict[str, ConditionalCodec] = {}

        def add(path: str, codec: ConditionalCodec) -> None:
            codecs[path] = codec
            for position, nested in enumerate(codec.codecs):
                if isinstance(nested, ConditionalCodec):
                    add(f"{path}.codecs[{position}]", nested)

        add(self.path, self.end.codec)
        return codecs

    def spec(self, array: zarr.Array[Any], shape: tuple[int, ...]) -> ArraySpec:
        """What the codec is told of a chunk, given the shape of the stored chunk or shard around it."""
        spec = stored_spec(array, shape)
        for step in self.shards:
            spec = replace(resolved(step.before, spec), shape=step.codec.chunk_shape)
        return resolved(self.end.before, spec)

    def chunk_shape(self, array: zarr.Array[Any]) -> tuple[int, ...] | None:
        """The shape of the chunks it decides on, in the array's axes; None where that cannot be known."""
        if not self.shards:
            return array.chunks
        axes: tuple[int, ...] | None = tuple(range(array.ndim))
        spec = stored_spec(array, array.shape)
        for step in self.shards:
            axes = axes_after(array_codecs(step.before), spec, axes)
            spec = replace(resolved(step.before, spec), shape=step.codec.chunk_shape)
        return None if axes is None else to_array_axes(self.shards[-1].codec.chunk_shape, axes)


def stored_spec(array: zarr.Array[Any], shape: tuple[int, ...]) -> ArraySpec:
    """What the first codec of `array` is told of a chunk of this shape."""
    metadata: Any = array.metadata
    return ArraySpec(
        shape, metadata.data_type, metadata.fill_value, config_of(array), default_buffer_prototype()
    )


def resolved(codecs: tuple[Codec, ...], spec: ArraySpec) -> ArraySpec:
    """What is left of a chunk when `codecs` have worked, as the next codec is told."""
    for codec in codecs:
        spec = codec.resolve_metadata(spec)
    return spec


def array_codecs(codecs: tuple[Codec, ...]) -> tuple[ArrayArrayCodec, ...]:
    """Those of `codecs` that work on arrays."""
    return tuple(codec for codec in codecs if isinstance(codec, ArrayArrayCodec))


def routes(codecs: tuple[Codec, ...], at: str = "codecs") -> list[Route]:
    """The ways to all `conditional` codecs in `codecs`; those nested in another one are its business.

    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> inner = (BytesCodec(), ConditionalCodec(codecs=[ZstdCodec()]))
    >>> [len(route.shards) for route in routes((ShardingCodec(chunk_shape=(2,), codecs=inner),))]
    [1]
    """
    ways = []
    for position, codec in enumerate(codecs):
        before = codecs[:position]
        after = tuple(c for c in codecs[position + 1 :] if isinstance(c, BytesBytesCodec))
        path = f"{at}[{position}]"
        if isinstance(codec, ConditionalCodec):
            ways.append(Route((), Step(before, codec, after), path=path))
        elif isinstance(codec, ShardingCodec):
            step = Step(before, codec, after)
            inside = routes(codec.codecs, f"{path}.codecs")
            ways += [replace(route, shards=(step, *route.shards)) for route in inside]
        elif hasattr(codec, "chains"):
            for name, chain in codec.chains.items():
                part = PartStep(before, cast("Divided", codec), after, name)
                inside = routes(chain, f"{path}.{name}")
                ways += [replace(route, parts=(part, *route.parts)) for route in inside]
    return ways


def find_routes(array: zarr.Array[Any], purpose: str) -> list[Route]:
    """The ways to all `conditional` codecs of `array`; an error if it has none.

    >>> import zarr
    >>> find_routes(zarr.create(store={}, shape=4, dtype="u1"), "read bitmasks")
    Traceback (most recent call last):
    ...
    intarsia.errors.CodecConfigurationError: cannot read bitmasks: the array has no conditional codec; ...
    """
    metadata = array.metadata
    if not isinstance(metadata, ArrayV3Metadata):
        raise CodecConfigurationError(
            f"cannot {purpose}: the array is in Zarr format 2, which has no such codec"
        )
    ways = routes(metadata.codecs)
    if not ways:
        names = [codec.to_dict().get("name") for codec in metadata.codecs]
        raise CodecConfigurationError(
            f"cannot {purpose}: the array has no conditional codec; its codecs are {names}"
        )
    return ways


def deciding_members(array: Any, purpose: str) -> dict[str, zarr.Array[Any]]:
    """The members in use of a logical array that have a `conditional` codec; an error if none has."""
    names = dict.fromkeys(region.name for region in array.regions)
    members = {name: array.members[name] for name in names}
    deciding = {name: member for name, member in members.items() if routes(member.metadata.codecs)}
    if not deciding:
        raise CodecConfigurationError(
            f"cannot {purpose}: none of the {len(members)} members of the logical array has a conditional "
            "codec.\n  To give a region other codecs: array.recode(bounds, codecs=[…])"
        )
    return deciding
