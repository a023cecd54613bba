"""What a source refers to outside of its own folder or bucket is only read if the caller allows it."""

import base64
import json
import os
import zipfile

import h5py
import numpy as np
import obstore
import pytest
import xarray as xr
import zarr

import intarsia
from intarsia.archives.source_files import Sources
from intarsia.errors import IngestError
from tests.archives.conftest import BUCKET
from tests.cli.program import failure, succeed

SECRET = b"S" * 64


def array(dtype):
    document = {"zarr_format": 2, "shape": [64], "chunks": [64], "dtype": dtype, "compressor": None}
    return json.dumps(document | {"fill_value": None, "filters": None, "order": "C"})


def references(path, url, **more):
    """A file of kerchunk references with a variable `x` at a URL, and its coordinate."""
    steps = "base64:" + base64.b64encode(np.arange(64).tobytes()).decode()
    found = {
        ".zgroup": '{"zarr_format":2}',
        "x/.zarray": array("|u1"),
        "n/.zarray": array("<i8"),
        "n/0": steps,
    }
    found |= dict.fromkeys(("x/.zattrs", "n/.zattrs"), '{"_ARRAY_DIMENSIONS":["n"]}')
    path.write_text(json.dumps({"version": 1, "refs": found | {"x/0": [url, 0, 64]} | more}))
    return path


@pytest.fixture
def source(tmp_path):
    """A folder of sources beside a secret, with links that lead to it."""
    folder = tmp_path / "source"
    folder.mkdir()
    for secret in (tmp_path / "secret", folder / "open"):
        secret.write_bytes(SECRET)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to(tmp_path)
    (tmp_path / "source-beside").mkdir()
    (tmp_path / "source-beside/secret").write_bytes(SECRET)
    return folder


def ingested(path, **options):
    report = intarsia.ingest(path, "memory://", concat_dim="n", **options)
    return intarsia.open(report.repository, "x")[...]


OUTSIDE = {
    "plain": "file://{above}/secret",
    "path": "{above}/secret",
    "dots": "file://{folder}/../secret",
    "encoded": "file://{folder}/%2e%2e/secret",
    "link": "file://{folder}/link",
    "linked_folder": "file://{folder}/up/secret",
    "same_beginning": "file://{folder}-beside/secret",
    "bucket": "s3://bucket/secret",
    "server": "https://localhost:1/secret",
}


@pytest.mark.parametrize("options", [{}, {"copy": "all"}, {"load": ["x"]}], ids=str)
@pytest.mark.parametrize("url", OUTSIDE.values(), ids=OUTSIDE)
def test_references_to_files_outside_are_refused(source, url, options):
    path = references(source / "refs.json", url.format(folder=source, above=source.parent))
    with pytest.raises(IngestError, match=r"it refers to .*secret.*outside of .*authorize=\["):
        ingested(path, **options)


@pytest.mark.parametrize("url", ["file://{folder}/open", "file://{folder}/../source/open"])
def test_references_within_the_folder_are_read(source, url):
    path = references(source / "refs.json", url.format(folder=source))
    assert ingested(path).tobytes() == SECRET


@pytest.mark.parametrize("allowed", ["secret", "", True])
@pytest.mark.parametrize("name", ["plain", "dots", "link", "linked_folder"])
def test_authorised_references_are_read_and_point_to_the_file_itself(source, name, allowed):
    path = references(source / "refs.json", OUTSIDE[name].format(folder=source, above=source.parent))
    prefix = True if allowed is True else source.parent / allowed
    report = intarsia.ingest(path, "memory://", concat_dim="n", authorize=prefix)
    assert intarsia.open(report.repository, "x")[...].tobytes() == SECRET
    (chunk,) = next(iter(intarsia.archives.sources(report.repository, "x", at=0))).chunks
    assert chunk.url == f"file://{source.parent}/secret" or name == "dots"


