"""The literal examples of the documents that intarsia grew from, with their errata mended and named.

Some are in the rooms of what they show: those of `conditional` in codecs/test_conditional_examples.py,
those of TIFF and of custom headers in codecs/test_header.py. tests/seeds has a table of what shows what.
"""

import base64
import gzip
import json
import struct
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import tensorstore
import tifffile
import zarr
import zarrista
from numpy.dtypes import StringDType
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ZstdCodec
from zarrista.store import FilesystemStore

import intarsia
from intarsia import nullable
from intarsia.codecs import n5_header, parse_codecs
from intarsia.errors import DataTypeError
from intarsia.nullable import NULL, Some

# -- the codec that was called `optional`


def test_the_printed_codecs_of_example_1_open_from_zarr_json(tmp_path, our_pipeline):
    codecs = json.loads("""[
        { "name": "bytes", "configuration": { "endian": "little" } },
        {
            "name": "optional",
            "configuration": {
                "codecs": [
                    { "name": "shuffle", "configuration": { "element_size": 4 } },
                    { "name": "zstd", "configuration": { "level": 5 } }
                ]
            }
        }
    ]""")
    document = array_document((20,), (10,), "float32", 0, codecs)
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    z = intarsia.codecs.with_decision(zarr.open_array(tmp_path, mode="r+"), "always_apply")
    z[:] = np.arange(20)
    assert [(tmp_path / f"c/{i}").read_bytes()[0] for i in range(2)] == [0b11, 0b11]
    np.testing.assert_array_equal(zarr.open_array(tmp_path)[:], np.arange(20))


def array_document(shape, chunks, data_type, fill_value, codecs, encoding=("default", "/")):
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": encoding[0], "configuration": {"separator": encoding[1]}},
        "fill_value": fill_value,
        "codecs": codecs,
    }


NOISE = np.random.default_rng(0).bytes(5000)


@pytest.mark.parametrize(
    "content", [NOISE, gzip.compress(NOISE), b"abc"], ids=["noise", "compressed", "small"]
)
def test_what_a_compressor_would_inflate_is_stored_raw(content, tmp_path):
    assert len(gzip.compress(content)) > len(content)
    z = zarr.create(
        store=tmp_path,
        shape=len(content),
        chunks=len(content),
        dtype="u1",
        codecs=[
            BytesCodec(),
            intarsia.codecs.ConditionalCodec(codecs=[GzipCodec()], decision="compress_if_smaller"),
        ],
    )
    z[:] = np.frombuffer(content, dtype="u1")
    assert intarsia.codecs.masks(z).tolist() == [0]
    assert (tmp_path / "c/0").read_bytes() == b"\0" + content


def test_a_fast_compressor_by_default_and_a_strong_one_where_it_pays():
    def pays(unencoded_chunk):
        return len(set(unencoded_chunk)) < 16

    def decide(codec, unencoded_chunk):
        if codec.name == "zstd":
            return pays(unencoded_chunk)
        return len(unencoded_chunk) == 4000 and not pays(unencoded_chunk)  # not what zstd has made smaller

    fast = BloscCodec(cname="lz4", clevel=1, typesize=1)
    strong_then_fast = intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec(level=19), fast], decision=decide)
    z = zarr.create(store={}, shape=8000, chunks=4000, dtype="u1", codecs=[BytesCodec(), strong_then_fast])
    z[:4000] = 7
    z[4000:] = np.arange(4000) % 251
    assert intarsia.codecs.masks(z, names=True).tolist() == ["zstd", "blosc"]
    np.testing.assert_array_equal(z[4000:], np.arange(4000) % 251)


# -- one array made of several


@pytest.fixture
def halves(tmp_path):
    """The example's manifest: the upper half Blosc with zstd, the lower half gzip."""
    values = np.random.default_rng(0).normal(size=(1000, 1000)).astype("float32")
    array = intarsia.create(
        tmp_path / "store", "logical", shape=(1000, 1000), chunks=(100, 100), dtype="float32"
    )
    array.add_region([(0, 500), (0, 1000)], codecs=[BloscCodec(cname="zstd")], data=values[:500])
    array.add_region([(500, 1000), (0, 1000)], codecs=[GzipCodec()], data=values[500:])
    return array, values


