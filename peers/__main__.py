"""Runs tests that other people wrote through our objects, and writes their counts into docs/trust.md.

`python -m peers` runs all suites, `python -m peers "zarr: indexing, reader"` that one; `--write` puts the
table into the page. The tests of zarr come from its source distribution, in the version that is installed;
those of xarray and VirtualiZarr are in their wheels. `differences.toml` has the tests that do not hold here,
with a reason each.
"""

import json
import os
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
WORK = HERE.parent / ".peers"
"""Where sources and packages are kept, so that another run needs no network."""

PAGE = HERE.parent / "docs/trust.md"
BEGIN = "<!-- written by make peers -->\n"
END = "<!-- end of what make peers writes -->\n"
OPTIONS = """[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
faulthandler_timeout = 600
faulthandler_exit_on_timeout = true
python_files = test_*.py xarray_backend.py xarray_zarr.py virtualizarr_files.py
markers =
    flaky
    network
    slow
    skip_if_param
    slow_hypothesis
"""


@dataclass(frozen=True)
class Suite:
    """Tests, and the arrays that they are given."""

    name: str
    what: str
    tests: tuple[str, ...]
    door: str = ""
    differences: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


INDEXING = ("tests/test_indexing.py",)
DRAWS = (
    "test_zdtype_native_roundtrip",
    "test_zdtype_json_roundtrip",
    "test_structured_dtype_never_silently_changes",
)
"""These draw from all registered data types, as if all were zarr's; sometimes they draw one of ours."""
PROPERTIES = ("tests/test_properties.py", *(f"--deselect=tests/test_properties.py::{name}" for name in DRAWS))
CODECS = ("tests/test_codecs", "tests/test_dtype", "tests/test_codec_pipeline.py", "tests/test_array.py")
SUITES = (
    Suite("zarr: indexing, reader", "`intarsia.reader`", INDEXING, "reader", ("zarr: indexing",)),
    *(
        Suite(
            f"zarr: indexing, logical-{members}",
            f"logical arrays of {members} member{'s' * (members > 1)}",
            INDEXING,
            f"logical-{members}",
            ("zarr: indexing", "zarr: logical arrays"),
        )
        for members in (1, 2, 3)
    ),
    *(
        Suite(f"zarr: {name}, {door}", what, tests, door, differences)
        for name, door, what, tests, differences in (
            ("properties", "reader", "`intarsia.reader`", PROPERTIES, ()),
            ("properties", "logical-3", "logical arrays of 3 members", PROPERTIES, ()),
            ("codecs and types", "reader", "`intarsia.reader`", CODECS, ("zarr: codecs and types",)),
        )
    ),
    Suite(
        "zarr: installed",
        "zarr's arrays, with intarsia imported and without it",
        (
            *INDEXING,
            *CODECS,
            "tests/test_dtype_registry.py",
            *PROPERTIES,
            "tests/test_config.py",
            "tests/test_array_stateful.py",
            "tests/test_store/test_stateful.py",
        ),
    ),
    Suite(
        "xarray: CF encodings",
        '`from_xarray` and `engine="intarsia"`',
        (str(HERE / "xarray_backend.py"),),
        "xarray",
        ("xarray: CF encodings",),
        ("xarray.tests.conftest",),
    ),
    Suite(
        "xarray: Zarr",
        'xarray\'s Zarr, and `engine="intarsia"`',
        (str(HERE / "xarray_zarr.py"),),
        "xarray",
        plugins=("xarray.tests.conftest",),
    ),
    Suite(
        "virtualizarr: files",
        "`ingest`: values equal those that xarray reads",
        (str(HERE / "virtualizarr_files.py"),),
        differences=("virtualizarr: files",),
        plugins=("virtualizarr.tests.test_parsers.conftest",),
    ),
)


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True)