@pytest.mark.parametrize("allowed", ["source-beside", "secret/", "sec", []])
def test_what_is_authorised_is_no_more_than_its_name_says(source, allowed):
    path = references(source / "refs.json", f"file://{source.parent}/secrets")
    (source.parent / "secrets").write_bytes(SECRET)
    with pytest.raises(IngestError, match=r"it refers to .*secrets, outside of"):
        ingested(path, authorize=[str(source.parent / each) for each in [allowed] if each])


def test_variables_that_are_not_wanted_may_be_outside(source):
    more = {"y/.zarray": array("|u1"), "y/.zattrs": '{"_ARRAY_DIMENSIONS":["n"]}'}
    more["y/0"] = [f"file://{source.parent}/secret", 0, 64]
    path = references(source / "refs.json", f"file://{source}/open", **more)
    assert ingested(path, variables=["x"]).tobytes() == SECRET
    with pytest.raises(IngestError, match="secret, outside of"):
        ingested(path)


def test_options_for_each_prefix_are_refused():
    with pytest.raises(IngestError, match="without options of their own"):
        Sources(authorize={"s3://bucket/": {"anonymous": True}})


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize("kind", ["chunk", "folder", "metadata"])
def test_links_out_of_a_zarr_source_are_refused(source, form, kind):
    path = source / "z.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=form)
    names = {"attributes": {"_ARRAY_DIMENSIONS": ["n"]}} if form == 2 else {"dimension_names": ["n"]}
    made = group.create_array("x", shape=64, chunks=64, dtype="u1", compressors=None, **names)
    made[:] = 1
    chunk = path / ("x/0" if form == 2 else "x/c/0")
    moved = {
        "chunk": chunk,
        "folder": path / "x",
        "metadata": path / f"x/{'.zarray' if form == 2 else 'zarr.json'}",
    }
    moved[kind].rename(source.parent / "elsewhere")
    moved[kind].symlink_to(source.parent / "elsewhere")
    for options in ({}, {"copy": "all"}):
        with pytest.raises(IngestError, match=r"which leads to .*elsewhere.*outside of .*z.zarr"):
            ingested(path, **options)
    assert ingested(path, authorize=[source.parent / "elsewhere"]).tolist() == [1] * 64
    assert ingested(path, authorize=True, copy="all").tolist() == [1] * 64


def test_links_within_a_zarr_source_are_followed(source):
    group = zarr.open_group(source / "z.zarr", mode="w")
    made = group.create_array("x", shape=64, chunks=32, dtype="u1", compressors=None, dimension_names=["n"])
    made[:] = 1
    (source / "z.zarr/x/c/1").unlink()
    (source / "z.zarr/x/c/1").symlink_to("0")
    (source.parent / "alias.zarr").symlink_to(source / "z.zarr")
    for path in (source / "z.zarr", source.parent / "alias.zarr"):  # its user named the second link
        assert ingested(path).tolist() == [1] * 64


def test_chunks_may_be_newer_than_one_that_a_link_leads_to(source):
    group = zarr.open_group(source / "z.zarr", mode="w")
    made = group.create_array("x", shape=64, chunks=32, dtype="u1", compressors=None, dimension_names=["n"])
    made[:] = 1
    chunk, old = source / "z.zarr/x/c/1", source.parent / "old"
    chunk.rename(old)
    os.utime(old, (10**9, 10**9))
    chunk.symlink_to(old)
    assert ingested(source / "z.zarr", authorize=True).tolist() == [1] * 64


def test_references_beyond_the_end_of_a_file_are_refused(source):
    (source / "open").write_bytes(SECRET[:40])
    path = references(source / "refs.json", f"file://{source}/open")
    with pytest.raises(IngestError, match=r"source/open is truncated: a chunk of 'x' ends at byte 64"):
        ingested(path)


