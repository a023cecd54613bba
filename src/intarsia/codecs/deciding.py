"""Another decision for an array that exists already: `with_decision`, and what its decision is now."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from intarsia._compat import ChunkGrid
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.decisions import Plan, parse_decision
from intarsia.codecs.route import find_routes
from intarsia.codecs.runtime import runtime_config
from intarsia.errors import CodecConfigurationError

if TYPE_CHECKING:
    import zarr

    from intarsia.codecs.decisions import Decision, DecisionLike
    from intarsia.codecs.route import Route

__all__ = ["decision_of", "grid_shape", "with_decision"]


def with_decision(
    array: zarr.Array[Any], decision: DecisionLike | ConditionalCodec | None
) -> zarr.Array[Any]:
    """The same array, whose `conditional` codec decides otherwise from now on.

    Nothing is written; zarr.json stays as it is. The decision goes with the array when it is pickled,
    appended to or resized. None takes a decision given here back. Given a `ConditionalCodec`, its decision
    is used.

    >>> import numpy as np, zarr
    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[ZstdCodec()])
    >>> z = zarr.create(store={}, shape=1000, dtype="u1", codecs=[BytesCodec(), codec])
    >>> with_decision(z, "compress_if_smaller")[:] = 7
    >>> len(z.store_path.store._store_dict["c/0"]) < 30
    True
    """
    found = find_routes(array, "set a decision")
    if isinstance(decision, ConditionalCodec):
        decision = decision.decision
    parsed = None if decision is None else parse_decision(decision)
    if isinstance(parsed, Plan):
        check_plan(parsed, array, found)
    return array.with_config(runtime_config(array.async_array.config, parsed))


def decision_of(array: zarr.Array[Any]) -> Decision | None:
    """What decides for the `conditional` codec of `array`; None if nothing does, and no nested codec applies.

    >>> import zarr
    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[ZstdCodec()], decision="smallest")
    >>> z = zarr.create(store={}, shape=1000, dtype="u1", codecs=[BytesCodec(), codec])
    >>> decision_of(z).bounds_size
    True
    """
    route = find_routes(array, "find the decision")[0]
    spec = route.spec(array, array.shape)
    return route.end.codec.effective_decision(spec)


def grid_shape(array: zarr.Array[Any], route: Route) -> tuple[int, ...]:
    """How many chunks the `conditional` codec at the end of `route` sees, along each axis of the array.

    >>> import zarr
    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> from intarsia.codecs.route import only_route
    >>> codec = ConditionalCodec(codecs=[ZstdCodec()])
    >>> z = zarr.create(store={}, shape=(5, 9), chunks=(2, 3), dtype="u1", codecs=[BytesCodec(), codec])
    >>> grid_shape(z, only_route(z, "count"))
    (3, 3)
    """
    if not route.shards:
        return ChunkGrid.from_metadata(array.metadata).grid_shape
    chunk_shape = route.chunk_shape(array)
    if chunk_shape is None:
        names = [codec.to_dict().get("name") for step in route.shards for codec in step.before]
        raise CodecConfigurationError(
            "the chunks inside the shards of this array have no place in its chunk grid: of the codecs "
            f"{names} before the shards, one does more than reorder the axes"
        )
    return tuple(ceil(n / size) for n, size in zip(array.shape, chunk_shape, strict=True))


def check_plan(plan: Plan, array: zarr.Array[Any], found: list[Route]) -> None:
    """Raise unless `plan` has a bitmask for every chunk of `array`, and each fits its codec."""
    if len(found) > 1:
        raise CodecConfigurationError(
            f"the array has {len(found)} conditional codecs: a plan of bitmasks can only speak about one"
        )
    shape, codecs = grid_shape(array, found[0]), len(found[0].end.codec.codecs)
    if len(plan.shape) != len(shape) or any(n < m for n, m in zip(plan.shape, shape, strict=True)):
        raise CodecConfigurationError(
            f"the plan has a bitmask for {plan.shape} chunks, but the chunk grid of the array is {shape}"
        )
    largest = int(plan.masks.max()) if plan.masks.size else 0
    if largest >> codecs:
        raise CodecConfigurationError(
            f"the plan has the bitmask {largest:#b}, but the array has only {codecs} nested codecs"
        )
