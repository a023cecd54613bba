"""Packed files: xarray's values to the bit, one member for all packings, and readers without intarsia."""

import subprocess
import sys
import warnings

import dask
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import intarsia
from tests.archives.files import hdf5, netcdf

STORED = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
IN_A_FILE = 50


def same_bits(ours, theirs):
    """Whether both hold the same, whatever the bits of a NaN are."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if ours.dtype.kind != "f":
        return np.array_equal(ours, theirs)
    ours, theirs = ours.ravel(), theirs.ravel()
    absent, bits = np.isnan(theirs), f"u{theirs.dtype.itemsize}"
    return np.array_equal(np.isnan(ours), absent) and np.array_equal(
        ours.view(bits)[~absent], theirs.view(bits)[~absent]
    )


def numbers_of(rng, dtype, shape):
    """Stored numbers of all sizes, the outermost among them."""
    if dtype.kind == "f":
        numbers = rng.normal(0, 10.0 ** rng.integers(-3, 30), shape).astype(dtype)
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, np.finfo(dtype).max], dtype)
    else:
        limits = np.iinfo(dtype)
        numbers = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
        special = np.array([limits.min, limits.max, 0, 1], dtype)
    numbers.flat[: special.size] = special
    return numbers


def attributes_of(rng, dtype, numbers):
    """Attributes in any combination that xarray decodes."""
    attrs, fill = {}, None
    number = {
        "f4": lambda: np.float32(rng.normal(0, 3)),
        "f8": lambda: np.float64(rng.normal(0, 3)),
        "i4": lambda: np.int32(rng.integers(1, 9)),
    }
    masked = rng.random() < 0.6
    for name in ("scale_factor", "add_offset"):
        if rng.random() < 0.6:
            attrs[name] = number[rng.choice(["f4", "f8"] if masked else ["f4", "f8", "i4"])]()
    if dtype.kind in "iu" and rng.random() < 0.3:
        attrs["_Unsigned"] = "true" if dtype.kind == "i" else "false"
    if masked:
        which = rng.integers(0, 3)
        if which != 1:
            fill = rng.choice(numbers.ravel())
        if which != 0 and "_Unsigned" not in attrs:
            several = rng.choice(numbers.ravel(), rng.integers(1, 4))
            attrs["missing_value"] = several if several.size > 1 else several[0]
        elif which == 1:
            fill = rng.choice(numbers.ravel())
    return attrs, fill


def write_variables(path, seed):
    """A file of many variables, each packed in its own way; some are not written everywhere."""
    rng = np.random.default_rng(seed)
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", 2), ("lat", 6), ("lon", 8)):
            file.createDimension(name, size)
        file.createVariable("time", "i4", ("time",))[:] = [0, 1]
        for i in range(IN_A_FILE):
            dtype = np.dtype(STORED[rng.integers(len(STORED))])
            numbers = numbers_of(rng, dtype, (2, 6, 8))
            attrs, fill = attributes_of(rng, dtype, numbers)
            # of big-endian numbers with `_Unsigned`, xarray looks for a fill value with swapped bytes
            order = "<" if "_Unsigned" in attrs else str(rng.choice(["<", ">"]))
            variable = file.createVariable(
                f"v{i}", dtype.newbyteorder(order), ("time", "lat", "lon"), fill_value=fill,
                chunksizes=(1, 3, 8), compression="zlib", shuffle=bool(rng.integers(2)),
                endian={"<": "little", ">": "big"}[order] if dtype.itemsize > 1 else "native",
            )  # fmt: skip
            variable.set_auto_maskandscale(False)
            variable.setncatts(attrs)
            rows = slice(0, 3) if rng.random() < 0.2 else slice(None)
            variable[:, rows] = numbers[:, rows]


def selected(array, values, rng):
    """One random selection of every kind: what the array gives, and what NumPy does."""
    shape = values.shape
    some = [rng.integers(-n, n, rng.integers(1, n + 2)) for n in shape]
    steps = tuple(slice(*sorted(rng.integers(0, n + 1, 2).tolist()), int(rng.integers(1, 4))) for n in shape)
    downwards = tuple(slice(None, None, -int(rng.integers(1, 3))) for _ in shape)
    points = tuple(rng.integers(-n, n, 7) for n in shape)
    mask = rng.random(shape) < 0.3
    element = tuple(int(each[0]) for each in points)
    yield "element", array[element], values[element]
    yield "basic", array[element[0], ..., steps[2]], values[element[0], ..., steps[2]]
    yield "steps", array[steps], values[steps]
    yield "downwards", array[downwards], values[downwards]
    yield "oindex", array.oindex[tuple(some)], values[np.ix_(*some)]
    yield "vindex", array.vindex[points], values[points]
    yield "mask", array.vindex[mask], values[mask]
    lazy = array.lazy[steps]
    yield "lazy", lazy.result(), values[steps]
    if lazy.shape[0]:
        yield "lazy of lazy", lazy[0].result(), values[steps][0]


SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(2, 40))]


@pytest.mark.parametrize("seed", SEEDS)
def test_values_are_those_of_xarray_to_the_bit(tmp_path, seed):
    write_variables(tmp_path / "0.nc", seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xr.SerializationWarning)
        with np.errstate(all="ignore"), xr.open_dataset(tmp_path / "0.nc") as dataset:
            theirs = {name: variable.values for name, variable in dataset.data_vars.items()}
    report = intarsia.ingest(tmp_path / "0.nc", tmp_path / "repository", concat_dim="time", copy="never")
    assert len(theirs) == IN_A_FILE
    arrays = {name: intarsia.open(report.repository, name) for name in theirs}
    rng = np.random.default_rng(seed)
    with (
        xr.open_dataset(report.repository, engine="intarsia") as opened,
        xr.open_dataset(report.repository, engine="intarsia", chunks={}) as chunked,
    ):
        in_blocks = chunked.compute(scheduler="threads")
        by_dask = dask.compute({name: array.to_dask() for name, array in arrays.items()}, scheduler="threads")
        for name, values in theirs.items():
            array = arrays[name]
            assert same_bits(array[...], values), (name, array.manifest.packings.kinds)
            for each in (opened[name].values, in_blocks[name].values, by_dask[0][name]):
                assert same_bits(each, values), name
            for kind, ours, numpys in selected(array, values, rng):
                assert same_bits(np.asarray(ours), np.asarray(numpys)), (kind, name, array.manifest)


WITHOUT_INTARSIA = """
import importlib.abc, importlib.metadata, os, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "intarsia":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
installed = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **group: importlib.metadata.EntryPoints(
    entry for entry in installed(**group) if not entry.value.startswith("intarsia")
)
import icechunk, numpy as np, zarr
from zarr.registry import get_codec_class
try:
    get_codec_class("shuffle")
    sys.exit("intarsia is not hidden")
