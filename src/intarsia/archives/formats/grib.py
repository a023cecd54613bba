"""GRIB: every message is a chunk, which gribberish's codec decodes.

Its groups are kinds of levels and products, such as `sfc/instant`. gribberish skips messages and fields that
it cannot read without a word, and takes the grid of a variable from its first message. So messages are listed
here, too, and what it leaves out is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from intarsia._compat import manifest_table, parsed_group
from intarsia.archives.formats.virtualizarr import SourceParser, VirtualFormat
from intarsia.archives.source_files import FormatProbe, Sources
from intarsia.display import one_line
from intarsia.errors import IngestError
from intarsia.extras import import_extra

MAGIC = b"GRIB"
HEAD_BYTES = 8
"""Magic, length and edition of a message of edition 1."""

GRIDS = {
    0: "latitude and longitude", 1: "rotated latitude and longitude", 3: "Lambert", 4: "Gaussian",
    5: "polar stereographic", 10: "Mercator", 20: "polar stereographic", 30: "Lambert", 40: "Gaussian",
    50: "spherical harmonics", 90: "space view", 101: "unstructured",
}  # fmt: skip
"""Kinds of grids, by the numbers that editions 1 and 2 have for them."""


UNREADABLE_GRIDS = frozenset(("Gaussian", "spherical harmonics"))
"""Kinds for which gribberish has no coordinates, or wrong ones."""


def recognise(probe: FormatProbe, sources: Sources, group: str) -> VirtualFormat | None:
    """The format, if a file is GRIB."""
    return VirtualFormat("grib", GRIBParser(sources), group) if probe.head.startswith(MAGIC) else None


class GRIBParser(SourceParser):
    """The variables of a file, in groups."""

    def __call__(self, url: str, registry: Any) -> Any:
        parser = import_extra("gribberish.virtualizarr", "grib").GribberishParser()
        messages = {message.start: message for message in list_messages(self.sources.get(url))}
        names = {message.grid_name for message in messages.values()}
        if names & UNREADABLE_GRIDS:
            raise IngestError(f"gribberish cannot read its grids: {', '.join(names & UNREADABLE_GRIDS)}")
        try:
            store = parser(url, registry)
        except BaseException as error:  # a panic in Rust is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise IngestError(
                f"gribberish cannot read it: {one_line(error)} (its grids: {', '.join(sorted(names))})"
            ) from error
        referenced: set[int] = set()
        for path, array in _data_arrays(parsed_group(store), ""):
            table = manifest_table(array.manifest)
            starts = table.offsets[table.lengths > 0].tolist()
            own = [messages[start] for start in starts if start in messages]
            referenced.update(starts)
            if len({message.grid for message in own}) > 1:
                self.unread[path] = "its fields are on different grids"
            further = sum(message.fields - 1 for message in own)
            if further:
                self.unread[f"{path} (further fields)"] = (
                    f"messages of {path.rpartition('/')[2]!r} hold {further} fields more, "
                    "and gribberish reads the first of each"
                )
        skipped = [message for start, message in messages.items() if start not in referenced]
        if skipped:
            kinds = ", ".join(sorted({message.grid_name for message in skipped}))
            self.unread["(other messages)"] = (
                f"gribberish does not take {len(skipped)} of {len(messages)} messages (grids: {kinds})"
            )
        return store


def _data_arrays(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The arrays whose chunks are messages, with their paths."""
    for name, array in node.arrays.items():
        if array.metadata.codecs[0].to_dict()["name"] == "gribberish":
            yield f"{path}{name}", array
    for name, group in node.groups.items():
        yield from _data_arrays(group, f"{path}{name}/")


class Message(NamedTuple):
    """One message of a file."""

    start: int
    fields: int
    """How many fields it holds: messages of edition 2 may hold several."""

    grid: bytes
    """The definition of its grid."""

    grid_name: str


def list_messages(content: bytes) -> Iterator[Message]:
    """The messages of a file of edition 1 or 2; what is no message between them is passed over."""
    start = content.find(MAGIC)
    while 0 <= start <= len(content) - HEAD_BYTES:
        describe = {1: _edition_1, 2: _edition_2}.get(content[start + HEAD_BYTES - 1])
        size = HEAD_BYTES
        if describe is not None:
            size, fields, grid, kind = describe(content, start)
            yield Message(start, fields, grid, GRIDS.get(kind, f"number {kind}"))
        start = content.find(MAGIC, start + max(size, HEAD_BYTES))


def _edition_1(content: bytes, start: int) -> tuple[int, int, bytes, int]:
    """The size of a message, the number of its fields, its grid and the kind of its grid."""
    size, product = _number(content, start + 4, 3), start + HEAD_BYTES
    at = product + _number(content, product, 3)
    has_grid = bool(_number(content, product + 7, 1) & 0x80)
    grid = content[at : at + _number(content, at, 3)] if has_grid else b""
    is_long = bool(size & 0x80_00_00)  # then it counts in other units; the next message is searched for
    return 0 if is_long else size, 1, grid, _number(grid, 5, 1)


def _edition_2(content: bytes, start: int) -> tuple[int, int, bytes, int]:
    size, at, fields, grid = _number(content, start + 8, 8), start + 16, 0, b""
    end = min(start + size, len(content))
    while at + 5 <= end and (length := _number(content, at, 4)) >= 5 and content[at : at + 4] != b"7777":
        section = content[at + 4]
        if section == 3:
            grid = content[at : at + length]
        fields += section == 7
        at += length
    return size, fields, grid, _number(grid, 12, 2)


def _number(content: bytes, at: int, width: int) -> int:
    return int.from_bytes(content[at : at + width], "big")
