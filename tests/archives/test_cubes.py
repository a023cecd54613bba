"""The generated cubes: each is one dataset, nothing is copied, and it equals what xarray makes of it."""

import numpy as np
import pytest
import xarray as xr
from examples.cubes import BANDS, CUBES, SCAN_ERAS, open_all

import intarsia
from intarsia._icechunk import NATIVE, VIRTUAL, chunk_table
from intarsia.archives import from_attribute
from intarsia.archives.ledger import HEAD
from intarsia.logical.hierarchy import LEDGER


@pytest.fixture(scope="module", params=CUBES)
def cube(request, tmp_path_factory):
    folder, cube = tmp_path_factory.mktemp(request.param), CUBES[request.param]
    files = cube.write(folder / "files")
    return request.param, files, folder / "repository", cube.ingest(files, folder / "repository")


def test_it_is_one_dataset_that_equals_what_xarray_makes_of_the_files(cube):
    name, files, _, report = cube
    ours = xr.open_dataset(report.repository, engine="intarsia").load()
    theirs = CUBES[name].by_xarray(files)
    assert CUBES[name].variable in ours.data_vars
    theirs = theirs.transpose(*ours[CUBES[name].variable].dims, ...)
    xr.testing.assert_equal(ours, theirs[list(ours.variables)])
    assert theirs.data_vars.keys() <= ours.variables.keys()
    assert not report.failed
    assert not intarsia.verify(intarsia.open(report.repository, CUBES[name].variable), data=True)


def test_no_byte_of_data_is_copied(cube):
    """Of all objects in the repository that hold chunks, each is one of a coordinate or of the ledger."""
    name, _, folder, report = cube
    array = intarsia.open(report.repository, CUBES[name].variable)
    for member in array.members:
        assert set(chunk_table(array.store, f"{array.path}/{member}").kind.tolist()) == {VIRTUAL}
    loaded = set()
    coordinates = xr.open_zarr(report.repository.readonly_session("main").store, consolidated=False).variables
    for path in (*coordinates, f"{LEDGER}/{HEAD}"):
        table = chunk_table(array.store, path)
        pairs = zip(table.location, table.kind.tolist(), strict=True)
        loaded |= {location.rsplit("/", 1)[-1] for location, kind in pairs if kind == NATIVE}
    assert {path.name for path in (folder / "chunks").glob("*")} == loaded


def test_lint_knows_what_is_special_about_it(cube):
    name, files, *_ = cube
    options = {
        "goes": {"concat_dim": "t", "missing": "fill"},
        "cmip": {"concat_dim": "time", "dims": {"member": from_attribute("realization_index")}},
        "tiles": {},
    }[name]
    told = {
        "goes": {"missing variable", "chunks", "codecs", "packing", "dimension"},
        "cmip": {"order", "hole", "chunks", "codecs", "packing", "stored type", "time units", "dimension"},
        "tiles": {"order", "hole", "chunks", "codecs"},
    }
    assert {drift.kind for drift in intarsia.archives.lint(files, **options).drifts} >= told[name]


def test_channels_that_are_missing_are_holes(tmp_path):
    files = CUBES["goes"].write(tmp_path / "files")
    report = CUBES["goes"].ingest(files, "memory://")
    cmi = xr.open_dataset(report.repository, engine="intarsia").CMI
    scans = len(files) // len(SCAN_ERAS)
    empty = cmi.isnull().all(("y", "x")).values
    absent = [[band in era.absent for era in SCAN_ERAS for _ in range(scans)] for band in BANDS]
    np.testing.assert_array_equal(empty, absent)


def test_the_demonstration_can_be_repeated(tmp_path, capsys):
    """Where files and a repository of the last time are."""
    output, first = tmp_path / "cubes", next(iter(CUBES))
    CUBES[first].ingest(CUBES[first].write(output / first), output / f"{first}.repository")
    (output / "older").mkdir()
    open_all(output)
    assert capsys.readouterr().out.count("equal to the files") == 3
    assert not (output / "older").exists()