def test_consolidated_metadata_cannot_name_arrays_outside(source):
    group = zarr.open_group(source / "z.zarr", mode="w", zarr_format=2)
    group.create_array("x", shape=64, chunks=64, dtype="u1", attributes={"_ARRAY_DIMENSIONS": ["n"]})[:] = 1
    (source / "0").write_bytes(SECRET)
    documents = {"../.zarray": json.loads(array("|u1")), "../.zattrs": {"_ARRAY_DIMENSIONS": ["n"]}}
    found = json.dumps(
        {"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}} | documents}
    )
    (source / "z.zarr/.zmetadata").write_text(found)
    with pytest.raises(IngestError, match=r"it cannot be referenced.*\.\."):
        ingested(source / "z.zarr")


def test_a_zip_is_no_source(source):
    with zipfile.ZipFile(source / "z.zip", "w") as file:
        link = zipfile.ZipInfo("x/c/0")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "../../secret")
        file.writestr("../x/zarr.json", "{}")
    with pytest.raises(IngestError, match="it is none of HDF5"):
        ingested(source / "z.zip")


def hdf5(path, name="x", **options):
    with h5py.File(path, "w") as file:
        file["n"] = np.arange(64)
        file["n"].make_scale("n")
        file.create_dataset(name, **({"data": np.full(64, 83, "u1")} | options))
        file[name].dims[0].attach_scale(file["n"])
    return path


def test_a_named_file_that_is_a_link_out_of_its_folder(source):
    hdf5(source.parent / "other.h5")
    (source / "main.h5").symlink_to(source.parent / "other.h5")
    with pytest.raises(IngestError, match=r"main.h5 .which leads to .*other.h5.*outside of"):
        ingested(source / "main.h5")
    report = intarsia.ingest(source / "main.h5", "memory://", concat_dim="n", authorize=source.parent)
    (file,) = intarsia.archives.sources(report.repository, "x", at=0)
    assert file.url.endswith("main.h5")
    assert file.chunks[0].url == f"file://{source.parent}/other.h5"
    assert intarsia.open(report.repository, "x")[...].tobytes() == SECRET


def test_links_may_be_followed_everywhere(source, monkeypatch):
    monkeypatch.setenv("INTARSIA_FOLLOW_LINKS", "1")
    hdf5(source.parent / "other.h5")
    (source / "main.h5").symlink_to(source.parent / "other.h5")
    assert ingested(source / "main.h5").tobytes() == SECRET
    assert ingested(references(source / "refs.json", f"file://{source}/link")).tobytes() == SECRET


def test_external_storage_is_read_if_it_is_authorised(source):
    secret = source.parent / "secret"
    path = hdf5(source / "main.h5", data=None, shape=(64,), dtype="u1", external=[(str(secret), 0, 64)])
    with pytest.raises(IngestError, match=r"'x': its values are in external files.*secret, outside of"):
        ingested(path)
    with pytest.raises(IngestError, match=r"its variable 'x' cannot be read: .*secret"):
        ingested(path, variables=["x"])
    assert ingested(path, authorize=[f"file://{source.parent}/"]).tobytes() == SECRET


def test_the_external_file_prefix_of_hdf5_is_not_guessed(source, monkeypatch):
    monkeypatch.setenv("HDF5_EXTFILE_PREFIX", str(source.parent))
    monkeypatch.chdir(source)
    path = hdf5(source / "main.h5", data=None, shape=(64,), dtype="u1", external=[("open", 0, 64)])
    with pytest.raises(IngestError, match="HDF5_EXTFILE_PREFIX"):
        ingested(path)
    monkeypatch.delenv("HDF5_EXTFILE_PREFIX")
    assert ingested(path).tobytes() == SECRET


def test_the_command_line_and_xarray_take_the_same_word(source, monkeypatch):
    monkeypatch.setenv("INTARSIA_CACHE", str(source.parent / "cache"))
    path = references(source / "refs.json", f"file://{source.parent}/secret")
    command = ["ingest", path, source.parent / "repository", "--concat-dim", "n"]
    assert f"--allow file://{source.parent}/secret allows" in failure(*command, code=4)
    for allowed, name in ((source.parent, "some"), ("all", "every")):
        command[2] = source.parent / name
        assert "1 added" in succeed(*command, "--allow", allowed)
    with pytest.raises(IngestError, match="outside of"):
        xr.open_dataset(os.fspath(path), engine="intarsia", concat_dim="n")
    authorize = [f"file://{source.parent}/"]
    with xr.open_dataset(os.fspath(path), engine="intarsia", concat_dim="n", authorize=authorize) as found:
        assert found.x.values.astype("u1").tobytes() == SECRET


