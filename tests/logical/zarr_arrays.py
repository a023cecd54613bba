"""Random Zarr arrays of every kind, written by zarr-python."""

import numcodecs
import numpy as np
import zarr
from hypothesis import strategies as st
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

import intarsia
from intarsia.codecs import PadCodec, ShuffleCodec

PLAIN = ["bool", "int8", "uint16", "int32", "float32", "float64", "complex64"]
TIMES = ["datetime64[s]", "timedelta64[ns]"]
TEXTS = ["U3", "S4", str]
STRUCTURED = np.dtype([("a", "i4"), ("b", "f8")])

COMPRESSORS = [
    (),
    (ZstdCodec(level=1),),
    (GzipCodec(level=1),),
    (BloscCodec(cname="lz4", typesize=1),),
    (ZstdCodec(), Crc32cCodec()),
    (PadCodec(location="end", nbytes=3, padding=b"abc"), ZstdCodec()),
    (ShuffleCodec(element_size=1), GzipCodec()),
]
COMPRESSORS_2 = [
    None,
    numcodecs.Blosc(),
    numcodecs.Zstd(),
    numcodecs.GZip(),
    numcodecs.Zlib(),
    numcodecs.BZ2(),
    numcodecs.LZMA(),
    numcodecs.LZ4(),
]


def values(draw, dtype, shape):
    """Values of a data type, with runs, so that some chunks hold nothing but the fill value."""
    size = int(np.prod(shape))
    numbers = (np.arange(size) // draw(st.integers(1, 9)) % 120).reshape(shape)
    if dtype == STRUCTURED:
        made = np.zeros(shape, dtype=dtype)
        made["a"], made["b"] = numbers, -numbers
        return made
    if dtype is str:
        return numbers.astype(str).astype(np.dtypes.StringDType())
    return numbers.astype(str).astype(dtype) if np.dtype(dtype).kind in "US" else numbers.astype(dtype)


@st.composite
def shapes(draw, max_ndim=3):
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=max_ndim)))
    return shape, tuple(draw(st.integers(1, 4)) for _ in shape)


@st.composite
def format_3(draw):
    shape, chunks = draw(shapes())
    dtype = draw(st.sampled_from([*PLAIN, *TIMES, *TEXTS, STRUCTURED]))
    options = {}
    grid = draw(st.sampled_from(["chunks", "shards", "nested shards", "rectilinear"]))
    plain = dtype in PLAIN
    compressors = draw(st.sampled_from(COMPRESSORS if plain else COMPRESSORS[:3]))
    order = tuple(reversed(range(len(shape))))
    filters = (TransposeCodec(order=order),) if plain and shape and draw(st.booleans()) else ()
    if grid == "shards" and shape:
        options["shards"] = tuple(n * draw(st.integers(1, 3)) for n in chunks)
    if grid == "nested shards" and shape and plain:
        inner = [*filters, BytesCodec(), *compressors]
        middle = tuple(n * draw(st.integers(1, 2)) for n in chunks)
        codec = ShardingCodec(chunk_shape=middle, codecs=[ShardingCodec(chunk_shape=chunks, codecs=inner)])
        chunks = tuple(n * draw(st.integers(1, 2)) for n in middle)
        options["serializer"] = codec
        filters = compressors = ()
    if grid == "rectilinear" and shape and all(shape):
        chunks = [draw(edges(n)) for n in shape]
    return _written(
        draw, dtype, shape, chunks, filters=filters or None, compressors=compressors or None, **options
    )


@st.composite
def edges(draw, length):
    """Sizes of chunks that make up an axis."""
    sizes = []
    while sum(sizes) < length:
        sizes.append(draw(st.integers(1, 4)))
    sizes[-1] -= sum(sizes) - length
    return sizes


@st.composite
def format_2(draw):
    shape, chunks = draw(shapes())
    dtype = draw(st.sampled_from([*PLAIN, ">i4", ">f8", "<u2", *TIMES, *TEXTS, STRUCTURED]))
    compressor = draw(st.sampled_from(COMPRESSORS_2))
    options = {"order": draw(st.sampled_from("CF"))}
    if dtype == "int32" and draw(st.booleans()):
        options["filters"] = [numcodecs.Delta("int32")]
    if draw(st.booleans()):
        options["chunk_key_encoding"] = {"name": "v2", "separator": "/"}
    if dtype in PLAIN:
        options["fill_value"] = draw(st.sampled_from([None, 0, 1]))
    return _written(draw, dtype, shape, chunks, compressors=compressor, zarr_format=2, **options)


def _written(draw, dtype, shape, chunks, **options):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.create_array({}, shape=shape, chunks=chunks, dtype=dtype, **options)
        if draw(st.integers(0, 5)):
            written = tuple(slice(draw(st.integers(0, 3)), None) for _ in shape)
            array[written or ...] = values(draw, dtype, shape)[written or ...]
    return array


@st.composite
def nullable(draw):
    shape, chunks = draw(shapes())
    dtype = draw(st.sampled_from(["int32", "float64", "bool", str]))
    array = intarsia.nullable.create_array({}, shape=shape, chunks=chunks, dtype=dtype)
    if draw(st.booleans()):
        size = int(np.prod(shape))
        missing = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=bool)
        array[...] = np.ma.masked_array(values(draw, dtype, shape), missing.reshape(shape))
    return array


def arrays():
    """Any of them, but for the nullable ones."""
    return format_3() | format_2()
