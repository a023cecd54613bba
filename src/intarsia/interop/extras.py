"""Importing what an extra brings, with an error that names the pip command where it is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from intarsia.errors import MissingExtraError

__all__ = ["require"]


def require(module: str, extra: str) -> Any:
    """The module, imported; `MissingExtraError` if its package is not installed.

    >>> require("math", "xarray").pi
    3.141592653589793
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the package is there, and something that it needs is not
        raise MissingExtraError(package, extra) from error
