"""How results are shown: numbers and codecs in words, tables, untrusted text escaped.

A name in a repository may contain `<script>`, terminal escape sequences, or characters that reverse the
direction of text. Every string passes through `plain` or `markup` on its way to a terminal or a page.

A `Result` consists of lines and tables; it shows itself in Python and in a notebook, and the command line
prints the same blocks. A `Listing` is a tuple that is shown as a table. Their columns name attributes of the
items; `cell_text` puts the values into words, and `json_of` gives them to machines.
"""

from __future__ import annotations

import datetime
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import zip_longest
from typing import Any, ClassVar, Self, SupportsIndex, overload

UNKNOWN = "?"
"""Shown where something was not measured or cannot be known."""

LEVELS = ("cname", "level", "clevel")
"""Settings that follow a codec's name: `zstd-9`, `blosc-lz4-5`."""

UNUSUAL_SHUFFLES = ("bitshuffle", "noshuffle")
"""These follow too: `blosc-lz4-5-bitshuffle`. The usual shuffle is not mentioned."""

DISTINGUISHING = ("offset", "scale", "order")
"""Other settings that distinguish two codecs of one name, if a label has room."""

UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def size_text(nbytes: int | None) -> str:
    """Bytes in decimal units, with three digits.

    >>> size_text(999), size_text(1_000), size_text(12_345_678), size_text(None)
    ('999 B', '1 kB', '12.3 MB', '?')
    """
    if nbytes is None:
        return UNKNOWN
    if nbytes < 1000:
        return f"{nbytes} B"
    value = float(nbytes)
    for unit in UNITS:
        value /= 1000
        if value < 999.5 or unit == UNITS[-1]:
            break
    return f"{value:.3g} {unit}"


def ratio_text(nbytes: int, stored: int | None) -> str:
    """How many times smaller the stored form is.

    >>> ratio_text(1000, 400), ratio_text(1000, 0), ratio_text(1000, None)
    ('2.5x', '∞', '?')
    """
    if stored is None:
        return UNKNOWN
    if stored == 0:
        return "∞" if nbytes else UNKNOWN
    ratio = nbytes / stored
    return f"{ratio:.0f}x" if ratio >= 99.5 else f"{ratio:.3g}x"


def percent_text(share: float) -> str:
    """A fraction as a percentage.

    >>> percent_text(0.125), percent_text(1), percent_text(0.0001)
    ('12.5 %', '100 %', '<0.1 %')
    """
    if 0 < share < 0.001:
        return "<0.1 %"
    return f"{share * 100:.3g} %" if share < 0.9995 else "100 %"


def bounds_text(bounds: Sequence[tuple[int, int]]) -> str:
    """Bounds as in a subscript.

    >>> bounds_text(((0, 10), (5, 20)))
    '[0:10, 5:20]'
    """
    return "[" + ", ".join(f"{a}:{b}" for a, b in bounds) + "]"


def codecs_text(codecs: Iterable[Mapping[str, Any]], *, settings: bool = True) -> str:
    """The codecs of a zarr.json in a few words, with the settings that distinguish two of one name.

    For a sharded array, these are the codecs of the inner chunks; plain `bytes` is not mentioned.

    >>> zstd = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
    >>> nullable = {"name": "optional", "configuration": {"mask_codecs": [], "data_codecs": [zstd]}}
    >>> [codecs_text(codecs) for codecs in ([{"name": "crc32c"}, zstd], [nullable], [{"name": "bytes"}])]
    ['crc32c+zstd-3', 'optional(zstd-3)', 'raw']
    >>> codecs_text([{"name": "numcodecs.shuffle"}, zstd], settings=False)
    'shuffle+zstd'
    """
    chain = list(codecs)
    while chain and chain[0].get("name") == "sharding_indexed":
        chain = list(chain[0]["configuration"]["codecs"])
    return "+".join(filter(None, (_codec_text(codec, settings) for codec in chain))) or "raw"


