"""TIFF: the first image of a file, as tifffile reads it.

Strips and tiles are referenced if codecs of virtual_tiff decode them to what tifffile reads. Otherwise, as
with samples of 12 bits, the image is copied.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
from zarr.codecs import BytesCodec, TransposeCodec

from intarsia.archives.formats.format import Format, SourceGroup, UnreadableError
from intarsia.archives.parsed_file import ChunkRanges, ParsedVariable, VariablePart
from intarsia.archives.plan.axis_union import Span
from intarsia.archives.source_files import FormatProbe, Sources, folder_of
from intarsia.display import one_line
from intarsia.errors import IngestError
from intarsia.extras import import_extra
from intarsia.manifest.box import chunk_grid

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
IMAGE = "0"
"""The name of the variable."""

DIMS = {"S": "band", "Y": "y", "X": "x"}
"""Names of axes, by the letters that tifffile has for them."""

BYTE_COMPRESSIONS = frozenset((5, 8, 32773, 32946, 34925, 50000, 50013))
"""LZW, Deflate (both numbers), PackBits, LZMA, Zstandard, and PixTIFF's Deflate: they compress any bytes.
Other decoders return pictures, in this machine's byte order."""

UNCOMPRESSED, LERC, WEBP, ZSTD = 1, 34887, 50001, 50000
JPEG = (7, 33007, 34892)
NO_PREDICTOR, *PREDICTORS = 1, 2, 3
DIFFERENCES, FLOAT_DIFFERENCES = PREDICTORS
RGB, LAST_PLAIN_COLOUR = 2, 5
"""Photometric interpretations up to this one store colours as they are; then comes YCbCr."""

MAX_COPIED = 1 << 30
"""The most bytes of an image that is decoded as a whole: a damaged file may claim any size."""

LERC_PARAMETERS, GDAL_METADATA, GDAL_NODATA = 50674, 42112, 42113
PLACEMENT = {33550: "model_pixel_scale", 33922: "model_tiepoint", 34264: "model_transformation"}
"""Tags that say where pixels are on the Earth, and the attributes that they become."""

GEO_KEYS = {
    "ProjectedCSType": "projected_type",
    "PCSCitation": "proj_citation",
    "VerticalCSType": "vertical",
    "GeogAngularUnitsSize": "geog_angular_unit_size",
}
"""Keys of GeoTIFF whose attributes have other names, as virtual_tiff has them."""


def recognise(probe: FormatProbe, sources: Sources, group: str) -> TIFF | None:
    """The format, if a file is TIFF or BigTIFF."""
    return TIFF(group) if probe.head.startswith(MAGIC) else None


class TIFF(Format):
    """Parses the first image of TIFF files."""

    name = "tiff"

    def __init__(self, group: str = "") -> None:
        self.group = group.strip("/")

    @contextmanager
    def open(self, url: str, sources: Sources, *, whole_tree: bool = False) -> Iterator[TIFFGroup]:
        """The image; there are no groups."""
        if self.group:
            raise IngestError(f"it has no group {self.group!r}")
        location = sources.location(url, folder_of(url))
        tifffile = import_extra("tifffile", "tiff")
        with sources.reader(url) as reader:
            try:
                group = TIFFGroup(tifffile.TiffFile(reader).pages.first, location)
            except IngestError:
                raise
            except Exception as error:  # of any class, if a file is damaged
                raise IngestError(f"tifffile cannot read it: {one_line(error)}") from error
            yield group


