"""`with_decision`: a decision for an array that exists, without a trace in its metadata."""

import json
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.storage import MemoryStore

import intarsia
from intarsia import nullable
from intarsia.codecs import (
    ConditionalCodec,
    OptionalCodec,
    PadCodec,
    decision_of,
    masks,
    rewrite,
    with_decision,
    with_padding,
)
from intarsia.codecs.decisions import AlwaysApply, NeverApply
from intarsia.errors import CodecConfigurationError

LITTLE = BytesCodec(endian="little")
SHARDED = pytest.mark.parametrize("sharded", [False, True], ids=["plain", "sharded"])


def odd(chunk_index):
    return chunk_index[0] % 2 == 1


def create(store=None, *, sharded=False, decision=None, codecs=None, shape=16, chunks=2, **fields):
    codec = ConditionalCodec(codecs=[ZstdCodec()] if codecs is None else codecs, decision=decision)
    chain, size = [LITTLE, codec], chunks
    if sharded:
        chain, size = [ShardingCodec(chunk_shape=(chunks,), codecs=chain)], chunks * 2
    store = MemoryStore() if store is None else store
    return zarr.create(store=store, shape=shape, chunks=size, dtype="u1", codecs=chain, **fields)


@SHARDED
def test_another_decision_leaves_the_metadata_alone(sharded, tmp_path, our_pipeline):
    z = create(tmp_path / "a", sharded=sharded)
    before = (tmp_path / "a/zarr.json").read_bytes()
    other = with_decision(z, odd)
    assert isinstance(other, zarr.Array)
    other[:] = np.arange(1, 17)
    assert masks(z).tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    z[:] = np.arange(1, 17)  # the first handle still decides as before
    assert masks(z).tolist() == [0] * 8
    assert (tmp_path / "a/zarr.json").read_bytes() == before
    assert other.metadata == z.metadata


@SHARDED
@pytest.mark.parametrize("how", ["creation", "with_decision"])
def test_a_decision_survives_pickling_append_resize_and_attributes(sharded, how, our_pipeline):
    z = create(sharded=sharded, decision=odd if how == "creation" else None)
    if how == "with_decision":
        z = with_decision(z, odd)
    z = pickle.loads(pickle.dumps(z))
    z.attrs["units"] = "K"
    z = z.update_attributes({"more": 1})
    z.append(np.full(8, 9, dtype="u1"))
    z.resize(28)
    z = pickle.loads(pickle.dumps(z))
    z[:] = np.arange(1, 29)
    assert masks(z).tolist() == [0, 1] * 7
    np.testing.assert_array_equal(z[:], np.arange(1, 29))


@SHARDED
def test_the_array_of_another_process_decides_alike(sharded, tmp_path):
    z = with_decision(create(tmp_path / "a", sharded=sharded), "always_apply")
    (tmp_path / "array.pickle").write_bytes(pickle.dumps(z))
    script = textwrap.dedent(f"""
        import pickle
        z = pickle.loads(open({str(tmp_path / "array.pickle")!r}, "rb").read())
        z[:] = 7
    """)
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)
    assert masks(z).tolist() == [1] * 8


def test_the_decision_reaches_codecs_behind_a_transpose():
    codec = ConditionalCodec(codecs=[ZstdCodec()])
    z = zarr.create(
        store={},
        shape=(4, 4),
        chunks=(2, 2),
        dtype="u1",
        codecs=[TransposeCodec(order=(1, 0)), LITTLE, codec],
    )
    with_decision(z, "always_apply")[:] = 1
    assert masks(z).tolist() == [[1, 1], [1, 1]]


def test_who_decides():
    z = create(decision="never_apply")
    assert decision_of(z) == NeverApply()
    assert decision_of(with_decision(z, "always_apply")) == AlwaysApply()
    assert decision_of(with_decision(with_decision(z, "always_apply"), None)) == NeverApply()
    undecided = create()
    assert decision_of(undecided) is None
    with zarr.config.set({"intarsia.decision": "always_apply"}):
        assert decision_of(undecided) == AlwaysApply()
        assert decision_of(z) == NeverApply()


