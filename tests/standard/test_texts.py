"""The texts in `standard/` are true: examples fit the schemas, dumps the bytes, and links lead somewhere."""

import base64
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from standard.vectors import schemas
from standard.vectors.generate.headers import TIFF
from standard.vectors.unpack import write_samples
from standard.vectors.vectors import vector

from tests.standard import javascript

STANDARD = Path(schemas.STANDARD)
TEXTS = sorted(path for path in STANDARD.rglob("*.md") if path.name != "page.md")
HOUSE_FORM = ["Configuration parameters", "Format and algorithm", "Supported data types", "Compatibility"]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(STANDARD)))
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target
    hosts = set(re.findall(r"https?://([^/)\s]+)", path.read_text()))
    assert hosts <= {"creativecommons.org", "github.com", "google.github.io", "raw.githubusercontent.com"}


@pytest.mark.parametrize("folder", ["conditional", "pad", "optional/codec", "optional/data-type"])
def test_examples_fit_the_schema_beside_them(folder):
    text = (STANDARD / folder / "README.md").read_text()
    found = 0
    for block in re.findall(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        document = json.loads(block)
        for part in document.get("codecs", [document]):
            assert [*schemas.validator(f"{folder}/schema.json").iter_errors(part)] == []
            found += 1
    assert found


@pytest.mark.parametrize("folder", ["conditional", "pad", "optional/codec"])
def test_codecs_have_the_form_of_the_registry(folder):
    text = (STANDARD / folder / "README.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    wanted = ["Codec name", *HOUSE_FORM, "Change log", "Current maintainers"]
    assert [heading for heading in headings if heading in wanted] == wanted


def test_registries_are_sent_sample_data(tmp_path):
    write_samples(tmp_path)
    for folder in ("conditional", "pad", "packbits", "optional/codec"):
        assert "`sample_data/` holds arrays" in (tmp_path / folder / "README.md").read_text()
        assert (tmp_path / folder / "schema.json").exists()
        samples = sorted((tmp_path / folder / "sample_data").glob("*.zarr"))
        assert len(samples) >= 3
        for sample in samples:
            expected = json.loads(sample.with_suffix(".json").read_text())
            assert json.loads((sample / "zarr.json").read_text())["shape"] == expected["shape"]


def test_the_dump_of_the_tiff_header_is_that_of_its_base64():
    text = (STANDARD / "pad" / "README.md").read_text()
    stored = base64.b64decode(re.search(r'"padding": "([^"]+)"', text)[1])
    dump = "".join(re.findall(r"^[0-9a-f]{8}: (.*)$", text, re.MULTILINE))
    assert bytes.fromhex(dump) == stored == TIFF
    assert len(stored) == 110


def test_the_convention_gives_the_head_that_the_template_asks_for():
    text = (STANDARD / "logical-array" / "README.md").read_text()
    for field in (
        "UUID",
        "Name",
        "Schema URL",
        "Spec URL",
        "Scope",
        "Extension Maturity Classification",
        "Owner",
    ):
        assert re.search(rf"^- \*\*{field}\*\*: \S", text, re.MULTILINE), field
    from intarsia.manifest.document import MANIFEST_KEY, convention

    entry = json.loads(re.search(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1])
    (said,) = entry["zarr_conventions"]
    assert said.items() <= convention(1).items()
    assert said["name"] == MANIFEST_KEY


def test_the_schema_of_the_convention_is_that_of_the_manifests():
    ours = json.loads((STANDARD / "logical-array" / "schema.json").read_text())["$defs"]
    for name, version in (("manifest", "version1"), ("manifest-2", "version2")):
        shipped = json.loads((files("intarsia") / "schemas" / f"{name}.schema.json").read_text())
        fields = ("type", "properties", "required")
        assert {key: ours[version][key] for key in fields} == {key: shipped[key] for key in fields}
        assert ours.items() >= shipped["$defs"].items()


def test_the_validator_tells_right_from_wrong(tmp_path):
    modules = javascript.modules()
    for name in ("validate.js", "schema.json", "package.json"):
        (tmp_path / name).write_bytes((STANDARD / "logical-array" / name).read_bytes())
    (tmp_path / "node_modules").symlink_to(modules)
    examples = sorted((STANDARD / "logical-array" / "examples").glob("*.json"))
    printed = javascript.node(tmp_path / "validate.js", *examples)
    assert printed.count(": valid") == len(examples) == 4
    wrong = vector("manifest-1/refused-generation").node / "zarr.json"
    with pytest.raises(AssertionError, match="generation: must be >= 0"):
        javascript.node(tmp_path / "validate.js", wrong)
