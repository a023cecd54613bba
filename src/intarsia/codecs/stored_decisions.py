"""For existing arrays: another decision, another padding, more codecs to choose from."""

import copy
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol, Self, cast

import zarr
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import ArrayV3Metadata, sync
from intarsia.codecs import runtime_options
from intarsia.codecs.base import CodecLike
from intarsia.codecs.codec_path import Route, deciding_members, find_routes
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.decisions import Decision, DecisionLike, MaskPerChunk, named_decisions, parse_decision
from intarsia.codecs.pad import OffsetCodec, PadCodec
from intarsia.errors import CodecConfigurationError, ReadOnlyError


class Configurable(Protocol):
    """A logical or nullable array, which takes run-time options."""

    @property
    def attrs(self) -> Any: ...

    def with_config(self, **options: Any) -> Self: ...


type AnyArray = zarr.Array[Any] | Configurable


class _Array(zarr.Array[Any]):
    """A zarr array with options. zarr's `append` grows it first; if the write fails, it shrinks again."""

    def append(self, data: Any, axis: int = 0) -> tuple[int, ...]:
        before = self.shape
        try:
            return super().append(data, axis)
        except Exception:
            if self.shape != before:
                self.resize(before)
            raise


def with_decision[T: AnyArray](
    array: T, decision: DecisionLike | ConditionalCodec | None, *, remember: bool = False
) -> T:
    """The same array with another decision for its `conditional` codec.

    Takes zarr arrays, logical arrays and nullable arrays. zarr.json stays as it is. The decision goes with
    the array when it is pickled, appended to or resized. None removes a decision that was given here. If you
    give a `ConditionalCodec`, its decision is used.

    `remember=True` writes the name of the decision into the attributes of the array (`intarsia_decision`).
    Everybody who opens the array then uses it, unless they give their own decision. Only decisions that have
    a name can be remembered; None forgets the remembered one.

    >>> import numpy as np, zarr
    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[ZstdCodec()])
    >>> store = {}
    >>> z = zarr.create(store=store, shape=1000, dtype="u1", codecs=[BytesCodec(), codec])
    >>> with_decision(z, "compress_if_smaller")[:] = 7
    >>> len(store["c/0"]) < 30
    True
    """
    if isinstance(decision, ConditionalCodec):
        decision = decision.decision
    parsed = None if decision is None else parse_decision(decision)
    name = _name_of(parsed) if remember else None
    result: Any
    if isinstance(array, zarr.Array):
        _check_decision(array, parsed)
        result = _Array(
            array.async_array.with_config(runtime_options.runtime_config(array.async_array.config, parsed))
        )
    else:
        result = array.with_config(decision=parsed)
    if name is not None:
        result.attrs[runtime_options.REMEMBERED] = name
    elif remember and runtime_options.REMEMBERED in result.attrs:
        del result.attrs[runtime_options.REMEMBERED]
    return cast("T", result)


def _check_decision(array: zarr.Array[Any], decision: Decision | None) -> None:
    """Raise unless the array has a codec that can follow this decision."""
    codecs = runtime_options.all_codecs(getattr(array.metadata, "codecs", ()))
    if isinstance(decision, MaskPerChunk):
        check_plan(decision, array, find_routes(array, "set a decision"))
    elif not any(isinstance(codec, ConditionalCodec) for codec in codecs):
        find_routes(array, "set a decision")  # its error says what the array has instead


def _name_of(decision: Decision | None) -> str | None:
    """The name by which an array can remember a decision."""
    if decision is None:
        return None
    named = named_decisions()
    name = next((name for name, other in named.items() if other == decision), None)
    if name is None:
        raise CodecConfigurationError(
            f"the decision {decision} cannot be remembered: attributes are JSON, which cannot hold "
            "functions, bitmasks or settings, so nobody who opens the array would know them.\n"
            f"  Remember one that has a name: {', '.join(sorted(named))}"
        )
    return name


