"""Every operation on nullable data that is stored, chunked or sharded, and through dask: what Arrow says."""

import operator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nullable.test_computing import (
    ARITHMETIC,
    COMPARISONS,
    FLOATS,
    MODERATE,
    NUMBERS,
    TIMES,
    UFUNCS,
    assert_like_arrow,
    computed,
    random_values,
)

from intarsia import nullable
from intarsia.nullable import NullableValues, to_arrow

da = pytest.importorskip("dask.array")

SHAPE = (5, 4)
LAYOUTS = {"chunked": {"chunks": (3, 2)}, "sharded": {"chunks": (1, 2), "shards": (2, 4)}}
STEP = np.timedelta64(5, "s")


def filled(x, value):
    """Nulls replaced, in blocks where there are blocks."""
    return x.map_blocks(NullableValues.fillna, value, dtype=x.dtype) if lazy(x) else x.fillna(value)


def lazy(x):
    return isinstance(x, da.Array)


def joined(*arrays):
    return np.concatenate(arrays).reshape(-1)


def text(*arrow):
    return pc.binary_join_element_wise(*(a.cast(pa.string()) for a in arrow), "")


def extreme(theirs):
    return lambda *arrow: theirs(*arrow, skip_nulls=False)


def binary(table):
    return {name: (getattr(operator, name), theirs) for name, theirs in table.items()}


def unary(table):
    return {
        ufunc.__name__: (lambda x, _, f=ufunc: f(x), lambda a, _, f=theirs: f(a))
        for ufunc, theirs in table.items()
    }


OF_NUMBERS = binary(ARITHMETIC) | {
    "fmin": (np.fmin, extreme(pc.min_element_wise)),
    "fmax": (np.fmax, extreme(pc.max_element_wise)),
    "with a scalar": (lambda x, _: x * 2, lambda a, _: pc.multiply(a, pa.scalar(2, a.type))),
    "astype": (lambda x, _: x.astype("float64"), lambda a, _: pc.cast(a, "float64", safe=False)),
}
OF_FLOATS = unary(UFUNCS) | {
    "truediv": (operator.truediv, pc.divide),
    "arctan2": (np.arctan2, pc.atan2),
    "power": (np.power, pc.power),
}
OF_BOOLS = {
    "and": (operator.and_, pc.and_kleene),
    "or": (operator.or_, pc.or_kleene),
    "xor": (operator.xor, pc.xor),
    "not": (lambda x, _: ~x, lambda a, _: pc.invert(a)),
    "logical_and": (np.logical_and, pc.and_kleene),
    "logical_or": (np.logical_or, pc.or_kleene),
}
OF_TIMES = {
    "difference": (operator.sub, pc.subtract),
    "shifted": (lambda x, _: x + STEP, lambda a, _: pc.add(a, pa.scalar(STEP.item(), pa.duration("s")))),
}
OF_TEXT = {"add": (operator.add, text)}
OF_ALL = {
    "where": (lambda x, y: where(x == y, x, y), lambda a, b: pc.if_else(pc.equal(a, b), a, b)),
    "fillna": (lambda x, y: filled(x, one_of(y)), None),
    "concatenate": (joined, lambda a, b: pa.concat_arrays([a, b])),
    "stack": (lambda x, y: np.stack([x, y]).reshape(-1), lambda a, b: pa.concat_arrays([a, b])),
}


def where(condition, x, y):
    return (da if lazy(x) else np).where(condition, x, y)


def one_of(y):
    """Something that the data type can hold."""
    return np.zeros((), y.dtype)[()] if y.dtype.kind in "biufMm" else "filled"


def operations(name):
    """What is offered for a data type, and what Arrow says."""
    found = OF_ALL | binary(COMPARISONS)
    found |= OF_NUMBERS if name in NUMBERS else {}
    found |= OF_FLOATS if name in FLOATS else {}
    found |= OF_BOOLS if name == "bool" else {}
    found |= OF_TEXT if name == "string" else {}
    return found | (OF_TIMES if name in TIMES else {})


MAX_EXAMPLES = max(2, settings().max_examples // 15)
SHARES = st.sampled_from([0.4, 0.4, 0.0, 1.0])
NAMES = (
    "int8",
    "uint16",
    "int64",
    "float32",
    "float64",
    "bool",
    "datetime64[ms]",
    "timedelta64[s]",
    "string",
)


def stored(data, layout, through):
    array = nullable.create_array({}, data=data, **LAYOUTS[layout])
    return array.to_dask() if through == "dask" else array.read_nullable(...)


def value(result):
    return result.compute(scheduler="synchronous") if lazy(result) else result


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("through", ["read", "dask"])
@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=MAX_EXAMPLES)
@given(seed=st.integers(0, 2**32), share=SHARES)
def test_every_operation_is_arrows(layout, through, name, seed, share):
    rng = np.random.default_rng(seed)
    memory = [random_values(rng, name, SHAPE, share) for _ in range(2)]
    x, y = (stored(data, layout, through) for data in memory)
    arrow = [to_arrow(data.reshape(-1)) for data in memory]
    for called, (ours, theirs) in operations(name).items():
        got = computed(lambda ours=ours: value(ours(x, y)))
        expected = to_arrow(memory[0].fillna(one_of(y)).reshape(-1)) if theirs is None else theirs(*arrow)
        assert_like_arrow(got.reshape(-1), expected, exactly=called not in OF_FLOATS)
    if through == "read":
        assert_like_arrow(x.dropna(), pc.drop_null(arrow[0]))
        assert (x.isnull().reshape(-1).tolist(), x.count()) == (
            pc.is_null(arrow[0]).to_pylist(),
            pc.count(arrow[0]).as_py(),
        )
    else:
        assert value(x.map_blocks(NullableValues.isnull, dtype=bool)).tolist() == memory[0].isnull().tolist()


REDUCTIONS = {
    "sum": pc.sum,
    "prod": pc.product,
    "mean": pc.mean,
    "var": pc.variance,
    "std": pc.stddev,
    "min": pc.min,
    "max": pc.max,
}
OF_TRUTH = {"any": pc.any, "all": pc.all}
ORDERED = {"min": pc.min, "max": pc.max}


@pytest.mark.parametrize("name", ["int32", "float64", "bool", "datetime64[ms]", "string"])
@pytest.mark.parametrize("through", ["read", "dask"])
@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=MAX_EXAMPLES)
@given(seed=st.integers(0, 2**32), share=SHARES, ddof=st.integers(0, 2))
def test_every_reduction_is_arrows(layout, through, name, seed, share, ddof):
    pool = MODERATE if name in NUMBERS else None
    memory = random_values(np.random.default_rng(seed), name, SHAPE, share, pool)
    x = stored(memory, layout, through)
    for called, theirs in (
        REDUCTIONS if name in NUMBERS else OF_TRUTH if name == "bool" else ORDERED
    ).items():
        options = {"ddof": ddof} if called in ("var", "std") else {}
        got = computed(lambda: value(getattr(x, called)(**options)))  # noqa: B023
        assert_like_arrow(got, theirs(to_arrow(memory.reshape(-1)), **options), exactly=False)
        columns = computed(lambda: value(getattr(x, called)(axis=0, **options)))  # noqa: B023
        for j in range(SHAPE[1]):
            expected = theirs(to_arrow(memory[:, j].copy()), **options)
            assert_like_arrow(columns[j : j + 1], pa.array([expected.as_py()], expected.type), exactly=False)
