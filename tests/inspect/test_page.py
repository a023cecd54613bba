"""The report page: complete, self-contained, and inert whatever is stored."""

import re
from operator import mul

import numpy as np
import pytest
import zarr
from hypothesis import given, settings

import intarsia
from intarsia.inspect.heat_map import _boxes, heat_cells, heat_scale
from intarsia.inspect.page import render_page
from intarsia.inspect.survey import survey
from intarsia.inspect.write_report import moments_of, report_of
from intarsia.manifest.box import Box
from tests.inspect import samples
from tests.logical import backings


def page_of(array, **options):
    return render_page("title", "about", [report_of(array, **options)])


def test_a_page_has_everything_inside():
    page = page_of(samples.two_codecs())
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "default-src &#x27;none&#x27;" in page
    for heading in ("Regions", "Of all bytes", "Ratio per chunk", "Check"):
        assert heading in page
    assert "No problems found" in page


def test_hostile_words_stay_words():
    page = page_of(samples.hostile())
    assert page.count("<script") == 1
    assert "<img" not in page
    assert "onerror='" not in page
    assert "<code>evil&lt;script&gt;alert(1)&lt;/script&gt;</code></h2>" in page


def test_the_facts_of_the_page_are_those_of_info():
    array = samples.two_codecs()
    page = page_of(array)
    names = re.findall(r"<dt>(.*?)</dt>", page)
    fields = [name for name, _ in array.info.fields if name not in ("Type", "Path")]  # in the heading
    assert names[: len(fields)] == fields


def test_heat_adds_up_to_all_stored_chunks():
    array = samples.two_codecs()
    seen = survey(array)
    cells = heat_cells(seen)
    assert len(cells) == 80
    assert sum(cell.stored for cell in cells) == pytest.approx(seen.total_stored)
    assert sum(cell.nbytes for cell in cells) == pytest.approx(seen.total_nbytes)
    assert min(cell.ratio for cell in cells) == pytest.approx(1.0)


def test_heat_of_more_chunks_than_cells_still_adds_up():
    array = intarsia.create({}, "a", shape=(122, 162), chunks=(2, 2), dtype="u1")
    array.add_region(((0, 122), (0, 162)), codecs=[], data=np.ones((122, 162), dtype="u1"))
    cells = heat_cells(survey(array))
    assert len(cells) <= 60 * 80
    assert sum(cell.stored for cell in cells) == pytest.approx(122 * 162)
    assert all(cell.ratio == pytest.approx(1.0) for cell in cells)


@pytest.mark.parametrize("ndim", [0, 1, 3])
def test_heat_of_other_dimensions(ndim):
    array = intarsia.create({}, "a", shape=(4,) * ndim, chunks=(2,) * ndim, dtype="f4")
    array.add_region([(0, 4)] * ndim, codecs=["gzip"], data=np.ones((4,) * ndim))
    cells = heat_cells(survey(array))
    assert sum(cell.stored for cell in cells) == pytest.approx(survey(array).total_stored)
    assert "Ratio per chunk" in page_of(array)


@settings(max_examples=25)
@given(backings.arrays())
def test_chunks_of_packed_and_turned_members_are_drawn_where_they_show(made):
    array, _ = made
    seen = survey(array)
    starts, stops, _, stored = _boxes(seen)
    expected = []
    for region in array.regions:
        of_member = seen.chunks[region.row.member]
        for index, nbytes in zip(of_member.index.tolist(), of_member.nbytes.tolist(), strict=True):
            grain = region.member.shards or region.member.chunks
            start = tuple(map(mul, index, grain))
            chunk = Box.sized(grain, start)
            inside = chunk.intersect(Box.of(region.member_bounds))
            if inside is not None:
                expected.append((*region.shown_from(inside), nbytes))
    drawn = zip(map(tuple, starts.tolist()), map(tuple, stops.tolist()), stored.tolist(), strict=True)
    assert sorted(drawn) == sorted(expected)


def test_packings_and_views_are_on_the_page_where_there_are_any():
    array = samples.series()
    assert not {"Packing", "View"} & set(re.findall(r"<th[^>]*>(.*?)</th>", page_of(array)))
    array.resize((60, 72, 144))
    packed = {"packing": intarsia.Packing("int16", scale=np.float32(0.5))}
    array.add_region([(50, 60), (0, 72), (0, 144)], data=np.ones((10, 72, 144), "f4"), **packed)
    page = page_of(array)
    assert {"Packing"} == {"Packing", "View"} & set(re.findall(r"<th[^>]*>(.*?)</th>", page))
    assert ">int16 * 0.5</td>" in page
    assert "No problems found" in page
    single = intarsia.create({}, "a", shape=(72, 144), chunks=(72, 144), dtype="f4")
    single.group.create_array("turned", shape=(144, 72), chunks=(72, 72), dtype="int16")[...] = 7
    turned = intarsia.View.identity(2).transpose(1, 0).flip(0, length=72)
    single.add_region([(0, 72), (0, 144)], member="turned", view=turned, **packed)
    page = page_of(single)
    assert {"Packing", "View"} <= set(re.findall(r"<th[^>]*>(.*?)</th>", page))
    assert ">[-1, 0]</td>" in page
    picture = intarsia.region_map(single)
    assert "Packing int16 * 0.5" in picture
    assert "View [-1, 0]" in picture


