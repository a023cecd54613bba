"""Computing with nulls, against Arrow: every operation on random data, also stored and read again."""

import operator
import pickle
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia import nullable
from intarsia.errors import DataTypeError, NullsPresentError
from intarsia.nullable import NULL, NullableValues, as_nullable, to_arrow

STRING = np.dtypes.StringDType()
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
NUMBERS = (*INTEGERS, *FLOATS)
TIMES = ("datetime64[ms]", "timedelta64[s]")
ORDERED = (*NUMBERS, "datetime64[ms]", "string")

POOLS = {
    "bool": [True, False],
    "float32": [0.0, -0.0, 1.5, -2.0, 7.25, float("nan"), float("inf")],
    "float64": [0.0, -0.0, 1.5, -2.0, 7.25, float("nan"), float("inf")],
    "datetime64[ms]": np.array(["2020-01-01", "1969-12-31", "2020-01-01T00:00:00.001"], "M8[ms]"),
    "timedelta64[s]": np.array([0, -5, 86400], "m8[s]"),
    "string": ["", "a", "zwölf", "longer than fifteen bytes", "A", "\U0001f600"],
}
GARBAGE = {
    "b": True,
    "f": 1e38,
    "M": np.datetime64("NaT", "ms"),
    "m": np.timedelta64("NaT", "s"),
    "T": "garbage that is long enough",
}


def random_values(rng, name, shape, share, pool=None):
    """Nullable data with whatever misleads most beneath its nulls."""
    dtype = STRING if name == "string" else np.dtype(name)
    pool = POOLS.get(name) if pool is None else pool
    if pool is None:
        info = np.iinfo(dtype)
        pool = [0, 1, 2, 5, info.max, info.min, max(info.min, -3)]
    values = np.empty(int(np.prod(shape)), dtype=dtype)
    for i, choice in enumerate(rng.integers(0, len(pool), values.size)):
        values[i] = pool[choice]
    values = values.reshape(shape)
    missing = rng.random(shape) < share
    garbage = np.iinfo(dtype).min if dtype.kind in "iu" else GARBAGE[dtype.kind]
    values[missing] = garbage
    return NullableValues(values, missing)


def arrays(names, count=1, shape=None):
    """`count` arrays of one data type and shape."""

    @st.composite
    def drawn(draw):
        name = draw(st.sampled_from(names))
        size = draw(st.integers(0, 12)) if shape is None else shape
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        share = draw(st.sampled_from([0.0, 0.4, 1.0]))
        return [random_values(rng, name, size, share) for _ in range(count)]

    return drawn()


def assert_like_arrow(got, expected, *, exactly=True):
    """The same nulls, and the same values where there is one."""
    if isinstance(expected, pa.Scalar):
        expected = pa.array([expected.as_py()], expected.type)
        got = got.reshape(1)
    expected = nullable.from_arrow(expected)
    assert isinstance(got, NullableValues)
    assert got.isnull().tolist() == expected.isnull().tolist()
    present = ~expected.isnull()
    mine, theirs = got.values[present], expected.values[present]
    assert mine.dtype.kind == theirs.dtype.kind
    if exactly or mine.dtype.kind not in "fc":
        np.testing.assert_array_equal(mine, theirs)
    else:
        np.testing.assert_allclose(mine, theirs, rtol=1e-5 if mine.dtype.itemsize == 4 else 1e-9)


