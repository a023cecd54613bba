"""What is kept for a while, and what goes first."""

from intarsia.interop.views.recent import Recent


def test_what_was_not_asked_for_the_longest_goes_first():
    recent = Recent(most_bytes=6)
    for name in "abc":
        recent.put(name, b"xx")
    assert recent.get("a") == b"xx"
    recent.put("d", b"yyyy")
    assert [recent.get(name) for name in "abcd"] == [b"xx", None, None, b"yyyy"]


def test_putting_again_replaces_and_what_is_too_large_is_not_kept():
    recent = Recent(most_bytes=4)
    for _ in range(9):
        recent.put("a", b"xxx")
    recent.put("b", b"y")
    assert [recent.get(name) for name in "ab"] == [b"xxx", b"y"]
    recent.put("c", b"12345")
    assert [recent.get(name) for name in "abc"] == [None, None, None]
    recent.put("a", b"1234")
    assert recent.get("a") == b"1234"
