"""The configurations of our codecs in zarr.json, as types that msgspec checks.

They say the same as the JSON Schemas in `standard/`, which are for other programs.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from intarsia.errors import CodecConfigurationError

type Natural = Annotated[int, Meta(ge=0)]


class Options(Struct, forbid_unknown_fields=True):
    """The options of one codec."""


class CodecObject(Struct):
    """A codec in a list of codecs."""

    name: str
    configuration: dict[str, Any] = {}


class Conditional(Options):
    codecs: list[str | CodecObject]
    header_bits: Annotated[int, Meta(ge=0, multiple_of=8)] = 0


class Nullable(Options):
    mask_codecs: Annotated[list[CodecObject], Meta(min_length=1)]
    data_codecs: Annotated[list[CodecObject], Meta(min_length=1)]


class Sentinel(Options):
    values: Annotated[list[bool | int | float | str], Meta(min_length=1)]
    codecs: list[CodecObject] = []


class Offset(Options):
    offset: Natural
    prefix: str | None = ""


class Pad(Options):
    location: Literal["start", "end"]
    nbytes: Natural
    padding: str | None = ""


class PackBits(Options):
    padding_encoding: Literal["first_byte", "last_byte", "none"] = "none"
    first_bit: Natural | None = None
    last_bit: Natural | None = None


class Reshape(Options):
    shape: list[Annotated[int, Meta(ge=-1)] | list[Natural]]


class Shuffle(Options):
    element_size: Annotated[int, Meta(ge=1)]


TYPES: dict[str, type[Options]] = {
    "conditional": Conditional,
    "intarsia.sentinel": Sentinel,
    "offset": Offset,
    "optional": Nullable,
    "packbits": PackBits,
    "pad": Pad,
    "reshape": Reshape,
    "shuffle": Shuffle,
    "zarrs.optional": Nullable,
}
"""The type of each codec's configuration. `optional` with `codecs` is an older name of `conditional`."""


def check_configuration(name: str, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration, with plain integers; raises `CodecConfigurationError` unless it fits the codec.

    >>> check_configuration("shuffle", {"element_size": 0})
    Traceback (most recent call last):
    ...
    intarsia.errors.CodecConfigurationError: codec 'shuffle' cannot have the options {'element_size': 0}: ...
    """
    nullable = "mask_codecs" in configuration or "data_codecs" in configuration
    kind = Conditional if name == "optional" and not nullable else TYPES[name]
    plain = {key: _with_plain_integers(value) for key, value in configuration.items()}
    try:
        msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise CodecConfigurationError(
            f"codec {name!r} cannot have the options {plain}: {error}.\n"
            f"  Its options are {', '.join(kind.__struct_fields__)}"
        ) from error
    return plain


def _with_plain_integers(value: Any) -> Any:
    """NumPy's integers and lists of them as Python's."""
    if isinstance(value, list):
        return [_with_plain_integers(each) for each in value]
    return int(value) if isinstance(value, np.integer) else value


def read_configuration(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration in the codec object `data` of a zarr.json, checked.

    >>> read_configuration("shuffle", {"name": "shuffle", "configuration": {"element_size": 4}})
    {'element_size': 4}
    """
    configuration = data.get("configuration", {})
    if not isinstance(configuration, dict):
        raise CodecConfigurationError(f"codec {name!r}: configuration: {configuration!r} is not an object")
    return check_configuration(name, configuration)
