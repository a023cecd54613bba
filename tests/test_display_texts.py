"""Words that every table shares, and places that are told in one line."""

import pytest

import intarsia
from intarsia.display import codecs_text, count_text, place_text, ratio_text, size_text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (10**21, "1e+03 EB"),
    ],
)
def test_sizes(nbytes, text):
    assert size_text(nbytes) == text


def test_ratios_of_nothing():
    assert ratio_text(0, 0) == "?"
    assert ratio_text(10, 0) == "∞"


def test_one_and_many():
    assert [count_text(n, "box", "boxes") for n in (0, 1, 2)] == ["0 boxes", "1 box", "2 boxes"]


def test_places_and_messages_are_one_line_in_a_repository():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("deep/t", shape=(4,), chunks=(2,), dtype="u1")
    array = intarsia.open(repo, "deep/t")
    assert place_text(array.group.store_path) == f"icechunk:{tx.snapshot_id}/deep/t"
    assert "\n" not in repr(array)
    with pytest.raises(intarsia.errors.NotLogicalArrayError) as caught:
        intarsia.open(repo, "nothing")
    message, advice = str(caught.value).split("\n")
    assert message.startswith("there is no logical array at 'nothing'")
    assert advice == "  In the root: there is only deep"


def test_a_store_that_can_only_be_read_says_so(tmp_path):
    import zarr

    intarsia.create(tmp_path / "s", "a", shape=(4,), chunks=(2,), dtype="u1")
    store = zarr.storage.LocalStore(tmp_path / "s", read_only=True)
    with pytest.raises(intarsia.errors.ReadOnlyError, match="can only be read"):
        intarsia.open(store, "a", mode="r+")


def test_labels_tell_settings_and_nested_codecs():
    nested = [
        {"name": "shuffle", "configuration": {"element_size": 4}},
        {"name": "zstd", "configuration": {"level": 3}},
    ]
    codecs = [{"name": "bytes"}, {"name": "conditional", "configuration": {"codecs": nested}}]
    assert codecs_text(codecs) == "conditional(shuffle+zstd-3)"


def test_codecs_have_one_spelling_whoever_registered_them():
    zlib = {"name": "numcodecs.zlib", "configuration": {"level": 7}}
    shuffle = {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}
    blosc = {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"}}
    transpose = {"name": "transpose", "configuration": {"order": [1, 0]}}
    big = {"name": "bytes", "configuration": {"endian": "big"}}
    assert codecs_text([{"name": "bytes"}, shuffle, zlib], settings=False) == "shuffle+zlib"
    assert codecs_text([{"name": "bytes"}, shuffle, zlib]) == "shuffle+zlib-7"
    assert codecs_text([transpose, big, blosc]) == "transpose(order=[1, 0])+bytes+blosc-lz4-5"
    blosc["configuration"]["shuffle"] = "bitshuffle"
    assert codecs_text([blosc]) == "blosc-lz4-5-bitshuffle"
