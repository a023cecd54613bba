"""Every exception that intarsia raises on purpose, for callers who want to catch one.

Each class is also the built-in exception that a caller would expect, so
`except ValueError` works as well as `except IntarsiaError`::

    IntarsiaError
    ├── CodecConfigurationError (ValueError)
    ├── ChunkEncodeError (ValueError)
    ├── ChunkDecodeError (ValueError)
    ├── ChunkIndexUnknownError (LookupError)
    ├── MissingExtraError (ImportError)
    ├── ManifestError (ValueError)
    │   └── ManifestVersionError
    ├── NotLogicalArrayError (KeyError)
    │   └── MissingGroupError (FileNotFoundError)
    ├── MissingArrayError (FileNotFoundError)
    ├── MetadataError (ValueError)
    ├── MemberError (ValueError)
    ├── MissingMemberError (KeyError)
    ├── ReadError (RuntimeError)
    │   └── NotAuthorizedError (PermissionError)
    ├── AlignmentError (ValueError)
    ├── OverlapError (ValueError)
    ├── BoundsError (IndexError)
    ├── ShapeError (ValueError)
    ├── DataTypeError (TypeError)
    ├── PackingError (ValueError)
    ├── NullsPresentError (ValueError)
    ├── NoRegionError (IndexError)
    ├── PolicyError (ValueError)
    ├── CrossRegionWriteError (ValueError)
    ├── UnsharedStorageError (RuntimeError)
    ├── ForkedProcessError (RuntimeError)
    ├── UnreachableMembersError (ValueError)
    ├── WritableSessionError (TypeError)
    ├── AdoptionError (ValueError)
    ├── ReadOnlyError (ValueError)
    ├── OverwriteError (FileExistsError)
    ├── RepositoryError (OSError)
    ├── RepositoryNotFoundError (FileNotFoundError)
    ├── VersionNotFoundError (LookupError)
    ├── LockTimeoutError (TimeoutError)
    ├── ConcurrentUpdateError (RuntimeError)
    ├── ForkError (ValueError)
    ├── CutOffError (ValueError)
    ├── NoSlotBoundError (ValueError)
    ├── SlotsGoneError (RuntimeError)
    ├── SlotsUnsupportedError (ValueError)
    └── IngestError (ValueError)
"""

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAX_LINE = 500
"""The most characters shown of one problem in a manifest."""


class IntarsiaError(Exception):
    """The base of every exception that intarsia raises on purpose.

    Messages quote names and other texts from files, which may come from anybody. They never contain anything
    that a terminal obeys. `args` are those of `__init__`, so that an error can come from another process.

    >>> issubclass(ChunkDecodeError, IntarsiaError)
    True
    >>> print(IntarsiaError("no array \\x1b[31mred"))
    no array \\x1b[31mred
    """

    row: int | None = None
    """If a region could not be read, its row in the manifest's table."""

    command: str = ""
    """What to do about it at a command line; empty if the message says it."""

    def __init__(self, *args: object, command: str = "") -> None:
        super().__init__(*(_visible(arg) if isinstance(arg, str) else arg for arg in args))
        if command:
            self.command = _visible(command)

    __str__ = Exception.__str__  # KeyError would quote the message

    def __reduce__(self) -> Any:
        """As every exception; dask would pass over the `__init__` of errors that leave it to their base."""
        return super().__reduce__()


def in_python(name: str, value: object) -> str:
    """An argument as Python spells it."""
    return f"{name}=" if value is ... else f"{name}={value!r}".replace("Ellipsis", "…")


_spelling: Callable[[str, object], str] = in_python


def argument(name: str, value: object = ...) -> str:
    """An argument of a function, as a message names it; a command line spells it as its own option.

    >>> argument("units", "ignore"), argument("dims", {"member": ...}), argument("stack")
    ("units='ignore'", "dims={'member': …}", 'stack=')
    """
    return _spelling(name, value)


