"""The context variable; what the pipelines make of it is in test_context.py."""

import threading
from contextvars import copy_context

import pytest

from intarsia.codecs import context, current_chunk
from intarsia.codecs.current_chunk import asks_for, current_chunk_index, named_chunk, working_on
from intarsia.errors import ChunkIndexUnknownError


def test_blocks_nest_and_end():
    with working_on((1,)):
        with working_on((2, 3)):
            assert current_chunk_index() == (2, 3)
            assert named_chunk() == " of chunk (2, 3)"
        assert current_chunk_index() == (1,)
    with pytest.raises(ChunkIndexUnknownError):
        current_chunk_index()
    assert named_chunk() == ""


def test_other_threads_do_not_see_it():
    seen = []
    with working_on((1,)):
        plain = threading.Thread(target=lambda: seen.append(named_chunk()))
        told = threading.Thread(target=copy_context().run, args=(lambda: seen.append(named_chunk()),))
        for thread in (plain, told):
            thread.start()
            thread.join()
    assert seen == ["", " of chunk (1,)"]


def test_what_a_function_asks_for():
    assert asks_for(lambda chunk_index=None: 1, "chunk_index")
    assert not asks_for(lambda index: 1, "chunk_index")
    assert not asks_for(max, "chunk_index")


def test_everything_can_be_had_from_context():
    for name in ("asks_for", "at_place", "current_chunk_index", "named_chunk", "working_on"):
        assert getattr(context, name) is getattr(current_chunk, name)
