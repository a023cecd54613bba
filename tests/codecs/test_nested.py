"""The codecs nested in a conditional one, called one at a time."""

import asyncio
import pickle

import numpy as np
import pytest
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BytesCodec, CastValue, Crc32cCodec, ZstdCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import UInt8

import intarsia
from intarsia.codecs import PadCodec
from intarsia.codecs.context import working_on
from intarsia.codecs.nested import Chain, NamedCodec, decode_with
from intarsia.errors import ChunkDecodeError, ChunkEncodeError

SPEC = ArraySpec((4,), UInt8(), np.uint8(0), ArrayConfig.from_dict({}), default_buffer_prototype())
DATA = SPEC.prototype.buffer.from_bytes(b"data")


class Strange(BytesBytesCodec):
    """A codec with coroutines only, which waits, fails, or gives nothing."""

    def __init__(self, result):
        self.result = result

    def to_dict(self):
        return {"name": "tests.strange"}

    def compute_encoded_size(self, input_byte_length, chunk_spec):
        return input_byte_length

    async def _encode_single(self, chunk_data, chunk_spec):
        await asyncio.to_thread(len, b"")
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    _decode_single = _encode_single


def chain(*codecs):
    return Chain("conditional", tuple(map(NamedCodec, codecs)), SPEC)


def test_asynchronous_codecs_run_outside_and_inside_of_an_event_loop():
    strange = chain(Strange(DATA))
    assert strange.encode(0, DATA) is DATA

    async def inside():
        return strange.decode(0, DATA, None)

    assert asyncio.run(inside()) is DATA


def test_their_failures_arrive():
    async def inside(strange):
        return strange.encode(0, DATA)

    failing = chain(Strange(KeyError("gone")))
    for attempt in (lambda: failing.encode(0, DATA), lambda: asyncio.run(inside(failing))):
        with pytest.raises(KeyError, match="gone") as caught:
            attempt()
        assert "codec 'conditional': nested codec 'tests.strange'" in caught.value.__notes__[-1]
    with (
        pytest.raises(ChunkDecodeError, match=r"cannot decode the data of chunk \(2,\): 'gone'"),
        working_on((2,)),
    ):
        failing.decode(0, DATA, None)
    with pytest.raises(ChunkDecodeError, match="OSError"):
        chain(Strange(OSError())).decode(0, DATA, None)


def test_a_codec_that_gives_nothing_is_an_error():
    with pytest.raises(ChunkEncodeError, match="returned nothing for the data"):
        chain(Strange(None)).encode(0, DATA)


def test_codecs_that_stand_alone_are_named_alone():
    with pytest.raises(ChunkDecodeError, match=r"^codec 'crc32c' cannot decode the data"):
        decode_with(Crc32cCodec(), DATA, SPEC)


def test_a_named_codec_can_be_copied():
    codec = NamedCodec(ZstdCodec(level=4))
    assert pickle.loads(pickle.dumps(codec)) == codec
    assert codec.level == 4
    with pytest.raises(AttributeError):
        codec.no_such_thing  # noqa: B018


class PanicException(BaseException):
    """As a codec written in Rust raises it."""


def test_a_panic_while_decoding_is_damage_and_an_interrupt_is_none():
    with pytest.raises(ChunkDecodeError, match=r"cannot decode the data: oh"):
        chain(Strange(PanicException("oh"))).decode(0, DATA, None)
    with pytest.raises(KeyboardInterrupt):
        chain(Strange(KeyboardInterrupt())).decode(0, DATA, None)


@pytest.mark.parametrize("kind", ["Batched", "Fused", "nullable", "logical", "logical, nullable"])
def test_a_panic_of_any_codec_names_the_chunk(kind, monkeypatch):
    def panic(*_):
        raise PanicException("oh")

    pytest.importorskip("cast_value_rs")
    monkeypatch.setattr(CastValue, "_decode_sync", panic)
    codecs = [CastValue(data_type="int16"), BytesCodec(), PadCodec(location="end", nbytes=1)]
    pipeline = kind if kind in ("Batched", "Fused") else "Batched"
    with zarr.config.set({"codec_pipeline.path": f"intarsia.codecs.context.{pipeline}Pipeline"}):
        if kind == "nullable":
            z = intarsia.nullable.create_array({}, shape=8, chunks=4, dtype="f8", data_codecs=codecs)
            z[:] = np.arange(8)
        elif kind.startswith("logical"):
            dtype = "optional[float64]" if kind.endswith("nullable") else "f8"
            z = intarsia.create({}, "a", shape=(0,), chunks=(4,), dtype=dtype)
            z.append(np.arange(8.0), codecs=codecs)
        else:
            z = zarr.create(store={}, shape=8, chunks=4, dtype="f8", codecs=codecs)
            z[:] = np.arange(8)
        with pytest.raises((ChunkDecodeError, intarsia.errors.ReadError), match=r"chunk \(1,\).*oh"):
            z[4:]