def advice(python: str, command: str) -> str:
    """What to do: in Python, or at a command line while `spell_arguments` is in effect."""
    return python if _spelling is in_python else command


@contextmanager
def spell_arguments(spelling: Callable[[str, object], str]) -> Iterator[None]:
    """Spell the arguments in messages in another way during a `with` block, in all threads.

    >>> with spell_arguments(lambda name, value: f"--{name}"):
    ...     argument("replace", True)
    '--replace'
    """
    global _spelling

    before, _spelling = _spelling, spelling
    try:
        yield
    finally:
        _spelling = before


class CodecConfigurationError(IntarsiaError, ValueError):
    """A codec's configuration, in Python or in zarr.json, is not valid.

    >>> from intarsia.codecs import PadCodec
    >>> PadCodec(location="middle", nbytes=1)
    Traceback (most recent call last):
    ...
    intarsia.errors.CodecConfigurationError: codec 'pad' cannot have the options ...: Invalid enum value ...
    """


class ChunkEncodeError(IntarsiaError, ValueError):
    """A chunk cannot be encoded; nothing was written for it.

    >>> issubclass(ChunkEncodeError, ValueError)
    True
    """


class ChunkDecodeError(IntarsiaError, ValueError):
    """A stored chunk is damaged, or another program wrote it.

    Raised by our codecs under zarr; reads through the engine wrap it in `ReadError`.

    >>> issubclass(ChunkDecodeError, ValueError)
    True
    """


class ChunkIndexUnknownError(IntarsiaError, LookupError):
    """A function needs to know which chunk it works on, but this is not known.

    >>> from intarsia.codecs.context import current_chunk_index
    >>> current_chunk_index()
    Traceback (most recent call last):
    ...
    intarsia.errors.ChunkIndexUnknownError: ...
    """


def install_command(extra: str) -> str:
    """The command that installs an extra, from the package index or from the checkout that this runs from.

    >>> install_command("dask")
    "pip install '...[dask]'"
    """
    checkout = Path(__file__).resolve().parents[2]  # of src/intarsia
    in_checkout = (checkout / "pyproject.toml").exists() and (checkout / "src" / "intarsia").exists()
    return f"pip install '{'.' if in_checkout else 'intarsia'}[{extra}]'"


class MissingExtraError(IntarsiaError, ImportError):
    """An optional dependency is not installed; the message names the pip command.

    >>> str(MissingExtraError("xarray", "xarray"))
    "xarray is not installed: pip install '...[xarray]'"
    """

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(module, extra)
        self.name = module
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.name} is not installed: {install_command(self.extra)}"


class ManifestError(IntarsiaError, ValueError):
    """A manifest is damaged or was not written by intarsia; the message lists every problem found.

    >>> print(ManifestError(["shape: -1 is less than the minimum of 0"]))
    the manifest of the logical array is not valid:
      shape: -1 is less than the minimum of 0
    """

    def __init__(self, problems: list[str]) -> None:
        # The contents of the manifest are quoted: they may be long, and they may not be text.
        self.problems = [_visible(problem)[:MAX_LINE] for problem in problems]
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n  ".join(["the manifest of the logical array is not valid:", *self.problems])


class ManifestVersionError(ManifestError):
    """A manifest has a version that this version of intarsia does not read.

    >>> ManifestVersionError(2, 1).problems
    []
    """

    def __init__(self, version: int, known: int) -> None:
        IntarsiaError.__init__(self, version, known)
        self.problems, self.version, self.known = [], version, known

    def __str__(self) -> str:
        version = f"{self.version!s:.40}"
        return (
            f"the manifest has version {version}, but this intarsia reads version {self.known}.\n"
            f"  Open it with an intarsia that reads version {version}: pip install --upgrade intarsia"
        )


class NotLogicalArrayError(IntarsiaError, KeyError):
    """There is no logical array at that path.

    >>> import intarsia
    >>> intarsia.open({}, "nowhere")
    Traceback (most recent call last):
    ...
    intarsia.errors.NotLogicalArrayError: ...
    """


