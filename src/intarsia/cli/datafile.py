"""Arrays in files that other programs read and write: .npy and .csv."""

from __future__ import annotations

import csv
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.cli.exits import CommandError

__all__ = ["load", "save"]


def load(file: Path) -> np.ndarray[Any, Any]:
    """The array in a file; .npy files are mapped, not read.

    >>> load(Path("data.xlsx"))
    Traceback (most recent call last):
    ...
    intarsia.cli.exits.CommandError: data.xlsx: give a .npy or .csv file
    """
    if file.suffix not in (".npy", ".csv"):
        raise CommandError(f"{file}: give a .npy or .csv file")
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    try:
        if file.suffix == ".npy":
            mapped: np.ndarray[Any, Any] = np.load(file, mmap_mode="r", allow_pickle=False)
            return mapped
        return _load_csv(file)
    except (ValueError, EOFError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error


def _load_csv(file: Path) -> np.ndarray[Any, Any]:
    with file.open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.reader(stream) if row]
    if len({len(row) for row in rows}) > 1:
        raise ValueError("its rows have different lengths")
    table = np.array(rows, dtype=np.str_)
    for kind in (np.int64, np.float64):
        try:
            return table.astype(kind)
        except ValueError:
            continue
    raise ValueError("it holds something that is not a number")


def save(file: Path, values: np.ndarray[Any, Any]) -> None:
    """Write an array, whole or not at all; .csv takes one or two dimensions.

    >>> save(Path("cube.csv"), np.zeros((2, 2, 2)))
    Traceback (most recent call last):
    ...
    intarsia.cli.exits.CommandError: cube.csv: a table has at most two dimensions, and the selection has 3...
    """
    if file.suffix not in (".npy", ".csv"):
        raise CommandError(f"{file}: the name must end in .npy or .csv")
    if file.suffix == ".csv" and values.ndim > 2:
        raise CommandError(
            f"{file}: a table has at most two dimensions, and the selection has {values.ndim}; "
            "select less, or write .npy"
        )
    if not file.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {file.parent}")
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            if file.suffix == ".npy":
                np.save(stream, values, allow_pickle=False)
            else:
                table = values.reshape(-1, 1) if values.ndim < 2 else values
                lines = (",".join(map(str, row)) + "\n" for row in table.tolist())
                stream.writelines(line.encode() for line in lines)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's mask for new files; there is no way to ask without setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
