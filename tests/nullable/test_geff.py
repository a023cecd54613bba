"""Missing values in files written by the geff package and by anndata."""

import anndata
import networkx
import numpy as np
import pandas as pd
import pytest
import zarr

from intarsia.errors import DataTypeError
from intarsia.nullable import NullableValues, create_array, from_geff

pytestmark = [pytest.mark.filterwarnings("ignore")]  # what geff and anndata themselves do with zarr


@pytest.fixture
def geff():
    return pytest.importorskip("geff", exc_type=ImportError)


@pytest.fixture
def tracks(geff, tmp_path):
    graph = networkx.DiGraph()
    graph.add_node(1, t=0, score=0.5, name="first", position=np.array([1.0, 2.0]))
    graph.add_node(2, t=1, position=np.array([3.0, 4.0]))
    graph.add_node(5, t=1, score=0.25, name="third")
    graph.add_edge(1, 2, weight=3)
    graph.add_edge(1, 5)
    geff.write(graph, tmp_path / "tracks.geff", axis_names=["t"], axis_types=["time"], zarr_format=3)
    return tmp_path / "tracks.geff"


def test_what_is_missing_is_null(geff, tracks):
    theirs = geff.GeffReader(tracks)
    theirs.read_node_props()
    theirs.read_edge_props()
    read = theirs.build()
    for of, props in (("nodes", read["node_props"]), ("edges", read["edge_props"])):
        assert props
        for name, prop in props.items():
            ours = from_geff(tracks, name, of=of)
            expected = (
                np.zeros(len(prop["values"]), dtype=bool) if prop["missing"] is None else prop["missing"]
            )
            rows = ours.isnull().reshape(len(expected), -1)
            assert (rows == expected[:, None]).all()
            np.testing.assert_array_equal(ours.values[~expected], prop["values"][~expected])
    assert from_geff(tracks, "score").tolist() == [0.5, None, 0.25]
    assert from_geff(tracks, "t").null_count == 0
    assert from_geff(tracks, "position").shape == (3, 2)
    assert from_geff(tracks, "name").tolist() == ["first", None, "third"]


def test_groups_and_paths(tracks):
    group = zarr.open_group(tracks.parent, mode="r", path="tracks.geff")
    assert from_geff(group, "score").null_count == 1
    assert from_geff(tracks.parent, "score", path="tracks.geff").null_count == 1
    copied = create_array({}, data=from_geff(group, "weight", of="edges"))
    assert copied[:].tolist() == [3, None]


def test_what_is_not_there(tracks):
    with pytest.raises(KeyError, match="nodes/props/speed"):
        from_geff(tracks, "speed")
    with pytest.raises(KeyError, match="faces/props/t"):
        from_geff(tracks, "t", of="faces")


def test_properties_of_different_shapes_are_refused(geff, tmp_path):
    graph = networkx.DiGraph()
    graph.add_node(1, t=0, outline=np.zeros((3, 2)))
    graph.add_node(2, t=1, outline=np.zeros((4, 2)))
    geff.write(graph, tmp_path / "a.geff", axis_names=["t"], zarr_format=3)
    with pytest.raises(DataTypeError, match="an array of its own shape for each"):
        from_geff(tmp_path / "a.geff", "outline")


def test_a_mask_of_another_length_is_refused():
    group = zarr.group({})
    group.create_array("nodes/props/a/values", data=np.arange(3))
    group.create_array("nodes/props/a/missing", data=np.zeros(2, dtype=bool))
    with pytest.raises(DataTypeError, match="missing has shape"):
        from_geff(group, "a")


COLUMNS = {
    "count": pd.array([3, None, 5], dtype="Int32"),
    "big": pd.array([2**63, None, 5], dtype="UInt64"),
    "flag": pd.array([True, None, False], dtype="boolean"),
    "name": pd.array(["a", None, ""], dtype="string"),
    "nan name": pd.array(["a", None, ""], dtype="str"),
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    path = tmp_path_factory.mktemp("anndata") / "cells.zarr"
    obs = pd.DataFrame({**COLUMNS, "plain": [1.0, 2.0, 3.0]}, index=["x", "y", "z"])
    with anndata.settings.override(allow_write_nullable_strings=True, zarr_write_format=3):
        anndata.AnnData(X=np.zeros((3, 1)), obs=obs).write_zarr(path, convert_strings_to_categoricals=False)
    return path


@pytest.mark.parametrize("column", COLUMNS)
def test_the_recipe_for_anndata_reads_what_anndata_reads(column, cells):
    stored = zarr.open_group(cells, mode="r")[f"obs/{column}"]
    ours = NullableValues(stored["values"][:], stored["mask"][:])
    theirs = anndata.read_zarr(cells).obs[column]
    assert ours.isnull().tolist() == theirs.isna().tolist() == [False, True, False]
    assert ours.values[[0, 2]].tolist() == theirs.iloc[[0, 2]].tolist()
    assert create_array({}, data=ours).read_nullable().equals(ours)