class MissingGroupError(NotLogicalArrayError, FileNotFoundError):
    """There is no Zarr group at that path.

    >>> import xarray as xr
    >>> xr.open_dataset("nowhere", engine="intarsia")
    Traceback (most recent call last):
    ...
    intarsia.errors.MissingGroupError: there is no Zarr group at '/' of nowhere: ...
    """


class MissingArrayError(IntarsiaError, FileNotFoundError):
    """There is neither a Zarr array nor a group at that path.

    >>> import intarsia
    >>> intarsia.reader({}, "nowhere")
    Traceback (most recent call last):
    ...
    intarsia.errors.MissingArrayError: ...
    """


class MetadataError(IntarsiaError, ValueError):
    """The zarr.json of an array or a group cannot be understood.

    >>> issubclass(MetadataError, ValueError)
    True
    """


class MemberError(IntarsiaError, ValueError):
    """A member exists, but cannot back its regions: it has another data type, or is too small.

    >>> issubclass(MemberError, ValueError)
    True
    """


class MissingMemberError(IntarsiaError, KeyError):
    """The manifest names a member that is not there.

    >>> str(MissingMemberError("the member 'm-1' is missing"))
    "the member 'm-1' is missing"
    """


class ReadError(IntarsiaError, RuntimeError):
    """A chunk of a member could not be fetched or decoded; the message names region, member and chunk.

    This is what a damaged chunk of a logical array raises.

    >>> issubclass(ReadError, RuntimeError)
    True
    """


class NotAuthorizedError(ReadError, PermissionError):
    """A repository refers to files that it was not allowed to read.

    >>> error = NotAuthorizedError("…", "s3://archive/2002/")
    >>> error.prefix, isinstance(error, ReadError), isinstance(error, PermissionError)
    ('s3://archive/2002/', True, True)
    """

    def __init__(self, message: str, prefix: str = "") -> None:
        allow = f"If you trust it: --allow {prefix}, or --allow all for all that it names"
        super().__init__(message, command=allow)
        self.prefix = prefix
        """The URL prefix that has to be allowed."""


class AlignmentError(IntarsiaError, ValueError):
    """Bounds do not lie on the logical chunk grid; the message gives the nearest that do.

    >>> issubclass(AlignmentError, ValueError)
    True
    """


class OverlapError(IntarsiaError, ValueError):
    """A new region would overlap existing ones.

    >>> issubclass(OverlapError, ValueError)
    True
    """


class BoundsError(IntarsiaError, IndexError):
    """Bounds or an index lie outside the array.

    >>> issubclass(BoundsError, IndexError)
    True
    """


class PolicyError(IntarsiaError, ValueError):
    """A policy asks for something that cannot be done.

    >>> issubclass(PolicyError, ValueError)
    True
    """


class ShapeError(IntarsiaError, ValueError):
    """Data, chunks or bounds have the wrong shape or number of dimensions.

    >>> issubclass(ShapeError, ValueError)
    True
    """


class DataTypeError(IntarsiaError, TypeError):
    """Values or a member have a data type that the logical array cannot take without loss.

    >>> issubclass(DataTypeError, TypeError)
    True
    """


class PackingError(IntarsiaError, ValueError):
    """A packing is impossible, or it cannot hold a value.

    >>> import intarsia
    >>> intarsia.Packing("int8", scale=0.5).encode([100])
    Traceback (most recent call last):
    ...
    intarsia.errors.PackingError: int8 * 0.5: cannot hold 100.0 (at [0]): values lie between -64.0 and 63.5
    """


class NullsPresentError(IntarsiaError, ValueError):
    """Data with nulls would have to become something that has no nulls.

    >>> import numpy as np
    >>> from intarsia.nullable import NULL
    >>> np.asarray(NULL)
    Traceback (most recent call last):
    ...
    intarsia.errors.NullsPresentError: no number stands for NULL: test `x is NULL` before computing
    """


