"""The words of every table in their one order, numbers as people read them, and texts made harmless.

Anybody may have written what is stored in a repository: a name may contain `<script>`, terminal escape
sequences, or characters that reverse the direction of text. Every string passes through `plain` or `markup`
on its way to a terminal or a page.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

REGION_COLUMNS = ("Region", "Codecs", "Chunks", "Size", "Stored", "Ratio", "Member")
"""The columns for a region, wherever the table is shown."""

PIPELINE_COLUMNS = ("Codecs", "Regions", "Size", "Stored", "Ratio")
"""The columns for all regions with one codec pipeline."""

EXPLAIN_COLUMNS = ("Region", "Codecs", "Chunks", "Fetched", "Stored", "Copied", "Member", "Fetcher")
"""The columns for what a read takes from a region."""

UNKNOWN = "?"
"""Shown where something was not measured or cannot be known."""

LEVELS = ("cname", "level", "clevel")
"""Settings that follow a codec's name: `zstd-9`, `blosc-lz4-5`."""

UNUSUAL_SHUFFLES = ("bitshuffle", "noshuffle")
"""These follow too: `blosc-lz4-5-bitshuffle`. The usual shuffle is not mentioned."""

TOLD = ("offset", "scale", "order")
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


def codecs_text(codecs: Iterable[Mapping[str, Any]], *, settings: bool = False) -> str:
    """The codecs of a zarr.json in a few words; `settings` adds what distinguishes two of one name.

    For a sharded array, these are the codecs of the inner chunks; plain `bytes` is not mentioned.

    >>> zstd = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
    >>> nullable = {"name": "optional", "configuration": {"mask_codecs": [], "data_codecs": [zstd]}}
    >>> [codecs_text(codecs) for codecs in ([{"name": "crc32c"}, zstd], [nullable], [{"name": "bytes"}])]
    ['crc32c+zstd', 'optional(zstd)', 'raw']
    >>> [codecs_text(codecs, settings=True) for codecs in ([{"name": "numcodecs.shuffle"}, zstd], [nullable])]
    ['shuffle+zstd-3', 'optional(zstd-3)']
    """
    listed = list(codecs)
    while listed and listed[0].get("name") == "sharding_indexed":
        listed = list(listed[0]["configuration"]["codecs"])
    return "+".join(filter(None, (_codec_text(codec, settings) for codec in listed))) or "raw"


def _codec_text(codec: Mapping[str, Any], settings: bool) -> str:
    """One codec in words; empty if there is nothing to say."""
    name, given = str(codec.get("name")).removeprefix("numcodecs."), codec.get("configuration") or {}
    if name == "bytes" and not (settings and given.get("endian", "little") != "little"):
        return ""
    values, nested = given.get("data_codecs"), given.get("codecs")
    inside = [codecs_text(values, settings=settings)] if values is not None else []
    if not settings:
        return f"{name}({inside[0]})" if inside else name
    if not inside and isinstance(nested, list) and nested:
        inside = [codecs_text(nested, settings=True)]
    inside += [f"{key}={given[key]}" for key in TOLD if isinstance(given.get(key), str | int | float | list)]
    levels = [str(given[key]) for key in LEVELS if isinstance(given.get(key), str | int)]
    levels += [kind for kind in UNUSUAL_SHUFFLES if given.get("shuffle") == kind]
    return "-".join([name, *levels]) + (f"({', '.join(inside)})" if inside else "")


