"""What importing the package changes in zarr, and that plain arrays do not notice."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import zarr
from zarr.buffer.cpu import NDBuffer
from zarr.registry import get_ndbuffer_class

from intarsia import nullable
from intarsia.errors import NullsPresentError
from intarsia.nullable.buffer import NullableNDBuffer, OptionalNDBuffer
from intarsia.nullable.install import install


def run(script, *arguments):
    code = textwrap.dedent(script)
    subprocess.run([sys.executable, "-W", "error", "-c", code, *map(str, arguments)], check=True)


def test_opening_needs_no_import(tmp_path):
    nullable.create_array(tmp_path / "a", data=[[1.5, None]], shards=(1, 2), chunks=(1, 1))
    nullable.create_array(tmp_path / "b", data=["x", None], spelling="zarrs.optional")
    run(
        """
        import sys, zarr
        assert "intarsia" not in sys.modules
        z = zarr.open_array(sys.argv[1] + "/a")
        assert z[...].tolist() == [[1.5, None]]
        z[0, 0] = z[0, 1]
        assert z[...].tolist() == [[None, None]]
        assert zarr.open_array(sys.argv[1] + "/b")[:].tolist() == ["x", None]
        """,
        tmp_path,
    )


def test_nothing_but_the_core_dependencies_is_needed(tmp_path):
    run(
        """
        import sys
        for name in ("pandas", "pyarrow", "polars", "geff", "anndata", "xarray", "dask", "cast_value_rs"):
            sys.modules[name] = None
        from intarsia import nullable
        a = nullable.create_array(sys.argv[1], data=[1, None])
        assert a[:].tolist() == [1, None]
        try:
            a.to_pandas()
        except ImportError as error:
            assert "intarsia[nullable]" in str(error)
        """,
        tmp_path,
    )


def test_a_choice_made_before_is_left_alone():
    run(
        """
        import zarr
        from zarr.buffer.cpu import NDBuffer
        from zarr.registry import register_ndbuffer
        class Mine(NDBuffer):
            pass
        register_ndbuffer(Mine, "mine")
        zarr.config.set({"ndbuffer": "mine", "codecs.scale_offset": "mine.too"})
        import intarsia
        assert zarr.config.get("ndbuffer") == "mine"
        assert zarr.config.get("codecs.scale_offset") == "mine.too"
        """
    )


def test_the_class_for_arrays_is_set_once():
    assert get_ndbuffer_class() is NullableNDBuffer
    install()
    assert get_ndbuffer_class() is NullableNDBuffer


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
def test_plain_arrays_behave_as_with_the_class_of_zarr():
    rng = np.random.default_rng(0)
    for dtype in ("f8", "i2", "bool", "M8[ns]", ">u4", "c16", "U3"):
        data = (rng.random((7, 5)) * 100).astype("i8").astype(dtype)
        results = {}
        for path in ("zarr.buffer.cpu.NDBuffer", "intarsia.nullable.buffer.NullableNDBuffer"):
            with zarr.config.set({"ndbuffer": path}):
                z = _plain(data, dtype)
                read = z[...], z.oindex[[0, 2], 1:], z.vindex[[0, 1], [2, 3]], z[3, 2]
                stored = {k: v.to_bytes() for k, v in z.store_path.store._store_dict.items() if k[0] == "c"}
                results[path] = read, stored
                assert type(z[...]) is np.ndarray
        (ours, our_bytes), (theirs, their_bytes) = results.values()
        assert our_bytes == their_bytes
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, other)
            assert type(mine) is type(other)
            assert mine.dtype == other.dtype


def _plain(data, dtype):
    z = zarr.create_array({}, shape=data.shape, dtype=np.dtype(dtype), chunks=(3, 2))
    z[...] = data
    z[1:4, ::2] = data[0:3, ::2]
    z.append(data)
    return z


@pytest.mark.parametrize("dtype", ["u1", "f8"])
def test_a_masked_array_in_a_plain_array_is_treated_as_zarr_does(dtype):
    data = np.ma.masked_equal(np.array([1, 2, 3], dtype=dtype), 2)
    outcomes = []
    for path in ("zarr.buffer.cpu.NDBuffer", "intarsia.nullable.buffer.NullableNDBuffer"):
        with zarr.config.set({"ndbuffer": path}):
            z = zarr.create_array({}, shape=3, dtype=dtype)
            try:
                z[:] = data
                outcomes.append(z[:].tolist())
            except Exception as error:
                outcomes.append(repr(error))
    assert outcomes[0] == outcomes[1]


def test_with_another_class_nulls_are_refused_and_never_read_as_numbers():
    z = nullable.create_array({}, data=[1.0, None]).zarr_array
    with zarr.config.set({"ndbuffer": "zarr.buffer.cpu.NDBuffer"}), pytest.raises(NullsPresentError):
        z[:]


def test_plain_buffers_are_of_the_class_of_zarr():
    made = NullableNDBuffer.create(shape=(2,), dtype="f4", fill_value=1)
    assert isinstance(made, NDBuffer)
    assert not isinstance(made, OptionalNDBuffer)
    assert type(made.as_ndarray_like()) is np.ndarray
