"""`extend_codecs`: more codecs to choose from, while every stored chunk stays valid."""

import json

import icechunk
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.storage import MemoryStore

import intarsia
from intarsia import nullable
from intarsia.codecs import ConditionalCodec, decision_of, extend_codecs, masks, rewrite, with_decision
from intarsia.errors import ChunkDecodeError, CodecConfigurationError, ReadOnlyError
from tests.codecs.stores import NotedWrites

LITTLE = BytesCodec(endian="little")


def create(store, codec, *, sharded=False, **fields):
    codecs = [LITTLE, codec, Crc32cCodec()]
    if sharded:
        codecs = [ShardingCodec(chunk_shape=(4,), codecs=codecs)]
    return zarr.create(store=store, shape=16, chunks=8 if sharded else 4, dtype="u2", codecs=codecs, **fields)


@pytest.mark.parametrize("name", ["conditional", "optional"])
@pytest.mark.parametrize("sharded", [False, True])
def test_old_chunks_stay_and_new_ones_can_have_the_new_codecs(sharded, name, our_pipeline):
    store = NotedWrites(MemoryStore())
    old = create(store, ConditionalCodec(codecs=[GzipCodec()], name=name), sharded=sharded, path="a")
    with_decision(old, 0b1)[:8] = 7
    store.written.clear()
    z = extend_codecs(old, [ZstdCodec(), {"name": "crc32c"}])
    assert store.written == ["a/zarr.json"]
    assert z[:8].tolist() == [7] * 8
    with_decision(z, 0b110)[8:] = 9
    assert masks(z).tolist() == [1, 1, 6, 6]
    for opened in (z, zarr.open_array(store, path="a")):
        assert opened[:].tolist() == [7] * 8 + [9] * 8
    assert rewrite(z, 0b101).rewritten == 4
    assert zarr.open_array(store, path="a")[:].tolist() == [7] * 8 + [9] * 8
    with pytest.raises(ChunkDecodeError, match="was written with more codecs"):
        old[:]


def test_everything_else_in_zarr_json_stays(tmp_path):
    z = create(tmp_path / "a", ConditionalCodec(codecs=[GzipCodec()], header_bits=24), attributes={"x": [1]})
    before = json.loads((tmp_path / "a/zarr.json").read_text())
    extend_codecs(z, [BloscCodec(cname="lz4")])
    after = json.loads((tmp_path / "a/zarr.json").read_text())
    nested = after["codecs"][1]["configuration"]["codecs"]
    added = nested.pop()
    assert after == before
    # What depends on the data type is filled in, as when an array is created.
    assert (added["configuration"]["typesize"], added["configuration"]["shuffle"]) == (2, "shuffle")


def test_the_header_must_have_room():
    z = create({}, ConditionalCodec(codecs=[Crc32cCodec()] * 7))
    z = extend_codecs(z, [ZstdCodec()])
    before = z.store._store_dict["zarr.json"].to_bytes()
    with pytest.raises(CodecConfigurationError, match=r"8 header bits, but 9 codecs[\s\S]*header_bits=16"):
        extend_codecs(z, [GzipCodec()])
    assert z.store._store_dict["zarr.json"].to_bytes() == before
    wide = create({}, ConditionalCodec(codecs=[Crc32cCodec()] * 7, header_bits=16))
    assert len(extend_codecs(wide, [GzipCodec()] * 9).metadata.codecs[1].codecs) == 16


def test_it_must_be_clear_which_codec_is_meant():
    inner = ConditionalCodec(codecs=[GzipCodec()])
    codecs = [LITTLE, ConditionalCodec(codecs=[inner])]
    with pytest.raises(CodecConfigurationError, match="2 conditional codecs"):
        extend_codecs(zarr.create(store={}, shape=4, dtype="u1", codecs=[*codecs, inner]), [ZstdCodec()])
    z = extend_codecs(zarr.create(store={}, shape=4, dtype="u1", codecs=codecs), [ZstdCodec()])
    assert len(z.metadata.codecs[1].codecs) == 2
    assert len(z.metadata.codecs[1].codecs[0].codecs) == 1


def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path):
    z = create(tmp_path / "a", ConditionalCodec(codecs=[GzipCodec()]))
    before = (tmp_path / "a/zarr.json").read_bytes()
    for array, codecs, error, said in (
        (z, [LITTLE], CodecConfigurationError, "only bytes -> bytes codecs"),
        (zarr.open_array(tmp_path / "a", mode="r"), [ZstdCodec()], ReadOnlyError, "for reading only"),
        (
            zarr.create(store={}, shape=4, dtype="u1"),
            [ZstdCodec()],
            CodecConfigurationError,
            "no conditional",
        ),
    ):
        with pytest.raises(error, match=said):
            extend_codecs(array, codecs)
    assert (tmp_path / "a/zarr.json").read_bytes() == before


def test_an_older_handle_adds_to_what_is_stored_now():
    z = create({}, ConditionalCodec(codecs=[GzipCodec()]))
    extend_codecs(z, [ZstdCodec()])
    z = extend_codecs(z, ["crc32c"])
    assert [codec.to_dict()["name"] for codec in z.metadata.codecs[1].codecs] == ["gzip", "zstd", "crc32c"]


def test_the_decision_comes_along():
    z = create({}, ConditionalCodec(codecs=[GzipCodec()], decision="smallest"))
    assert decision_of(extend_codecs(z, [ZstdCodec()])) == decision_of(z)
    z = with_decision(zarr.open_array(z.store), "always_apply")
    assert decision_of(extend_codecs(z, [ZstdCodec()])) == decision_of(z)


def test_in_a_repository_it_is_a_change_like_any_other():
    repo = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repo.writable_session("main")
    create(session.store, ConditionalCodec(codecs=[GzipCodec()], decision="always_apply"), path="a")[:] = 7
    session.commit("made")
    session = repo.writable_session("main")
    z = extend_codecs(zarr.open_array(session.store, path="a"), ["zstd"])
    with_decision(z, 0b10)[:4] = 9
    session.commit("extended")
    z = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    assert masks(z).tolist() == [2, 1, 1, 1]
    assert z[:].tolist() == [9] * 4 + [7] * 12


def test_nullable_and_logical_arrays():
    array = nullable.create_array(
        {}, shape=4, chunks=2, dtype="u1", data_codecs=["bytes", ConditionalCodec(codecs=["gzip"])]
    )
    array[:] = [1, None, 3, 4]
    array = extend_codecs(array, ["zstd"])
    rewrite(array, 0b10)
    assert masks(array).tolist() == [2, 2]
    assert intarsia.nullable.as_masked(array[:]).tolist() == [1, None, 3, 4]

    logical = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="u1")
    logical.append(np.arange(4, dtype="u1"), codecs=["gzip"])
    with pytest.raises(CodecConfigurationError, match="none of the 1 members"):
        extend_codecs(logical, ["zstd"])
    logical.append(np.arange(4, dtype="u1"), codecs=[ConditionalCodec(codecs=["gzip"])])
    logical.append(np.arange(4, dtype="u1"), codecs=[ConditionalCodec(codecs=["crc32c"]), "crc32c"])
    logical = extend_codecs(logical, ["zstd"])
    rewrite(logical, 0b10)
    assert [found.tolist() for found in masks(logical).values()] == [[2, 2], [2, 2]]
    assert logical[:].tolist() == [0, 1, 2, 3] * 3
