"""GRIB: every message is a chunk, which gribberish's codec decodes.

Its groups are kinds of levels and products, such as `sfc/instant`. gribberish skips messages and fields that
it cannot read without a word, has the coordinates of any message for a group, and misreads some grids.
So messages are listed here, too: what it leaves out is reported, and what it would misread is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from intarsia._compat import manifest_table, parsed_group
from intarsia.archives.formats.virtualizarr import SourceParser, VirtualFormat, with_groups_below
from intarsia.archives.source_files import FormatProbe, Sources
from intarsia.display import one_line
from intarsia.errors import IngestError
from intarsia.extras import import_extra

MAGIC = b"GRIB"
HEAD_BYTES = 8
"""Magic, length and edition of a message of edition 1."""

HEADING_BYTES = 100
"""How far into a file its first message may begin: bulletins have a heading."""

GRIDS = {
    (1, 0): "latitude and longitude", (1, 1): "Mercator", (1, 3): "Lambert", (1, 4): "Gaussian",
    (1, 5): "polar stereographic", (1, 10): "rotated latitude and longitude", (1, 14): "rotated Gaussian",
    (1, 50): "spherical harmonics", (1, 90): "space view", (2, 0): "latitude and longitude",
    (2, 1): "rotated latitude and longitude", (2, 10): "Mercator", (2, 20): "polar stereographic",
    (2, 30): "Lambert", (2, 40): "Gaussian", (2, 41): "rotated Gaussian", (2, 50): "spherical harmonics",
    (2, 90): "space view", (2, 101): "unstructured", (2, 140): "Lambert equal area", (2, 150): "HEALPix",
}  # fmt: skip
"""Kinds of grids, by edition and the number that it has for them."""

SCANNING_MODE_AT = {(1, 0): 27, (2, 0): 71, (2, 10): 59, (2, 20): 64, (2, 30): 64}
"""The grids that gribberish reads, and the byte that says in which order their points are stored."""

EARTHS = (0, 1, 5, 6)
"""Shapes of the Earth for which gribberish has projections: spheres, and WGS84."""

SCANNING_MODES = {
    0x20: "with its points stored column by column",
    0x10: "with rows in alternating directions",
    0x0F: "with shifted rows",
}
"""Orders that gribberish takes for rows from one side to the other."""

WESTWARD = 0x80
CIRCLE = 360.0

SYMBOLS = re.compile(r"(kg|mm|Pa|pa|g|m|sr|s|K|J|W|N)(-?\d+)?")
DIMENSIONLESS = {
    "", "-", "~", "(0 - 1)", "BOOL", "nondim", "NonDim", "numeric", "proportion", "porportion", "fraction",
    "dimensionless",
}  # fmt: skip
MISTAKEN_UNITS = {"gm-2": "kg m-2", "kgm-1": "kg m-2"}
"""Units in gribberish's tables that differ from those of the standard."""

RATES = frozenset(("cprat", "tp", "sf", "rowe"))
"""Variables with the units of an amount in gribberish, which are rates unless they were accumulated."""

AXES = ("latitude", "longitude")
MAX_SHOWN = 6


def recognise(probe: FormatProbe, sources: Sources, group: str) -> VirtualFormat | None:
    """The format, if a file is GRIB."""
    start = probe.head.find(MAGIC, 0, HEADING_BYTES)
    is_grib = start >= 0 and probe.head[start + HEAD_BYTES - 1 : start + HEAD_BYTES] in (b"\1", b"\2")
    return VirtualFormat("grib", GRIBParser(sources), group) if is_grib else None


