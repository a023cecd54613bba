"""Reading parts of stored objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import Crc32cCodec, GzipCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore, StorePath, WrapperStore

from intarsia import OffsetCodec, PadCodec
from intarsia.codecs.extent import Extent, MemoryObject, StoredObject, margins

CONTENT = bytes(range(100))


class AsyncOnly(WrapperStore[MemoryStore]):
    _supports_sync_io = False


def source(kind, tmp_path):
    buffer = default_buffer_prototype().buffer.from_bytes(CONTENT)
    if kind == "memory":
        return MemoryObject(buffer)
    store = {
        "local store": lambda: LocalStore(tmp_path),
        "memory store": MemoryStore,
        "asynchronous store": lambda: AsyncOnly(MemoryStore()),
    }[kind]()
    stored = StoredObject(StorePath(store, "some/key"))
    stored.write(buffer)
    assert stored.size() == 100
    return stored


KINDS = ["memory", "local store", "memory store", "asynchronous store"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("start", "trail"), [(0, 0), (7, 0), (0, 9), (7, 9)])
def test_parts_of_an_object(kind, start, trail, tmp_path):
    extent = Extent(source(kind, tmp_path)).without(start, trail)
    inside = CONTENT[start : 100 - trail]
    assert extent.all().to_bytes() == inside
    assert extent.first(5).to_bytes() == inside[:5]
    assert extent.last(5).to_bytes() == inside[-5:]
    part = extent.part(10, 20)
    assert part.all().to_bytes() == inside[10:20]
    assert part.first(3).to_bytes() == inside[10:13]
    assert part.first(30).to_bytes() == inside[10:20]
    assert part.last(3).to_bytes() == inside[17:20]
    assert part.last(30).to_bytes() == inside[10:20]
    assert part.without(2, 3).all().to_bytes() == inside[12:17]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_an_object_that_does_not_exist(kind, tmp_path):
    missing = Extent(StoredObject(StorePath(source(kind, tmp_path).path.store, "other")))
    assert missing.all() is missing.first(3) is missing.last(3) is None


@given(st.lists(st.sampled_from([Crc32cCodec(), OffsetCodec(offset=3), PadCodec(location="end", nbytes=2),
                                 PadCodec(location="start", nbytes=5)])))  # fmt: skip
def test_margins_are_what_the_codecs_add(codecs):
    before, after = margins(codecs)
    assert before == sum(3 if isinstance(c, OffsetCodec) else 5 for c in codecs if isinstance(c, OffsetCodec)
                         or getattr(c, "location", None) == "start")  # fmt: skip
    assert before + after == sum(c.compute_encoded_size(0, None) for c in codecs)
    assert margins([*codecs, GzipCodec()]) is None