def _codec_text(codec: Mapping[str, Any], settings: bool) -> str:
    """One codec in words; empty if there is nothing to say."""
    name, config = str(codec.get("name")).removeprefix("numcodecs."), codec.get("configuration") or {}
    if name == "bytes" and not (settings and config.get("endian", "little") != "little"):
        return ""
    values, nested = config.get("data_codecs"), config.get("codecs")
    inside = [codecs_text(values, settings=settings)] if values is not None else []
    if not settings:
        return f"{name}({inside[0]})" if inside else name
    if not inside and isinstance(nested, list) and nested:
        inside = [codecs_text(nested)]
    others = [key for key in DISTINGUISHING if isinstance(config.get(key), str | int | float | list)]
    inside += [f"{key}={config[key]}" for key in others]
    levels = [str(config[key]) for key in LEVELS if isinstance(config.get(key), str | int)]
    levels += [kind for kind in UNUSUAL_SHUFFLES if config.get("shuffle") == kind]
    return "-".join([name, *levels]) + (f"({', '.join(inside)})" if inside else "")


def count_text(number: int, one: str, many: str | None = None) -> str:
    """A number with the noun that it counts.

    >>> count_text(1, "region"), count_text(12_000, "region"), count_text(2, "entry", "entries")
    ('1 region', '12,000 regions', '2 entries')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def names_text(name: str, choices: Iterable[str]) -> str:
    """A message about an unknown name: the nearest of the choices, and all of them.

    >>> names_text("zsdt", ["gzip", "zstd"])
    "did you mean 'zstd'? There are gzip, zstd"
    >>> names_text("x", ["gzip", "zstd"]), names_text("x", [])
    ('there are gzip, zstd', 'there are none')
    """
    from difflib import get_close_matches  # only messages need it, and it imports much

    names = list(dict.fromkeys(choices))
    lower_case = {each.lower(): each for each in reversed(names)}
    nearest = get_close_matches(name.lower(), lower_case, n=1)
    text = ", ".join(names[:20]) + (", …" if len(names) > 20 else "") or "none"
    text = f"is only {text}" if len(names) == 1 else f"are {text}"
    if not nearest:
        return f"there {text}"
    return f"did you mean {lower_case[nearest[0]]!r}?" + (f" There {text}" if len(names) > 1 else "")


def is_misspelt(name: str, choices: Iterable[str], alike: float = 0.8) -> bool:
    """Whether an unknown name looks like a misspelling of one of the choices, as `difflib` measures it.

    >>> is_misspelt("Time", ["time", "x"]), is_misspelt("member", ["time", "x"])
    (True, False)
    """
    from difflib import get_close_matches

    lower_case = [each.lower() for each in choices]
    return bool(get_close_matches(name.lower(), lower_case, n=1, cutoff=alike))


MAX_LINE = 2000
"""The most characters of a message inside another one."""


def one_line(text: object) -> str:
    """A text without line breaks, for use inside a message; control characters are spelled out.

    >>> one_line("no group in\\n  the \\x1b[31mstore")
    'no group in the \\\\x1b[31mstore'
    """
    return plain(" ".join(str(text).split()), MAX_LINE)


def place_text(store_path: Any) -> str:
    """Where a group or array is, in one line.

    The `str` of a plain Icechunk store is not used: it has several lines, and while its session is being
    written to, the whole process waits for it.

    >>> place_text("file://data.zarr/temperature")
    'file://data.zarr/temperature'
    """
    store: Any = getattr(store_path, "store", None)
    if hasattr(store, "session") and not hasattr(store, "is_immutable"):
        return f"icechunk:{store.session.snapshot_id}/{store_path.path}"
    return str(store_path)


def common_prefix(prefixes: Iterable[str]) -> str | None:
    """The directory above all of these URL prefixes; None if that would be a whole disk or host.

    >>> common_prefix(["file:///data/2002/", "file:///data/2003/"])
    'file:///data/'
    >>> common_prefix(["s3://a/", "s3://b/"]) is None
    True
    """
    parts = [prefix.split("/") for prefix in prefixes]
    shared = list(os.path.commonprefix(parts))  # noqa: RUF071  # of lists: by their elements
    scheme, _, *names = [*shared, "", ""]
    bucket = shared[2:3] if scheme not in ("file:", "http:", "https:") else []
    return "/".join(shared).rstrip("/") + "/" if any([*bucket, *names[1:]]) else None


STORAGE_HINTS = {
    "invalid snapshot timestamp ordering|update timestamp is invalid": "The clock of this machine is behind "
    "the last writer's: correct one of them, or wait until it has caught up.",
    "snapshot timestamp is invalid": "The clock of this machine is too far from that of the storage: "
    "correct it.",
    "region must be set": "Give the option region, or set the environment variable AWS_REGION.",
    "connect|dispatch failure|timed out|timeout|dns": "Is the server up, and is the endpoint right?",
    "nosuchbucket|bucket does not exist": "Create the bucket first, or correct the URL.",
    "access ?denied|invalidaccesskeyid|signaturedoesnotmatch|forbidden|credential": "Check the credentials: "
    "access_key_id and secret_access_key, or the AWS_… environment variables.",
    "no space left|os error 28|quota|os error 122": "The disk is full: make room, then try again.",
    "file too large|os error 27": "The file system, or a limit of the process, does not allow a file of "
    "that size.",
    "permission denied|os error 13": "The process may not write there: check owner and permissions.",
    "read-only file system|os error 30": "The file system is mounted read-only.",
    "src size is incorrect|unknown frame descriptor|corrupt|flatbuffer|icechunk header": "A file of the "
    "repository is damaged, or was cut off in transit: try again, or use a copy.",
    "range request not supported": "The web server ignores the Range header: use one that answers it with "
    "206 Partial Content.",
}
"""What to do, by the words of a storage error."""


def storage_hint(message: str) -> str:
    """What to do about a storage error, as a line to add to its message; empty if unknown.

    >>> storage_hint("No space left on device")
    '\\n  The disk is full: make room, then try again.'
    """
    found = (hint for words, hint in STORAGE_HINTS.items() if re.search(words, message, re.IGNORECASE))
    return next((f"\n  {hint}" for hint in found), "")


LONGEST = 500
"""Longer strings are cut: nobody reads more in a table, and a page must not grow with them."""


def plain(text: object, longest: int = LONGEST) -> str:
    """Text in which every invisible character is spelled out.

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
    from html import escape  # only pages need it

    return escape(plain(text, longest), quote=True)


