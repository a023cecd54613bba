"""HDF5 files that show other files: every value is h5py's, by path, or it is left out by name."""

import subprocess
import sys

import pytest

from tests.archives.linked_files import CASES, judged


@pytest.mark.parametrize("options", [{}, {"copy": "all"}, {"load": ["x"]}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_file_that_shows_others(tmp_path, name, options):
    assert judged(name, tmp_path / name, **options) == ""


OTHERS_ABOVE = [name for name, case in CASES.items() if case.outside and "secret" not in case.outside]


@pytest.mark.parametrize("authorize", [False, True])
@pytest.mark.parametrize("name", OTHERS_ABOVE)
def test_a_file_that_shows_others_in_a_folder_above(tmp_path, name, authorize):
    options = {"authorize": tmp_path / name} if authorize else {}
    assert judged(name, tmp_path / name, "below", **options) == ""


def test_none_of_them_crashes_when_it_is_read_in_blocks(tmp_path):
    command = [sys.executable, "-m", "tests.archives.linked_files", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout.split()[-1:]}: {done.stderr[-3000:]}"
    assert done.stdout.split() == list(CASES)
