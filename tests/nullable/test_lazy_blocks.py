"""Nullable arrays in dask: the answers of Arrow, block by block."""

import operator
import pickle

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nullable.test_computing import arrays, assert_like_arrow, computed, moderate

import intarsia
from intarsia import nullable
from intarsia.errors import DataTypeError
from intarsia.nullable import NullableValues, as_nullable, to_arrow

da = pytest.importorskip("dask.array")

LAYOUTS = [{"chunks": (3, 2)}, {"chunks": (1, 2), "shards": (2, 4)}]


@pytest.fixture(autouse=True)
def in_this_thread():
    import dask

    with dask.config.set(scheduler="synchronous"):
        yield


def stored(data, layout):
    return nullable.create_array({}, data=data, **layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=max(5, settings().max_examples // 4))
@given(operands=arrays(("int16", "float64", "bool"), 2, shape=(5, 4)))
def test_elements(layout, operands):
    x, y = (stored(data, layout).to_dask() for data in operands)
    flat = [to_arrow(data.reshape(-1)) for data in operands]
    less = pc.less(*flat)

    def check(lazy, expected):
        assert_like_arrow(computed(lazy.compute).reshape(-1), expected)

    check(x < y, less)
    check(da.where(x < y, x, y), pc.if_else(less, *flat))
    check(da.concatenate([x, y]).rechunk((10, 4)), nullable.to_arrow(np.concatenate(operands).reshape(-1)))
    check(x.astype("float64"), pc.cast(flat[0], "float64"))
    check(x.map_blocks(NullableValues.fillna, operands[0].values.dtype.type(1), dtype=x.dtype),
          pc.fill_null(flat[0], flat[0].type.to_pandas_dtype()(1)))  # fmt: skip
    assert x.map_blocks(NullableValues.isnull, dtype=bool).compute().tolist() == operands[0].isnull().tolist()
    if x.dtype == bool:
        check(x & ~y, pc.and_kleene(flat[0], pc.invert(flat[1])))
        check(x | y, pc.or_kleene(*flat))
    else:
        check(x + y, pc.add(*flat))
        check(x * 2, pc.multiply(flat[0], flat[0].type.to_pandas_dtype()(2)))


REDUCTIONS = {
    "sum": pc.sum,
    "prod": pc.product,
    "mean": pc.mean,
    "min": pc.min,
    "max": pc.max,
    "var": pc.variance,
    "std": pc.stddev,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=max(5, settings().max_examples // 4))
@given(x=moderate(("int32", "float64")), ddof=st.integers(0, 2))
def test_reductions(layout, x, ddof):
    x = np.concatenate([x.reshape(-1)] * 3).reshape(-1, 3)
    if not len(x):
        return
    lazy = stored(x, layout).to_dask()
    for name, theirs in REDUCTIONS.items():
        options = {"ddof": ddof} if name in ("var", "std") else {}
        got = computed(getattr(lazy, name)(**options).compute)
        assert_like_arrow(got, theirs(to_arrow(x.reshape(-1)), **options), exactly=False)
        columns = computed(getattr(lazy, name)(axis=0, **options).compute)
        for j in range(3):
            assert_like_arrow(columns[j], theirs(to_arrow(x[:, j].copy()), **options), exactly=False)


@settings(max_examples=max(5, settings().max_examples // 4))
@given(operands=arrays(["bool"], 1, shape=(5, 4)))
def test_any_and_all(operands):
    lazy = stored(operands[0], LAYOUTS[0]).to_dask()
    flat = to_arrow(operands[0].reshape(-1))
    assert_like_arrow(lazy.any().compute(), pc.any(flat))
    assert_like_arrow(lazy.all().compute(), pc.all(flat))


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
    with pytest.raises(AttributeError, match=r"to_dask\(\) lazily"):
        a.mean()
    assert pickle.loads(pickle.dumps(a.to_dask() + 1)).compute().tolist() == [2, None, 4]


def test_levels_of_null_are_refused():
    a = nullable.create_array({}, shape=3, dtype="int8", depth=2)
    with pytest.raises(DataTypeError, match="one level"):
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
