"""Decisions: what functions are asked, what they may answer, plans, and that a refusal writes nothing."""

import functools

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec

from intarsia.codecs import ConditionalCodec, ShuffleCodec, masks, with_decision
from intarsia.codecs.decisions import (
    NAMED_DECISIONS,
    DecisionFunction,
    MaskPerChunk,
    NeverApply,
    parse_decision,
)
from intarsia.errors import ChunkEncodeError, CodecConfigurationError

LITTLE = BytesCodec(endian="little")


def create(decision, codecs=None, *, store=None, sharded=False, **fields):
    codec = ConditionalCodec(codecs=[ZstdCodec()] if codecs is None else codecs, decision=decision)
    chain = [LITTLE, codec]
    if sharded:
        chain = [ShardingCodec(chunk_shape=(2,), codecs=chain)]
    fields = {"shape": 8, "chunks": 4, "dtype": "u1"} | fields
    return zarr.create(store={} if store is None else store, codecs=chain, **fields)


def headers(z):
    stored = z.store_path.store._store_dict
    return {key: value.to_bytes()[0] for key, value in stored.items() if key != "zarr.json"}


def test_a_function_gets_what_it_asks_for_and_nothing_else(our_pipeline):
    calls = []

    def everything(chunk_index, codec_index, codec, unencoded_chunk, trial_encoded_chunk):
        calls.append(
            (chunk_index, codec_index, codec.name, bytes(unencoded_chunk), bytes(trial_encoded_chunk))
        )
        return True

    z = create(everything, [ShuffleCodec(element_size=2), Crc32cCodec()], chunks=8)
    z[:] = np.arange(8)
    shuffled = bytes([0, 2, 4, 6, 1, 3, 5, 7])
    assert [call[:4] for call in calls] == [
        ((0,), 0, "shuffle", bytes(range(8))),
        ((0,), 1, "crc32c", shuffled),  # the running bytes: what this codec really gets
    ]
    assert calls[0][4] == shuffled
    assert calls[1][4][:8] == shuffled
    assert len(calls[1][4]) == 12
    np.testing.assert_array_equal(z[:], np.arange(8))


def test_the_trial_is_what_is_stored(monkeypatch):
    runs = []
    original = ZstdCodec._encode_sync
    monkeypatch.setattr(ZstdCodec, "_encode_sync", lambda self, *a: runs.append(1) or original(self, *a))
    z = create(lambda trial_encoded_chunk: True, chunks=8)
    z[:] = 7
    assert len(runs) == 1
    create(lambda unencoded_chunk: False, chunks=8)[:] = 7
    assert len(runs) == 1  # nobody asked for a trial


@pytest.mark.parametrize("keyword", ["conditional_decision", "optional_decision"])
def test_the_spellings_of_the_proposals(keyword):
    codec = ConditionalCodec(codecs=["zstd"], **{keyword: "compress_if_smaller"})
    assert codec.decision == parse_decision("compress_if_smaller")
    with pytest.raises(CodecConfigurationError, match="mean the same"):
        ConditionalCodec(codecs=["zstd"], decision="always_apply", **{keyword: "always_apply"})
    with pytest.raises(CodecConfigurationError, match="mean the same"):
        ConditionalCodec(codecs=["zstd"], decision_function=lambda: True, **{keyword: "always_apply"})


def test_a_function_sees_bytes():
    seen = []

    def decide(unencoded_chunk, trial_encoded_chunk):
        seen.append((type(unencoded_chunk), type(trial_encoded_chunk)))
        return unencoded_chunk.startswith(b"\x07") and unencoded_chunk[:2] + b"!" == b"\x07\x07!"

    z = create(decide, chunks=8)
    z[:] = 7
    assert set(seen) == {(bytes, bytes)}
    assert (z[:] == 7).all()


def test_the_chunk_a_function_sees_cannot_be_changed():
    data = np.arange(8, dtype="u1")

    def vandal(unencoded_chunk):
        unencoded_chunk[:] = 0
        return False

    with pytest.raises(TypeError, match="does not support item assignment"):
        create(vandal, chunks=8)[:] = data
    np.testing.assert_array_equal(data, np.arange(8))


