"""GEFF files written by the geff package."""

import networkx
import numpy as np
import pytest
import zarr

from intarsia.errors import DataTypeError
from intarsia.nullable import create_array, from_geff

geff = pytest.importorskip("geff", exc_type=ImportError)

pytestmark = [pytest.mark.filterwarnings("ignore")]  # what geff itself does with zarr


@pytest.fixture
def tracks(tmp_path):
    graph = networkx.DiGraph()
    graph.add_node(1, t=0, score=0.5, name="first", position=np.array([1.0, 2.0]))
    graph.add_node(2, t=1, position=np.array([3.0, 4.0]))
    graph.add_node(5, t=1, score=0.25, name="third")
    graph.add_edge(1, 2, weight=3)
    graph.add_edge(1, 5)
    geff.write(graph, tmp_path / "tracks.geff", axis_names=["t"], axis_types=["time"], zarr_format=3)
    return tmp_path / "tracks.geff"


def test_what_is_missing_is_null(tracks):
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
            rows = ours.is_null().reshape(len(expected), -1)
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
    with pytest.raises(KeyError, match="no property 'speed' of nodes; there are: name, position, score, t"):
        from_geff(tracks, "speed")
    with pytest.raises(ValueError, match="'nodes' and of 'edges'"):
        from_geff(tracks, "t", of="faces")


def test_properties_of_different_shapes_are_refused(tmp_path):
    graph = networkx.DiGraph()
    graph.add_node(1, t=0, outline=np.zeros((3, 2)))
    graph.add_node(2, t=1, outline=np.zeros((4, 2)))
    geff.write(graph, tmp_path / "a.geff", axis_names=["t"], zarr_format=3)
    with pytest.raises(DataTypeError, match="a different shape for every one"):
        from_geff(tmp_path / "a.geff", "outline")


def test_a_mask_of_another_length_is_refused():
    group = zarr.group({})
    group.create_array("nodes/props/a/values", data=np.arange(3))
    group.create_array("nodes/props/a/missing", data=np.zeros(2, dtype=bool))
    with pytest.raises(DataTypeError, match="of missing for values"):
        from_geff(group, "a")
