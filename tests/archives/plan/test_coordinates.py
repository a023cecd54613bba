"""Coordinates whose files disagree about units and packing, as xarray reads them."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import intarsia
from intarsia.archives.cf import json_attributes
from intarsia.archives.parsed_file import ParsedVariable
from intarsia.archives.plan.coordinates import concat_values, labels
from intarsia.errors import IngestError


def variable(values, **attrs):
    values = np.asarray(values)
    return ParsedVariable("time", "concat", ("time",), values.shape, attrs, values.dtype, values=values)


def decoded(values, attrs):
    return xr.conventions.decode_cf_variable("time", xr.Variable(("time",), values, dict(attrs))).values


UNITS = [
    "days since 2000-01-01",
    "hours since 1999-12-31 06:00",
    "seconds since 1981-01-01",
    "minutes since 2002-06-01",
]


@given(st.lists(st.tuples(st.sampled_from(UNITS), st.integers(-1000, 1000)), min_size=1, max_size=6))
def test_times_in_any_units_keep_their_meaning(parts):
    files = [variable([number], units=units) for units, number in parts]
    coordinate = concat_values("time", files)
    for file, part in zip(files, coordinate.parts, strict=True):
        assert (decoded(part, coordinate.attrs) == decoded(file.values, file.attrs)).all()


def test_equal_units_are_not_touched():
    coordinate = concat_values("time", [variable([1.5], units=UNITS[0]), variable([2.5], units=UNITS[0])])
    assert [part.tolist() for part in coordinate.parts] == [[1.5], [2.5]]
    assert coordinate.attrs == {"units": UNITS[0]}


def test_finer_units_rewrite_what_is_there():
    before = (np.array([0, 1]), {"units": "days since 2000-01-01"})
    coordinate = concat_values("time", [variable([36], units="hours since 2000-01-01")], before)
    assert coordinate.rewritten
    assert coordinate.before.tolist() == [0, 24]
    assert coordinate.parts[0].tolist() == [36]
    kept = concat_values("time", [variable([48], units="hours since 2000-01-01")], before)
    assert not kept.rewritten
    assert kept.parts[0].tolist() == [2]


def test_packed_coordinates_that_differ_are_unpacked():
    a = variable(np.array([1, 2], "i2"), scale_factor=0.5)
    b = variable(np.array([30, -1], "i2"), scale_factor=0.1, _FillValue=np.int16(-1))
    coordinate = concat_values("depth", [a, b])
    assert coordinate.parts[0].tolist() == [0.5, 1.0]
    assert coordinate.parts[1][0] == 30 * 0.1
    assert np.isnan(coordinate.parts[1][1])
    assert "scale_factor" not in coordinate.attrs


def test_other_units_are_refused():
    with pytest.raises(IngestError, match="'depth' has the units 'feet' in one file and 'm' in another"):
        concat_values("depth", [variable([1.0], units="m"), variable([1.0], units="feet")])


def test_texts_are_joined_as_they_are():
    texts = [np.array([text], dtype=np.dtypes.StringDType()) for text in ("a", "bcd")]
    coordinate = concat_values("name", [variable(text) for text in texts])
    assert [part.tolist() for part in coordinate.parts] == [["a"], ["bcd"]]


def test_labels_are_what_people_write():
    assert labels(np.array([0.5]), {"units": "days since 2002-06-01"}) == ["2002-06-01 12:00:00"]
    assert labels(np.array([3]), {}) == ["3"]
    far = labels(np.array([0.1, 800_000.0]), {"units": "days since 1900-01-01"})  # beyond 2262, no warning
    assert far == ["1900-01-01 02:24:00", "4090-04-29"]
    assert labels(np.array([59]), {"units": "days since 2001-01-01", "calendar": "360_day"}) == ["2001-02-30"]


def test_attributes_that_are_no_array_are_compared_as_they_are():
    ragged = [{"name": "bytes"}, [1, [2, 3]]]
    coordinate = concat_values("x", [variable([1.0], units=ragged), variable([2.0], units=ragged)])
    assert [part.tolist() for part in coordinate.parts] == [[1.0], [2.0]]
    assert coordinate.attrs["units"] == ragged
    assert json_attributes({"units": ragged}) == {"units": ragged}


def test_a_file_with_another_shape_of_a_coordinate_leaves_what_is_there(tmp_path):
    paths = [tmp_path / f"{day}.nc" for day in range(2)]
    for day, (path, count) in enumerate(zip(paths, (2, 3), strict=True)):
        bounds = (("time", f"n{count}"), np.full((1, count), 7.0 + day))
        ds = xr.Dataset({"v": ("time", [1.0]), "b": bounds}, {"time": ("time", [day], {"bounds": "b"})})
        ds.to_netcdf(path)
    repo = intarsia.ingest(paths[0], "memory://", concat_dim="time").repository
    report = intarsia.ingest(paths[1], repo, concat_dim="time")
    found = xr.open_dataset(report.repository, engine="intarsia", decode_times=False).load()
    assert "has it in another shape" in report.left_out["b"]
    np.testing.assert_array_equal(found.b, [[7, 7], [np.nan, np.nan]])
