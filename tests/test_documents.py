"""Every Python block and `intarsia` command of README and docs/ runs, page by page, as for a reader."""

import ast
import os
import re
import runpy
import shlex
import subprocess
import sys
import types
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.inspect.browser import Browser

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "intarsia"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def of_page(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    if "intarsia[grib]" in text:
        pytest.importorskip("gribberish")
    names = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        if block[1] == "python":
            line = text[: block.start(2)].count("\n")
            exec(compile("\n" * line + block[2], str(page), "exec"), names)
        else:
            run_console(block[2])


SCRIPTS = [page for page in PAGES if page.parent.name == "how-to" and "```python" in page.read_text("utf-8")]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.stem == "write-from-a-cluster" else pytest.mark.torture)
        for page in SCRIPTS
    ],
    ids=of_page,
)
def test_a_how_to_page_runs_as_a_saved_script(page, tmp_path):
    """As people use it; in a process of its own, whose workers may import the script again."""
    if page.stem == "a-forecast-archive-in-grib":
        pytest.importorskip("gribberish")
    blocks = [block[2] for block in BLOCK.finditer(page.read_text(encoding="utf-8")) if block[1] == "python"]
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    command = [sys.executable, "-W", "error", "page.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def run_console(block):
    """Run the commands of a block that are ours, and compare what they print; … stands for anything."""
    from tests.cli.program import succeed

    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
        words = shlex.split(command, comments=True)
        if words[0] != "intarsia":
            continue  # make and pip are for people
        printed = succeed(*words[1:])
        if shown:
            expected = re.escape(shown.strip()).replace("…", ".*")
            assert re.fullmatch(expected, printed.strip(), re.DOTALL), f"$ {command}\n{printed}"


def made_pages():
    """Pages of the site that a script makes."""
    sys.path.insert(0, str(ROOT / "docs" / "_site"))
    try:
        return runpy.run_path(str(ROOT / "docs" / "_site" / "generated.py"))["generated"]()
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        made = {"reference/cli.md", "reference/schemas.md", "benchmarks.md"}
        there = (page.parent / target).resolve()
        assert there.exists() or of_page(there).removeprefix("docs/") in made, (
            f"{page.name} links to {target}"
        )


def test_pages_that_are_made_are_complete():
    import intarsia

    pages = made_pages()
    reference = "\n".join(text for path, text in pages.items() if path.startswith("reference/api/"))
    missing = [
        name
        for name in intarsia.__all__
        if not re.search(rf"^::: [\w.]+\.{name}$", reference, re.MULTILINE)
        and not isinstance(getattr(intarsia, name), types.ModuleType)
    ]
    assert missing == []
    for verb in ("info", "ingest", "report"):
        assert f"### intarsia {verb}" in pages["reference/cli.md"]
    assert '"append": {"store": "string"' in pages["reference/cli.md"]
    assert "reference/schemas/manifest.schema.json" in pages


def test_the_picture_of_the_readme_is_drawn_by_the_code():
    drawn = runpy.run_path(str(ROOT / "examples" / "picture.py"))["picture"]()
    kept = (ROOT / "docs" / "assets" / "regions.svg").read_text(encoding="utf-8")

    def content(text):
        """The picture without stored sizes, which depend on the versions of compressors."""
        texts = [node.text or "" for node in ET.fromstring(text).iter()]
        return [re.sub(r"stored in .*|Stored .*|Ratio .*", "", t) for t in texts]

    assert content(drawn) == content(kept)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation as `make docs` builds it; only where the tools for it are installed."""
    pytest.importorskip("mkdocs", reason="the tools for the site are not installed: make docs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    loaded = re.compile(r"<(?:script|link(?! rel=\"canonical\")|img)[^>]+(?:src|href)=\"https?://")
    assert [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []


def test_the_search_of_the_site_works_from_disk(site):
    browser = Browser()
    try:
        browser.open((site / "index.html").as_uri())
        browser.run(
            "(() => { document.querySelector('#__search').click();"
            "const box = document.querySelector('input.md-search__input');"
            "box.focus(); box.value = 'slotted';"
            "for (const kind of ['input', 'keyup']) box.dispatchEvent(new Event(kind, {bubbles: true})); })()"
        )
        found = browser.until("document.querySelector('.md-search-result__item a')?.href", 60)
        assert found.startswith((site / "spec" / "slotted-shards.html").as_uri())
    finally:
        browser.close()


def paths_of_row(row):
    """The files that a row of a table names; a name alone lies in the folder that was named before it."""
    folder = ROOT
    for name in re.findall(r"`([\w./-]+)`", row):
        if name.endswith("/") or re.search(r"\.(py|md|yml)$", name):
            path = ROOT / name if (ROOT / name.split("/")[0]).exists() else folder / name
            folder = path if name.endswith("/") else path.parent
            yield path


def test_contributors_find_every_file_and_every_room_in_the_table():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [path for row in re.findall(r"^\| .*\|$", text, re.MULTILINE) for path in paths_of_row(row)]
    assert [of_page(path) for path in named if not path.exists()] == []
    rooms = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    assert [of_page(room) for room in rooms if not any(p == room or p.parent == room for p in named)] == []


def test_tests_lie_in_the_room_of_what_they_test():
    """`tests/x` holds the tests of `src/intarsia/x`, and the first line of each file says what it shows."""
    tests = ROOT / "tests"
    rooms = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    tested = set()
    for file in tests.rglob("test_*.py"):
        tested.add(file.parent.relative_to(tests))
        assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))), file
    # standard/ and js/ are not of the package; their tests have a room of their own.
    assert tested == (rooms - {Path("schemas")}) | {Path("standard")}


def test_a_name_of_a_file_or_of_a_class_stands_for_one_thing():
    """Who looks for a name finds one file, or one class."""
    rooms_of = {}
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0]
        if not file.name.startswith("__"):
            rooms_of.setdefault(file.name, set()).add(room)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                rooms_of.setdefault(node.name, set()).add(room)
    assert {name: sorted(rooms) for name, rooms in rooms_of.items() if len(rooms) > 1} == {}