def computed(operation, *operands):
    """Present infinities and overflows may warn, as in NumPy; what lies beneath nulls must not raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return operation(*operands)


ARITHMETIC = {"add": pc.add, "sub": pc.subtract, "mul": pc.multiply}
COMPARISONS = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}


@pytest.mark.parametrize("name", ARITHMETIC)
@given(operands=arrays(NUMBERS, 2))
def test_arithmetic(name, operands):
    got = computed(getattr(operator, name), *operands)
    assert_like_arrow(got, ARITHMETIC[name](*map(to_arrow, operands)))


@given(operands=arrays(FLOATS, 2))
def test_true_division(operands):
    assert_like_arrow(computed(operator.truediv, *operands), pc.divide(*map(to_arrow, operands)))


@given(operands=arrays(("uint8", "uint32", "uint64"), 2))
def test_division_of_integers_where_a_null_hides_a_zero(operands):
    above, below = operands
    below.values[(below.values == 0) & ~below.isnull()] = 1
    below.values[below.isnull()] = 0
    with np.errstate(all="raise"):
        assert_like_arrow(above // below, pc.divide(to_arrow(above), to_arrow(below)))
        as_floats = [to_arrow(x.astype("f8")) for x in (above, below)]
        assert_like_arrow(above / below, pc.divide(*as_floats))


@pytest.mark.parametrize("name", COMPARISONS)
@given(operands=arrays((*ORDERED, "bool", "timedelta64[s]"), 2))
def test_comparisons(name, operands):
    got = getattr(operator, name)(*operands)
    assert_like_arrow(got, COMPARISONS[name](*map(to_arrow, operands)))


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_with_scalars(name):
    compare, theirs = getattr(operator, name), COMPARISONS[name]
    text = as_nullable(["a", None, "b"])
    assert_like_arrow(compare(text, "b"), theirs(to_arrow(text), "b"))
    times = NullableValues(np.array(["2020", "2021", "2022"], "M8[s]"), np.array([False, True, False]))
    moment = pd.Timestamp("2022-01-01").to_pydatetime()
    for scalar in (moment, np.datetime64("2022")):
        assert_like_arrow(
            compare(times, scalar), theirs(to_arrow(times), pa.scalar(moment, pa.timestamp("s")))
        )
    assert compare(text, None).isnull().all()


LOGIC = {"and_": pc.and_kleene, "or_": pc.or_kleene, "xor": pc.xor}
BITS = {"and_": pc.bit_wise_and, "or_": pc.bit_wise_or, "xor": pc.bit_wise_xor}


@pytest.mark.parametrize("name", LOGIC)
@given(operands=arrays(["bool"], 2))
def test_logic_of_three_values(name, operands):
    arrow = LOGIC[name](*map(to_arrow, operands))
    assert_like_arrow(getattr(operator, name)(*operands), arrow)
    ufunc = {"and_": np.logical_and, "or_": np.logical_or, "xor": np.logical_xor}[name]
    assert_like_arrow(ufunc(*operands), arrow)
    assert_like_arrow(~operands[0], pc.invert(to_arrow(operands[0])))


@pytest.mark.parametrize("name", BITS)
@given(operands=arrays(INTEGERS, 2))
def test_bits(name, operands):
    assert_like_arrow(getattr(operator, name)(*operands), BITS[name](*map(to_arrow, operands)))
    assert_like_arrow(~operands[0], pc.bit_wise_not(to_arrow(operands[0])))


def test_the_table_of_three_values():
    x = as_nullable([False, False, False, None, None, None, True, True, True])
    y = as_nullable([False, None, True] * 3)
    assert (x & y).tolist() == [False, False, False, False, None, None, False, None, True]
    assert (x | y).tolist() == [False, None, True, None, None, True, True, True, True]
    assert (x & None).tolist() == [False, False, False, None, None, None, None, None, None]
    assert (x & False).null_count == (True | x).null_count == 0
    assert np.logical_and(as_nullable([0, 2, None]), as_nullable([None, None, 0])).tolist() == [0, None, 0]


UFUNCS = {
    np.abs: pc.abs,
    np.negative: pc.negate,
    np.sign: pc.sign,
    np.sqrt: pc.sqrt,
    np.exp: pc.exp,
    np.log: pc.ln,
    np.log10: pc.log10,
    np.log2: pc.log2,
    np.log1p: pc.log1p,
    np.sin: pc.sin,
    np.cos: pc.cos,
    np.tan: pc.tan,
    np.arctan: pc.atan,
    np.floor: pc.floor,
    np.ceil: pc.ceil,
    np.trunc: pc.trunc,
    np.rint: pc.round,
    np.isnan: pc.is_nan,
    np.isfinite: pc.is_finite,
    np.isinf: pc.is_inf,
}


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)
@given(operands=arrays(FLOATS))
def test_functions_of_one(ufunc, operands):
    assert_like_arrow(computed(ufunc, *operands), UFUNCS[ufunc](to_arrow(operands[0])), exactly=False)


@pytest.mark.parametrize(("ufunc", "theirs"), [(np.arctan2, pc.atan2), (np.power, pc.power)])
@given(operands=arrays(FLOATS, 2))
def test_functions_of_two(ufunc, theirs, operands):
    got = computed(ufunc, *operands)
    assert_like_arrow(got, theirs(*map(to_arrow, operands)), exactly=False)


@given(operands=arrays(NUMBERS, 2))
def test_the_smaller_and_the_larger_of_two(operands):
    arrow = [to_arrow(x) for x in operands]
    assert_like_arrow(np.fmin(*operands), pc.min_element_wise(*arrow, skip_nulls=False))
    assert_like_arrow(np.fmax(*operands), pc.max_element_wise(*arrow, skip_nulls=False))


@given(operands=arrays(["string"], 2))
def test_text_is_joined(operands):
    arrow = [to_arrow(x).cast(pa.string()) for x in operands]
    assert_like_arrow(operands[0] + operands[1], pc.binary_join_element_wise(*arrow, ""))
    assert_like_arrow(np.strings.str_len(operands[0]), pc.utf8_length(arrow[0]).cast(pa.int64()))


@given(operands=arrays(["datetime64[ms]"], 2))
def test_times(operands):
    arrow = [to_arrow(x) for x in operands]
    assert_like_arrow(operands[0] - operands[1], pc.subtract(*arrow))
    step = np.timedelta64(5, "ms")
    assert_like_arrow(operands[0] + step, pc.add(arrow[0], pa.scalar(5, pa.duration("ms"))))


# -- reductions

MODERATE = [0, 1, 2, 5, 7]


def reduced(x, name, theirs, **options):
    """A reduction and Arrow's, over everything and along axes."""
    ours = {"skipna": options.get("skip_nulls", True), "min_count": options.get("min_count", 1)}
    if "ddof" in options:
        ours["ddof"] = options["ddof"]
    got = computed(lambda: getattr(x, name)(**ours))
    assert got.ndim == 0
    assert_like_arrow(got, theirs(to_arrow(x.reshape(-1)), **options), exactly=False)
    if x.ndim > 1:
        rows = computed(lambda: getattr(x, name)(axis=1, **ours))
        kept = computed(lambda: getattr(x, name)(axis=(0, 1), keepdims=True, **ours))
        assert rows.shape == x.shape[:1]
        assert kept.reshape(()).isnull() == got.isnull()
        for row, data in zip(rows, x, strict=True):
            one = NullableValues.full((), row, rows.element)
            assert_like_arrow(one, theirs(to_arrow(data), **options), exactly=False)


