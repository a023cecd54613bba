"""Codecs as people and zarr.json write them, read and checked, with errors that name the field."""

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.codecs import BytesCodec
from zarr.registry import get_codec_class

from intarsia import schemas
from intarsia.errors import CodecConfigurationError


def check(name: str, configuration: Mapping[str, Any]) -> None:
    """Raise `CodecConfigurationError` with every problem unless `configuration` fits the codec's schema.

    >>> check("shuffle", {"element_size": 4})
    """
    problems = schemas.problems(f"codecs/{name}", {"name": name, "configuration": dict(configuration)})
    if problems:
        listed = "; ".join(problem.removeprefix("configuration.") for problem in problems)
        raise CodecConfigurationError(f"codec {name!r}: {listed}")


def read(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration inside the codec object `data` of a zarr.json, checked.

    >>> read("shuffle", {"name": "shuffle", "configuration": {"element_size": 4}})
    {'element_size': 4}
    """
    if data.get("name") != name:
        raise CodecConfigurationError(f"codec {name!r}: asked to read the codec object {dict(data)!r}")
    configuration = data.get("configuration", {})
    if not isinstance(configuration, dict):
        raise CodecConfigurationError(f"codec {name!r}: configuration: {configuration!r} is not an object")
    check(name, configuration)
    return dict(configuration)


def as_int(codec: str, field: str, value: object) -> int:
    """`value` as a plain int; a bool or a float is an error that names the field.

    >>> as_int("pad", "nbytes", 12)
    12
    """
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]  # TypeError is the answer
        except TypeError:
            pass
    raise CodecConfigurationError(f"codec {codec!r}: {field}: {value!r} is not an integer")


type CodecLike = Codec | Mapping[str, Any] | str
"""A codec object, a codec object of zarr.json as a dict, or a codec's name."""


def parse_codecs(
    codecs: Iterable[CodecLike] | CodecLike, serializer: ArrayBytesCodec | None = None
) -> tuple[Codec, ...]:
    """The codecs as objects, in order; where no array -> bytes codec is given, with `serializer`.

    One codec alone is a list of one. The serializer is `bytes` (little endian) unless the caller knows that
    the data type needs another one.

    >>> parse_codecs([{"name": "gzip"}])
    (BytesCodec(endian='little'), GzipCodec(level=5))
    >>> parse_codecs("gzip") == parse_codecs(["gzip"])
    True
    """
    listed = [codecs] if isinstance(codecs, Codec | Mapping | str) else codecs
    parsed = [parse_codec(codec) for codec in listed]
    stages = [_stage(codec) for codec in parsed]
    if stages != sorted(stages) or stages.count(1) > 1:
        order = ", ".join(type(codec).__name__ for codec in parsed)
        raise CodecConfigurationError(
            f"the codecs [{order}] are out of order: array -> array codecs come first, then at most one "
            "array -> bytes codec, then bytes -> bytes codecs"
        )
    if 1 not in stages:
        parsed.insert(stages.count(0), serializer or BytesCodec(endian="little"))
    return tuple(parsed)


def _stage(codec: Codec) -> int:
    return 0 if isinstance(codec, ArrayArrayCodec) else 1 if isinstance(codec, ArrayBytesCodec) else 2


def parse_codec(codec: CodecLike) -> Codec:
    """One codec as an object.

    >>> parse_codec("crc32c")
    Crc32cCodec()
    """
    if isinstance(codec, ArrayArrayCodec | ArrayBytesCodec | BytesBytesCodec):
        return codec
    if isinstance(codec, str):
        codec = {"name": codec}
    if not isinstance(codec, Mapping) or not isinstance(codec.get("name"), str):
        raise CodecConfigurationError(
            f"{codec!r} is not a codec: give a codec object, its name, or {{'name': …, 'configuration': …}}"
        )
    if "configuration" not in codec:
        # Some of zarr's codecs insist on one even where every field has a default.
        codec = {"configuration": {}, **codec}
    # As it is: it may remember the options that a codec was made with.
    return get_codec_class(codec["name"]).from_dict(codec if isinstance(codec, dict) else dict(codec))
