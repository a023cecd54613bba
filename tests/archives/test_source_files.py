"""Sources on disk and on S3: found, read where they are, and missed when they are gone."""

import os
import pickle

import h5py
import numpy as np
import obstore
import pytest

import intarsia
from intarsia.archives import source_files
from intarsia.archives.source_files import ContentIdentity, Sources, url_of
from intarsia.errors import IngestError, ReadError
from intarsia.versions.storage_options import for_obstore, source_options
from tests.archives.files import netcdf
from tests.http_files import serving


def put(bucket, prefix, paths):
    for path in paths:
        obstore.put(bucket, f"{prefix}/{path.name}", path.read_bytes())


def days(folder, count, **options):
    paths = [folder / f"{day:03d}.nc" for day in range(count)]
    return paths, [netcdf(path, day, **options) for day, path in enumerate(paths)]


def test_globs_and_names_give_each_file_once_in_order(tmp_path):
    days(tmp_path, 3)
    (tmp_path / "sub").mkdir()
    netcdf(tmp_path / "sub/x.nc", 5)
    urls = Sources().expand([tmp_path / "*.nc", tmp_path / "001.nc", str(tmp_path / "**/x.nc")])
    assert list(urls) == [url_of(tmp_path / name) for name in ("000.nc", "001.nc", "002.nc", "sub/x.nc")]


def test_names_that_look_like_globs_are_files_if_they_exist(tmp_path):
    values = netcdf(tmp_path / "a[1].nc", 0)
    report = intarsia.ingest(tmp_path / "a[1].nc", tmp_path / "r", concat_dim="time")
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], values)


@pytest.mark.parametrize("name", ["a b.nc", "50%.nc", "day#1?.nc", "été.nc"])
def test_any_character_may_be_in_a_name(tmp_path, name):
    folder = tmp_path / "my data #1"
    folder.mkdir()
    values = netcdf(folder / name, 0)
    report = intarsia.ingest(folder / name, tmp_path / "r", concat_dim="time")
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], values)
    assert report.containers == (f"file://{tmp_path}/",)
    assert intarsia.ingest(folder / name, report.repository, concat_dim="time").of("unchanged")


def test_relative_names_are_made_absolute(tmp_path, monkeypatch):
    values = netcdf(tmp_path / "0.nc", 0)
    monkeypatch.chdir(tmp_path)
    report = intarsia.ingest("0.nc", "repository", concat_dim="time")
    monkeypatch.chdir("/")
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], values)


def test_unknown_schemes_are_refused():
    with pytest.raises(IngestError, match=r"'ftp'.*\n.*s3"):
        intarsia.ingest("ftp://server/x.nc", "memory://", concat_dim="time")


def test_sources_can_be_handed_to_other_processes():
    sources = pickle.loads(pickle.dumps(Sources({"region": "eu-central-1"})))
    assert sources.options == {"region": "eu-central-1"}


def test_a_checksum_never_lies_before_the_last_change(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"x")
    for moment in (1_000_000_000.0, 1_000_000_000.25, 1_000_000_000.999):
        os.utime(path, (moment, moment))
        identity = Sources().identity(url_of(path))
        assert moment <= identity.checksum.timestamp() < moment + 1


def test_equal_content_has_equal_texts_only():
    moment = Sources().identity(url_of(__file__)).modified
    assert ContentIdentity(1, moment).text != ContentIdentity(2, moment).text
    assert ContentIdentity(1, moment, "a").text != ContentIdentity(1, moment, "b").text


def spoilt(how, path):
    if how == "changed":
        later = path.stat().st_mtime + 5
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        os.utime(path, (later, later))
    elif how == "missing":
        path.unlink()
    elif how == "truncated":
        os.truncate(path, path.stat().st_size // 2)


def test_a_chunk_that_cannot_be_decoded_names_its_file(tmp_path):
    paths, _ = days(tmp_path, 2)
    with h5py.File(paths[1]) as file:
        start = file["sst"].id.get_chunk_info(0).byte_offset
    content = bytearray(paths[1].read_bytes())
    content[start : start + 20] = bytes(20)
    paths[1].write_bytes(content)
    report = intarsia.ingest(paths, "memory://", concat_dim="time")
    with pytest.raises(ReadError, match=r"chunk \(1, 0, 0\): .*file://.*001\.nc"):
        intarsia.open(report.repository, "sst")[...]


@pytest.mark.parametrize("how", ["changed", "missing", "truncated"])
def test_a_local_source_that_is_gone_or_changed_is_named_never_filled_in(tmp_path, how):
    paths, values = days(tmp_path, 3)
    report = intarsia.ingest(paths, tmp_path / "r", concat_dim="time")
    spoilt(how, paths[1])
    sst = intarsia.open(report.repository, "sst")
    with pytest.raises(ReadError, match=r"001\.nc"):
        sst[...]
    with pytest.raises(ReadError, match=r"region .*member m-.*chunk \(1, 0, 0\)"):
        sst[1, 2, 3]
    assert np.array_equal(sst[2], values[2][0])  # the others are as good as before


def test_sources_on_s3(tmp_path, s3, bucket):
    paths, values = days(tmp_path, 4, kind="i2", fill=-1, attrs={"scale_factor": 0.5, "add_offset": 200.0})
    put(bucket, "sst/2002", paths[:3])
    options = {"concat_dim": "time", "storage_options": s3}
    report = intarsia.ingest("s3://archive/sst/**/*.nc", tmp_path / "r", **options)
    assert report.containers == ("s3://archive/sst/2002/",)
    sst = intarsia.open(report.repository, "sst")
    assert np.array_equal(sst[...], np.concatenate(values[:3]) * 0.5 + 200)
    put(bucket, "sst/2002", paths)
    again = intarsia.ingest("s3://archive/sst/**/*.nc", report.repository, **options)
    # the same content put again has the same mark: only the fourth is new
    assert [file.status for file in again.files] == ["unchanged"] * 3 + ["added"]
    assert np.array_equal(intarsia.open(again.repository, "sst")[3], values[3][0] * 0.5 + 200)


@pytest.mark.parametrize("how", ["changed", "missing"])
def test_an_s3_source_that_is_gone_or_changed_is_named_never_filled_in(tmp_path, s3, bucket, how):
    paths, values = days(tmp_path, 2)
    put(bucket, how, paths)
    report = intarsia.ingest(
        f"s3://archive/{how}/*.nc", tmp_path / "r", concat_dim="time", storage_options=s3
    )
    sst = intarsia.open(report.repository, "sst")
    assert np.array_equal(sst[...], np.concatenate(values))
    if how == "missing":
        obstore.delete(bucket, f"{how}/001.nc")
    else:
        netcdf(paths[1], 1, values=np.zeros((1, 6, 8)))
        put(bucket, how, paths[1:])
    sst = intarsia.open(report.repository, "sst")
    with pytest.raises(ReadError, match=r"001\.nc"):
        sst[...]
    assert np.array_equal(sst[0], values[0][0])


def test_large_objects_are_read_in_blocks(tmp_path, s3, bucket, monkeypatch):
    paths, values = days(tmp_path, 3, grid=(200, 300))
    put(bucket, "large", paths)
    monkeypatch.setattr(source_files, "WHOLE_BYTES", 1000)
    options = {"concat_dim": "time", "storage_options": s3, "copy": "all"}
    report = intarsia.ingest("s3://archive/large/*.nc", tmp_path / "r", **options)
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(values))


