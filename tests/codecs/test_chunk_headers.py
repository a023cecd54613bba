"""Chunks that are files: other programs open them, and a wrong one is noticed."""

import pickle

import imagecodecs
import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image
from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec

import intarsia
from intarsia.codecs import PadCodec, tiff_header, with_padding
from intarsia.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigurationError, ReadError
from tests.grids import spread


def endian(dtype):
    return "big" if np.dtype(dtype).byteorder == ">" else "little"


def values(shape, dtype):
    numbers = np.random.default_rng(0).integers(0, 2 if np.dtype(dtype).kind == "b" else 100, shape)
    return numbers.astype(dtype)


def chunk_files(path, data, chunks, padding):
    """The data as an array whose chunks have these codecs around them; the path of its first chunk."""
    codecs = [BytesCodec(endian=endian(data.dtype)), *padding]
    z = zarr.create(store=path, shape=data.shape, chunks=chunks, dtype=data.dtype, codecs=codecs)
    z[...] = data
    np.testing.assert_array_equal(zarr.open_array(path)[...], data)
    return path / "c" / "/".join(["0"] * data.ndim)


TIFF_TYPES = [
    order + kind + size
    for order in "<>"
    for kind, sizes in {"u": "1248", "i": "1248", "f": "248", "c": ("8", "16")}.items()
    for size in sizes
    if order == "<" or size != "1"
] + ["bool"]


@pytest.mark.parametrize(
    ("dtype", "samples", "bigtiff"),
    spread(TIFF_TYPES, [(), (1,), (2,), (3,), (4,), (7,)], [False, True], times=4),
)
def test_tifffile_and_libtiff_read_every_type_and_number_of_samples(dtype, samples, bigtiff, tmp_path):
    shape = (16, 32, *samples)
    header = tiff_header(shape, dtype, bigtiff=bigtiff, tiled=len(samples) == 1 and samples[0] % 2 == 0)
    data = values((32, 32, *samples), dtype)
    path = chunk_files(tmp_path / "a", data, shape, [PadCodec(nbytes=len(header), padding=header)])
    with tifffile.TiffFile(path) as file:
        assert file.is_bigtiff == bigtiff
        picture = file.asarray().reshape(shape)
    for read in (picture, imagecodecs.tiff_decode(path.read_bytes()).reshape(shape)):
        np.testing.assert_array_equal(read.astype(dtype), data[:16])


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize(
    ("dtype", "samples", "mode"),
    [("u1", (), "L"), ("u1", (3,), "RGB"), ("u1", (4,), "RGBA"), ("<u2", (), "I;16"), ("<f4", (), "F")],
)
def test_pillow_reads_grey_and_coloured_pictures(dtype, samples, mode, tiled, tmp_path):
    shape = (16, 48, *samples)
    header = tiff_header(shape, dtype, tiled=tiled)
    data = values(shape, dtype)
    path = chunk_files(tmp_path / "a", data, shape, [PadCodec(nbytes=len(header), padding=header)])
    with Image.open(path) as picture:
        assert picture.mode == mode
        np.testing.assert_array_equal(np.asarray(picture), data)


@pytest.mark.parametrize("bigtiff", [False, True])
def test_the_size_of_compressed_tiles_is_filled_in(bigtiff, tmp_path):
    header = tiff_header((32, 32, 3), "u2", compression="zstd", tiled=True, bigtiff=bigtiff)
    data = values((64, 32, 3), "u2")
    data[:32] = 1
    padding = [ZstdCodec(), PadCodec(nbytes=len(header), padding_func=header)]
    path = chunk_files(tmp_path / "a", data, (32, 32, 3), padding)
    for part, chunk in enumerate((path, tmp_path / "a/c/1/0/0")):
        with tifffile.TiffFile(chunk) as file:
            assert file.pages[0].is_tiled
            assert file.pages[0].databytecounts == (chunk.stat().st_size - len(header),)
            np.testing.assert_array_equal(file.asarray(), data[32 * part : 32 * part + 32])


def test_a_chunk_of_more_than_4_gib_is_a_bigtiff(tmp_path):
    header = tiff_header((70_000, 70_000), "u1")
    (tmp_path / "head.tif").write_bytes(header)
    with tifffile.TiffFile(tmp_path / "head.tif") as file:
        page = file.pages[0]
        assert file.is_bigtiff
        assert page.shape == (70_000, 70_000)
        assert page.databytecounts == (70_000**2,)
        assert page.dataoffsets == (len(header),)
    assert tiff_header((256, 256), "u2", bigtiff=False)[2] == 42


class Large(bytes):
    """Says that it is longer than a classic strip can be."""

    def __len__(self):
        return 1 << 32


def test_compressed_data_that_outgrow_a_classic_strip_are_refused():
    with pytest.raises(ChunkEncodeError, match=r"less than 4 GiB.*bigtiff=True"):
        tiff_header((4, 4), "u1")(Large())
    assert tiff_header((4, 4), "u1", bigtiff=True)(Large())


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "match"),
    [
        ((4,), "u1", {}, r"\(rows, columns\)"),
        ((4, 4, 4, 4), "u1", {}, r"\(rows, columns\)"),
        ((0, 4), "u1", {}, r"\(rows, columns\)"),
        ((4, 4), "datetime64[s]", {}, "numbers or bools"),
        ((4, 4), "longdouble", {}, "numbers or bools"),
        ((4, 4), "u1", {"compression": "lzw"}, "lzw"),
        ((70_000, 70_000), "u1", {"bigtiff": False}, "4 GiB"),
        ((4, 4, 70_000), "u1", {}, "65535 samples"),
        ((16, 20), "u1", {"tiled": True}, "multiples of 16, not 16 x 20"),
    ],
)
def test_a_picture_that_tiff_cannot_hold_is_refused(shape, dtype, options, match):
    with pytest.raises(CodecConfigurationError, match=match):
        tiff_header(shape, dtype, **options)