class NoRegionError(IntarsiaError, IndexError):
    """A write or an edit lies where there is no region.

    >>> issubclass(NoRegionError, IndexError)
    True
    """


class CrossRegionWriteError(IntarsiaError, ValueError):
    """A write touches more than one region, which is not allowed by default.

    >>> issubclass(CrossRegionWriteError, ValueError)
    True
    """


class UnsharedStorageError(IntarsiaError, RuntimeError):
    """Workers wrote, or would write, to storage that only they can read.

    >>> issubclass(UnsharedStorageError, RuntimeError)
    True
    """


class ForkedProcessError(IntarsiaError, RuntimeError):
    """Icechunk was about to be used in a forked process, where it would hang.

    >>> issubclass(ForkedProcessError, RuntimeError)
    True
    """


class UnreachableMembersError(IntarsiaError, ValueError):
    """Another program cannot read the members by itself, because of where they are or how they are encoded.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(2,), chunks=(2,), dtype="u1")
    >>> array.append([1, 2], codecs=["gzip"])
    >>> intarsia.tensorstore_spec(array)
    Traceback (most recent call last):
    ...
    intarsia.errors.UnreachableMembersError: TensorStore cannot read the members where they are: ...
    """


class WritableSessionError(IntarsiaError, TypeError):
    """A writable Icechunk session was about to be sent to another process, where its writes would be lost.

    >>> issubclass(WritableSessionError, TypeError)
    True
    """


class ReadOnlyError(IntarsiaError, ValueError):
    """An attempt to change something that is open for reading only.

    >>> issubclass(ReadOnlyError, ValueError)
    True
    """


class AdoptionError(IntarsiaError, ValueError):
    """An array cannot become a region of a logical array in the form in which it is stored.

    >>> issubclass(AdoptionError, ValueError)
    True
    """


class OverwriteError(IntarsiaError, FileExistsError):
    """Something is already there, and you did not say that it may be overwritten.

    >>> issubclass(OverwriteError, FileExistsError)
    True
    """


class RepositoryError(IntarsiaError, OSError):
    """A repository cannot be reached, read or written: server down, credentials, disk full, permissions.

    >>> issubclass(RepositoryError, OSError)
    True
    """


class RepositoryNotFoundError(IntarsiaError, FileNotFoundError):
    """There is no Icechunk repository at that location.

    >>> import intarsia
    >>> intarsia.open_repository("memory://nowhere")
    Traceback (most recent call last):
    ...
    intarsia.errors.RepositoryNotFoundError: there is no Icechunk repository at memory://nowhere.
      Create one with intarsia.open_repository(store, create=True)
    """


class VersionNotFoundError(IntarsiaError, LookupError):
    """A repository has no such branch, tag or snapshot, or no version that old.

    >>> issubclass(VersionNotFoundError, LookupError)
    True
    """


class LockTimeoutError(IntarsiaError, TimeoutError):
    """Another process held the lock of a local repository for too long.

    >>> issubclass(LockTimeoutError, TimeoutError)
    True
    """


class ConcurrentUpdateError(IntarsiaError, RuntimeError):
    """Others committed something that the changes of a transaction do not fit; nothing was committed.

    >>> print(ConcurrentUpdateError("second year", "main", ["/t: Zarr metadata double update"]))
    'second year' was not committed to branch 'main': others changed what it builds on.
      /t: Zarr metadata double update
    Nothing was written. Do it again on the current state, as intarsia.retry does.
    """

    def __init__(self, message: str, branch: str, changed: list[str]) -> None:
        super().__init__(message, branch, changed)
        self.branch = branch
        """The branch that others committed to."""
        self.changed = changed
        """What they changed, in words."""

    def __str__(self) -> str:
        message, branch, changed = self.args
        what = f"{message!r} was not committed to branch {branch!r}: others changed what it builds on."
        hint = "Nothing was written. Do it again on the current state, as intarsia.retry does."
        return "\n  ".join([what, *changed]) + f"\n{hint}"


