"""How text on a command line becomes sizes, selections and codecs; arguments that commands share."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import EllipsisType, UnionType
from typing import Annotated, Any, Literal, TypeAliasType, Union, get_args, get_origin

import zarr

from intarsia.cli.output import CommandError
from intarsia.codecs import parse_codecs
from intarsia.display import names_text

type IndexEntry = int | slice | EllipsisType | list[int]


def parse_sizes(text: str, what: str = "sizes") -> tuple[int, ...]:
    """A shape or chunk shape; an empty text is the shape with no axes.

    >>> parse_sizes("0, 720,1440"), parse_sizes("")
    ((0, 720, 1440), ())
    """
    stripped = text.strip().strip("()[]").strip().rstrip(",")
    try:
        return tuple(int(part) for part in stripped.split(",")) if stripped else ()
    except ValueError:
        raise CommandError(f"{what}: {text!r} does not consist of integers") from None


def parse_selection_text(text: str, _what: str = "") -> tuple[IndexEntry, ...]:
    """A selection as in brackets: integers, slices, an ellipsis, lists of indices.

    >>> parse_selection_text("0:10, -1, ::2, [3, 5], ...")
    (slice(0, 10, None), -1, slice(None, None, 2), [3, 5], Ellipsis)
    """
    entries = text.replace("…", "...").strip()
    brackets = entries.startswith("[") and entries.endswith("]")  # of the selection, or of one list
    for inside in (entries, entries[1:-1]) if brackets else (entries,):
        with suppress(ValueError):
            return _entries(inside)
    raise CommandError(
        f"selection {text!r}: write integers, slices and lists of integers, as in '0:10, -1, [3, 5], ...'"
    )


OUTER_COMMA = re.compile(r",(?![^\[]*\])")
"""A comma between entries, not within a list."""


def _entries(text: str) -> tuple[IndexEntry, ...]:
    return tuple(map(_entry, OUTER_COMMA.split(text.strip().removesuffix(",")))) if text.strip() else ()


def _entry(text: str) -> IndexEntry:
    text = text.strip()
    if text == "...":
        return ...
    if text.startswith("[") and text.endswith("]"):
        return [int(part) for part in text[1:-1].split(",") if part.strip()]
    if ":" not in text:
        return int(text)
    ends = [int(part) if part.strip() else None for part in text.split(":")]
    if len(ends) > 3 or ends[2:] == [0]:
        raise ValueError("a slice has a start, a stop and a step, which is not 0")
    return slice(*ends)


def parse_bounds(text: str, what: str = "bounds") -> tuple[IndexEntry, ...]:
    """A box: start and stop on every axis, as in a subscript; missing bounds are those of the array.

    >>> parse_bounds("0:500, :")
    (slice(0, 500, None), slice(None, None, None))
    """
    entries = parse_selection_text(text)
    if not all(each is ... or (isinstance(each, slice) and each.step is None) for each in entries):
        raise CommandError(f"{what} {text!r}: give start:stop for each axis, such as '0:500, :'")
    return entries


def parse_codec_list(texts: Sequence[str], _what: str = "") -> list[Any] | str:
    """Codecs: names, names with settings, or JSON objects; `raw` for none at all, `auto` for advice.

    >>> parse_codec_list(["crc32c", "zstd:level=19"])
    [{'name': 'crc32c'}, {'name': 'zstd', 'configuration': {'level': 19}}]
    >>> parse_codec_list(["raw"]), parse_codec_list(["auto"])
    ([], 'auto')
    """
    if list(texts) in (["auto"], ["raw"]):
        return "auto" if texts[0] == "auto" else []
    codecs = [_codec(text) for text in texts]
    try:
        parse_codecs(codecs)
    except Exception as error:  # whatever a codec says about its settings
        raise CommandError(f"codec {' '.join(texts)}: {error}") from error
    return codecs


def parse_packing_text(text: str, what: str = "packing") -> dict[str, Any] | str | None:
    """The packing of `append` and `recode`.

    >>> parse_packing_text("int16:scale=0.01,missing=-1"), parse_packing_text("keep")
    ({'stored': 'int16', 'scale': 0.01, 'missing': -1}, 'keep')
    >>> parse_packing_text("none")
    """
    if text in ("keep", "none"):
        return "keep" if text == "keep" else None
    stored, settings = _name_and_settings(text, what, "stored")
    return {"stored": stored, **settings}


def _codec(text: str) -> dict[str, Any]:
    name, settings = _name_and_settings(text, "codec", "name")
    if name in ("raw", "auto"):
        raise CommandError(f"codec {name!r} cannot be combined with other codecs")
    if text.lstrip().startswith("{"):
        return {"name": name, **settings}
    return {"name": name, **({"configuration": settings} if settings else {})}


def _name_and_settings(text: str, what: str, key: str) -> tuple[str, dict[str, Any]]:
    """The parts of NAME:KEY=VALUE,… or of a JSON object, in which the name has this key."""
    if text.lstrip().startswith("{"):
        try:
            settings = dict(json.loads(text))
        except ValueError as error:
            raise CommandError(f"{what} {text!r} is not valid JSON: {error}") from None
        name = settings.pop(key, None)
    else:
        name, _, pairs = text.partition(":")
        settings = parse_options(pairs.split(","), what) if pairs else {}
    if not isinstance(name, str) or not name:
        raise CommandError(f"{what} {text!r} has no name")
    return name, settings


def parse_options(texts: Sequence[str], what: str) -> dict[str, Any]:
    """KEY=VALUE pairs; a value is JSON if it can be, otherwise text.

    >>> parse_options(["level=3", "cname=zstd", "anonymous=true"], "codec")
    {'level': 3, 'cname': 'zstd', 'anonymous': True}
    """
    return {key: json_or_text(value) for key, value in parse_pairs(texts, what, "KEY=VALUE").items()}


def json_or_text(text: str) -> Any:
    """The value of a text that is JSON, otherwise the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_names(text: str, _what: str = "") -> tuple[str | None, ...]:
    """Names of axes; an empty one means no name.

    >>> parse_names("time,lat,")
    ('time', 'lat', None)
    """
    return tuple(part.strip() or None for part in text.split(","))


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


