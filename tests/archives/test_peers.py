"""Our column of the table that compares programs on the same files: equal in every row."""

import pytest
from examples import peers
from examples.archives import aodn_like, mur_like

ARCHIVES = {
    "scales": (aodn_like, "sea_surface_temperature"),
    "eras": (lambda folder: mur_like(folder, days=1), "analysed_sst"),
    "skipped": (peers.skipped_filters, "values"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_every_archive_of_the_table_is_read_right(name, tmp_path):
    make, variable = ARCHIVES[name]
    files = make(tmp_path / name)
    expected = peers.expected_of(files, variable)
    assert peers.outcome(lambda: peers.by_intarsia(files, variable, tmp_path), expected) == "equal"


def test_no_run_of_store_dask_loses_values(tmp_path):
    assert peers.dask_to_intarsia(tmp_path) == f"equal in {peers.RUNS} of {peers.RUNS} runs"