except zarr.errors.UnknownCodecError:
    pass
storage = icechunk.local_filesystem_storage(sys.argv[1])
repo = icechunk.Repository.open(storage)
containers = repo.config.virtual_chunk_containers or ()
access = {prefix: icechunk.credentials.LocalFileSystemAccess for prefix in containers}
repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
root = zarr.open_group(repo.readonly_session("main").store, mode="r")
found = {}
for name, group in root.groups():
    for member in group.attrs.get("intarsia", {}).get("members", ()):
        found[f"{name}.{len(found)}"] = group[member][...]
np.savez(sys.argv[2], **found)
# Icechunk's threads may crash an interpreter that ends beside them; intarsia waits for them, and is not here.
os._exit(0)
"""


@pytest.mark.parametrize("copy", ["never", "all"])
def test_every_member_opens_without_intarsia_and_holds_the_stored_numbers(tmp_path, copy):
    paths = [tmp_path / f"{day}.nc" for day in range(7)]
    stored = [
        netcdf(path, day, kind="i2", fill=-1, attrs={"scale_factor": 0.01 + day, "add_offset": 280.0})
        for day, path in enumerate(paths[:3])
    ]
    stored.append(netcdf(paths[3], 3, kind="i1", fill=-3, attrs={"_Unsigned": "true", "scale_factor": 0.5}))
    stored.append(netcdf(paths[4], 4, kind="f4", fill=np.float32(1e20), compression=None))
    stored.append(netcdf(paths[5], 5, kind="i4", shuffle=False, attrs={"missing_value": np.int32(3)}))
    big = np.arange(48, dtype=">u2").reshape(1, 6, 8)
    stored.append(big)

    def build(file, shape):
        yield file.create_dataset("sst", data=big, chunks=shape, shuffle=True, fletcher32=True)
        file["sst"].attrs["units"] = "kelvin"

    hdf5(paths[6], 6, build)
    report = intarsia.ingest(paths, tmp_path / "repository", concat_dim="time", copy=copy)
    assert len(intarsia.open(report.repository, "sst").members) == 5
    command = [sys.executable, "-c", WITHOUT_INTARSIA, tmp_path / "repository", tmp_path / "members.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    with np.load(tmp_path / "members.npz") as members:
        found = [values for each in members.values() for values in each]
        assert sorted(values.dtype.name for values in found) == sorted(each.dtype.name for each in stored)
        for numbers in stored:
            assert any(same_bits(values, numbers[0].astype(values.dtype.name)) for values in found
                       if values.dtype == numbers.dtype.newbyteorder("="))  # fmt: skip


def test_files_that_differ_in_their_packing_share_a_member(tmp_path):
    paths = [tmp_path / f"{day}.nc" for day in range(8)]
    for day, path in enumerate(paths):
        attrs = {"scale_factor": np.float32(0.5 + day), "missing_value": np.int16(day)}
        netcdf(path, day, kind="i2", fill=-1 - day % 3, attrs=attrs if day % 2 else {})
    for some in (paths[::2], paths[1::2]):
        report = intarsia.ingest(some, tmp_path / "repository", concat_dim="time", copy="never")
    sst = intarsia.open(report.repository, "sst")
    assert len(sst.members) == 1
    assert len(sst.manifest.packings) == 7  # two of the plain ones mark what is missing alike
    for day, path in enumerate(paths):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", xr.SerializationWarning)
            with xr.open_dataset(path) as dataset:
                assert same_bits(sst[day : day + 1], dataset.sst.values)
    assert not intarsia.verify(sst)


def test_chunks_that_were_never_written_read_as_the_fill_value_of_their_own_file(tmp_path):
    def build(file, shape):
        data = file.create_dataset("sst", shape, "i2", chunks=(1, 3, 8), fillvalue=fill, compression="gzip")
        data.attrs["scale_factor"] = np.float64(0.5)
        data[0, 3:] = 5
        if full:
            data[0, :3] = 6
        yield data

    paths = [tmp_path / f"{day}.h5" for day in range(4)]
    for day, (fill, full) in enumerate([(-1, True), (-2, True), (-2, False), (-1, False)]):  # noqa: B007
        hdf5(paths[day], day, build)
    for some in (paths[:2], paths[2:]):
        report = intarsia.ingest(some, tmp_path / "repository", concat_dim="time", copy="never")
    sst = intarsia.open(report.repository, "sst")
    assert sst[:, 0, 0].tolist() == [3, 3, -1, -0.5]
    assert sst[:, 5, 7].tolist() == [2.5] * 4
    assert len(sst.members) == 2  # only one file left out chunks of another fill value than the member's


def test_a_wider_type_widens_packed_files_and_leaves_their_members_alone(tmp_path):
    paths = [tmp_path / f"{day}.nc" for day in range(4)]
    netcdf(paths[0], 0, kind="i2", fill=7, attrs={"scale_factor": np.float32(0.1)})
    netcdf(paths[1], 1, kind="f4")
    report = intarsia.ingest(paths[:2], tmp_path / "repository", concat_dim="time")
    before = intarsia.open(report.repository, "sst")
    assert before.dtype == np.float32
    netcdf(paths[2], 2, kind="f8")
    netcdf(paths[3], 3, kind="f4")
    report = intarsia.ingest(paths[2:], report.repository, concat_dim="time")
    sst = intarsia.open(report.repository, "sst")
    assert sst.dtype == np.float64
    assert same_bits(sst[:2], before[...].astype("f8"))
    with xr.open_mfdataset(paths) as dataset:
        assert same_bits(sst[...], dataset.sst.values)
    assert len(sst.members) == 3
    for name, member in before.members.items():
        assert sst.members[name].metadata.to_dict()["codecs"] == member.metadata.to_dict()["codecs"]
        assert sst.members[name].dtype == member.dtype
    assert not intarsia.verify(sst)


def test_an_asked_for_type_rounds_the_unpacked_value_once(tmp_path):
    netcdf(tmp_path / "0.nc", 0, kind="i4", fill=-1, attrs={"scale_factor": 0.1, "add_offset": 1e4 / 3})
    report = intarsia.ingest(
        tmp_path / "0.nc", tmp_path / "repository", concat_dim="time", dtype={"sst": "float32"}
    )
    sst = intarsia.open(report.repository, "sst")
    with xr.open_dataset(tmp_path / "0.nc") as dataset:
        assert np.array_equal(sst[...], dataset.sst.values.astype("f4"))


@pytest.mark.parametrize("attrs", [{"scale_factor": 0.1}, {"add_offset": 1 / 3}, {}])
def test_an_asked_for_type_is_a_packing_where_that_gives_the_same(tmp_path, attrs):
    numbers = np.arange(-24, 24).reshape(1, 6, 8) * 1365
    netcdf(tmp_path / "0.nc", 0, kind="i2", values=numbers, fill=numbers[0, 0, 0], attrs=attrs)
    target = "float16" if not attrs else "float32"
    report = intarsia.ingest(tmp_path / "0.nc", tmp_path / "r", concat_dim="time", dtype={"sst": target})
    sst = intarsia.open(report.repository, "sst")
    with xr.open_dataset(tmp_path / "0.nc") as dataset, np.errstate(over="ignore"):
        assert same_bits(sst[...], dataset.sst.values.astype(target))
    (member,) = sst.members.values()
    plain = [codec["name"] for codec in member.metadata.to_dict()["codecs"]]
    assert plain == (
        ["bytes", "numcodecs.shuffle", "numcodecs.zlib"] if attrs else ["cast_value", *plain[1:]]
    )


def test_manifests_say_version_2_only_where_something_is_packed(tmp_path):
    netcdf(tmp_path / "0.nc", 0)
    report = intarsia.ingest(tmp_path / "0.nc", tmp_path / "repository", concat_dim="time")
    assert intarsia.open(report.repository, "sst").manifest.version == 1
    netcdf(tmp_path / "1.nc", 1, fill=np.float32(280))
    report = intarsia.ingest(tmp_path / "1.nc", report.repository, concat_dim="time")
    sst = intarsia.open(report.repository, "sst")
    assert sst.manifest.version == 2
    codecs = zarr.open_array(sst.group.store_path / next(iter(sst.members)), mode="r").metadata.codecs
    assert [codec.to_dict()["name"] for codec in codecs] == ["bytes", "numcodecs.shuffle", "numcodecs.zlib"]
