"""The configurations of our codecs in zarr.json, as types that msgspec checks.

They say the same as the JSON Schemas in `standard/`, which are for other programs.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import numpy as np
from msgspec import Meta, Struct

from intarsia.display import names_text
from intarsia.errors import CodecConfigurationError

type Natural = Annotated[int, Meta(ge=0)]


class CodecObject(Struct):
    """A codec in a list of codecs."""

    name: str
    configuration: dict[str, Any] = {}


class Conditional(Struct):
    codecs: list[str | CodecObject]
    header_bits: Annotated[int, Meta(ge=0, multiple_of=8)] = 0


class Nullable(Struct):
    mask_codecs: Annotated[list[CodecObject], Meta(min_length=1)]
    data_codecs: Annotated[list[CodecObject], Meta(min_length=1)]


class Sentinel(Struct):
    values: Annotated[list[bool | int | float | str], Meta(min_length=1)]
    codecs: list[CodecObject] = []


class Offset(Struct):
    offset: Natural
    prefix: str | None = ""


class Pad(Struct):
    location: Literal["start", "end"]
    nbytes: Natural
    padding: str | None = ""


class PackBits(Struct):
    padding_encoding: Literal["first_byte", "last_byte", "none"] = "none"
    first_bit: Natural | None = None
    last_bit: Natural | None = None


class Reshape(Struct):
    shape: list[Annotated[int, Meta(ge=-1)] | list[Natural]]


class Shuffle(Struct):
    element_size: Annotated[int, Meta(ge=1)]


TYPES: dict[str, type[Struct]] = {
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
    intarsia.errors.CodecConfigurationError: codec 'shuffle': element_size: 0 is not valid: expected ...
    """
    nullable = "mask_codecs" in configuration or "data_codecs" in configuration
    kind = Conditional if name == "optional" and not nullable else TYPES[name]
    fields = msgspec.structs.fields(kind)
    check_names(name, configuration, [field.name for field in fields])
    plain = {key: _with_plain_integers(value) for key, value in configuration.items()}
    for field in fields:
        if field.name not in plain:
            if field.required:
                raise CodecConfigurationError(f"codec {name!r} needs the option {field.name!r}")
            continue
        value, choices = plain[field.name], get_args(field.type)
        if get_origin(field.type) is Literal and value not in choices:
            raise CodecConfigurationError(
                f"codec {name!r}: {field.name}: {value!r} is not one of {', '.join(map(repr, choices))}"
            )
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$")
            raise CodecConfigurationError(
                f"codec {name!r}: {field.name}{where.rstrip('`')}: {value!r} is not valid: "
                f"{what[0].lower()}{what[1:]}"
            ) from error
    return plain


def _with_plain_integers(value: Any) -> Any:
    """NumPy's integers and lists of them as Python's."""
    if isinstance(value, list):
        return [_with_plain_integers(each) for each in value]
    return int(value) if isinstance(value, np.integer) else value


def check_names(name: str, configuration: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise `CodecConfigurationError` if the codec `name` has only the `known` options, and not these."""
    for key in configuration:
        if key not in known:
            raise CodecConfigurationError(f"codec {name!r} has no option {key!r}: {names_text(key, known)}")


def read_configuration(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration in the codec object `data` of a zarr.json, checked.

    >>> read_configuration("shuffle", {"name": "shuffle", "configuration": {"element_size": 4}})
    {'element_size': 4}
    """
    configuration = data.get("configuration", {})
    if not isinstance(configuration, dict):
        raise CodecConfigurationError(f"codec {name!r}: configuration: {configuration!r} is not an object")
    return check_configuration(name, configuration)
