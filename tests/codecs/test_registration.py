"""Arrays open without importing intarsia, in an environment with nothing but zarr and intarsia."""

import json
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zarr
from jsonschema import Draft202012Validator

from intarsia.codecs import OffsetCodec, PackBitsCodec, PadCodec, ShuffleCodec, configuration

CODECS = [
    ["bytes", PadCodec(location="start", nbytes=3, padding=b"abc")],
    ["bytes", OffsetCodec(offset=5)],
    ["bytes", ShuffleCodec(element_size=2)],
    [PackBitsCodec(last_bit=9)],
]


@pytest.mark.parametrize("codecs", CODECS, ids=lambda codecs: type(codecs[-1]).__name__)
def test_opening_needs_no_import_of_intarsia(codecs, tmp_path):
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}} if c == "bytes" else c for c in codecs]
    z = zarr.create(store=tmp_path / "a", shape=20, chunks=8, dtype="u2", codecs=codecs)
    z[:] = np.arange(20)
    script = textwrap.dedent(f"""
        import sys, zarr
        assert "intarsia" not in sys.modules
        z = zarr.open({str(tmp_path / "a")!r})
        assert z[:].tolist() == list(range(20))
        assert "intarsia" in sys.modules
    """)
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_the_package_needs_only_its_declared_dependencies(tmp_path):
    """Runs in a process that can see the declared core dependencies and nothing else of the test tools."""
    hidden = ["xarray", "dask", "pandas", "pyarrow", "polars", "tensorstore", "typer", "rich", "h5py",
              "virtualizarr", "obstore", "hypothesis", "pytest", "tifffile", "imagecodecs"]  # fmt: skip
    pad = {"location": "end", "nbytes": 3, "padding": "YWJj"}
    z = zarr.create(
        store=tmp_path / "a", shape=9, dtype="u1",
        codecs=[{"name": "bytes"}, {"name": "pad", "configuration": pad}],
    )  # fmt: skip
    z[:] = 7
    script = textwrap.dedent(f"""
        import sys
        for name in {hidden!r}:
            sys.modules[name] = None  # importing it raises ImportError
        import zarr
        assert zarr.open({str(tmp_path / "a")!r})[:].tolist() == [7] * 9
        import intarsia
    """)
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_every_codec_entry_point_loads():
    ours = [e for e in entry_points(group="zarr.codecs") if e.value.startswith("intarsia.")]
    assert ours
    for entry in ours:
        entry.load()


@pytest.mark.parametrize("name", configuration.TYPES)
def test_the_types_of_configurations_name_the_same_options_as_the_schemas(name):
    standard = Path(__file__).parents[2] / "standard"
    of_codecs = json.loads((standard / "schemas.json").read_text())["codecs"]
    path = standard / of_codecs[name.removeprefix("zarrs.")]
    schema = json.loads(path.read_text())
    Draft202012Validator.check_schema(schema)
    of_schema = schema["properties"]["configuration"]
    fields = msgspec.structs.fields(configuration.TYPES[name])
    assert {field.name for field in fields} == of_schema["properties"].keys()
    assert {field.name for field in fields if field.required} == set(of_schema.get("required", []))