class GRIBParser(SourceParser):
    """The variables of a file, in groups."""

    def __call__(self, url: str, registry: Any) -> Any:
        parser = import_extra("gribberish.virtualizarr", "grib").GribberishParser()
        messages = {message.start: message for message in list_messages(self.sources.get(url))}
        unreadable = [message for message in messages.values() if message.problem]
        if unreadable and (
            len(unreadable) == len(messages) or not all(each.is_skipped for each in unreadable)
        ):
            raise IngestError(
                f"gribberish cannot read its grids: {_listed(each.problem for each in unreadable)}"
            )
        try:
            store = parser(url, registry)
        except BaseException as error:  # a panic in Rust is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise IngestError(
                f"gribberish cannot read it: {one_line(error)} ({_contents(messages.values())})"
            ) from error
        referenced: set[int] = set()
        in_group: dict[str, dict[str, list[Message]]] = {}
        arrays = [
            (f"{path}/".lstrip("/"), name, array)
            for path, node in with_groups_below(parsed_group(store)) for name, array in node.arrays.items()
        ]  # fmt: skip
        for group, name, array in arrays:
            path, attrs = f"{group}{name}", dict(array.metadata.attributes)
            if "unit" in attrs:
                unit = str(attrs.pop("unit"))
                self.attributes[path] = {"units": cf_units(unit, group, name)} | attrs
            is_data = array.metadata.codecs[0].to_dict()["name"] == "gribberish" and name not in AXES
            table = manifest_table(array.manifest)
            starts = table.offsets[table.lengths > 0].tolist()
            own = [messages[start] for start in starts if start in messages]
            if not is_data or not own:
                continue
            referenced.update(starts)
            in_group.setdefault(group, {})[name] = own
            further = sum(message.fields - 1 for message in own)
            if further:
                self.unread[f"{path} (further fields)"] = (
                    f"messages of {name!r} hold {further} fields more, and gribberish reads the first of each"
                )
        for group, variables in in_group.items():
            one, *others = {message.grid: message for own in variables.values() for message in own}.values()
            if others:  # any of them may have the coordinates
                why = "the fields of its group are on different grids"
                self.unread |= {f"{group}{name}": why for name in variables}
            self.values |= {f"{group}{name}": axis for name, axis in zip(AXES, one.axes(), strict=False)}
        skipped = [message for start, message in messages.items() if start not in referenced]
        if skipped:
            self.unread["(other messages)"] = (
                f"gribberish does not take {len(skipped)} of {len(messages)} messages ({_contents(skipped)})"
            )
        return store


def _contents(messages: Iterable[Message]) -> str:
    messages = list(messages)
    return f"{_listed(m.parameter for m in messages)}; grids: {_listed(m.grid_name for m in messages)}"


def _listed(texts: Iterable[str]) -> str:
    distinct = sorted(set(texts))
    return ", ".join(distinct[:MAX_SHOWN]) + (" and more" if len(distinct) > MAX_SHOWN else "")


def cf_units(unit: str, group: str = "", name: str = "") -> str:
    """Units as CF writes them, of what gribberish calls `unit`; a group and a name may tell more.

    >>> cf_units("kgm-2s-1"), cf_units("pa"), cf_units("kg m-2"), cf_units("proportion"), cf_units("dBZ")
    ('kg m-2 s-1', 'Pa', 'kg m-2', '1', 'dBZ')
    >>> cf_units("kgm-2", "sfc/instant/", "cprat")
    'kg m-2 s-1'
    """
    if unit in DIMENSIONLESS:
        return "1"
    if unit == "kgm-2" and name in RATES and group.endswith("instant/"):
        return "kg m-2 s-1"
    if SYMBOLS.sub("", unit):  # already in words, or in other symbols
        return unit
    parts = (symbol.replace("pa", "Pa") + power for symbol, power in SYMBOLS.findall(unit))
    return MISTAKEN_UNITS.get(unit, " ".join(parts))


