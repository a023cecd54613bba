"""What benchmarks say of limits: bare loops read and write what is there, samples know whose time it is."""

import dis
import os

import numpy as np
import pytest
import zarr
from benchmarks import __main__ as program
from benchmarks import profiled
from benchmarks.measure import Cost, headed, table, with_limits
from benchmarks.read_parts import DECODING, LOOPS, Reads, call_of, limits, limits_table, missed, why_slower
from benchmarks.write_parts import Writes, into_files
from zarr.codecs import ZstdCodec

from intarsia.engine import chunk_codecs, read, write_chunks
from intarsia.engine.fetch import store

DATA = np.arange(24 * 16, dtype="f4").reshape(24, 16)


@pytest.mark.parametrize("shards", [None, (16, 8)])
@pytest.mark.parametrize("compressors", [None, ZstdCodec()])
@pytest.mark.parametrize("selection", [np.s_[:, :], np.s_[3:20:3, 1::2], np.s_[8:16, 4:8], np.s_[5]])
def test_bare_loops_read_what_the_array_holds(tmp_path, shards, compressors, selection):
    array = zarr.create_array(
        tmp_path, data=DATA[:, :16], chunks=(8, 4), shards=shards, compressors=compressors
    )
    reads = Reads([call_of(array, selection)], array.dtype, 2)
    for loop in reads.loops.values():
        np.testing.assert_array_equal(loop()[0].reshape(DATA[selection].shape), DATA[selection])
    for part in reads.parts.values():
        part()


def test_bare_loops_read_memory():
    array = zarr.create_array({}, data=DATA, chunks=(8, 4), compressors=None)
    reads = Reads([call_of(array, np.s_[::5])], array.dtype, 1, in_memory=True)
    assert not {"files", DECODING} & reads.parts.keys()
    for loop in reads.loops.values():
        np.testing.assert_array_equal(loop()[0], DATA[::5])


@pytest.mark.parametrize("compressors", [[], [ZstdCodec()]])
def test_bare_loops_write_the_chunks_of_the_array(tmp_path, compressors):
    zarr.create_array(tmp_path / "zarr", data=DATA, chunks=(8, 4), compressors=compressors or None)
    bare = Writes(DATA, (8, 4), compressors, (1, 1), into_files(tmp_path / "bare"))
    expected = [(tmp_path / "zarr" / key).read_bytes() for key in _keys()]
    for job in (*bare.loops.values(), bare.parts["storing"]):
        job()
        found = [(tmp_path / "bare" / str(number)).read_bytes() for number in range(len(expected))]
        assert found == expected
        for path in (tmp_path / "bare").iterdir():
            path.unlink()


def _keys():
    return [f"c/{y}/{x}" for y in range(3) for x in range(4)]


def test_a_goal_is_missed_by_us_or_by_the_bare_loop_as_well():
    costs = dict.fromkeys(LOOPS, Cost(2.0, 2.0)) | {"intarsia": Cost(3.0, 1.0)}
    goals = {"a": Cost(4.0, 0.5), "b": Cost(2.5, 4.0), "c": Cost(1.0, 4.0)}
    assert missed(costs, goals) == ("b; c", "c")
    assert missed(costs, goals, "processor") == ("a", "a")


@pytest.mark.parametrize(
    ("theirs", "parts", "reason"),
    [
        (Cost(3.0, 3.0), 1.0, ""),
        (Cost(1.0, 3.0), 1.0, "TensorStore: by more cores, with 1.50 times the processor time of ours"),
        (Cost(1.0, 1.0), 1.5, "TensorStore: what others do for us takes 1.5e+03 ms alone"),
        (Cost(1.0, 1.0), 0.5, "TensorStore: Python takes 1.5e+03 ms beside files, decoding and copying"),
    ],
)
def test_a_row_says_why_another_program_is_faster(theirs, parts, reason):
    costs = {"intarsia": Cost(2.0, 2.0), "TensorStore": theirs, DECODING: Cost(parts, parts)}
    assert why_slower(costs) == reason