def with_padding[T: AnyArray](
    array: T, padding: runtime_options.PaddingFunction | bytes | None, *, verify_header: bool = False
) -> T:
    """The same `array` with other bytes for its `pad` or `offset` codec to write around a chunk.

    Takes zarr arrays, logical arrays and nullable arrays. `padding` is a function, like `padding_func` of
    `PadCodec`, or the bytes themselves; None removes what was given here. It goes with the array when that is
    pickled, appended to or resized, but zarr.json stays as it is. With `verify_header=True`, a read compares
    the bytes around each chunk with those that would be written; a difference is an error.

    >>> import zarr
    >>> from zarr.codecs import BytesCodec
    >>> codec = PadCodec(location="start", nbytes=4)
    >>> store = {}
    >>> z = zarr.create(store=store, shape=4, dtype="u1", codecs=[BytesCodec(), codec])
    >>> with_padding(z, lambda encoded: b"LEN%d" % len(encoded))[:] = 7
    >>> store["c/0"].to_bytes()
    b'LEN4\\x07\\x07\\x07\\x07'
    """
    runtime_options.check_padding(padding)
    if not isinstance(array, zarr.Array):
        return array.with_config(padding=padding, verify_header=verify_header)
    metadata: Any = array.metadata
    codecs = getattr(metadata, "codecs", ())
    count = sum(isinstance(codec, PadCodec | OffsetCodec) for codec in runtime_options.all_codecs(codecs))
    if count != 1:
        names = [codec.to_dict().get("name") for codec in codecs]
        raise CodecConfigurationError(
            f"cannot set a padding: the array has {count or 'no'} pad or offset codecs"
            + (", so it is not clear which one is meant" if count else f"; its codecs are {names}")
        )
    config = array.async_array.config
    options = replace(runtime_options.options_in(config), padding=padding, verify_header=verify_header)
    padded: Any = _Array(array.async_array.with_config(runtime_options.with_options(config, options)))
    return cast("T", padded)


def decision_of(array: zarr.Array[Any]) -> Decision | None:
    """The decision of the `conditional` codec of `array`; None if there is none, so no nested codec applies.

    >>> import zarr
    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[ZstdCodec()], decision="smallest")
    >>> z = zarr.create(store={}, shape=1000, dtype="u1", codecs=[BytesCodec(), codec])
    >>> decision_of(z).bounds_size
    True
    """
    route = find_routes(array, "find the decision")[0]
    spec = route.spec(array, array.shape)
    return route.codec.effective_decision(spec)


def check_plan(plan: MaskPerChunk, array: zarr.Array[Any], routes: list[Route]) -> None:
    """Raise unless `plan` has a bitmask for every chunk of `array`, and each fits its codec."""
    if len(routes) > 1:
        raise CodecConfigurationError(
            f"the array has {len(routes)} conditional codecs, but a plan of bitmasks is for one"
        )
    shape, codecs = routes[0].grid_shape(array), len(routes[0].codec.codecs)
    if len(plan.shape) != len(shape) or any(n < m for n, m in zip(plan.shape, shape, strict=True)):
        raise CodecConfigurationError(
            f"the plan has bitmasks for a chunk grid of {plan.shape}, but that of the array is {shape}"
        )
    largest = int(plan.masks.max()) if plan.masks.size else 0
    if largest >> codecs:
        raise CodecConfigurationError(
            f"the plan has the bitmask {largest:#b}, but the array has only {codecs} nested codecs"
        )


PURPOSE = "add nested codecs"