NUMBERS = frozenset(
    ("Bytes", "Chunks", "Chunks stored", "Fetched", "Files", "files", "Ratio", "Read MB/s",
     "Regions", "Saved", "Share", "Size", "Stored", "Stored before", "Write MB/s")
)  # fmt: skip
"""Columns that are right-aligned."""

IDS = frozenset(("Member", "Parent", "Snapshot"))
"""Columns of identifiers: the only cells that may be cut if a table has too little room."""

SHORTEST_ID = 9
"""The characters left of an identifier, including the ellipsis: enough to tell it from the others."""

WHOLE = NUMBERS | {
    "Chunk", "Lattice", "On disk", "On disk before", "Region", "Rewritten", "Shape",
    "Shards replaced", "Time (UTC)",
}  # fmt: skip
"""Columns whose cells stay on one line: a number and its unit, a shape, a time."""

MAX_LINES = 3
"""A row with texts of more lines than this is easier to read as names and values."""

GAP = "  "
MAX_SHOWN_ROWS = 60
"""A table in Python shows this many rows, and says how many more there are."""


def terminal_width() -> int | None:
    """The width of the terminal that Python prints to; None if it prints to something else."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def wrapped(text: str, width: int | None) -> list[str]:
    """A text in lines of at most `width` characters, broken between words; one line if there is no width.

    >>> wrapped("reads 4 chunks of 2 members", 16)
    ['reads 4 chunks', 'of 2 members']
    >>> wrapped("  reads 4 chunks of 2 members", 16)
    ['  reads 4 chunks', '  of 2 members']
    """
    if width is None or len(text) <= width:
        return [text]
    from textwrap import wrap

    words = text.lstrip(" ")
    indent = " " * (len(text) - len(words))
    lines = wrap(words, width - len(indent), break_long_words=False, break_on_hyphens=False)
    return [indent + line for line in lines]


def short_id(name: str, cell: str) -> str:
    """A cell of the column with this name, shortened if it is an identifier.

    >>> short_id("Member", "m-0123456789abcdef"), short_id("Message", "the first year")
    ('m-012345…', 'the first year')
    """
    return cell[: SHORTEST_ID - 1] + "…" if name in IDS and len(cell) > SHORTEST_ID else cell


def _fit_widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, most_lines: int
) -> list[int] | None:
    """The widths of columns if they fit: the widest text shrinks first, down to its longest word."""
    cells = [list(each) for each in zip(columns, *rows, strict=True)]
    widths = [max(map(len, column)) for column in cells]
    least = [
        size
        if name in WHOLE
        else max([-(-size // most_lines), *(len(word) for cell in column for word in cell.split())])
        for name, column, size in zip(columns, cells, widths, strict=True)
    ]
    while width is not None and (excess := sum(widths) + len(GAP) * (len(columns) - 1) - width) > 0:
        widest = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
        if widths[widest] == least[widest]:
            return None
        widths[widest] = max(least[widest], widths[widest] - excess)
    return widths


def table_text(columns: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None) -> str:
    """A table in plain text, as wide as it is, or in a terminal of this width.

    To fit, first identifiers are shortened, then texts are wrapped between words. Words, shapes and numbers
    are never cut: if they do not fit, or a row would take many lines, every row becomes a list of names and
    values.

    >>> print(table_text(("Codecs", "Size"), [("gzip", "1 kB"), ("raw", "100 kB")]))
    Codecs    Size
    gzip      1 kB
    raw     100 kB
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    short = [[short_id(name, cell) for name, cell in zip(columns, row, strict=True)] for row in cells]
    for shown, most_lines in ((cells, 1), (short, MAX_LINES)):
        widths = _fit_widths(columns, shown, width, most_lines)
        if widths is not None:
            return _laid_out([columns, *shown], widths, [name in NUMBERS for name in columns])
    named = max(map(len, columns))
    pairs = [("", "")]
    for row in cells:
        pairs += [(name, cell) for name, cell in zip(columns, row, strict=True) if cell] + [("", "")]
    room = max((width or 0) - named - len(GAP), 1)
    return _laid_out(pairs[1:-1], [named, room], [False, False])