class TIFFGroup(SourceGroup):
    """The only group of a file, with its first image as the only variable."""

    def __init__(self, page: Any, url: str) -> None:
        self._page, self._url = page, url
        if page.dtype is None:
            raise IngestError(f"NumPy has no type for its samples of {page.bitspersample} bits")
        if not set(page.axes) <= DIMS.keys() or not math.prod(page.shape):
            raise IngestError(f"its image has the axes {page.axes} and the shape {page.shape}")
        sizes = dict(zip(page.axes, page.shape, strict=True))
        axes = [axis for axis in DIMS if axis in sizes]  # samples come first
        dims, shape = tuple(DIMS[axis] for axis in axes), tuple(sizes[axis] for axis in axes)
        self.variables = {
            IMAGE: ParsedVariable(IMAGE, "static", dims, shape, _attributes(page), _dtype(page))
        }

    def reference(self, variable: ParsedVariable) -> ParsedVariable:
        """The image with the ranges of its strips or tiles, or with the reason why only a copy will do."""
        page, axes = self._page, len(variable.shape)
        rows, width = page.imagelength, page.imagewidth
        inner = (page.tilelength, page.tilewidth) if page.is_tiled else (min(page.rowsperstrip, rows), width)
        is_interleaved = axes > 2 and page.planarconfig == 1
        chunks = (variable.shape[0] if is_interleaved else 1, *inner)[-axes:]
        grid = chunk_grid(variable.shape, chunks)
        is_short = not page.is_tiled and rows % inner[0] != 0
        for counted in (page.dataoffsets, page.databytecounts):
            if len(counted) != math.prod(grid):  # tifffile would not fill all of the image
                raise UnreadableError(f"it lists {len(counted)} strips or tiles instead of {math.prod(grid)}")
        reason = _reason_to_copy(page, is_interleaved, is_short)
        if not reason:
            offsets, lengths = (
                np.array(each, dtype=np.uint64).reshape(grid)
                for each in (page.dataoffsets, page.databytecounts)
            )
            stored = replace(
                variable,
                chunks=chunks,
                codecs=_codecs(page, chunks, is_interleaved),
                fill=variable.attrs.get("_FillValue", variable.dtype.type(0)),
                ranges=ChunkRanges(self._url, offsets, lengths),
            )
            stored = _with_short_strip(stored) if is_short else stored
            reason = _wrong_length(stored) if page.compression == UNCOMPRESSED else ""
            if not reason:
                return stored
        self.array(IMAGE)  # a file that nobody can read is refused before anything is written
        return replace(variable, chunks=tuple(min(n, 1 << 10) for n in variable.shape), reason=reason)

    def array(self, name: str) -> Any:
        """All samples, as tifffile reads them."""
        nbytes = math.prod(self._page.shape) * _dtype(self._page).itemsize
        if nbytes > MAX_COPIED:
            raise UnreadableError(f"it can only be copied as a whole, and has {nbytes >> 20} MiB")
        try:
            values: np.ndarray[Any, Any] = self._page.asarray()
        except Exception as error:  # of any class, from tifffile or imagecodecs
            raise UnreadableError(f"tifffile cannot read it: {one_line(error)}") from error
        return np.moveaxis(values, -1, 0) if self._page.axes.endswith("S") else values


def _wrong_length(image: ParsedVariable) -> str:
    """What is wrong if strips or tiles that are not compressed have more or fewer bytes than samples."""
    for stored in (image, *(part.stored for part in image.parts)):
        for length in np.unique(stored.ranges.lengths if stored.ranges else ()).tolist():
            if length not in (0, math.prod(stored.chunks) * stored.dtype.itemsize):
                return f"a strip or tile of {stored.chunks} samples has {length} bytes"
    return ""


def _with_short_strip(image: ParsedVariable) -> ParsedVariable:
    """An image of two parts: its last strip ends with it, without padding, and has a shape of its own."""
    *_, rows, _ = image.shape
    border = rows - rows % image.chunks[-2]
    parts = []
    for start, stop in ((0, border), (border, rows)):
        bounds = [(0, n) for n in image.shape]
        bounds[-2] = start, stop
        stored = image.crop(bounds)
        stored.chunks = *image.chunks[:-2], min(image.chunks[-2], stop - start), image.chunks[-1]
        spans = [(Span(a, b - a),) for a, b in bounds]
        parts.append(VariablePart(stored, dict(zip(image.dims, spans, strict=True))))
    return replace(image, ranges=None, parts=tuple(parts))


def _dtype(page: Any) -> np.dtype[Any]:
    """The type of samples in this machine's byte order; NumPy has several of the same size, Zarr one."""
    dtype: np.dtype[Any] = np.dtype(np.dtype(page.dtype).str).newbyteorder("=")
    return dtype


