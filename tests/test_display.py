"""Tables fit the terminal: identifiers are shortened, words never."""

import pickle
from typing import ClassVar

import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia import nullable
from intarsia.display import Listing, Table, table_html, table_text

COLUMNS = ("Snapshot", "Message", "Bytes", "Member")
ROW = (
    "ABCDEFGHJKMNPQRSTVWX",
    "the first year of the archive",
    "12.3 MB",
    "m-0123456789abcdef0123456789abcdef",
)


def shown(columns, rows, width):
    """The lines of a table on a terminal of this width."""
    return table_text(columns, rows, width).splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_word_is_whole_and_every_line_fits(width):
    lines = shown(COLUMNS, [ROW], width)
    text = "\n".join(lines)
    assert all(len(line) <= width for line in lines)
    for word in (*ROW[1].split(), ROW[2], *COLUMNS):
        assert word in text
    assert "ABCDEFGH" in text
    assert (ROW[3] in text) == (width == 120)


def test_a_file_gets_whole_lines():
    assert str(Table(COLUMNS, [ROW])) == table_text(COLUMNS, [ROW])
    assert table_text(COLUMNS, [ROW]).splitlines()[1] == "  ".join(ROW)


def test_a_terminal_of_python_gets_a_table_that_fits(monkeypatch):
    monkeypatch.setattr("intarsia.display.terminal_width", lambda: 60)
    assert str(Table(COLUMNS, [ROW])).splitlines() == shown(COLUMNS, [ROW], 60)


def test_a_row_that_would_take_many_lines_is_a_list_of_names_and_values():
    row = (
        "ABCDEFGHJKMNPQRSTVWX",
        "2026-11-17 13:09:38",
        "the first of many years",
        "added [0:40, 0:60, 0:120]",
    )
    assert shown(("Snapshot", "Time (UTC)", "Message", "What changed"), [row], 48) == [
        "Snapshot      ABCDEFGHJKMNPQRSTVWX",
        "Time (UTC)    2026-11-17 13:09:38",
        "Message       the first of many years",
        "What changed  added [0:40, 0:60, 0:120]",
    ]


@pytest.mark.parametrize("width", range(30, 90, 6))
def test_shapes_numbers_and_units_are_never_wrapped_and_nothing_of_a_path_is_lost(width):
    paths = ("ocean/sea_surface_temperature", "t")
    rows = [(path, "(14600, 1801, 3600)", "float32", "379 GB", "1200") for path in paths]
    lines = shown(("Array", "Shape", "Data type", "Size", "Regions"), rows, width)
    text = "\n".join(lines)
    assert text.count("(14600, 1801, 3600)") == text.count("379 GB") == text.count("1200") == len(rows)
    assert max(map(len, lines)) <= width
    if width >= 42:
        assert paths[0] in text


words = st.text("abcdefgh", min_size=1, max_size=12)
texts = st.lists(words, min_size=1, max_size=6).map(" ".join)


@given(st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=5), st.integers(24, 90))
def test_no_word_is_lost_or_cut_in_any_width(rows, width):
    lines = shown(("Message", "Region", "What"), rows, width)
    seen = " ".join(lines).split()
    for row in rows:
        for cell in row:
            for word in cell.split():
                assert word in seen
    assert max(map(len, lines)) <= width


def test_a_column_without_words_and_brackets_in_names_are_shown():
    assert shown(("", "[red]x[/red]"), [("", "1")], 40) == ["  [red]x[/red]", "  1"]


def test_cells_of_strangers_do_no_harm_in_a_notebook():
    assert "<script>" not in table_html(("Message",), [("<script>alert(1)</script>",)])
    assert "\x1b" not in table_text(("Message",), [("\x1b[31m",)])


def test_an_array_says_in_one_line_what_it_is(tmp_path):
    place = tmp_path / "a.zarr"
    arrays = [
        intarsia.create(place, "logical", shape=(10, 10), chunks=(5, 5), dtype="f4"),
        intarsia.reader(zarr.create_array(place / "plain", shape=(10, 10), dtype="f4")),
        nullable.create_array(place / "nulls", data=[1, None]),
    ]
    for array in arrays:
        assert "\n" not in repr(array)
        assert str(array.shape) in repr(array)
        assert str(array.shape) in array._repr_html_()


class Names(Listing[str]):
    columns: ClassVar = {"Name": str, "Always empty": lambda name: None}
    empty = "no names"


def test_a_listing_is_a_tuple_that_shows_a_table():
    names = Names(["a", "b"])
    assert names == ("a", "b")
    assert names[0] == "a"
    assert repr(names[1:]) == "Name\nb"
    assert repr(names) == "Name\na\nb"
    assert repr(Names()) == "no names"
    assert "no names" in Names()._repr_html_()
    assert pickle.loads(pickle.dumps(names)) == names
    assert repr(Names(map(str, range(100)))).endswith("… and 40 more rows")


def test_regions_history_and_plans_are_tables_in_notebooks():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="first <b>year") as tx:
        tx.create("t", shape=(0,), chunks=(2,), dtype="u1").append([1, 2], codecs=["gzip"])
    intarsia.append(repo, "t", [3, 4], codecs=["zstd"])
    array = intarsia.open(repo, "t")
    log = intarsia.history(repo, "t")
    shown = [
        array.regions,
        log,
        intarsia.diff(repo, "t", log[1].snapshot_id, "main"),
        intarsia.explain(array),
    ]
    for each in shown:
        assert each._repr_html_().count("<table") == 1
        assert "zstd" in each._repr_html_()
        assert "zstd" in repr(each)
    assert "first &lt;b&gt;year" in log._repr_html_()
