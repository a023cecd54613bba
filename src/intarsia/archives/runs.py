"""The table of a draft's runs: where and how an archive changes its encoding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from intarsia.archives.coordinates import labels
from intarsia.archives.ingest_report import Run, Runs

if TYPE_CHECKING:
    from intarsia.archives.draft import Contribution, Draft


def runs_of(draft: Draft) -> Runs:
    """Consecutive files of equal encoding, along the first dimension that grows."""
    rows: list[Run] = []
    for array in draft.arrays.values():
        last: tuple[Any, ...] | None = None
        for each in array.contributions:
            own = each.spans[array.growing[0]]
            if not each.chunk_sets or not own:  # an axis of length 0
                continue
            start, stop = min(span.start for span in own), max(span.stop for span in own)
            if each.key == last and rows[-1].start <= start <= rows[-1].stop:
                stop = max(stop, rows[-1].stop)
                rows[-1] = replace(rows[-1], stop=stop, files=rows[-1].files + 1)
            else:
                rows.append(_run(each, start, stop))
            last = each.key
    axis = draft.cube.axes[0]
    ends = [end for run in rows for end in (run.start, run.stop - 1)]
    texts = list(map(str, ends)) if axis.values is None or not ends else labels(axis.values[ends], axis.attrs)
    named = zip(rows, texts[::2], texts[1::2], strict=True)
    return Runs(tuple(replace(run, first=first, last=last) for run, first, last in named))


def _run(contribution: Contribution, start: int, stop: int) -> Run:
    main, *others = (chunks.encoding for chunks in contribution.chunk_sets)
    codecs, decoding = main.short_codecs, contribution.decoding
    if others:
        codecs += f" (some chunks: {', '.join(sorted({other.short_codecs for other in others}))})"
    return Run(
        contribution.variable.name, start, stop, "", "", 1, main.chunks, codecs, str(decoding.numbers),
        str(decoding), main.copy_reason,
    )  # fmt: skip
