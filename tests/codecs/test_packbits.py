"""`packbits` against the registered text, numcodecs, zarrs and TensorStore-independent arithmetic."""

import pickle
from itertools import product

import numcodecs
import numpy as np
import pytest
import zarr
import zarrista
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import ShardingCodec, TransposeCodec, ZstdCodec
from zarrista.store import FilesystemStore

from intarsia.codecs import PackBitsCodec
from intarsia.errors import ChunkDecodeError, CodecConfigurationError

INTEGERS = [f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)]
FLOATS = {"f2": "u2", "f4": "u4", "f8": "u8", "c8": "u4", "c16": "u8"}


def written(data, codec, **options):
    """What `codec` stores for `data` as one chunk, and the array that holds it."""
    store = zarr.storage.MemoryStore()
    z = zarr.create(
        store=store, shape=data.shape, chunks=data.shape, dtype=data.dtype, codecs=[codec], fill_value=0,
        config={"write_empty_chunks": True}, **options,
    )  # fmt: skip
    z[...] = data
    key = "/".join(["c", *["0"] * data.ndim])
    return store._store_dict[key].to_bytes(), z


def by_the_text(data, first, last, padding_encoding):
    """The registered text, bit by bit with Python's integers."""
    width = 1 if data.dtype == bool else data.dtype.itemsize * 8
    kept = last - first + 1
    sequence = 0
    for i, element in enumerate(data.reshape(-1).tolist()):
        bits = (int(element) % (1 << width)) >> first & ((1 << kept) - 1)
        sequence |= bits << (i * kept)
    nbits = data.size * kept
    packed = sequence.to_bytes((nbits + 7) // 8, "little")
    padding = bytes([-nbits % 8])
    return {"none": packed, "first_byte": padding + packed, "last_byte": packed + padding}[padding_encoding]


def as_decoded(data, first, last):
    """What comes back: bits below the first are zero, the sign is extended from the last."""
    if data.dtype == bool:
        return data
    kept = last - first + 1
    out = []
    for element in data.reshape(-1).tolist():
        value = (element >> first) & ((1 << kept) - 1)
        if data.dtype.kind == "i" and value >> (kept - 1):
            value -= 1 << kept
        out.append(value << first)
    return np.array(out, dtype=data.dtype).reshape(data.shape)


@st.composite
def packings(draw):
    dtype = np.dtype(draw(st.sampled_from(["bool", *INTEGERS])))
    width = 1 if dtype.kind == "b" else dtype.itemsize * 8
    first = draw(st.integers(0, width - 1))
    last = draw(st.integers(first, width - 1))
    shape = draw(st.lists(st.integers(1, 6), max_size=3))
    seed = draw(st.integers(0, 2**32 - 1))
    octets = np.random.default_rng(seed).integers(0, 256, [*shape, dtype.itemsize], dtype="u1")
    data = octets[..., 0] % 2 == 1 if dtype.kind == "b" else octets.view(dtype).reshape(shape)
    return np.asarray(data), first, last, draw(st.sampled_from(["none", "first_byte", "last_byte"]))


@given(packings())
def test_stored_bytes_and_values_follow_the_registered_text(packing):
    data, first, last, padding_encoding = packing
    codec = PackBitsCodec(padding_encoding=padding_encoding, first_bit=first, last_bit=last)
    stored, z = written(data, codec)
    assert stored == by_the_text(data, first, last, padding_encoding)
    np.testing.assert_array_equal(z[...], as_decoded(data, first, last))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_packed_as_their_bits_and_complex_numbers_as_two_floats(dtype, order):
    width = np.dtype(FLOATS[dtype]).itemsize * 8
    data = np.random.default_rng(0).normal(size=(5, 7)).astype(order + dtype)
    bits = np.ascontiguousarray(data).reshape(-1).view(order + FLOATS[dtype]).astype(FLOATS[dtype])
    for first, last in ((0, width - 1), (width // 3, width - 1), (width // 3, width - 2)):
        stored, z = written(data, PackBitsCodec(first_bit=first, last_bit=last))
        assert stored == by_the_text(bits, first, last, "none")
        decoded = as_decoded(bits, first, last).view(dtype).reshape(data.shape)
        np.testing.assert_array_equal(z[...], decoded)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_more_elements_than_one_block(dtype):
    data = np.random.default_rng(0).integers(0, 100, 200_003).astype(dtype)
    _, z = written(data, PackBitsCodec(first_bit=0, last_bit=6, padding_encoding="last_byte"))
    np.testing.assert_array_equal(z[:], as_decoded(data, 0, 6))


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_numcodecs_packs_the_same_bits_with_the_other_end_of_each_byte_first(values):
    """numcodecs writes the first element into a byte's highest bit, the registered text into its lowest;
    padding byte and length agree."""
    stored, _ = written(np.array(values), PackBitsCodec(padding_encoding="first_byte"))
    theirs = numcodecs.PackBits().encode(np.array(values))
    assert stored[0] == theirs[0]
    reversed_bits = np.packbits(np.unpackbits(theirs[1:]), bitorder="little")
    assert stored[1:] == reversed_bits.tobytes()


def test_packed_bools_are_arrows_bitmap():
    import pyarrow

    values = [True, False, True, True, False, False, True, False, True]
    stored, _ = written(np.array(values), PackBitsCodec())
    bitmap = pyarrow.array(values).buffers()[1].to_pybytes()
    assert stored == bitmap[: len(stored)]


@pytest.mark.parametrize("sharded", [False, True])
def test_edges_partial_writes_transpose_and_shards(sharded, tmp_path, pipeline):
    codecs = [TransposeCodec(order=(1, 0)), PackBitsCodec(last_bit=11), ZstdCodec()]
    if sharded:
        codecs = [ShardingCodec(chunk_shape=(3, 2), codecs=codecs)]
    z = zarr.create(store=tmp_path / "a", shape=(11, 7), chunks=(6, 4), dtype=">i2", codecs=codecs)
    data = np.random.default_rng(1).integers(-2048, 2048, (11, 7)).astype("i2")
    z[:] = data
    z[4:9, 1:6] = data[4:9, 1:6] = 7
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a")[:], data)


@pytest.mark.parametrize(
    ("fields", "dtype", "match"),
    [
        ({"first_bit": 3, "last_bit": 2}, "u1", "bits 3 to 2 are not within the 8 bits of uint8"),
        ({"first_bit": -1}, "u1", "Expected `int` >= 0 - at `..first_bit`"),
        ({"last_bit": 8}, "u1", "bits 0 to 8 are not within the 8 bits of uint8"),
        ({"last_bit": 1}, "bool", "bits 0 to 1 are not within the 1 bits of bool"),
        (
            {"padding_encoding": "start_byte"},
            "u1",
            "Invalid enum value 'start_byte' - at `..padding_encoding`",
        ),
        ({}, "M8[s]", "packs bool and numbers, not datetime64.*: use the 'bytes' codec"),
    ],
)
def test_a_bad_configuration_is_refused_before_anything_is_written(fields, dtype, match, tmp_path):
    with pytest.raises(CodecConfigurationError, match=match):
        zarr.create(store=tmp_path / "a", shape=4, dtype=dtype, codecs=[PackBitsCodec(**fields)])
    assert not (tmp_path / "a/zarr.json").exists()


@pytest.mark.parametrize("padding_encoding", ["none", "first_byte", "last_byte"])
@given(stored=st.binary(max_size=8))
def test_damaged_bytes_raise_or_are_a_packing_of_what_is_read(padding_encoding, stored):
    codec = PackBitsCodec(padding_encoding=padding_encoding, last_bit=2)
    _, z = written(np.zeros(5, dtype="u1"), codec)
    z.store_path.store._store_dict["c/0"] = zarr.core.buffer.cpu.Buffer.from_bytes(stored)
    try:
        values = z[:]
    except ChunkDecodeError:
        return
    assert written(values, codec)[0] == stored


def test_pickle_and_json():
    for codec in (PackBitsCodec(), PackBitsCodec(padding_encoding="last_byte", first_bit=1, last_bit=2)):
        assert pickle.loads(pickle.dumps(codec)) == codec == PackBitsCodec.from_dict(codec.to_dict())
    assert PackBitsCodec().to_dict() == {"name": "packbits"}


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint16", "int16", "int32", "uint64"])
def test_zarrs_reads_the_same_but_for_what_the_specification_names(dtype, tmp_path):
    width = 1 if dtype == "bool" else np.dtype(dtype).itemsize * 8
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    values = np.random.default_rng(0).integers(*limits, 30, dtype=dtype, endpoint=True)
    ranges = [(0, 0)] if width == 1 else [(0, width - 1), (0, 2), (3, width - 2), (1, width // 2)]
    for i, ((first, last), padding) in enumerate(product(ranges, ["none", "first_byte", "last_byte"])):
        codec = PackBitsCodec(padding_encoding=padding, first_bit=first, last_bit=last)
        z = zarr.create_array(
            tmp_path, name=f"a{i}", shape=30, dtype=dtype, serializer=codec, compressors=None, fill_value=0
        )
        z[:] = values.astype(dtype)
        wide = width >= 16
        if width > 1 and (first, last) == (0, width - 1) and padding != "none":
            with pytest.raises(zarrista.exceptions.ArrayError, match="size of a decoded chunk"):
                read_by_zarrs(tmp_path, f"a{i}", dtype)
        else:
            same = np.array_equal(read_by_zarrs(tmp_path, f"a{i}", dtype), z[:])
            cut_short = wide and dtype.startswith("int") and last // 8 < width // 8 - 1
            assert same != cut_short, (first, last, padding)


def read_by_zarrs(path, name, dtype):
    found = zarrista.Array.open(FilesystemStore(str(path)), f"/{name}")[...]
    return np.frombuffer(found.buffer(), dtype=dtype) if hasattr(found, "buffer") else np.asarray(found)
