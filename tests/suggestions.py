"""Following what a message says: its code is run as it stands there."""

import re

import intarsia

GAP = re.compile(r"(\w+)=(?:\[…\]|\[\.\.\.\]|\{…\}|…)")
"""What the reader has to fill in; a name of the caller has it."""


def follow(error, code, **names):
    """Run code that the message of an error names, and return its value, if it is an expression."""
    text = str(error.value)
    assert code in text, text
    names = {"intarsia": intarsia, **names}
    filled = GAP.sub(r"\1=\1", code)
    try:
        return eval(filled, names)
    except SyntaxError:
        exec(filled, names)
        return names
