"""How text on a command line becomes sizes, selections and codecs; arguments that commands share."""

import ast
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Annotated, Any

import typer

from intarsia.cli.verb import CommandError
from intarsia.codecs import CodecLike, parse_codecs

type IndexEntry = int | slice | EllipsisType | list[int]


def parse_sizes(text: str | None, what: str = "sizes") -> tuple[int, ...] | None:
    """A shape or chunk shape; an empty text is the shape with no axes.

    >>> parse_sizes("0, 720,1440"), parse_sizes(""), parse_sizes(None)
    ((0, 720, 1440), (), None)
    """
    if text is None:
        return None
    stripped = text.strip().strip("()[]").strip().rstrip(",")
    try:
        return tuple(int(part) for part in stripped.split(",")) if stripped else ()
    except ValueError:
        raise CommandError(f"{what}: {text!r} does not consist of integers") from None


def parse_selection(text: str | None) -> tuple[IndexEntry, ...]:
    """A selection as in brackets: integers, slices, an ellipsis, lists of indices.

    >>> parse_selection("0:10, -1, ::2, [3, 5], ...")
    (slice(0, 10, None), -1, slice(None, None, 2), [3, 5], Ellipsis)
    """
    stripped = (text or "").replace("…", "...").strip()
    if not stripped:
        return ()
    try:
        try:
            entries = _subscript(stripped)
        except SyntaxError:
            if not (stripped.startswith("[") and stripped.endswith("]")):
                raise
            entries = _subscript(stripped[1:-1])  # it was written with its brackets
        # [3, 5] alone is a list of indices; [..., 5] is a subscript with its brackets.
        first = entries[0]
        if len(entries) == 1 and isinstance(first, ast.List):
            is_list = all(isinstance(each, ast.Constant | ast.UnaryOp) for each in first.elts)
            entries = entries if is_list and "..." not in stripped else first.elts
        return tuple(_entry(each) for each in entries)
    except (SyntaxError, ValueError):
        raise CommandError(
            f"selection {text!r}: write integers, slices and lists of integers, as in '0:10, -1, [3, 5], ...'"
        ) from None


def _subscript(text: str) -> list[ast.expr]:
    """What stands between the brackets of a subscript, parsed by Python; nothing is evaluated."""
    tree = ast.parse(f"_[{text}]", mode="eval").body
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Name):
        raise ValueError("it closes a bracket that it did not open")
    return tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]


def _entry(node: ast.expr) -> IndexEntry:
    if isinstance(node, ast.Slice):
        ends = (node.lower, node.upper, node.step)
        return slice(*(None if end is None else _integer(end) for end in ends))
    if isinstance(node, ast.List):
        return [_integer(each) for each in node.elts]
    return Ellipsis if isinstance(node, ast.Constant) and node.value is ... else _integer(node)


def _integer(node: ast.expr) -> int:
    value = ast.literal_eval(node)
    if type(value) is not int:
        raise ValueError("it is not an integer")
    return value


def parse_bounds(text: str | None, shape: Sequence[int]) -> tuple[tuple[int, int], ...] | None:
    """A box: start and stop on every axis, as in a subscript; missing bounds are those of the array.

    >>> parse_bounds("0:500, :", (1000, 80))
    ((0, 500), (0, 80))
    """
    if text is None:
        return None
    entries = list(parse_selection(text))
    if Ellipsis in entries:
        at = entries.index(Ellipsis)
        entries[at : at + 1] = [slice(None)] * (len(shape) - len(entries) + 1)
    entries += [slice(None)] * (len(shape) - len(entries))
    if len(entries) != len(shape) or not all(isinstance(e, slice) and e.step is None for e in entries):
        raise CommandError(
            f"bounds {text!r}: give start:stop for each of the {len(shape)} axes, such as '0:500, :'"
        )
    box = []
    for entry, size in zip(entries, shape, strict=True):
        assert isinstance(entry, slice)
        box.append((0 if entry.start is None else entry.start, size if entry.stop is None else entry.stop))
    return tuple(box)


