"""The reader in JavaScript: its packages, fetched once where npm reaches its registry, and node."""

import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parent.parent.parent
JS = ROOT / "js"
PACKAGES = ("zarrita", "ajv", "typescript", "@earthmover/icechunk")
# Icechunk's WebAssembly runs where its native code does not; npm takes it for another machine's.
WEBASSEMBLY = "@earthmover/icechunk-wasm32-wasi"
INSTALL = [
    "install",
    "--silent",
    "--no-audit",
    "--no-fund",
    "--no-package-lock",
    "--fetch-retries=0",
    "--prefix",
    ".",
]


def program(name):
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on this machine, so no tests of the reader in JavaScript")
    return found


def modules(*, icechunk=False):
    """The packages of `js/`; skips where they cannot be had."""
    npm, _ = program("npm"), program("node")
    name = sha256(str(JS).encode()).hexdigest()[:16]
    with FileLock(Path(tempfile.gettempdir()) / f"intarsia-npm-{name}.lock"):
        if not all((JS / "node_modules" / package).is_dir() for package in PACKAGES):
            _install([npm, *INSTALL])
        if icechunk and not (JS / "node_modules" / WEBASSEMBLY).is_dir():
            _install([npm, *INSTALL, "--no-save", "--force", WEBASSEMBLY])
    return JS / "node_modules"


def _install(command):
    try:
        ran = subprocess.run(command, cwd=JS, capture_output=True, text=True, timeout=180, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not get the packages of js/: no network")
    if ran.returncode:
        pytest.skip(f"npm does not get the packages of js/: {ran.stderr.strip()[:200]}")


def node(*arguments, **options):
    """Run node in `js/`, and give what it prints."""
    modules()
    return run([program("node"), *map(str, arguments)], **options)


def run(command, **options):
    ran = subprocess.run(command, cwd=JS, capture_output=True, text=True, timeout=250, check=False, **options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
