"""The route from a stored chunk to its `conditional` codec: through which shards, past which codecs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import zarr
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec
from zarr.core.buffer import Buffer, default_buffer_prototype

from intarsia._compat import ArraySpec, ArrayV3Metadata
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import axes_after, to_array_axes
from intarsia.codecs.runtime_options import config_of
from intarsia.errors import CodecConfigurationError


@dataclass(frozen=True, slots=True)
class Step[T: (ShardingCodec, ConditionalCodec)]:
    """One codec on the route, and its neighbours in the same list of codecs."""

    before: tuple[Codec, ...]
    """The codecs that encode before it."""

    codec: T
    """The codec itself."""

    after: tuple[BytesBytesCodec, ...]
    """The codecs that encode after it, which have to be undone to reach it."""


class Divided(Protocol):
    """An array -> bytes codec whose chunks have parts with their own codecs, such as `optional`."""

    @property
    def chains(self) -> Mapping[str, tuple[Codec, ...]]:
        """The codecs of each part, by the part's name."""

    @property
    def frame_bytes(self) -> int:
        """The bytes of a chunk that are not in its parts."""

    def largest_parts(self, spec: ArraySpec) -> list[tuple[tuple[Codec, ...], ArraySpec]]:
        """The codecs of each part, with the spec of the largest part that a chunk may have."""

    def open_parts(self, data: Buffer, spec: ArraySpec) -> dict[str, tuple[Buffer, ArraySpec]]:
        """The encoded parts of a chunk, each with the spec for its codecs."""

    def close_parts(self, parts: Mapping[str, Buffer], spec: ArraySpec) -> Buffer:
        """A chunk made of these encoded parts."""


@dataclass(frozen=True, slots=True)
class PartStep:
    """A part of a chunk on the route."""

    before: tuple[Codec, ...]
    """The codecs that encode before the codec that divides the chunk."""

    codec: Divided
    """The codec that divides the chunk."""

    after: tuple[BytesBytesCodec, ...]
    """The codecs that encode after it."""

    name: str
    """The name of the part."""


@dataclass(frozen=True, slots=True)
class Route:
    """How to reach one `conditional` codec of an array."""

    shards: tuple[Step[ShardingCodec], ...]
    """The shards around it, outermost first."""

    end: Step[ConditionalCodec]
    """The codec itself."""

    parts: tuple[PartStep, ...] = ()
    """The parts of chunks around it, outermost first; inside the shards."""

    path: str = ""
    """The codec's place in zarr.json, leaving out `configuration`: "codecs[0].codecs[1]"."""

    def step_into(self, level: int) -> Step[ShardingCodec] | PartStep | Step[ConditionalCodec]:
        """The step in the list of codecs inside this many shards."""
        if level < len(self.shards):
            return self.shards[level]
        return self.parts[0] if self.parts else self.end

    def conditional_codecs(self) -> dict[str, ConditionalCodec]:
        """The codec and those nested in it, by their place in zarr.json."""
        codecs: dict[str, ConditionalCodec] = {}

        def add(path: str, codec: ConditionalCodec) -> None:
            codecs[path] = codec
            for position, nested in enumerate(codec.codecs):
                if isinstance(nested, ConditionalCodec):
                    add(f"{path}.codecs[{position}]", nested)

        add(self.path, self.end.codec)
        return codecs

    def spec(self, array: zarr.Array[Any], shape: tuple[int, ...]) -> ArraySpec:
        """The codec's spec for a chunk, given the shape of the stored chunk or shard around it."""
        spec = stored_spec(array, shape)
        for step in self.shards:
            spec = replace(resolved(step.before, spec), shape=step.codec.chunk_shape)
        return resolved(self.end.before, spec)

    def chunk_shape(self, array: zarr.Array[Any]) -> tuple[int, ...] | None:
        """The shape of the chunks it decides about, in the array's axes; None if that cannot be known."""
        if not self.shards:
            return array.chunks
        axes: tuple[int, ...] | None = tuple(range(array.ndim))
        spec = stored_spec(array, array.shape)
        for step in self.shards:
            axes = axes_after(array_codecs(step.before), spec, axes)
            spec = replace(resolved(step.before, spec), shape=step.codec.chunk_shape)
        return None if axes is None else to_array_axes(self.shards[-1].codec.chunk_shape, axes)


def stored_spec(array: zarr.Array[Any], shape: tuple[int, ...]) -> ArraySpec:
    """The first codec's spec for a chunk of `array` of this shape."""
    metadata: Any = array.metadata
    return ArraySpec(
        shape, metadata.data_type, metadata.fill_value, config_of(array), default_buffer_prototype()
    )


def resolved(codecs: tuple[Codec, ...], spec: ArraySpec) -> ArraySpec:
    """The spec of a chunk after `codecs`, for the next codec."""
    for codec in codecs:
        spec = codec.resolve_metadata(spec)
    return spec


def array_codecs(codecs: tuple[Codec, ...]) -> tuple[ArrayArrayCodec, ...]:
    """The `codecs` that work on arrays."""
    return tuple(codec for codec in codecs if isinstance(codec, ArrayArrayCodec))


def routes(codecs: tuple[Codec, ...], at: str = "codecs") -> list[Route]:
    """The routes to all `conditional` codecs in `codecs`, except those nested in another one.

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
    """The routes to all `conditional` codecs of `array`; an error if it has none.

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
    """The members of a logical array that are in use and have a `conditional` codec; an error if none do."""
    names = dict.fromkeys(region.name for region in array.regions)
    members = {name: array.members[name] for name in names}
    deciding = {name: member for name, member in members.items() if routes(member.metadata.codecs)}
    if not deciding:
        raise CodecConfigurationError(
            f"cannot {purpose}: none of the {len(members)} members of the logical array has a conditional "
            "codec.\n  To give a region other codecs: array.recode(bounds, codecs=[…])"
        )
    return deciding
