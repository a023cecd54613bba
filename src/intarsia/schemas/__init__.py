"""The JSON Schemas that ship with intarsia, and a check of documents against them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

__all__ = ["load", "problems"]


@cache
def load(name: str) -> Mapping[str, Any]:
    """The schema called `name`, as a mapping.

    >>> load("codecs/pad")["title"]
    'pad'
    """
    text = files(__package__).joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    schema: Mapping[str, Any] = json.loads(text)
    return schema


@cache
def _validator(name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # imported late: it costs more than all of intarsia

    return Draft202012Validator(dict(load(name)))


def problems(name: str, document: object) -> list[str]:
    """Everything that is wrong with `document`, one line each; empty if it is valid.

    >>> problems("codecs/shuffle", {"name": "shuffle", "configuration": {"element_size": 0}})
    ['configuration.element_size: 0 is less than the minimum of 1']
    """
    found = [each for error in _validator(name).iter_errors(document) for each in _told(error)]
    return [
        f"{error.json_path.removeprefix('$').removeprefix('.') or 'document'}: {error.message}"
        for error in sorted(found, key=lambda error: error.json_path)
    ]


def _told(error: ValidationError) -> list[ValidationError]:
    """The problems with the nearest of several alternatives, rather than that none of them matches."""
    alternatives: dict[Any, list[ValidationError]] = {}
    for each in error.context or ():
        alternatives.setdefault(each.schema_path[0], []).append(each)
    possible = [
        errors
        for errors in alternatives.values()
        if not any(each.validator == "type" and not each.relative_path for each in errors)
    ]
    return min(possible, key=len, default=[error])
