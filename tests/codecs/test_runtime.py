"""The configuration that carries a decision."""

import pickle

import numpy as np
import zarr

from intarsia.codecs.decisions import parse_decision
from intarsia.codecs.runtime import default_decision, runtime_config
from intarsia.codecs.trials import Sampled


def configuration():
    return zarr.create(store={}, shape=4, dtype="u1", config={"order": "F"}).async_array.config


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
        copy = pickle.loads(pickle.dumps(config))
        assert copy.order == "F"
        if not isinstance(decision, np.ndarray):
            assert copy == config
        else:
            assert copy.decision.masks.tolist() == [1, 0]


def test_a_function_as_default_is_inspected_once():
    with zarr.config.set({"intarsia.decision": module_level}):
        assert default_decision() is default_decision()
    with zarr.config.set({"intarsia.decision": parse_decision("smallest")}):
        assert default_decision() == parse_decision("smallest")
    with zarr.config.set({"intarsia.decision": np.array([1, 0])}):
        assert default_decision().shape == (2,)
