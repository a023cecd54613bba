"""Reading: every part of a plan from its member, into one output."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.array.plan import plan
from intarsia.errors import ReadError

if TYPE_CHECKING:
    import zarr

    from intarsia.array.frame import Frame
    from intarsia.array.plan import AxisSelector, Part, Plan, Request

__all__ = ["outer_index", "read_request"]


def read_request(frame: Frame, asked: Request) -> np.ndarray[Any, Any]:
    """The values of a request, in its shape."""
    planned = plan(frame.manifest, asked)
    out = _output(frame, planned)
    for part in planned.parts:
        row = frame.manifest.regions.row(part.row)
        member = frame.member_of(row)
        try:
            if asked.axes is None:
                points: Any = part.source
                out[part.target] = member.get_coordinate_selection(points)
            else:
                out[outer_index(part.target, out.shape)] = _read_outer(member, part.source)
        except Exception as error:
            raise ReadError(
                f"cannot read region {frame.region_text(row)}, member {frame.manifest.members[row.member]}"
                f"{_culprit(member, part)}: {error}"
            ) from error
    return out.reshape(asked.shape)


def _output(frame: Frame, planned: Plan) -> np.ndarray[Any, Any]:
    shape = planned.request.working_shape
    dtype = frame.manifest.data_type.to_native_dtype()
    if planned.is_complete:
        return np.empty(shape, dtype=dtype)
    return np.full(shape, frame.manifest.fill_value, dtype=dtype)


def _read_outer(member: zarr.Array[Any], source: Any) -> Any:
    if all(isinstance(selector, slice) for selector in source):
        return member.get_basic_selection(source or ...)
    return member.get_orthogonal_selection(source)


def outer_index(selectors: tuple[AxisSelector, ...], shape: tuple[int, ...]) -> Any:
    """The selectors as NumPy takes them for an outer product."""
    if sum(not isinstance(selector, slice) for selector in selectors) <= 1:
        return selectors
    axes = zip(selectors, shape, strict=True)
    return np.ix_(*(np.arange(n)[s] if isinstance(s, slice) else s for s, n in axes))


def _culprit(member: zarr.Array[Any], part: Part) -> str:
    """Which chunk of the part fails, found by reading them one by one; only after a read has failed."""
    for index in product(*(_chunks_of(s, size) for s, size in zip(part.source, member.chunks, strict=True))):
        box = tuple(slice(i * size, (i + 1) * size) for i, size in zip(index, member.chunks, strict=True))
        try:
            member.get_basic_selection(box or ...)
        except Exception:
            return f", chunk {index}"
    return ""


def _chunks_of(selector: AxisSelector, size: int) -> list[int]:
    if isinstance(selector, slice):
        return list(range(selector.start // size, (selector.stop - 1) // size + 1))
    found: list[int] = np.unique(selector // size).tolist()
    return found
