"""A small picture of an array's values, drawn like the map of its regions and beside it; as PNG.

It looks at a bounded number of elements, in a bounded number of chunks.
"""

import base64
import struct
import zlib
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from intarsia.display import count_text, markup, one_line, plain
from intarsia.inspect import drawing
from intarsia.inspect.axis_labels import texts_of
from intarsia.inspect.sample import DAMAGED, FAILURES, HOLE, VALUE, Sample, sample
from intarsia.inspect.survey import Survey
from intarsia.logical.logical_array import LogicalArray

COLUMNS, ROWS = 240, 150
"""The most pixels of the picture: on a page with twenty arrays, that is a few hundred kilobytes."""

DAMAGED_COLOUR = (179, 38, 30, 255)
HOLE_COLOUR = (128, 128, 128, 48)
NOTHING = (0, 0, 0, 0)

type Colours = np.ndarray[Any, np.dtype[np.uint8]]

LINE_HEIGHT = 120.0
BAR_WIDTH, BAR_HEIGHT = 160.0, 10.0


def _caption(survey: Survey, fixed: dict[int, int]) -> str:
    """Where the picture lies on the axes that it does not show."""
    words = []
    for axis, place in fixed.items():
        labels = survey.coordinates[axis]
        try:
            label = f" ({labels.at([place])[0]})" if labels is not None else ""
        except FAILURES:
            label = ""
        words.append(f"{plain(drawing.axis_name(survey, axis), 40)} = {place}{label}")
    return "Values at " + ", ".join(words) if words else "Values"


