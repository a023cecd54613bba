"""The decision of one array, at run time: carried by the array's configuration to every codec of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import zarr

from intarsia._compat import ArrayConfig
from intarsia.codecs.decisions import Decision, DecisionLike, parse_decision

if TYPE_CHECKING:
    from intarsia._compat import ArraySpec

__all__ = ["RuntimeConfig", "default_decision", "for_nested", "runtime_config"]

DEFAULT = "intarsia.decision"
"""The key of `zarr.config` for the decision of arrays that have none."""


@dataclass(frozen=True, init=False)
class RuntimeConfig(ArrayConfig):
    """zarr's configuration of an array, and a decision. zarr hands it to every codec of that array alone.

    Two are equal only if their decisions are: zarr's sharding codec remembers things by it.

    >>> import zarr
    >>> z = zarr.create(store={}, shape=4, dtype="u1")
    >>> runtime_config(z.async_array.config, "never_apply").decision
    NeverApply()
    """

    decision: Decision | None
    """What decides for the `conditional` codec of the array; None leaves it to the codec."""

    inherited: Decision | None = field(default=None)
    """For a `conditional` codec inside another one: how the outer one decided."""

    def __init__(
        self, *, decision: Decision | None, inherited: Decision | None = None, **fields: Any
    ) -> None:
        super().__init__(**fields)
        object.__setattr__(self, "decision", decision)
        object.__setattr__(self, "inherited", inherited)


def runtime_config(config: ArrayConfig, decision: DecisionLike | None) -> RuntimeConfig:
    """`config` with another decision.

    >>> import zarr
    >>> z = zarr.create(store={}, shape=4, dtype="u1")
    >>> runtime_config(z.async_array.config, None).decision is None
    True
    """
    parsed = None if decision is None else parse_decision(decision)
    return RuntimeConfig(decision=parsed, **config.to_dict())


def for_nested(spec: ArraySpec, decision: Decision | None) -> ArraySpec:
    """What a `conditional` codec inside one that decides by `decision` is to be told of the chunk."""
    inherited = decision if decision is not None and decision.for_nested else None
    return replace(spec, config=RuntimeConfig(decision=None, inherited=inherited, **spec.config.to_dict()))


def default_decision() -> Decision | None:
    """The decision of this process for arrays that have none: `zarr.config["intarsia.decision"]`.

    >>> with zarr.config.set({"intarsia.decision": "never_apply"}):
    ...     default_decision()
    NeverApply()
    >>> default_decision() is None
    True
    """
    default = zarr.config.get(DEFAULT, None)
    if default is None or isinstance(default, Decision):
        return default
    return _parse_once(default) if isinstance(default, Hashable) else parse_decision(default)


_parse_once = lru_cache(maxsize=16)(parse_decision)  # a function is inspected once, not for every chunk
