"""The JSON Schemas that ship with intarsia, and checking a document against one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

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
    """Everything that is wrong with `document`, a line each; empty when it is valid.

    >>> problems("codecs/shuffle", {"name": "shuffle", "configuration": {"element_size": 0}})
    ['configuration.element_size: 0 is less than the minimum of 1']
    """
    problems = sorted(_validator(name).iter_errors(document), key=lambda error: error.json_path)
    return [
        f"{error.json_path.removeprefix('$').removeprefix('.') or 'document'}: {error.message}"
        for error in problems
    ]
