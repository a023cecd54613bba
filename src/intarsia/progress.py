"""How a long operation tells how far it is: one small protocol for all of them, silent by default."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "silent"]


class Progress(Protocol):
    """Called with how many steps are done and how many there are: first with 0, at the end with all.

    It is always called from the thread that called the operation. Any function of two numbers will do:

    >>> def show(done: int, total: int) -> None:
    ...     print(f"{done} of {total}")
    >>> progress: Progress = show
    >>> progress(1, 4)
    1 of 4
    """

    def __call__(self, done: int, total: int, /) -> object: ...


def silent(_done: int, _total: int, /) -> None:
    """The default: says nothing.

    >>> silent(1, 4)
    """