@st.composite
def moderate(draw, names, pool=MODERATE):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.sampled_from([(0,), (1,), (9,), (3, 4)]))
    name = draw(st.sampled_from(names))
    return random_values(rng, name, shape, draw(st.sampled_from([0.0, 0.5, 1.0])), pool)


SKIPPING = st.fixed_dictionaries({"skip_nulls": st.booleans(), "min_count": st.integers(0, 3)})


@pytest.mark.parametrize(("name", "theirs"), [("sum", pc.sum), ("prod", pc.product), ("mean", pc.mean)])
@given(x=moderate((*NUMBERS, "bool")), options=SKIPPING)
def test_sums_products_and_means(name, theirs, x, options):
    if name == "mean":
        options["min_count"] = max(options["min_count"], 1)  # of nothing, Arrow's is NaN
    reduced(x, name, theirs, **options)


@pytest.mark.parametrize(("name", "theirs"), [("var", pc.variance), ("std", pc.stddev)])
@given(x=moderate(NUMBERS), options=SKIPPING, ddof=st.integers(0, 2))
def test_variances(name, theirs, x, options, ddof):
    reduced(x, name, theirs, ddof=ddof, **options)


@pytest.mark.parametrize(("name", "theirs"), [("min", pc.min), ("max", pc.max)])
@given(x=moderate((*NUMBERS, "datetime64[ms]", "bool"), None), options=SKIPPING)
def test_extremes(name, theirs, x, options):
    options["min_count"] = max(options["min_count"], 1)  # of nothing, Arrow's is the other end of the type
    reduced(x, name, theirs, **options)


@pytest.mark.parametrize(("name", "theirs"), [("any", pc.any), ("all", pc.all)])
@given(x=moderate(["bool"], None), options=SKIPPING)
def test_any_and_all(name, theirs, x, options):
    reduced(x, name, theirs, **options)


@given(x=moderate(["int16"]))
def test_counts(x):
    assert x.count() == pc.count(to_arrow(x.reshape(-1))).as_py()


def test_sums_have_arrows_types():
    for name in (*NUMBERS, "bool"):
        x = NullableValues(np.ones(3, name))
        for mine, theirs in (("sum", pc.sum), ("prod", pc.product), ("mean", pc.mean), ("var", pc.variance)):
            if (name, mine) != ("bool", "var"):
                expected = theirs(to_arrow(x)).type.to_pandas_dtype()
                assert getattr(x, mine)().values.dtype == expected, (name, mine)