def test_the_manifest_of_the_example(halves):
    array, values = halves
    manifest = array.group.attrs["intarsia"]
    assert (manifest["shape"], manifest["data_type"], manifest["chunk_shape"]) == (
        [1000, 1000],
        "float32",
        [100, 100],
    )
    assert [region.bounds for region in array.regions] == [((0, 500), (0, 1000)), ((500, 1000), (0, 1000))]
    assert [type(array.members[region.name]) for region in array.regions] == [zarr.Array] * 2
    assert [region.codecs[-1].to_dict()["name"] for region in array.regions] == ["blosc", "gzip"]
    assert not isinstance(array, zarr.Array)
    np.testing.assert_array_equal(array[450:550, 10:20], values[450:550, 10:20])


def test_the_read_path_of_the_example_gives_what_a_read_gives(halves):
    array, values = halves
    selection = np.s_[420:610, 33:960]
    out = np.empty(values[selection].shape, array.dtype)
    for region in array.regions:
        overlap = [
            (max(s.start, a), min(s.stop, b)) for s, (a, b) in zip(selection, region.bounds, strict=True)
        ]
        local = tuple(
            slice(a - first, b - first) for (a, b), (first, _) in zip(overlap, region.bounds, strict=True)
        )
        to_output = tuple(
            slice(a - s.start, b - s.start) for (a, b), s in zip(overlap, selection, strict=True)
        )
        member = array.group[region.name]  # a real zarr.Array
        out[to_output] = member[local]  # zarr decodes its own codecs
    np.testing.assert_array_equal(array[selection], out)
    np.testing.assert_array_equal(array[selection], values[selection])


def test_zarrs_and_tensorstore_read_the_members_of_the_example(halves, tmp_path):
    array, values = halves
    for region, expected in zip(array.regions, (values[:500], values[500:]), strict=True):
        opened = zarrista.Array.open(FilesystemStore(str(tmp_path / "store")), f"/logical/{region.name}")
        np.testing.assert_array_equal(np.asarray(opened[...]), expected)
        path = str(tmp_path / "store/logical" / region.name)
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
        np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), expected)


GDAL = """
import sys, numpy, rasterio
for path, expected in zip(sys.argv[1::2], sys.argv[2::2]):
    with rasterio.open(f'ZARR:"{path}"') as member:
        assert numpy.array_equal(member.read(1), numpy.load(expected)), path
print("equal")
"""


