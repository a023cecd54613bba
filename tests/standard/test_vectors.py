"""The vectors are what their script makes, readers fare as the page says, schemas tell right from wrong."""

import json
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pytest
from standard.vectors import make, run, schemas
from standard.vectors.known import KNOWN
from standard.vectors.vectors import vectors

from tests.standard import javascript


def test_the_script_makes_the_same_bytes_again():
    made = make.everything()
    kept = {
        str(path.relative_to(make.STANDARD)): path.read_bytes()
        for folder in ("vectors/data", "logical-array/examples")
        for path in (make.STANDARD / folder).iterdir()
    }
    assert sorted(made) == sorted(kept)
    assert [name for name in made if made[name] != kept[name]] == []
    assert sum(map(len, made.values())) < 2_000_000


def test_documents_hold_every_byte_and_value_of_the_cases():
    made = {case.path: case for case in make.cases()}
    assert sorted(made) == sorted(vector.path for vector in vectors())
    for vector in vectors():
        assert vector.files == made[vector.path].files
        if not vector.refused and not isinstance(made[vector.path].data_type, dict):
            values, _ = vector.expected
            assert values.tobytes() == made[vector.path].expected.tobytes(), vector.path


def test_nulls_have_their_levels():
    for vector in vectors():
        if vector.refused:
            continue
        values, nulls = vector.expected
        said = vector.content["expected"]
        assert tuple(said["shape"]) == values.shape, vector.path
        levels = np.zeros(values.shape, "u1") if nulls is None else nulls
        for value, level, listed in zip(values.reshape(-1), levels.reshape(-1), said["values"], strict=True):
            depth = 0
            while isinstance(listed, list):
                listed, depth = listed[0], depth + 1
            if level:
                assert listed is None, vector.path
                assert depth == level - 1, vector.path
            else:
                number = float(listed) if isinstance(listed, str) and values.dtype.kind == "f" else listed
                same = value == number or (value != value and number != number)
                assert same, vector.path


def kept_cells(name):
    """What the page says of a reader, by family."""
    lines = [line for line in run.PAGE.read_text().splitlines() if line.startswith("| ")]
    column = [title.strip() for title in lines[0].split("|")].index(name)
    return dict(zip(run.FAMILIES, (line.split("|")[column].strip() for line in lines[1:]), strict=True))


@pytest.mark.parametrize("name", run.readers.READERS)
def test_a_reader_fares_as_the_page_says(name):
    if name == "TensorStore" and version("tensorstore") < "0.1.86":
        pytest.skip("the page is about TensorStore 0.1.86 and later")
    if name == "GDAL" and find_spec("rasterio") is None:
        pytest.skip("GDAL comes with rasterio, which is not installed")
    found = run.outcomes(name)
    assert run.unexpected(name, found) == []
    assert {family: run.cell(name, family, found) for family in run.FAMILIES} == kept_cells(name)


def test_the_reader_in_javascript_fares_as_the_page_says():
    javascript.modules()
    found = run.javascript()
    assert run.unexpected(run.JAVASCRIPT, found) == []
    assert {f: run.cell(run.JAVASCRIPT, f, found) for f in run.FAMILIES} == kept_cells(run.JAVASCRIPT)


def test_the_page_has_the_words_of_its_template():
    head, tail = (make.STANDARD / "vectors" / "page.md").read_text().split("<!-- table -->\n")
    page = run.PAGE.read_text()
    assert page.startswith(head)
    assert page.endswith(tail)
    assert all(f"{i}. {name}: {why}" in page for name in KNOWN for i, (why, _) in KNOWN[name].items())


@pytest.mark.parametrize("family", run.FAMILIES[:-1])
def test_schemas_accept_every_vector_and_refuse_those_that_are_wrong_by_them(family):
    for vector in vectors():
        if vector.family == family:
            by_schema = vector.refused is not None and vector.refused["by"] == "schema"
            assert bool(schemas.problems(vector.metadata)) == by_schema, vector.path


def test_examples_of_the_convention_are_valid():
    for example in (make.STANDARD / "logical-array" / "examples").glob("*.json"):
        assert schemas.problems(json.loads(example.read_text())) == [], example.name