def _laid_out(rows: Iterable[Sequence[str]], widths: Sequence[int], right: Sequence[bool]) -> str:
    """Rows in lines; cells that are wider than their column are wrapped."""
    from textwrap import wrap

    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        parts = [wrap(cell, n, break_on_hyphens=False) if len(cell) > n else [cell] for cell, n in cells]
        for line in zip_longest(*parts, fillvalue=""):
            placed = zip(line, widths, right, strict=True)
            lines.append(
                GAP.join(text.rjust(n) if end else text.ljust(n) for text, n, end in placed).rstrip()
            )
    return "\n".join(lines)


STYLE = (
    "<style>.intarsia-box{overflow-x:auto}"
    "table.intarsia-table{border-collapse:collapse;margin:.3em 0;font-size:13px}"
    "table.intarsia-table :is(td,th){text-align:left;padding:.15em .8em .15em 0;vertical-align:top;"
    "border:0;background:none}table.intarsia-table .n{text-align:right;white-space:nowrap}"
    ".intarsia-table .w{white-space:nowrap}.intarsia-table code{font-size:.9em}"
    ".intarsia-table .bar{display:inline-block;height:.8em;border-radius:2px;min-width:2px}</style>"
)


class Markup(str):
    """Text that is HTML already, in the cell of a table.

    >>> "<b>a</b>" in table_html(("Name",), [(Markup("<b>a</b>"),)])
    True
    """

    __slots__ = ()


