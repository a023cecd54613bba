"""zstd through contexts that are kept gives what numcodecs gives, and refuses what it refuses."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import zstd
from zarr.codecs import ZstdCodec

from intarsia.codecs import kept_contexts
from intarsia.codecs.bounded import unpacker


@given(
    st.binary(min_size=1, max_size=3000), st.integers(1, 5), st.sampled_from([bytes, bytearray, memoryview])
)
def test_frames_come_out_as_they_went_in(content, level, kind):
    memory = np.zeros(len(content), dtype="u1")
    kept_contexts.decompress(kind(zstd.compress(content, level)), memory)
    assert memory.tobytes() == content


@given(st.binary(min_size=1, max_size=300), st.data())
def test_what_is_damaged_or_of_another_size_is_refused_and_the_next_frame_is_read(content, data):
    frame = zstd.compress(content)
    cut = data.draw(st.integers(0, len(frame) - 1))
    for bad, size in ((frame[:cut], len(content)), (frame, len(content) + 1), (frame, len(content) - 1)):
        with pytest.raises((RuntimeError, ValueError)):
            kept_contexts.decompress(bad, np.empty(size, dtype="u1"))
    memory = np.empty(len(content), dtype="u1")
    kept_contexts.decompress(frame, memory)
    assert memory.tobytes() == content


def test_threads_have_contexts_of_their_own():
    frames = {i: zstd.compress(bytes([i]) * 5000 + np.random.default_rng(i).bytes(5000)) for i in range(64)}

    def first(i):
        memory = np.empty(10_000, dtype="u1")
        kept_contexts.decompress(frames[i], memory)
        return int(memory[0]), bytes(memory[5000:]) == np.random.default_rng(i).bytes(5000)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(first, frames)) == [(i, True) for i in frames]


def test_without_the_library_numcodecs_does_it(monkeypatch):
    monkeypatch.setattr(sys, "platform", "elsewhere")
    assert kept_contexts._found() is zstd.decompress


def test_headers_that_differ_from_chunk_to_chunk():
    """Of an array that several programs wrote: some frames do not say how long their content is."""
    unpack, content = unpacker(ZstdCodec(), 1000), bytes(range(250)) * 4
    plain = zstd.compress(content, 1)
    checked = zstd.compress(content, 1, checksum=True)
    two = zstd.compress(content[:600]) + zstd.compress(content[600:])
    for data in (plain, two, checked, plain, two, memoryview(plain), checked):
        assert bytes(unpack(data, np.empty(1000, dtype="u1"))) == content
    with pytest.raises((ValueError, RuntimeError)):
        unpack(zstd.compress(content + b"x"), np.empty(1000, dtype="u1"))
