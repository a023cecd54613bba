"""Run-time settings: checked, and carried from handle to handle."""

import pickle

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.engine.config import MIN_WINDOW_BYTES, LogicalConfig, cores


def masks(array):
    return [intarsia.codecs.masks(member).tolist() for member in array.members.values()]


def test_settings_carry_over_and_the_old_handle_keeps_its_own():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    other = array.with_config(threads=3).with_config(window_bytes=1 << 20)
    assert (other.config.threads, other.config.window_bytes) == (3, 1 << 20)
    assert array.config == LogicalConfig()


def test_defaults_follow_the_machine():
    assert LogicalConfig().most_threads == cores() >= 1
    assert LogicalConfig().window >= MIN_WINDOW_BYTES
    assert LogicalConfig(threads=7, window_bytes=5).most_threads == 7
    assert LogicalConfig(threads=7, window_bytes=5).window == 5


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True, np.float64(2)])
@pytest.mark.parametrize("name", ["threads", "window_bytes"])
def test_nonsense_is_refused(name, value):
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    with pytest.raises(ValueError, match=f"{name} is .*: give a whole number of at least 1"):
        array.with_config(**{name: value})


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"layer": -1}, "give the number of a layer"),
        ({"layer": True}, "give the number of a layer"),
        ({"replicas": "keep"}, "give 'drop' or 'write'"),
    ],
)
def test_unknown_layers_and_ways_to_write_are_refused(settings, advice):
    with pytest.raises(ValueError, match=advice):
        LogicalConfig(**settings)


def test_a_decision_of_the_handle_is_for_everything_written_through_it(tmp_path):
    codecs = [intarsia.codecs.ConditionalCodec(codecs=["zstd"])]
    array = intarsia.create(tmp_path, "a", shape=(0,), chunks=(100,), dtype="u1")
    compressing = array.with_config(decision="always_apply")
    compressing.append(np.full(150, 7), codecs=codecs)
    compressing.append(np.full(150, 7), codecs=[codecs[0].with_decision("never_apply")])
    assert masks(array) == [[1, 0, 0]]  # what a call brings comes before what the handle has
    compressing[...] = 8
    assert masks(array) == [[1, 1, 1]]
    intarsia.open(tmp_path, "a", mode="r+")[...] = 9
    compressing.resize((250,))
    compressing.resize((300,))
    compressing.append(np.full(20, 7))
    assert masks(compressing) == [[0, 0, 1, 1]]
    compressing.recode(codecs=[*codecs, "crc32c"])
    assert masks(compressing) == [[1, 1, 1, 1]]
    twin = pickle.loads(pickle.dumps(compressing.with_config(decision="never_apply")))
    twin[...] = 1
    assert masks(twin) == [[0, 0, 0, 0]]


def test_what_only_writers_need_stays_behind_where_nobody_writes(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(0,), chunks=(100,), dtype="u1")
    array.append([1], codecs=[intarsia.codecs.ConditionalCodec(codecs=["zstd"], decision=lambda codec: True)])
    reading = intarsia.open(tmp_path, "a").with_config(decision=lambda codec: True, threads=1)
    assert pickle.loads(pickle.dumps(reading))[...].tolist() == [1]
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(array)


def test_a_logical_array_remembers_a_decision(tmp_path):
    array = intarsia.create(tmp_path, "a", shape=(0,), chunks=(100,), dtype="u1")
    intarsia.codecs.with_decision(array, "always_apply", remember=True)
    again = intarsia.open(tmp_path, "a", mode="r+")
    again.append(np.full(250, 7), codecs=[intarsia.codecs.ConditionalCodec(codecs=["zstd"])])
    again.append(
        np.full(100, 7), codecs=[intarsia.codecs.ConditionalCodec(codecs=["zstd"], decision="never_apply")]
    )
    assert masks(again) == [[1, 1, 0, 0]]
    again = intarsia.open(tmp_path, "a", mode="r+")
    again[...] = 8
    assert masks(again) == [[1] * 4]
    with zarr.config.set({"intarsia.decision": "never_apply"}):
        again[...] = 9
    assert masks(again) == [[1] * 4]
    with pytest.raises(intarsia.errors.CodecConfigurationError, match="cannot be remembered"):
        intarsia.codecs.with_decision(again, lambda codec: True, remember=True)


def test_a_plan_is_for_one_member():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    with pytest.raises(
        intarsia.errors.CodecConfigurationError, match="every member of a logical array has its own"
    ):
        intarsia.codecs.with_decision(array, [0, 1])
