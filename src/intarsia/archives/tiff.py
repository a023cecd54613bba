"""TIFF: the first image of a file, through virtual_tiff, if it can be trusted.

virtual_tiff follows a circular list of images for ever, and takes samples of 1 or 12 bits for whole bytes.
For a tag it allocates as much memory as the tag's count claims, and the process ends if there is not enough.
So the header is checked here first.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from intarsia._compat import tiff_parser
from intarsia.archives.locations import Sources
from intarsia.errors import IngestError
from intarsia.extras import extra

BITS_PER_SAMPLE = 258
"""The tag that says how many bits the samples of a pixel have, as 16-bit numbers."""

WHOLE_BITS = frozenset((8, 16, 32, 64))
"""The sizes of samples that are NumPy numbers."""

TYPE_BYTES = {
    **dict.fromkeys((1, 2, 6, 7), 1),
    **dict.fromkeys((3, 8), 2),
    **dict.fromkeys((4, 9, 11, 13), 4),
    **dict.fromkeys((5, 10, 12, 16, 17, 18), 8),
}
"""The size in bytes of a value of each type, by the number of the type."""

MOST_TAGS = 1 << 20
"""The most tags of all images of a file: enough for fifty thousand images with twenty each."""

SHARED_BYTES = 1 << 24
"""Images may share tag values, which then add up to more bytes than the file has: at most this many."""


class _Tag(NamedTuple):
    """An entry of an image's list."""

    number: int
    width: int
    """The size of one value in bytes."""

    length: int
    place: int
    """Where the values are."""

    @property
    def nbytes(self) -> int:
        return self.width * self.length


class _Header:
    """The lists of tags in a TIFF or BigTIFF file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        order, version = file.read(2), file.read(2)
        self._size = file.seek(0, os.SEEK_END)
        self._order = "<" if order == b"II" else ">"
        self._is_big = struct.unpack(f"{self._order}H", version) == (43,)
        self._field = 8 if self._is_big else 4
        self._entry = struct.Struct(f"{self._order}HH{'QQ' if self._is_big else 'II'}")

    def _bytes(self, at: int, count: int) -> bytes:
        data = b""
        if at + count <= self._size:
            self._file.seek(at)
            data = self._file.read(count)
        if len(data) < count:
            raise IngestError(
                f"the file is truncated: its header continues at byte {at}, which is beyond its end"
            )
        return data

    def _number(self, at: int, width: int) -> int:
        (number,) = self._numbers(at, 1, width)
        return number

    def _numbers(self, at: int, count: int, width: int) -> Sequence[int]:
        letter = {1: "B", 2: "H", 4: "I", 8: "Q"}[width]
        return struct.unpack(f"{self._order}{count}{letter}", self._bytes(at, count * width))

    def check(self) -> None:
        """Refuse endless lists of images, tags that the file cannot hold, and samples of odd bit sizes."""
        at = self._number(8 if self._is_big else 4, self._field)
        if not at:
            raise IngestError("it has no image: its header does not point to a list of tags")
        seen: set[int] = set()
        tags = nbytes = 0
        while at:
            if at in seen:
                raise IngestError(f"its list of images is circular: after {len(seen)} it begins again")
            head = 8 if self._is_big else 2
            count = self._number(at, head)
            tags += count
            if tags > MOST_TAGS:
                raise IngestError(f"its images have {tags} tags or more; at most {MOST_TAGS} can be read")
            listed = list(self._tags(at + head, count))
            nbytes += sum(tag.nbytes for tag in listed)
            if nbytes > max(self._size, SHARED_BYTES):
                raise IngestError(f"its tags have {nbytes} bytes or more, but the file has {self._size}")
            if not seen:
                self._check_samples(listed)
            seen.add(at)
            at = self._number(at + head + self._entry.size * count, self._field)

    def _tags(self, at: int, count: int) -> Iterator[_Tag]:
        entries = self._entry.iter_unpack(self._bytes(at, count * self._entry.size))
        for index, (number, kind, values, stored) in enumerate(entries):
            if kind not in TYPE_BYTES:
                raise IngestError(f"its tag {number} has the type {kind}, which TIFF does not have")
            inside = at + index * self._entry.size + 4 + self._field
            width = TYPE_BYTES[kind]
            tag = _Tag(number, width, values, inside if width * values <= self._field else stored)
            if tag.place + tag.nbytes > self._size:
                raise IngestError(
                    f"its tag {number} claims {values} values of {width} bytes at byte {tag.place}, "
                    f"but the file has {self._size} bytes"
                )
            yield tag

    def _check_samples(self, tags: Sequence[_Tag]) -> None:
        found = next((tag for tag in tags if tag.number == BITS_PER_SAMPLE), None)
        bits = {1}  # as in the specification
        if found is not None:
            bits = set(self._numbers(found.place, found.length, found.width))
        if len(bits) > 1 or not bits <= WHOLE_BITS:
            listed = " and ".join(map(str, sorted(bits)))
            raise IngestError(f"its samples have {listed} bits; all must have 8, 16, 32 or 64")


class TIFFParser:
    """The first image of a TIFF file; `VirtualFormat` uses it like one of VirtualiZarr's parsers."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def __call__(self, url: str, registry: Any) -> Any:
        with self.sources.reader(url) as reader:
            _Header(reader).check()
        extra("virtual_tiff", "tiff")
        try:
            return tiff_parser()(url, registry)
        except Exception as error:  # of any class: some stand for panics in Rust
            raise IngestError(f"virtual_tiff cannot read it: {' '.join(str(error).split())}") from error
