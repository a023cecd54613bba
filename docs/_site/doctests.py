"""Examples in docstrings, fenced: without this, Markdown takes `>>>` for a quotation in a quotation."""

from typing import Any

import griffe

__all__ = ["Doctests", "fenced"]


def fenced(text: str) -> str:
    """The text with every example between fences.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nMore."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    More.
    """
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        if not inside and line.lstrip().startswith(">>> "):
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    if inside:
        lines.append("```")
    return "\n".join(lines)


class Doctests(griffe.Extension):
    """Fences the examples of every object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
