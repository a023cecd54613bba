"""zarr's configuration may change at any time: what intarsia needs of it comes back, and nothing else."""

import pickle
import random
from contextlib import suppress

import numpy as np
import pytest
import zarr
from zarr.buffer.cpu import NDBuffer
from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.registry import register_ndbuffer, register_pipeline

import intarsia
from intarsia import nullable
from intarsia.codecs import ConditionalCodec, PadCodec, masks, with_decision
from intarsia.errors import ChunkIndexUnknownError

PIPELINE = "codec_pipeline.path"


def every_second(chunk_index):
    return chunk_index[0] % 2 == 0


def number(encoded, chunk_index):
    return bytes(chunk_index)


def choose_zarrs_own():
    zarr.config.set(
        {PIPELINE: "zarr.core.codec_pipeline.FusedCodecPipeline", "ndbuffer": "zarr.core.buffer.cpu.NDBuffer"}
    )


def leave_a_block():
    """What is installed inside a block is gone after it."""
    zarr.config.reset()
    with zarr.config.set({key: zarr.config.get(key) for key in (PIPELINE, "ndbuffer")}):
        PadCodec(location="end", nbytes=1)
        nullable.optional_dtype("int8")
        assert zarr.config.get(PIPELINE).startswith("intarsia.")
        assert zarr.config.get("ndbuffer").startswith("intarsia.")
    assert zarr.config.get(PIPELINE).startswith("zarr.")
    assert zarr.config.get("ndbuffer").startswith("zarr.")


RESETS = [zarr.config.reset, zarr.config.refresh, choose_zarrs_own, leave_a_block]


class Program:
    """Uses everything that needs a setting: each step is one thing that users do, and is checked."""

    def __init__(self, random_step):
        self.random = random_step
        self.conditional = ConditionalCodec(codecs=[ZstdCodec()], decision=every_second)
        self.pad = PadCodec(location="end", nbytes=1, padding_func=number)
        self.open = [self.make_conditional(), self.make_conditional(sharded=True)]
        self.padded_store = {}
        self.padded = self.make(self.pad, store=self.padded_store)
        self.nullable = nullable.create_array({}, data=[1.5, None, 3.0, None], chunks=2)
        self.shards = nullable.create_array({}, shape=8, chunks=2, shards=4, dtype="int16")
        self.logical = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype="u1")
        self.logical.add_region(((0, 8),), codecs=["bytes", self.conditional], data=np.arange(8, dtype="u1"))
        self.missing = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="optional[int32]")
        self.missing.add_region(((0, 4),), data=nullable.as_nullable([1, None, 3, None]))

    def make(self, codec, store=None, sharded=False):
        chain = [BytesCodec(), codec]
        if sharded:
            chain = [ShardingCodec(chunk_shape=(2,), codecs=chain)]
        store = {} if store is None else store
        return zarr.create(store=store, shape=8, chunks=4 if sharded else 2, dtype="u1", codecs=chain)

    def make_conditional(self, sharded=False):
        return self.make(self.conditional, sharded=sharded)

    def write_conditional(self, z):
        z[:] = self.random.randrange(1, 200)
        assert masks(z).ravel().tolist() == [1, 0, 1, 0]
        assert len(set(z[:].tolist())) == 1

    # -- the steps

    def a_codec_made_before_in_a_new_array(self):
        self.write_conditional(self.make_conditional())

    def a_new_array_with_shards(self):
        self.write_conditional(self.make_conditional(sharded=True))

    def an_open_array(self):
        self.write_conditional(self.open[0])

    def an_open_array_with_shards(self):
        self.write_conditional(self.open[1])

    def another_handle(self):
        self.write_conditional(with_decision(self.open[0], every_second))

    def a_pickled_handle(self):
        self.write_conditional(pickle.loads(pickle.dumps(self.open[0])))

    def an_array_opened_again(self):
        z = zarr.open_array(self.open[1].store_path, mode="r+")
        self.write_conditional(with_decision(z, every_second))

    def padding_with_a_function(self):
        value = self.random.randrange(1, 200)
        self.padded[2:6] = value
        for i in (1, 2):
            assert self.padded_store[f"c/{i}"].to_bytes() == bytes([value, value, i])

    def an_open_nullable_array(self):
        value = self.random.random()
        self.nullable[2] = value
        assert self.nullable[:].tolist() == [1.5, None, value, None]
        assert self.nullable.oindex[[1, 2]].tolist() == [None, value]
        assert self.nullable.zarr_array[1:3].tolist() == [None, value]

    def an_open_nullable_array_with_shards(self):
        self.shards[3] = 7
        self.shards[:2] = [1, None]
        assert self.shards[:].tolist() == [1, None, None, 7] + [None] * 4

    def a_new_nullable_array(self):
        a = nullable.create_array({}, shape=4, chunks=2, dtype="f8", fill_value=nullable.Some(0.0))
        a[1] = None
        assert a[:].tolist() == [0.0, None, 0.0, 0.0]

    def a_nullable_array_with_arithmetic(self):
        codec = {"name": "scale_offset", "configuration": {"offset": 1, "scale": 2}}
        a = nullable.create_array({}, data=[1.0, None, 3.0], filters=[codec])
        assert nullable.open_array(a.zarr_array.store_path)[:].tolist() == [1.0, None, 3.0]

    def a_logical_array(self):
        value = self.random.randrange(1, 200)
        self.logical[2:4] = value
        assert self.logical[...].tolist() == [0, 1, value, value, 4, 5, 6, 7]

    def a_logical_array_of_nullable_data(self):
        self.missing[2] = 5
        assert self.missing[...].tolist() == [1, None, 5, None]

    def a_new_region_of_a_logical_array(self):
        array = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype="optional[int32]")
        array.add_region(
            ((0, 4),), codecs=[nullable.NullableCodec(), self.pad], data=np.arange(4, dtype="i4")
        )
        assert array[...].tolist() == [0, 1, 2, 3] + [None] * 4


