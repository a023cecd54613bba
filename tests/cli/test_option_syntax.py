"""What people type on a command line, and what it means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.cli.arguments import (
    parse_bounds,
    parse_codec_list,
    parse_names,
    parse_options,
    parse_selection_text,
    parse_sizes,
)
from intarsia.cli.output import CommandError
from intarsia.manifest.box import element_bounds

ENTRY = (
    st.integers(-9, 9)
    | st.just(Ellipsis)
    | st.lists(st.integers(-9, 9), min_size=1, max_size=3)
    | st.builds(slice, *[st.none() | st.integers(-9, 9)] * 2, st.none() | st.integers(1, 4))
)


def spelled(entry):
    if entry is Ellipsis:
        return "..."
    if isinstance(entry, slice):
        parts = ["" if p is None else str(p) for p in (entry.start, entry.stop, entry.step)]
        return ":".join(parts if parts[2] else parts[:2])
    return str(entry)


@given(st.lists(ENTRY, min_size=1, max_size=4), st.booleans())
def test_a_selection_means_what_it_means_between_brackets(entries, brackets):
    text = ", ".join(map(spelled, entries))
    if brackets and not all(isinstance(entry, int) for entry in entries):
        text = f"[{text}]"
    assert parse_selection_text(text) == tuple(entries)


@pytest.mark.parametrize(
    "text", ["x", "1:2:3:4", "[1, 2", "1..2", "1.5", "__import__('os')", "[[[1]]]", "1]"]
)
def test_nonsense_is_refused(text):
    with pytest.raises(CommandError):
        parse_selection_text(text)


@pytest.mark.parametrize(
    ("text", "shape", "meant"),
    [
        ("0:5, :", (10, 4), [(0, 5), (0, 4)]),
        ("..., 1:2", (3, 4, 5), [(0, 3), (0, 4), (1, 2)]),
        ("2:", (10, 4), [(2, 10), (0, 4)]),
        ("", (), []),
    ],
)
def test_bounds(text, shape, meant):
    assert element_bounds(parse_bounds(text), shape) == meant


@pytest.mark.parametrize("text", ["3, :", "0:4:2, :", "[1, 2], :"])
def test_bounds_that_are_no_box_are_refused(text):
    with pytest.raises(CommandError, match="start:stop for each axis"):
        parse_bounds(text)


def test_codecs_as_json_with_settings_and_by_name():
    given = ['{"name": "zstd", "configuration": {"level": 3}}', "blosc:cname=lz4,clevel=5", "crc32c"]
    assert parse_codec_list(given) == [
        {"name": "zstd", "configuration": {"level": 3}},
        {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5}},
        {"name": "crc32c"},
    ]


@pytest.mark.parametrize("text", ["{", "{}", '{"name": 3}', "zstd:level", ":level=3", "[1]:=2"])
def test_codecs_that_are_none_are_refused(text):
    with pytest.raises(CommandError):
        parse_codec_list([text])


def test_raw_and_auto_stand_alone():
    for word in ("raw", "auto"):
        with pytest.raises(CommandError, match="cannot be combined"):
            parse_codec_list([word, "zstd"])


def test_sizes_names_and_options():
    assert parse_sizes("(3, 4)") == (3, 4)
    assert parse_names("time,,lon") == ("time", None, "lon")
    assert parse_options(['a={"b": 1}', "c=x=y"], "attribute") == {"a": {"b": 1}, "c": "x=y"}
    with pytest.raises(CommandError):
        parse_sizes("3, x")