@pytest.mark.parametrize("name", ["0.zarr", "plain", "1959-2022.v2"])
def test_zarr_directories_on_s3(tmp_path, s3, bucket, name):
    import xarray as xr

    data = np.arange(48, dtype="f4").reshape(2, 4, 6)
    xr.Dataset({"sst": (("time", "y", "x"), data)}).to_zarr(tmp_path / "0.zarr", consolidated=False)
    for path in (tmp_path / "0.zarr").rglob("*"):
        if path.is_file():
            obstore.put(bucket, f"z/{name}/{path.relative_to(tmp_path / '0.zarr')}", path.read_bytes())
    report = intarsia.ingest(f"s3://archive/z/{name}", tmp_path / "r", concat_dim="time", storage_options=s3)
    assert np.array_equal(intarsia.open(report.repository, "sst")[...], data)


def test_a_bucket_that_is_not_there_is_a_reason_not_a_crash(tmp_path, s3):
    report = intarsia.ingest(
        "s3://nowhere/x.nc", tmp_path / "r", concat_dim="time", storage_options=s3, errors="skip"
    )
    assert report.failed[0].reason


@pytest.mark.parametrize("options", [{}, {"allow_http": True}], ids=["plain", "allowed"])
def test_sources_over_http(tmp_path, options):
    _, values = days(tmp_path, 2)
    with serving(tmp_path) as root:
        urls = [f"{root}/{day:03d}.nc" for day in range(2)]
        report = intarsia.ingest(urls, tmp_path / "r", concat_dim="time", storage_options=options)
        assert report.containers == (f"{root}/",)
        assert np.array_equal(intarsia.open(report.repository, "sst")[...], np.concatenate(values))


def test_a_web_server_is_not_asked_for_listings(tmp_path):
    netcdf(tmp_path / "daily", 0)
    netcdf(tmp_path / "1.nc", 1)
    with serving(tmp_path) as root:
        urls = [f"{root}/daily", f"{root}/1.nc"]
        report = intarsia.ingest(urls, tmp_path / "r", concat_dim="time")
        (tmp_path / "1.nc").unlink()
        states = [file.state for file in intarsia.archives.sources(report.repository)]
        assert states == ["present", "gone"]
        with pytest.raises(IngestError, match=r"2\.nc: there is no such file"):
            intarsia.ingest(f"{root}/2.nc", report.repository, concat_dim="time")


def test_options_of_sources_are_those_of_repositories_and_others_are_refused():
    asked = {
        "access_key_id": "a", "secret_access_key": "b", "region": "eu-west-1", "requester_pays": True,
        "allow_http": True, "force_path_style": True, "headers": {"x": "y"},
    }  # fmt: skip
    arguments = for_obstore(source_options(asked), "s3")
    client = arguments.pop("client_options")
    assert (client["allow_http"], client["default_headers"]) == (True, {"x": "y"})
    assert arguments.pop("retry_config")
    assert arguments == {
        "access_key_id": "a", "secret_access_key": "b", "region": "eu-west-1", "request_payer": True,
        "virtual_hosted_style_request": False,
    }  # fmt: skip
    assert Sources(asked).resolve("s3://bucket/a.nc")[1] == "a.nc"
    with pytest.raises(IngestError, match=r"no option 'acces_key'; did you mean 'access_key'"):
        Sources({"acces_key": "k"})
    with pytest.raises(IngestError, match="cannot be opened with the options given"):
        Sources({"region": 3}).resolve("s3://bucket/a.nc")


@pytest.mark.parametrize("limit", [source_files.WHOLE_BYTES, 10], ids=["small", "large"])
def test_a_web_server_without_ranges_is_refused_before_anything_is_committed(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(source_files, "WHOLE_BYTES", limit)
    netcdf(tmp_path / "0.nc", 0)
    words = r"0\.nc: its web server ignores the Range header"
    with serving(tmp_path, whole_only=True) as root, pytest.raises(IngestError, match=words):
        intarsia.ingest(f"{root}/0.nc", "memory://", concat_dim="time")