@pytest.mark.parametrize("yes", [True, np.True_, 1, np.uint8(1)])
@pytest.mark.parametrize("no", [False, np.False_, 0, np.int64(0)])
def test_bools_of_any_kind_and_bits_are_answers(yes, no):
    z = create(lambda chunk_index: yes if chunk_index == (1,) else no, [Crc32cCodec()])
    z[:] = 7
    assert headers(z) == {"c/0": 0, "c/1": 1}


@pytest.mark.parametrize("answer", [None, 2, -1, "yes", 1.0, np.array([True])], ids=repr)
@pytest.mark.parametrize("sharded", [False, True], ids=["plain", "sharded"])
def test_any_other_answer_is_an_error_and_writes_nothing(answer, sharded, our_pipeline):
    z = create(lambda: answer, sharded=sharded, shape=4)
    with pytest.raises(ChunkEncodeError, match=r"'zstd'\) of chunk \([01],\) must return True or False"):
        z[:] = 7
    assert headers(z) == {}


@pytest.mark.parametrize("sharded", [False, True], ids=["plain", "sharded"])
def test_a_decision_that_raises_writes_nothing_for_its_chunk(sharded, our_pipeline):
    z = create(lambda: False, sharded=sharded)
    z[:] = np.arange(1, 9)
    before = {key: value.to_bytes() for key, value in z.store_path.store._store_dict.items()}

    def refuse(chunk_index, codec):
        raise KeyError("no idea")

    refusing = zarr.Array(z.async_array.with_config(_config(z, refuse)))
    with pytest.raises(KeyError, match="no idea") as caught:
        refusing[:] = 99
    assert "decision on nested codec 0 ('zstd') of chunk (" in "\n".join(caught.value.__notes__)
    assert {key: value.to_bytes() for key, value in z.store_path.store._store_dict.items()} == before


def _config(z, decision):
    from intarsia.codecs.runtime_options import RuntimeOptions, with_options

    return with_options(z.async_array.config, RuntimeOptions(parse_decision(decision)))


class Callable:
    def __call__(self, codec_index):
        return codec_index == 1


def keyword_only(*, codec_index):
    return codec_index == 1


def with_defaults(codec_index, threshold=1):
    return codec_index == threshold


def everything(**known):
    assert set(known) == {"chunk_index", "codec_index", "codec", "unencoded_chunk", "trial_encoded_chunk"}
    return known["codec_index"] == 1


def partial_of(threshold, codec_index):
    return codec_index == threshold


@pytest.mark.parametrize(
    "function", [Callable(), keyword_only, with_defaults, everything, functools.partial(partial_of, 1)]
)
def test_functions_of_all_kinds(function):
    z = create(function, [Crc32cCodec()] * 3)
    z[:] = 7
    assert set(headers(z).values()) == {0b010}


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda index: True, r"missing a required.*'index'.\n  It may ask for chunk_index, codec_index"),
        (lambda chunk_index, /: True, "chunk_index"),
        (lambda codec, what, why: True, "'what'"),
        (type, "cannot be called"),
    ],
)
def test_a_function_that_asks_for_something_else_is_refused_at_once(function, match):
    with pytest.raises(CodecConfigurationError, match=match):
        ConditionalCodec(codecs=[ZstdCodec()], decision=function)


def test_trial_encode_false_is_a_promise():
    def needs(trial_encoded_chunk):
        return True

    with pytest.raises(CodecConfigurationError, match="trial_encode is False"):
        ConditionalCodec(codecs=[ZstdCodec()], decision_function=needs, trial_encode=False)
    assert DecisionFunction(lambda trial_encoded_chunk=None: True, trial_encode=False).keywords == ()
    assert DecisionFunction(everything, trial_encode=False).keywords == (
        "chunk_index", "codec_index", "codec", "unencoded_chunk",
    )  # fmt: skip
    assert DecisionFunction(needs, trial_encode=True).keywords == ("trial_encoded_chunk",)


