"""Nullable arrays in dask: where they come from, and what is refused."""

import operator
import pickle

import numpy as np
import pytest

import intarsia
from intarsia import nullable
from intarsia.errors import DataTypeError
from intarsia.nullable import as_nullable

da = pytest.importorskip("dask.array")


@pytest.fixture(autouse=True)
def in_this_thread():
    import dask

    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("kind", ["logical", "masked", "memory", "straight"])
def test_other_sources(kind):
    data = as_nullable([[True, None, False], [None, None, True]])
    if kind == "logical":
        source = intarsia.create({}, "a", shape=(0, 3), chunks=(1, 3), dtype="optional[bool]")
        source.append(data, codecs=["gzip"])
    else:
        source = da.from_array(data.masked(), chunks=(1, 2)) if kind == "masked" else data
    lazy = da.from_array(data, chunks=(1, 2)) if kind == "straight" else nullable.to_dask(source)
    assert (lazy & False).compute().null_count == 0
    assert lazy.mean(axis=0).compute().tolist() == [1, None, 0.5]


def test_a_stored_array_computes_lazily_by_itself():
    a = nullable.create_array({}, data=[1, None, 3], chunks=2)
    for lazy, expected in (
        (a + 1, [2, None, 4]),
        (1 - a, [0, None, -2]),
        (np.sqrt(a) > 1, [False, None, True]),
        (a + a, [2, None, 6]),
        (a * as_nullable([None, 1, 2]), [None, None, 6]),
    ):
        assert isinstance(lazy, da.Array)
        assert lazy.compute().tolist() == expected
    assert a == a
    assert {a: 1}[a] == 1
    with pytest.raises(TypeError, match="in place"):
        a += 1
    with pytest.raises(AttributeError, match=r"lazily a\.to_dask\(\)"):
        a.mean()
    assert pickle.loads(pickle.dumps(a.to_dask() + 1)).compute().tolist() == [2, None, 4]


def test_levels_of_null_are_refused():
    a = nullable.create_array({}, shape=3, dtype="int8", depth=2)
    with pytest.raises(DataTypeError, match="one kind of null"):
        a.to_dask()


@pytest.mark.parametrize("apply", [operator.add, operator.gt])
def test_dask_meets_values_in_memory(apply):
    x = as_nullable([1, None, 3])
    lazy = nullable.to_dask(x, chunks=2)
    assert apply(lazy, x).compute().tolist() == apply(x, x).tolist()
    assert apply(x, lazy).compute().tolist() == apply(x, x).tolist()


def test_what_was_computed_is_stored_with_its_nulls():
    lazy = nullable.create_array({}, data=[1, None, 3, 4], chunks=2) * 2
    target = nullable.create_array({}, shape=4, chunks=2, dtype="int64")
    da.store(lazy, target, lock=False)
    assert target[:].tolist() == [2, None, 6, 8]
    store = {}
    intarsia.store_dask(lazy, store, "x")
    assert intarsia.open(store, "x")[:].tolist() == [2, None, 6, 8]