def table_html(columns: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str = "") -> str:
    """A table for a page with `STYLE`; identifiers are shortened, and complete in tooltips.

    >>> '<td class="n">1 kB</td>' in table_html(("Codecs", "Size"), [("gzip", "1 kB")])
    True
    """

    def cell(tag: str, name: str, text: str) -> str:
        align = "n" if name in NUMBERS else "w" if name in WHOLE else ""
        attributes = f' class="{align}"' if align else ""
        if tag == "td" and short_id(name, text) != text:
            attributes += f' title="{markup(text)}"'
            text = Markup(f"<code>{markup(short_id(name, text))}</code>")
        return f"<{tag}{attributes}>{text if isinstance(text, Markup) else markup(text)}</{tag}>"

    def line(tag: str, row: Sequence[str]) -> str:
        cells = "".join(cell(tag, name, text) for name, text in zip(columns, row, strict=True))
        return f"<tr>{cells}</tr>"

    body = "".join(line("td", row) for row in rows)
    head = f"<thead>{line('th', columns)}</thead>" if any(columns) else ""
    kinds = f"intarsia-table {kind}".rstrip()
    return f'<div class="intarsia-box"><table class="{kinds}">{head}<tbody>{body}</tbody></table></div>'


type Column[T] = str | Callable[[T], object]
"""The content of a column: the name of an attribute of the items, or a function of an item."""


def cell_text(value: object, name: str = "") -> str:
    """A value in the words of a table; a number of bytes is one whose `name` says so.

    >>> cell_text(((0, 10), (5, 20))), cell_text(12_000), cell_text(12_000, "nbytes_stored"), cell_text(None)
    ('[0:10, 5:20]', '12,000', '12 kB', '')
    """
    match value:
        case str():
            return value
        case int() | None if "bytes" in name:
            return size_text(value)
        case int():
            return f"{value:,}"
        case None:
            return ""
        case datetime.datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case tuple() if name == "bounds" or (value and all(isinstance(each, tuple) for each in value)):
            return bounds_text(value)
    return str(value)


