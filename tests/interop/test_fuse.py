"""Fusing and splitting: same values, the encoded bytes of every chunk reused, nothing decoded."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec

import intarsia
from tests.grids import dear
from tests.logical.stores import memory, stored

SHUFFLE = {"name": "shuffle", "configuration": {"element_size": 4}}
CHAINS = [["gzip"], [SHUFFLE, "zstd"], ["zstd"], [], ["gzip", "crc32c"], [SHUFFLE, "gzip"]]


@st.composite
def fusable(draw):
    store = memory()
    chunks = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    array = intarsia.create(store, "a", shape=(0, 7), chunks=chunks, dtype="i4", fill_value=3)
    for i in range(draw(st.integers(0, 4))):
        data = np.arange(7 * (rows := draw(st.integers(1, 5)))).reshape(rows, 7) + 100 * i
        array.append(data, codecs=draw(st.sampled_from(CHAINS)), chunks=chunks)
    if array.size and draw(st.booleans()):
        array.drop_region(((0, min(chunks[0], array.shape[0])), (0, min(chunks[1], 7))))
    return store, array


@dear
@given(fusable())
def test_a_fused_array_has_the_values_and_splits_again(case):
    store, array = case
    expected = array[...]
    fused = intarsia.fuse(array)
    np.testing.assert_array_equal(zarr.open_array(store, path="a-fused", mode="r")[...], expected)
    again = intarsia.split(fused)
    np.testing.assert_array_equal(again[...], expected)
    assert {p.kind for p in intarsia.verify(again)} == set()


def test_encoded_bytes_are_reused_both_ways():
    store = memory()
    array = intarsia.create(store, "a", shape=(0,), chunks=(4,), dtype="i4", attributes={"units": "K"})
    array.append(np.arange(8), codecs=["gzip"])
    array.append(np.arange(8, 16), codecs=["zstd"])
    chunks = {
        r.name: [v for k, v in sorted(stored(store).items()) if f"{r.name}/c/" in k] for r in array.regions
    }
    members = [chunk for region in array.regions for chunk in chunks[region.name]]
    fused = intarsia.fuse(array)
    inside = [value for key, value in sorted(stored(store).items()) if key.startswith("a-fused/c/")]
    assert [chunk[1:] for chunk in inside] == members
    assert [chunk[0] for chunk in inside] == [1, 1, 2, 2]
    assert fused.attrs["units"] == "K"
    back = intarsia.split(fused)
    copies = [v for k, v in sorted(stored(store).items()) if k.startswith("a-fused-split/m-") and "/c/" in k]
    assert sorted(copies) == sorted(members)
    assert dict(back.attrs) == {"units": "K"}


def test_nothing_is_decoded(monkeypatch):
    array = intarsia.create(memory(), "a", shape=(0,), chunks=(4,), dtype="i4")
    array.append(np.arange(8), codecs=["gzip"])

    def fail(*args, **options):
        raise AssertionError("a chunk was decoded")

    monkeypatch.setattr(GzipCodec, "_decode_sync", fail)
    monkeypatch.setattr(GzipCodec, "_encode_sync", fail)
    intarsia.split(intarsia.fuse(array))


def test_chunks_that_a_member_never_stored_keep_its_fill_value():
    array = intarsia.create(memory(), "a", shape=(8,), chunks=(4,), dtype="i4", fill_value=1)
    array.add_region([(0, 4)], codecs=["gzip"], fill_value=7)
    assert intarsia.fuse(array)[...].tolist() == [7] * 4 + [1] * 4


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"codecs": ["gzip"], "chunks": (2,)}, r"has chunks \(2,\), but the logical array has \(4,\)"),
        ({"codecs": ["gzip"], "chunks": (4,), "shards": (8,)}, "is sharded"),
        ({"codecs": [BytesCodec(endian="big"), GzipCodec()]}, "before its compressors"),
    ],
)
def test_what_cannot_be_fused_is_refused_with_the_reason(options, match):
    store = memory()
    array = intarsia.create(store, "a", shape=(0,), chunks=(4,), dtype="i4")
    array.append(np.arange(8), codecs=["zstd"])
    array.append(np.arange(8), **options)
    before = stored(store)
    with pytest.raises(intarsia.errors.CodecConfigurationError, match=match):
        intarsia.fuse(array)
    assert stored(store) == before


@pytest.mark.parametrize(
    ("backing", "how"),
    [
        ({"packing": intarsia.Packing("int16", scale=0.5)}, r"is packed: int16 \* 0\.5"),
        ({"view": intarsia.View.identity(2).flip(0, length=4)}, r"has the view \[-0, 1\]"),
        ({"view": intarsia.View.identity(2).transpose(1, 0)}, r"has the view \[1, 0\]"),
    ],
)
def test_packed_and_turned_regions_have_to_be_recoded_first(backing, how):
    store = memory()
    array = intarsia.create(store, "a", shape=(8, 4), chunks=(4, 4), dtype="f8")
    array.add_region([(0, 4), (0, 4)], data=np.ones((4, 4)), codecs=["gzip"])
    stored_type = backing["packing"].stored if "packing" in backing else "f8"
    member = array.group.create_array("m", shape=(4, 4), chunks=(4, 4), dtype=stored_type)
    member[...] = np.arange(16).reshape(4, 4)
    array.add_region([(4, 8), (0, 4)], member="m", **backing)
    expected, before = array[...], stored(store)
    with pytest.raises(intarsia.errors.CodecConfigurationError, match=how) as refused:
        intarsia.fuse(array)
    assert "the region [4:8, 0:4]" in str(refused.value)
    assert stored(store) == before
    array.recode(((4, 8), (0, 4)), codecs=["gzip"], chunks=(4, 4), packing=None)
    np.testing.assert_array_equal(intarsia.fuse(array)[...], expected)


def test_what_cannot_be_split_is_refused_with_the_reason():
    store = memory()
    codecs = [BytesCodec(), intarsia.codecs.ConditionalCodec(codecs=[ZstdCodec()]), Crc32cCodec()]
    z = zarr.create(store=store, path="z", shape=4, dtype="u1", codecs=codecs)
    before = stored(store)
    with pytest.raises(intarsia.errors.CodecConfigurationError, match="last codec of the array is 'crc32c'"):
        intarsia.split(z)
    assert stored(store) == before


def test_an_array_of_zarr_v2_is_not_split():
    array = zarr.create_array({}, shape=4, chunks=2, dtype="u1", zarr_format=2)
    with pytest.raises(intarsia.errors.CodecConfigurationError, match="one of Zarr v2, not 'conditional'"):
        intarsia.split(array)


def test_replicas_are_left_out():
    array = intarsia.create(memory(), "a", shape=(0, 4), chunks=(2, 2), dtype="i4")
    array.append(np.arange(16).reshape(4, 4), codecs=["gzip"])
    array.add_replica(chunks=(4, 1), codecs=["zstd"])
    assert intarsia.fuse(array)[...].tolist() == np.arange(16).reshape(4, 4).tolist()


def test_a_failure_leaves_nothing_behind(monkeypatch):
    store = memory()
    array = intarsia.create(store, "a", shape=(0,), chunks=(4,), dtype="i4")
    array.append(np.arange(8), codecs=["gzip"])
    fused = intarsia.fuse(array)
    before = stored(store)

    def fail(*args):
        raise OSError("the disk is full")

    monkeypatch.setattr("intarsia.interop.fuse.copy_chunks", fail)
    for attempt in (lambda: intarsia.fuse(array, path="b"), lambda: intarsia.split(fused, path="b")):
        with pytest.raises(OSError, match="full"):
            attempt()
        assert stored(store) == before
