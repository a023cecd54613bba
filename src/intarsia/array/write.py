"""Writing values: into the one region that a selection lies in, or into several when that was allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.array.box import Box
from intarsia.array.encode import write_part
from intarsia.array.memory import as_nullable_values, broadcast, for_member, holds_nulls
from intarsia.array.plan import plan
from intarsia.array.work import outer_index
from intarsia.casting import cast_values
from intarsia.errors import CrossRegionWriteError, NoRegionError, NullsPresentError, ShapeError
from intarsia.nullable import OptionalDType, as_nullable

if TYPE_CHECKING:
    from intarsia.array.config import LogicalConfig
    from intarsia.array.frame import Frame, Layout
    from intarsia.array.manifest import Manifest
    from intarsia.array.memory import Values
    from intarsia.array.plan import Plan, Request
    from intarsia.array.table import Row
    from intarsia.casting import Casting

__all__ = ["as_values", "write_request"]

SHOWN_REGIONS = 6


def as_values(manifest: Manifest, value: Any, casting: Casting = "same_kind") -> Values:
    """`value` as an array of the logical data type; what would change its meaning is refused."""
    _check_dimensions(manifest, value)
    data_type = manifest.data_type
    if isinstance(data_type, OptionalDType):
        return as_nullable_values(data_type, value, casting)
    dtype = data_type.to_native_dtype()
    # Of lists of texts NumPy would make texts of one width, the longest's, and cut off NULs at the end.
    if not (dtype.kind in "TUSO" and isinstance(value, list | tuple | str | bytes)):
        value = np.asanyarray(value)
    if not isinstance(value, np.ndarray) or (value.dtype == object and dtype.kind in "TUS"):
        value = as_nullable(value, dtype, casting=casting).masked()
    if isinstance(value, np.ma.MaskedArray):
        value = _unmasked(value)
    return cast_values(value, dtype, casting=casting)


def _check_dimensions(manifest: Manifest, value: Any) -> None:
    """Refuse data whose named dimensions are those of the array in another order, as xarray's may be."""
    dimensions, names = getattr(value, "dims", None), manifest.dimension_names
    if names is None or not isinstance(dimensions, tuple) or dimensions == names:
        return
    if len(dimensions) == len(names) and set(dimensions) == set(names):
        raise ShapeError(
            f"the data has the dimensions {dimensions}, but the array has {names}.\n"
            f"  Turn it first: data.transpose{names}"
        )


def _unmasked(values: np.ma.MaskedArray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values of a masked array in which nothing is masked."""
    masked = int(np.ma.count_masked(values))
    if masked:
        raise NullsPresentError(
            f"{masked} of {values.size} values are masked, but the data type of the array has no null.\n"
            '  Fill them first (values.filled(…)), or create the array with dtype="optional[…]"'
        )
    return np.asarray(values)


def write_request(frame: Frame, config: LogicalConfig, asked: Request, value: Any) -> None:
    """Write `value`, broadcast as NumPy does, where the request says."""
    frame.check_writable()
    values = as_values(frame.manifest, value, config.casting)
    try:
        values = broadcast(values, asked.shape)
    except ValueError:
        raise ShapeError(
            f"values of shape {values.shape} do not fit the selection, whose shape is {asked.shape}"
        ) from None
    values = values.reshape(asked.working_shape)
    touched: set[str] = set()

    def write(layout: Layout) -> tuple[None, list[Row]]:
        planned = plan(layout.manifest, asked)
        _check_regions(layout, config, planned)
        rows = [layout.manifest.regions.row(part.row) for part in planned.parts]
        sources = [layout.source_of(part.row) for part in planned.parts]
        if holds_nulls(values):  # before anything is written
            for part, source, row in zip(planned.parts, sources, rows, strict=True):
                chosen = values[part.target if asked.axes is None else outer_index(part.target, values.shape)]
                for_member(source.array, chosen, f"region {layout.region_text(row)}")
        touched.update(source.name for source in sources)
        for part, source in zip(planned.parts, sources, strict=True):
            target = source.with_options(frame.options(config.options))
            write_part(target, part, values, points=asked.axes is None, config=config)
        return None, rows

    frame.settled(write)
    for name in touched - set(frame.manifest.members):  # a member that was gone, brought back in part
        frame.discard(name)


def _check_regions(layout: Layout, config: LogicalConfig, planned: Plan) -> None:
    asked = planned.request
    if not planned.is_complete:
        raise NoRegionError(
            f"the write to {_asked_text(asked)} reaches elements that no region covers: "
            f"{asked.size - planned.size} of {asked.size}.\n"
            "  Add a region there first: arr.add_region(bounds, codecs=[…]), or arr.append(data, codecs=[…])"
        )
    if len(planned.parts) > 1 and not config.cross_region_writes:
        rows = [layout.manifest.regions.row(part.row) for part in planned.parts[:SHOWN_REGIONS]]
        named = " and ".join(layout.region_text(row) for row in rows)
        more = f" and {len(planned.parts) - SHOWN_REGIONS} more" if len(planned.parts) > SHOWN_REGIONS else ""
        raise CrossRegionWriteError(
            f"the write to {_asked_text(asked)} touches {len(planned.parts)} regions: {named}{more}.\n"
            "  Write them one by one, or allow it: arr.with_config(cross_region_writes=True)"
        )


def _asked_text(asked: Request) -> str:
    return Box.of(asked.bounds).text()
