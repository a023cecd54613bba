"""Icechunk's errors in our words; real ones are in test_faults."""

import icechunk
import pytest

import intarsia
from intarsia.versions.failures import explained

CASES = [
    (icechunk.RepositoryNotFoundError("gone"), intarsia.RepositoryNotFoundError, "create=True"),
    (icechunk.RefNotFoundError("ref not found `x`"), intarsia.VersionNotFoundError, "ref not found `x`"),
    (icechunk.SnapshotNotFoundError("no snapshot"), intarsia.VersionNotFoundError, "no snapshot"),
    (icechunk.ReadOnlyError("read only"), intarsia.ReadOnlyError, "can only be read"),
    (icechunk.StorageError("dispatch failure: timed out"), intarsia.RepositoryError, "Is the server up"),
    (icechunk.StorageError("NoSuchBucket"), intarsia.RepositoryError, "Create the bucket first"),
    (icechunk.StorageError("SignatureDoesNotMatch"), intarsia.RepositoryError, "Check the credentials"),
    (icechunk.StorageError("Permission denied (os error 13)"), intarsia.RepositoryError, "check owner"),
    (icechunk.StorageError("(os error 30)"), intarsia.RepositoryError, "mounted read-only"),
    (icechunk.FormatError("something new"), intarsia.RepositoryError, "something new"),
]


@pytest.mark.parametrize(("error", "kind", "says"), CASES, ids=lambda value: str(value)[:30])
def test_each_becomes_one_of_ours_and_says_what_to_do(error, kind, says):
    with pytest.raises(kind, match="data/store") as caught, explained("data/store"):
        raise error
    assert says in str(caught.value)
    assert caught.value.__cause__ is error


def test_the_chain_of_calls_is_left_out():
    error = icechunk.StorageError("broken\n\ncontext:\n   0: icechunk::refs::fetch_branch")
    with pytest.raises(intarsia.RepositoryError) as caught, explained("here"):
        raise error
    assert str(caught.value) == "here: broken"


def test_conflicts_and_other_errors_pass():
    for error in (icechunk.ConflictError("a", "b"), ValueError("x")):
        with pytest.raises(type(error)), explained("here"):
            raise error