def test_gdal_reads_the_members_of_the_example(halves, tmp_path):
    if find_spec("rasterio") is None:
        pytest.skip("GDAL comes with rasterio, which is not installed")
    array, values = halves
    arguments = []
    for region, expected in zip(array.regions, (values[:500], values[500:]), strict=True):
        np.save(tmp_path / f"{region.name}.npy", expected)
        arguments += [tmp_path / "store/logical" / region.name, tmp_path / f"{region.name}.npy"]
    # In a process of its own: it brings libraries that others here bring, too.
    command = [sys.executable, "-W", "ignore", "-c", GDAL, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr


# -- `pad` and `offset`

# Erratum: the printed hexdump holds 102 bytes, and not those of the base64 text beside it.
HEXDUMP = """
49 49 2a 00 08 00 00 00 08 00 00 01 03 00 01 00
01 01 03 00 01 00 00 00 02 01 03 00 01 00 00 00
10 00 00 00 03 01 03 00 01 00 00 00 01 00 00 00
06 01 03 00 01 00 00 00 01 00 00 00 11 01 04 00
01 00 00 00 6e 00 00 00 16 01 03 00 01 00 00 00
01 00 00 00 17 01 04 00 01 00 00 00 02 00 00 00
00 00 00 00 00 00
"""
PADDING = (
    "SUkqAAgAAAAIAAABAwABAAAAAAEAAAEBAwABAAAAAAEAAAIBAwABAAAAEAAAAAMBAwABAAAAAQAAAAYBAwABAAAAAQAAABEB"
    "BAABAAAAbgAAABYBAwABAAAAAAEAABcBBAABAAAAAAACAAAAAAA="
)


def script_of_the_appendix():
    """The padding that the script of the appendix makes."""
    header = b"\x49\x49\x2a\x00\x08\x00\x00\x00"
    ifd = b""
    ifd += struct.pack("<H", 8)

    def create_entry(tag, type, count, value):  # noqa: A002
        return struct.pack("<HHII", tag, type, count, value)

    ifd += create_entry(256, 3, 1, 256)  # ImageWidth (SHORT)
    ifd += create_entry(257, 3, 1, 256)  # ImageLength (SHORT)
    ifd += create_entry(258, 3, 1, 16)  # BitsPerSample (SHORT)
    ifd += create_entry(259, 3, 1, 1)  # Compression (SHORT) = 1 (None)
    ifd += create_entry(262, 3, 1, 1)  # PhotometricInterpretation (SHORT) = 1 (BlackIsZero)
    ifd += create_entry(273, 4, 1, 110)  # StripOffsets (LONG) = 110
    ifd += create_entry(278, 3, 1, 256)  # RowsPerStrip (SHORT)
    ifd += create_entry(279, 4, 1, 131072)  # StripByteCounts (LONG) = 256 * 256 * 2
    ifd += struct.pack("<I", 0)
    return header + ifd


def test_the_script_of_the_appendix_makes_the_printed_padding_and_not_the_printed_hexdump():
    made = script_of_the_appendix()
    assert base64.b64encode(made).decode() == PADDING
    assert made == intarsia.codecs.tiff_header((256, 256), "uint16")
    assert len(made) == 110
    assert len(bytes.fromhex(HEXDUMP)) == 102


def create_tiff_header(compressed_chunk: bytes) -> bytes:
    header = bytearray(script_of_the_appendix())
    header[94:106] = struct.pack("<HHII", 279, 4, 1, len(compressed_chunk))
    return bytes(header)


def padded(kind):
    if kind == "pad":
        return intarsia.codecs.PadCodec(nbytes=110, padding_func=create_tiff_header)
    return intarsia.codecs.OffsetCodec(offset=110, prefix_func=create_tiff_header)


@pytest.mark.parametrize("kind", ["pad", "offset"])
def test_a_function_makes_the_header_and_every_tag_is_as_listed(kind, tmp_path, pipeline):
    data = np.arange(256 * 512, dtype="uint16").reshape(512, 256)
    z = zarr.create_array(
        tmp_path, shape=(512, 256), chunks=(256, 256), dtype="uint16", compressors=[padded(kind)]
    )
    z[:] = data
    with tifffile.TiffFile(tmp_path / "c/1/0") as file:
        tags = {tag.name: tag.value for tag in file.pages[0].tags}
        np.testing.assert_array_equal(file.asarray(), data[256:])
    assert tags == {
        "ImageWidth": 256,
        "ImageLength": 256,
        "BitsPerSample": 16,
        "Compression": 1,
        "PhotometricInterpretation": 1,
        "StripOffsets": (110,),
        "RowsPerStrip": 256,
        "StripByteCounts": (131072,),
    }
    stored = json.loads((tmp_path / "zarr.json").read_text())["codecs"][-1]["configuration"]
    pad, offset = {"location": "start", "nbytes": 110, "padding": None}, {"offset": 110, "prefix": None}
    assert stored == (pad if kind == "pad" else offset)


N5_ATTRIBUTES = {
    "dimensions": [1024, 1024],
    "blockSize": [64, 64],
    "dataType": "uint16",
    "compression": {"type": "zstd", "level": 3},
}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
ZSTD = {"name": "zstd", "configuration": {"level": 3}}
N5_PRINTED = {
    "pad": [BIG, {"name": "zstd"}, {"name": "pad", "configuration": {"location": "start", "nbytes": 12}}],
    "offset": [
        BIG,
        ZSTD,
        {"name": "offset", "configuration": {"offset": 12, "prefix": "AAAAAgAAAEAAAABA"}},
    ],
}


@pytest.mark.parametrize("kind", ["pad", "offset"])
def test_the_n5_dataset_is_read_through_the_printed_document_once_its_errata_are_mended(kind, tmp_path):
    data = np.random.default_rng(0).integers(0, 2**16, (1024, 1024)).astype("uint16")
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(tmp_path)}, "metadata": N5_ATTRIBUTES}
    tensorstore.open(spec | {"create": True}).result().write(data).result()
    assert json.loads((tmp_path / "attributes.json").read_text()) == N5_ATTRIBUTES
    document = array_document((1024, 1024), (64, 64), "uint16", 0, N5_PRINTED[kind], ("v2", "/"))

    def opened():
        (tmp_path / "zarr.json").write_text(json.dumps(document))
        return zarr.open_array(tmp_path, mode="r+")

    if kind == "pad":  # erratum: zarr wants a configuration for zstd; lists that are given to us need none
        with pytest.raises(ValueError, match="configuration"):
            opened()
        assert parse_codecs(document["codecs"])[1] == ZstdCodec()
        document["codecs"][1] = ZSTD
    # Erratum: N5 is column-major, so every block comes out transposed.
    np.testing.assert_array_equal(opened()[64:128, 128:192].T, data[64:128, 128:192])
    document["codecs"] = [{"name": "transpose", "configuration": {"order": [1, 0]}}, *document["codecs"]]
    np.testing.assert_array_equal(opened()[:], data)
    if kind == "pad":  # erratum: without `padding`, writing gives headers of zeros
        opened()[:64, :64] = 1
        assert (tmp_path / "0/0").read_bytes()[:12] == bytes(12)
        intarsia.codecs.with_padding(opened(), n5_header((64, 64)))[:64, :64] = 1
    else:
        opened()[:64, :64] = 1
    data[:64, :64] = 1
    np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), data)


