"""Run-time options of an array: its decision and its padding. They go with it and never into zarr.json.

There are two places for them. A codec has its own, with which it was made, and passes them on in its codec
object (`remembering`), because zarr's sharding codec pickles itself as JSON. An array has options in its
configuration (`RuntimeConfig`), which zarr passes to every codec of that array; those take precedence.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import zarr
from zarr.abc.codec import Codec

from intarsia._compat import JSON, ArrayConfig, ArraySpec
from intarsia.codecs.base import all_codecs
from intarsia.codecs.context import switch_pipeline_for
from intarsia.codecs.decisions import NAMED_DECISIONS, Decision, OtherLevels, parse_decision
from intarsia.errors import ChunkEncodeError, CodecConfigurationError

type PaddingFunction = Callable[..., bytes]
"""Called with the bytes of the encoded chunk, and with `chunk_index=` if it asks for it; returns
exactly as many bytes as the codec's metadata says."""

type AnyArray = zarr.Array[Any]

DEFAULT = "intarsia.decision"
"""The key in `zarr.config` for the decision of arrays that have none."""

REMEMBERED = "intarsia_decision"
"""The attribute of an array that holds the name of its decision, if it is to be remembered."""


@dataclass(frozen=True)
class RuntimeOptions:
    """Options that exist at run time only.

    >>> others = RuntimeOptions(padding=b"HEAD", default=parse_decision("never_apply"))
    >>> RuntimeOptions(padding=b"head").over(others)
    RuntimeOptions(decision=None, padding=b'head', default=NeverApply())
    """

    decision: Decision | None = None
    """The decision for `conditional` codecs."""

    padding: PaddingFunction | bytes | None = None
    """What `pad` and `offset` codecs put around an encoded chunk."""

    default: Decision | None = None
    """The decision that applies if there is none here or in the codec."""

    verify_header: bool = field(default=False, repr=False)
    """Whether `pad` and `offset` codecs compare the bytes around a chunk with those they would write."""

    def __bool__(self) -> bool:
        return self.verify_header or (self.decision, self.padding, self.default) != (None, None, None)

    def over(self, others: "RuntimeOptions") -> "RuntimeOptions":
        """These options, completed by the others."""
        return RuntimeOptions(
            others.decision if self.decision is None else self.decision,
            others.padding if self.padding is None else self.padding,
            others.default if self.default is None else self.default,
            self.verify_header or others.verify_header,
        )

    def without(self, others: "RuntimeOptions") -> "RuntimeOptions":
        """These options, except for the kinds that the others have."""
        return replace(
            self,
            decision=self.decision if others.decision is None else None,
            padding=self.padding if others.padding is None else None,
        )

    def on(self, array: AnyArray) -> AnyArray:
        """The array with these options; its own stay where nothing is set here."""
        if not self:
            return array
        config = array.async_array.config
        switch_pipeline_for(array)
        return array.with_config(with_options(config, self.over(options_in(config))))


NO_OPTIONS = RuntimeOptions()


def check_padding(padding: object) -> None:
    """Refuse anything that cannot be the padding of a chunk.

    >>> check_padding(b"head")
    """
    if padding is not None and not callable(padding) and not isinstance(padding, bytes):
        raise CodecConfigurationError(
            f"the padding must be bytes or a function of the encoded chunk, not {type(padding).__name__}"
        )


@dataclass(frozen=True, init=False)
class RuntimeConfig(ArrayConfig):
    """zarr's configuration of an array, with its options. zarr passes it to the codecs of that array only.

    Two are equal only if their options are: zarr's sharding codec uses it as a key.

    >>> import zarr
    >>> z = zarr.create(store={}, shape=4, dtype="u1")
    >>> with_options(z.async_array.config, RuntimeOptions(padding=b"head")).options.padding
    b'head'
    """

    options: RuntimeOptions
    """The options of the array."""

    def __init__(self, *, options: RuntimeOptions, **fields: Any) -> None:
        super().__init__(**fields)
        object.__setattr__(self, "options", options)

    def __hash__(self) -> int:
        # Not from the options themselves: a function may be an object that cannot be hashed.
        kinds = type(self.options.decision), type(self.options.padding), type(self.options.default)
        return hash((kinds, *self.to_dict().values()))


def options_in(config: ArrayConfig) -> RuntimeOptions:
    """The options that a configuration carries.

    >>> import zarr
    >>> options_in(zarr.create(store={}, shape=4, dtype="u1").async_array.config)
    RuntimeOptions(decision=None, padding=None, default=None)
    """
    return config.options if isinstance(config, RuntimeConfig) else NO_OPTIONS


def with_options(config: ArrayConfig, options: RuntimeOptions) -> RuntimeConfig:
    """`config` with other options."""
    return RuntimeConfig(options=options, **config.to_dict())