STEPS = [step for name, step in vars(Program).items() if not name.startswith(("_", "make", "write_"))]


@pytest.fixture(autouse=True)
def _configuration():
    with zarr.config.set({key: zarr.config.get(key) for key in (PIPELINE, "ndbuffer")}):
        yield


@pytest.mark.parametrize("reset", RESETS, ids=lambda reset: reset.__name__)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_each_step_works_right_after_a_reset(step, reset):
    program = Program(random.Random(0))
    reset()
    step(program)


def test_resets_at_random_places_of_a_program_change_nothing():
    rng = random.Random(0)
    program = Program(rng)
    resets = 0
    while resets < 200:
        if rng.random() < 0.6:
            rng.choice(RESETS)()
            resets += 1
        rng.choice(STEPS)(program)


class ForeignPipeline(BatchedCodecPipeline):
    """Stands for the pipeline of another package."""


class ForeignBuffer(NDBuffer):
    """Stands for the memory of another package."""


def test_what_others_have_configured_is_never_replaced():
    rng = random.Random(0)
    program = Program(rng)
    register_pipeline(ForeignPipeline)
    register_ndbuffer(ForeignBuffer)
    foreign = {
        PIPELINE: f"{__name__}.ForeignPipeline",
        "ndbuffer": f"{__name__}.ForeignBuffer",
        "codecs.scale_offset": "somebody.elses.Codec",
    }
    with zarr.config.set(foreign):
        for step in STEPS:
            with suppress(Exception):  # most need what is not there
                step(program)
            assert {key: zarr.config.get(key) for key in foreign} == foreign, step
        z = program.make_conditional()
        with pytest.raises(ChunkIndexUnknownError, match="ForeignPipeline"):
            z[:] = 1


def test_after_a_reset_plain_zarr_is_as_before():
    """A codec of zarr that has a class for nulls is still found without a warning."""
    Program(random.Random(0))
    zarr.config.reset()
    stock = {key: zarr.config.get(key) for key in (PIPELINE, "ndbuffer", "codecs")}
    codec = {"name": "scale_offset", "configuration": {"offset": 1, "scale": 2}}
    z = zarr.create_array({}, shape=4, chunks=2, dtype="f8", filters=[codec])
    z[:] = 3
    assert z[:].tolist() == [3.0] * 4
    assert type(z.async_array.codec_pipeline) is BatchedCodecPipeline
    assert {key: zarr.config.get(key) for key in stock} == stock
