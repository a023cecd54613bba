"""What a program's own signal handler raises comes out of a read or a write as it is."""

import functools
import os
import signal

import numpy as np
import pytest
from zarr.storage import MemoryStore, WrapperStore

import intarsia
from intarsia.errors import ReadError, signal_failure


class TooLongError(Exception):
    """What the program raises after a while."""


def too_long(number, frame):
    raise TooLongError("too long")


def timeout(number, frame):
    raise TimeoutError("too long")  # an OSError, which might be taken for one of the store


class Alarm:
    def __call__(self, number, frame):
        raise TooLongError("too long")

    def method(self, number, frame):
        raise TooLongError("too long")


HANDLERS = [too_long, timeout, Alarm(), Alarm().method, functools.partial(too_long)]


@pytest.fixture(params=HANDLERS)
def handled(request):
    before = signal.signal(signal.SIGUSR1, request.param)
    yield
    signal.signal(signal.SIGUSR1, before)


class Signalled(WrapperStore[MemoryStore]):
    """Sends a signal when it is asked for a chunk."""

    def get_sync(self, key, **options):
        if "/c/" in key:
            signal.raise_signal(signal.SIGUSR1)
        return super().get_sync(key, **options)


def stored(store):
    array = intarsia.create(store, "a", shape=(0,), chunks=(4,), dtype="u1")
    array.append(np.arange(16), codecs=["zstd"])
    return array


def test_while_a_store_is_read(handled):
    inner = MemoryStore()
    stored(inner)
    array = intarsia.open(Signalled(inner), "a")
    with pytest.raises((TooLongError, TimeoutError), match=r"^too long$"):
        array[...]
    with pytest.raises((TooLongError, TimeoutError), match=r"^too long$"):
        array.with_config(threads=1, fallback=True)[3]


@pytest.mark.parametrize("kind", ["folder", "repository"])
def test_while_a_file_is_opened(handled, kind, tmp_path, monkeypatch):
    if kind == "folder":
        stored(tmp_path)
        array = intarsia.open(tmp_path, "a")
    else:
        repo = intarsia.open_repository(tmp_path, create=True)
        with intarsia.transaction(repo, message="x") as tx:
            values = np.random.default_rng(0).integers(0, 256, 8192, dtype="u1")
            tx.create("a", shape=(0,), chunks=(4096,), dtype="u1").append(values, codecs=[])
        array = intarsia.open(repo, "a")
    array[:1]
    before = os.open

    def opened(*args, **options):
        signal.raise_signal(signal.SIGUSR1)
        return before(*args, **options)

    monkeypatch.setattr("os.open", opened)
    with pytest.raises((TooLongError, TimeoutError), match=r"^too long$"):
        array[...]


def test_while_a_chunk_is_changed(handled):
    inner = MemoryStore()
    stored(inner)
    with pytest.raises((TooLongError, TimeoutError), match=r"^too long$"):
        intarsia.open(Signalled(inner), "a", mode="r+")[1] = 7
    assert intarsia.open(inner, "a")[1] == 1


def test_other_failures_are_still_ours(handled):
    class Broken(WrapperStore[MemoryStore]):
        def get_sync(self, key, **options):
            if "/c/" in key:
                raise TimeoutError("too long")
            return super().get_sync(key, **options)

    inner = MemoryStore()
    stored(inner)
    with pytest.raises(ReadError, match="too long") as caught:
        intarsia.open(Broken(inner), "a")[...]
    assert signal_failure(caught.value) is None
