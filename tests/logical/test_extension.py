"""Regions behind all others: added to a table without reading it, and the same as by reading it."""

from dataclasses import replace

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.errors import ManifestError
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest import region_table_array
from intarsia.manifest.box import Box
from intarsia.manifest.manifest import NewRegion
from intarsia.manifest.packing import Packing
from intarsia.manifest.region_table import NONE, RegionTable
from tests.grids import dear

ROWS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 4), st.sampled_from([None, 0.5, 0.25, 0.125])),
    min_size=1,
    max_size=12,
)
"""Length of a region, how many steps of its member lie before it, its scale."""


def group_of(store):
    return LogicalArrayHandle.load(zarr.open_group(store, path="a", mode="r+"))


def more(manifest, start, rows):
    """Regions from `start` on, one behind the other."""
    new, at = [], start
    for length, before, scale in rows:
        packing = None if scale is None else Packing("float64", scale=scale)
        new.append(NewRegion(Box((at,), (at + length,)), manifest.members[0], (at + before,), packing))
        at += length
    return new, at


@pytest.fixture(scope="module", autouse=True)
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("intarsia.logical.logical_array_handle.INLINE_REGIONS", 0)
        patch.setattr(region_table_array, "ROWS_PER_CHUNK", 4)
        yield


def begun(rows):
    """A session with an array of these regions."""
    session = intarsia.open_repository("memory://", create=True).writable_session("main")
    array = intarsia.create(session.store, "a", shape=(0,), chunks=(1,), dtype="f8")
    array.append(np.zeros(100), codecs=["gzip"], chunks=(10,))
    logical = group_of(session.store)
    manifest = replace(logical.manifest, regions_and_replicas=RegionTable.from_rows([], 1))
    new, length = more(manifest, 0, rows)
    manifest, table = manifest.including(new)
    logical.commit(manifest.changed(table.merge_neighbours(0), shape=(length,)))
    return session, length


@dear
@given(ROWS, ROWS, ROWS)
def test_it_is_as_if_the_table_had_been_read(first, second, third):
    session, length = begun(first)
    whole = group_of(session.store).manifest
    for rows in (second, third):
        new, total = more(whole, length, rows)
        whole, table = whole.including(new)
        merged = whole.regions.concat(table).merge_neighbours(0)
        whole = whole.changed(merged, shape=(total,))
        logical = LogicalArrayHandle.load(zarr.open_group(session.store, path="a", mode="r+"), later=True)
        name = logical.group.attrs["intarsia"]["regions"]
        if not logical.extend(0, (total,), new):
            assert any(scale is not None for *_, scale in rows)
            assert all(scale is None for *_, scale in first)
            return
        assert logical.group.attrs["intarsia"]["regions"] == name
        length = total
    found = group_of(session.store).manifest  # which is checked
    assert found.shape == whole.shape
    assert np.array_equal(found.regions.columns()[:, :4], whole.regions.columns()[:, :4])
    own, other = (
        [None if number == NONE else each.packings[number] for number in each.regions.packing.tolist()]
        for each in (found, whole)
    )
    assert own == other


def test_what_a_reader_would_refuse_is_refused():
    session, length = begun([(3, 0, 0.5)])
    logical = group_of(session.store)
    before = dict(logical.group.attrs)
    with pytest.raises(ManifestError, match="beyond"):
        logical.extend(0, (length,), more(logical.manifest, length, [(2, 0, 0.5)])[0])
    assert dict(group_of(session.store).group.attrs) == before