def extend_codecs[T](array: T, codecs: Iterable[CodecLike], *, at: str | None = None) -> T:
    """Add nested `codecs` to the `conditional` codec of `array`, and return a handle that knows them.

    They come after the existing ones. Chunks stay as they are and can still be read: their bits for the new
    codecs are 0. The header of a chunk must have bits to spare, because its length cannot change any more
    (set `header_bits` when you create the array). Only zarr.json is written, once. Handles that were opened
    before do not know the new codecs, and cannot read chunks that use them. The decision is kept; if several
    codecs had their own, give it again.

    If an array has several `conditional` codecs, `at` says which one is meant: "codecs[1]", as in the result
    of `masks`. The array may be plain, nullable or logical; in a logical array, all members with a
    `conditional` codec get the new codecs, one after another.

    >>> import zarr
    >>> from intarsia.codecs import ConditionalCodec, masks, with_decision
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
        return copy.copy(array)  # opens the members again
    if hasattr(kind, "zarr_array"):  # a nullable array is a view of that one
        fresh: Any = copy.copy(array)
        fresh.zarr_array = _Extension(kind.zarr_array, added, at).carry_out()
        return cast("T", fresh)
    extended: Any = _Extension(kind, added, at).carry_out()
    return cast("T", extended)


class _Extension:
    """A change to one array's zarr.json, checked before anything is written."""

    def __init__(self, array: zarr.Array[Any], added: list[CodecLike], at: str | None) -> None:
        if array.read_only:
            raise ReadOnlyError(
                f"cannot {PURPOSE}: the array is open for reading only; open it with mode='r+'"
            )
        self.array = array
        route, path, self.codec = _choose_codec(array, at)
        _check_room(self.codec, len(added))
        extended = ConditionalCodec(
            codecs=[*self.codec.codecs, *added], header_bits=self.codec.header_bits, name=self.codec.name
        )
        if not any(
            step.part for step in route.steps
        ):  # as when an array is created: some codecs check the data type
            extended = extended.evolve_from_array_spec(route.spec(array, array.shape))
        self.key = array.store_path / "zarr.json"
        stored = sync(self.key.get(default_buffer_prototype()))
        if stored is None:
            raise CodecConfigurationError(
                f"cannot {PURPOSE}: the array at {array.store_path} no longer exists"
            )
        self.document: dict[str, Any] = json.loads(stored.to_bytes())
        nested = _find(self.document, path)["configuration"]["codecs"]
        if nested != _as_json(self.codec):
            raise CodecConfigurationError(
                f"cannot {PURPOSE}: the codecs in zarr.json are no longer those of this handle; open the "
                "array again"
            )
        nested += _as_json(extended)[len(nested) :]
        ArrayV3Metadata.from_dict(copy.deepcopy(self.document))  # zarr checks it as if it were opened

    def carry_out(self) -> zarr.Array[Any]:
        """Write zarr.json, and return the array as it is then."""
        content = json.dumps(self.document, indent=2).encode()
        sync(self.key.set(default_buffer_prototype().buffer.from_bytes(content)))
        fresh = zarr.open_array(self.array.store_path, mode="r+", zarr_format=3)
        metadata: Any = self.array.metadata
        carried = runtime_options.options_of(metadata.codecs)
        if len(find_routes(self.array, PURPOSE)) > 1:  # each may have its own decision, but an array has one
            carried = replace(carried, decision=None)
        return runtime_options.options_in(self.array.async_array.config).over(carried).on(fresh)


def _choose_codec(array: zarr.Array[Any], at: str | None) -> tuple[Route, str, ConditionalCodec]:
    """The route to the codec that is meant, its place in zarr.json, and the codec."""
    candidates = {
        path: (route, path, codec)
        for route in find_routes(array, PURPOSE)
        for path, codec in route.conditional_codecs().items()
    }
    if at is None and len(candidates) == 1:
        return next(iter(candidates.values()))
    if at not in candidates:
        reason = "say which one is meant" if at is None else f"there is none at {at!r}"
        raise CodecConfigurationError(
            f"cannot {PURPOSE}: the array has {len(candidates)} conditional codecs, and {reason}.\n"
            f"  Give at= one of {', '.join(map(repr, candidates))}"
        )
    return candidates[at]


def _check_room(codec: ConditionalCodec, added: int) -> None:
    count = len(codec.codecs) + added
    if count > codec.header_bits:
        raise CodecConfigurationError(
            f"cannot {PURPOSE}: the header of a chunk has {codec.header_bits} bits, but {count} nested "
            "codecs need one bit each. A longer header would make the stored chunks unreadable.\n"
            f"  Create an array with header_bits={(count + 7) // 8 * 8} or more, and copy the values"
        )


def _as_json(codec: ConditionalCodec) -> Any:
    """The nested codecs as they are in zarr.json."""
    return json.loads(json.dumps([nested.to_dict() for nested in codec.codecs]))


def _find(document: Any, path: str) -> Any:
    """The codec object of zarr.json at "codecs[0].codecs[1]"."""
    node = document
    for step, (name, position) in enumerate(re.findall(r"(\w+)\[(\d+)\]", path)):
        node = (node if step == 0 else node["configuration"])[name][int(position)]
    return node