def prepare() -> Path:
    """The folder with zarr's sources; beside it, the plugin for pytest that they need."""
    release = f"zarr=={version('zarr')}"
    sources = WORK / release.replace("==", "-")
    if not sources.exists():
        pip("download", "--no-deps", "--no-binary", "zarr", "--dest", str(WORK), release)
        with tarfile.open(f"{sources}.tar.gz") as archive:
            archive.extractall(WORK, filter="data")
    if not (WORK / "packages").exists():
        pip("install", "--no-deps", "--target", str(WORK / "packages"), "pytest-asyncio")
    (WORK / "pytest.ini").write_text(OPTIONS)
    return sources


def differences_of(suite: Suite) -> list[tuple[str, str]]:
    """The patterns of tests that may differ, with a reason each."""
    table = tomllib.loads((HERE / "differences.toml").read_text())
    return [pair for section in suite.differences for pair in table[section].items()]


def outcomes_of(suite: Suite, sources: Path, door: str) -> dict[str, str]:
    """What became of each test of a suite."""
    result = WORK / "result.json"
    result.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HERE / "plugin"), str(WORK / "packages"), *sys.path[1:]]),
        "PEERS_DOOR": door,
        "PEERS_DIFFERENCES": json.dumps(differences_of(suite)),
        "PEERS_RESULT": str(result),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(WORK / "pytest.ini")]
    for plugin in ("through_intarsia", *suite.plugins):
        command += ["-p", plugin]
    command += ["--rootdir", str(HERE)] if suite.plugins else ["--rootdir", str(sources), "-n", "2"]
    done = subprocess.run(
        [*command, *suite.tests], cwd=sources, env=environment, capture_output=True, text=True
    )
    if not result.exists():
        raise SystemExit(done.stdout[-4000:] + done.stderr[-4000:])
    outcomes: dict[str, str] = json.loads(result.read_text())
    if "failed" in outcomes.values():
        print(done.stdout[-8000:])
    return outcomes


def run(suite: Suite, sources: Path) -> Counter[str]:
    """The outcomes of a suite, counted; says which tests failed."""
    print(f"{suite.name} …", flush=True)
    outcomes = outcomes_of(suite, sources, suite.door)
    if not suite.door and not suite.plugins:
        without = outcomes_of(suite, sources, "absent")
        for name in outcomes.keys() | without:
            if outcomes.get(name) != without.get(name) and outcomes.get(name) != "difference":
                outcomes[name] = "failed"
    differ = [name for name, outcome in outcomes.items() if outcome == "difference"]
    for pattern, _ in differences_of(suite):
        if not any(fnmatchcase(name, pattern) for name in differ):
            outcomes[f"{pattern}, which differs no more"] = "failed"
    counts = Counter(outcomes.values())
    print(f"  {dict(counts)}")
    for name, outcome in outcomes.items():
        if outcome == "failed":
            print(f"  failed: {name}")
    return counts


def table(results: dict[Suite, Counter[str]]) -> str:
    """What the page shows."""
    lines = [
        "| tests of | given | pass | differ, explained | skipped there |",
        "|---|---|---:|---:|---:|",
    ]
    for suite, counts in results.items():
        peer = suite.name.split(",")[0]
        lines.append(
            f"| {peer} | {suite.what} | {counts['passed']:,} | {counts['difference']} | {counts['skipped']} |"
        )
    versions = ", ".join(f"{name} {version(name)}" for name in ("zarr", "xarray", "virtualizarr"))
    return "\n".join([*lines, "", f"Made by `make peers`, with {versions}.", ""])


def main(arguments: list[str]) -> int:
    names = [argument for argument in arguments if argument != "--write"]
    suites = [suite for suite in SUITES if not names or suite.name in names]
    WORK.mkdir(exist_ok=True)
    sources = prepare()
    results = {suite: run(suite, sources) for suite in suites}
    text = table(results)
    print(text)
    failed = sum(counts["failed"] for counts in results.values())
    if "--write" in arguments and not names and not failed:
        page = PAGE.read_text()
        head, rest = page.split(BEGIN)
        PAGE.write_text(head + BEGIN + text + END + rest.split(END)[1])
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