def _reason_to_copy(page: Any, is_interleaved: bool, is_short: bool) -> str:
    """Why the codecs of virtual_tiff do not give what tifffile reads; empty if they do."""
    known = import_extra("virtual_tiff.constants", "tiff").COMPRESSORS
    compression, predictor, dtype = int(page.compression), int(page.predictor), _dtype(page)
    is_picture = compression not in BYTE_COMPRESSIONS and compression != UNCOMPRESSED
    is_big = page.parent.byteorder == ">" and dtype.itemsize > 1
    lerc = page.tags.valueof(LERC_PARAMETERS)
    if page.bitspersample != dtype.itemsize * 8:
        return f"its samples have {page.bitspersample} bits"
    if page.fillorder != 1:
        return "the bits of its bytes are reversed"
    if compression not in known:
        return f"Zarr has no codec for its compression {compression}"
    if is_picture and is_big:
        return "its pictures are of big-endian numbers"
    if predictor != NO_PREDICTOR and (predictor not in PREDICTORS or compression not in BYTE_COMPRESSIONS):
        return f"it has the predictor {predictor} with the compression {compression}"
    if predictor == FLOAT_DIFFERENCES and (dtype.kind != "f" or is_interleaved or is_big or is_short):
        return "it has differences of floats that are interleaved, big-endian or in strips of several heights"
    if page.jpegtables is not None:
        return "its JPEG tables are stored once for all pictures"
    if page.photometric > LAST_PLAIN_COLOUR or (compression in JPEG and page.photometric > RGB):
        return f"its colours are stored as {page.photometric}"
    if compression == LERC and lerc and any(lerc[1:2]):
        return "it is LERC inside another compression"
    if compression == WEBP and page.extrasamples:
        return "its pictures may lack a sample"
    return ""


def _codecs(page: Any, chunks: tuple[int, ...], is_interleaved: bool) -> tuple[dict[str, Any], ...]:
    """How the bytes of a strip or tile become samples."""
    images = import_extra("virtual_tiff.imagecodecs", "tiff")
    dtype, compression = _dtype(page), int(page.compression)
    codecs: list[Any] = []
    if page.predictor == DIFFERENCES:
        codecs.append(import_extra("virtual_tiff.codecs", "tiff").HorizontalDeltaCodec())
    elif page.predictor == FLOAT_DIFFERENCES:
        codecs.append(images.FloatPredCodec(dtype=dtype.str, shape=chunks))
    if is_interleaved:
        codecs.append(TransposeCodec(order=(1, 2, 0)))
    endian: Any = "big" if page.parent.byteorder == ">" else "little"
    codecs.append(BytesCodec(endian=endian if dtype.itemsize > 1 else None))
    if compression == ZSTD:
        codecs.append(images.ZstdCodec(level=9))  # any level decodes all of them
    elif compression != UNCOMPRESSED:
        codecs.append(import_extra("virtual_tiff.constants", "tiff").COMPRESSORS[compression]())
    return tuple(codec.to_dict() for codec in codecs)


def _attributes(page: Any) -> dict[str, Any]:
    """Where pixels are on the Earth, what GDAL says about them, and which number means "missing"."""
    attrs: dict[str, Any] = {}
    for key, value in (page.geotiff_tags or {}).items():
        if str(key).endswith("GeoKey"):
            name = str(key).removesuffix("GeoKey").removeprefix("GT")
            snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
            attrs[GEO_KEYS.get(name, snake)] = int(value) if isinstance(value, int) else value
    for tag, name in PLACEMENT.items():
        if tag in page.tags:
            attrs[name] = np.ravel(page.tags.valueof(tag)).tolist()
    attrs["photometric_interpretation"] = int(page.photometric)
    if GDAL_METADATA in page.tags:
        with suppress(ElementTree.ParseError):  # GDAL does without it, too
            items = ElementTree.fromstring(page.tags.valueof(GDAL_METADATA)).findall("Item")
            attrs |= {item.get("name", ""): (item.text or "").strip() for item in items}
    if GDAL_NODATA in page.tags:
        attrs["gdal_no_data"] = page.tags.valueof(GDAL_NODATA)
    texts = [attrs.pop(name, "") for name in ("_FillValue", "missing_value")]
    fill = _number(attrs.get("gdal_no_data") or next(filter(None, texts), ""), _dtype(page))
    return attrs if fill is None else attrs | {"_FillValue": fill}


def _number(text: str, dtype: np.dtype[Any]) -> Any:
    """A number that GDAL wrote as text; None if samples cannot equal it."""
    try:
        return dtype.type(text) if text and dtype.kind in "iuf" else None
    except (ValueError, OverflowError):
        return None
