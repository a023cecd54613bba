"""JSON documents as typed objects; an error names the field, says what is there and what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import ValidationError, convert

STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
"""One step of the path that msgspec gives, such as `.kinds[0].stored`."""


def decode(document: Any, form: Any, error: Callable[[str], Exception], name: str = "") -> Any:
    """The document as an object of type `form`; otherwise raises an `error` about the field called `name`.

    >>> decode({"shape": [1, -2]}, dict[str, list[str]], ValueError, "views")
    Traceback (most recent call last):
    ...
    ValueError: views[...][0]: Expected str, got int
    >>> decode([1, "2"], list[int], ValueError, "members")
    Traceback (most recent call last):
    ...
    ValueError: members[1]: '2': Expected int, got str
    """
    try:
        return convert(document, form)
    except RecursionError:
        raise error(f"{name or 'it'}: nested too deeply") from None
    except UnicodeEncodeError:
        raise error(f"{name or 'it'}: {document!r:.200}: not valid Unicode") from None
    except ValidationError as problem:
        expected, _, path = str(problem).replace("`", "").partition(" - at $")
        there = document
        for field, position in STEP.findall(path):
            there = there[field or int(position)] if "..." not in path else {}
        shown = f"{len(there)} entries" if isinstance(there, list) else f"{there!r:.200}"
        shown = "" if isinstance(there, Mapping) else f"{shown}: "
        place = f"{name}{path}".lstrip(".")
        raise error(f"{place}: {shown}{expected}" if place else f"{shown}{expected}") from None