def preview_html(array: LogicalArray, survey: Survey) -> str:
    """The picture with its caption; empty if there are no elements.

    It lies in the middle of all axes that are not drawn.

    >>> import intarsia
    >>> from intarsia.inspect.survey import survey
    >>> array = intarsia.create({}, "a", shape=(4, 6), chunks=(2, 6), dtype="i2")
    >>> preview_html(array, survey(array)).startswith('<figure class="preview">')
    True
    """
    if not prod(array.shape):
        return ""
    axes = drawing.plane_axes(array.shape)
    most = dict(zip(axes, (ROWS, COLUMNS) if len(axes) == 2 else (COLUMNS * 2,), strict=False))
    spans = [
        range(0, size, -(-size // most[axis])) if axis in most else size // 2
        for axis, size in enumerate(array.shape)
    ]
    seen = sample(array, spans)
    damaged = seen.status == DAMAGED
    if damaged.all():
        return f'<p class="soft">The values cannot be read: {markup(one_line(seen.problem), 1000)}</p>'
    notes = [_caption(survey, {axis: place for axis, place in enumerate(spans) if isinstance(place, int)})]
    units = array.attrs.get("units")
    notes += [f"in {plain(units, 40)}"] if isinstance(units, str) and units else []
    if seen.coarser > 1:
        notes.append(f"one of every {count_text(seen.coarser, 'place')} on each axis")
    if damaged.any():
        notes.append("red: cannot be read")
    if axes:
        picture = drawing.wide(_draw(survey, seen, len(axes) == 2))
    else:
        picture = f"<p><strong>{markup(texts_of(array[...], dict(array.attrs))[0])}</strong></p>"
    return f'<figure class="preview">{picture}<figcaption>{markup("; ".join(notes))}</figcaption></figure>'


def _draw(survey: Survey, seen: Sample, is_plane: bool) -> str:
    pane = drawing.panes(survey.manifest.shape)[0]
    low, high = seen.limits()
    if is_plane:
        picture = _image(pane.x, pane.y, pane.width, pane.height, coloured(seen, low, high))
    else:
        pane = replace(pane, height=LINE_HEIGHT)
        picture = _line(seen, pane)
    parts = [drawing.frame(pane), picture, *drawing.draw_axes(survey, pane, ())]
    bottom = pane.y + pane.height + 40
    if is_plane:
        parts += _bar(pane, bottom, low, high)
        bottom += 30
    about = f"Values of an array of shape {survey.manifest.shape}, from {low:.6g} to {high:.6g}"
    return drawing.svg(bottom, about, parts)


def _image(x: float, y: float, width: float, height: float, pixels: Colours) -> str:
    data = base64.b64encode(png(pixels)).decode()
    return (
        f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
    )


def coloured(sample: Sample, low: float, high: float) -> Any:
    """The values as pixels: red, green, blue, opacity.

    >>> values, status = np.array([[0.0, 1.0, 5.0]]), np.array([[VALUE, VALUE, DAMAGED]], dtype=np.uint8)
    >>> coloured(Sample(values, status), 0, 1)[0, :, :3].tolist()
    [[68, 1, 84], [253, 231, 37], [179, 38, 30]]
    """
    table = colour_table()
    finite = np.isfinite(sample.values)
    places = np.where(finite, sample.values - low, 0) / ((high - low) or 1) * 255
    pixels = table[np.clip(places, 0, 255).astype(np.intp)]
    pixels[(sample.status != VALUE) | ~finite] = NOTHING
    pixels[sample.status == HOLE] = HOLE_COLOUR
    pixels[sample.status == DAMAGED] = DAMAGED_COLOUR
    return pixels


def _line(sample: Sample, pane: drawing.Pane) -> str:
    """The values as a line that is broken where there are none."""
    low, high = sample.limits(0, 100)
    is_value = (sample.status == VALUE) & np.isfinite(sample.values)
    x = pane.x + (np.arange(len(is_value)) + 0.5) / len(is_value) * pane.width
    y = pane.y + pane.height - 6 - (sample.values - low) / ((high - low) or 1) * (pane.height - 12)
    path, pen = [], "M"
    for i in range(len(is_value)):
        if is_value[i]:
            path.append(f"{pen}{x[i]:.1f} {y[i]:.1f}")
        pen = "L" if is_value[i] else "M"
    if len(path) == 1:
        path.append("h1")
    line = f'<path d="{"".join(path)}" fill="none" stroke="{drawing.COLOURS[0]}" stroke-width="1.5"/>'
    ends = ((pane.y + 10, f"{high:.4g}"), (pane.y + pane.height - 2, f"{low:.4g}"))
    return line + "".join(drawing.svg_text(pane.x - 7, at, words, "soft", "end", 11) for at, words in ends)


def _bar(pane: drawing.Pane, y: float, low: float, high: float) -> list[str]:
    """Which colour means which value."""
    left = pane.x + 60
    return [
        _image(left, y, BAR_WIDTH, BAR_HEIGHT, colour_table()[None]),
        drawing.svg_text(left - 6, y + 9, f"{low:.4g}", "soft", "end", 11),
        drawing.svg_text(left + BAR_WIDTH + 6, y + 9, f"{high:.4g}", "soft", size=11),
    ]


VIRIDIS = (
    "#440154 #481467 #482576 #453781 #404688 #39558c #33638d #2d718e #287d8e #238a8d #1f968b #20a386 "
    "#29af7f #3dbc74 #56c667 #75d054 #95d840 #bade28 #dde318 #fde725"
)
"""Colours from the lowest to the highest value, linear in between; the viewer's page has them too."""


def colour_table() -> Colours:
    """The colours of values as red, green, blue and opacity, in 256 steps.

    >>> colour_table()[[0, -1]].tolist()
    [[68, 1, 84, 255], [253, 231, 37, 255]]
    """
    anchors = np.array([list(bytes.fromhex(colour[1:] + "ff")) for colour in VIRIDIS.split()])
    places = np.linspace(0, len(anchors) - 1, 256)
    channels = [np.interp(places, np.arange(len(anchors)), channel) for channel in anchors.T]
    table: Colours = np.stack(channels, axis=1).round().astype(np.uint8)
    return table


def png(pixels: Colours) -> bytes:
    """A PNG picture; `pixels` holds red, green, blue and opacity for each pixel, row by row.

    >>> png(np.zeros((2, 3, 4), dtype=np.uint8))[1:4]
    b'PNG'
    """
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # no filter

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            chunk(b"IEND", b""),
        ]
    )
