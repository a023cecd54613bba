"""Chunks, through every codec and every nesting: of logical, nullable and plain arrays."""

import warnings
from dataclasses import dataclass

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype

import intarsia
from intarsia import nullable
from intarsia.codecs import ConditionalCodec, OffsetCodec, PackBitsCodec, PadCodec, ReshapeCodec, ShuffleCodec
from soak.damage.verdict import judged
from soak.mutations import bombs, damaged
from soak.target import Target

BUFFER = default_buffer_prototype().buffer
SHAPE, CHUNK = (24, 40), (12, 20)


def blosc(cname, shuffle):
    return {
        "name": "blosc",
        "configuration": {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 4},
    }


def named(name, **configuration):
    return {"name": name, "configuration": configuration}


BYTES = named("bytes", endian="little")
GZIP, ZSTD, CRC = named("gzip", level=5), named("zstd", level=3, checksum=False), named("crc32c")
COMPRESSORS = [
    GZIP,
    ZSTD,
    named("zstd", level=1, checksum=True),
    *(blosc(cname, "shuffle") for cname in ("lz4", "lz4hc", "blosclz", "zlib", "zstd")),
    *(blosc("lz4", shuffle) for shuffle in ("noshuffle", "bitshuffle")),
    *(named(f"numcodecs.{name}") for name in ("zlib", "bz2", "lzma", "lz4", "zstd", "gzip", "blosc")),
    *(named(f"numcodecs.{name}") for name in ("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3")),
    named("numcodecs.shuffle", elementsize=4),
    CRC,
]
"""Codecs from bytes to bytes, one at a time."""

OURS = [
    PadCodec(location="start", nbytes=8),
    PadCodec(location="end", nbytes=3),
    OffsetCodec(offset=4),
    ShuffleCodec(element_size=4),
    ConditionalCodec(codecs=[GZIP], decision="always_apply"),
    ConditionalCodec(codecs=[ZSTD, CRC, blosc("lz4", "shuffle")], decision="always_apply"),
    ConditionalCodec(codecs=[named("numcodecs.lz4"), named("numcodecs.bz2")], decision="compress_if_smaller"),
    ConditionalCodec(codecs=[], header_bits=8),
    ConditionalCodec(codecs=[ConditionalCodec(codecs=[ZSTD]), GZIP], header_bits=64, decision="always_apply"),
]


def chains():
    """Lists of codecs: one, two, three, nested."""
    yield from ([codec] for codec in (*COMPRESSORS, *OURS))
    yield []
    of_any_length = [codec for codec in OURS if not isinstance(codec, ShuffleCodec)]
    yield from ([CRC, codec] for codec in (GZIP, ZSTD, COMPRESSORS[3], *of_any_length))
    yield from ([codec, CRC] for codec in (GZIP, ZSTD, COMPRESSORS[3], *OURS))
    yield from (
        [one, other] for one in (GZIP, ZSTD, OURS[0], OURS[5]) for other in (GZIP, ZSTD, *of_any_length)
    )
    yield [named("transpose", order=[1, 0]), named("bytes", endian="big"), CRC, GZIP, OURS[0], ZSTD]
    yield [named("numcodecs.delta", dtype="<i4"), BYTES, ZSTD]
    yield [named("numcodecs.fixedscaleoffset", offset=0, scale=1, dtype="<i4"), BYTES]
    yield [PackBitsCodec(), GZIP]
    yield [PackBitsCodec(first_bit=0, last_bit=20, padding_encoding="first_byte")]
    yield [ReshapeCodec(shape=[[0, 1]]), BYTES, ZSTD]
    for inner in ([BYTES], [BYTES, ZSTD, CRC], [PackBitsCodec()]):
        yield [
            named(
                "sharding_indexed", chunk_shape=[6, 10], index_location="end",
                codecs=[_json(c) for c in inner],
                index_codecs=[BYTES, CRC],
            ),
            ZSTD,
        ]  # fmt: skip


def _json(codec):
    return codec if isinstance(codec, dict) else codec.to_dict()


@dataclass
class Stored:
    """An array in memory, and the keys of its chunks."""

    array: object
    chunks: dict
    """From keys to the bytes as they were written."""
    dtype: object
    shape: tuple
    names: tuple


