"""Colours that people with colour-blindness tell apart, on light and on dark ground; and letters for them."""

from __future__ import annotations

__all__ = ["COLOURS", "HEAT", "HEAT_EDGES", "LETTERS", "STYLE", "heat_colour", "ink_on"]

# Tol's "muted" scheme, reordered so that neighbours in a legend differ most, made a little lighter or
# darker where text of the page's colour has to be read on it.
COLOURS = ("#4477aa", "#ddaa33", "#228833", "#cc6677", "#66ccee", "#aa3377", "#999933", "#8c7a6b")
LETTERS = "ABCDEFGH"

HEAT = ("#7f2704", "#b35806", "#e08214", "#fdb863", "#d8daeb", "#b2abd2", "#8073ac", "#542788")
"""From chunks that grew (or hardly shrank) to chunks that nearly vanished."""

STYLE = """
.intarsia{--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--hole:#eef1f4;--page:#fff;color:var(--ink);
font:13px/1.45 system-ui,sans-serif;max-width:860px}
@media (prefers-color-scheme:dark){.intarsia{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--hole:#262c36;
--page:#14181d}}
:root[data-jp-theme-light=true] .intarsia,[data-theme=light] .intarsia,.vscode-light .intarsia{--ink:#1b1f24;
--soft:#57606a;--line:#d0d7de;--hole:#eef1f4;--page:#fff}
[data-jp-theme-light=false] .intarsia,[data-theme=dark] .intarsia,.vscode-dark .intarsia{--ink:#e6edf3;
--soft:#9198a1;--line:#3d444d;--hole:#262c36;--page:#14181d}
.intarsia svg{display:block;max-width:100%;height:auto}
.intarsia table{border-collapse:collapse;margin:.4em 0;font-variant-numeric:tabular-nums}
.intarsia th,.intarsia td{padding:.15em .8em .15em 0;text-align:left;border:0;background:none;color:inherit}
.intarsia th{font-weight:600;color:var(--soft)}
.intarsia td.n,.intarsia th.n{text-align:right;white-space:nowrap}
.intarsia tbody tr:hover{background:var(--hole)}
.intarsia summary{cursor:pointer;color:var(--soft)}
.intarsia .w{overflow-x:auto}
""".strip().replace("\n", "")
"""What notebook output needs; everything below the class `intarsia`, so that nothing else changes."""


def heat_colour(ratio: float) -> int:
    """Which of the eight heat colours a compression ratio has.

    >>> heat_colour(0.9), heat_colour(1.5), heat_colour(100)
    (0, 2, 7)
    """
    return sum(ratio >= edge for edge in HEAT_EDGES)


HEAT_EDGES = (0.98, 1.25, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Ratios at which the heat colour changes; a header of a byte or two does not make a chunk "larger"."""


def ink_on(colour: str) -> str:
    """Black or white: what is read better on a colour.

    >>> ink_on("#ddaa33"), ink_on("#4477aa")
    ('#111', '#fff')
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#111" if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else "#fff"
