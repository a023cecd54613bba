"""A refusal leaves nothing behind: every verb that can create a store, in Python and as a command."""

import shutil

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from tests.cli.program import run

DATASET = xr.Dataset({"t": (("time", "x"), np.ones((2, 3)))})
BLOCKS = da.ones((4, 6), chunks=(2, 3))
FAILING = da.map_blocks(lambda block: 1 / 0, BLOCKS, dtype="f8", meta=np.empty((0, 0)))
CODECS = {"codecs": ["no-such-codec"]}

REFUSED = {
    "ingest a pattern": lambda source, new: intarsia.ingest("no/*.nc", new, concat_dim="time"),
    "ingest a bad file": lambda source, new: intarsia.ingest(source, new, concat_dim="x"),
    "ingest one file": lambda source, new: intarsia.ingest(source, new, combine="by_coords"),
    "convert codecs": lambda source, new: intarsia.convert(source, new, "deep/er", **CODECS),
    "convert an array": lambda source, new: intarsia.convert(source, new, "y", source_path="x", **CODECS),
    "convert chunks": lambda source, new: intarsia.convert(source, new, "y", source_path="x", chunks=(2, 2)),
    "adopt": lambda source, new: intarsia.adopt(new, "a", source, source_path="no"),
    "from_xarray codecs": lambda source, new: intarsia.from_xarray(DATASET, new, "deep/er", **CODECS),
    "from_xarray append": lambda source, new: intarsia.from_xarray(DATASET, new, append_dim="day"),
    "store_dask codecs": lambda source, new: intarsia.store_dask(BLOCKS, new, "deep/er/a", **CODECS),
    "store_dask bounds": lambda source, new: intarsia.store_dask(BLOCKS, new, "a", bounds=((0, 4), (0, 6))),
    "store_dask fails": lambda source, new: intarsia.store_dask(FAILING, new, "a"),
    "export codecs": lambda source, new: intarsia.export(source, new, "deep/er", **CODECS),
    "export chunks": lambda source, new: intarsia.export(source, new, chunks=(1, 1)),
}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.zarr"
    zarr.create_array(path, name="x", data=np.arange(4.0), chunks=(2,))
    return path


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("url", [False, True])
def test_a_refusal_leaves_no_new_store(refused, url, source, tmp_path):
    new = tmp_path / "not" / "there"
    with pytest.raises(Exception):  # noqa: B017  # what it says is tested elsewhere
        REFUSED[refused](str(source), f"file://{new}" if url else new)
    assert not (tmp_path / "not").exists()


def test_a_refusal_keeps_what_another_process_wrote_to_the_new_store(tmp_path):
    new = tmp_path / "new"

    def compute(block):
        zarr.create_array(new, name="b", data=np.ones(3), overwrite=True)
        raise ZeroDivisionError

    blocks = da.map_blocks(compute, da.ones(2, chunks=2), dtype="f8", meta=np.empty(0))
    with pytest.raises(ZeroDivisionError):
        intarsia.store_dask(blocks, new, "a", retries=0)
    assert zarr.open_array(new, path="b", mode="r")[:].tolist() == [1, 1, 1]
    assert not (new / "a").exists()


COMMANDS = {
    "ingest a pattern": ("ingest", "no/*.nc", "NEW"),
    "ingest one file": ("ingest", "SOURCE", "NEW"),
    "ingest a bad file": ("ingest", "SOURCE", "NEW", "--concat-dim", "x"),
    "convert codecs": ("convert", "SOURCE", "NEW", "-c", "no-such-codec"),
    "convert chunks": ("convert", "SOURCE", "NEW", "--chunks", "2,2"),
    "convert objective": ("convert", "SOURCE", "NEW", "--objective", "best"),
    "adopt": ("adopt", "NEW", "a", "SOURCE"),
    "create": ("create", "NEW", "a", "--shape", "4", "--chunks", "2,2", "--dtype", "f4"),
    "export": ("export", "SOURCE", "NEW", "--chunks", "1,1"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_refused_command_leaves_no_new_store(command, source, tmp_path):
    places = {"SOURCE": str(source), "NEW": str(tmp_path / "not" / "there")}
    assert run(*(places.get(word, word) for word in COMMANDS[command])).code not in (0, None)
    assert not (tmp_path / "not").exists()


def test_ingest_into_another_branch_of_a_new_repository_leaves_nothing(tmp_path):
    for day in range(2):
        data = xr.Dataset({"t": (("time",), np.ones(2))}, {"time": np.arange(2.0) + 2 * day})
        data.to_zarr(tmp_path / f"{day}.zarr", consolidated=False)
    files = [tmp_path / "0.zarr", tmp_path / "1.zarr"]
    with pytest.raises(intarsia.errors.VersionNotFoundError, match="no branch 'other', only 'main'"):
        intarsia.ingest(files, tmp_path / "new", concat_dim="time", branch="other")
    assert not (tmp_path / "new").exists()
    ran = run("ingest", *map(str, files), str(tmp_path / "new"), "--concat-dim", "time")
    assert ran.code == 0, ran
    assert intarsia.open(tmp_path / "new", "t").shape == (4,)


@pytest.mark.parametrize("verb", [intarsia.export, intarsia.convert])
def test_a_name_that_zarr_does_not_take_is_refused_before_anything_is_overwritten(verb, source, tmp_path):
    shutil.copytree(source / "x", source / "..\\out")
    kept = zarr.create_array(tmp_path / "kept", data=np.ones(3))
    options = {"overwrite": True} if verb is intarsia.export else {}
    with pytest.raises(intarsia.errors.MetadataError, match=r"zarr cannot open .*out' is invalid"):
        verb(source, tmp_path / "kept", **options)
    assert kept[:].tolist() == [1, 1, 1]
