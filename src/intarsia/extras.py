"""Importing what an extra brings; if it is missing, an error names the pip command."""

from importlib import import_module
from typing import Any

from intarsia.errors import MissingExtraError


def import_extra(module: str, name: str) -> Any:
    """Import a module; raises `MissingExtraError` if its package is not installed. `name` is the extra.

    An installed package that lacks something it needs itself says so: the extra is not to blame.

    >>> import_extra("no_such_parser.formats", "virtual")
    Traceback (most recent call last):
    ...
    intarsia.errors.MissingExtraError: no_such_parser is not installed: pip install '...[virtual]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtraError(package, name) from error
