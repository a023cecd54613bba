"""Links in a directory that is served: whoever made it may have put some there that lead to files of ours."""

from __future__ import annotations

import os
from pathlib import Path

from intarsia.errors import ReadError


def refuse_links_out(root: Path) -> None:
    """Raise `ReadError` if a symbolic link below `root` leads out of it; what is inside may be linked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     os.symlink("/etc", f"{folder}/c")
    ...     refuse_links_out(Path(folder))
    Traceback (most recent call last):
    ...
    intarsia.errors.ReadError: ... is a link to /etc, which is not part of what is to be served...
    """
    inside = os.path.realpath(root)
    waiting = [inside]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    leads = os.path.realpath(entry.path)
                    if os.path.commonpath([inside, leads]) != inside:
                        raise ReadError(
                            f"{entry.path} is a link to {leads}, which is not part of what is to be served.\n"
                            "  Put a copy in its place if it belongs to the data, or remove it"
                        )
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
