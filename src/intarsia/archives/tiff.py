"""TIFF: the first image of a file, by virtual_tiff, where it can be trusted.

virtual_tiff follows a list of images that bites its own tail for ever, and takes samples of 1 or 12 bits for
whole bytes: the header is looked at here first.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import IO, Any

from intarsia._compat import tiff_parser
from intarsia.archives.locations import Sources
from intarsia.errors import IngestError
from intarsia.extras import extra

BITS_PER_SAMPLE = 258
"""The tag that says how many bits the samples of a pixel have, as 16-bit numbers."""

WHOLE_BITS = frozenset((8, 16, 32, 64))
"""Samples that are numbers of NumPy."""

LONGEST_FILE = 1 << 62
"""What lies beyond can only be a damaged number."""


class _Header:
    """The lists of tags in a TIFF or BigTIFF file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        order, version = file.read(2), file.read(2)
        self._order = "<" if order == b"II" else ">"
        self._is_big = struct.unpack(f"{self._order}H", version) == (43,)
        self._field = 8 if self._is_big else 4
        self._entry = 20 if self._is_big else 12

    def _number(self, at: int, width: int) -> int:
        (number,) = self._numbers(at, 1, width)
        return number

    def _numbers(self, at: int, count: int, width: int) -> Sequence[int]:
        data = b""
        if at + count * width < LONGEST_FILE:
            self._file.seek(at)
            data = self._file.read(count * width)
        if len(data) < count * width:
            raise IngestError(f"the file is truncated: its header continues at byte {at}, which is not there")
        letter = {2: "H", 4: "I", 8: "Q"}[width]
        return struct.unpack(f"{self._order}{count}{letter}", data)

    def check(self) -> None:
        """Refuse a list of images without end, and samples that are not whole bytes."""
        at = self._number(8 if self._is_big else 4, self._field)
        seen: set[int] = set()
        while at:
            if at in seen:
                raise IngestError(f"its list of images is circular: after {len(seen)} it begins again")
            head = 8 if self._is_big else 2
            tags = self._number(at, head)
            if not seen:
                self._check_samples(at + head + self._entry * k for k in range(tags))
            seen.add(at)
            at = self._number(at + head + self._entry * tags, self._field)

    def _check_samples(self, entries: Iterable[int]) -> None:
        for entry in entries:
            if self._number(entry, 2) == BITS_PER_SAMPLE:
                count, value = self._number(entry + 4, self._field), entry + 4 + self._field
                place = value if 2 * count <= self._field else self._number(value, self._field)
                bits = set(self._numbers(place, count, 2))
                break
        else:
            bits = {1}  # as the specification has it
        if len(bits) > 1 or not bits <= WHOLE_BITS:
            listed = " and ".join(map(str, sorted(bits)))
            raise IngestError(f"its samples have {listed} bits; all must have 8, 16, 32 or 64")


class TIFFParser:
    """The first image of a TIFF file; `VirtualFormat` takes it as one of VirtualiZarr's parsers."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def __call__(self, url: str, registry: Any) -> Any:
        with self.sources.reader(url) as reader:
            _Header(reader).check()
        extra("virtual_tiff", "tiff")
        try:
            return tiff_parser()(url, registry)
        except Exception as error:  # of whatever class: some are made for panics of Rust
            raise IngestError(f"virtual_tiff cannot read it: {' '.join(str(error).split())}") from error