def test_every_heat_colour_has_a_meaning():
    assert len({colour for colour, _ in heat_scale()}) == 8


def conditional():
    array = intarsia.create({}, "a", shape=(0, 40), chunks=(10, 10), dtype="f4")
    decision = np.arange(16).reshape(4, 4) % 2
    codec = intarsia.codecs.ConditionalCodec(codecs=[zarr.codecs.ZstdCodec()], decision=decision)
    array.append(np.ones((40, 40)), codecs=[codec])
    return array


def test_masks_say_which_chunks_went_through_which_codecs():
    array = conditional()
    page = page_of(array)
    shares = re.findall(r">&nbsp;</span>|</span> (\w+)</td>.*?>(\d)</td>.*?>8</td>.*?>50 %</td>", page)
    assert shares == [("none", "0"), ("zstd", "1")]
    assert "Conditional codecs of" in page
    assert "zstd" in page
    assert page.count("<title>none</title>") == 8


def test_masks_that_cannot_be_read_are_a_problem_on_the_page():
    array = conditional()
    member = array.manifest.members[0]
    store = array.store
    key = next(k for k in store._store_dict if f"{member}/c/" in k)
    store._store_dict[key] = store._store_dict[key][:0]
    page = page_of(array)
    assert "bitmasks cannot be read" in page


def test_slots_are_told(tmp_path):
    array = intarsia.create(tmp_path / "s", "a", shape=(0, 64), chunks=(32, 32), dtype="u2")
    array.append(np.zeros((64, 64), dtype="u2"), codecs=[], chunks=(8, 8), shards=(32, 32))
    (member,) = array.members.values()
    intarsia.shards.slotted(member)[:8, :8] = 7
    page = page_of(array)
    assert "Slots of" in page
    assert "1 of 16" in page


@pytest.fixture(scope="module")
def history():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("t", shape=(0, 4), chunks=(2, 4), dtype="f4")
    for i in range(6):
        intarsia.append(repo, "t", np.ones((2, 4)), codecs=["gzip" if i % 2 else "zstd"], message=f"day {i}")
    return repo


def test_the_history_is_told_in_order_with_its_changes(history):
    moments, left_out = moments_of(history, "t", history.lookup_branch("main"), 100)
    assert left_out == 0
    assert [moment.entry.message for moment in moments] == ["create", *(f"day {i}" for i in range(6))]
    assert moments[0].entry.changes[0].lines() == ("created with shape (0, 4)",)
    assert moments[2].entry.changes[0].lines() == ("shape (2, 4) to (4, 4)", "added [2:4, 0:4] (gzip-5)")


@pytest.mark.parametrize("most", [1, 2, 3, 6])
def test_a_long_history_is_thinned_and_keeps_its_end(history, most):
    moments, left_out = moments_of(history, "t", history.lookup_branch("main"), most)
    assert len(moments) == most
    assert left_out == 7 - most
    assert moments[-1].entry.message == "day 5"
    assert most == 1 or moments[0].entry.message == "create"


def test_a_commit_that_changes_much_is_told_in_numbers():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="many") as tx:
        array = tx.create("t", shape=(20,), chunks=(1,), dtype="u1")
        for i in range(0, 20, 2):
            array.add_region([(i, i + 1)], codecs=["gzip"])
    (moment,), _ = moments_of(repo, "t", tx.snapshot_id, 10)
    assert moment.entry.changes[0].lines()[-1] == "2 more boxes"


def test_a_report_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "report.html"
    file.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        intarsia.write_report(samples.two_codecs().store, file=file)
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_report_without_arrays_and_with_versions_that_are_not_there(tmp_path):
    with pytest.raises(intarsia.errors.NotLogicalArrayError):
        intarsia.write_report(zarr.storage.MemoryStore(), file=tmp_path / "r.html")
    with pytest.raises(TypeError, match="only an Icechunk repository takes"):
        intarsia.write_report(samples.two_codecs().store, file=tmp_path / "r.html", tag="v1")