def parse_codec_list(texts: Sequence[str] | None) -> list[Any] | str | None:
    """Codecs: names, names with settings, or JSON objects; `raw` for none at all, `auto` for advice.

    >>> parse_codec_list(["crc32c", "zstd:level=19"])
    [{'name': 'crc32c'}, {'name': 'zstd', 'configuration': {'level': 19}}]
    >>> parse_codec_list(["raw"]), parse_codec_list(["auto"]), parse_codec_list(None)
    ([], 'auto', None)
    """
    if not texts:
        return None
    if list(texts) in (["auto"], ["raw"]):
        return "auto" if texts[0] == "auto" else []
    codecs = [_codec(text) for text in texts]
    try:
        parse_codecs(codecs)
    except Exception as error:  # whatever a codec says about its settings
        raise CommandError(f"codec {' '.join(texts)}: {error}") from error
    return codecs


def codec_options(codecs: Iterable[CodecLike]) -> list[str]:
    """Codecs as command-line options, the reverse of `parse_codec_list`; default settings are left out.

    >>> codec_options(["crc32c", {"name": "zstd", "configuration": {"level": 19, "checksum": False}}])
    ['-c crc32c', '-c zstd:level=19']
    >>> codec_options([])
    ['-c raw']
    """
    options = []
    for codec in parse_codecs(codecs):
        document: Any = codec.to_dict()
        if document["name"] == "bytes":
            continue
        settings = _needed(document["name"], document.get("configuration") or {})
        plain = all(isinstance(value, str | int | float) for value in settings.values())
        pairs = ",".join(f"{key}={v if isinstance(v, str) else json.dumps(v)}" for key, v in settings.items())
        text = json.dumps(document) if not plain else document["name"] + (f":{pairs}" if pairs else "")
        options.append(f"-c {shlex.quote(text)}")
    return options or ["-c raw"]


def _needed(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a codec that differ from its defaults."""

    def codec(configuration: dict[str, Any]) -> Any:
        return parse_codecs([{"name": name, "configuration": configuration}])

    needed = settings
    for key in settings:
        fewer = {other: value for other, value in needed.items() if other != key}
        try:
            if codec(fewer) == codec(settings):
                needed = fewer
        except (KeyError, TypeError, ValueError):  # it cannot be left out
            continue
    return needed


def parse_packing(text: str | None) -> dict[str, Any]:
    """The value of `--packing` as an argument of `append` and `recode`; empty if it was left out.

    >>> parse_packing("int16:scale=0.01,missing=-1")
    {'packing': {'stored': 'int16', 'scale': 0.01, 'missing': -1}}
    >>> parse_packing("keep"), parse_packing("none"), parse_packing(None)
    ({'packing': 'keep'}, {'packing': None}, {})
    """
    if text is None:
        return {}
    if text in ("keep", "none"):
        return {"packing": "keep" if text == "keep" else None}
    if text.lstrip().startswith("{"):
        return {"packing": _json_object(text, "packing")}
    stored, _, settings = text.partition(":")
    options = parse_options(settings.split(","), "packing") if settings else {}
    return {"packing": {"stored": stored, **options}}


def _json_object(text: str, what: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError as error:
        raise CommandError(f"{what} {text!r} is not valid JSON: {error}") from None


def _codec(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        document = _json_object(text, "codec")
        if not isinstance(document.get("name"), str):
            raise CommandError(f"codec {text!r} has no name")
        return document
    name, _, settings = text.partition(":")
    if name in ("raw", "auto"):
        raise CommandError(f"codec {name!r} cannot be combined with other codecs")
    if not name:
        raise CommandError(f"codec {text!r} has no name")
    codec: dict[str, Any] = {"name": name}
    if settings:
        codec["configuration"] = parse_options(settings.split(","), "codec")
    return codec


def parse_options(texts: Sequence[str], what: str) -> dict[str, Any]:
    """KEY=VALUE pairs; a value is JSON if it can be, otherwise text.

    >>> parse_options(["level=3", "cname=zstd", "anonymous=true"], "codec")
    {'level': 3, 'cname': 'zstd', 'anonymous': True}
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{what}: {text!r} is not KEY=VALUE")
        try:
            options[key.strip()] = json.loads(value)
        except ValueError:
            options[key.strip()] = value
    return options


def parse_names(text: str | None) -> tuple[str | None, ...] | None:
    """Names of axes; an empty one means no name.

    >>> parse_names("time,lat,"), parse_names(None)
    (('time', 'lat', None), None)
    """
    return None if text is None else tuple(part.strip() or None for part in text.split(","))


def parse_pairs(texts: Sequence[str], what: str, form: str = "NAME=…") -> dict[str, str]:
    """Pairs of texts on either side of an equals sign; `form` is what an error asks for.

    >>> parse_pairs(["latitude=lat"], "rename")
    {'latitude': 'lat'}
    """
    pairs = {}
    for text in texts:
        key, _, value = (part.strip() for part in text.partition("="))
        if not key or not value:
            raise CommandError(f"{what}: {text!r} is not of the form {form}")
        pairs[key] = value
    return pairs


Array = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        show_default=False,
        help="Path of the logical array in the store; may be left out if there is only one.",
    ),
]
OneArray = Annotated[
    str, typer.Argument(metavar="PATH", show_default=False, help="Path of the array in the store.")
]
AnyArrays = Annotated[
    str, typer.Argument(metavar="PATH", show_default=False, help="One array; all of them if left out.")
]
AnyNode = Annotated[
    str, typer.Argument(metavar="PATH", show_default=False, help="Array or group; everything if left out.")
]

