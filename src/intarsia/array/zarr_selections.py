"""The names under which zarr's arrays take selections: `blocks`, `get_…_selection`, `set_…_selection`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.array.request import Mode, request

if TYPE_CHECKING:
    from intarsia.array.request import Request

type Fields = str | Sequence[str] | None


class ZarrSelections:
    """What code that was written for a `zarr.Array` calls. It reads and writes as brackets, `oindex` and
    `vindex` do.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(0, 3), chunks=(2, 3), dtype="int32")
    >>> array.append([[0, 1, 2], [3, 4, 5], [6, 7, 8]])
    >>> array.blocks[1].tolist(), array.get_coordinate_selection(([0, 2], [1, 1])).tolist()
    ([[6, 7, 8]], [1, 7])
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Size of every axis."""

    @abstractmethod
    def read(self, selection: Any = ..., mode: Mode | None = None) -> np.ndarray[Any, Any]:
        """The values of a selection."""

    @abstractmethod
    def write_request(self, asked: Request, value: Any) -> None:
        """Write where a selection that is resolved already says."""

    @abstractmethod
    def _block_grid(self) -> Sequence[int | tuple[int, ...]]:
        """The size of a block along each axis, or the sizes of all of them where they differ."""

    @property
    def blocks(self) -> Blocks:
        """Indexing by whole chunks, as zarr has it: `array.blocks[0, 1:3]`. Of a logical array these are the
        chunks of the lattice; where a plain array has shards, the shards."""
        return Blocks(self)

    def get_basic_selection(self, selection: Any = ..., *, fields: Fields = None) -> np.ndarray[Any, Any]:
        """As `array[selection]` with integers and slices; `fields` are those of structured values to read."""
        return self.read(_with_fields(selection, fields), "basic")

    def get_orthogonal_selection(self, selection: Any, *, fields: Fields = None) -> np.ndarray[Any, Any]:
        """As `array.oindex[selection]`; `fields` chooses among those of structured values."""
        return self.read(_with_fields(selection, fields), "orthogonal")

    def get_coordinate_selection(self, selection: Any, *, fields: Fields = None) -> np.ndarray[Any, Any]:
        """As `array.vindex[selection]` with coordinates in `selection`, an array for each axis; `fields`
        chooses among those of structured values."""
        return self.read(_with_fields(selection, fields), "vectorized")

    def get_mask_selection(self, mask: Any, *, fields: Fields = None) -> np.ndarray[Any, Any]:
        """As `array.vindex[mask]` with a `mask` in the shape of the array; `fields` chooses among those of
        structured values."""
        return self.read(_with_fields(_mask(mask, self.shape), fields), "vectorized")

    def get_block_selection(self, selection: Any, *, fields: Fields = None) -> np.ndarray[Any, Any]:
        """As `array.blocks[selection]`; `fields` chooses among those of structured values."""
        return self.read(_with_fields(self._of_blocks(selection), fields), "basic")

    def set_basic_selection(self, selection: Any, value: Any) -> None:
        """As `array[selection] = value` with integers and slices."""
        self.write_request(request(self.shape, selection, "basic"), value)

    def set_orthogonal_selection(self, selection: Any, value: Any) -> None:
        """As `array.oindex[selection] = value`."""
        self.write_request(request(self.shape, selection, "orthogonal"), value)

    def set_coordinate_selection(self, selection: Any, value: Any) -> None:
        """As `array.vindex[selection] = value` with coordinates in `selection`, an array for each axis."""
        self.write_request(request(self.shape, selection, "vectorized"), value)

    def set_mask_selection(self, mask: Any, value: Any) -> None:
        """As `array.vindex[mask] = value` with a `mask` in the shape of the array."""
        self.write_request(request(self.shape, _mask(mask, self.shape), "vectorized"), value)

    def set_block_selection(self, selection: Any, value: Any) -> None:
        """As `array.blocks[selection] = value`."""
        self.write_request(request(self.shape, self._of_blocks(selection), "basic"), value)

    def _of_blocks(self, selection: Any) -> Any:
        """The elements of some blocks, as slices."""
        grid, shape = self._block_grid(), self.shape
        entries = selection if isinstance(selection, tuple) else (selection,)
        given = len(entries) - sum(isinstance(entry, EllipsisType) for entry in entries)
        if given > len(shape) or len(entries) > given + 1:
            raise IndexError(f"blocks of {len(shape)} axes cannot be chosen by {selection!r}")
        rest = (slice(None),) * (len(shape) - given)
        at = next((i for i, entry in enumerate(entries) if isinstance(entry, EllipsisType)), None)
        entries = (*entries, *rest) if at is None else (*entries[:at], *rest, *entries[at + 1 :])
        return tuple(map(_elements, entries, grid, shape)) or ...


class Blocks:
    """`array.blocks`: whole chunks by their position in the grid."""

    def __init__(self, array: ZarrSelections) -> None:
        self._array = array

    def __getitem__(self, selection: Any) -> np.ndarray[Any, Any]:
        return self._array.get_block_selection(selection)

    def __setitem__(self, selection: Any, value: Any) -> None:
        self._array.set_block_selection(selection, value)


def _elements(entry: Any, sizes: int | tuple[int, ...], length: int) -> slice:
    """The elements of an axis that lie in some of its blocks."""
    border: Callable[[int], int]
    if isinstance(sizes, int):  # an axis may have more blocks than fit into a list
        count, border = -(-length // sizes), lambda i: min(i * sizes, length)
    else:
        count, border = len(sizes), (0, *accumulate(sizes)).__getitem__
    if isinstance(entry, slice) and entry.step in (None, 1):
        start, stop, _ = entry.indices(count)
    elif isinstance(entry, int | np.integer):
        start = int(entry) + (count if entry < 0 else 0)
        stop = start + 1
        if not 0 <= start < count:
            raise IndexError(f"there is no block {entry}: the axis has {count}")
    else:
        raise IndexError(f"blocks are chosen by whole numbers and slices without a step, not by {entry!r}")
    return slice(border(start), border(max(start, stop)))


def _with_fields(selection: Any, fields: Fields) -> Any:
    """A selection that names fields as well, as it stands between brackets."""
    if fields is None:
        return selection
    entries = selection if isinstance(selection, tuple) else (selection,)
    return (*entries, *((fields,) if isinstance(fields, str) else fields))


def _mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    (values,) = mask if isinstance(mask, tuple) and len(mask) == 1 else (mask,)
    values = np.asarray(values)
    if values.dtype != bool or values.shape != shape:
        raise IndexError(
            f"a mask has the shape of the array, {shape}, and type bool; this one is {values.dtype} of shape "
            f"{values.shape}"
        )
    return values