def keys_of(store, below=""):
    """The chunks of a store."""
    return {
        key: value.to_bytes()
        for key, value in store._store_dict.items()
        if key.startswith(below) and not key.endswith((".json", ".zarray", ".zattrs", ".zgroup"))
    }


def logical(codecs, values):
    store = zarr.storage.MemoryStore()
    array = intarsia.create(store, "a", shape=values.shape, chunks=CHUNK[: values.ndim], dtype=values.dtype)
    array.append(values, codecs=list(codecs)) if array.shape[0] == 0 else array.add_region(
        [(0, n) for n in values.shape], codecs=list(codecs), data=values
    )
    array = intarsia.open(store, "a")
    return Stored(array, keys_of(store), array.dtype, values.shape, ("m-",)), store


class Damages:
    """Runs cases on some arrays: one chunk of one of them is damaged, read, and as it was again."""

    def __init__(self, made):
        self._made = made
        self._bytes = [bytes(data) for stored, _ in made for data in stored.chunks.values()]
        bombs()

    def __call__(self, _number, rng):
        stored, store = rng.choice(self._made)
        key = rng.choice(list(stored.chunks))
        plain = stored.chunks[key]
        others = [*stored.chunks.values(), rng.choice(self._bytes)]
        store._store_dict[key] = BUFFER.from_bytes(damaged(plain, rng, others))
        try:
            return judged(lambda: stored.array[...], stored.shape, stored.dtype, *stored.names)
        finally:
            store._store_dict[key] = BUFFER.from_bytes(plain)


def values_of(kind="<i4", shape=SHAPE):
    return (np.arange(np.prod(shape)) * 7 % 251).reshape(shape).astype(kind)


def quiet(prepare):
    """zarr warns of codecs without a specification; these are made on purpose."""

    def prepared(folder, seed):
        warnings.simplefilter("ignore")
        return prepare(folder, seed)

    return prepared


@quiet
def prepare_logical(_folder, _seed):
    return Damages([logical(codecs, values_of()) for codecs in chains()])


def texts(shape):
    return np.array([f"text {i}" * (i % 4) for i in range(int(np.prod(shape)))], dtype=object).reshape(shape)


@quiet
def prepare_kinds(_folder, _seed):
    """Other data types than numbers of four bytes."""
    made = [
        logical(codecs, values_of(kind))
        for kind in ("u1", "<f8", "<i2", "<c16", "bool", ">f4", "M8[s]")
        for codecs in ([ZSTD], [GZIP, CRC], [])
    ]
    for codecs in ([], [ZSTD], [GZIP], [CRC, ZSTD], OURS[4:5]):
        made.append(logical([named("vlen-utf8"), *codecs], texts(SHAPE).astype(np.dtypes.StringDType())))
        made.append(logical([named("packbits"), *codecs], values_of("bool")))
    return Damages(made)


def a_nullable(**options):
    store = zarr.storage.MemoryStore()
    nullable.create_array(store, "a", **options)
    array = nullable.open_array(store, "a", mode="r")
    shape = array.shape
    return Stored(array, keys_of(store), None, shape, ("optional", "chunk", "/a")), store


@quiet
def prepare_nullable(_folder, _seed):
    numbers = np.ma.masked_less(values_of("<f4"), 90)
    words = np.ma.masked_array(texts((30,)), mask=[i % 3 == 0 for i in range(30)])
    made = []
    for mask in (["packbits"], [BYTES, GZIP], ["packbits", ZSTD, CRC], ["packbits", OURS[5]]):
        for data in (
            [BYTES],
            [BYTES, ZSTD],
            [BYTES, COMPRESSORS[3], CRC],
            [BYTES, OURS[5], GZIP],
            [BYTES, CRC],
        ):
            made += [a_nullable(data=numbers, chunks=CHUNK, mask_codecs=mask, data_codecs=data)]
    for data in (["vlen-utf8"], ["vlen-utf8", ZSTD]):
        made += [a_nullable(data=words, chunks=(10,), mask_codecs=["packbits"], data_codecs=data)]
    made.append(a_nullable(data=numbers, chunks=CHUNK, shards=SHAPE))
    return Damages(made)