Selection = Annotated[
    str,
    typer.Argument(
        metavar="SELECTION",
        help="As between brackets: '0:10, -1, ::2', '[3, 5], ...'; everything if left out.",
        show_default=False,
    ),
]
Count = Annotated[int | None, typer.Option(min=0)]
Positive = Annotated[int | None, typer.Option(min=1)]
Port = Annotated[int | None, typer.Option(min=0, max=65535)]


@dataclass(frozen=True)
class EncodingOptions:
    """How data is stored.

    Args:
        codec (-c CODEC): A codec: a name, NAME:KEY=VALUE,… or a JSON object. Repeat it for several, in their
            order; 'raw' for none, 'auto' for what suits the data.
        chunks (N,N,…): Chunk shape of what is written.
        shards (N,N,…): Shard shape of what is written.
    """

    codec: list[str] | None = None
    chunks: str | None = None
    shards: str | None = None

    @property
    def codecs(self) -> Any:
        """The codecs; None if they were left out."""
        return parse_codec_list(self.codec)

    def explicit_codecs(self, instead: str) -> Any:
        """The same, where nothing is stored that 'auto' could be chosen for."""
        if self.codecs == "auto":
            raise CommandError(f"codec 'auto' is for logical arrays; name the codecs, or {instead}")
        return self.codecs

    def arguments(self) -> dict[str, Any]:
        """All of them, as arguments of `intarsia.append` and others."""
        sizes = {"chunks": parse_sizes(self.chunks, "chunks"), "shards": parse_sizes(self.shards, "shards")}
        return {"codecs": self.codecs, **sizes}


@dataclass(frozen=True)
class PackedEncodingOptions(EncodingOptions):
    """How data is stored, if its values may become other numbers.

    Args:
        packing (PACKING): How values become stored numbers: TYPE:KEY=VALUE,… or a JSON object, with scale,
            offset, missing, unsigned, values; 'keep' for what is there, 'none' for plain values.
    """

    packing: str | None = None

    def arguments(self) -> dict[str, Any]:
        """All of them; the packing only if there is one."""
        return super().arguments() | parse_packing(self.packing)
