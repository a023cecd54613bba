"""Opening repositories: wherever they are, and what is said when they are not."""

import os
import subprocess
import sys

import icechunk
import pytest
from numcodecs import zstd

import intarsia
from intarsia._compat import storage_path, storage_text
from tests.http_files import serving
from tests.versions.places import create, memory
from tests.versions.processes import together


def test_a_path_and_a_file_url_are_the_same_repository(tmp_path):
    create(intarsia.open_repository(tmp_path / "r", create=True))
    assert intarsia.open(intarsia.open_repository(str(tmp_path / "r")), "a").shape == (0, 4)
    assert intarsia.open(intarsia.open_repository(f"file://{tmp_path}/r"), "a").shape == (0, 4)


def test_a_path_with_spaces_and_percent_signs(tmp_path):
    create(intarsia.open_repository(tmp_path / "a b%20c", create=True))
    assert (tmp_path / "a b%20c" / "repo").is_file()
    assert intarsia.open(f"file://{tmp_path}/a%20b%2520c", "a").shape == (0, 4)


def test_directories_are_made_as_needed(tmp_path):
    intarsia.open_repository(tmp_path / "deep" / "er" / "r", create=True)
    assert (tmp_path / "deep" / "er" / "r" / "repo").is_file()


def test_create_opens_what_is_there(tmp_path):
    create(intarsia.open_repository(tmp_path / "r", create=True))
    assert intarsia.open(intarsia.open_repository(tmp_path / "r", create=True), "a").shape == (0, 4)


def open_or_create(location):
    repo = intarsia.open_repository(location, create=True)
    return repo.lookup_branch("main")


def test_two_processes_may_create_it_at_once(tmp_path):
    tips = together(open_or_create, [(str(tmp_path / "r"),)] * 3)
    assert len(set(tips)) == 1


def test_a_named_memory_is_shared_within_the_process():
    name = f"memory://{os.urandom(8).hex()}"
    create(intarsia.open_repository(name, create=True))
    assert intarsia.open(name, "a").shape == (0, 4)
    with pytest.raises(intarsia.errors.RepositoryNotFoundError):
        intarsia.open_repository("memory://")


def test_an_open_repository_is_returned_as_it_is_and_takes_no_options():
    repo = memory()
    assert intarsia.open_repository(repo) is repo
    with pytest.raises(TypeError, match="reopen"):
        intarsia.open_repository(repo, region="x")


@pytest.fixture
def served(tmp_path):
    """A directory over HTTP."""
    with serving(tmp_path) as url:
        yield tmp_path, url


def test_http_is_for_reading(served):
    directory, url = served
    repo = intarsia.open_repository(directory / "r", create=True)
    create(repo)
    intarsia.append(repo, "a", [[1, 2, 3, 4]], codecs=["gzip"])
    remote = intarsia.open_repository(f"{url}/r")
    assert intarsia.open(remote, "a")[...].tolist() == [[1, 2, 3, 4]]
    assert intarsia.verify(remote) == ()
    with pytest.raises(intarsia.errors.ReadOnlyError, match="can only be read"):
        intarsia.append(remote, "a", [[1, 2, 3, 4]])
    with pytest.raises(intarsia.errors.ReadOnlyError, match="no repository can be created over HTTP"):
        intarsia.open_repository(f"{url}/new", create=True)
    with pytest.raises(intarsia.errors.RepositoryNotFoundError):
        intarsia.open_repository(f"{url}/nowhere")


def test_s3_takes_its_settings_from_the_environment(moto_server, monkeypatch):
    location = moto_server.new_location()
    create(intarsia.open_repository(location, create=True, **moto_server.options))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anything")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    assert intarsia.open(location, "a").shape == (0, 4)
    assert storage_text(intarsia.open_repository(location).storage) == location


def test_nothing_there_says_how_to_create_it(tmp_path):
    with pytest.raises(intarsia.errors.RepositoryNotFoundError, match="create=True"):
        intarsia.open_repository(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "mine.txt").write_text("mine")
    with pytest.raises(intarsia.errors.RepositoryError, match="holds something else"):
        intarsia.open_repository(tmp_path / "r", create=True)
    assert [p.name for p in (tmp_path / "r").iterdir()] == ["mine.txt"]


