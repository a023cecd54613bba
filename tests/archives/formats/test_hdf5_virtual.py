"""Virtual datasets of HDF5, external links and external storage; h5py by path is the referee."""

import math
import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np
import obstore
import pytest

import intarsia
from intarsia.errors import IngestError, ReadError
from tests.archives.conftest import BUCKET
from tests.archives.linked_files import UNLIMITED, source, virtual
from tests.cli.program import failure, succeed

N = 24


def put(path, name, data, **options):
    with h5py.File(path, "a") as file:
        file.create_dataset(name, data=data, **options)
    return path


def main_file(path, *parts, shape, start=0, name="x", **options):
    """A file with a virtual dataset, along `n` on its first axis."""
    with h5py.File(path, "w") as file:
        file["n"] = np.arange(start, start + shape[0])
        file["n"].make_scale("n")
        virtual(file, name, *parts, shape=shape, **options)
        file[name].dims[0].attach_scale(file["n"])
    return path


def compared(path, name="x", **options):
    """The report of an ingest, after its values were compared with those that h5py reads."""
    report = intarsia.ingest(path, "memory://", concat_dim="n", **options)
    with h5py.File(path) as file:
        expected = file[name][...]
    found = intarsia.open(report.repository, name)[...]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    return report


def random_slice(rng, length, count):
    """A slice of so many elements of an axis."""
    step = int(rng.integers(1, max(2, length // count + 1)))
    while (count - 1) * step >= length:
        step -= 1
    start = int(rng.integers(0, length - (count - 1) * step))
    return slice(start, start + (count - 1) * step + 1, step)


@pytest.mark.parametrize("seed", range(24))
def test_any_hyperslabs(tmp_path, seed):
    rng = np.random.default_rng(seed)
    shape = N, *rng.integers(2, 12, seed % 3).tolist()
    layout, claimed = [], np.zeros(shape, bool)
    for number in range(4):
        own = tuple(rng.integers(n // 2 + 1, n + 6) for n in shape)
        chunks = tuple(int(rng.integers(1, n + 1)) for n in own)
        filters = ({}, {"compression": "gzip"}, {"compression": "gzip", "shuffle": True})[number % 3]
        kind = {"chunks": chunks, **filters} if number else {}
        data = rng.integers(0, 1000, own).astype("f4")
        path = put(tmp_path / f"{number % 3}.h5", f"d{number}", data, **kind, fillvalue=5)
        counts = [int(rng.integers(1, min(a, b) + 1)) for a, b in zip(shape, own, strict=True)]
        place = tuple(random_slice(rng, n, c) for n, c in zip(shape, counts, strict=True))
        if not claimed[place].any():
            claimed[place] = True
            taken = tuple(random_slice(rng, n, c) for n, c in zip(own, counts, strict=True))
            layout.append((place, source(path.name, f"d{number}", own)[taken]))
    path = main_file(tmp_path / "main.h5", *layout, shape=shape)
    assert compared(path, copy="never").copied == 0
    assert compared(path, copy="all").copied == math.prod(shape) * 4


def test_holes_between_tiles_are_the_fill_value_of_the_virtual_dataset(tmp_path):
    put(tmp_path / "a.h5", "d", np.arange(32, dtype="i2").reshape(4, 8), chunks=(2, 3), compression="gzip")
    tiles = [
        (np.s_[4 * i : 4 * i + 4, 8 * j : 8 * j + 8], source("a.h5", "d", (4, 8), dtype="i2"))
        for i, j in ((0, 0), (1, 1), (2, 0))
    ]
    path = main_file(tmp_path / "main.h5", *tiles, shape=(12, 16), dtype="i2", fill=-7)
    compared(path, copy="never")


def test_attributes_of_the_virtual_dataset_count(tmp_path):
    put(tmp_path / "a.h5", "d", np.arange(N, dtype="i2"), chunks=(5,))
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["d"].attrs["scale_factor"] = 100.0
    path = main_file(
        tmp_path / "main.h5", (np.s_[:N], source("a.h5", "d", (N,), dtype="i2")), shape=(2 * N,), dtype="i2",
        fill=-1,
    )  # fmt: skip
    with h5py.File(path, "a") as file:
        file["x"].attrs.update({"scale_factor": 0.5, "_FillValue": np.int16(-1)})
    report = intarsia.ingest(path, "memory://", concat_dim="n", copy="never")
    values = intarsia.open(report.repository, "x")[...]
    assert values[:N].tolist() == (np.arange(N) / 2).tolist()
    assert np.isnan(values[N:]).all()


def test_frames_of_files_in_turn(tmp_path):
    frames = np.arange(N * 20, dtype="u2").reshape(N, 4, 5)
    for turn in range(3):
        put(tmp_path / f"{turn}.h5", "d", frames[turn::3], chunks=(1, 4, 5), compression="gzip")
    parts = [(np.s_[turn::3], source(f"{turn}.h5", "d", (N // 3, 4, 5), dtype="u2")) for turn in range(3)]
    path = main_file(tmp_path / "main.h5", *parts, shape=frames.shape, dtype="u2")
    report = compared(path, copy="never")
    assert not report.drifts
    array = intarsia.open(report.repository, "x")
    assert len(array.members) == 1
    assert array[7].tolist() == frames[7].tolist()


def test_one_file_for_every_step(tmp_path):
    frames = np.arange(N * 20, dtype="u2").reshape(N, 4, 5)
    for step in range(N):
        put(tmp_path / f"{step}.h5", "d", frames[step], chunks=(2, 5))
    parts = [(np.s_[step], source(f"{step}.h5", "d", (4, 5), dtype="u2")) for step in range(N)]
    path = main_file(tmp_path / "main.h5", *parts, shape=frames.shape, dtype="u2")
    compared(path, copy="never")


def growing(path, *mappings, shape, kind="f4"):
    """A virtual dataset of mappings that HDF5's own functions make: selections and names of sources."""
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_fill_value(np.array(-1, kind))
        for place, name, dataset, space in mappings:
            plist.set_virtual(place, name, dataset, space)
        whole = h5py.h5s.create_simple(shape, (UNLIMITED,) * len(shape))
        h5py.h5d.create(file.id, b"x", h5py.h5t.py_create(np.dtype(kind)), whole, plist)
    with h5py.File(path, "r") as file:
        length = file["x"].shape[0]
    with h5py.File(path, "a") as file:
        file["n"] = np.arange(length)
        file["n"].make_scale("n")
        file["x"].dims[0].attach_scale(file["n"])
    return path


def slab(shape, start, count, stride, block):
    space = h5py.h5s.create_simple(shape, (UNLIMITED,) * len(shape))
    space.select_hyperslab(start, count, stride=stride, block=block)
    return space


@pytest.mark.parametrize(
    ("lengths", "block"), [((7, 7), 1), ((7, 4), 1), ((8, 6), 2), ((7, 5), 2), ((3, 0), 3)]
)
def test_sources_that_grow_side_by_side(tmp_path, lengths, block):
    mappings = []
    for turn, length in enumerate(lengths):
        data = np.arange(100 * turn, 100 * turn + length, dtype="f4")
        put(tmp_path / f"{turn}.h5", "d", data, maxshape=(None,), chunks=(2,))
        place = slab((1,), (turn * block,), (UNLIMITED,), (2 * block,), (block,))
        space = slab((1,), (0,), (UNLIMITED,), (1,), (1,))
        mappings.append((place, f"{turn}.h5".encode(), b"d", space))
    compared(growing(tmp_path / "main.h5", *mappings, shape=(1,)), copy="never")


def test_percent_signs_in_names(tmp_path):
    put(tmp_path / "a%.h5", "d%", np.arange(N, dtype="f4"))
    mapping = h5py.h5s.create_simple((N,)), b"a%%.h5", b"d%%", h5py.h5s.create_simple((N,))
    compared(growing(tmp_path / "main.h5", mapping, shape=(N,)), copy="never")


UNEVEN = h5py.h5s.create_simple((N,))
UNEVEN.select_hyperslab((0,), (5,))
UNEVEN.select_hyperslab((6,), (N - 6,), op=h5py.h5s.SELECT_OR)


@pytest.mark.parametrize(
    ("place", "shape", "words"),
    [
        (UNEVEN, (N - 1,), "boxes that are not alike"),
        (h5py.h5s.create_simple((N,)), (4, N // 4), f"maps 4x{N // 4} elements to {N}"),
    ],
)
@pytest.mark.parametrize("own", [True, False], ids=["own", "other"])
def test_what_is_no_mapping_of_boxes_is_copied_from_the_same_file_and_left_out_of_others(
    tmp_path, place, shape, words, own
):
    data = np.arange(math.prod(shape), dtype="f4").reshape(shape)
    mapping = place, b"." if own else b"a.h5", b"d", h5py.h5s.create_simple(shape)
    path = growing(tmp_path / "main.h5", mapping, shape=(N,))
    put(path if own else tmp_path / "a.h5", "d", data)
    if own:
        report = compared(path)
        assert words in report.files[0].reason
        assert report.copied == 4 * N
    else:
        with pytest.raises(IngestError, match=f"'x': it is a virtual dataset of other files, and.*{words}"):
            intarsia.ingest(path, "memory://", concat_dim="n")


def test_where_mappings_overlap_the_last_is_copied(tmp_path):
    put(tmp_path / "a.h5", "d", np.arange(N, dtype="f4"), compression="gzip")
    whole = source("a.h5", "d", (N,))
    path = main_file(tmp_path / "main.h5", (np.s_[:20], whole[4:]), (np.s_[12:], whole[:12]), shape=(N,))
    report = compared(path)
    assert "it has parts that overlap" in report.files[0].reason
    with pytest.raises(IngestError, match="it has parts that overlap, and copy='never'"):
        intarsia.ingest(path, "memory://", concat_dim="n", copy="never")


@pytest.mark.parametrize("kind", ["i1", "f8", ">i4", ">f4"])
def test_sources_of_another_type_are_converted_as_hdf5_does(tmp_path, kind):
    put(tmp_path / "a.h5", "d", np.linspace(-1000, 1000, N).astype("f4").clip(-100, 100).astype(kind))
    path = main_file(tmp_path / "main.h5", (np.s_[:], source("a.h5", "d", (N,))), shape=(N,), dtype="f4")
    assert compared(path).copied == (0 if kind == ">f4" else 4 * N)
    path = main_file(tmp_path / "b.h5", (np.s_[:], source("a.h5", "d", (N,))), shape=(N,), dtype="i1", fill=0)
    assert compared(path).copied == (0 if kind == "i1" else N)


def test_a_source_of_another_shape_is_left_out(tmp_path):
    put(tmp_path / "a.h5", "d", np.arange(N - 1, dtype="f4"))
    for shown in (source("a.h5", "d", (N,)), source("a.h5", "d", (N,))[:]):
        path = main_file(tmp_path / "main.h5", (np.s_[:], shown), shape=(N,))
        with pytest.raises(IngestError, match=r"its mapping of 'd' (selects more than there is|maps 23)"):
            intarsia.ingest(path, "memory://", concat_dim="n")


def test_a_source_that_is_not_hdf5_is_left_out(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"text")
    path = main_file(tmp_path / "main.h5", (np.s_[:], source("a.h5", "d", (N,))), shape=(N,))
    with pytest.raises(IngestError, match=r"the file .*a\.h5 cannot be read"):
        intarsia.ingest(path, "memory://", concat_dim="n")


@pytest.mark.parametrize("option", ["variables", "load"])
def test_a_source_that_may_not_be_read_is_an_error_if_it_is_asked_for_by_name(tmp_path, option):
    put(tmp_path / "a.h5", "d", np.arange(N, dtype="f4"))
    (tmp_path / "below").mkdir()
    path = main_file(tmp_path / "below" / "main.h5", (np.s_[:], source("../a.h5", "d", (N,))), shape=(N,))
    with h5py.File(path, "a") as file:
        file["other"] = np.arange(N)
        file["other"].dims[0].attach_scale(file["n"])
    names = ["x", "other"] if option == "variables" else ["x"]
    with pytest.raises(IngestError, match=r"its variable 'x' cannot be read: .* outside of "):
        intarsia.ingest(path, "memory://", concat_dim="n", **{option: names})
    report = intarsia.ingest(path, "memory://", concat_dim="n")
    assert "outside of" in report.left_out["x"]
    assert intarsia.open(report.repository, "other")[...].tolist() == list(range(N))


def test_a_truncated_source_is_left_out(tmp_path):
    put(tmp_path / "a.h5", "d", np.arange(N, dtype="f4"), chunks=(3,))
    path = main_file(tmp_path / "main.h5", (np.s_[:], source("a.h5", "d", (N,))), shape=(N,))
    size = (tmp_path / "a.h5").stat().st_size
    for length in (size - 8, size // 2, 100):
        with (tmp_path / "a.h5").open("r+b") as file:
            file.truncate(length)
        with suppress(IngestError):
            compared(path)


def test_coordinates_may_be_virtual(tmp_path):
    put(tmp_path / "a.h5", "d", np.arange(4.0, 8), chunks=(3,))
    path = tmp_path / "main.h5"
    with h5py.File(path, "w") as file:
        virtual(file, "n", (np.s_[:], source("a.h5", "d", (4,), dtype="f8")), shape=(4,), dtype="f8")
        file["n"].make_scale("n")
        file["x"] = np.arange(4.0)
        file["x"].dims[0].attach_scale(file["n"])
    report = compared(path)
    with h5py.File(path) as file:
        found = report.repository.readonly_session("main").store
        assert intarsia.reader(found, "n")[...].tolist() == file["n"][...].tolist() == [4, 5, 6, 7]


def archive(folder, steps=3):
    """Files of virtual datasets, each of two sources of its own."""
    folder.mkdir(exist_ok=True)
    values = np.random.default_rng(2).random((steps, 6, 10)).astype("f4")
    for step in range(steps):
        for half in range(2):
            data = values[step : step + 1, :, 5 * half : 5 * half + 5]
            put(folder / f"{step}-{half}.h5", "d", data, chunks=(1, 4, 3), compression="gzip")
        parts = [
            (np.s_[:, :, 5 * half : 5 * half + 5], source(f"{step}-{half}.h5", "d", (1, 6, 5)))
            for half in range(2)
        ]
        main_file(folder / f"main-{step}.h5", *parts, shape=(1, 6, 10), start=step)
    return values


def test_many_such_files_are_one_array(tmp_path):
    values = archive(tmp_path / "a")
    report = intarsia.ingest(
        tmp_path / "a/main-[01].h5", tmp_path / "repository", concat_dim="n", copy="never"
    )
    report = intarsia.ingest(tmp_path / "a/main-*.h5", report.repository, concat_dim="n", copy="never")
    assert report.summary == "1 added, 2 unchanged"
    array = intarsia.open(report.repository, "x")
    np.testing.assert_array_equal(array[...], values)
    assert len(array.members) == 1
    assert [run.files for run in report.runs] == [1]
    (file,) = intarsia.archives.sources(report.repository, "x", at=(1, 2, 7))
    assert file.url.endswith("main-1.h5")
    assert [Path(chunk.url).name for chunk in file.chunks] == ["1-1.h5"]


def test_processes_parse_them(tmp_path):
    values = archive(tmp_path / "a", 6)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        report = intarsia.ingest(tmp_path / "a/main-*.h5", "memory://", concat_dim="n", client=pool)
    np.testing.assert_array_equal(intarsia.open(report.repository, "x")[...], values)


def test_sources_that_move_or_vanish(tmp_path):
    values = archive(tmp_path / "a")
    report = intarsia.ingest(tmp_path / "a/main-*.h5", tmp_path / "repository", concat_dim="n")
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(ReadError, match=r"0-0\.h5"):
        intarsia.open(report.repository, "x")[0, 0, 0]
    moved = intarsia.archives.relocate(tmp_path / "repository", {tmp_path / "a": tmp_path / "b"})
    array = intarsia.open(moved.repository, "x")
    np.testing.assert_array_equal(array[...], values)
    (tmp_path / "b/1-1.h5").unlink()
    np.testing.assert_array_equal(array[:, :, :5], values[:, :, :5])
    with pytest.raises(ReadError, match=r"1-1\.h5"):
        intarsia.open(moved.repository, "x")[1]


def test_a_source_that_changes_is_an_error(tmp_path):
    archive(tmp_path / "a")
    report = intarsia.ingest(tmp_path / "a/main-*.h5", "memory://", concat_dim="n")
    later = (tmp_path / "a/0-0.h5").stat().st_mtime + 60
    os.utime(tmp_path / "a/0-0.h5", (later, later))
    with pytest.raises(ReadError, match=r"0-0\.h5"):
        intarsia.open(report.repository, "x")[0]


def test_the_command_line_says_what_is_absent_and_what_to_allow(tmp_path):
    archive(tmp_path / "a")
    (tmp_path / "a/1-1.h5").unlink()
    command = [tmp_path / "a/main-*.h5", "--concat-dim", "n"]
    assert "'d' in 1-1.h5" in succeed("lint", *command)
    assert "'d' in 1-1.h5" in succeed("ingest", command[0], tmp_path / "repository", *command[1:])
    (tmp_path / "c").mkdir()
    (tmp_path / "a/main-0.h5").rename(tmp_path / "c/main.h5")
    with h5py.File(tmp_path / "c/main.h5", "a") as file:
        file["y"] = h5py.ExternalLink("../a/0-0.h5", "d")
        file["z"] = np.ones((1, 6, 10))
        file["z"].dims[0].attach_scale(file["n"])
    ingest = ["ingest", tmp_path / "c/main.h5", tmp_path / "other", "--concat-dim", "n", "--variable", "y"]
    assert f"--allow file://{tmp_path}/a/0-0.h5" in failure(*ingest, code=4)


def test_an_external_link_is_a_variable_by_reference(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["scales/n"] = np.arange(N)
        file["scales/n"].make_scale("n")
        file.create_dataset("deep/d", data=np.arange(N, dtype="f4"), chunks=(5,), compression="gzip")
        file["deep/d"].dims[0].attach_scale(file["scales/n"])
        file["deep/same"] = h5py.SoftLink("/deep/d")
    with h5py.File(tmp_path / "main.h5", "w") as file:
        file["n"] = h5py.ExternalLink("a.h5", "scales/n")
        file["x"] = h5py.ExternalLink("a.h5", "deep/same")
        file["all"] = h5py.ExternalLink("a.h5", "deep")
    report = compared(tmp_path / "main.h5", copy="never")
    assert report.left_out.keys() == {"all"}
    (file,) = intarsia.archives.sources(report.repository, "x", at=0)
    assert file.chunks[0].url.endswith("/a.h5")
    report = intarsia.ingest(tmp_path / "main.h5", "memory://", concat_dim="n", source_group="all")
    assert intarsia.open(report.repository, "d")[3] == 3


@pytest.mark.parametrize(
    "pieces", [[(0, 96 * 4)], [(8, 24 * 4), (400, 48 * 4), (200, 24 * 4)], [(0, 10), (10, 374)], [(900, 384)]]
)
def test_external_storage_is_copied(tmp_path, pieces):
    path, raw = tmp_path / "main.h5", tmp_path / "raw"
    raw.write_bytes(np.random.default_rng(1).bytes(1000))
    with h5py.File(path, "w") as file:
        file["n"] = np.arange(N)
        file["n"].make_scale("n")
        file.create_dataset("x", (N, 4), "i4", external=[(str(raw), *each) for each in pieces])
        file["x"].dims[0].attach_scale(file["n"])
    assert compared(path).copied == N * 16


def test_files_without_the_axis_that_grows(tmp_path):
    values = np.random.default_rng(5).integers(0, 99, (3, 6, 10)).astype("i2")
    for step, grid in enumerate(values):
        put(tmp_path / f"{step}-a.h5", "d", grid[:, 2:9], chunks=(4, 3), compression="gzip")
        with h5py.File(tmp_path / f"main-{step}.h5", "w") as file:
            shown = source(f"{step}-a.h5", "d", (6, 7), dtype="i2")
            virtual(file, "x", (np.s_[:, 2:9], shown), shape=(6, 10), dtype="i2", fill=7)
    values[..., :2] = values[..., 9:] = 7
    report = intarsia.ingest(
        tmp_path / "main-*.h5", "memory://", concat_dim="step", copy="never",
        coordinate=lambda url: int(url[-4]),
    )  # fmt: skip
    array = intarsia.open(report.repository, "x")
    np.testing.assert_array_equal(array[...], values)
    assert len(array.members) == 2


@pytest.mark.parametrize(
    "chosen", [{"m": 2}, {"m": 7}, {"m": slice(1, 8, 1)}, {"m": [6, 3, 2]}, {"n": [3, 1]}], ids=str
)
def test_a_part_of_a_virtual_dataset(tmp_path, chosen):
    for half in range(2):
        data = np.arange(100 * half, 100 * half + 32, dtype="f4").reshape(8, 4)
        put(tmp_path / f"{half}.h5", "d", data, chunks=(3, 3))
    parts = [(np.s_[:, 5 * half : 5 * half + 4], source(f"{half}.h5", "d", (8, 4))) for half in range(2)]
    path = main_file(tmp_path / "main.h5", *parts, shape=(8, 9))
    with h5py.File(path, "a") as file:
        file["m"] = np.arange(9)
        file["m"].make_scale("m")
        file["x"].dims[1].attach_scale(file["m"])
        expected = file["x"][...]
    report = intarsia.ingest(
        path, "memory://", concat_dim="n", copy="never", preprocess=lambda dataset: dataset.isel(chosen)
    )
    (axis,) = ("nm".index(name) for name in chosen)
    index = [slice(None), slice(None)]
    index[axis] = chosen["nm"[axis]]
    np.testing.assert_array_equal(intarsia.open(report.repository, "x")[...], expected[tuple(index)])


def test_virtual_datasets_in_a_bucket(tmp_path, bucket, s3):
    values = archive(tmp_path / "a")
    for path in (tmp_path / "a").iterdir():
        obstore.put(bucket, f"deep/{path.name}", path)
    report = intarsia.ingest(
        f"s3://{BUCKET}/deep/main-*.h5", "memory://", concat_dim="n", storage_options=s3, copy="never"
    )
    np.testing.assert_array_equal(intarsia.open(report.repository, "x")[...], values)
    obstore.delete(bucket, "deep/1-0.h5")
    with pytest.raises(ReadError, match=r"1-0\.h5"):
        intarsia.open(report.repository, "x")[1, 0, 0]
    report = intarsia.ingest(f"s3://{BUCKET}/deep/main-*.h5", "memory://", concat_dim="n", storage_options=s3)
    assert [drift.what for drift in report.drifts if drift.kind == "absent source"] == [
        "there is no 'd' in 1-0.h5"
    ]
