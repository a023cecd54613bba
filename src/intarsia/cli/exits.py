"""What the exit codes mean, and which one an exception leads to."""

from __future__ import annotations

from enum import IntEnum

import icechunk

from intarsia import errors

__all__ = ["CommandError", "Exit", "exit_of"]


class CommandError(ValueError):
    """A mistake on the command line that only shows when the command runs.

    >>> exit_of(CommandError("…")).value
    2
    """


class Exit(IntEnum):
    """Exit codes, for scripts.

    >>> Exit.NOT_FOUND.value, Exit.NOT_FOUND.meaning
    (3, 'the store, array, version or file does not exist')
    """

    OK = 0, "done"
    PROBLEMS = 1, "`verify` found problems"
    USAGE = 2, "the command line is wrong: an option, a selection, a codec that cannot be understood"
    NOT_FOUND = 3, "the store, array, version or file does not exist"
    REFUSED = 4, "it cannot be done as asked: bounds, alignment, overlap, data type, read-only"
    DAMAGED = 5, "the data is damaged, or of a version that this intarsia does not read"
    CONFLICT = 6, "somebody else changed the same thing at the same time; nothing was changed"
    MISSING_EXTRA = 7, "an optional package is not installed; the message names the command"
    STORAGE = 8, "the storage failed: server, credentials, permissions, full disk"
    UNEXPECTED = 70, "an error that intarsia did not expect: please report it"
    INTERRUPTED = 130, "stopped by Ctrl-C; the data is as it was"

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Exit:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


# The first line that fits counts, so a class comes before those it derives from.
CODES: tuple[tuple[tuple[type[BaseException], ...], Exit], ...] = (
    ((KeyboardInterrupt,), Exit.INTERRUPTED),
    ((CommandError,), Exit.USAGE),
    ((errors.MissingExtraError,), Exit.MISSING_EXTRA),
    (
        (
            errors.NotLogicalArrayError,
            errors.RepositoryNotFoundError,
            errors.VersionNotFoundError,
            FileNotFoundError,
        ),
        Exit.NOT_FOUND,
    ),
    (
        (
            errors.ManifestError,
            errors.MemberError,
            errors.MissingMemberError,
            errors.ChunkDecodeError,
            errors.ReadError,
        ),
        Exit.DAMAGED,
    ),
    ((errors.ConcurrentUpdateError, errors.LockTimeoutError, icechunk.ConflictError), Exit.CONFLICT),
    ((errors.RepositoryError,), Exit.STORAGE),
    ((errors.IntarsiaError, FileExistsError), Exit.REFUSED),
    ((OSError, icechunk.IcechunkError), Exit.STORAGE),
)


def exit_of(error: BaseException) -> Exit:
    """The exit code for an exception.

    >>> exit_of(errors.OverlapError("…")).name, exit_of(ZeroDivisionError()).name
    ('REFUSED', 'UNEXPECTED')
    """
    for kinds, code in CODES:
        if isinstance(error, kinds):
            return code
    return Exit.UNEXPECTED