class Message(NamedTuple):
    """One message of a file."""

    start: int
    edition: int
    fields: int
    """How many fields it holds: messages of edition 2 may hold several."""

    parameter: str
    """What its first field is, in the numbers of its tables."""

    grid: bytes
    """The definition of its grid."""

    @property
    def kind(self) -> tuple[int, int]:
        """The edition, and its number for the kind of grid."""
        return self.edition, _number(self.grid, *((5, 1) if self.edition == 1 else (12, 2)))

    @property
    def grid_name(self) -> str:
        edition, number = self.kind
        numbered = f"type {number} of edition 1" if edition == 1 else f"template 3.{number}"
        return f"{GRIDS[self.kind]} ({numbered})" if self.kind in GRIDS else numbered

    @property
    def is_skipped(self) -> bool:
        """Whether gribberish leaves it out because of its grid."""
        return self.edition == 2 and self.kind not in SCANNING_MODE_AT

    @property
    def problem(self) -> str:
        """The grid, if gribberish cannot read it, or would read it wrongly; otherwise nothing."""
        if not self.grid:
            return "one that its centre has a number for"
        if self.kind not in SCANNING_MODE_AT:
            return self.grid_name
        width = 2 if self.edition == 1 else 4
        if (1 << 8 * width) - 1 in self._numbers(*((6, 8) if self.edition == 1 else (30, 34)), width=width):
            return f"{self.grid_name} with rows of different lengths"
        if self.kind not in ((1, 0), (2, 0)) and (earth := _number(self.grid, 14, 1)) not in EARTHS:
            return f"{self.grid_name} on an Earth of shape {earth}"
        if self.kind == (2, 0):
            angle, parts = self._numbers(38, 42, width=4)
            if angle not in (0, 0xFFFFFFFF) and parts != angle * 1_000_000:
                return f"{self.grid_name} in units of its own"
        mode = self._scanning_mode
        return next((f"{self.grid_name} {text}" for bits, text in SCANNING_MODES.items() if mode & bits), "")

    def axes(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Latitudes and longitudes between the corners of a grid: its steps are rounded, or not given."""
        if self.kind == (1, 0):
            counts, ends, scale = self._numbers(8, 6, width=2), self._angles(10, 17, 13, 20, width=3), 1e3
        elif self.kind == (2, 0):
            counts, ends, scale = self._numbers(34, 30, width=4), self._angles(46, 55, 50, 59, width=4), 1e6
        else:
            return ()
        north, south, west, east = (each / scale for each in ends)  # if it begins there
        if counts[1] > 1 and self._scanning_mode & WESTWARD:
            east -= CIRCLE * (east >= west)
        elif counts[1] > 1:
            east += CIRCLE * (east <= west)
        latitude = np.linspace(north, south, counts[0]).round(9)
        longitude = np.linspace(west, east, counts[1]).round(9)
        longitude -= CIRCLE * (longitude >= CIRCLE)
        longitude += CIRCLE * (longitude < 0) * (west >= 0)
        return latitude, longitude

    @property
    def _scanning_mode(self) -> int:
        return _number(self.grid, SCANNING_MODE_AT[self.kind], 1)

    def _numbers(self, *at: int, width: int) -> list[int]:
        return [_number(self.grid, each, width) for each in at]

    def _angles(self, *at: int, width: int) -> list[int]:
        """Numbers whose first bit is a sign."""
        sign = 1 << (8 * width - 1)
        return [sign - each if each & sign else each for each in self._numbers(*at, width=width)]


def list_messages(content: bytes) -> Iterator[Message]:
    """The messages of a file of edition 1 or 2; what is no message between them is passed over."""
    start = content.find(MAGIC)
    while 0 <= start <= len(content) - HEAD_BYTES:
        edition = content[start + HEAD_BYTES - 1]
        describe = {1: _edition_1, 2: _edition_2}.get(edition)
        size = HEAD_BYTES
        if describe is not None:
            size, fields, parameter, grid = describe(content, start)
            yield Message(start, edition, fields, parameter, grid)
        start = content.find(MAGIC, start + max(size, HEAD_BYTES))


def _edition_1(content: bytes, start: int) -> tuple[int, int, str, bytes]:
    """The size of a message, the number of its fields, its parameter and its grid."""
    size, product = _number(content, start + 4, 3), start + HEAD_BYTES
    at = product + _number(content, product, 3)
    has_grid = bool(_number(content, product + 7, 1) & 0x80)
    grid = content[at : at + _number(content, at, 3)] if has_grid else b""
    is_long = bool(size & 0x80_00_00)  # then it counts in other units; the next message is searched for
    table, centre, parameter = (_number(content, product + octet, 1) for octet in (3, 4, 8))
    text = f"parameter {parameter} of table {table} of centre {centre}"
    return 0 if is_long else size, 1, text, grid


def _edition_2(content: bytes, start: int) -> tuple[int, int, str, bytes]:
    size, at, fields, grid, parameter = _number(content, start + 8, 8), start + 16, 0, b"", ""
    end = min(start + size, len(content))
    while at + 5 <= end and (length := _number(content, at, 4)) >= 5 and content[at : at + 4] != b"7777":
        section = content[at + 4]
        if section == 3:
            grid = content[at : at + length]
        if section == 4 and not parameter:
            template, category, number = (_number(content, at + o, w) for o, w in ((7, 2), (9, 1), (10, 1)))
            parameter = f"parameter {content[start + 6]}-{category}-{number} (template 4.{template})"
        fields += section == 7
        at += length
    return size, fields, parameter, grid


def _number(content: bytes, at: int, width: int) -> int:
    return int.from_bytes(content[at : at + width], "big")