def test_the_printed_header_of_n5():
    literal = b"\x00\x00\x00\x02\x00\x00\x00\x40\x00\x00\x00\x40"
    assert literal == bytes.fromhex("00 00 00 02 00 00 00 40  00 00 00 40")
    assert literal == base64.b64decode("AAAAAgAAAEAAAABA") == n5_header((64, 64))
    assert struct.unpack(">HHII", literal) == (0, 2, 64, 64)


# -- nullable data

STRING = {"name": "optional", "configuration": {"name": "string", "configuration": {}}}
UINT8 = {"name": "optional", "configuration": {"name": "uint8", "configuration": {}}}


@pytest.mark.parametrize(
    ("depth", "fill_value", "scalar"),
    [(1, None, NULL), (1, [1], Some(1)), (2, None, NULL), (2, [None], Some(NULL)), (2, [[1]], Some(Some(1)))],
)
def test_the_fill_values_of_the_discussion(depth, fill_value, scalar, tmp_path):
    array = nullable.create_array(tmp_path, shape=2, dtype="uint8", depth=depth, fill_value=scalar)
    assert json.loads((tmp_path / "zarr.json").read_text())["fill_value"] == fill_value
    assert array.fill_value == scalar == nullable.open_array(tmp_path).fill_value


def test_strings_with_an_na_object_are_stored_as_optional_strings(tmp_path):
    # Erratum: np.array(["x", None], dtype=StringDType(na_object=nan)) holds the text 'None', and no null.
    assert np.array(["x", None], dtype=StringDType(na_object=np.nan))[1] == "None"
    arr_str = np.array(["x", np.nan], dtype=StringDType(na_object=np.nan))
    g = zarr.open_group(tmp_path, mode="w")
    nullable.create_array(g.store, "arr_str", data=arr_str)
    assert json.loads((tmp_path / "arr_str/zarr.json").read_text())["data_type"] == STRING
    read = nullable.open_array(g.store, "arr_str")[:]
    assert read.dtype == arr_str.dtype
    assert read[0] == "x"
    assert np.isnan(read[1])
    assert g["arr_str"][:].tolist() == ["x", None]


@pytest.mark.parametrize(
    ("data_type", "match"),
    [
        ({"name": "optional", "configuration": {"base_type": "uint8"}}, "base_type"),
        (UINT8, "cannot be encoded by the codec 'bytes' by itself"),
        ({"name": "optional", "configuration": {"name": "json", "configuration": {}}}, "not known.*'json'"),
        (
            {"name": "enum", "configuration": {"data_types": [{"name": "uint8"}, {"name": "string"}]}},
            "No Zarr data type found that matches {'name': 'enum'",
        ),
    ],
    ids=["base_type", "bytes alone", "json", "enum"],
)
def test_documents_that_nobody_has_specified_are_refused_in_words(data_type, match, tmp_path):
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
    document = array_document((100, 100), (50, 50), data_type, None, codecs) | {"attributes": {}}
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    with pytest.raises((DataTypeError, ValueError), match=match):
        zarr.open_array(tmp_path)[:]


