"""Arrays that exist become regions: referred to, copied or moved as they are stored, never decoded."""

from functools import partial

import numcodecs
import numpy as np
import pytest
import zarr

import intarsia
from tests.archives.files import netcdf
from tests.logical.stores import memory

VALUES = np.arange(24, dtype="f4").reshape(4, 6)


def repository(shape=(0, 6), chunks=(2, 6), dtype="f4"):
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("t", shape=shape, chunks=chunks, dtype=dtype)
    return repo


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("inside", ["", "a/b"])
@pytest.mark.parametrize("separator", [".", "/"])
def test_files_of_both_formats_are_referred_to(zarr_format, inside, separator, tmp_path):
    name = "v2" if zarr_format == 2 else "default"
    zarr.create_array(
        tmp_path / "old.zarr", name=inside or None, data=VALUES, chunks=(2, 3), zarr_format=zarr_format,
        chunk_key_encoding={"name": name, "separator": separator},
    )  # fmt: skip
    repo = repository()
    array = intarsia.adopt(repo, "t", tmp_path / "old.zarr", source_path=inside)
    np.testing.assert_array_equal(array[...], VALUES)
    locations = array.store.session.all_virtual_chunk_locations()
    assert len(locations) == 4
    assert all(url.startswith("file://") for url in locations)
    again = intarsia.adopt(repo, "t", zarr.open_array(tmp_path / "old.zarr", path=inside or None, mode="r"))
    np.testing.assert_array_equal(again[...], np.concatenate([VALUES, VALUES]))
    assert len(again.regions) == 2
    assert intarsia.verify(again) == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"zarr_format": 2, "order": "F", "compressors": numcodecs.Zlib(1)},
        {"zarr_format": 2, "filters": [numcodecs.Shuffle(4)], "compressors": numcodecs.Zstd(1)},
        {"zarr_format": 3, "shards": (4, 6), "compressors": zarr.codecs.BloscCodec()},
        {"zarr_format": 3, "compressors": None},
    ],
)
@pytest.mark.parametrize("how", ["auto", "copy"])
def test_codecs_of_both_formats_are_read_as_they_are(settings, how, tmp_path):
    old = zarr.create_array(tmp_path / "old.zarr", data=VALUES, chunks=(2, 3), fill_value=None, **settings)
    assert old.shape == VALUES.shape
    array = intarsia.adopt(repository(), "t", tmp_path / "old.zarr", how=how)
    np.testing.assert_array_equal(array[...], VALUES)
    assert bool(array.store.session.all_virtual_chunk_locations()) == (how == "auto")
    plain = intarsia.create(tmp_path / "plain.zarr", "t", shape=(0, 6), chunks=(2, 6), dtype="f4")
    adopted = intarsia.adopt(plain.store, "t", tmp_path / "old.zarr")
    np.testing.assert_array_equal(adopted[...], VALUES)
    assert intarsia.verify(adopted) == ()


def test_bounds_packings_and_views(tmp_path):
    zarr.create_array(tmp_path / "packed.zarr", data=np.arange(6, dtype="i2").reshape(3, 2), chunks=(3, 2))
    repo = repository(shape=(6, 3), chunks=(2, 3))
    view = intarsia.View.identity(2).transpose(1, 0)
    packing = {"stored": "i2", "scale": 0.5}
    array = intarsia.adopt(repo, "t", tmp_path / "packed.zarr", np.s_[2:4], packing=packing, view=view)
    assert array[2:4].tolist() == [[0.0, 1.0, 2.0], [0.5, 1.5, 2.5]]
    assert array[:2].tolist() == [[0.0] * 3] * 2