@SHARDED
def test_the_process_may_have_a_default(sharded, our_pipeline):
    z = create(sharded=sharded)
    z[:] = 1
    assert masks(z).tolist() == [0] * 8
    with zarr.config.set({"intarsia.decision": "always_apply"}):
        z[:] = 1
    assert masks(z).tolist() == [1] * 8
    with (
        zarr.config.set({"intarsia.decision": "often"}),
        pytest.raises(CodecConfigurationError, match="no decision called 'often'"),
    ):
        z[:] = 1


def test_the_default_can_come_from_the_environment(tmp_path, monkeypatch):
    create(tmp_path / "a")
    monkeypatch.setenv("ZARR_INTARSIA__DECISION", "always_apply")
    script = f"import zarr; zarr.open({str(tmp_path / 'a')!r}, mode='r+')[:] = 1"
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)
    assert masks(zarr.open_array(tmp_path / "a")).tolist() == [1] * 8


def test_a_codec_lends_its_decision():
    zstd = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}
    lender = OptionalCodec(configuration={"codecs": [zstd]}, decision_function=odd, trial_encode=False)
    z = with_decision(create(), lender)
    z[:] = 1
    assert masks(z).tolist() == [0, 1] * 4


TEXT = np.frombuffer(np.random.default_rng(0).choice(list(b"abcdefgh "), 1 << 16).tobytes()[::8] * 2, "u1")


def at_level(level, decision="always_apply"):
    return ConditionalCodec(codecs=[ZstdCodec(level=level)], decision=decision)


def stored_bytes(z):
    return sum(len(value) for key, value in z.store_path.store._store_dict.items() if "zarr.json" not in key)


