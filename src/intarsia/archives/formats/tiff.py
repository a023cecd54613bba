"""TIFF: the first image of a file, through virtual_tiff, if it can be trusted.

virtual_tiff follows a circular list of images for ever, takes samples of 1 or 12 bits for whole bytes, and
does not look at every tag that changes values. For a tag it allocates as much memory as the tag's count
claims, and the process ends if there is not enough. So the header is checked here first.
"""

import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from zarr.codecs import BytesCodec, TransposeCodec

from intarsia._compat import manifest_table, parse_tiff, parsed_group
from intarsia.archives.formats.virtualizarr import SourceParser, VirtualFormat
from intarsia.archives.source_files import FormatProbe, Sources
from intarsia.errors import IngestError
from intarsia.extras import import_extra

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag that decides whether an image can be read; those that are not listed do not change its values."""

    name: str
    values: tuple[int, ...] = ()
    """The values with which a file is accepted, if not all of them."""

    needed: bool = False
    """Whether a file without it is refused."""

    refused: bool = False
    """Whether a file with it is refused."""


BYTE_COMPRESSIONS = (5, 8, 32773, 32946, 34925, 50000, 50013)
"""LZW, Deflate (both numbers), PackBits, LZMA, Zstandard, and PixTIFF's Deflate: they compress any bytes."""

JPEG = (7, 33007, 34892)
LERC = 34887
BITS_PER_SAMPLE = 258
FLOATS = (3, 6)
"""Values of SampleFormat: floating-point and complex numbers."""

IMAGE_COMPRESSIONS = (
    *JPEG, LERC, 22610, 33003, 33004, 33005, 34712, 34933, 34934, 48124, 50001, 50002, 52546,
)  # fmt: skip
"""JPEG, LERC, JPEG XR, JPEG 2000, PNG, JetRaw, WebP, JPEG XL: decoders return this machine's numbers."""

TAGS = {
    256: Tag("ImageWidth", needed=True),
    257: Tag("ImageLength", needed=True),
    258: Tag("BitsPerSample", (8, 16, 32, 64)),
    259: Tag("Compression", (1, *sorted((*BYTE_COMPRESSIONS, *IMAGE_COMPRESSIONS)))),
    262: Tag("PhotometricInterpretation", (0, 1, 2, 3, 4, 5), needed=True),
    266: Tag("FillOrder", (1,)),
    273: Tag("StripOffsets"),
    277: Tag("SamplesPerPixel", needed=True),
    278: Tag("RowsPerStrip"),
    279: Tag("StripByteCounts"),
    284: Tag("PlanarConfiguration", (1, 2)),
    317: Tag("Predictor", (1, 2, 3)),
    322: Tag("TileWidth"),
    323: Tag("TileLength"),
    324: Tag("TileOffsets"),
    325: Tag("TileByteCounts"),
    330: Tag("SubIFDs", refused=True),
    338: Tag("ExtraSamples", (0, 1, 2)),
    339: Tag("SampleFormat", (1, 2, 3, 4, 6)),
    347: Tag("JPEGTables", refused=True),
    32997: Tag("ImageDepth", (1,)),
    32998: Tag("TileDepth", (1,)),
    50674: Tag("LercParameters"),
}
"""The tags that are checked, by number; docs/spec/ingest.md says of every tag what happens to it."""

DEFAULTS = {258: (1,), 259: (1,), 284: (1,), 317: (1,), 339: (1,), 50674: (0, 0)}
"""What a file means that does not have these tags."""

OF_EVERY_IMAGE = (256, 257, 262, 277, 338)
"""virtual_tiff reads all images before it takes the first, and fails if one of these is absent or unknown."""

SEPARATE = 2
"""The value of PlanarConfiguration for samples that are not interleaved."""

STRIPS, TILES = (273, 278, 279), (322, 323, 324, 325)
COMPARED = (256, 257, 277, 278, 322, 323, 50674)
"""Tags with any value that are compared with others."""

ADVICE = "GDAL or tifffile can write a copy in a form that can be ingested"

MAX_LISTED = 8
"""A refusal lists at most so many values that are accepted."""

