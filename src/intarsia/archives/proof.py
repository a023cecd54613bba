"""The proof before a commit: what was written opens, as xarray opens it; nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from intarsia.extras import extra
from intarsia.words import one_line


def unopened(store: Any, path: str, known: Iterable[str], new: Iterable[str]) -> dict[str, str]:
    """Variables with which the dataset at a path of a store cannot be opened, and why.

    What is `known` was there before: a new variable that does not go with it is the one to blame.

    >>> import intarsia, zarr
    >>> store = zarr.storage.MemoryStore()
    >>> for name, size in (("a", 2), ("b", 3)):
    ...     axis = {"shape": (size,), "chunks": (1,), "dimension_names": ["x"]}
    ...     _ = intarsia.create(store, name, **axis, dtype="i4")
    >>> unopened(store, "", ["a"], ["b"])
    {'b': "conflicting sizes for dimension 'x': length 3 on 'b' and length 2 on {'x': 'a'}"}
    """
    names = list(dict.fromkeys((*known, *new)))
    opens = _Opening(store, path, names)
    if not opens.problem(names):
        return {}
    problems: dict[str, str] = {}
    _sift(names, [], opens.problem, problems)
    return problems


class _Opening:
    """Opens a dataset with some of its variables."""

    def __init__(self, store: Any, path: str, names: Sequence[str]) -> None:
        self._store, self._path, self._names = store, path, names

    def problem(self, chosen: Sequence[str]) -> str:
        """Why the dataset does not open with these variables; empty if it does."""
        dropped = [name for name in self._names if name not in set(chosen)]
        try:
            # Times that nobody can decode are numbers, here and in the file.
            extra("xarray", "virtual").open_dataset(
                self._store, engine="intarsia", group=self._path or None, drop_variables=dropped,
                decode_times=False, cache=False,
            )  # fmt: skip
        except Exception as error:
            return one_line(error)
        return ""


def _sift(
    names: Sequence[str], kept: list[str], problem: Callable[[Sequence[str]], str], problems: dict[str, str]
) -> None:
    """Add to `kept` what goes with it, and to `problems` what does not: by halves, as few do not."""
    why = problem([*kept, *names])
    if not why:
        kept += names
    elif len(names) == 1:
        problems[names[0]] = why
    else:
        half = len(names) // 2
        _sift(names[:half], kept, problem, problems)
        _sift(names[half:], kept, problem, problems)