def test_unknown_schemes_and_options_are_named():
    with pytest.raises(ValueError, match=r"paths or at file://.*s3://"):
        intarsia.open_repository("ftp://host/r")
    with pytest.raises(TypeError, match=r"no option 'regoin'; did you mean 'region'"):
        intarsia.open_repository("s3://bucket/prefix", regoin="x")
    with pytest.raises(TypeError, match="no option 'region'; there are none"):
        intarsia.open_repository("somewhere", region="x")
    with pytest.raises(ValueError, match="bucket and a prefix"):
        intarsia.open_repository("s3://bucket")


def test_configuration_is_merged_with_what_is_stored(tmp_path):
    config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=77)
    intarsia.open_repository(tmp_path / "r", create=True, config=config).save_config()
    assert intarsia.open_repository(tmp_path / "r").config.inline_chunk_threshold_bytes == 77


def test_limits_of_icechunks_caches_hold_for_handles_that_may_read_more(tmp_path):
    config = icechunk.RepositoryConfig(caching=icechunk.CachingConfig(num_snapshot_nodes=1_000))
    for options in ({"create": True}, {}, {"authorize": True}):
        repo = intarsia.open_repository(tmp_path / "r", config=config, **options)
        assert repo.config.caching.num_snapshot_nodes == 1_000
    assert intarsia.archives.authorize(repo, True).config.caching.num_snapshot_nodes == 1_000


def test_icechunks_printed_form_tells_where_a_storage_is(tmp_path):
    """Pins what `_compat` reads from it."""
    assert storage_path(icechunk.local_filesystem_storage(str(tmp_path))) == str(tmp_path)
    assert storage_path(icechunk.in_memory_storage()) is None
    assert storage_text(icechunk.in_memory_storage()) == "the repository in memory"
    s3 = icechunk.s3_storage(bucket="b", prefix="p", anonymous=True, region="r")
    assert storage_text(s3) == "s3://b/p"
    assert storage_text(icechunk.gcs_storage(bucket="b", prefix="p", from_env=True)) == "gs://b/p"
    assert storage_text(icechunk.http_storage("http://127.0.0.1:1/x")) == "http://127.0.0.1:1/x"


QUIET = """
import sys, intarsia
repo = intarsia.open_repository(sys.argv[1], create=True)
with intarsia.transaction(repo, message="x") as tx:
    tx.create("a", shape=(1,), chunks=(1,), dtype="u1")
"""


def run_quiet(tmp_path, **environment):
    variables = {k: v for k, v in os.environ.items() if k != "ICECHUNK_LOG"} | environment
    command = [sys.executable, "-c", QUIET, str(tmp_path / "r")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    return done.stdout + done.stderr


def test_local_repositories_do_not_warn_of_what_the_lock_prevents(tmp_path):
    assert run_quiet(tmp_path) == ""


def test_a_log_filter_of_the_users_own_is_kept(tmp_path):
    assert "not safe for concurrent commits" in run_quiet(tmp_path, ICECHUNK_LOG="warn")


def test_a_file_at_which_icechunk_panics_is_refused_in_words(tmp_path):
    """A Rust library that panics must not be met as anything but an error of ours."""
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo) as tx:
        tx.create("a", shape=(2,), chunks=(2,), dtype="i4")
    snapshot = tmp_path / "r" / "snapshots" / repo.lookup_branch("main")
    plain, panics = snapshot.read_bytes(), 0
    header, content = plain[:39], bytes(zstd.decompress(plain[39:]))
    for at in range(80, 100, 4):  # a length or an offset in the tables that Icechunk looks through
        snapshot.write_bytes(header + zstd.compress(content[:at] + b"\xff\xff\xff\x7f" + content[at + 4 :]))
        try:
            intarsia.open(intarsia.open_repository(tmp_path / "r"), "a")
        except intarsia.IntarsiaError as error:
            panics += "cannot make sense of a file" in str(error)
    assert panics