def linked(path, name, start, is_scale=False):
    """A file whose variable is a virtual dataset of another file, in the folder above."""
    with h5py.File(path.parent.parent / "other.h5", "w") as file:
        file["x"] = file["group/x"] = np.arange(4.0)
    with h5py.File(path, "w") as file:
        file["n"] = np.arange(start, start + 4)
        file["n"].make_scale("n")
        file["y"] = np.arange(4.0)
        layout = h5py.VirtualLayout((4,), "f8")
        layout[:] = h5py.VirtualSource("../other.h5", "x", shape=(4,))
        file.create_virtual_dataset(name, layout)
        if is_scale:
            file[name].make_scale(name)
        for each in ("y",) if is_scale else ("y", name):
            file[each].dims[0].attach_scale(file["n"])
    return path


def test_what_cannot_be_read_does_not_become_missing_values(source):
    first, last = source / "1.h5", linked(source / "2.h5", "x", 4)
    with h5py.File(first, "w") as file:
        file["n"] = np.arange(4)
        file["n"].make_scale("n")
        for each in "xy":
            file[each] = np.arange(4.0)
            file[each].dims[0].attach_scale(file["n"])
    options = {"concat_dim": "n", "missing": "fill"}
    with pytest.raises(IngestError, match=r"2\.h5: its variable 'x' cannot be read: .*other\.h5"):
        intarsia.ingest([first, last], "memory://", **options)
    report = intarsia.ingest([last, first], "memory://", **options)
    assert "other.h5" in report.left_out["x"]
    assert intarsia.open(report.repository, "y").shape == (8,)
    for more in ({"variables": ["x", "y"]}, {"load": ["x"]}, {"stack": {"s": ("part", ["x", "y"])}}):
        with pytest.raises(IngestError, match=r"its variable 'x' cannot be read: .*other\.h5"):
            intarsia.ingest(last, "memory://", **options, **more)
    report = intarsia.ingest(last, "memory://", concat_dim="n", variables=["y"])
    assert intarsia.open(report.repository, "y")[...].tolist() == [0, 1, 2, 3]


def test_a_coordinate_that_places_files_must_be_in_them(source):
    path = linked(source / "1.h5", "m", 0, is_scale=True)
    with pytest.raises(IngestError, match=r"its variable 'm' cannot be read: .*other\.h5"):
        intarsia.ingest(path, "memory://", concat_dim="m")


def test_a_virtual_coordinate_of_a_group_above_is_left_out(source):
    path = linked(source / "1.h5", "m", 0, is_scale=True)
    with h5py.File(path, "a") as file:
        file["g/grid"] = np.ones((4, 4))
        for axis, name in enumerate("nm"):
            file["g/grid"].dims[axis].attach_scale(file[name])
    report = intarsia.ingest(path, "memory://", concat_dim="n", source_group="g")
    assert "other.h5" in report.left_out["m"]
    assert intarsia.open(report.repository, "grid").shape == (4, 4)


def test_links_in_groups_are_named(source):
    path = linked(source / "1.h5", "x", 0)
    with h5py.File(path, "a") as file:
        file["bare/link"] = h5py.ExternalLink("../other.h5", "/x")
        file["group"] = h5py.ExternalLink("../other.h5", "/group")
    report = intarsia.ingest(path, "memory://", concat_dim="n", source_group="*")
    assert report.left_out.keys() == {"x", "group", "bare/link"}
    with pytest.raises(
        IngestError,
        match=r"its group 'group' cannot be read: .*'/group' in the file ../other.h5: it refers to",
    ):
        intarsia.ingest(path, "memory://", concat_dim="n", source_group="group")