def test_headers_travel():
    tiff = pickle.loads(pickle.dumps(tiff_header((4, 4), "u1", compression="zstd", bigtiff=True)))
    assert tiff(b"1234567") == tiff_header((4, 4), "u1", compression="zstd", bigtiff=True)(b"1234567")


# A header that is compared


def headed(store, **fields):
    header = tiff_header((4, 4), "u1")
    codec = PadCodec(nbytes=len(header), padding=header, **fields)
    z = zarr.create(store=store, shape=(8, 4), chunks=(4, 4), dtype="u1", codecs=[BytesCodec(), codec])
    z[...] = 7
    return z


def swap_in(path, at=4):
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def test_a_wrong_header_is_an_error_where_it_was_asked_for(tmp_path, our_pipeline):
    z = headed(tmp_path / "a", verify_header=True)
    assert z[...].min() == 7
    swap_in(tmp_path / "a/c/1/0")
    assert z[:4].min() == 7
    with pytest.raises(ChunkDecodeError, match=r"header.*chunk \(1, 0\).*byte 4 is 0xf7 instead of 0x08"):
        z[...]
    again = zarr.open_array(tmp_path / "a")  # nobody asked
    assert again[...].min() == 7
    asked = pickle.loads(pickle.dumps(with_padding(again, None, verify_header=True)))
    with pytest.raises(ChunkDecodeError, match="byte 4"):
        asked[...]


def test_a_header_that_depends_on_the_data_is_compared_too(tmp_path, our_pipeline):
    header = tiff_header((4, 4), "u1", compression="zstd")
    codecs = [BytesCodec(), ZstdCodec(), PadCodec(nbytes=len(header), padding_func=header)]
    z = zarr.create(store=tmp_path / "a", shape=(8, 4), chunks=(4, 4), dtype="u1", codecs=codecs)
    z[:4] = 7
    z[4:] = np.arange(16).reshape(4, 4)
    again = zarr.open_array(tmp_path / "a")
    checked = with_padding(again, header, verify_header=True)
    np.testing.assert_array_equal(checked[...], z[...])
    with pytest.raises(ChunkDecodeError, match="it is not known which"):
        with_padding(again, None, verify_header=True)[...]
    with pytest.raises(ChunkDecodeError, match=r"needs 110 bytes of padding"):
        with_padding(again, lambda encoded: b"short", verify_header=True)[...]


def test_a_header_that_asks_zarr_does_not_hang(tmp_path, our_pipeline):
    names = zarr.create(store=tmp_path / "names", shape=(2,), chunks=(1,), dtype="u1")
    names[:] = [65, 66]

    def name(encoded, chunk_index):
        return bytes(names[chunk_index[0] : chunk_index[0] + 1])

    codec = PadCodec(nbytes=1, padding_func=name, verify_header=True)
    z = zarr.create(store=tmp_path / "a", shape=(8,), chunks=(4,), dtype="u1", codecs=[BytesCodec(), codec])
    z[:] = 7
    assert z[:].tolist() == [7] * 8
    names[:] = [65, 67]
    with pytest.raises(ChunkDecodeError, match="byte 0 is 0x42 instead of 0x43"):
        z[:]


def test_headers_inside_shards_are_compared(tmp_path, our_pipeline):
    codec = PadCodec(nbytes=4, padding=b"HEAD", verify_header=True)
    shard = ShardingCodec(chunk_shape=(2,), codecs=[BytesCodec(), codec], index_location="end")
    z = zarr.create(store=tmp_path / "a", shape=(8,), chunks=(8,), dtype="u1", codecs=[shard])
    z[:] = 7
    assert z[:].tolist() == [7] * 8
    path = tmp_path / "a/c/0"
    path.write_bytes(path.read_bytes().replace(b"HEAD", b"BEAD", 1))
    with pytest.raises(ChunkDecodeError, match="byte 0 is 0x42 instead of 0x48"):
        z[:]


def test_nullable_and_logical_arrays_compare_headers(tmp_path):
    a = intarsia.nullable.create_array(
        tmp_path / "n", shape=8, chunks=4, dtype="u1", data_codecs=[PadCodec(nbytes=4, padding=b"HEAD")]
    )
    a[:] = 7
    checked = a.with_config(padding=b"BEAD", verify_header=True)
    with pytest.raises(ChunkDecodeError, match="byte 0"):
        checked[:]
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        a.with_config(colour="red")
    logical = intarsia.create(tmp_path / "l", "a", shape=(0,), chunks=(4,), dtype="u1")
    logical.append(np.arange(8), codecs=[PadCodec(nbytes=4, padding=b"HEAD")])
    assert logical.with_config(verify_header=True)[...].tolist() == list(range(8))
    with pytest.raises(ReadError, match="byte 0 is 0x48 instead of 0x42"):
        with_padding(logical, b"BEAD", verify_header=True)[...]
    assert with_padding(logical, b"BEAD")[...].tolist() == list(range(8))
