"""The exception tree and its drawing."""

import pickle
import re

import pytest
from tblib import pickling_support

from intarsia import errors

OWN_ARGUMENTS = {
    errors.ManifestError: (["shape: missing"],),
    errors.ManifestVersionError: (3, 2),
    errors.MissingExtraError: ("xarray", "xarray"),
    errors.ConcurrentUpdateError: ("second year", "main", ["/t: attributes"]),
    errors.NotAuthorizedError: ("no", "s3://archive/"),
}


def drawn_tree():
    """(class, parent, built-ins) as the module's docstring draws them."""
    rows, path = set(), []
    for line in errors.__doc__.splitlines():
        found = re.match(r"^ {4}([ │├└─]*)(\w+Error)(?: \(([\w, ]+)\))?$", line)
        if found:
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            rows.add((found[2], path[depth - 1] if depth else "Exception", found[3] or ""))
    return rows


def test_the_docstring_draws_exactly_the_classes_that_exist():
    classes = [getattr(errors, name) for name in errors.__all__]
    actual = {
        (cls.__name__, cls.__bases__[0].__name__, ", ".join(base.__name__ for base in cls.__bases__[1:]))
        for cls in classes
    }
    assert drawn_tree() == actual


def test_every_error_but_the_root_is_also_a_builtin_error():
    for name in errors.__all__:
        cls = getattr(errors, name)
        assert issubclass(cls, errors.IntarsiaError)
        if cls is not errors.IntarsiaError:
            builtin = {base for base in cls.__mro__ if base.__module__ == "builtins"}
            assert builtin - {Exception, BaseException, object}, name


def test_no_message_holds_what_a_terminal_obeys():
    for kind in (errors.ReadError, errors.RepositoryError, errors.MissingMemberError, errors.IngestError):
        shown = str(kind("a\x1b[31mb\u202ec\nnext\tline \ud800"))
        assert shown == "a\\x1b[31mb\\u202ec\nnext\tline \\ud800"
    assert "\x1b" not in str(errors.ManifestError(["\x1b[2J"]))
    missing = errors.MissingExtraError("xarray", "xarray")
    assert missing.name == "xarray"


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_of_another_process_is_the_same_here(name):
    cls = getattr(errors, name)
    error = cls(*OWN_ARGUMENTS.get(cls, ("a message",)))
    error.row = 3
    error.add_note("in the attributes of /t")
    for prepare in (lambda: None, pickling_support.install):  # as dask does it
        prepare()
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (cls, str(error), vars(error))
        assert getattr(again, "name", None) == getattr(error, "name", None)