def test_columns_in_which_nothing_was_measured_are_left_out():
    text = limits_table(
        [("a", "", "1", ""), ("b", "", "", "")], ("read", "files alone", "intarsia", "missed")
    )
    assert text.splitlines()[2:] == [
        "| read | intarsia | missed |",
        "|---|---|---|",
        "| a | 1 |  |",
        "| b |  |  |",
    ]


def test_large_chunks_need_not_be_read_three_times_as_fast():
    names = ("intarsia", "zarr-python, fused", *LOOPS)
    costs = dict.fromkeys(names, Cost(1.0, 1.0))
    assert limits(costs, 1, elements=256**2)[-3] == "zarr-python, fused"
    assert limits(costs, 1, elements=256**2 + 1)[-3] == ""


def test_the_page_has_the_tables_of_claims_and_results_the_limits():
    said = "fast\n\nHow it goes.\n\nParts and limits: What they are."
    fast, limit = (table(title, [("1",)], ("a",)) for title in ("Fast", "Limit"))
    section, limits = program.sections("reader", said, headed("2 times as fast", with_limits(fast, limit)))
    assert section.startswith("## 2 times as fast\n\n<!-- reader -->\n\nHow it goes.\n\n### Fast\n")
    assert section.endswith("Parts and limits: `benchmarks/results/reader.md`.\n")
    assert "Limit\n" not in section
    assert limits.startswith("# `benchmarks/reader.py`: parts and limits\n")
    assert "\n\nWhat they are.\n\n## Limit\n\n| a |\n" in limits
    assert program.sections("reader", said, with_limits("", limit))[0] == ""
    assert program.sections("reader", "fast", fast) == (f"## fast\n\n<!-- reader -->\n\n{fast}", "")


def test_the_page_names_the_results_that_there_are():
    page, results = program.PAGE.read_text(), {path.stem for path in program.RESULTS.glob("*.md")}
    claims = {claim for claim in program.CLAIMS if program.MARK.format(claim) in page}
    named = {claim for claim in claims if f"`{program.RESULTS / claim}.md`" in page}
    assert named == results & claims
    assert claims | results == set(program.CLAIMS)


def _calls(function):
    code = function.__code__
    return code, [i.offset for i in dis.get_instructions(code) if i.opname.startswith("CALL")]


def test_a_sample_says_whose_time_it_is():
    code, (first, *_) = _calls(store.FileSpan.read_into)
    assert profiled.whose(code, first) == profiled.SYSTEM
    assert profiled.whose(code, 0) == "engine/fetch/store"
    code, (first, *_) = _calls(os.path.join)
    assert profiled.whose(code, first) == "Python's library"
    code, (first, *_) = _calls(np.broadcast_shapes)
    assert profiled.whose(code, first) == profiled.NUMPY
    pack = chunk_codecs.packer(ZstdCodec(), 4)
    code, (last,) = _calls(pack)
    assert profiled.whose(code, last) == profiled.COMPRESSORS
    resumed = next(i.offset for i in dis.get_instructions(code) if i.opname == "RESUME")
    assert profiled.whose(code, resumed) == profiled.COPIES


def test_copies_are_looked_for_after_functions_that_there_are():
    known = {
        "engine/read.py": read,
        "engine/write_chunks.py": write_chunks,
        "engine/chunk_codecs.py": chunk_codecs,
    }
    for place in (place for places in profiled.AFTER_A_COPY.values() for place in places):
        file, _, function = place.partition(" ")
        assert hasattr(known[file], function.partition(".")[0])


@pytest.mark.parametrize("interval", [profiled.INTERVAL, 0.00002])
def test_shares_make_up_the_whole(monkeypatch, interval):
    monkeypatch.setattr(profiled, "INTERVAL", interval)  # the shorter one ends before a look does
    found = profiled.shares(lambda: sorted(range(1000)), seconds=0.02)
    assert sum(found.values()) == pytest.approx(1)