def count_text(number: int, one: str, many: str | None = None) -> str:
    """A number with the noun that it counts.

    >>> count_text(1, "region"), count_text(12_000, "region"), count_text(2, "entry", "entries")
    ('1 region', '12,000 regions', '2 entries')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def names_text(asked: str, known: Iterable[str]) -> str:
    """What to say about an unknown name: the nearest known one, and the others.

    >>> names_text("zsdt", ["gzip", "zstd"])
    "did you mean 'zstd'? There are gzip, zstd"
    >>> names_text("x", ["gzip", "zstd"]), names_text("x", [])
    ('there are gzip, zstd', 'there are none')
    """
    from difflib import get_close_matches  # only messages need it, and it imports much

    names = list(dict.fromkeys(known))
    folded = {name.lower(): name for name in reversed(names)}
    near = get_close_matches(asked.lower(), folded, n=1)
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "") or "none"
    listed = f"is only {listed}" if len(names) == 1 else f"are {listed}"
    return f"did you mean {folded[near[0]]!r}? There {listed}" if near else f"there {listed}"


def is_misspelt(asked: str, known: Iterable[str], alike: float = 0.8) -> bool:
    """Whether an unknown name looks like a misspelling of a known one, by the measure of `difflib`.

    >>> is_misspelt("Time", ["time", "x"]), is_misspelt("member", ["time", "x"])
    (True, False)
    """
    from difflib import get_close_matches

    return bool(get_close_matches(asked.lower(), [name.lower() for name in known], n=1, cutoff=alike))


LONGEST_LINE = 2000
"""The most characters of a message inside another one."""


def one_line(text: object) -> str:
    """A text without line breaks, for use inside a message; control characters are spelled out.

    >>> one_line("no group in\\n  the \\x1b[31mstore")
    'no group in the \\\\x1b[31mstore'
    """
    return plain(" ".join(str(text).split()), LONGEST_LINE)


def place_text(store_path: Any) -> str:
    """Where a group or array is, in one line.

    A plain Icechunk store is not asked to describe itself: it does so in several lines, and if its session
    is being written to, the whole process waits until it has.

    >>> place_text("file://data.zarr/temperature")
    'file://data.zarr/temperature'
    """
    store: Any = getattr(store_path, "store", None)
    if hasattr(store, "session") and not hasattr(store, "is_lasting"):
        return f"icechunk:{store.session.snapshot_id}/{store_path.path}"
    return str(store_path)


def common_prefix(prefixes: Iterable[str]) -> str | None:
    """The directory above all of these URL prefixes; None if that would be a whole disk or host.

    >>> common_prefix(["file:///data/2002/", "file:///data/2003/"])
    'file:///data/'
    >>> common_prefix(["s3://a/", "s3://b/"]) is None
    True
    """
    shared: list[str] = []
    for parts in zip(*(prefix.split("/") for prefix in prefixes), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    scheme, _, *names = [*shared, "", ""]
    bucket = shared[2:3] if scheme not in ("file:", "http:", "https:") else []
    return "/".join(shared).rstrip("/") + "/" if any([*bucket, *names[1:]]) else None


STORAGE_HINTS = (
    (
        ("invalid snapshot timestamp ordering", "update timestamp is invalid"),
        "The clock of this machine is behind the last writer's: correct one of them, or wait until it has "
        "caught up.",
    ),
    (
        ("snapshot timestamp is invalid",),
        "The clock of this machine is too far from that of the storage: correct it.",
    ),
    (
        ("connect", "dispatch failure", "timed out", "timeout", "dns"),
        "Is the server up, and is the endpoint right?",
    ),
    (("nosuchbucket", "bucket does not exist"), "Create the bucket first, or correct the URL."),
    (
        (
            "accessdenied",
            "access denied",
            "invalidaccesskeyid",
            "signaturedoesnotmatch",
            "forbidden",
            "credential",
        ),
        "Check the credentials: access_key_id and secret_access_key, or the AWS_… environment variables.",
    ),
    (
        ("no space left", "os error 28", "quota", "os error 122"),
        "The disk is full: make room, then try again.",
    ),
    (
        ("file too large", "os error 27"),
        "The file system, or a limit of the process, does not allow a file of that size.",
    ),
    (("permission denied", "os error 13"), "The process may not write there: check owner and permissions."),
    (("read-only file system", "os error 30"), "The file system is mounted read-only."),
    (
        ("src size is incorrect", "unknown frame descriptor", "corrupt", "flatbuffer", "icechunk header"),
        "A file of the repository is damaged, or was cut off in transit: try again, or use a copy.",
    ),
    (
        ("range request not supported",),
        "The web server ignores the Range header: use one that answers it with 206 Partial Content.",
    ),
)
"""What to do, by the words of a storage error."""


def storage_hint(message: str) -> str:
    """What to do about a storage error, as a line to add to its message; empty if unknown.

    >>> storage_hint("No space left on device")
    '\\n  The disk is full: make room, then try again.'
    """
    text = message.lower()
    hint = next((hint for words, hint in STORAGE_HINTS if any(word in text for word in words)), None)
    return f"\n  {hint}" if hint else ""


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


def embedded_json(document: Any) -> str:
    """JSON for a `<script type="application/json">`: nothing in it can end the element or begin a comment.

    >>> embedded_json({"name": "</script><!--"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
