"""The configurations of our codecs in zarr.json, as types that msgspec checks.

They say the same as the JSON Schemas in `standard/`, which are for other programs.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

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


def type_of(name: str, configuration: Mapping[str, Any]) -> type[Struct]:
    """The type that this configuration of the codec `name` has to have."""
    nullable = "mask_codecs" in configuration or "data_codecs" in configuration
    return Conditional if name == "optional" and not nullable else TYPES[name]


def problems(kind: type[Struct], configuration: Mapping[str, Any]) -> list[str]:
    """What is wrong with the options in a configuration; nothing if they have their types.

    >>> problems(Shuffle, {"element_size": 0})
    ['element_size: 0 is not valid: expected `int` >= 1']
    """
    found = []
    for field in msgspec.structs.fields(kind):
        value = configuration.get(field.name)
        if field.name not in configuration:
            continue
        if get_origin(field.type) is Literal:
            choices = get_args(field.type)
            if value not in choices:
                found.append(f"{field.name}: {value!r} is not one of {', '.join(map(repr, choices))}")
            continue
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$")
            what = what[0].lower() + what[1:]
            found.append(f"{field.name}{where.rstrip('`')}: {value!r} is not valid: {what}")
    return found