def json_of(value: Any) -> Any:
    """A result for JSON: the fields of a dataclass that its `repr` shows, and its `json_properties`.

    What JSON lacks becomes text: NaN, times, complex numbers and everything else.

    >>> json_of([Table(("Size",), [("1 B",)])])
    [{'columns': ['Size'], 'rows': [['1 B']]}]
    """
    if is_dataclass(value) or hasattr(value, "_fields"):
        names = getattr(value, "_fields", None) or [each.name for each in fields(value) if each.repr]
        more = getattr(value, "json_properties", ())
        return {name: json_of(getattr(value, name)) for name in (*names, *more)}
    if isinstance(value, Mapping):
        return {str(key): json_of(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_of(each) for each in value]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return value.isoformat() if isinstance(value, datetime.datetime) else str(value)


@dataclass(frozen=True)
class Table:
    """Rows under columns, for a terminal of any width and for a notebook.

    >>> print(Table(("Name", "Size"), [("a", "1 B"), ("bc", "20 B")]))
    Name  Size
    a      1 B
    bc    20 B
    """

    columns: Sequence[str]
    """The column headers."""

    rows: Sequence[Sequence[str]]
    """The cells of every row."""

    @classmethod
    def of[T](cls, items: Sequence[T], columns: Mapping[str, Column[T]]) -> Self:
        """A table with a row for each item, without the columns in which no item has anything.

        >>> columns = {"Real": "real", "Twice": lambda number: 2 * number, "Unit": lambda _: ""}
        >>> print(Table.of([1 + 2j], columns))
        Real  Twice
        1.0   (2+4j)
        """

        def texts(column: Column[T]) -> list[str]:
            if isinstance(column, str):
                return [cell_text(getattr(item, column), column) for item in items]
            return [cell_text(column(item)) for item in items]

        every = {name: texts(column) for name, column in columns.items()}
        used = {name: cells for name, cells in every.items() if any(cells) or not items}
        return cls(tuple(used), list(zip(*used.values(), strict=True)))

    def __str__(self) -> str:
        return table_text(self.columns, self.rows, terminal_width())

    def _repr_html_(self) -> str:
        return STYLE + table_html(self.columns, self.rows)


class Result:
    """Something that shows itself as lines and tables, in a terminal and in a notebook.

    >>> class Sizes(Result):
    ...     def blocks(self, most=MAX_SHOWN_ROWS):
    ...         return "all sizes:", Table(("Size",), [("1 B",)])
    >>> Sizes()
    all sizes:
    Size
     1 B
    """

    __slots__ = ()

    json_properties: ClassVar[tuple[str, ...]] = ()
    """The properties that JSON has, besides the fields."""

    def blocks(self, most: int | None = MAX_SHOWN_ROWS) -> Iterable[str | Table]:
        """Lines and tables with at most so many rows."""
        raise NotImplementedError

    def to_json(self) -> Any:
        """Everything as JSON."""
        return json_of(self)

    def __repr__(self) -> str:
        width = terminal_width()
        lines = [wrapped(part, width) if isinstance(part, str) else [str(part)] for part in self.blocks()]
        return "\n".join(line for each in lines for line in each)

    def _repr_html_(self) -> str:
        parts = (part if isinstance(part, Table) else f"<p>{markup(part)}</p>" for part in self.blocks())
        return "".join(part if isinstance(part, str) else part._repr_html_() for part in parts)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints the same in IPython, which would otherwise print a tuple."""
        printer.text("…" if cycle else repr(self))


def name_lines(pairs: Sequence[tuple[str, object]]) -> list[str]:
    """Names and values, one pair on each line.

    >>> name_lines([("Shape", (3,)), ("Size", "3 B")])
    ['Shape: (3,)', 'Size : 3 B']
    """
    width = max(len(name) for name, _ in pairs)
    return [f"{name:<{width}}: {value}" for name, value in pairs]


def first_rows[T](
    items: Sequence[T], columns: Mapping[str, Column[T]], most: int | None, what: str = "row"
) -> list[str | Table]:
    """A table of the first items, and a line about those that it leaves out.

    >>> for block in first_rows(["a", "b", "c"], {"Name": str}, 1):
    ...     print(block)
    Name
    a
    … and 2 more rows
    """
    shown = items[:most]
    rest = len(items) - len(shown)
    return [Table.of(shown, columns), *([f"… and {count_text(rest, f'more {what}')}"] if rest else [])]


class Listing[T](Result, tuple[T, ...]):
    """A tuple that shows itself as a table, in a terminal and in a notebook.

    >>> class Numbers(Listing[complex]):
    ...     columns = {"Real": "real", "Twice": lambda number: 2 * number}
    >>> Numbers([1, 2 + 3j])
    Real  Twice
    1     2
    2.0   (4+6j)
    """

    columns: ClassVar[Mapping[str, Column[Any]]] = {}
    """The column headers, and what stands below them."""

    empty: ClassVar[str] = "nothing"
    """Shown in place of a table without rows."""

    def __new__(cls, items: Iterable[T] = ()) -> Self:
        return super().__new__(cls, items)

    @overload
    def __getitem__(self, key: SupportsIndex) -> T: ...

    @overload
    def __getitem__(self, key: slice) -> Self: ...

    def __getitem__(self, key: SupportsIndex | slice) -> T | Self:
        """An item, or a table of some items."""
        if not isinstance(key, slice):
            return super().__getitem__(key)
        return type(self)(super().__getitem__(key))

    def blocks(self, most: int | None = MAX_SHOWN_ROWS) -> Iterable[str | Table]:
        """The table, and a line about the rows that it leaves out."""
        if not self:
            return [self.empty]
        return first_rows(self, self.columns, most)
