"""zarrista (zarrs from Python) as the referee, both ways."""

import json
import struct

import numpy as np
import pytest
import zarrista
from zarrista.store import FilesystemStore

from intarsia import nullable
from intarsia.nullable import NULL, Some

SHAPE, CHUNKS = (5, 6), (3, 4)

ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
GZIP = {"name": "gzip", "configuration": {"level": 5}}
BLOSC = {
    "name": "blosc",
    "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0},
}
CRC = {"name": "crc32c"}
BITS = {"name": "packbits"}
BYTES = {"name": "bytes"}


def endian(order):
    return {"name": "bytes", "configuration": {"endian": order}}


CONFIGURATIONS = {
    # name: dtype, fill value, mask codecs, data codecs
    "bool, packed": ("bool", NULL, [BITS], [BITS]),
    "uint8, plain": ("uint8", NULL, [BITS], [BYTES]),
    "int8, mask as bytes": ("int8", Some(3), [BYTES], [BYTES]),
    "int16, little": ("int16", NULL, [BITS], [endian("little")]),
    "int16, big": ("int16", Some(-7), [BITS], [endian("big")]),
    "uint32, big, crc32c": ("uint32", NULL, [BITS, CRC], [endian("big"), CRC]),
    "int32, blosc": ("int32", Some(0), [BITS], [endian("little"), BLOSC]),
    "uint64, gzip": ("uint64", NULL, [BITS, GZIP], [endian("little"), GZIP]),
    "float16": ("float16", NULL, [BITS], [endian("little")]),
    "float32, zstd": ("float32", Some(float("nan")), [BITS], [endian("little"), ZSTD]),
    "float64, big, fill -0.0": ("float64", Some(-0.0), [BITS], [endian("big")]),
    "float64, mask gzip": ("float64", NULL, [BYTES, GZIP], [endian("little")]),
    "complex64": ("complex64", NULL, [BITS], [endian("little")]),
    "complex128, big, zstd": ("complex128", NULL, [BITS, ZSTD], [endian("big"), ZSTD]),
    "datetime64": ("datetime64[ms]", NULL, [BITS], [endian("little")]),
    "timedelta64, big": ("timedelta64[s]", NULL, [BITS], [endian("big")]),
}
COMPRESSORS = {"zstd", "gzip", "blosc"}


