"""Every operation on nullable data that is stored, chunked or sharded, and through dask: what Arrow says.

What is offered is asked of the code: an operation or an option that nothing here compares fails a test.
"""

import operator
from inspect import signature

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.mixins import NDArrayOperatorsMixin
from tests.grids import spread
from tests.nullable.test_computing import (
    ARITHMETIC,
    BITS,
    COMPARISONS,
    FLOATS,
    INTEGERS,
    MODERATE,
    NUMBERS,
    TIMES,
    UFUNCS,
    assert_like_arrow,
    computed,
    random_values,
)

from intarsia import nullable
from intarsia.errors import NullsPresentError
from intarsia.nullable import NullableValues, computing, to_arrow
from intarsia.nullable.computing import Reduction

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

SHAPE = (5, 4)
LAYOUTS = {"chunked": {"chunks": (3, 2)}, "sharded": {"chunks": (1, 2), "shards": (2, 4)}}
STEP = np.timedelta64(5, "s")


def lazy(x):
    return isinstance(x, da.Array)


def isnull(x):
    """Where nulls are: dask asks every block."""
    return x.map_blocks(NullableValues.isnull, dtype=bool) if lazy(x) else x.isnull()


def filled(x, value):
    return da.where(isnull(x), value, x) if lazy(x) else x.fillna(value)


def dropped(x, _):
    return x[~isnull(x)] if lazy(x) else x.dropna()


def counted(x, **options):
    return (~isnull(x)).sum(**options) if lazy(x) else x.count(**options)


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


def at_least_one(y):
    return np.fmax(y, np.ones((), y.dtype)[()])


def divided(a, b):
    """Arrow cuts quotients off, and so they are NumPy's where no number is negative."""
    return pc.divide(a, pc.max_element_wise(b, pa.scalar(1, b.type), skip_nulls=False))


def rest(a, b):
    b = pc.max_element_wise(b, pa.scalar(1, b.type), skip_nulls=False)
    return pc.subtract(a, pc.multiply(pc.divide(a, b), b))


def shift(theirs):
    return lambda a, b: theirs(a, pc.bit_wise_and(b, pa.scalar(3, b.type)))


def of_first(theirs):
    return lambda a, _: theirs(a)