def test_files_that_are_shown_are_read_if_they_are_authorised(source):
    path = linked(source / "1.h5", "x", 0)
    with h5py.File(path, "a") as file:
        file["link"] = h5py.ExternalLink("../other.h5", "/x")
    words = r"outside of .*if you trust it, authorize=\['file://.*/other\.h5'\]"
    with pytest.raises(IngestError, match=rf"'x' cannot be read: it is a virtual dataset, .*{words}"):
        ingested(path, variables=["x"])
    for allowed in (source.parent, source.parent / "other.h5", True):
        report = intarsia.ingest(path, "memory://", concat_dim="n", authorize=allowed, copy="never")
        assert intarsia.open(report.repository, "x")[...].tolist() == [0, 1, 2, 3]
        assert not report.left_out


@pytest.mark.parametrize("variable", ["HDF5_VDS_PREFIX", "HDF5_EXT_PREFIX"])
def test_other_prefixes_of_hdf5_are_not_guessed(source, monkeypatch, variable):
    monkeypatch.setenv(variable, str(source.parent))
    path = linked(source / "1.h5", "x", 0)
    with h5py.File(path, "a") as file:
        file["link"] = h5py.ExternalLink("../other.h5", "/x")
    report = intarsia.ingest(path, "memory://", concat_dim="n", authorize=True)
    (why,) = report.left_out.values()
    assert f"{variable} says: unset it" in why


def test_a_bucket_is_one_folder(bucket, s3, source):
    url = f"s3://{BUCKET}/a/open"
    obstore.put(bucket, "a/open", SECRET)
    obstore.put(bucket, "b/refs.json", references(source / "refs.json", url).read_bytes())
    assert ingested(f"s3://{BUCKET}/b/refs.json", storage_options=s3).tobytes() == SECRET
    with pytest.raises(IngestError, match=r"it refers to s3://archive/a/open, outside of file://"):
        ingested(source / "refs.json", storage_options=s3)
    assert (
        ingested(source / "refs.json", storage_options=s3, authorize=f"s3://{BUCKET}/a").tobytes() == SECRET
    )
    secret = references(source / "refs.json", f"file://{source}/open").read_bytes()
    obstore.put(bucket, "b/refs.json", secret)
    with pytest.raises(IngestError, match=r"it refers to file://.*/open, outside of s3://archive/"):
        ingested(f"s3://{BUCKET}/b/refs.json", storage_options=s3)


@pytest.mark.parametrize("name", ["a b", "été"])
def test_folders_may_have_any_name(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    group = zarr.open_group(folder / "z.zarr", mode="w")
    made = group.create_array("x", shape=64, chunks=32, dtype="u1", compressors=None, dimension_names=["n"])
    made[:] = 83
    assert ingested(folder / "z.zarr").tobytes() == SECRET
    (folder / "z.zarr/x/c/1").rename(tmp_path / name / "1")
    (folder / "z.zarr/x/c/1").symlink_to(tmp_path / name / "1")
    with pytest.raises(IngestError, match=r"which leads to .*/1\), outside of"):
        ingested(folder / "z.zarr")
    assert ingested(folder / "z.zarr", authorize=folder).tobytes() == SECRET


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("FILE://{above}/secret", "the scheme 'FILE'"),
        ("memory://secret", "the scheme 'memory'"),
        ("file://{folder}/a\0/../../secret", "no name of a file"),
        ("{{{{u}}}}/secret", "must be absolute"),
    ],
)
def test_references_of_no_known_kind_are_refused(source, url, words):
    path = references(source / "refs.json", url.format(folder=source, above=source.parent))
    with pytest.raises(IngestError, match=words):
        ingested(path, authorize=True)


def test_generated_references_are_refused(source):
    path = references(source / "refs.json", f"file://{source}/open")
    generated = [{"key": "x/{{i}}", "url": f"file://{source}/open", "dimensions": {"i": [0]}}]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"gen": generated}))
    with pytest.raises(IngestError, match="generated from a pattern"):
        ingested(path)