def plain(form, **options):
    store = zarr.storage.MemoryStore()
    values = values_of(options.pop("kind", "<i4"))
    z = zarr.create_array(store, name="a", shape=SHAPE, dtype=values.dtype, zarr_format=form, **options)
    z[...] = values
    array = intarsia.reader(store, "a")
    return Stored(array, keys_of(store), array.dtype, SHAPE, ("chunk",)), store


@quiet
def prepare_plain(_folder, _seed):
    import numcodecs

    twos = [
        None,
        numcodecs.Zlib(),
        numcodecs.GZip(),
        numcodecs.Zstd(),
        numcodecs.Blosc(),
        numcodecs.LZ4(),
        numcodecs.BZ2(),
        numcodecs.LZMA(),
    ]
    made = [plain(2, chunks=CHUNK, compressors=c) for c in twos]
    made += [
        plain(
            2,
            chunks=CHUNK,
            compressors=numcodecs.Zstd(),
            filters=[numcodecs.Delta("<i4"), numcodecs.Shuffle(4)],
        )
    ]
    made += [plain(3, chunks=CHUNK, compressors=[c]) for c in (GZIP, ZSTD, CRC, COMPRESSORS[3])]
    made += [plain(3, chunks=CHUNK, kind=kind) for kind in ("u1", ">f8")]
    return Damages(made)


@quiet
def prepare_old_texts(_folder, _seed):
    """Texts in arrays of format 2."""
    import numcodecs

    made = []
    for compressor in (None, numcodecs.Zstd(), numcodecs.GZip(), numcodecs.Blosc(), numcodecs.LZ4()):
        store = zarr.storage.MemoryStore()
        z = zarr.create_array(
            store, name="a", shape=SHAPE, chunks=CHUNK, dtype=str, zarr_format=2, compressors=compressor
        )
        z[...] = texts(SHAPE)
        array = intarsia.reader(store, "a")
        made.append((Stored(array, keys_of(store), array.dtype, SHAPE, ("chunk",)), store))
    return Damages(made)


class InZarr(Damages):
    """The same, read by zarr itself, through its pipelines or ours; only our own codecs are looked at."""

    def __call__(self, number, rng):
        # Half of the time in a pipeline that decodes many chunks at once.
        with zarr.config.set(
            {"codec_pipeline.path": f"intarsia.codecs.context.{rng.choice(('Batched', 'Fused'))}Pipeline"}
        ):
            return super().__call__(number, rng)


def in_zarr(codecs, form, values):
    store = zarr.storage.MemoryStore()
    serializer = codecs[0] if isinstance(codecs[0], PackBitsCodec) else "auto"
    rest = codecs[1:] if serializer != "auto" else codecs
    with zarr.config.set({"codec_pipeline.path": f"intarsia.codecs.context.{form}Pipeline"}):
        z = zarr.create_array(
            store,
            name="a",
            shape=SHAPE,
            chunks=CHUNK,
            dtype=values.dtype,
            serializer=serializer,
            compressors=rest or None,
        )
        z[...] = values
        array = zarr.open_array(store, path="a", mode="r")
    return Stored(array, keys_of(store), values.dtype, SHAPE, ("codec", "chunk")), store


@quiet
def prepare_in_zarr(_folder, _seed):
    made = [
        in_zarr(codecs, form, values_of())
        for form in ("Batched", "Fused")
        for codecs in (
            *([codec] for codec in OURS[4:]),
            [OURS[5], OURS[0]],
            [PackBitsCodec()],
            [PackBitsCodec(), OURS[4]],
        )
    ]
    return Damages(made)


TARGETS = [
    Target("damage", "chunks of logical arrays", prepare_logical, share=34),
    Target("damage", "chunks of other data types", prepare_kinds, share=12),
    Target("damage", "chunks of nullable arrays", prepare_nullable, share=10),
    Target("damage", "chunks of plain arrays, formats 2 and 3", prepare_plain, share=10),
    Target("damage", "chunks of texts, format 2", prepare_old_texts, share=4),
    Target("damage", "chunks that zarr reads with our codecs", prepare_in_zarr, share=6),
]
