"""Numbers that a file says once, and every file otherwise: they become coordinates along the dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from intarsia.archives.ledger import Dataset
    from intarsia.archives.parsed import ParsedFile, ParsedVariable


def spread(
    files: Sequence[ParsedFile], dataset: Dataset, dims: tuple[str, ...], dropped: dict[str, str]
) -> None:
    """Give scalars that differ between files a value for every step, as xarray does it.

    Along several dimensions nobody knows which of them a scalar belongs to: there it stays left out.
    """
    if len(dims) > 1:
        return
    (dim,) = dims
    names = {name for name in dropped if any(_is_scalar(file.variables.get(name)) for file in files)}
    names |= {name for name in dataset.plain if name not in dims and dataset.dims(name) == (dim,)}
    for name in names:
        for file in files:
            variable = file.variables.get(name)
            if variable is None or not _is_scalar(variable):
                continue
            steps = file.steps(dim)
            variable.role, variable.dims, variable.shape = "joined", (dim,), (steps,)
            variable.values = np.repeat(variable.loaded.reshape(1), steps)
            dropped.pop(name, None)


def _is_scalar(variable: ParsedVariable | None) -> bool:
    """Whether this is one number; a grid mapping is none, whatever its value."""
    if variable is None or variable.role != "static" or variable.values is None:
        return False
    return not variable.dims and variable.dtype.kind in "iuf" and "grid_mapping_name" not in variable.attrs