class ForkError(IntarsiaError, ValueError):
    """A worker's changes cannot be merged: they overlap, exceed its share, or build on another state.

    >>> issubclass(ForkError, ValueError)
    True
    """


class CutOffError(IntarsiaError, ValueError):
    """The cut-off of a collection is so recent that it could delete what a writer is about to commit.

    >>> issubclass(CutOffError, ValueError)
    True
    """


class NoSlotBoundError(IntarsiaError, ValueError):
    """The inner codecs of a shard may make a chunk arbitrarily large, so no slot of fixed size can hold it.

    >>> import tempfile, intarsia, zarr
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     z = zarr.create_array(directory, shape=64, chunks=8, shards=64, dtype="u2", compressors="auto")
    ...     intarsia.shards.slotted(z)
    Traceback (most recent call last):
    ...
    intarsia.errors.NoSlotBoundError: codec 'zstd' may enlarge a chunk by ...
    """


class SlotsGoneError(IntarsiaError, RuntimeError):
    """A shard has no slots because another program wrote it; nothing was written.

    >>> import tempfile, intarsia, zarr
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     z = zarr.create_array(directory, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    ...     z[:8] = 1
    ...     intarsia.shards.slotted(z)[8:16] = 2
    Traceback (most recent call last):
    ...
    intarsia.errors.SlotsGoneError: the shard ... does not have 2 slots of 16 bytes per chunk: ...
    """


class SlotsUnsupportedError(IntarsiaError, ValueError):
    """This array, its store or its file system cannot have slotted shards; the message says why.

    >>> import intarsia, zarr
    >>> z = zarr.create_array({}, shape=64, chunks=8, shards=64, dtype="u2", compressors=None)
    >>> intarsia.shards.slotted(z)
    Traceback (most recent call last):
    ...
    intarsia.errors.SlotsUnsupportedError: the array is in a MemoryStore; ...
    """


class IngestError(IntarsiaError, ValueError):
    """Files cannot become part of a dataset; the message names each of them. Nothing was written.

    >>> issubclass(IngestError, ValueError)
    True
    """


def has_panicked(error: BaseException) -> bool:
    """Whether a library written in Rust panicked, which in Python need not be an `Exception`.

    >>> has_panicked(KeyboardInterrupt())
    False
    """
    return type(error).__name__ in ("PanicException", "RustPanic")


def no_thread(error: RuntimeError) -> ReadError:
    """The error for work that needs a thread, if the system does not start one."""
    return ReadError(
        f"a read needs a thread, but none can be started: {error}.\n"
        "  The system has reached its limit of threads or memory: end other programs, or raise the limit"
    )


def signal_failure(error: BaseException) -> BaseException | None:
    """The exception that the program's own signal handler raised, if that is the error or its cause.

    Python calls handlers between any two steps of the main thread, so their exceptions come out of whatever
    runs there. They are meant for the program, and are passed on as they are.

    >>> signal_failure(ValueError()) is None
    True
    """
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    seen: set[int] = set()
    cause: BaseException | None = error
    while handlers and cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if any(frame.f_code in handlers for frame, _ in traceback.walk_tb(cause.__traceback__)):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _code_of(handler: Any) -> Any:
    """The code of a signal handler, which may be anything that can be called; None if it is not Python's."""
    function = getattr(handler, "func", handler)  # of a partial
    if not hasattr(function, "__code__") and callable(function):
        function = type(function).__call__  # of an object
    return getattr(function, "__code__", None)


def _visible(text: str) -> str:
    """The text with invisible characters spelled out, except line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text
    )


__all__ = [
    name
    for name, each in list(globals().items())
    if isinstance(each, type) and issubclass(each, IntarsiaError)
]
