"""What there is to know about a logical array, for people: the same words everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from intarsia.array.memory import type_text
from intarsia.words import size_text

if TYPE_CHECKING:
    from intarsia.array.logical import LogicalArray

__all__ = ["ArrayInfo"]


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """A logical array in a few lines.

    >>> import intarsia
    >>> intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4").info
    Type           : LogicalArray
    Path           : a
    Shape          : (4,)
    Data type      : float32
    Chunks         : (2,)
    Fill value     : 0.0
    Dimension names: none
    Size           : 16 B
    Regions        : 0
    Members        : 0
    Covered        : 0.0 %
    Generation     : 0
    Read-only      : False
    """

    fields: tuple[tuple[str, str], ...]
    """Name and value, in order."""

    @classmethod
    def of(cls, array: LogicalArray) -> ArrayInfo:
        manifest = array.manifest
        start, stop = manifest.region_bounds()
        covered = int((stop - start).prod(axis=1).sum()) / array.size if array.size and len(start) else 0.0
        return cls(
            (
                ("Type", "LogicalArray"),
                ("Path", array.path or "/"),
                ("Shape", str(array.shape)),
                ("Data type", type_text(array.manifest.data_type)),
                ("Chunks", str(array.chunks)),
                ("Fill value", str(array.fill_value)),
                ("Dimension names", "none" if array.dimension_names is None else str(array.dimension_names)),
                ("Size", size_text(array.nbytes)),
                ("Regions", str(len(manifest.regions))),
                ("Members", str(len(manifest.members))),
                ("Covered", f"{covered:.1%}".replace("%", " %")),
                ("Generation", str(array.generation)),
                ("Read-only", str(array.read_only)),
            )
        )

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.fields)
        return "\n".join(f"{name:<{width}}: {value}" for name, value in self.fields)