def with_default(config: ArrayConfig, decision: Decision) -> RuntimeConfig:
    """`config` with a decision that applies if there is no other."""
    return with_options(config, options_in(config).over(RuntimeOptions(default=decision)))


def for_nested(spec: ArraySpec, decision: Decision | None) -> ArraySpec:
    """The spec for a `conditional` codec inside one that decides by `decision`."""
    options = options_in(spec.config)
    own = decision.decision if isinstance(decision, OtherLevels) else decision
    inherited = None if own is None or own.is_about_one_codec else own
    nested = replace(options, decision=None, default=inherited or options.default)
    return replace(spec, config=with_options(spec.config, nested))


# Codecs and their codec objects


class _CodecObject(dict[str, JSON]):
    """A codec object of zarr.json that remembers options: they are lost in JSON and kept when pickled."""

    options: RuntimeOptions


def remembering(data: dict[str, JSON], options: RuntimeOptions) -> dict[str, JSON]:
    """The codec object `data`, made to remember these options for the codec that is made from it."""
    if not options:
        return data
    data = _CodecObject(data)
    data.options = options
    return data


def remembered(data: Mapping[str, Any]) -> RuntimeOptions:
    """The options that a codec object remembers.

    >>> remembered({"name": "pad"})
    RuntimeOptions(decision=None, padding=None, default=None)
    """
    return data.options if isinstance(data, _CodecObject) else NO_OPTIONS


def options_of(codecs: Iterable[Codec]) -> RuntimeOptions:
    """The options that codecs were made with; the first if there are several of one kind.

    >>> from zarr.codecs import BytesCodec
    >>> bool(options_of([BytesCodec()]))
    False
    """
    options = NO_OPTIONS
    for codec in all_codecs(codecs):
        if own := getattr(codec, "options", None):
            options = options.over(own)
    return options


def with_codecs(array: AnyArray, codecs: tuple[Codec, ...] | None) -> AnyArray:
    """The array with codecs that equal its own, except for the options they were made with."""
    if codecs is None:
        return array
    metadata: Any = array.metadata
    config = array.async_array.config
    live = replace(metadata, codecs=codecs)
    return zarr.Array(zarr.AsyncArray(metadata=live, store_path=array.store_path, config=config))


@dataclass(frozen=True)
class PicklableOptions:
    """What another process needs, besides zarr.json, to open an array with its run-time options.

    >>> import zarr
    >>> z = zarr.create(store={}, shape=4, dtype="u1")
    >>> PicklableOptions(None, RuntimeOptions(padding=b"head")).on(z).async_array.config.options.padding
    b'head'
    """

    codecs: tuple[Codec, ...] | None
    """The array's codecs, if they carry options."""

    options: RuntimeOptions
    """The options of the array, including the default decision of this process."""

    @classmethod
    def of(cls, codecs: tuple[Codec, ...] | None, options: RuntimeOptions) -> Self:
        """What these codecs and options need."""
        carry = codecs is not None and options_of(codecs)
        return cls(codecs if carry else None, options.over(RuntimeOptions(default=default_decision())))

    def on(self, array: AnyArray) -> AnyArray:
        """The array with these codecs and options."""
        return self.options.on(with_codecs(array, self.codecs))


# Decisions for arrays that have none


def default_decision() -> Decision | None:
    """The decision of this process for arrays that have none: `zarr.config["intarsia.decision"]`.

    >>> with zarr.config.set({"intarsia.decision": "never_apply"}):
    ...     default_decision()
    NeverApply()
    >>> default_decision() is None
    True
    """
    default = zarr.config.get(DEFAULT, None)
    return None if default is None else parse_decision(default)


def _refuse(name: object) -> bool:
    """Decides for arrays whose remembered decision is unknown here: they can be read, but not written."""
    raise ChunkEncodeError(
        f"the array remembers the decision {name!r} (attribute {REMEMBERED!r}), which is not known here.\n"
        "  Give another one: intarsia.codecs.with_decision(array, decision, remember=True)"
    )


def remembered_decision(attributes: Mapping[str, Any]) -> Decision | None:
    """The decision whose name the attributes of an array hold.

    >>> remembered_decision({"intarsia_decision": "never_apply"})
    NeverApply()
    """
    name = attributes.get(REMEMBERED)
    if name is None:
        return None
    return NAMED_DECISIONS.get(str(name)) or parse_decision(partial(_refuse, str(name)))


def config_of(array: AnyArray) -> ArrayConfig:
    """The configuration for writing an array: its own, and what its attributes remember."""
    config = array.async_array.config
    decision = remembered_decision(array.metadata.attributes)
    return config if decision is None else with_default(config, decision)
