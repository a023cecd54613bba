"""Optional packages: what is missing is named, and only where it is missing."""

import sys

import pytest

from intarsia.errors import MissingExtraError
from intarsia.extras import extra


def test_a_module_is_imported():
    assert extra("math", "xarray").pi > 3


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore.store", None)  # as if it were not installed
    with pytest.raises(MissingExtraError, match=r"^obstore is not .*: pip install 'intarsia\[virtual\]'$"):
        extra("obstore.store", "virtual")


def test_an_extra_is_not_blamed_for_what_an_installed_package_lacks(tmp_path, monkeypatch):
    (tmp_path / "a_broken_parser.py").write_text("import what_it_needs\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_needs") as caught:
        extra("a_broken_parser", "virtual")
    assert not isinstance(caught.value, MissingExtraError)