def test_chunks_in_other_files_come_as_a_manifest(tmp_path):
    manifests = pytest.importorskip("virtualizarr.manifests")
    (tmp_path / "frames.bin").write_bytes(b"head" + VALUES.tobytes())
    like = zarr.create_array({}, shape=(4, 6), chunks=(1, 6), dtype="f4", compressors=None)
    url = (tmp_path / "frames.bin").as_uri()
    chunks = {f"{i}.0": {"path": url, "offset": 4 + 24 * i, "length": 24} for i in range(4)}
    source = manifests.ManifestArray(
        metadata=like.metadata, chunkmanifest=manifests.ChunkManifest(entries=chunks, shape=(4, 1))
    )
    array = intarsia.adopt(repository(), "t", source)
    np.testing.assert_array_equal(array[...], VALUES)


def test_what_changed_since_is_an_error_not_other_values(tmp_path):
    old = zarr.create_array(tmp_path / "old.zarr", data=VALUES, chunks=(4, 6), compressors=None)
    array = intarsia.adopt(repository(), "t", tmp_path / "old.zarr")
    import os

    file = tmp_path / "old.zarr/c/0/0"
    old[...] = -VALUES
    os.utime(file, (2**31, 2**31))
    with pytest.raises(intarsia.errors.ReadError):
        array[...]


def test_refusals_leave_the_array_as_it_was(tmp_path):
    zarr.create_array(tmp_path / "g.zarr", name="f8", data=VALUES.astype("f8"))
    zarr.create_array(tmp_path / "g.zarr", name="wide", data=np.zeros((2, 7), "f4"))
    zarr.create_array(tmp_path / "g.zarr", name="fits", data=VALUES)
    objects = zarr.create_array(
        tmp_path / "o.zarr", data=VALUES.astype("i4"), zarr_format=2,
        filters=[numcodecs.Shuffle(4), numcodecs.Delta("<i4")],
    )  # fmt: skip
    assert objects.shape == (4, 6)
    repo = repository(shape=(3, 6))
    store = memory()
    intarsia.create(store, "t", shape=(3, 6), chunks=(2, 6), dtype="f4")
    errors = intarsia.errors
    for target in (repo, store):
        before = intarsia.open(target, "t").generation
        for source, inside, options, error, words in (
            ("g.zarr", "", {}, errors.AdoptionError, "source_path="),
            ("g.zarr", "fits", {}, errors.AlignmentError, "middle of a logical chunk"),
            ("g.zarr", "wide", {}, errors.ShapeError, "does not fit after"),
            ("g.zarr", "fits", {"bounds": np.s_[0:2]}, errors.ShapeError, "another shape"),
            ("g.zarr", "nope", {}, errors.MissingArrayError, "no Zarr array"),
            ("o.zarr", "", {"bounds": np.s_[0:2]}, errors.AdoptionError, "intarsia.convert"),
        ):
            with pytest.raises(error, match=words):
                intarsia.adopt(target, "t", tmp_path / source, source_path=inside, **options)
        array = intarsia.open(target, "t")
        assert (array.generation, array.shape, len(array.regions)) == (before, (3, 6), 0)
    wrong = repository(dtype="i4")
    with pytest.raises(errors.DataTypeError, match="decodes to float64, but the logical array is int32"):
        intarsia.adopt(wrong, "t", tmp_path / "g.zarr", source_path="f8")
    plain = intarsia.create(memory(), "t", shape=(0, 6), chunks=(2, 6), dtype="i4")
    with pytest.raises(errors.DataTypeError):
        intarsia.adopt(plain.store, "t", tmp_path / "g.zarr", source_path="f8")
    assert intarsia.open(plain.store, "t").shape == (0, 6)
    assert intarsia.verify(plain) == ()  # no member is left over
    with pytest.raises(ValueError, match="how='link'"):
        intarsia.adopt(repo, "t", tmp_path / "g.zarr", how="link")
    with pytest.raises(errors.AdoptionError, match="a logical array cannot become a region"):
        intarsia.adopt(repo, "t", plain)
    with pytest.raises(errors.ShapeError, match="a view needs bounds"):
        intarsia.adopt(store, "t", tmp_path / "g.zarr", source_path="fits", view={"axes": [1, 0]})


