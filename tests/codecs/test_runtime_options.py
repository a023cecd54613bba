"""Run-time options: in an array's configuration, and in codecs that travel."""

import copy
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, ShardingCodec, ZstdCodec

from intarsia import nullable
from intarsia.codecs import ConditionalCodec, OffsetCodec, PadCodec, masks, with_decision
from intarsia.codecs.decisions import Sampled, parse_decision
from intarsia.codecs.runtime_options import PicklableOptions, RuntimeOptions, default_decision, with_options


def configuration():
    return zarr.create(store={}, shape=4, dtype="u1", config={"order": "F"}).async_array.config


def runtime_config(config, decision):
    return with_options(
        config, RuntimeOptions(decision=None if decision is None else parse_decision(decision))
    )


def module_level(chunk_index):
    return True


def test_equal_means_the_same_decision():
    config = configuration()
    assert runtime_config(config, "smallest") == runtime_config(config, "smallest")
    assert hash(runtime_config(config, "smallest")) == hash(runtime_config(config, "smallest"))
    assert runtime_config(config, "smallest") != runtime_config(config, "never_apply")
    assert runtime_config(config, Sampled(samples=3)) != runtime_config(config, "sampled")
    assert runtime_config(config, module_level) == runtime_config(config, module_level)
    assert runtime_config(config, lambda: True) != runtime_config(config, lambda: True)
    assert runtime_config(config, np.array([1])) != runtime_config(config, np.array([1]))
    assert runtime_config(config, None) != config


def test_pickling_keeps_everything():
    for decision in ("smallest", module_level, np.array([1, 0])):
        config = runtime_config(configuration(), decision)
        twin = pickle.loads(pickle.dumps(config))
        assert twin.order == "F"
        if not isinstance(decision, np.ndarray):
            assert twin == config
        else:
            assert twin.options.decision.masks.tolist() == [1, 0]


def test_the_default_may_be_of_any_kind():
    with zarr.config.set({"intarsia.decision": module_level}):
        assert default_decision() == parse_decision(module_level)
    with zarr.config.set({"intarsia.decision": parse_decision("smallest")}):
        assert default_decision() == parse_decision("smallest")
    with zarr.config.set({"intarsia.decision": np.array([1, 0])}):
        assert default_decision().masks.shape == (2,)


@dataclass
class Rule:
    """Callable, equal by value, and so without a hash."""

    threshold: int

    def __call__(self, codec_index):
        return codec_index < self.threshold


def head(encoded):
    return b"HEAD"


def always(codec):
    return True


def test_an_object_that_cannot_be_hashed_may_decide_and_pad(our_pipeline):
    chain = [BytesCodec(), ConditionalCodec(codecs=[ZstdCodec()])]
    z = zarr.create(
        store={}, shape=4, chunks=4, dtype="u1", codecs=[ShardingCodec(chunk_shape=(2,), codecs=chain)]
    )
    with_decision(z, Rule(1))[:] = 1
    assert masks(z).tolist() == [1, 1]


PAD = PadCodec(location="start", nbytes=4, padding_func=head)
ZSTD = ConditionalCodec(codecs=[ZstdCodec()], decision="always_apply")
CHAINS = {
    "pad": [PAD],
    "offset": [OffsetCodec(offset=4, prefix_func=head)],
    "conditional": [ZSTD],
    "pad in conditional": [ConditionalCodec(codecs=[PAD], decision=always)],
    "conditional in conditional": [ConditionalCodec(codecs=[ZSTD], decision=always)],
}


@pytest.mark.parametrize("copied", [pickle.loads, copy.deepcopy], ids=["pickled", "deep copy"])
@pytest.mark.parametrize("shards", [0, 1, 2])
@pytest.mark.parametrize("chain", CHAINS)
def test_options_of_codecs_survive_in_shards_and_inside_each_other(chain, shards, copied, tmp_path):
    codecs = [BytesCodec(), *CHAINS[chain]]
    for _ in range(shards):
        codecs = [ShardingCodec(chunk_shape=(100,), codecs=codecs)]
    z = zarr.create(store=tmp_path, shape=200, chunks=100, dtype="u1", codecs=codecs)
    z[:] = 7
    expected = (tmp_path / "c/1").read_bytes()
    twin = copied(z if copied is copy.deepcopy else pickle.dumps(z))
    (tmp_path / "c/1").unlink()
    twin[:] = 7
    assert (tmp_path / "c/1").read_bytes() == expected


@pytest.mark.parametrize("shards", [None, (2000,)])
def test_options_of_codecs_survive_inside_nullable_data(shards, tmp_path):
    a = nullable.create_array(
        tmp_path, shape=2000, chunks=1000, shards=shards, dtype="u1", data_codecs=["bytes", ZSTD, PAD]
    )
    a[:] = 7
    expected = (tmp_path / "c/0").read_bytes()
    pickle.loads(pickle.dumps(a.zarr_array))[:] = np.full(2000, 7, "u1")
    assert (tmp_path / "c/0").read_bytes() == expected


def test_luggage_brings_an_array_that_was_opened_anew_up_to_date(tmp_path):
    chain = [BytesCodec(), ConditionalCodec(codecs=[ZstdCodec()]), PAD]
    z = zarr.create(store=tmp_path, shape=100, dtype="u1", codecs=chain)
    with zarr.config.set({"intarsia.decision": "always_apply"}):
        luggage = pickle.loads(pickle.dumps(PicklableOptions.of(z.metadata.codecs, RuntimeOptions())))
    luggage.on(zarr.open_array(tmp_path))[:] = 7
    assert masks(z).tolist() == [1]
    assert (tmp_path / "c/0").read_bytes()[:4] == b"HEAD"
