"""Random archives, ingested in random order and portions, against the same files joined in memory."""

import tempfile
import warnings
from pathlib import Path

import h5py
import numpy as np
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia
from tests.archives.plan.test_reconcile import FORMATS, TAKEN, day, save
from tests.archives.test_cf import decoded_by_xarray

GRID = (5, 6)
PACKINGS = (
    ("f4", {}),
    ("f8", {}),
    ("i2", {"scale_factor": np.float64(0.25), "add_offset": np.float64(10), "_FillValue": np.int16(3)}),
    ("i2", {"scale_factor": np.float32(0.5), "_FillValue": np.int16(3)}),
    ("i1", {"_Unsigned": "true", "missing_value": np.array([1, 2], "i1")}),
    ("f4", {"_FillValue": np.float32(4)}),
)


@st.composite
def files(draw):
    """A series of files, each with its own steps, chunks, filters and packing."""
    described, first = [], 0
    for _ in range(draw(st.integers(1, 6))):
        steps = draw(st.integers(1, 4))
        chunks = draw(st.sampled_from([None, (1, 5, 6), (2, 3, 6), (3, 5, 4), (8, 2, 2)]))
        filters = draw(
            st.sampled_from([{}, {"compression": "gzip"}, {"compression": "gzip", "shuffle": True}])
        )
        dtype, attrs = draw(st.sampled_from(PACKINGS))
        described.append((first, steps, chunks, filters if chunks else {}, dtype, attrs))
        first += steps + draw(st.integers(0, 2))
    return described


def write(path, first, steps, chunks, filters, dtype, attrs):
    """One file; returns its values as xarray reads them."""
    numbers = np.random.default_rng(first).integers(0, 9, (steps, *GRID)).astype(dtype)
    with h5py.File(path, "w") as file:
        file["time"] = np.arange(first, first + steps)
        file["time"].make_scale("time")
        options = {"maxshape": (None, *GRID), "chunks": chunks} if chunks else {}
        data = file.create_dataset("v", data=numbers, **options, **filters)
        data.attrs.update(attrs)
        data.dims[0].attach_scale(file["time"])
    return decoded_by_xarray(numbers.reshape(-1), attrs).reshape(numbers.shape).astype("f8")


@settings(max_examples=max(6, settings().max_examples // 4))
@given(files(), st.data())
def test_any_archive_in_any_order_is_the_files_joined(described, data):
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        made = [write(folder / f"{i}.h5", *each) for i, each in enumerate(described)]
        order = data.draw(st.permutations(range(len(described))))
        cuts = sorted(data.draw(st.sets(st.integers(1, 5), max_size=3)) & set(range(1, len(order))))
        for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True):
            report = intarsia.ingest(
                [folder / f"{i}.h5" for i in order[a:b]], folder / "r", concat_dim="time", dtype={"v": "f8"}
            )
        array = intarsia.open(report.repository, "v")
        expected = np.concatenate(made)
        assert np.array_equal(array[...], expected, equal_nan=True)
        start = data.draw(st.integers(0, len(expected)))
        stop = data.draw(st.integers(start, len(expected)))
        assert np.array_equal(array[start:stop, 1:, ::2], expected[start:stop, 1:, ::2], equal_nan=True)
        assert array.region_at((0, 0, 0)) is not None
        # the parser cuts a chunk that is longer than the file has steps
        encodings = {
            str(each[2:5]) + str(each[1] if each[2] is None or each[1] < each[2][0] else "")
            for each in described
        }
        assert len(array.members) <= len(encodings)
        assert not intarsia.verify(array)


OPTIONS = {"missing": "fill"} | {
    option: value for _, given in TAKEN.values() for option, value in given.items()
}
"""What takes every kind of drift that is taken."""


def as_meant(report):
    """A dataset without what the first file decides: directions, units, the order of axes."""
    ds = xr.open_dataset(report.repository, engine="intarsia").load()
    ds = ds.assign_coords(lon=ds.lon % 360).sortby(["time", "lat", "lon"]).squeeze("height", drop=True)
    for name in ("v", "w"):
        if name in ds and ds[name].attrs.get("units") == "degC":
            ds[name] = ds[name].astype("f8") + 273.15
    return ds.transpose("time", "lat", "lon", ...)


@settings(max_examples=max(5, settings().max_examples // 6))
@given(st.data())
def test_files_of_every_kind_in_any_order_and_portions_are_what_one_call_makes_of_them(data):
    kinds = data.draw(st.lists(st.sampled_from(sorted(TAKEN)), min_size=2, max_size=5))
    forms = [data.draw(st.sampled_from(sorted(FORMATS))) for _ in kinds]
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parsers
        folder = Path(directory)
        plain = day(0).expand_dims("height", 1).assign_coords(height=[2.0])
        files = [save(plain, folder / "plain", "netcdf4")]
        for i, (kind, form) in enumerate(zip(kinds, forms, strict=True), start=1):
            files.append(save(TAKEN[kind][0](day(2 * i)), folder / str(i), form))
        whole = intarsia.ingest(files, "memory://", concat_dim="time", **OPTIONS)
        order = data.draw(st.permutations(files))
        cuts = sorted(data.draw(st.sets(st.integers(1, 5), max_size=3)) & set(range(1, len(order))))
        repo = "memory://"
        for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True):
            report = intarsia.ingest(order[a:b], repo, concat_dim="time", **OPTIONS)
            repo = report.repository
        xr.testing.assert_allclose(as_meant(report), as_meant(whole), rtol=3e-7, atol=2e-3)
        assert not intarsia.verify(intarsia.open(repo, "v"))
        assert intarsia.ingest(files, repo, concat_dim="time", **OPTIONS).snapshot_id is None