@pytest.mark.parametrize("how", ["auto", "copy"])
def test_links_out_of_a_source_are_refused(how, tmp_path):
    zarr.create_array(tmp_path / "old.zarr", data=np.arange(4, dtype="f4"), chunks=4)
    (tmp_path / "old.zarr/c/0").rename(tmp_path / "elsewhere")
    (tmp_path / "old.zarr/c/0").symlink_to(tmp_path / "elsewhere")
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("t", shape=(0,), chunks=(4,), dtype="f4")
    with pytest.raises(intarsia.errors.ReadError, match=r"is a link to .*elsewhere, which is outside"):
        intarsia.adopt(repo, "t", tmp_path / "old.zarr", how=how)
    assert intarsia.open(repo, "t").shape == (0,)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["<f4", ">i2"])
def test_an_array_that_is_not_there_is_created_like_its_source(zarr_format, dtype, tmp_path):
    layout = {"shards": (4, 6), "dimension_names": ["y", "x"]} if zarr_format == 3 else {}
    attributes = {"units": "K"} | ({"_ARRAY_DIMENSIONS": ["y", "x"]} if zarr_format == 2 else {})
    values = VALUES.astype(dtype)
    zarr.create_array(
        tmp_path / "old.zarr", data=values, chunks=(2, 3), fill_value=7, zarr_format=zarr_format,
        attributes=attributes, **layout,
    )  # fmt: skip
    repo = intarsia.open_repository("memory://", create=True)
    for store in (repo, memory()):
        array = intarsia.adopt(store, "g/t", tmp_path / "old.zarr")
        assert (array.shape, array.chunks, array.fill_value) == ((4, 6), (2, 3), 7)
        assert (array.dtype.kind, array.dtype.itemsize) == (values.dtype.kind, values.dtype.itemsize)
        assert array.dimension_names == ("y", "x")
        assert dict(array.attrs) == {"units": "K"}
        np.testing.assert_array_equal(array[...], values)
        again = intarsia.adopt(store, "g/t", tmp_path / "old.zarr")
        np.testing.assert_array_equal(again[...], np.concatenate([values, values]))
        assert intarsia.verify(again) == ()


def test_what_else_is_there_is_not_replaced_by_a_source(tmp_path):
    zarr.create_array(tmp_path / "old.zarr", data=VALUES)
    store = memory()
    zarr.create_array(store, name="g/plain", data=VALUES)
    for path in ("g", "g/plain"):
        with pytest.raises(intarsia.errors.NotLogicalArrayError):
            intarsia.adopt(store, path, tmp_path / "old.zarr")
    with pytest.raises(intarsia.errors.NotLogicalArrayError):
        intarsia.adopt(store, "t", tmp_path / "old.zarr", packing={"stored": "f4", "scale": 2})
    assert set(zarr.open_group(store, mode="r")) == {"g"}


@pytest.mark.parametrize("may_read", [True, False])
def test_references_of_a_repository_are_adopted_if_it_may_read_them(tmp_path, may_read):
    values = [netcdf(tmp_path / f"{day}.nc", day) for day in range(2)]
    for day in range(2):
        intarsia.ingest(tmp_path / f"{day}.nc", tmp_path / f"repository-{day}", concat_dim="time")
    source = intarsia.open(tmp_path / "repository-0", "sst", authorize=may_read)
    (member,) = source.members
    target = intarsia.open_repository(tmp_path / "repository-1", authorize=True)
    adopt = partial(intarsia.adopt, target, "t", source.group.store, source_path=f"sst/{member}")
    if may_read:
        (tmp_path / "0.nc").rename(tmp_path / "moved")  # known checksums need no look at the file
        adopted = adopt()
        (tmp_path / "moved").rename(tmp_path / "0.nc")
        np.testing.assert_array_equal(adopted[...], values[0])
    else:
        with pytest.raises(intarsia.errors.IntarsiaError, match="authori"):
            adopt()
        assert "t" not in intarsia.reader(target)
