"""Archives of thousands of files, each packed in its own way; benchmarks/packed_archive.py measures them."""

import numpy as np
import pytest
from benchmarks.packed_archive import NAMES, Parser, series

import intarsia

FILES = [30, pytest.param(12_000, marks=pytest.mark.torture)]
MOST_MANIFESTS = 60


@pytest.mark.parametrize("count", FILES)
def test_every_file_has_a_packing_and_every_variable_one_member(tmp_path, count):
    scales, rng = [], np.random.default_rng(0)

    def scale():
        scales.append(rng.uniform(0.001, 0.1))
        return scales[-1]

    repo = intarsia.open_repository(tmp_path / "repository", create=True)
    paths = series(tmp_path / "files", count)
    report = intarsia.ingest(paths, repo, concat_dim="time", copy="never", parser=Parser(scale))
    assert report.summary == f"{count} added"
    repo = report.repository
    assert len(repo.list_manifest_files(repo.lookup_branch("main"))) <= MOST_MANIFESTS
    days = rng.choice(count, min(count, 200), replace=False)
    for i, name in enumerate(NAMES):
        array = intarsia.open(repo, name)
        assert (len(array.manifest.regions), len(array.members)) == (count, 1)
        # one point of every file: its number is 28, and xarray multiplies first
        own = np.array(scales).reshape(count, len(NAMES))[days, i]
        np.testing.assert_array_equal(array.oindex[days, 3, 4], 28.0 * own + 273.15)
