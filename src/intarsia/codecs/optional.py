"""The name `optional`, which two codecs bear: what the configuration holds tells them apart."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from zarr.abc.codec import Codec

from intarsia._compat import JSON
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.errors import CodecConfigurationError

KINDS: dict[str, str] = {
    "codecs": "intarsia.codecs.conditional:ConditionalCodec",
    "data_codecs": "intarsia.nullable.codec:NullableCodec",
    "mask_codecs": "intarsia.nullable.codec:NullableCodec",
}
"""A field of the configuration, and the codec it belongs to. By name, because some live in layers above."""


class OptionalCodec:
    """Makes whichever codec `optional` means: called with `codecs` inside, a `ConditionalCodec`.

    In zarr.json, `codecs` in the configuration means the codec that is registered as `conditional`, and
    `mask_codecs` and `data_codecs` mean the codec of the data type `optional`.

    >>> codec = OptionalCodec(configuration={"codecs": [{"name": "crc32c"}]})
    >>> type(codec).__name__, codec.name
    ('ConditionalCodec', 'optional')
    """

    def __new__(cls, **fields: Any) -> Any:
        configuration = fields.get("configuration") or fields
        kind = _kind(set(configuration))
        return ConditionalCodec(name="optional", **fields) if kind is ConditionalCodec else kind(**fields)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Codec:
        """The codec behind a codec object of zarr.json."""
        configuration = data.get("configuration")
        fields = set(configuration) if isinstance(configuration, dict) else set()
        return cast("Codec", _kind(fields).from_dict(data))


def _kind(fields: set[str]) -> Any:
    meant = {KINDS[name] for name in fields if name in KINDS}
    if len(meant) != 1:
        raise CodecConfigurationError(
            f"codec 'optional': the configuration has {', '.join(sorted(fields)) or 'nothing in it'}; it "
            "must have either codecs, or mask_codecs and data_codecs"
        )
    module, _, name = meant.pop().partition(":")
    return getattr(import_module(module), name)
