"""Zarr v2 with filters of every kind, held against zarr; what has no translation spoils nothing else."""

import json
import shutil

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia

SCALED = {"offset": 10, "scale": 10, "dtype": "<f8"}


def written(path, **filters):
    """A group of arrays along t, one for each list of filters; returns the values."""
    group = zarr.create_group(path, zarr_format=2)
    values = np.arange(24, dtype="<f8").reshape(3, 8) + 100
    for name, (kind, listed) in filters.items():
        array = group.create_array(
            name, shape=(3, 8), chunks=(2, 3), dtype=kind, filters=listed, compressors=numcodecs.Zlib(1)
        )
        array[...] = values
        array.attrs["_ARRAY_DIMENSIONS"] = ["t", "y"]
    return values


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
@pytest.mark.parametrize(
    ("kind", "filters"),
    [
        ("<i4", [numcodecs.Shuffle(4)]),
        ("<i4", [numcodecs.Delta("<i4"), numcodecs.Shuffle(4)]),
        ("<f4", [numcodecs.BitRound(12)]),
        ("<f8", [numcodecs.FixedScaleOffset(**SCALED, astype="<i2")]),
        ("<f8", [numcodecs.FixedScaleOffset(**SCALED, astype=">i2")]),
        ("<f8", [numcodecs.Shuffle(8), numcodecs.Zlib(1), numcodecs.CRC32()]),
    ],
    ids=["shuffle", "delta, shuffle", "bitround", "scaled", "scaled, big", "three on bytes"],
)
def test_filters(tmp_path, kind, filters):
    written(tmp_path / "a.zarr", x=(kind, filters))
    expected = zarr.open_group(tmp_path / "a.zarr", mode="r")["x"][...]
    report = intarsia.ingest(tmp_path / "a.zarr", "memory://", concat_dim="t", copy="never")
    assert np.array_equal(intarsia.open(report.repository, "x")[...], expected)


def test_texts(tmp_path):
    given = xr.Dataset({"id": ("t", np.array(["a", "bb"], dtype=object)), "x": ("t", [1.0, 2.0])})
    given.to_zarr(tmp_path / "a.zarr", zarr_format=2, consolidated=False)
    report = intarsia.ingest(tmp_path / "a.zarr", "memory://", concat_dim="t")
    opened = xr.open_dataset(report.repository, engine="intarsia")
    assert opened.id.values.tolist() == ["a", "bb"]
    assert not report.left_out


@pytest.mark.parametrize("consolidated", [True, False])
def test_what_has_no_translation_is_left_out_alone(tmp_path, consolidated):
    values = written(tmp_path / "a.zarr", good=("<f8", None), bad=("<f8", None))
    place = tmp_path / "a.zarr/bad/.zarray"
    document = json.loads(place.read_text()) | {"filters": [{"id": "nobody_knows"}]}
    place.write_text(json.dumps(document))
    if consolidated:
        keys = [".zgroup", "good/.zarray", "good/.zattrs", "bad/.zarray", "bad/.zattrs"]
        metadata = {key: json.loads((tmp_path / "a.zarr" / key).read_text()) for key in keys}
        whole = {"zarr_consolidated_format": 1, "metadata": metadata}
        (tmp_path / "a.zarr/.zmetadata").write_text(json.dumps(whole))
    report = intarsia.ingest(tmp_path / "a.zarr", "memory://", concat_dim="t")
    assert report.summary == "1 added; left out: bad"
    assert "nobody_knows" in report.left_out["bad"]
    assert np.array_equal(intarsia.open(report.repository, "good")[...], values)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_without_a_group_is_refused(tmp_path, zarr_format):
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(6), chunks=(3,), zarr_format=zarr_format)
    with pytest.raises(intarsia.errors.IngestError, match=r"array without a group: intarsia\.adopt"):
        intarsia.ingest(tmp_path / "a.zarr", "memory://", concat_dim="t")


def test_a_dimension_that_is_no_unicode_text_is_refused_with_the_file(tmp_path):
    place = tmp_path / "a.zarr"
    xr.Dataset({"v": (("time", "x"), np.ones((2, 3)))}).to_zarr(place, zarr_format=2, consolidated=False)
    (place / "v" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["time", "\\ud800"]}')
    with pytest.raises(intarsia.errors.IngestError) as caught:
        intarsia.ingest(place, "memory://", concat_dim="time")
    assert "a.zarr" in str(caught.value)
    assert r"can't encode character '\ud800'" in str(caught.value)


@pytest.mark.parametrize("dims", [["time", "x", "x"], ["time", "time", "x"]])
def test_a_variable_with_a_dimension_twice_is_left_out_alone(tmp_path, dims):
    place = tmp_path / "a.zarr"
    data = {"v": (("time", "x"), np.ones((3, 3))), "w": (("time", "x", "y"), np.ones((3, 3, 3)))}
    xr.Dataset(data).to_zarr(place, zarr_format=2, consolidated=False)
    (place / "w" / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": dims}))
    report = intarsia.ingest(place, "memory://", concat_dim="time")
    assert list(intarsia.reader(report.repository)) == ["v"]
    twice = next(dim for dim in dims if dims.count(dim) > 1)
    assert f"the dimension '{twice}' occurs 2 times in it" in str(report)
    shutil.rmtree(place / "v")
    with pytest.raises(intarsia.errors.IngestError, match=rf"a\.zarr: .*'w': .*'{twice}' occurs 2"):
        intarsia.ingest(place, "memory://", concat_dim="time")


def test_a_fill_value_may_be_written_as_a_word(tmp_path):
    group = zarr.create_group(tmp_path / "a.zarr")
    attributes = {"_FillValue": "NaN"}
    group.create_array("t", data=np.ones((1, 4), "f4"), dimension_names=["time", "x"], attributes=attributes)
    group.create_array("time", data=np.zeros(1, "i8"), dimension_names=["time"])
    report = intarsia.ingest(tmp_path / "a.zarr", tmp_path / "r", concat_dim="time")
    assert intarsia.open(report.repository, "t")[...].tolist() == [[1.0] * 4]
