"""Which JSON Schema speaks about which part of a vector."""

import json
from functools import cache
from pathlib import Path

from jsonschema import Draft202012Validator

STANDARD = Path(__file__).parent.parent
LISTS = ("codecs", "mask_codecs", "data_codecs", "index_codecs")


@cache
def listed():
    """The schemas by what they speak about: `schemas.json`."""
    return json.loads((STANDARD / "schemas.json").read_text())


@cache
def validator(path):
    return Draft202012Validator(json.loads((STANDARD / path).read_text()))


def manifest_schema(name):
    """A validator of manifests alone, by a schema that ships with the package."""
    return validator(f"../src/intarsia/schemas/{name}.schema.json")


def parts(metadata):
    """Every part of a metadata document that a schema speaks about, with its schema."""
    if metadata["node_type"] == "group":
        yield listed()["group"], metadata
        return
    data_type = metadata["data_type"]
    if isinstance(data_type, dict) and data_type["name"] in listed()["data_types"]:
        yield listed()["data_types"][data_type["name"]], data_type
    yield from _codecs(metadata["codecs"])


def _codecs(codecs):
    for codec in codecs if isinstance(codecs, list) else ():
        if not isinstance(codec, dict):
            continue
        configuration = codec.get("configuration", {})
        name = codec.get("name")
        if name == "optional" and "codecs" in configuration:  # the older name of another codec
            name = "conditional"
        elif name == "zarrs.optional":
            name = "optional"
        if name in listed()["codecs"]:
            yield listed()["codecs"][name], {**codec, "name": name}
        for field in LISTS:
            yield from _codecs(configuration.get(field))


def problems(metadata):
    """Everything that the schemas find wrong with a metadata document."""
    return [
        error.message for schema, part in parts(metadata) for error in validator(schema).iter_errors(part)
    ]
