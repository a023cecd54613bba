"""When the storage fails: a clear error, in bounded time, and nothing lost."""

import datetime
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.versions.locking import lock_file
from tests.servers import S3Server
from tests.versions.places import create
from tests.versions.proxy import in_front_of


def rows(number, columns=4):
    return np.full((1, columns), number, dtype="int32")


def through(proxy, server):
    return {**server.options, "endpoint_url": proxy.endpoint}


def test_a_server_that_is_down_from_the_start(tmp_path):
    down = S3Server("down", None, 9)
    with pytest.raises(intarsia.errors.RepositoryError, match=r"s3://bucket/prefix: .*\n  Is the server up"):
        intarsia.open_repository("s3://bucket/prefix", **down.options)
    with pytest.raises(intarsia.errors.RepositoryError, match="Is the server up"):
        intarsia.open_repository("s3://bucket/prefix", create=True, **down.options)


def test_a_server_that_goes_down_before_and_within_a_transaction(moto_server):
    location = moto_server.new_location()
    direct = intarsia.open_repository(location, create=True, **moto_server.options)
    create(direct, shape=(0, 400), chunks=(1, 400))
    with in_front_of(moto_server) as proxy:
        repo = intarsia.open_repository(location, **through(proxy, moto_server))
        intarsia.append(repo, "a", rows(1, 400), codecs=[])
        fail = intarsia.transaction(repo, message="never")

        def change():
            with fail as tx:
                proxy.close()
                tx.open("a").append(rows(2, 400))

        with pytest.raises(intarsia.errors.RepositoryError, match="Is the server up"):
            change()
        with pytest.raises(intarsia.errors.RepositoryError, match="Is the server up"):
            intarsia.append(repo, "a", rows(3, 400))
        with pytest.raises(intarsia.errors.RepositoryError, match="Is the server up"):
            intarsia.history(repo, "a")
        with pytest.raises(intarsia.errors.RepositoryError, match="Is the server up"):
            intarsia.open(repo, "a")
    assert intarsia.open(direct, "a")[:, 0].tolist() == [1]
    intarsia.append(direct, "a", rows(4, 400))
    assert intarsia.open(direct, "a")[:, 0].tolist() == [1, 4]


def test_a_server_that_goes_down_right_before_the_commit(moto_server, meddle):
    location = moto_server.new_location()
    direct = intarsia.open_repository(location, create=True, **moto_server.options)
    create(direct)
    with in_front_of(moto_server) as proxy:
        repo = intarsia.open_repository(location, **through(proxy, moto_server))
        meddle(proxy.close)
        with pytest.raises(intarsia.errors.RepositoryError, match="Is the server up"):
            intarsia.append(repo, "a", rows(1), codecs=["gzip"])
    assert intarsia.open(direct, "a").shape == (0, 4)
    assert intarsia.verify(direct) == ()


def test_wrong_credentials(seaweedfs_server):
    location = seaweedfs_server.new_location()
    create(intarsia.open_repository(location, create=True, **seaweedfs_server.options))
    for wrong in ({"secret_access_key": "wrong"}, {"access_key_id": "nobody"}):
        with pytest.raises(intarsia.errors.RepositoryError, match="Check the credentials"):
            intarsia.open_repository(location, **{**seaweedfs_server.options, **wrong})


@pytest.mark.parametrize("kind", ["moto", "seaweedfs"])
def test_a_bucket_that_is_missing(kind, request):
    server = request.getfixturevalue(f"{kind}_server")
    with pytest.raises(intarsia.errors.RepositoryNotFoundError, match="s3://no-such-bucket-here/prefix"):
        intarsia.open_repository("s3://no-such-bucket-here/prefix", **server.options)
    with pytest.raises(intarsia.errors.RepositoryError, match="Create the bucket first"):
        intarsia.open_repository("s3://no-such-bucket-here/prefix", create=True, **server.options)


