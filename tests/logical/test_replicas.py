"""Replicas: made, dropped, cut by writes and made again; whichever layer is read, the values are NumPy's."""

import tempfile
import tracemalloc

import numpy as np
import pytest
import zarr
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from zarr.codecs import BytesCodec
from zarr.codecs import numcodecs as zarr_numcodecs

import intarsia
from intarsia.engine.write import write_box
from intarsia.errors import (
    AlignmentError,
    BoundsError,
    CodecConfigurationError,
    MemberError,
    NoRegionError,
    NotLogicalArrayError,
    PackingError,
    PolicyError,
)
from intarsia.logical import advice
from intarsia.logical.replicas import Policy, missing_boxes
from tests.logical import strategies as s
from tests.logical.test_machine import InARepository, LogicalArrayMachine, OfReferences


class WithReplicas(LogicalArrayMachine):
    """Any sequence of changes, those of replicas among them."""

    @precondition(lambda self: self.covered.any())
    @rule(data=st.data())
    def add_replica(self, data):
        bounds = data.draw(st.none() | st.just(self.aligned_box(data)))
        if bounds is not None and not self.covered[self.index(bounds)].any():
            with pytest.raises(NoRegionError, match="nothing to replicate"):
                self.array.add_replica(bounds)
            return
        self.array.add_replica(
            bounds,
            chunks=tuple(data.draw(st.integers(1, 5)) for _ in self.model.shape),
            codecs=data.draw(s.codec_lists(self.model.ndim)),
            packing=data.draw(st.sampled_from(["keep", None])),
        )

    @precondition(lambda self: len(self.array.manifest.layers) > 1)
    @rule(data=st.data())
    def drop_replica(self, data):
        layer = data.draw(st.none() | st.sampled_from(self.array.manifest.layers[1:]))
        bounds = data.draw(st.none() | st.just(self.aligned_box(data)))
        self.array.drop_replica(bounds, layer=layer)

    @rule()
    def refresh(self):
        self.array.refresh_replicas()
        manifest = self.array.manifest
        for replica in Policy.of(self.array._logical).replicas:
            assert not list(missing_boxes(manifest, replica))

    @precondition(lambda self: self.covered.any())
    @rule(data=st.data())
    def write_all_layers(self, data):
        region = data.draw(st.sampled_from(self.array.regions))
        index = tuple(
            slice(start := data.draw(st.integers(a, b - 1)), data.draw(st.integers(start + 1, b)))
            for a, b in region.bounds
        )
        values = self.fresh(self.model[index].shape)
        shown = self.packed(region.packing, values)
        replicas, array = self.array.manifest.replicas, self.array.with_config(replicas="write")
        if shown is None:
            self.refused(lambda: array.__setitem__(index, values))
            return
        array[index] = values
        self.model[index] = shown
        assert len(self.array.manifest.replicas) == len(replicas)

    @precondition(lambda self: self.covered.any())
    @rule(data=st.data())
    def write_points(self, data):
        places = np.argwhere(self.covered)
        chosen = places[data.draw(st.lists(st.integers(0, len(places) - 1), min_size=1, max_size=4))]
        points = tuple(chosen.T)
        values = self.model[points]
        try:
            self.array.with_config(cross_region_writes=True).vindex[points] = values
        except PackingError:  # the fill value, in a region that was made longer
            return

    @invariant()
    def every_layer_has_the_values_of_the_model(self):
        if not hasattr(self, "model") or not len(self.array.manifest.replicas):
            return
        for layer in self.array.manifest.layers:
            np.testing.assert_array_equal(self.array.with_config(layer=layer)[...], self.model)
        box = tuple(slice(n // 3, n, 1 + n // 5) for n in self.model.shape)
        np.testing.assert_array_equal(self.array[box], self.model[box])
        points = tuple(np.arange(7) % n for n in self.model.shape) if self.model.size else ()
        if points:
            np.testing.assert_array_equal(self.array.vindex[points], self.model[points])

    @invariant()
    def replicas_lie_on_regions(self):
        if hasattr(self, "array"):
            manifest = self.array.manifest
            for table in manifest.replicas.by_layer().values():
                assert table.overlap() is None
                assert all(manifest.regions.covers(table.row(i).box) for i in range(len(table)))


class InHistory(WithReplicas):
    """In a repository: maintained and restored, by several writers; no snapshot has two truths."""

    def committed(self):
        """Commit what there is to commit, and remember it."""
        if self.session.has_uncommitted_changes:
            self.commit()
        kept = self.__dict__.setdefault("kept", {})
        kept[self.repository.lookup_branch("main")] = self.model.copy(), self.covered.copy()
        return kept

    def go_on(self):
        """With what others have committed."""
        self.session = self.repository.writable_session("main")
        self.store = self.session.store
        self.array = intarsia.open(self.store, "a", mode="r+")

    @rule()
    def maintain(self):
        self.committed()
        intarsia.maintain(self.repository)
        assert intarsia.maintain(self.repository) == ()
        self.go_on()

    @rule(data=st.data())
    def restore(self, data):
        kept = self.committed()
        snapshot = data.draw(st.sampled_from(list(kept)))
        intarsia.restore(self.repository, "a", snapshot)
        self.model, self.covered = (each.copy() for each in kept[snapshot])
        self.go_on()

    @precondition(lambda self: self.covered.any())
    @rule(data=st.data())
    def two_write_at_once(self, data):
        writes = [self.a_write(data) for _ in range(2)]
        if any(shown is None for *_, shown in writes):
            return
        self.committed()
        rivals = [writes[0]]

        def change(tx):
            while rivals:  # somebody else is first, after we have begun
                index, mode, values, _ = rivals.pop()
                write_as(self.repository, index, mode, values)
            index, mode, values, _ = writes[1]
            tx.open("a").with_config(replicas=mode)[index] = values

        intarsia.retry(self.repository, change)
        for index, _, _, shown in writes:
            self.model[index] = shown
        self.go_on()

    @precondition(lambda self: self.covered.any())
    @rule(data=st.data())
    def a_replica_is_made_beside_a_writer(self, data):
        index, mode, values, shown = self.a_write(data)
        if shown is None:
            return
        self.committed()
        chunks = tuple(data.draw(st.integers(1, 5)) for _ in self.model.shape)
        rivals = [0]

        def progress(*_):
            while rivals:
                rivals.pop()
                write_as(self.repository, index, mode, values)

        intarsia.add_replica(self.repository, "a", chunks=chunks, progress=progress)
        progress()
        self.model[index] = shown
        self.go_on()

    def a_write(self, data):
        region = data.draw(st.sampled_from(self.array.regions))
        index = tuple(
            slice(start := data.draw(st.integers(a, b - 1)), data.draw(st.integers(start + 1, b)))
            for a, b in region.bounds
        )
        values, mode = self.fresh(self.model[index].shape), data.draw(st.sampled_from(["drop", "write"]))
        return index, mode, values, self.packed(region.packing, values)

    def teardown(self):
        if hasattr(self, "kept"):
            self.every_snapshot_has_one_truth()
        super().teardown()

    def every_snapshot_has_one_truth(self):
        for snapshot in self.repository.ancestry(branch="main"):
            store = self.repository.readonly_session(snapshot_id=snapshot.id).store
            try:
                array = intarsia.open(store, "a")
            except NotLogicalArrayError:
                continue
            truth = array.with_config(layer=0)[...]
            if snapshot.id in self.kept:
                np.testing.assert_array_equal(truth, self.kept[snapshot.id][0])
            for layer in array.manifest.layers[1:]:
                np.testing.assert_array_equal(array.with_config(layer=layer)[...], truth)


def write_as(repo, index, mode, values):
    """One write, in a commit of its own."""

    def change(tx):
        tx.open("a").with_config(replicas=mode)[index] = values

    intarsia.retry(repo, change)


class ReplicasInARepository(InHistory, InARepository):
    """In a repository."""


class ReplicasOfReferences(InHistory, OfReferences):
    """Of arrays that hold references into a file."""


SEQUENCES = settings().max_examples
TestWithReplicas = WithReplicas.TestCase
TestWithReplicas.settings = settings(max_examples=SEQUENCES, stateful_step_count=14)
TestReplicasInARepository = ReplicasInARepository.TestCase
TestReplicasOfReferences = ReplicasOfReferences.TestCase
FEWER = settings(max_examples=max(1, SEQUENCES // 4), stateful_step_count=12)
TestReplicasInARepository.settings = TestReplicasOfReferences.settings = FEWER


@pytest.fixture
def values():
    return np.arange(12 * 8, dtype="float32").reshape(12, 8)


@pytest.fixture
def array(values):
    made = intarsia.create({}, "a", shape=(0, 8), chunks=(1, 8), dtype="float32")
    made.append(values, codecs=["zstd"])
    return made


def test_a_read_takes_the_layer_that_costs_least(array, values):
    assert array.add_replica(chunks=(12, 1), codecs=["zstd"]) == 1
    series, map_ = intarsia.explain(array, np.s_[:, 3]), intarsia.explain(array, np.s_[3])
    assert ([part.layer for part in series.parts], series.chunks) == ([1], 1)
    assert ([part.layer for part in map_.parts], map_.chunks) == ([0], 1)
    np.testing.assert_array_equal(array[:, 3], values[:, 3])


def test_a_replica_takes_no_more_memory_where_an_array_is_longer(tmp_path, monkeypatch):
    monkeypatch.setattr("intarsia.logical.recode.BLOCK_BYTES", 256 << 10)
    taken = []
    for days in (64, 256):
        array = intarsia.create(tmp_path / str(days), shape=(0, 64, 64), chunks=(16, 64, 64), dtype="float32")
        array.append(np.arange(days * 64 * 64, dtype="float32").reshape(days, 64, 64))
        array.add_replica(((0, 16), (0, 64), (0, 64)), chunks=(16, 32, 32))  # all is imported by now
        tracemalloc.start()
        try:
            array.add_replica(chunks=(64, 16, 16))
            taken.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert taken[1] < 2 * taken[0]  # of four times the values
    assert taken[1] < array.nbytes / 2


def test_one_read_mixes_layers(array, values):
    array.add_replica(((0, 6), (0, 8)), chunks=(6, 1))
    explained = intarsia.explain(array, np.s_[:, 2])
    assert sorted((part.layer, part.elements) for part in explained.parts) == [(0, 6), (1, 6)]
    np.testing.assert_array_equal(array[:, 2], values[:, 2])


def test_both_prices_are_shown(array):
    array.add_replica(chunks=(12, 1))
    zero, one = intarsia.explain(array, np.s_[:, 3]).prices
    assert (zero.layer, zero.covered, zero.taken, zero.price.chunks) == (0, 12, 0, 12)
    assert (one.layer, one.covered, one.taken, one.price.chunks) == (1, 12, 12, 1)
    assert "layer 1: has 12 elements, in 1 chunk" in repr(intarsia.explain(array, np.s_[:, 3]))


def test_a_layer_that_does_not_exist_cannot_be_forced(array):
    with pytest.raises(BoundsError, match="no such layer; it has 0"):
        array.with_config(layer=1)


def test_a_write_cuts_what_it_changes_out_of_replicas(array, values):
    array.add_replica(chunks=(12, 1))
    array[4, 2:3] = -1
    assert [replica.bounds for replica in array.replicas] == [((0, 4), (0, 8)), ((5, 12), (0, 8))]
    values[4, 2] = -1
    np.testing.assert_array_equal(array.with_config(layer=1)[...], values)
    assert array.refresh_replicas() == 1
    assert [replica.bounds for replica in array.replicas] == [((0, 12), (0, 8))]
    np.testing.assert_array_equal(array.with_config(layer=1)[...], values)


def test_a_write_that_is_refused_cuts_nothing(array):
    array.add_replica(chunks=(12, 1))
    manifest = array.manifest
    with pytest.raises(intarsia.errors.DataTypeError):
        array[4] = "text"
    with pytest.raises(intarsia.errors.ShapeError):
        array[4] = np.zeros(3)
    assert array.manifest == manifest


def test_a_scattered_write_cuts_no_more_than_it_meets(array):
    array.add_replica(chunks=(12, 1))
    array.vindex[[0, 11], [0, 7]] = 1
    assert [replica.bounds for replica in array.replicas] == [((1, 11), (0, 8))]


def test_another_handle_sees_the_cut(array, values):
    array.add_replica(chunks=(12, 1))
    other = intarsia.open(array.store, "a", mode="r+")
    array[3] = 0
    other[3, 0] = 5  # does not know yet
    values[3] = 0
    values[3, 0] = 5
    for handle in (array, other, intarsia.open(array.store, "a")):
        handle.refresh()
        np.testing.assert_array_equal(handle.with_config(layer=1)[...], values)


def test_a_write_by_a_handle_that_knows_of_no_replica_cuts_it(array, values):
    other = intarsia.open(array.store, "a", mode="r+")
    array.add_replica(chunks=(12, 1))
    other[5] = 9
    values[5] = 9
    array.refresh()
    np.testing.assert_array_equal(array.with_config(layer=1)[...], values)
    assert len(array.replicas) == 2


def test_a_write_goes_to_all_layers_if_asked(array, values):
    array.add_replica(chunks=(12, 1))
    array.add_replica(chunks=(3, 3))
    array.with_config(replicas="write")[2:7, 1:3] = 5
    values[2:7, 1:3] = 5
    assert len(array.replicas) == 2
    for layer in (0, 1, 2):
        np.testing.assert_array_equal(array.with_config(layer=layer)[...], values)


def test_what_layer_0_rounds_is_rounded_in_all_layers():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="float32")
    array.add_region([(0, 4)], data=[0, 1, 2, 3], packing={"stored": "uint8", "scale": 0.5})
    array.add_replica(chunks=(4,), packing=None)
    array.with_config(replicas="write")[1] = 1.3
    assert (
        array.with_config(layer=1)[...].tolist() == array.with_config(layer=0)[...].tolist() == [0, 1.5, 2, 3]
    )


def test_codecs_that_lose_something_are_refused(array):
    lossy = [zarr_numcodecs.BitRound(keepbits=2), BytesCodec()]
    array[0, 0] = 0.1
    with pytest.raises(CodecConfigurationError, match=r"with these codecs .* would be"):
        array.add_replica(chunks=(12, 1), codecs=lossy)
    assert array.replicas == ()
    assert set(array.group) == set(array.manifest.members)
    intarsia.verify(array)


def test_a_recode_that_rounds_drops_the_replica(array):
    array[0, 0] = 0.1
    array.add_replica(chunks=(12, 1))
    array.recode(codecs=["gzip"])
    assert len(array.replicas) == 1
    array.recode(codecs=[zarr_numcodecs.BitRound(keepbits=2), BytesCodec()])
    assert array.replicas == ()


def test_a_replica_of_packed_numbers_holds_numbers(monkeypatch):
    written = []
    monkeypatch.setattr("intarsia.logical.recode.write_box", lambda *box: written.append(write_box(*box)))
    array = intarsia.create({}, "a", shape=(4, 2), chunks=(1, 2), dtype="float64")
    for i in range(4):
        data, packing = np.full((1, 2), i), {"stored": "int16", "scale": 1 / (i + 1)}
        array.add_region([(i, i + 1), (0, 2)], data=data, packing=packing)
    array.add_replica(chunks=(4, 1))
    assert {replica.name for replica in array.replicas} == {array.replicas[0].name}
    assert array.replicas[0].member.dtype == np.int16
    assert len(written) == 1  # no chunk is stored again for every packing in it
    assert array.with_config(layer=1)[:, 0].tolist() == [0, 1, 2, 3]
    assert intarsia.explain(array, np.s_[:, 0]).chunks == 1 * len(array.replicas)
    assert array[:, 1].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", ["string", "optional[string]", "f4"])
def test_a_policy_takes_the_codecs_that_append_takes(dtype):
    array = intarsia.create({}, "a", shape=(0, 4), chunks=(2, 4), dtype=dtype)
    array.append(np.full((4, 4), "7", dtype=np.dtypes.StringDType()).astype(array.dtype), codecs=["zstd"])
    layer = array.add_replica(chunks=(4, 1), codecs=["zstd"])
    assert array.add_replica(chunks=(4, 1), codecs=["zstd"]) == layer
    array.set_policy(recode={"codecs": ["gzip"]}, replica={"chunks": (4, 2), "codecs": ["gzip"]})
    array.refresh_replicas()
    assert array.manifest.layers == (0, 1, 2)
    for layer in array.manifest.layers:
        assert np.array_equal(array.with_config(layer=layer)[:], array[:])


def test_bounds_may_be_slices(array):
    array.add_replica(np.s_[4:8], chunks=(4, 1))
    assert [replica.bounds for replica in array.replicas] == [((4, 8), (0, 8))]
    array.drop_replica(np.s_[4:6])
    assert [replica.bounds for replica in array.replicas] == [((6, 8), (0, 8))]


def test_codecs_are_chosen_for_the_numbers_that_are_stored(monkeypatch):
    tried = []
    real = advice.sample_blocks

    def record(data, *args):
        tried.append(data)
        return real(data, *args)

    monkeypatch.setattr(advice, "sample_blocks", record)
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="float64")
    array.add_region([(0, 4)], packing={"stored": "int16", "scale": 0.5}, codecs=["zstd"])
    tried.clear()
    array.add_replica(np.s_[:2], chunks=(1,), codecs="auto")
    assert [data.dtype for data in tried] == [np.int16]


def test_replicas_of_one_encoding_share_a_layer(array):
    assert array.add_replica(((0, 4), (0, 8)), chunks=(4, 1)) == 1
    assert array.add_replica(((4, 12), (0, 8)), chunks=(4, 1)) == 1
    assert array.add_replica(((4, 12), (0, 8)), chunks=(4, 2)) == 2
    array.consolidate()
    assert [(replica.layer, replica.bounds) for replica in array.replicas] == [
        (1, ((0, 12), (0, 8))),
        (2, ((4, 12), (0, 8))),
    ]


def test_appended_data_is_read_from_layer_0_until_it_is_refreshed(array, values):
    array.add_replica(chunks=(12, 1))
    array.append(values[:2])
    explained = intarsia.explain(array, np.s_[:, 0])
    assert sorted((part.layer, part.elements) for part in explained.parts) == [(0, 2), (1, 12)]
    array.refresh_replicas()
    assert {part.layer for part in intarsia.explain(array, np.s_[:, 0]).parts} == {1}
    np.testing.assert_array_equal(array[:, 0], np.append(values, values[:2], axis=0)[:, 0])


def test_a_replica_of_a_box_does_not_grow(array, values):
    array.add_replica(((0, 6), (0, 8)), chunks=(6, 1))
    array.append(values)
    assert array.refresh_replicas() == 0


def test_what_is_dropped_is_not_made_again(array):
    array.add_replica(chunks=(12, 1))
    array.drop_replica(((0, 4), (0, 8)))
    assert array.refresh_replicas() == 0
    assert [replica.bounds for replica in array.replicas] == [((4, 12), (0, 8))]
    array.drop_replica()
    assert array.replicas == ()
    assert array.manifest.version == 1
    with pytest.raises(BoundsError, match="no replicas"):
        array.drop_replica()


def test_bad_replicas_are_refused(array):
    with pytest.raises(AlignmentError):
        array.add_replica(((0, 4), (0, 3)))
    with pytest.raises(PolicyError, match="chunks has 1 dimensions but shape has 2"):
        array.add_replica(chunks=(4,))
    with pytest.raises(BoundsError, match="numbered"):
        array.add_replica(layer=64)
    array.add_replica(chunks=(12, 1), layer=5)
    with pytest.raises(BoundsError, match="another encoding"):
        array.add_replica(chunks=(6, 1), layer=5)
    name = array.replicas[0].name
    array.drop_region(((0, 2), (0, 8)))
    with pytest.raises(MemberError, match="holds a replica"):
        array.add_region(((0, 2), (0, 8)), member=name)


def test_an_empty_array_has_nothing_to_replicate():
    array = intarsia.create({}, "a", shape=(0, 8), chunks=(1, 8), dtype="float32")
    with pytest.raises(NoRegionError, match="set_policy"):
        array.add_replica()


def test_damage_in_the_winner_fails_loudly_unless_another_layer_may_answer(values):
    with tempfile.TemporaryDirectory() as folder:
        array = intarsia.create(zarr.storage.LocalStore(folder), "a", shape=(0, 8), chunks=(1, 8), dtype="f4")
        array.append(values, codecs=["zstd"])
        array.add_replica(chunks=(12, 1), codecs=["zstd"])
        chunk = f"{folder}/a/{array.replicas[0].name}/c/0/3"
        with open(chunk, "wb") as file:
            file.write(b"damage")
        array = intarsia.open(array.store, "a")
        with pytest.raises(intarsia.errors.ReadError, match=r"layer 1\), member .*, chunk \(0, 3\)"):
            array[:, 3]
        careful = array.with_config(fallback=True)
        np.testing.assert_array_equal(careful[:, 3], values[:, 3])
        ((bounds, layer, member, reason),) = careful.fallbacks
        assert (bounds, layer, member) == (((0, 12), (0, 8)), 1, array.replicas[0].name)
        assert "chunk (0, 3)" in reason
        np.testing.assert_array_equal(array.with_config(layer=0)[:, 3], values[:, 3])


def test_a_replica_of_part_of_a_region_stands_in_for_a_read_of_this_part(values):
    with tempfile.TemporaryDirectory() as folder:
        array = intarsia.create(zarr.storage.LocalStore(folder), "a", shape=(0, 8), chunks=(1, 8), dtype="f4")
        array.append(values, codecs=["zstd"])
        array.add_replica(((0, 6), (0, 8)), chunks=(12, 1), codecs=["zstd"])
        with open(f"{folder}/a/{array.regions[0].name}/c/3/0", "wb") as file:
            file.write(b"damage")
        careful = intarsia.open(array.store, "a").with_config(fallback=True)
        np.testing.assert_array_equal(careful[3], values[3])
        assert [each.layer for each in careful.fallbacks] == [0]
        with pytest.raises(intarsia.errors.ReadError, match="No other layer"):
            careful[3:9]


def test_a_forced_layer_works_when_the_other_is_gone(values):
    with tempfile.TemporaryDirectory() as folder:
        store = zarr.storage.LocalStore(folder)
        array = intarsia.create(store, "a", shape=(0, 8), chunks=(1, 8), dtype="f4")
        array.append(values)
        array.add_replica(((0, 6), (0, 8)), chunks=(12, 1))
        zarr.open_group(store, path="a", mode="r+").__delitem__(array.regions[0].name)
        array = intarsia.open(store, "a")
        np.testing.assert_array_equal(array.with_config(layer=1)[:6], values[:6])
        np.testing.assert_array_equal(array.with_config(fallback=True)[:6, 2], values[:6, 2])
        for config in ({}, {"layer": 1}, {"fallback": True}):  # what no layer has is never a fill value
            with pytest.raises(intarsia.IntarsiaError):
                array.with_config(**config)[...]


def test_a_box_that_the_policy_has_already_does_not_divide_it(array):
    array.add_replica(chunks=(12, 1))
    before = array.policy
    array.add_replica(((0, 4), (0, array.shape[1])), chunks=(12, 1))
    assert array.policy == before


def test_replicas_of_nullable_values_are_compared():
    array = intarsia.create({}, "a", shape=(6,), chunks=(4,), dtype="optional[float64]")
    array.add_region([(0, 6)], data=np.ma.MaskedArray([1.5, 2, 3, 4, 5, 6], mask=[0, 1, 0, 0, 0, 0]))
    array.add_replica(chunks=(6,), codecs=[{"name": "scale_offset", "configuration": {"scale": 2}}])
    assert intarsia.verify(array, deep=True) == ()
    intarsia.nullable.NullableArray(array.replicas[0].member)[2] = None
    (problem,) = intarsia.verify(array, deep=True)
    assert "at (2,) it is" in problem.what
    rounding = [{"name": "scale_offset", "configuration": {"offset": 1e17}}]
    with pytest.raises(CodecConfigurationError, match="must hold the same values"):
        array.add_replica(chunks=(2,), codecs=rounding)


def test_a_policy_is_withdrawn_and_nonsense_refused():
    array = intarsia.create({}, "a", shape=(4, 4), chunks=(2, 2), dtype="u1")
    array.set_policy(replica={"chunks": (4, 2)}, recode={"codecs": ["zstd"]})
    array.set_policy(replica=None, recode=None)
    assert array.policy == {"replicas": []}
    with pytest.raises(PolicyError, match=r"give replica=\{…\}, recode=\{…\}, or both"):
        array.set_policy()
    with pytest.raises(PolicyError, match="axis=2: the array has 2 axes"):
        array.set_policy(recode={"axis": 2})


def test_a_chunk_that_a_replica_has_lost_is_found(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(4,), chunks=(2,), dtype="u1")
    array.add_region([(0, 4)], data=[1, 2, 3, 4])
    array.add_replica(codecs=[])
    (tmp_path / "a" / array.replicas[0].name / "c" / "1").unlink()
    assert intarsia.verify(array) == ()  # it may never have been written
    (problem,) = intarsia.verify(array, deep=True)
    assert (problem.kind, "chunk (1,), [2:4] in layer 1" in problem.what) == ("layer", True)
