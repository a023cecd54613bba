"""What becomes of the variables of a file."""

import numpy as np

from intarsia.archives.parsed_file import LOAD_LIMIT, ParsedVariable, ParseRequest, roles


def described(**variables):
    found = {}
    for name, (dims, shape, *rest) in variables.items():
        attrs = rest[0] if rest else {}
        dtype = rest[1] if len(rest) > 1 else "f4"
        found[name] = ParsedVariable(name, "static", tuple(dims.split()), shape, attrs, np.dtype(dtype))
    return found


FILE = described(
    time=("time", (3,), {"bounds": "time_bnds"}),
    time_bnds=("time nv", (3, 2)),
    lat=("y x", (4, 5)),
    lon=("y x", (4, 5)),
    sst=("time y x", (3, 4, 5), {"coordinates": "lat lon", "grid_mapping": "crs"}),
    ice=("time y x", (3, 4, 5)),
    crs=("", ()),
    area=("y x", (4, 5)),
)


def test_coordinates_bounds_and_mappings_are_loaded_and_the_rest_is_data():
    found, left_out, _ = roles(FILE, ParseRequest(("time",)))
    assert found == {
        **dict.fromkeys(("time", "time_bnds"), "concat"),
        **dict.fromkeys(("sst", "ice"), "data"),
        **dict.fromkeys(("lat", "lon", "crs", "area"), "static"),
    }
    assert not left_out


def test_chosen_variables_bring_what_they_refer_to():
    found, *_ = roles(FILE, ParseRequest(("time",), ("sst",)))
    assert set(found) == {"time", "time_bnds", "lat", "lon", "sst", "crs"}
    found, *_ = roles(FILE, ParseRequest(("time",), ("ice", "area")))
    assert found["area"] == "static"
    assert set(found) == {"time", "time_bnds", "ice", "area"}


def test_variables_may_be_loaded_on_request():
    found, *_ = roles(FILE, ParseRequest(("time",), load=("ice",)))
    assert found["ice"] == "concat"


def test_a_file_without_the_dimension_is_one_step():
    found, *_ = roles(described(band=("y x", (4, 5)), time=("", ())), ParseRequest(("time",)))
    assert found == {"band": "data", "time": "concat"}


def test_what_is_left_out_says_why():
    file = described(
        sst=("time x", (2, 3)),
        names=("time", (2,), {}, "S4"),
        huge=("y x", (LOAD_LIMIT, 2)),
    )
    found, left_out, _ = roles(file, ParseRequest(("time",)))
    assert set(found) == {"sst"}
    assert "not supported" in left_out["names"]
    assert "too large" in left_out["huge"]


def test_along_several_dimensions_what_has_all_of_them_is_data():
    file = described(
        v=("t y x", (2, 4, 5)), w=("y x", (4, 5)), y=("y", (4,)), member=("", ()), area=("x", (5,))
    )
    found, *_ = roles(file, ParseRequest(("t", "y", "member")))
    assert found == {"v": "data", "w": "concat", "y": "concat", "member": "concat", "area": "static"}
