"""The optional libraries that ingesting needs, imported when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from intarsia.errors import MissingExtraError

__all__ = ["extra"]


def extra(module: str, name: str = "virtual") -> Any:
    """The module, or an error that names the pip command.

    >>> extra("no_such_parser")
    Traceback (most recent call last):
    ...
    intarsia.errors.MissingExtraError: no_such_parser is not installed: pip install 'intarsia[virtual]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or module, name) from error
