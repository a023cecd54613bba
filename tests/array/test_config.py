"""Run-time settings: checked, and carried from handle to handle."""

import numpy as np
import pytest

import intarsia
from intarsia.array.config import LEAST_WINDOW_BYTES, LogicalConfig, cores


def test_settings_carry_over_and_the_old_handle_keeps_its_own():
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    other = array.with_config(threads=3).with_config(window_bytes=1 << 20)
    assert (other.config.threads, other.config.window_bytes) == (3, 1 << 20)
    assert array.config == LogicalConfig()


def test_defaults_follow_the_machine():
    assert LogicalConfig().most_threads == cores() >= 1
    assert LogicalConfig().window >= LEAST_WINDOW_BYTES
    assert LogicalConfig(threads=7, window_bytes=5).most_threads == 7
    assert LogicalConfig(threads=7, window_bytes=5).window == 5


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True, np.float64(2)])
@pytest.mark.parametrize("name", ["threads", "window_bytes"])
def test_nonsense_is_refused(name, value):
    array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="u1")
    with pytest.raises(ValueError, match=f"{name} is .*: give a whole number of at least 1"):
        array.with_config(**{name: value})
