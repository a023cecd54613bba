"""Files of a repository that claim more than they can hold, noticed before anybody makes room for it."""

import os
from contextlib import suppress

import icechunk

from intarsia.codecs.bounded import ZSTD_LARGEST_BLOCK, zstd_content
from intarsia.errors import RepositoryError
from intarsia.versions.locking import directory_of
from intarsia.versions.repository import describe

ICECHUNK_HEADER = 39
"""Bytes of Icechunk's files before their content, which is a frame of zstd."""

MOST_PER_BYTE = ZSTD_LARGEST_BLOCK // 4
"""What a byte of zstd may hold: a block, of one byte again and again, takes four."""


def impossible_files(repo: icechunk.Repository) -> list[tuple[str, str]]:
    """Files of a local repository that claim more than they can hold, and what they claim.

    Icechunk makes room for that when it looks what versions refer to, and ends the process if it gets none.
    """
    path, told = directory_of(repo), []
    for kind in ("manifests", "snapshots", "transactions"):
        folder = None if path is None else path / kind
        for entry in os.scandir(folder) if folder is not None and folder.is_dir() else ():
            with suppress(FileNotFoundError), open(entry, "rb") as file:  # others may collect meanwhile
                file.seek(ICECHUNK_HEADER)
                claim, held = zstd_content(file.read(18)), entry.stat().st_size
                if claim is not None and claim > held * MOST_PER_BYTE:
                    what = f"{held:,} bytes cannot hold the {claim:,} they claim"
                    told.append((f"{kind}/{entry.name}", what))
    return sorted(told)


def refuse_impossible_files(repo: icechunk.Repository) -> None:
    """Raise `RepositoryError` if there are any."""
    if told := impossible_files(repo):
        raise RepositoryError(
            f"{describe(repo)}: {' '.join(told[0])}.\n  The file is damaged: restore it from a copy"
        )