def sample(dtype, seed=0):
    """Values with nulls, one chunk without any, one with nothing else, NaN and -0.0 among floats."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    raw = rng.integers(0, 100, SHAPE)
    values = (raw % 2 == 0) if dtype.kind == "b" else raw.astype(dtype)
    if dtype.kind == "f":
        values[4, 5], values[0, 1] = np.nan, -0.0
    missing = rng.random(SHAPE) < 0.4
    missing[:3, :4] = False
    missing[3:, :4] = True
    missing[4, 5] = missing[0, 1] = False
    return nullable.NullableValues(values, missing)


def theirs(path, dtype):
    """What zarrista reads."""
    tensor = zarrista.Array.open(FilesystemStore(str(path)), "/a")[...]
    mask = np.frombuffer(tensor.mask.buffer(), dtype=bool).reshape(SHAPE)
    values = np.frombuffer(tensor.data.buffer(), dtype=dtype).reshape(SHAPE)
    return nullable.NullableValues(values, ~mask)


def chunk_files(path):
    return {p.relative_to(path): p.read_bytes() for p in sorted((path / "a/c").rglob("*")) if p.is_file()}


def create(path, configuration):
    dtype, fill, mask_codecs, data_codecs = CONFIGURATIONS[configuration]
    return nullable.create_array(
        path, "a", shape=SHAPE, dtype=dtype, chunks=CHUNKS, fill_value=fill, mask_codecs=mask_codecs,
        data_codecs=data_codecs, codec_name="zarrs.optional",
    )  # fmt: skip


def compressed(configuration):
    return bool(COMPRESSORS & {c["name"] for part in CONFIGURATIONS[configuration][2:] for c in part})


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_zarrista_reads_what_we_write(configuration, tmp_path, pipeline):
    dtype = CONFIGURATIONS[configuration][0]
    array, data = create(tmp_path, configuration), sample(dtype)
    array[...] = data
    assert theirs(tmp_path, dtype).equals(data)


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_we_read_what_zarrista_writes_and_write_the_same_bytes(configuration, tmp_path, pipeline):
    dtype = CONFIGURATIONS[configuration][0]
    data = sample(dtype)
    ours, from_them = tmp_path / "ours", tmp_path / "theirs"
    create(ours, configuration)[...] = data
    create(from_them, configuration)
    writer = zarrista.Array.open(FilesystemStore(str(from_them)), "/a")
    for row in range(2):
        for column in range(2):
            values = np.zeros(CHUNKS, dtype=dtype)
            present = np.zeros(CHUNKS, dtype=np.uint8)
            part = data[row * 3 : row * 3 + 3, column * 4 : column * 4 + 4]
            inside = tuple(slice(0, n) for n in part.shape)
            values[inside], present[inside] = part.values, part.missing == 0
            if not present.any() and CONFIGURATIONS[configuration][1] is NULL:
                continue
            chunk = zarrista.ArrayBytes(values.tobytes(), mask=present.tobytes())
            writer.store_chunk([row, column], chunk)
    read = nullable.open_array(from_them, "a", mode="r").read_nullable()
    assert read.equals(data)
    assert theirs(from_them, dtype).equals(data)
    if not compressed(configuration) and CONFIGURATIONS[configuration][1] is NULL:
        assert chunk_files(from_them) == chunk_files(ours)


def test_chunk_bytes_are_equal_with_a_fill_value_that_is_present(tmp_path):
    """Beyond the array's edge our chunks hold the fill value, so both get whole chunks here."""
    values, missing = np.arange(12, dtype="i2").reshape(3, 4), np.eye(3, 4, dtype=bool)
    for order in ("little", "big"):
        path = tmp_path / order
        array = nullable.create_array(
            path, "a", shape=(3, 4), dtype="int16", chunks=(3, 4), fill_value=Some(7), compressors=None,
            data_codecs=[endian(order)], codec_name="zarrs.optional",
        )  # fmt: skip
        array[...] = nullable.NullableValues(values, missing)
        stored = chunk_files(path)
        writer = zarrista.Array.open(FilesystemStore(str(path)), "/a")
        mask = np.ascontiguousarray(~missing).view("u1").tobytes()
        writer.store_chunk([0, 0], zarrista.ArrayBytes(values.tobytes(), mask=mask))
        assert chunk_files(path) == stored
        (raw,) = stored.values()
        assert struct.unpack("<QQ", raw[:16]) == (2, 18)


def test_strings_written_by_zarrista_are_read_and_have_the_same_bytes(tmp_path, pipeline):
    data = ["x", None, "", "zä"]
    array = nullable.create_array(tmp_path, "a", data=data, compressors=None, codec_name="zarrs.optional")
    stored = chunk_files(tmp_path)
    # zarrista shows no strings with nulls to Python, so it is the writer here.
    text = zarrista.ArrayBytes("xzä".encode(), offsets=[0, 1, 1, 1, 4], mask=bytes([1, 0, 1, 1]))
    zarrista.Array.open(FilesystemStore(str(tmp_path)), "/a").store_chunk([0], text)
    assert array[:].tolist() == data
    assert chunk_files(tmp_path) == stored


def test_the_name_of_the_proposal_is_written_unless_asked_otherwise(tmp_path):
    names = set()
    for codec_name in ("optional", "zarrs.optional"):
        nullable.create_array(tmp_path / codec_name, shape=2, dtype="int8", depth=2, codec_name=codec_name)
        text = (tmp_path / codec_name / "zarr.json").read_text()
        written = json.loads(text)
        names.add((written["data_type"]["name"], written["codecs"][0]["name"]))
        assert text.count('"optional"') + text.count('"zarrs.optional"') == 4
        assert nullable.open_array(tmp_path / codec_name).data_type.name == codec_name
    assert names == {("optional", "optional"), ("zarrs.optional", "zarrs.optional")}
