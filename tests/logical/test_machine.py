"""A logical array under any sequence of changes equals a NumPy model of it."""

import tempfile
from pathlib import Path

import icechunk
import numpy as np
import zarr
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import intarsia
from intarsia import Packing
from intarsia.errors import PackingError
from tests.logical import backings
from tests.logical import strategies as s
from tests.logical.places import AsyncOnly, small_inline

PACKINGS = {
    "int32": [Packing("int16", values="int32"), Packing("uint8", offset=3, values="int32")],
    "float64": [Packing("int16", scale=0.5, missing=-1), Packing("uint8", scale=2.0, offset=1.0)],
}


class LogicalArrayMachine(RuleBasedStateMachine):
    """`model` holds the values, `covered` says where a region is."""

    def new_store(self):
        return zarr.storage.MemoryStore()

    @initialize(data=st.data())
    def create(self, data):
        self.store = self.new_store()
        shape = tuple(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)))
        chunks = tuple(data.draw(st.integers(1, 4)) for _ in shape)
        self.fill = data.draw(st.integers(0, 3))
        self.dtype = data.draw(st.sampled_from(sorted(PACKINGS)))
        self.array = intarsia.create(
            self.store, "a", shape=shape, chunks=chunks, dtype=self.dtype, fill_value=self.fill
        )
        self.model = np.full(shape, self.fill, dtype=self.dtype)
        self.covered = np.zeros(shape, dtype=bool)
        self.counter = 10

    def fresh(self, shape):
        size = int(np.prod(shape))
        self.counter += size
        return np.arange(self.counter - size, self.counter).astype(self.dtype).reshape(shape)

    def packings(self):
        return st.none() | st.sampled_from(PACKINGS[self.dtype])

    def packed(self, packing, values):
        """The values as a region with this packing shows them; None if it cannot hold them."""
        if packing is None:
            return values
        try:
            return packing.decode(packing.encode(values))
        except PackingError:
            return None

    def refused(self, change):
        """A change that a packing does not allow leaves everything as it was."""
        manifest = self.array.manifest
        try:
            change()
        except PackingError:
            assert self.array.manifest == manifest
        else:
            raise AssertionError("a packing held what it cannot hold")

    def is_there(self, name):
        """An array that a region will look at was made."""

    def aligned_box(self, data):
        bounds = []
        for n, c, cells in zip(self.model.shape, self.array.chunks, self.array.manifest.lattice, strict=True):
            start = data.draw(st.integers(0, cells - 1))
            stop = data.draw(st.integers(start + 1, cells))
            bounds.append((start * c, min(stop * c, n)))
        return tuple(bounds)

    def index(self, bounds):
        return tuple(slice(a, b) for a, b in bounds)

    @rule(data=st.data())
    def append(self, data):
        axis = data.draw(st.integers(0, self.model.ndim - 1))
        shape = list(self.model.shape)
        shape[axis] = data.draw(st.integers(0, 5))
        values, packing = self.fresh(shape), data.draw(self.packings())
        if packing is not None:  # of what can be packed nothing is lost, wherever it goes
            values = packing.decode((values % 100).astype(packing.stored)).astype(self.dtype)
        codecs = data.draw(st.none() | s.codec_lists(self.model.ndim))
        self.array.append(values, axis=axis, codecs=codecs, packing=packing, merge=data.draw(st.booleans()))
        old = self.model.shape[axis]
        # A partial last chunk belongs to a new region where none was.
        chunk = self.array.chunks[axis]
        grown = np.concatenate([self.covered, np.ones(shape, dtype=bool)], axis=axis)
        if old % chunk and shape[axis]:
            slab = [slice(None)] * self.model.ndim
            slab[axis] = slice(old // chunk * chunk, old)
            grown[tuple(slab)] = True
        self.covered = grown
        self.model = np.concatenate([self.model, values], axis=axis)

    @precondition(lambda self: self.model.size)
    @rule(data=st.data())
    def add(self, data):
        bounds = self.aligned_box(data)
        index = self.index(bounds)
        values = self.fresh(self.model[index].shape)
        codecs = data.draw(s.codec_lists(self.model.ndim))
        if self.covered[index].any():
            generation = self.array.generation
            try:
                self.array.add_region(bounds, codecs=codecs, data=values)
            except intarsia.errors.OverlapError:
                assert self.array.generation == generation
                return
            raise AssertionError("an overlapping region was added")
        packing = data.draw(self.packings())
        shown = self.packed(packing, values)
        if shown is None:
            self.refused(lambda: self.array.add_region(bounds, codecs=codecs, data=values, packing=packing))
            return
        self.array.add_region(bounds, codecs=codecs, data=values, packing=packing)
        self.model[index] = shown
        self.covered[index] = True

    @precondition(lambda self: self.model.size)
    @rule(data=st.data())
    def look_at_an_array_that_is_there(self, data):
        bounds = self.aligned_box(data)
        index = self.index(bounds)
        if not self.covered[index].any():
            self.counter += 1
            shape, packing = self.model[index].shape, data.draw(self.packings())
            view, name = data.draw(backings.views(shape, self.array.chunks)), f"there-{self.counter}"
            shown = backings.a_member(data.draw, self.array, name, view, shape, packing, self.dtype)
            self.is_there(name)
            self.array.add_region(bounds, member=name, packing=packing, view=view)
            self.model[index] = shown
            self.covered[index] = True

    @precondition(lambda self: self.model.size)
    @rule(data=st.data())
    def recode(self, data):
        bounds = self.aligned_box(data)
        index = self.index(bounds)
        if not self.covered[index].any():
            return
        encoding = {
            "codecs": data.draw(s.codec_lists(self.model.ndim)),
            "chunks": tuple(data.draw(st.integers(1, 4)) for _ in bounds),
            "packing": data.draw(st.just("keep") | self.packings()),
        }
        packing = encoding["packing"]
        if isinstance(packing, Packing):
            values = self.model[index]
            shown = self.packed(packing, values[self.covered[index]])
            if shown is None:
                self.refused(lambda: self.array.recode(bounds, **encoding))
                return
            values[self.covered[index]] = shown
        self.array.recode(bounds, **encoding)

    @precondition(lambda self: self.model.size)
    @rule(data=st.data())
    def drop(self, data):
        bounds = self.aligned_box(data)
        index = self.index(bounds)
        if self.covered[index].any():
            self.array.drop_region(bounds)
            self.covered[index] = False
            self.model[index] = self.fill

    @rule(data=st.data())
    def resize(self, data):
        shape = tuple(data.draw(st.integers(0, n + 3)) for n in self.model.shape)
        self.array.resize(shape)
        kept = tuple(slice(0, min(a, b)) for a, b in zip(shape, self.model.shape, strict=True))
        model, covered = np.full(shape, self.fill, dtype=self.dtype), np.zeros(shape, dtype=bool)
        model[kept], covered[kept] = self.model[kept], self.covered[kept]
        for region in self.array.regions:  # regions end on the lattice, so growth uncovers partial chunks
            covered[self.index(region.bounds)] = True
        self.model, self.covered = model, covered

    @precondition(lambda self: self.covered.any())
    @rule(data=st.data())
    def write(self, data):
        region = data.draw(st.sampled_from(self.array.regions))
        index = tuple(
            slice(start := data.draw(st.integers(a, b - 1)), data.draw(st.integers(start + 1, b)))
            for a, b in region.bounds
        )
        values = self.fresh(self.model[index].shape)
        shown = self.packed(region.packing, values)
        if shown is None:
            self.refused(lambda: self.array.__setitem__(index, values))
            return
        self.array[index] = values
        self.model[index] = shown

    @rule()
    def consolidate(self):
        self.array.consolidate()

    @rule()
    def reopen(self):
        self.array = intarsia.open(self.store, "a", mode="r+")

    @invariant()
    def equals_the_model(self):
        if not hasattr(self, "model"):
            return
        assert self.array.shape == self.model.shape
        np.testing.assert_array_equal(self.array[...], self.model)
        covered = np.zeros(self.model.shape, dtype=int)
        for region in self.array.regions:
            covered[self.index(region.bounds)] += 1
        np.testing.assert_array_equal(covered, self.covered)

    @invariant()
    def holds_only_members_that_regions_use(self):
        if hasattr(self, "array"):
            children = {name for name, _ in self.array.group.members()}
            assert children == set(self.array.manifest.members)


class OnTheEventLoop(LogicalArrayMachine):
    """In a store that is asked on an event loop alone."""

    def new_store(self):
        return AsyncOnly(zarr.storage.MemoryStore())


class InFiles(LogicalArrayMachine):
    """In plain files."""

    def new_store(self):
        self.folder = tempfile.TemporaryDirectory()
        return zarr.storage.LocalStore(self.folder.name)

    def teardown(self):
        self.folder.cleanup()


class InARepository(LogicalArrayMachine):
    """In a local repository: changes that are not committed go through Icechunk, snapshots through files."""

    def new_store(self):
        self.folder = tempfile.TemporaryDirectory()
        self.repository = small_inline(icechunk.local_filesystem_storage(self.folder.name))
        self.session = self.repository.writable_session("main")
        return self.session.store

    @precondition(lambda self: self.session.has_uncommitted_changes)
    @rule()
    def commit(self):
        reader = intarsia.open(self.store, "a")  # its session becomes a snapshot
        self.session.commit("so far")
        snapshot = intarsia.open(self.repository.readonly_session("main").store, "a")
        for array in (self.array, reader, snapshot):
            np.testing.assert_array_equal(array[...], self.model)
        self.session = self.repository.writable_session("main")
        self.store = self.session.store
        self.array = intarsia.open(self.store, "a", mode="r+")

    def teardown(self):
        self.folder.cleanup()


class OfReferences(InARepository):
    """In a repository, in which arrays that are there hold references into a file, and no chunks."""

    def new_store(self):
        self.folder = tempfile.TemporaryDirectory()
        self.files = Path(self.folder.name) / "files"
        self.files.mkdir()
        prefix = f"file://{self.files}/"
        config = icechunk.RepositoryConfig.default()
        config.inline_chunk_threshold_bytes = 0
        place = icechunk.local_filesystem_store(str(self.files))
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, place))
        storage = icechunk.local_filesystem_storage(f"{self.folder.name}/repository")
        access = {prefix: icechunk.credentials.LocalFileSystemAccess}
        self.repository = icechunk.Repository.create(storage, config, access)
        self.session = self.repository.writable_session("main")
        return self.session.store

    def is_there(self, name):
        prototype = default_buffer_prototype()
        path = self.files / name  # another file each: one that grew would be refused as changed

        async def refer():
            keys = [key async for key in self.store.list_prefix(f"a/{name}/")]
            for key in keys:
                if key.endswith("zarr.json"):
                    continue
                data = (await self.store.get(key, prototype)).to_bytes()
                with path.open("ab") as file:
                    offset = file.tell()
                    file.write(data)
                self.store.set_virtual_ref(key, f"file://{path}", offset=offset, length=len(data))

        sync(refer())


SEQUENCES = settings().max_examples
TestLogicalArrayMachine = LogicalArrayMachine.TestCase
TestLogicalArrayMachine.settings = settings(max_examples=SEQUENCES, stateful_step_count=12)
TestOnTheEventLoop = OnTheEventLoop.TestCase
TestInFiles = InFiles.TestCase
TestInARepository = InARepository.TestCase
TestOfReferences = OfReferences.TestCase
FEWER = settings(max_examples=max(1, SEQUENCES // 4), stateful_step_count=12)
TestOnTheEventLoop.settings = TestInFiles.settings = TestInARepository.settings = FEWER
TestOfReferences.settings = FEWER
