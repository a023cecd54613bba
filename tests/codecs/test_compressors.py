"""zstd and gzip by the libraries themselves give what others make of them, and refuse what they refuse."""

import gzip
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import zstd
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec, ZstdCodec

import intarsia
from intarsia.codecs import compressors
from intarsia.codecs.compressors import exact_decompressor
from intarsia.engine import chunk_codecs


@given(
    st.binary(min_size=1, max_size=3000), st.integers(1, 5), st.sampled_from([bytes, bytearray, memoryview])
)
def test_frames_come_out_as_they_went_in(content, level, kind):
    memory = np.zeros(len(content), dtype="u1")
    compressors.decompress_zstd(kind(zstd.compress(content, level)), memory)
    assert memory.tobytes() == content


@given(st.binary(min_size=1, max_size=300), st.data())
def test_what_is_damaged_or_of_another_size_is_refused_and_the_next_frame_is_read(content, data):
    frame = zstd.compress(content)
    cut = data.draw(st.integers(0, len(frame) - 1))
    unpack = exact_decompressor(ZstdCodec(), len(content))
    for bad in (frame[:cut], zstd.compress(content + b"x"), zstd.compress(content[1:])):
        with pytest.raises((RuntimeError, ValueError)):
            unpack(bad, np.empty(len(content), dtype="u1"))
    memory = np.empty(len(content), dtype="u1")
    compressors.decompress_zstd(frame, memory)
    assert memory.tobytes() == content


@pytest.mark.parametrize("library", [compressors.decompress_zstd, compressors.decompress_zstd_by_numcodecs])
def test_no_bytes_are_not_an_empty_frame(library, monkeypatch):
    assert bytes(compressors.decompress_zstd_frames(zstd.compress(b""), 100)) == b""
    monkeypatch.setattr(compressors, "decompress_zstd", library)
    with pytest.raises(ValueError, match="no bytes"):
        compressors.decompress_zstd_frames(b"", 100)


def test_threads_have_contexts_of_their_own():
    frames = {i: zstd.compress(bytes([i]) * 5000 + np.random.default_rng(i).bytes(5000)) for i in range(64)}

    def first(i):
        memory = np.empty(10_000, dtype="u1")
        compressors.decompress_zstd(frames[i], memory)
        return int(memory[0]), bytes(memory[5000:]) == np.random.default_rng(i).bytes(5000)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(first, frames)) == [(i, True) for i in frames]


def test_without_the_libraries_others_do_it(monkeypatch):
    otherwise = object()
    for make in (compressors.zstd_decompressor, compressors.gzip_decompressor, compressors.blosc_getter):
        assert compressors._bound(make, "no such library", otherwise) is otherwise
        assert compressors._bound(make, None, otherwise) is otherwise  # the program itself, which has none
    monkeypatch.setattr(compressors, "decompress_zstd", compressors.decompress_zstd_by_numcodecs)
    content = bytes(range(250)) * 4
    assert (
        bytes(exact_decompressor(ZstdCodec(), 1000)(zstd.compress(content), np.empty(1000, "u1"))) == content
    )
    assert bytes(compressors.decompress_zstd_frames(zstd.compress(content), 2000)) == content
    for frames in (zstd.compress(content) * 2, zstd.compress(content + b"x"), zstd.compress(content[1:])):
        with pytest.raises((ValueError, RuntimeError)):
            exact_decompressor(ZstdCodec(), 1000)(frames, np.empty(1000, "u1"))
    with pytest.raises(ValueError, match="cannot be read"):
        compressors.decompress_zstd_frames(zstd.compress(content) * 2, 2500)


needs_libdeflate = pytest.mark.skipif(
    compressors.deflate is None, reason="there is no libdeflate on this system"
)


@needs_libdeflate
@given(st.binary(min_size=1, max_size=3000), st.sampled_from([bytes, bytearray, memoryview]))
def test_one_member_of_gzip_is_inflated_where_it_belongs(content, kind):
    memory = np.zeros(len(content) + 2, dtype="u1")
    assert compressors.inflate(kind(gzip.compress(content)), memory[1:-1])
    assert memory.tobytes() == b"\0" + content + b"\0"


@needs_libdeflate
@given(st.binary(min_size=1, max_size=3000), st.integers(0, 9))
def test_gzip_is_read_by_others(content, level):
    assert gzip.decompress(compressors.deflate(np.frombuffer(content, dtype="u1"), level)) == content


@needs_libdeflate
def test_threads_compress_at_levels_of_their_own():
    contents = {i: bytes([i]) * 5000 + np.random.default_rng(i).bytes(5000) for i in range(64)}

    def there_and_back(i):
        return gzip.decompress(compressors.deflate(contents[i], i % 10))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(there_and_back, contents)) == list(contents.values())


@needs_libdeflate
@pytest.mark.parametrize("shards", [None, (20, 20)])
def test_the_engine_writes_gzip_by_it_and_zarr_without_it_reads_the_same(shards, monkeypatch, tmp_path):
    values = np.arange(400, dtype="f8").reshape(20, 20)

    def written(name):
        array = intarsia.create(tmp_path / name, shape=(20, 20), chunks=shards or (7, 9), dtype="f8")
        inner = [BytesCodec(), GzipCodec(level=9)]
        codecs = [ShardingCodec(chunk_shape=(5, 10), codecs=inner)] if shards else inner
        array.add_region([(0, 20), (0, 20)], codecs=codecs)
        array[...] = values
        return zarr.open_array(tmp_path / name / array.regions[0].name, mode="r")[...]

    by_it = written("by-it")
    monkeypatch.setattr(chunk_codecs, "deflate", None)
    np.testing.assert_array_equal(by_it, written("by-zarr"))
    np.testing.assert_array_equal(by_it, values)


@needs_libdeflate
@given(st.binary(min_size=2, max_size=300), st.data())
def test_all_but_one_whole_member_is_left_to_others_and_nothing_is_written_beside_the_memory(content, data):
    member = gzip.compress(content)
    cut = data.draw(st.integers(0, len(member) - 1))
    flipped = bytearray(member)
    flipped[-8] ^= 1  # of the checksum
    halves = gzip.compress(content[:1]) + gzip.compress(content[1:])
    bomb = gzip.compress(bytes(10**6))
    for doubtful in (member[:cut], bytes(flipped), halves, member + b"\0", member + member, bomb):
        room = np.full(len(content) + 2, 7, dtype="u1")
        assert not compressors.inflate(doubtful, room[1:-1])
        assert room[0] == room[-1] == 7
    unpack = exact_decompressor(GzipCodec(), len(content))
    assert bytes(unpack(halves, np.empty(len(content), dtype="u1"))) == content


def test_headers_that_differ_from_chunk_to_chunk():
    """Of an array that several programs wrote: some frames do not say how long their content is."""
    unpack, content = exact_decompressor(ZstdCodec(), 1000), bytes(range(250)) * 4
    plain = zstd.compress(content, 1)
    checked = zstd.compress(content, 1, checksum=True)
    two = zstd.compress(content[:600]) + zstd.compress(content[600:])
    for data in (plain, two, checked, plain, two, memoryview(plain), checked):
        assert bytes(unpack(data, np.empty(1000, dtype="u1"))) == content
    with pytest.raises((ValueError, RuntimeError)):
        unpack(zstd.compress(content + b"x"), np.empty(1000, dtype="u1"))