def test_numpys_functions_call_the_methods():
    x = as_nullable([[1.0, None], [None, None]])
    assert np.sum(x).item() == np.mean(x).item() == np.max(x).item() == 1
    assert np.mean(x, axis=1).tolist() == [1, None]
    assert np.min(x, axis=0, keepdims=True).tolist() == [[1, None]]
    assert np.std(x, ddof=1).item() is NULL
    assert np.asarray([1, 2], like=x).tolist() == [1, 2]


def test_texts_have_no_extremes():
    for data in (np.array(["b", "a"]), np.array(["b", "a"], np.dtypes.StringDType()), np.array([b"b", b"a"])):
        with pytest.raises(DataTypeError, match="max is for numbers and times"):
            NullableValues(data).max()


# -- other functions


@given(operands=arrays((*NUMBERS, "bool", *TIMES, "string"), 2), seed=st.integers(0, 99))
def test_where(operands, seed):
    x, y = operands
    condition = random_values(np.random.default_rng(seed), "bool", x.shape, 0.3)
    arrow = list(map(to_arrow, (condition, x, y)))
    assert_like_arrow(np.where(condition, x, y), pc.if_else(*arrow))
    assert_like_arrow(np.where(condition, x, None), pc.if_else(*arrow[:2], pa.scalar(None, arrow[1].type)))
    plain = condition.filled(False)
    assert_like_arrow(np.where(plain, x, y), pc.if_else(pa.array(plain), *arrow[1:]))


@given(operands=arrays((*NUMBERS, "bool", *TIMES, "string"), 3))
def test_filling_dropping_and_joining(operands):
    x, y, z = operands
    arrow = list(map(to_arrow, operands))
    assert x.isnull().tolist() == pc.is_null(arrow[0]).to_pylist()
    assert_like_arrow(x.fillna(y), pc.coalesce(arrow[0], arrow[1]))
    if y.null_count < y.size:
        one = y.dropna()[0].item()
        assert_like_arrow(x.fillna(one), pc.fill_null(arrow[0], arrow[1].drop_null()[0]))
    assert_like_arrow(x.dropna(), pc.drop_null(arrow[0]))
    assert_like_arrow(np.concatenate([x, y, z]), pa.concat_arrays(arrow))
    stacked = np.stack([x, y])
    assert stacked.shape == (2, x.size)
    assert stacked[0].equals(x)
    assert stacked[1].equals(y)


@given(operands=arrays(INTEGERS), target=st.sampled_from(["int16", "float64", "bool"]))
def test_astype(operands, target):
    (x,) = operands
    assert_like_arrow(x.astype(target), pc.cast(to_arrow(x), target, safe=False))


def test_concatenation_takes_what_has_nulls():
    x = as_nullable([1, None])
    joined = np.concatenate([x, pd.Series([3, None], dtype="Int64"), np.ma.masked_equal([5, 6], 6), [7]])
    assert joined.tolist() == [1, None, 3, None, 5, None, 7]
    assert np.concatenate([x, [0.5]]).values.dtype == np.float64
    assert np.concatenate([x.reshape(1, 2), x.reshape(1, 2)], axis=1).shape == (1, 4)
    with pytest.raises(ValueError, match="dimensions"):
        np.concatenate([x, 3])


def test_operands_may_be_anything_with_nulls():
    x = as_nullable([1, 2, None])
    for other in (
        [1, None, 1],
        np.ma.masked_equal([1, 9, 1], 9),
        pa.array([1, None, 1]),
        pd.array([1, None, 1]),
    ):
        assert (x + other).tolist() == [2, None, None]
    stored = nullable.create_array({}, data=[1, None, 1])
    assert (x + stored.read_nullable()).tolist() == [2, None, None]
    assert (np.arange(3) + x).tolist() == [1, 3, None]
    for null in (None, NULL, np.ma.masked, pd.NA):
        assert (x + null).tolist() == [None] * 3
        assert (x + null).values.dtype == np.int64


def test_scalars_adapt_to_the_data_type():
    x = NullableValues(np.array([1, 2], "int8"), np.array([False, True]))
    assert (x + 1).values.dtype == np.int8
    assert (x + 0.5).values.dtype == np.float64
    assert (x.astype("f4") * 2.0).values.dtype == np.float32
    assert (x[0] + 1).item() == 2