def in_a_process(code, *arguments):
    """Run code in a process of its own; returns what it printed. Limits and users are for a whole process."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return done.stdout


FULL = """
    import resource, sys
    import numpy as np
    import intarsia

    repo = intarsia.open_repository(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    big = np.random.default_rng(0).integers(0, 1 << 30, (1, 100_000)).astype("int32")

    def in_a_transaction():
        with intarsia.transaction(repo, message="big") as tx:
            tx.open("a").append(big)

    for attempt in (lambda: intarsia.append(repo, "a", big), in_a_transaction):
        try:
            attempt()
        except intarsia.errors.RepositoryError as error:
            print(error)
        else:
            raise SystemExit("that should not have worked")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    intarsia.append(repo, "a", big)
"""


def test_files_that_cannot_grow_any_more(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    create(repo, shape=(0, 100_000), chunks=(1, 100_000))
    intarsia.append(repo, "a", rows(1, 100_000), codecs=[])
    said = in_a_process(FULL, tmp_path / "r")
    assert said.count("does not allow a file of that size") == 2
    array = intarsia.open(repo, "a")
    assert array.shape == (2, 100_000)
    assert (array[0] == 1).all()
    assert intarsia.verify(repo) == ()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if mount is None or os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(repo):
    for number in range(1, 100):
        intarsia.append(repo, "a", rows(number, 100_000), codecs=[])


def test_a_disk_that_is_full(small_disk):
    repo = intarsia.open_repository(small_disk / "r", create=True)
    create(repo, shape=(0, 100_000), chunks=(1, 100_000))
    with pytest.raises(intarsia.errors.RepositoryError, match="The disk is full"):
        fill(repo)
    done = intarsia.open(repo, "a").shape[0]
    assert done > 1
    again = intarsia.open_repository(small_disk / "r")
    assert intarsia.open(again, "a")[:, 0].tolist() == list(range(1, done + 1))
    assert intarsia.verify(again) == ()
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    intarsia.append(repo, "a", rows(done + 1, 100_000))
    assert intarsia.open(again, "a")[:, 0].tolist() == list(range(1, done + 2))


def test_a_file_system_that_becomes_read_only(small_disk):
    """In the middle of a transaction; afterwards, what was there is read, and writing goes on once it may."""
    repo = intarsia.open_repository(small_disk / "r", create=True)
    create(repo, shape=(0, 400), chunks=(1, 400))
    intarsia.append(repo, "a", rows(1, 400), codecs=[])
    slots = zarr.create_array(
        str(small_disk / "s"), shape=8, chunks=(2,), shards=(8,), dtype="i4", compressors=None
    )
    intarsia.shards.slotted(slots)[...] = 1

    def change():
        with intarsia.transaction(repo, message="never") as tx:
            tx.open("a").append(rows(2, 400))
            subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
            tx.open("a").append(rows(3, 400))

    with pytest.raises((intarsia.errors.RepositoryError, intarsia.errors.ReadOnlyError)):
        change()
    with pytest.raises(OSError, match="Read-only"):
        intarsia.shards.slotted(slots)[0:2] = 5
    for attempt in (
        lambda: intarsia.append(repo, "a", rows(4, 400)),
        lambda: intarsia.vacuum(repo, forget_before=datetime.timedelta(0), force=True),
        lambda: intarsia.open_repository(small_disk / "new", create=True),
    ):
        with pytest.raises(intarsia.errors.RepositoryError, match=r"(?i)read-only"):
            attempt()
    again = intarsia.open_repository(small_disk / "r")
    assert intarsia.open(again, "a")[:, 0].tolist() == [1]
    assert intarsia.shards.slotted(slots)[...].tolist() == [1] * 8
    assert intarsia.verify(again) == ()
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    intarsia.append(repo, "a", rows(5, 400))
    intarsia.shards.slotted(slots)[0:2] = 5
    assert intarsia.open(again, "a")[:, 0].tolist() == [1, 5]
    assert intarsia.shards.slotted(slots)[...].tolist() == [5, 5] + [1] * 6


READ_ONLY = """
    import os, sys
    import numpy as np
    import filelock  # whose sources that user may not read
    import intarsia

    location, user = sys.argv[1], int(sys.argv[2])
    row = np.full((1, 4), 2, dtype="int32")

    def in_a_transaction(repo):
        with intarsia.transaction(repo, message="x") as tx:
            tx.open("a").append(row)

    changes = [
        lambda repo: intarsia.append(repo, "a", row),
        lambda repo: intarsia.append(repo, "a", row, codecs=["zstd"]),
        lambda repo: intarsia.write(repo, "a", (0, 0), 9),
        in_a_transaction,
    ]
    # Once where it works: modules that are imported late may be where the other user may not look.
    memory = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(memory) as tx:
        tx.create("a", shape=(0, 4), chunks=(1, 4), dtype="int32")
    for change in changes:
        change(memory)
    assert intarsia.history(memory, "a")
    if user:
        os.setuid(user)
    repo = intarsia.open_repository(location)
    assert intarsia.open(repo, "a")[:, 0].tolist() == [1]
    assert intarsia.history(repo, "a")
    attempts = [lambda change=change: change(repo) for change in changes]
    if sys.argv[3] == "the directory that it is in":
        attempts.append(lambda: intarsia.open_repository(location + "-new", create=True))
    for attempt in attempts:
        try:
            attempt()
        except intarsia.errors.RepositoryError as error:
            print(error)
        else:
            raise SystemExit("that should not have worked")
"""

NOBODY = 65534


@pytest.mark.parametrize("what", ["the repository", "the directory that it is in"])
def test_a_directory_that_is_read_only(what):
    place = Path(tempfile.mkdtemp())  # not below tmp_path, which other users may not enter
    try:
        repo = intarsia.open_repository(place / "r", create=True)
        create(repo)
        intarsia.append(repo, "a", rows(1), codecs=["gzip"])
        place.chmod(0o755)
        for path in [place / "r", *(place / "r").rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        if what == "the repository":
            place.chmod(0o777)
            lock_file(place / "r").chmod(0o666)
        else:
            place.chmod(0o555)
        user = NOBODY if os.geteuid() == 0 else 0
        said = in_a_process(READ_ONLY, place / "r", user, what)
        assert said.lower().count("permission denied") == (4 if what == "the repository" else 5)
        assert intarsia.open(repo, "a")[:, 0].tolist() == [1]
    finally:
        for path in [place, *place.rglob("*")]:
            if path.is_dir():
                path.chmod(stat.S_IRWXU)
        shutil.rmtree(place)
