"""What is kept for a while, and what goes first."""

from intarsia.interop.views.fused_view import ChunkCache


def test_what_was_not_asked_for_the_longest_goes_first():
    cache = ChunkCache(most_bytes=6)
    for name in "abc":
        cache.put(name, b"xx")
    assert cache.get("a") == b"xx"
    cache.put("d", b"yyyy")
    assert [cache.get(name) for name in "abcd"] == [b"xx", None, None, b"yyyy"]


def test_putting_again_replaces_and_what_is_too_large_is_not_kept():
    cache = ChunkCache(most_bytes=4)
    for _ in range(9):
        cache.put("a", b"xxx")
    cache.put("b", b"y")
    assert [cache.get(name) for name in "ab"] == [b"xxx", b"y"]
    cache.put("c", b"12345")
    assert [cache.get(name) for name in "abc"] == [None, None, None]
    cache.put("a", b"1234")
    assert cache.get("a") == b"1234"