def parse_choice(choices: Sequence[str], text: str, what: str) -> str:
    """One of several words.

    >>> parse_choice(["size", "speed"], "sped", "objective")
    Traceback (most recent call last):
    ...
    intarsia.cli.output.CommandError: objective 'sped': did you mean 'speed'? There are size, speed
    """
    if text not in choices:
        raise CommandError(f"{what} {text!r}: {names_text(text, choices)}")
    return text


def parse_path(text: str, _what: str = "") -> str:
    """The path in a store of something new.

    >>> parse_path("../a")
    Traceback (most recent call last):
    ...
    intarsia.cli.output.CommandError: PATH: The path '../a' is invalid because ...
    """
    try:
        zarr.create_group({}, path=text)
    except ValueError as error:
        raise CommandError(f"PATH: {error}") from None
    return text


def parse_allowed(texts: Sequence[str], _what: str = "") -> Any:
    """What files may refer to: URL prefixes, or everything."""
    return True if "all" in texts else list(texts)


@dataclass(frozen=True)
class OptionSyntax:
    """How an argument is written as an option of a command."""

    parse: Callable[[Any, str], Any] | None = None
    """Turns the text (or the texts, of an option that may be repeated) into the argument; the second argument
    names the option in an error. None if the text is the argument."""

    metavar: str | None = None
    """What stands for the text in the help."""

    kind: Any = str | None
    """What typer reads."""

    option: str = ""
    """The name of the option, if it is not that of the argument."""

    help: str = ""
    """What it is, unless a docstring says so."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """The least and the largest number."""


MANY = list[str] | None
"""An option that may be repeated."""


PLAIN = (str, bool, Path, str | None, Path | None, list[str], MANY)
"""The types that typer reads without our help."""


def syntax_of(p: inspect.Parameter) -> OptionSyntax | None:
    """How an argument is written, by its type; None if it cannot be. What is on by default has an option
    that turns it off.

    >>> def f(*, limit: int | None, names: Iterable[str], check: bool = True, error: Exception): ...
    >>> syntaxes = map(syntax_of, inspect.signature(f).parameters.values())
    >>> [syntax and (syntax.metavar, syntax.option) for syntax in syntaxes]
    [('N', ''), ('NAME', ''), (None, 'no_check'), None]
    """
    annotation = p.annotation
    own = [each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, OptionSyntax)]
    if own:
        return own[0]
    if annotation is bool and p.default is True:
        return OptionSyntax(lambda is_set, _: not is_set, kind=bool, option=f"no_{p.name}")
    if annotation in PLAIN:
        return OptionSyntax(None, None if annotation is bool else "NAME", annotation)
    members = _members(annotation)
    choices = [each for kind in members if get_origin(kind) is Literal for each in get_args(kind)]
    if choices and all(isinstance(each, str) for each in choices):
        return OptionSyntax(partial(parse_choice, choices), "WHAT")
    if Iterable[str] in members or Sequence[str] in members:
        return OptionSyntax(None, "NAME", MANY)
    for kind, metavar in ((int, "N"), (float, "X"), (str, "NAME")):
        if kind in members:
            return OptionSyntax(None, metavar, kind | None)
    return None


def _members(annotation: Any) -> list[Any]:
    """The types that a union consists of."""
    if isinstance(annotation, TypeAliasType):
        try:
            return _members(annotation.__value__)
        except NameError:  # a type of an optional package, which no option has
            return []
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    return [each for part in parts for each in _members(part)] if parts else [annotation]


class SharedOptions:
    """Options of several commands, in the words of their help.

    Args:
        codec (-c CODEC): A codec: a name, NAME:KEY=VALUE,… or a JSON object. Repeat it for several, in their
            order; 'raw' for none, 'auto' for what suits the data.
        chunks (N,N,…): Chunk shape of the new member.
        shards (N,N,…): Shard shape of the new member.
        packing (PACKING): How values become stored numbers: TYPE:KEY=VALUE,… or a JSON object, with scale,
            offset, missing, unsigned, values; 'keep' for the existing one, 'none' for plain values.
        source_option (KEY=VALUE): For the files' storage, such as region or anonymous.
    """


OPTION_SYNTAX: Mapping[str, OptionSyntax] = {
    "codecs": OptionSyntax(parse_codec_list, kind=MANY, option="codec"),
    "chunks": OptionSyntax(parse_sizes),
    "shards": OptionSyntax(parse_sizes),
    "packing": OptionSyntax(parse_packing_text),
    "storage_options": OptionSyntax(parse_options, kind=MANY, option="source_option"),
    "authorize": OptionSyntax(parse_allowed, "PREFIX", MANY, "allow"),
}
"""How arguments of functions are written, by name; others by their types."""

path = partial(OptionSyntax, None, "PATH", str)
Array = Annotated[
    str, path(help="Path of the logical array in the store; may be left out if there is only one.")
]
OneArray = Annotated[str, path(help="Path of the array in the store.")]
NewPath = Annotated[str, OptionSyntax(parse_path, "PATH", str, help="Path of the array in the store.")]
AnyArrays = Annotated[str, path(help="One array; all of them if left out.")]
AnyNode = Annotated[str, path(help="Array or group; everything if left out.")]
Bounds = Annotated[Any, OptionSyntax(parse_bounds, "A:B,…")]
Pairs = Annotated[dict[str, Any] | None, OptionSyntax(parse_options, "KEY=VALUE", MANY)]
Allowed = Annotated[Any, OPTION_SYNTAX["authorize"]]
Snapshot = Annotated[str | None, OptionSyntax(None, "ID", option="snapshot")]
Count = Annotated[int | None, OptionSyntax(None, "N", int | None, limits={"min": 0})]
Positive = Annotated[int | None, OptionSyntax(None, "N", int | None, limits={"min": 1})]
Port = Annotated[int | None, OptionSyntax(None, "N", int | None, limits={"min": 0, "max": 65535})]