@pytest.mark.parametrize("fill", [None, [None], [{"a": 1}], [[1, 2]], {"a": 1}, "text"])
def test_fill_values_that_only_json_would_have_are_refused_in_words(fill, tmp_path):
    codecs = [{"name": "optional", "configuration": {"mask_codecs": ["packbits"], "data_codecs": ["bytes"]}}]
    for inner, match in (("json", "its inner data type is not known.*'json'"), ("uint8", "fill_value")):
        if inner == "uint8" and fill is None:
            continue  # null, and nothing to refuse
        data_type = {"name": "optional", "configuration": {"name": inner, "configuration": {}}}
        document = array_document((4,), (4,), data_type, fill, codecs)
        (tmp_path / "zarr.json").write_text(json.dumps(document))
        with pytest.raises(DataTypeError, match=match):
            zarr.open_array(tmp_path)


def test_a_struct_is_null_as_a_whole(tmp_path):
    record = np.dtype([("a", "<i4"), ("b", "<f8")])
    nullable.create_array(tmp_path, data=[(1, 2.5), None, (3, 4.5)], dtype=record)
    read = nullable.open_array(tmp_path).read_nullable()
    assert read.missing.tolist() == [0, 1, 0]
    assert read.values[[0, 2]].tolist() == [(1, 2.5), (3, 4.5)]


def test_nothing_is_stored_between_the_parts_of_a_sparse_array(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(10**6,), chunks=(10,), dtype="optional[uint8]")
    for start in (0, 10**6 - 10):
        array.add_region([(start, start + 10)], codecs=["gzip"], data=np.arange(10, dtype="u1"))
    assert array[8:12].tolist() == [8, 9, None, None]
    assert array[500_000:].mask.sum() == 500_000 - 10
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2 * 2 + 2  # and two groups


def stored(values):
    return nullable.create_array({}, data=values, chunks=2)


def test_what_julia_and_r_compute_with_missing_values():
    column = stored([1, 2, 3, None]).to_arrow()
    assert pc.subtract(column, 1).to_pylist() == [0, 1, 2, None]
    assert pc.multiply(pc.subtract(column, 1), 5).to_pylist() == [0, 5, 10, None]
    assert (stored([True, None]).read_nullable() == np.True_).tolist() == [True, None]


def test_what_arrow_computes_with_nulls():
    column = stored([10, 20, None, 40, 50]).to_arrow()
    is_greater_than_25 = pc.greater(column, 25)
    is_less_than_45 = pc.less(column, 45)
    between = pc.and_(is_greater_than_25, is_less_than_45)
    assert pc.multiply(column, 2).to_pylist() == [20, 40, None, 80, 100]
    assert is_greater_than_25.to_pylist() == [False, False, None, True, True]
    assert is_less_than_45.to_pylist() == [True, True, None, True, False]
    assert between.to_pylist() == [False, False, None, True, False]
    assert pc.or_kleene(between, pa.scalar(True)).to_pylist() == [True] * 5
    assert stored(between)[:].tolist() == [False, False, None, True, False]


def test_what_polars_computes_with_nulls():
    df = pl.DataFrame(
        {
            "sensor_id": stored(["A1", "A2", "A3", "A4"]).to_polars(),
            "reading": stored([10.0, None, 25.0, None]).to_polars(),
            "visited": stored([True, False, None, True]).to_polars(),
            "checked": stored([False, None, True, None]).to_polars(),
        }
    )
    calibrated = df.lazy().with_columns(
        (pl.col("reading") * 1.5).alias("calibrated_reading"),
        (pl.col("visited") | pl.col("checked")).alias("visited_or_checked"),
    ).collect()  # fmt: skip
    assert stored(calibrated["calibrated_reading"])[:].tolist() == [15.0, None, 37.5, None]
    assert stored(calibrated["visited_or_checked"])[:].tolist() == [True, None, True, True]