def test_shapes_are_broadcast():
    x = as_nullable([[1], [None]])
    assert (x + as_nullable([10, None])).tolist() == [[11, None], [None, None]]
    with pytest.raises(ValueError, match="shape"):
        x + np.zeros((3, 3))


def test_in_place():
    x = as_nullable([1, None])
    same = x
    x += 1
    assert x is same
    assert x.tolist() == [2, None]
    with pytest.raises(DataTypeError, match="int64"):
        x += 0.5
    plain = np.zeros(2, dtype="int64")
    with pytest.raises(NullsPresentError):
        np.add(x, 1, out=plain)
    assert np.add(x.dropna(), 1, out=plain[:1]).tolist() == [3]


def test_several_results():
    quotient, rest = divmod(as_nullable([7, None]), 2)
    assert (quotient.tolist(), rest.tolist()) == ([3, None], [1, None])
    rest.missing[0] = 1
    assert quotient.tolist() == [3, None]


def test_what_lies_beneath_nulls_is_never_looked_at():
    x = NullableValues(np.array([4.0, -1.0, 1e300]), np.array([False, True, True]))
    with np.errstate(all="raise"):
        assert np.sqrt(x).tolist() == [2, None, None]
        assert (x * x).tolist() == [16, None, None]
        assert (1 / (x - 4 - x * 0 + 1)).tolist() == [1, None, None]
        assert x.var().item() == 0
        assert x.sum().item() == x.prod().item() == 4
    powers = NullableValues(np.array([2, -1]), np.array([False, True]))
    assert (2**powers).tolist() == [4, None]  # NumPy refuses negative powers of integers
    with pytest.raises(ValueError, match="negative integer powers"):
        2 ** NullableValues(np.array([2, -1]), np.array([True, False]))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert (1 / as_nullable([0.0, None])).tolist() == [np.inf, None]
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        NullableValues(np.array([1e300, 1.0]), np.array([False, True])) * 1e300
    nan = NullableValues(np.array([np.nan, np.nan]), np.array([False, True]))
    assert np.isnan(nan).tolist() == [True, None]


def test_truth_and_numbers_of_single_elements():
    x = as_nullable([1, None])
    assert bool(x[0] == 1)
    assert (int(x.sum()), float(x.mean())) == (1, 1.0)
    with pytest.raises(NullsPresentError):
        bool(x[1] == 1)
    with pytest.raises(NullsPresentError):
        float(x[1])
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x == 1)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda x: np.add.accumulate(x),
        lambda x: np.add.reduce(x),
        lambda x: x @ x,
        lambda x: np.add(x, 1, where=[True, False]),
        lambda x: x.sum(out=np.zeros(())),
        lambda x: np.modf(x, out=(x, x)),
    ],
)
def test_what_does_not_know_nulls_says_so(attempt):
    with pytest.raises(TypeError, match=r"has no rule for nulls|out="):
        attempt(as_nullable([1.0, None]))


def test_levels_of_null_are_not_guessed():
    x = NullableValues(np.arange(3), np.array([0, 1, 2], "u1"), 2)
    for attempt in (lambda: x + 1, lambda: x == 1, lambda: x.sum(), lambda: x.fillna(0), lambda: 1 + x):
        with pytest.raises(DataTypeError, match="collapse"):
            attempt()
    assert (x.collapse() + 1).tolist() == [1, None, None]


@pytest.mark.parametrize("data", [["a", None], np.array(["2020"], "M8[s]")])
@pytest.mark.parametrize("name", ["sum", "mean", "var", "any"])
def test_numbers_are_not_made_of_text_and_dates(data, name):
    with pytest.raises(DataTypeError, match="for numbers"):
        getattr(as_nullable(data), name)()


def test_durations_are_added_up():
    x = NullableValues(np.array([5, 7, 1], "m8[s]"), np.array([False, False, True]))
    assert x.sum().item() == np.timedelta64(12, "s")


def test_pickles():
    x = as_nullable([1, None])
    assert pickle.loads(pickle.dumps(x)).equals(x)


def test_where_with_a_condition_alone_gives_the_places_where_it_is_true():
    assert np.where(as_nullable([True, False, True]))[0].tolist() == [0, 2]
    with pytest.raises(NullsPresentError):
        np.where(as_nullable([True, None]))


def test_values_and_a_stored_array_compute_lazily():
    stored = nullable.create_array({}, data=[1, None, 3])
    for result in (as_nullable([1, 1, None]) + stored, stored + as_nullable([1, 1, None])):
        assert result.compute().tolist() == [2, None, None]