def test_codecs_in_functions_have_a_name_and_their_own_attributes():
    seen = []

    def look(codec):
        seen.append((codec.name, codec.level, type(codec.codec)))
        return False

    create(look, [ZstdCodec(level=7)])[:4] = 1
    assert seen == [("zstd", 7, ZstdCodec)]


@pytest.mark.parametrize("dtype", ["u1", "i8", "bool", "O"])
def test_a_plan_of_bitmasks(dtype, our_pipeline):
    plan = np.array([[0, 1], [1, 0]]).astype(dtype)
    if dtype == "O":
        plan[...] = [[0, 1], [1, 0]]
    z = create(plan, shape=(4, 4), chunks=(2, 2))
    z[:] = 5
    assert headers(z) == {"c/0/0": 0, "c/0/1": 1, "c/1/0": 1, "c/1/1": 0}
    np.testing.assert_array_equal(z[:], 5)


def test_a_plan_may_be_a_zarr_array_or_a_list_and_is_copied():
    plan = zarr.array(np.array([1, 0], dtype="u1"))
    z = create(plan)
    z[:] = 5
    assert headers(z) == {"c/0": 1, "c/1": 0}
    mutable = np.array([1, 0])
    z = create(mutable)
    mutable[:] = 0
    z[:] = 5
    assert headers(z) == {"c/0": 1, "c/1": 0}
    z = create([0, 1])
    z[:] = 5
    assert headers(z) == {"c/0": 0, "c/1": 1}


def test_a_plan_that_does_not_cover_a_chunk_is_an_error_that_writes_nothing():
    z = create([1, 0], shape=12)
    with pytest.raises(
        ChunkEncodeError, match=r"bitmasks for a chunk grid of \(2,\), but chunk \(2,\) is written"
    ):
        z[8:] = 1
    z = create([[1, 0]])
    with pytest.raises(ChunkEncodeError, match=r"bitmasks for a chunk grid of \(1, 2\), but chunk \(0,\)"):
        z[:4] = 1
    z = create([2, 0])
    with pytest.raises(ChunkEncodeError, match=r"of chunk \(0,\) is the bitmask 0b10, .* only 1 nested"):
        z[:4] = 1
    assert headers(z) == {}


def test_a_plan_from_masks_with_missing_chunks():
    plan = MaskPerChunk(np.ma.masked_array([1, 1], mask=[False, True]))
    assert plan.masks.tolist() == [1, 0]


def test_the_named_decisions():
    assert sorted(NAMED_DECISIONS) == [
        "always_apply", "compress_if_smaller", "never_apply", "sampled", "smallest",
    ]  # fmt: skip
    assert parse_decision(NeverApply()) == NeverApply()
    with pytest.raises(CodecConfigurationError, match="None is not a decision"):
        parse_decision(None)


def test_an_integer_is_one_bitmask_for_all_chunks():
    for mask in (0b10, np.uint8(0b10)):
        codec = ConditionalCodec(codecs=[Crc32cCodec(), ZstdCodec()], decision=mask)
        z = zarr.create(store={}, shape=6, chunks=2, dtype="u1", codecs=[BytesCodec(), codec])
        z[:] = 7
        assert masks(z).tolist() == [2, 2, 2]
    assert parse_decision(3) == parse_decision(3) != parse_decision(2)


def test_what_is_no_bitmask_is_refused():
    for wrong in (True, False, np.True_, 1.0):
        with pytest.raises(CodecConfigurationError, match="is not a decision"):
            parse_decision(wrong)
    with pytest.raises(CodecConfigurationError, match="negative"):
        parse_decision(-1)
    codec = ConditionalCodec(codecs=[ZstdCodec()])
    z = zarr.create(store={}, shape=6, chunks=2, dtype="u1", codecs=[BytesCodec(), codec])
    with pytest.raises((CodecConfigurationError, ChunkEncodeError), match="0b10, but"):
        with_decision(z, 0b10)[:] = 7