TYPE_BYTES = {
    **dict.fromkeys((1, 2, 6, 7), 1),
    **dict.fromkeys((3, 8), 2),
    **dict.fromkeys((4, 9, 11, 13), 4),
    **dict.fromkeys((5, 10, 12, 16, 17, 18), 8),
}
"""The size in bytes of a value of each type, by the number of the type."""

MAX_TAGS = 1 << 20
"""The most tags of all images of a file: enough for fifty thousand images with twenty each."""

SHARED_BYTES = 1 << 24
"""Images may share tag values, which then add up to more bytes than the file has: at most this many."""


class _Entry(NamedTuple):
    """A tag in an image's list."""

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
        """Refuse endless lists of images, tags that the file cannot hold, and values that cannot be read."""
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
            if tags > MAX_TAGS:
                raise IngestError(f"its images have {tags} tags or more; at most {MAX_TAGS} can be read")
            listed = list(self._tags(at + head, count))
            nbytes += sum(tag.nbytes for tag in listed)
            if nbytes > max(self._size, SHARED_BYTES):
                raise IngestError(f"its tags have {nbytes} bytes or more, but the file has {self._size}")
            self._check_image(listed, len(seen))
            seen.add(at)
            at = self._number(at + head + self._entry.size * count, self._field)

    def _tags(self, at: int, count: int) -> Iterator[_Entry]:
        entries = self._entry.iter_unpack(self._bytes(at, count * self._entry.size))
        for index, (number, kind, values, stored) in enumerate(entries):
            if kind not in TYPE_BYTES:
                raise IngestError(f"its tag {number} has the type {kind}, which TIFF does not have")
            inside = at + index * self._entry.size + 4 + self._field
            width = TYPE_BYTES[kind]
            tag = _Entry(number, width, values, inside if width * values <= self._field else stored)
            if tag.place + tag.nbytes > self._size:
                raise IngestError(
                    f"its tag {number} claims {values} values of {width} bytes at byte {tag.place}, "
                    f"but the file has {self._size} bytes"
                )
            yield tag

    def _check_image(self, entries: Sequence[_Entry], image: int) -> None:
        """Refuse an image with tags or values that cannot be read; images after the first need less."""
        place = f" of image {image + 1}" if image else ""
        found = {entry.number: entry for entry in entries}
        values: dict[int, Sequence[int]] = {}
        for key in OF_EVERY_IMAGE if image else TAGS:
            tag, entry = TAGS[key], found.get(key)
            named = f"the tag {tag.name} ({key}){place}"
            if tag.needed and (entry is None or not entry.length):
                raise IngestError(f"it lacks {named}: {ADVICE}")
            if tag.refused and entry is not None:
                raise IngestError(f"it has {named}, which is not supported: {ADVICE}")
            values[key] = DEFAULTS.get(key, ())
            if entry is not None and entry.length and (tag.values or key in COMPARED):
                values[key] = self._numbers(entry.place, entry.length, entry.width)
            others = [each for each in values[key] if tag.values and each not in tag.values]
            if others or (key == BITS_PER_SAMPLE and len(set(values[key])) > 1):
                raise IngestError(_value_problem(key, values[key], place))
        if not image:
            self._check_layout(found, values)
            self._check_encoding(values)

    def _check_layout(self, found: Mapping[int, _Entry], values: Mapping[int, Sequence[int]]) -> None:
        """Refuse an image that is neither tiles nor strips of equal height."""
        needed = TILES if not found.keys().isdisjoint(TILES) else STRIPS
        for number in needed:
            if number not in found or not found[number].length:
                raise IngestError(f"it lacks the tag {TAGS[number].name} ({number}): {ADVICE}")
        (width, *_), (height, *_) = values[256], values[257]
        if needed == TILES:
            across, rows = values[322][0], values[323][0]
        else:
            across, rows = width, min(values[278][0], height)
        if not (width and height and across and rows):
            raise IngestError(f"it has {height} rows of {width} pixels, in parts of {rows} rows of {across}")
        if needed == STRIPS and height % rows:
            raise IngestError(
                f"its {height} rows are in strips of {rows}, but strips must have the same number of rows: "
                f"{ADVICE}, such as in tiles"
            )
        planes = values[277][0] if values[284][0] == SEPARATE else 1
        count = -(-width // across) * -(-height // rows) * planes
        for number in (324, 325) if needed == TILES else (273, 279):
            if found[number].length != count:
                raise IngestError(
                    f"its tag {TAGS[number].name} ({number}) has {found[number].length} values instead of "
                    f"{count}: {ADVICE}"
                )

    def _check_encoding(self, values: Mapping[int, Sequence[int]]) -> None:
        """Refuse combinations of tags that virtual_tiff would read wrongly."""
        (bits, *_), (form, *_), (predictor, *_) = values[BITS_PER_SAMPLE], values[339], values[317]
        compression, interleaved = values[259][0], values[284][0] != SEPARATE and values[277][0] > 1
        is_float, problem = form in FLOATS, ""
        if len(set(values[339])) > 1:
            problem = f"its samples have different formats (SampleFormat {', '.join(map(str, values[339]))})"
        elif bits == 64 and not is_float:
            problem = "its samples are integers of 64 bits"
        elif bits == 8 and is_float:
            problem = "its samples are floating-point numbers of 8 bits"
        elif predictor > 1 and compression not in BYTE_COMPRESSIONS:
            problem = f"it has Predictor (317) {predictor} with Compression (259) {compression}"
        elif predictor == 3 and not is_float:
            problem = (
                "it has Predictor (317) 3, which is for floating-point numbers, but its samples are integers"
            )
        elif predictor == 3 and (interleaved or self._order == ">"):
            why = "interleaved samples" if interleaved else "big-endian numbers"
            problem = f"it has Predictor (317) 3 with {why}"
        elif compression in IMAGE_COMPRESSIONS and bits > 8 and self._order == ">":
            problem = f"it has Compression (259) {compression} with big-endian numbers of {bits} bits"
        elif compression in JPEG and values[262][0] > 2:
            problem = f"it is a JPEG with PhotometricInterpretation (262) {values[262][0]}"
        elif compression == LERC and any(values[50674][1:2]):
            problem = f"it is LERC inside another compression (LercParameters {values[50674][1]})"
        if problem:
            raise IngestError(f"{problem}, which is not supported: {ADVICE}")


def _value_problem(number: int, values: Sequence[int], place: str) -> str:
    """Why an image with these values of a tag is refused."""
    tag, listed = TAGS[number], " and ".join(map(str, sorted(set(values))))
    if number == BITS_PER_SAMPLE:
        return f"its samples have {listed} bits; all must have 8, 16, 32 or 64: {ADVICE}"
    allowed = ", ".join(map(str, tag.values))
    rule = f"only {allowed} can be read" if len(tag.values) <= MAX_LISTED else "that cannot be read"
    return f"its tag {tag.name} ({number}){place} is {listed}, and {rule}: {ADVICE}"


def recognise(probe: FormatProbe, sources: Sources, group: str) -> VirtualFormat | None:
    """The format, if a file is TIFF or BigTIFF."""
    return VirtualFormat("tiff", TIFFParser(sources), group) if probe.head.startswith(MAGIC) else None


class TIFFParser(SourceParser):
    """The first image of a TIFF file."""

    def __call__(self, url: str, registry: Any) -> Any:
        with self.sources.reader(url) as reader:
            _Header(reader).check()
        import_extra("virtual_tiff", "tiff")
        try:
            store = parse_tiff(url, registry)
        except Exception as error:  # of any class: some stand for panics in Rust
            text = " ".join(str(error).split())
            if "panicked" in text:
                text = "one of its images has tags that async_tiff does not expect"
            raise IngestError(f"virtual_tiff cannot read it: {text} ({ADVICE})") from error
        for array in parsed_group(store).arrays.values():
            _check_lengths(array)
        return store


def _check_lengths(array: Any) -> None:
    """Refuse tiles or strips that are not compressed and have more or fewer bytes than their samples take."""
    metadata = array.metadata
    if not all(isinstance(codec, BytesCodec | TransposeCodec) for codec in metadata.codecs):
        return
    chunk_shape = metadata.chunk_grid.chunk_shape
    needed = math.prod(chunk_shape) * array.dtype.itemsize
    _, _, lengths, _ = manifest_table(array.manifest)
    wrong = lengths[(lengths != 0) & (lengths != needed)]
    if wrong.size:
        raise IngestError(
            f"a tile or strip of {'x'.join(map(str, chunk_shape))} samples has {wrong[0]} bytes instead of "
            f"{needed}: {ADVICE}"
        )
