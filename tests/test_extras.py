"""Optional packages: what is missing is named, and only where it is missing."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from intarsia import errors
from intarsia.errors import MissingExtraError, install_command
from intarsia.extras import import_extra


def test_a_module_is_imported():
    assert import_extra("math", "xarray").pi > 3


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore.store", None)  # as if it were not installed
    with pytest.raises(MissingExtraError, match=r"^obstore is not installed: pip install '.*\[virtual\]'$"):
        import_extra("obstore.store", "virtual")


def test_the_command_installs_from_a_checkout_only_where_there_is_one(tmp_path):
    def command(folder):
        copy = tmp_path / folder / "errors.py"
        copy.parent.mkdir(parents=True)
        copy.write_text(Path(errors.__file__).read_text("utf-8"), "utf-8")
        spec = importlib.util.spec_from_file_location("a_copy", copy)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return str(module.MissingExtraError("dask", "dask"))

    assert command("lib/site-packages/intarsia") == "dask is not installed: pip install 'intarsia[dask]'"
    (tmp_path / "pyproject.toml").touch()
    assert command("src/intarsia") == "dask is not installed: pip install '.[dask]'"


def test_an_extra_is_not_blamed_for_what_an_installed_package_lacks(tmp_path, monkeypatch):
    (tmp_path / "a_broken_parser.py").write_text("import what_it_needs\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_needs") as caught:
        import_extra("a_broken_parser", "virtual")
    assert not isinstance(caught.value, MissingExtraError)


BLOCK = """
import sys
sys.modules.update(dict.fromkeys(BLOCKED))  # as if they were not installed
import intarsia
"""

ASK = """
array = intarsia.create({}, "a", shape=(2,), chunks=(2,), dtype="u1")
for call in (
    array.to_dask,
    lambda: intarsia.store_dask(None, {}),
    array.to_xarray,
    lambda: intarsia.from_xarray(None, {}),
    intarsia.progress_bar().__enter__,
):
    try:
        call()
    except intarsia.errors.MissingExtraError as error:
        print(error)
"""

WRITE_AND_OPEN = """
import xarray as xr
store = {}
intarsia.from_xarray(xr.Dataset({"v": ("x", [1, 2])}), store)
print(xr.open_dataset(store, engine="intarsia")["v"].values.tolist())
"""


def run(blocked, program):
    text = BLOCK.replace("BLOCKED", repr(blocked)) + program
    answer = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return answer.stdout.splitlines()


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    assert run(["dask", "distributed", "rich", "xarray"], ASK) == [
        f"{package} is not installed: {install_command(name)}"
        for package, name in [("dask", "dask")] * 2 + [("xarray", "xarray")] * 2 + [("rich", "cli")]
    ]


def test_datasets_are_written_and_opened_without_dask():
    assert run(["dask", "distributed"], WRITE_AND_OPEN) == ["[1, 2]"]
