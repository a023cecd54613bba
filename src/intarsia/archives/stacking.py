"""Several variables of a file stacked into one array, along a new dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.archives.parsed import ParsedVariable
from intarsia.errors import IngestError

if TYPE_CHECKING:
    from intarsia.archives.dataset import Dataset


@dataclass(frozen=True, eq=False)
class Stack:
    """One array made of several variables.

    >>> Stack.of("CMI", ("band", ["CMI_C01", "CMI_C02"])).parts
    {'CMI_C01': 0, 'CMI_C02': 1}
    >>> Stack.of("CMI", ("band", {7: "CMI_C07", 13: "CMI_C13"})).labels.tolist()
    [7, 13]
    """

    array: str
    """Its name."""

    dim: str
    """The new dimension, which comes first."""

    parts: dict[str, int]
    """The variables, and the step of each."""

    labels: np.ndarray[Any, Any]
    """The coordinate of the new dimension."""

    @classmethod
    def of(cls, array: str, given: Any) -> Stack:
        """What a caller said: a dimension and names of variables, or names by coordinate."""
        try:
            dim, parts = given
            names = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
            labels = np.asarray(list(parts))
        except (TypeError, ValueError):
            names, dim, labels = [], "", np.empty(0)
        texts = all(isinstance(each, str) and each for each in (dim, *names))
        if not names or not texts or len(set(names)) < len(names) or labels.dtype.kind not in "iufU":
            raise IngestError(
                f"stack={{{array!r}: {given!r}}}: give a dimension and variables, as in "
                "{'CMI': ('band', ['CMI_C01', 'CMI_C02'])} or {'CMI': ('band', {1: 'CMI_C01', 2: 'CMI_C02'})}"
            )
        if labels.dtype.kind == "U":
            labels = labels.astype(np.dtypes.StringDType())
        return cls(array, dim, {name: i for i, name in enumerate(names)}, labels)

    def coordinate(self, dataset: Dataset) -> ParsedVariable | None:
        """The coordinate, if it has to be written; refused if the dataset has another one."""
        known = dataset.plain.get(self.dim)
        if known is None:
            labels = self.labels
            return ParsedVariable(
                self.dim, "static", (self.dim,), labels.shape, {}, labels.dtype, values=labels
            )
        values = dataset.values(self.dim)
        if values.tolist() != self.labels.tolist():
            raise IngestError(
                f"the dataset stacks {values.tolist()} along {self.dim!r}, not {self.labels.tolist()}"
            )
        return None


def known_stacks(dataset: Dataset) -> dict[str, Stack]:
    """The stacks that a dataset has, by the name of each variable in them."""
    found: dict[str, Stack] = {}
    for array in dict.fromkeys(array for array, _ in dataset.ledger.stacked.values()):
        names = dataset.logical_groups[array].manifest.dimension_names or ("",)
        labels = dataset.values(str(names[0]))
        # a variable that no file has yet has a step, and no name that anybody knows
        parts = {f"{array}[{step}]": step for step in range(len(labels))}
        steps = {name: step for name, (owner, step) in dataset.ledger.stacked.items() if owner == array}
        parts = {name: i for name, i in parts.items() if i not in steps.values()} | steps
        found |= dict.fromkeys(parts, Stack(array, str(names[0]), parts, labels))
    return found


def stacks_of(given: Mapping[str, Any] | None) -> dict[str, Stack]:
    """The stacks that a caller asked for, by the name of each variable in them."""
    found: dict[str, Stack] = {}
    for array, said in (given or {}).items():
        stack = Stack.of(array, said)
        for part in stack.parts:
            if part in found:
                raise IngestError(f"stack=: {part!r} stands in {found[part].array!r} and in {array!r}")
            found[part] = stack
    return found
