"""The sample arrays of the proposal, written by zarrs: read as they say, rewritten to the byte."""

import json
import shutil
from pathlib import Path

import pytest
import zarr

from intarsia import nullable
from intarsia.nullable import NULL, Some

SAMPLES = Path(__file__).parent / "conformance"
NAMES = ["array_optional", "array_optional_nested"]


def described(path):
    """The rows that the attribute `description` prints, with N and SN as scalars."""
    text = json.loads((path / "zarr.json").read_text())["attributes"]["description"]
    words = {"N": NULL, "SN": Some(NULL)}
    rows = [line.split() for line in text.splitlines()]
    rows = [row for row in rows if row and all(word in words or word.isdigit() for word in row)]
    return [[int(word) if word.isdigit() else words[word] for word in row] for row in rows]


@pytest.mark.parametrize("name", NAMES)
def test_each_element_is_what_the_description_says(name, pipeline):
    path = SAMPLES / f"{name}.zarr/array"
    rows = described(path)
    assert [len(row) for row in rows] == [4] * 4
    z = zarr.open_array(path, mode="r")
    for i, row in enumerate(rows):
        for j, expected in enumerate(row):
            found = z[i, j].item()
            assert found is NULL if expected is NULL else found == expected
    whole = nullable.open_array(path, mode="r").read_nullable()
    assert [[whole[i, j].item() for j in range(4)] for i in range(4)] == rows  # NULL equals itself alone


def test_nested_levels_are_kept_apart():
    read = nullable.open_array(SAMPLES / "array_optional_nested.zarr/array", mode="r").read_nullable()
    assert read.missing.tolist() == [[2, 1, 0, 0], [2, 0, 2, 0], [1, 1, 2, 2], [1, 1, 2, 2]]
    inner, null = [None], None  # [null] and null, as in the fill values of the proposal
    assert read[:2, :2].tolist() == [[null, inner], [null, read.values[1, 1]]]
    assert read[2:].tolist() == [[inner, inner, null, null]] * 2
    assert repr(read[2, 1:3]) == "NullableValues([Some(NULL), NULL], dtype=uint8)"


@pytest.mark.parametrize("name", NAMES)
def test_rewriting_gives_the_same_bytes(name, tmp_path, pipeline):
    sample, copy = SAMPLES / f"{name}.zarr", tmp_path / "copy.zarr"
    shutil.copytree(sample, copy)
    array = nullable.open_array(copy / "array", mode="r+")
    data = array.read_nullable()
    for chunk in (copy / "array/c").rglob("*"):
        if chunk.is_file():
            chunk.unlink()
    array[...] = data
    files = {path.relative_to(sample) for path in sample.rglob("*") if path.is_file()}
    assert files == {path.relative_to(copy) for path in copy.rglob("*") if path.is_file()}
    for file in files:
        assert (copy / file).read_bytes() == (sample / file).read_bytes(), file


@pytest.mark.parametrize("name", NAMES)
def test_an_array_created_alike_has_the_same_files(name, tmp_path, pipeline):
    sample = SAMPLES / f"{name}.zarr"
    data = nullable.open_array(sample / "array", mode="r").read_nullable()
    theirs = json.loads((sample / "array/zarr.json").read_text())
    made = nullable.create_array(
        tmp_path / "made.zarr", "array", data=data, depth=data.depth, chunks=(2, 2), compressors=None,
        fill_value=NULL if data.depth == 1 else Some(NULL), attributes=theirs["attributes"],
        dimension_names=("y", "x"),
    )  # fmt: skip
    assert made.depth == data.depth
    ours = json.loads((tmp_path / "made.zarr/array/zarr.json").read_text())
    packbits = [{"name": "packbits"}]  # one byte has no byte order, which zarrs writes all the same
    for written in (theirs, ours):
        codec = written["codecs"][0]["configuration"]
        while codec["data_codecs"][0]["name"] == "optional":
            assert codec["mask_codecs"] == packbits
            codec = codec["data_codecs"][0]["configuration"]
        codec["data_codecs"][0].pop("configuration", None)
    ours.pop("storage_transformers", None)
    assert ours == theirs
    for chunk in (sample / "array/c").rglob("*"):
        if chunk.is_file():
            made_chunk = tmp_path / "made.zarr" / chunk.relative_to(sample)
            assert made_chunk.read_bytes() == chunk.read_bytes()
