"""Computing with logical arrays: lazily, by dask, with the answers of NumPy."""

import operator
import pickle
import warnings

import array_api_compat
import array_api_compat.numpy
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import intarsia

VALUES = np.random.default_rng(0).random((10, 6)).astype("f4") + 0.5


@pytest.fixture(scope="module")
def array():
    made = intarsia.create({}, "a", shape=(0, 6), chunks=(1, 6), dtype="f4")
    made.append(VALUES[:7], codecs=["gzip"], chunks=(3, 6))
    made.append(VALUES[7:], codecs=["zstd"], chunks=(3, 6))
    return made


BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("name", BINARY)
def test_operators_are_lazy_and_right(array, name):
    combine = getattr(operator, name)
    for left, right, oracle in (
        (array, 2, combine(VALUES, 2)),
        (2.0, array, combine(2.0, VALUES)),
        (array, array, combine(VALUES, VALUES)),
        (array, VALUES[0], combine(VALUES, VALUES[0])),
        (VALUES, array, combine(VALUES, VALUES)),
        (array.to_dask(), array, combine(VALUES, VALUES)),
    ):
        lazy = combine(left, right)
        assert isinstance(lazy, da.Array)
        np.testing.assert_array_equal(lazy.compute(), oracle)
        assert lazy.dtype == oracle.dtype


@pytest.mark.parametrize("name", ["neg", "pos", "abs"])
def test_signs(array, name):
    np.testing.assert_array_equal(getattr(operator, name)(array).compute(), getattr(operator, name)(VALUES))


@pytest.mark.parametrize("name", ["mean", "sum", "min", "max", "std", "var", "prod", "any", "all", "argmax"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions(array, name, axis):
    lazy = getattr(array, name)(axis=axis)
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), getattr(VALUES, name)(axis=axis), rtol=1e-5)
    np.testing.assert_allclose(
        np.asarray(getattr(np, name)(array, axis=axis)), getattr(np, name)(VALUES, axis=axis), rtol=1e-5
    )


def test_ufuncs_and_methods(array):
    assert isinstance(np.sqrt(array), da.Array)
    np.testing.assert_array_equal(np.sqrt(array).compute(), np.sqrt(VALUES))
    np.testing.assert_array_equal(array.T.compute(), VALUES.T)
    np.testing.assert_array_equal(array.astype("f8").compute(), VALUES.astype("f8"))
    np.testing.assert_array_equal(np.asarray(array), VALUES)


def test_equality_is_that_of_arrays_not_of_values(array):
    again = pickle.loads(pickle.dumps(intarsia.create({}, "b", shape=(2,), chunks=(1,), dtype="f4")))
    assert array == array
    assert array != again
    assert (array == VALUES) is not True
    xp = array.__array_namespace__()
    assert xp.all(xp.equal(array, VALUES)).compute()


def test_nothing_is_changed_in_place(array):
    with pytest.raises(TypeError, match=r"in place(.|\n)*array\[selection\] ="):
        array += 1
    np.testing.assert_array_equal(array[...], VALUES)


def test_what_is_not_there_names_to_dask(array):
    with pytest.raises(AttributeError, match=r"no 'rechunk'.*array\.to_dask\(\)"):
        array.rechunk((1, 1))
    assert not hasattr(array, "__array_function__")


def test_the_array_api(array):
    assert array_api_compat.is_array_api_obj(array)
    xp = array_api_compat.array_namespace(array, array)
    assert xp is array.__array_namespace__(api_version="2025.12")
    with pytest.raises(ValueError, match=r"2025\.12"):
        array.__array_namespace__(api_version="1999.12")
    assert xp.float32 == np.float32
    for lazy, oracle in (
        (xp.cumulative_sum(array, axis=0), np.cumsum(VALUES, axis=0)),
        (xp.concat([array, array], axis=1), np.concatenate([VALUES, VALUES], axis=1)),
        (xp.permute_dims(array, (1, 0)), VALUES.T),
        (xp.where(xp.greater(array, 1), array, -array), np.where(VALUES > 1, VALUES, -VALUES)),
        (xp.expand_dims(array, axis=0), VALUES[None]),
        (xp.reshape(array, (60,)), VALUES.reshape(60)),
        (xp.linalg.matrix_transpose(array), VALUES.T),
        (xp.mean(array, axis=1), VALUES.mean(axis=1)),
    ):  # fmt: skip
        assert isinstance(lazy, da.Array)
        np.testing.assert_allclose(lazy.compute(), oracle, rtol=1e-5)


OF_ONE = (
    "abs acos acosh asin asinh atan atanh ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log "
    "log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt "
    "tan tanh trunc "
    "max mean min prod std sum var any all count_nonzero argmax argmin sort argsort squeeze matrix_transpose "
    "unique_values ones_like zeros_like tril triu"
)
OF_TWO = (
    "add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp "
    "logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract "
    "vecdot"
)
ALONG_AN_AXIS = "cumulative_sum cumulative_prod diff flip argmax argmin expand_dims max mean sum std sort"
WITH_ARGUMENTS = {
    "permute_dims": ((1, 0),),
    "reshape": ((60,),),
    "roll": (2,),
    "broadcast_to": ((2, 10, 6),),
    "moveaxis": (0, 1),
    "tile": ((2, 1),),
    "clip": (0.7, 1.2),
    "full_like": (3,),
}


def test_the_functions_of_the_standard(array):
    ours, theirs = array.__array_namespace__(), array_api_compat.numpy
    calls = [(name, (), {}) for name in OF_ONE.split()]
    calls += [(name, (...,), {}) for name in OF_TWO.split()]
    calls += [(name, (), {"axis": 1}) for name in ALONG_AN_AXIS.split()]
    calls += [(name, args, {}) for name, args in WITH_ARGUMENTS.items()]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what is not a number
        for name, args, options in calls:
            lazy, oracle = (
                getattr(space, name)(data, *(data if each is ... else each for each in args), **options)
                for space, data in ((ours, array), (theirs, VALUES))
            )
            assert isinstance(lazy, da.Array), name
            np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), oracle, rtol=1e-4, err_msg=name)


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # threads of older dask ignore np.errstate
@given(st.lists(st.sampled_from(["abs", "sqrt", "negative", "square", "exp"]), max_size=4), st.integers(0, 1))
def test_chains_of_functions(array, names, axis):
    xp, lazy, oracle = array.__array_namespace__(), array, VALUES.astype("f8")
    lazy = xp.astype(lazy, xp.float64)
    with np.errstate(all="ignore"):
        for name in names:
            lazy, oracle = getattr(xp, name)(lazy), getattr(np, name)(oracle)
        np.testing.assert_allclose(xp.sum(lazy, axis=axis).compute(), oracle.sum(axis=axis), rtol=1e-6)


def test_xarray_wraps_it_as_it_is(array):
    variable = xr.Variable(("y", "x"), array)
    np.testing.assert_allclose(variable.mean("y").values, VALUES.mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(variable[2:5].values, VALUES[2:5])


def test_nullable_arrays_keep_their_nulls():
    masked = np.ma.masked_less(VALUES, 1)
    made = intarsia.create({}, "n", shape=(0, 6), chunks=(2, 6), dtype=intarsia.nullable.optional_dtype("f4"))
    made.append(masked, codecs=["zstd"])
    total = (made + 1).sum().compute()
    np.testing.assert_allclose(total, (masked + 1).sum(), rtol=1e-5)
