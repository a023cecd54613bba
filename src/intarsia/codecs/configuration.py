"""Reading a codec's configuration: checked against its schema, with errors that name the field."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from intarsia import schemas
from intarsia.errors import CodecConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["as_int", "check", "read"]


def check(name: str, configuration: Mapping[str, Any]) -> None:
    """Raise `CodecConfigurationError` with every problem unless `configuration` fits the codec's schema.

    >>> check("shuffle", {"element_size": 4})
    """
    problems = schemas.problems(f"codecs/{name}", {"name": name, "configuration": dict(configuration)})
    if problems:
        found = "; ".join(problem.removeprefix("configuration.") for problem in problems)
        raise CodecConfigurationError(f"codec {name!r}: {found}")


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
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise CodecConfigurationError(f"codec {codec!r}: {field}: {value!r} is not an integer")
