"""HDF5 files that show other files: every value is h5py's, by path, or it is left out by name."""

import subprocess
import sys

import pytest

from tests.archives.linked_files import CASES, judged


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_shows_others(tmp_path, name):
    assert judged(name, tmp_path / name) == ""


def test_none_of_them_crashes_when_it_is_read_in_blocks(tmp_path):
    command = [sys.executable, "-m", "tests.archives.linked_files", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout.split()[-1:]}: {done.stderr[-3000:]}"
    assert done.stdout.split() == list(CASES)