OF_NUMBERS = binary(ARITHMETIC) | {
    "pos": (lambda x, _: +x, lambda a, _: a),
    "fmin": (np.fmin, extreme(pc.min_element_wise)),
    "fmax": (np.fmax, extreme(pc.max_element_wise)),
    "with a scalar": (lambda x, _: x * 2, lambda a, _: pc.multiply(a, pa.scalar(2, a.type))),
    "astype": (lambda x, _: x.astype("float64"), lambda a, _: pc.cast(a, "float64", safe=False)),
}
OF_FLOATS = unary(UFUNCS) | {
    "abs": (lambda x, _: abs(x), of_first(pc.abs)),
    "neg": (lambda x, _: -x, of_first(pc.negate)),
    "truediv": (operator.truediv, pc.divide),
    "arctan2": (np.arctan2, pc.atan2),
    "pow": (operator.pow, pc.power),
}
OF_INTEGERS = {name.strip("_"): (getattr(operator, name), theirs) for name, theirs in BITS.items()} | {
    "invert": (lambda x, _: ~x, of_first(pc.bit_wise_not)),
    "lshift": (lambda x, y: x << (y & 3), shift(pc.shift_left)),
    "rshift": (lambda x, y: x >> (y & 3), shift(pc.shift_right)),
}
OF_UNSIGNED = {
    "floordiv": (lambda x, y: x // at_least_one(y), divided),
    "mod": (lambda x, y: x % at_least_one(y), rest),
    "divmod": (lambda x, y: divmod(x, at_least_one(y))[1], rest),
}
OF_BOOLS = {
    "and": (operator.and_, pc.and_kleene),
    "or": (operator.or_, pc.or_kleene),
    "xor": (operator.xor, pc.xor),
    "invert": (lambda x, _: ~x, of_first(pc.invert)),
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
    "isnull": (lambda x, _: isnull(x), of_first(pc.is_null)),
    "dropna": (dropped, of_first(pc.drop_null)),
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
    found |= OF_INTEGERS if name in INTEGERS else {}
    found |= OF_UNSIGNED if name.startswith("uint") else {}
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


def values(results):
    """What is lazy is computed, all at once."""
    return dask.compute(*results, scheduler="synchronous")


@pytest.mark.parametrize(("name", "layout", "through"), spread(NAMES, LAYOUTS, ["read", "dask"], times=2))
@settings(max_examples=MAX_EXAMPLES)
@given(seed=st.integers(0, 2**32), share=SHARES)
def test_every_operation_is_arrows(layout, through, name, seed, share):
    rng = np.random.default_rng(seed)
    memory = [random_values(rng, name, SHAPE, share) for _ in range(2)]
    x, y = (stored(data, layout, through) for data in memory)
    arrow = [to_arrow(data.reshape(-1)) for data in memory]
    offered = operations(name)
    found = computed(lambda: values([ours(x, y) for ours, _ in offered.values()]))
    for (called, (_, theirs)), got in zip(offered.items(), found, strict=True):
        expected = to_arrow(memory[0].fillna(one_of(y)).reshape(-1)) if theirs is None else theirs(*arrow)
        got = got if isinstance(got, NullableValues) else NullableValues(got)
        assert_like_arrow(got.reshape(-1), expected, exactly=called not in OF_FLOATS)


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


def reductions(name):
    return REDUCTIONS if name in NUMBERS else OF_TRUTH if name == "bool" else ORDERED


def reduced(x, called, *, skipna=True, min_count=1, **options):
    """A reduction; dask has no `skipna` and `min_count`, and counts instead."""
    if not lazy(x):
        return getattr(x, called)(skipna=skipna, min_count=min_count, **options)
    result = getattr(x, called)(**options)
    options.pop("ddof", None)
    unknown = counted(x, **options) < min_count
    if not skipna:
        undecided = result if called == "all" else ~result if called == "any" else True
        unknown |= isnull(x).any(**options) & undecided
    return da.where(unknown, nullable.as_nullable(None, result.dtype), result)


@pytest.mark.parametrize(
    ("name", "layout", "through"),
    spread(["int32", "float64", "bool", "datetime64[ms]"], LAYOUTS, ["read", "dask"], times=2),
)
@settings(max_examples=MAX_EXAMPLES)
@given(
    seed=st.integers(0, 2**32),
    share=SHARES,
    ddof=st.integers(0, 2),
    skipna=st.booleans(),
    min_count=st.integers(1, 3),
)
def test_every_reduction_is_arrows(layout, through, name, seed, share, ddof, skipna, min_count):
    pool = MODERATE if name in NUMBERS else None
    memory = random_values(np.random.default_rng(seed), name, SHAPE, share, pool)
    x = stored(memory, layout, through)
    arrow = [to_arrow(memory.reshape(-1)), *(to_arrow(memory[:, j].copy()) for j in range(SHAPE[1]))]
    ours = {"skipna": skipna, "min_count": min_count}
    given = {called: {"ddof": ddof} if called in ("var", "std") else {} for called in reductions(name)}
    found = computed(
        lambda: values(
            [
                (reduced(x, called, **ours, **own), reduced(x, called, axis=0, keepdims=True, **ours, **own))
                for called, own in given.items()
            ]
        )
    )
    for (called, own), (whole, columns) in zip(given.items(), found, strict=True):
        assert (whole.shape, columns.shape) == ((), (1, SHAPE[1]))
        for got, data in zip([whole.reshape(1), *columns.reshape(-1, 1)], arrow, strict=True):
            expected = reductions(name)[called](data, skip_nulls=skipna, min_count=min_count, **own)
            assert_like_arrow(got, pa.array([expected.as_py()], expected.type), exactly=False)
    counts = values([counted(x), *counted(x, axis=0)])
    assert [*map(int, counts)] == [pc.count(data).as_py() for data in arrow]


@pytest.mark.parametrize("name", ["int16", "float32"])
@pytest.mark.parametrize("through", ["read", "dask"])
def test_results_have_the_data_type_that_is_asked_for(through, name):
    memory = random_values(np.random.default_rng(1), name, SHAPE, 0.4, MODERATE)
    x = stored(memory, "sharded", through)
    for called in ("sum", "prod", "mean", "var", "std"):
        (got,) = values([getattr(x, called)(dtype="float32")])
        assert got.values.dtype == np.float32
        arrow = to_arrow(memory.astype("float32").reshape(-1))
        assert_like_arrow(got, REDUCTIONS[called](arrow).cast("float32"), exactly=False)


def compared():
    """The names of everything that has an entry in a table above."""
    tables = (OF_NUMBERS, OF_FLOATS, OF_INTEGERS, OF_UNSIGNED, OF_BOOLS, OF_ALL, COMPARISONS)
    return {name for table in (*tables, REDUCTIONS, OF_TRUTH) for name in table} | {"count"}


def operators():
    """Those of the mix-in, without the reflected ones and those in place."""
    names = {name.strip("_") for name in vars(NDArrayOperatorsMixin) if name.startswith("__")}
    names = {name for name in names if callable(getattr(NDArrayOperatorsMixin, f"__{name}__", None))}
    return {name for name in names if not (name[0] in "ri" and name[1:] in names)}


def parameters(method):
    return signature(method).parameters if callable(method) else ()


def test_whatever_is_offered_is_compared():
    public = {name: method for name, method in vars(NullableValues).items() if name[0] != "_"}
    reductions = {name for name, method in public.items() if "axis" in parameters(method)}
    methods = reductions | {"isnull", "fillna", "dropna"}
    functions = {function.__name__ for function in computing._FUNCTIONS}
    assert methods | functions | operators() - {"matmul"} <= compared()
    assert {"add", "matmul", "invert", "rshift", "divmod"} <= operators()
    options = {
        name for method in REDUCTIONS | OF_TRUTH for name in parameters(getattr(NullableValues, method))
    }
    assert options == {"self", "axis", "ddof", "options"}
    assert Reduction.__annotations__.keys() == {"dtype", "out", "keepdims", "skipna", "min_count"}


UFUNCS_OF_NUMPY = {
    found.__name__: found
    for found in vars(np).values()
    if isinstance(found, np.ufunc) and not found.signature
}


@pytest.mark.parametrize("name", ["int64", "float64"])
@pytest.mark.parametrize("through", ["read", "dask"])
def test_every_ufunc_gives_null_where_an_operand_is_null_and_numpys_answer_elsewhere(through, name):
    rng = np.random.default_rng(3)
    memory = [random_values(rng, name, SHAPE, 0.3, MODERATE) for _ in range(2)]
    operands = [stored(data, "chunked", through) for data in memory]
    plain = [data.filled(1) for data in memory]
    offered = {}
    for called, ufunc in UFUNCS_OF_NUMPY.items():
        if called not in ("logical_and", "logical_or"):  # which know three values
            try:
                offered[called] = computed(ufunc, *plain[: ufunc.nin])
            except TypeError:
                continue  # not for this data type
    assert len(offered) > 50
    found = computed(
        lambda: values([(f := UFUNCS_OF_NUMPY[called])(*operands[: f.nin]) for called in offered])
    )
    for called, got in zip(offered, found, strict=True):
        null = np.logical_or.reduce([data.isnull() for data in memory[: UFUNCS_OF_NUMPY[called].nin]])
        answers = (
            zip(got, offered[called], strict=True) if isinstance(got, tuple) else [(got, offered[called])]
        )
        for mine, theirs in answers:
            assert mine.isnull().tolist() == null.tolist(), called
            np.testing.assert_array_equal(mine.values[~null], theirs[~null], err_msg=called)


@pytest.mark.parametrize("through", ["read", "dask"])
@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda x: np.matmul(x, x), "matmul has no rule for nulls"),
        (lambda x: np.median(x, axis=0), r"Call \.masked\(\)"),
        (lambda x: np.argmax(x, axis=0), r"Call \.masked\(\)"),
    ],
)
def test_what_is_not_offered_is_refused_in_words(through, attempt, words):
    x = stored(random_values(np.random.default_rng(2), "int16", (4, 4), 0.4), "chunked", through)
    with pytest.raises((TypeError, NullsPresentError), match=words):
        values([attempt(x)])


@pytest.mark.parametrize("name", ["isnull", "count", "dropna", "fillna"])
def test_a_stored_array_says_where_methods_are(name):
    a = nullable.create_array({}, data=[1, None, 3], chunks=2)
    with pytest.raises(AttributeError, match=rf"no '{name}'.*a\.read_nullable\(\).*a\.to_dask\(\)"):
        getattr(a, name)
