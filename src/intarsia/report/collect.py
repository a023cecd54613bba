"""Gathering what the report page says about an array, going on where a part of it is damaged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from intarsia.array.verify import Problem, verify
from intarsia.errors import IntarsiaError
from intarsia.report.masks import mask_uses
from intarsia.report.page import ArrayReport, Moment
from intarsia.report.slots import slot_uses
from intarsia.report.survey import survey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intarsia.array import LogicalArray
    from intarsia.report.masks import MaskUse
    from intarsia.report.slots import SlotUse

__all__ = ["report_of"]

MOST_ATTRIBUTES = 100


def report_of(
    array: LogicalArray, moments: Sequence[Moment] = (), *, read_data: bool = False, left_out: int = 0
) -> ArrayReport:
    """All there is to say about an array and its versions; without versions, about the array as it is.

    >>> import intarsia
    >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="f4")
    >>> report_of(array).problems
    ()
    """
    shown = tuple(moments) or (Moment(survey(array)),)
    facts = shown[-1].seen.facts
    problems = list(verify(array, data=read_data))
    masks: tuple[MaskUse, ...] = ()
    try:
        masks = mask_uses(array, facts)
    except IntarsiaError as error:
        problems.append(Problem("data", array.path or "/", f"bitmasks cannot be read: {error}"))
    slots: tuple[SlotUse, ...] = ()
    try:
        slots = slot_uses(array, facts)
    except IntarsiaError as error:
        problems.append(Problem("data", array.path or "/", f"slots cannot be read: {error}"))
    attributes = tuple(
        (str(key), json.dumps(value, ensure_ascii=False, default=str))
        for key, value in sorted(array.attrs.items())[:MOST_ATTRIBUTES]
    )
    checked = "Manifest, members and leftovers were checked" + (
        ", and every stored chunk was read." if read_data else "; stored chunks were not read."
    )
    return ArrayReport(
        array.path, array.info.fields, attributes, shown, tuple(problems), checked, masks, slots, left_out
    )
