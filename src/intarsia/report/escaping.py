"""Text from strangers made harmless: names, attributes and messages may hold anything.

Whatever is stored in a repository was written by somebody: a name may contain `<script>`, terminal escape
sequences, or characters that turn the direction of the text around. Every string passes through here on
its way to a page or to a terminal.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

LONGEST = 500
"""Longer strings are cut: nobody reads more in a table, and a page must not grow with them."""


def plain(text: object, longest: int = LONGEST) -> str:
    """Text in which every character that does not show is spelled out.

    >>> plain("a\\x1b[31mb\\u202ec")
    'a\\\\x1b[31mb\\\\u202ec'
    """
    string = str(text)
    if len(string) > longest:
        string = string[: longest - 1] + "…"
    if string.isprintable():
        return string
    # Not printable: controls, direction overrides, zero width, surrogates, private use, all spaces but " ".
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in string)


def markup(text: object, longest: int = LONGEST) -> str:
    """Text for HTML or SVG, between tags or in a quoted attribute.

    >>> markup("<script>alert('x')</script>")
    '&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;'
    """
    return escape(plain(text, longest), quote=True)


def embedded_json(document: Any) -> str:
    """JSON for a `<script type="application/json">`: nothing in it can end the element or begin a comment.

    >>> embedded_json({"name": "</script><!--"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