@SHARDED
def test_another_level_of_the_same_codec_is_used_for_all_writes(sharded, our_pipeline):
    fields = {"sharded": sharded, "shape": TEXT.size, "chunks": TEXT.size // 4}
    fast, best = (
        create(codecs=[ZstdCodec(level=-5)], **fields),
        create(codecs=[ZstdCodec(level=19)], **fields),
    )
    with_decision(best, "always_apply")[:] = TEXT
    with_decision(fast, "always_apply")[:] = TEXT
    assert stored_bytes(fast) > stored_bytes(best)
    other = pickle.loads(pickle.dumps(with_decision(fast, at_level(19))))
    other.store_path.store._store_dict.update(fast.store_path.store._store_dict)
    other[:] = TEXT
    assert stored_bytes(other) == stored_bytes(best)
    other.append(TEXT)
    document = json.loads(other.store_path.store._store_dict["zarr.json"].to_bytes())
    assert document["codecs"] == json.loads(json.dumps(fast.metadata.to_dict()["codecs"]))
    assert stored_bytes(other) == 2 * stored_bytes(best)
    np.testing.assert_array_equal(other[: TEXT.size], TEXT)


@SHARDED
def test_chunks_are_rewritten_at_another_level(sharded):
    z = create(codecs=[ZstdCodec(level=-5)], sharded=sharded, shape=TEXT.size, chunks=TEXT.size // 4)
    with_decision(z, "always_apply")[:] = TEXT
    document = z.store_path.store._store_dict["zarr.json"].to_bytes()
    done = rewrite(z, at_level(19))
    assert (done.chunks, done.rewritten) == (4, 4)
    assert done.bytes_after < done.bytes_before
    assert rewrite(z, at_level(19)).rewritten == 0
    assert z.store_path.store._store_dict["zarr.json"].to_bytes() == document
    np.testing.assert_array_equal(z[:], TEXT)


def test_another_level_without_a_decision_leaves_the_decision_to_the_array():
    z = create(codecs=[ZstdCodec(level=-5)], shape=TEXT.size, chunks=TEXT.size, decision="always_apply")
    z[:] = TEXT
    before = stored_bytes(z)
    with_decision(z, at_level(19, None))[:] = TEXT
    assert stored_bytes(z) < before


def test_another_level_in_a_logical_and_in_a_nullable_array():
    codec = ConditionalCodec(codecs=[ZstdCodec(level=-5)])
    array = intarsia.create({}, shape=(0,), chunks=(TEXT.size // 4,), dtype="u1")
    array.append(TEXT, codecs=["bytes", codec])
    with_decision(array, "always_apply")[...] = TEXT
    with pytest.raises(CodecConfigurationError, match="a plan of bitmasks is for one chunk grid"):
        with_decision(array, at_level(19, [1, 1, 1, 1]))
    (member,) = array.members.values()
    before = stored_bytes(member)
    with_decision(array, at_level(19))[...] = TEXT
    assert stored_bytes(member) < before
    np.testing.assert_array_equal(array[...], TEXT)
    codec = ConditionalCodec(codecs=[ZstdCodec(level=-5)], decision="always_apply")
    values = nullable.create_array({}, shape=TEXT.size, dtype="u1", data_codecs=["bytes", codec])
    values[:] = TEXT
    before = stored_bytes(values.zarr_array)
    with_decision(values, at_level(19))[:] = TEXT
    assert stored_bytes(values.zarr_array) < before


def test_a_nested_conditional_codec_at_another_level():
    inner = [ConditionalCodec(codecs=[ZstdCodec(level=-5)])]
    z = create(codecs=inner, shape=TEXT.size, chunks=TEXT.size)
    with_decision(z, "always_apply")[:] = TEXT
    with pytest.raises(CodecConfigurationError, match="the array has ConditionalCodec"):
        with_decision(z, at_level(19))  # the outer codec is another one
    before = stored_bytes(z)
    better = ConditionalCodec(
        codecs=[ConditionalCodec(codecs=[ZstdCodec(level=19)])], decision="always_apply"
    )
    with_decision(z, better)[:] = TEXT
    assert stored_bytes(z) < before
    assert [int(mask[0]) for mask in masks(z).values()] == [1, 1]
    np.testing.assert_array_equal(z[:], TEXT)


@SHARDED
def test_a_plan_must_fit_the_chunk_grid(sharded):
    z = create(sharded=sharded, shape=15)
    with_decision(z, [0, 1] * 4)[:] = 1
    assert masks(z).tolist() == [0, 1] * 4
    with_decision(z, [0, 1] * 9)  # there is room to grow
    for plan, match in [
        ([0, 1], r"bitmasks for a chunk grid of \(2,\), but that of the array is \(8,\)"),
        ([[0, 1] * 4], r"bitmasks for a chunk grid of \(1, 8\)"),
        ([0, 2] * 4, "0b10, but the array has only 1 nested codecs"),
    ]:
        with pytest.raises(CodecConfigurationError, match=match):
            with_decision(z, plan)


def test_arrays_without_such_a_codec_are_refused():
    for z in (
        zarr.create(store={}, shape=4, dtype="u1"),
        zarr.create(store={}, shape=4, dtype="u1", zarr_format=2),
    ):
        with pytest.raises(CodecConfigurationError, match="cannot set a decision: the array"):
            with_decision(z, "smallest")


def test_of_two_codecs_in_a_row_a_name_reaches_both_and_a_plan_none():
    codecs = [LITTLE, ConditionalCodec(codecs=[ZstdCodec()]), ConditionalCodec(codecs=[Crc32cCodec()])]
    z = zarr.create(store={}, shape=100, dtype="u1", codecs=codecs)
    with_decision(z, "always_apply")[:] = 1
    stored = z.store_path.store._store_dict["c/0"].to_bytes()
    assert stored[:2] == b"\x01\x01"
    with pytest.raises(CodecConfigurationError, match="2 conditional codecs"):
        with_decision(z, [1])


def test_the_configuration_of_zarr_stays():
    z = create(config={"write_empty_chunks": True, "order": "F"})
    other = with_decision(z, "smallest")
    assert other.async_array.config.write_empty_chunks
    assert other.async_array.config.order == "F"
    other[:] = 0
    assert masks(z).count() == 8


def test_two_decisions_on_one_sharded_array_do_not_mix(our_pipeline):
    """zarr's sharding codec, which both share, remembers what it made for one configuration."""
    z = create(sharded=True)
    always, never = with_decision(z, lambda: True), with_decision(z, lambda: False)
    for _ in range(2):
        always[:] = 1
        assert masks(z).tolist() == [1] * 8
        never[:] = 1
        assert masks(z).tolist() == [0] * 8


def test_zarr_json_of_a_shard_has_no_decision_in_it(tmp_path):
    create(tmp_path / "a", sharded=True, decision=odd)
    document = json.loads((tmp_path / "a/zarr.json").read_text())
    inner = document["codecs"][0]["configuration"]["codecs"][1]
    assert set(inner) == {"name", "configuration"}
    assert set(inner["configuration"]) == {"codecs"}


def head(encoded):
    return b"HEAD"


@SHARDED
def test_a_remembered_decision_is_that_of_whoever_opens_the_array(sharded, tmp_path, our_pipeline):
    z = create(tmp_path / "a", sharded=sharded)
    with_decision(z, "always_apply", remember=True)
    assert json.loads((tmp_path / "a/zarr.json").read_text())["attributes"] == {
        "intarsia_decision": "always_apply"
    }
    again = zarr.open_array(tmp_path / "a")
    again[:8] = 1
    assert decision_of(again) == AlwaysApply()
    with_decision(again, "never_apply")[8:] = 1  # one's own comes first
    assert masks(again).tolist() == [1] * 4 + [0] * 4
    with zarr.config.set({"intarsia.decision": "never_apply"}):  # the default of the process comes last
        again[:] = 2
    assert masks(again).tolist() == [1] * 8
    with_decision(again, None, remember=True)
    zarr.open_array(tmp_path / "a")[:] = 3
    assert masks(again).tolist() == [0] * 8


def test_a_nullable_array_remembers_too(tmp_path):
    codec = ConditionalCodec(codecs=[ZstdCodec()])
    a = nullable.create_array(tmp_path, shape=4000, dtype="u1", data_codecs=["bytes", codec])
    with_decision(a, "always_apply", remember=True)
    nullable.open_array(tmp_path, mode="r+")[:] = 7
    small = (tmp_path / "c/0").stat().st_size
    with_decision(a, "never_apply")[:] = 7
    assert small < 600 < 4000 < (tmp_path / "c/0").stat().st_size


@pytest.mark.parametrize("decision", [odd, [0, 1] * 8, intarsia.codecs.Sampled(samples=9)])
def test_only_names_are_remembered(decision, tmp_path):
    z = create(tmp_path / "a")
    with pytest.raises(CodecConfigurationError, match=r"cannot be remembered(.|\n)*compress_if_smaller"):
        with_decision(z, decision, remember=True)
    assert not zarr.open_array(tmp_path / "a").attrs


def test_what_an_array_remembers_but_nobody_knows_stops_writers_not_readers(tmp_path, our_pipeline):
    z = create(tmp_path / "a")
    z[:] = 7
    z.attrs["intarsia_decision"] = "by the moon"
    again = zarr.open_array(tmp_path / "a")
    assert again[:].tolist() == [7] * 16
    with pytest.raises(intarsia.errors.ChunkEncodeError, match="remembers the decision 'by the moon'"):
        again[:] = 8
    with_decision(again, "never_apply")[:] = 8


@SHARDED
def test_padding_goes_with_the_array_and_beside_a_decision(sharded, tmp_path):
    chain = [LITTLE, ConditionalCodec(codecs=[ZstdCodec()]), PadCodec(location="start", nbytes=4)]
    if sharded:
        chain = [ShardingCodec(chunk_shape=(100,), codecs=chain)]
    z = zarr.create(store=tmp_path / "a", shape=100, dtype="u1", codecs=chain)
    for first, second in ((with_padding, with_decision), (with_decision, with_padding)):
        both = z
        for function in (first, second):
            both = function(both, head if function is with_padding else "always_apply")
        pickle.loads(pickle.dumps(both))[:] = 7
        assert (tmp_path / "a/c/0").read_bytes()[:5] == b"HEAD\x01"
        with_padding(both, None)[:] = 7
        assert (tmp_path / "a/c/0").read_bytes()[:5] == b"\0\0\0\0\x01"


def test_padding_is_refused_where_it_has_no_place_or_two():
    with pytest.raises(CodecConfigurationError, match=r"no pad or offset codecs.* its codecs are \['bytes'"):
        with_padding(create(), head)
    pad = PadCodec(location="start", nbytes=4)
    z = zarr.create(store={}, shape=4, dtype="u1", codecs=[LITTLE, pad, pad])
    with pytest.raises(CodecConfigurationError, match="2 pad or offset codecs, and not one"):
        with_padding(z, head)
    with pytest.raises(CodecConfigurationError, match="must be bytes or a function of the encoded chunk"):
        with_padding(z, 4)


def test_an_append_that_is_refused_leaves_the_array_as_it_was(tmp_path):
    z = create(tmp_path / "a", shape=10, chunks=10)
    with pytest.raises(intarsia.errors.ChunkEncodeError, match="give a plan that covers the chunk grid"):
        with_decision(z, [1]).append(np.ones(10, "u1"))
    assert zarr.open_array(tmp_path / "a").shape == (10,)
    assert with_decision(z, [1, 0]).append(np.ones(10, "u1")) == (20,)


@pytest.mark.parametrize("made", [True, False], ids=["codecs", "with_config"])
def test_nullable_arrays_take_both(made, tmp_path):
    pad = PadCodec(location="start", nbytes=4, padding_func=head)
    codec = ConditionalCodec(codecs=[ZstdCodec()], decision="always_apply")
    a = nullable.create_array(tmp_path, shape=4000, dtype="u1", data_codecs=["bytes", codec, pad])
    a[:] = 7
    expected = (tmp_path / "c/0").read_bytes()
    assert b"HEAD\x01" in expected
    if not made:
        a = nullable.open_array(tmp_path, mode="r+")
        with pytest.raises(intarsia.errors.ChunkEncodeError, match="it is not known which 4 bytes"):
            a[:] = 7
        a = with_padding(with_decision(a, "always_apply"), head)
    a[:] = 8
    a[:] = 7
    assert (tmp_path / "c/0").read_bytes() == expected


@pytest.mark.parametrize(
    "other",
    [
        {"codecs": []},
        {"codecs": [ZstdCodec(level=1, checksum=True)]},
        {"codecs": [GzipCodec(level=9)]},
        {"codecs": [ZstdCodec(level=1), GzipCodec(level=1)]},
        {"codecs": [ZstdCodec(level=1)], "header_bits": 16},
    ],
    ids=["none", "setting", "codec", "one more", "header"],
)
@pytest.mark.parametrize("function", [with_decision, intarsia.codecs.rewrite])
def test_a_codec_with_another_configuration_is_refused(function, other):
    own = ConditionalCodec(codecs=[ZstdCodec(level=1)])
    z = zarr.create(store={}, shape=8, chunks=4, dtype="u1", codecs=[BytesCodec(), own])
    z[:] = 7
    given = ConditionalCodec(**other, decision="always_apply")
    with pytest.raises(CodecConfigurationError, match=r"(?s)the array has Cond.*extend_codecs"):
        function(z, given)
    assert masks(z).tolist() == [0, 0]


def test_a_codec_as_it_was_when_the_array_was_made_is_accepted():
    """Settings that zarr takes from the data type are no difference, nor is the older name."""
    codecs = [intarsia.codecs.ShuffleCodec(element_size=4), BloscCodec(cname="lz4")]
    own = ConditionalCodec(codecs=codecs, header_bits=16)
    z = zarr.create(store={}, shape=8, chunks=4, dtype="i4", codecs=[BytesCodec(), own])
    again = ConditionalCodec(codecs=codecs, decision="always_apply", name="optional")
    with_decision(z, again)[:] = 7
    assert masks(z).tolist() == [3, 3]
