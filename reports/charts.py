"""Charts as inline SVG: small, readable without colour, the same bytes for the same numbers.

Colours are CSS classes of the page (light and dark), so a chart holds shapes only. What failed has another
shape, not only another colour. Every chart says in words what it shows. Nothing is computed here but places.

>>> "<svg" in bullet(low=9, value=10, high=11, limit=8, bound="floor", status="pass", unit="s")
True
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup, escape

from reports.drawing import (
    Frame,
    Line,
    Point,
    edges,
    grid,
    limit_line,
    mark,
    path,
    spread,
    svg,
    text,
    ticks,
    y_axis,
)
from reports.quantities import digits, quantity, scale_of, size
from reports.statistics import Estimate, median


def sweep(
    points: Sequence[Point], limits: Sequence[Line], *, unit: str, what: str, before: Sequence[Point] = ()
) -> Markup:
    """A value over buffer sizes: median line, interval band, limits, and the band of what it was `before`.

    Size axis in powers of two, value axis from 0.
    """
    points, before = sorted(points), sorted(before)
    xs = [math.log2(p.x) for p in points]
    reached = max(p.value.high for p in [*points, *before])
    shown = [line for line in limits if 0.02 * reached <= line.value <= 1.6 * reached]  # others would flatten it
    top = max([reached] + [line.value for line in shown]) * 1.08
    frame = Frame(360, 210, min(xs), max(xs) if len(points) > 1 else min(xs) + 1, 0.0, top)
    upper = [(frame.x(x), frame.y(p.value.high)) for x, p in zip(xs, points, strict=True)]
    lower = [(frame.x(x), frame.y(p.value.low)) for x, p in zip(xs, points, strict=True)]
    middle = [(frame.x(x), frame.y(p.value.median)) for x, p in zip(xs, points, strict=True)]
    parts = [
        y_axis(frame, unit),
        *(
            text(frame.x(x), frame.height - 8, size(int(p.x)), "tick mid")
            for x, p in spread(list(zip(xs, points, strict=True)), 5)
        ),
        *_before(frame, before),
        f'<polygon class="band" points="{path(upper + lower[::-1])}"/>',
        f'<polyline class="line" points="{path(middle)}"/>',
        *(limit_line(frame, line, None if line.x is None else math.log2(line.x)) for line in shown),
        *(mark(*place, p, unit, size(int(p.x))) for place, p in zip(middle, points, strict=True)),
    ]
    return svg(frame, parts, what)


def _before(frame: Frame, points: Sequence[Point]) -> list[str]:
    """The band and the dashed median of the baseline, over the sizes that it has."""
    if not points:
        return []
    places = [(frame.x(math.log2(p.x)), p.value) for p in points]
    edge = [(x, frame.y(v.high)) for x, v in places] + [(x, frame.y(v.low)) for x, v in places[::-1]]
    middle = path([(x, frame.y(v.median)) for x, v in places])
    return [
        f'<polygon class="before-band" points="{path(edge)}"/>',
        f'<polyline class="before" points="{middle}"/>',
    ]


def units(
    points: Sequence[Point], limits: Sequence[Line], *, unit: str, what: str, before: Estimate | None = None
) -> Markup:
    """One mark per rank or node with its interval, and the band that the baseline's median unit lay in.

    The value axis does not start at zero, and says so.
    """
    every = [v for p in points for v in (p.value.low, p.value.high)] + [line.value for line in limits]
    every += [before.low, before.high] if before else []
    pad = (max(every) - min(every)) * 0.12 or abs(max(every)) * 0.05 or 1.0
    frame = Frame(360, 190, -0.6, len(points) - 0.4, min(every) - pad, max(every) + pad)
    parts = [y_axis(frame, unit), *_level(frame, before), *(limit_line(frame, line, None) for line in limits)]
    for i, p in enumerate(points):
        x = frame.x(i)
        parts.append(
            f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.y(p.value.low):.1f}" '
            f'y2="{frame.y(p.value.high):.1f}"/>'
        )
        parts.append(mark(x, frame.y(p.value.median), p, unit, p.label))
    step = max(1, math.ceil(len(points) / 16))
    parts += [text(frame.x(i), frame.height - 8, f"{p.x:g}", "tick mid") for i, p in enumerate(points) if i % step == 0]
    return svg(frame, parts, f"{what}; the value axis does not start at zero")


def _level(frame: Frame, before: Estimate | None) -> list[str]:
    """The baseline as a band across the chart."""
    if before is None:
        return []
    begin, end = frame.left, frame.width - frame.right
    top, bottom = frame.y(before.high), frame.y(before.low)
    return [
        f'<rect class="before-band" x="{begin:g}" y="{top:.1f}" width="{end - begin:g}" height="{bottom - top:.1f}"/>',
        f'<line class="before" x1="{begin:g}" x2="{end:g}" y1="{frame.y(before.median):.1f}" '
        f'y2="{frame.y(before.median):.1f}"/>',
    ]


def ecdf(
    values: Sequence[float], worst: Sequence[Point], limits: Sequence[Line], *, unit: str, what: str,
    before: Estimate | None = None, higher: bool = True,
) -> Markup:  # fmt: skip
    """How many units reach how much, for more units than marks fit: a step curve, with the `worst` ones named."""
    values = sorted(values)
    every = values + [line.value for line in limits] + ([before.low, before.high] if before else [])
    pad = (max(every) - min(every)) * 0.06 or abs(max(every)) * 0.05 or 1.0
    frame = Frame(360, 190, min(every) - pad, max(every) + pad, 0.0, 1.0)
    n = len(values)
    shown = range(n) if n <= 400 else sorted({round(i * (n - 1) / 399) for i in range(400)})
    corners = [(frame.x(values[i]), frame.y((i + step) / n)) for i in shown for step in (0, 1)]
    factor, name = scale_of(max(map(abs, every)), unit)
    parts = [
        *(grid(frame, share, f"{share:.0%}") for share in (0.0, 0.5, 1.0)),
        *_upright(frame, before),
        f'<polyline class="line" points="{path(corners)}"/>',
    ]
    parts += [
        text(frame.x(v), frame.height - 8, digits(v / factor), "tick mid") for v in ticks(frame.x_low, frame.x_high, 4)
    ]
    parts.append(text(frame.width - frame.right, 10, name, "tick end"))
    for line in limits:
        x = frame.x(line.value)
        parts.append(
            f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{frame.height - frame.bottom}"/>'
        )
        parts.append(text(x + 4, frame.top + 10, line.label, "limit-text"))
    return svg(frame, parts + _named(frame, worst, n, unit, higher=higher), what)


def _upright(frame: Frame, before: Estimate | None) -> list[str]:
    """The baseline as a band along the value axis of a step curve."""
    if before is None:
        return []
    left, right, height = frame.x(before.low), frame.x(before.high), frame.height - frame.bottom - frame.top
    box = f'x="{left:.1f}" y="{frame.top:g}" width="{max(1.0, right - left):.1f}" height="{height:g}"'
    return [f'<rect class="before-band" {box}/>']


def _named(frame: Frame, worst: Sequence[Point], n: int, unit: str, *, higher: bool) -> list[str]:
    """The worst of n units of a step curve with their names, one below the other so that all can be read."""
    parts: list[str] = []
    leftward = bool(worst) and frame.x(worst[0].value.median) > frame.width * 0.4
    for row, p in enumerate(worst):
        x, y = frame.x(p.value.median), frame.y((row + 0.5) / n if higher else 1 - (row + 0.5) / n)
        at = frame.height - frame.bottom - 8 - 13 * row if higher else frame.top + 12 + 13 * row
        side, near, css = (x - 10, x - 7, "tick end") if leftward else (x + 10, x + 7, "tick")
        parts.append(f'<line class="leader" x1="{x:.1f}" y1="{y:.1f}" x2="{near:.1f}" y2="{at - 4:.1f}"/>')
        parts += [mark(x, y, p, unit, p.label), text(side, at, p.label, css)]
    return parts


def heat(
    values: Sequence[Sequence[float | None]],
    labels: Sequence[str],
    bad: set[tuple[int, int]],
    *,
    unit: str,
    higher: bool,
    what: str,
) -> Markup:
    """A square of pairs, row to column. Darker is worse; what fails has a frame; up to 16 a side with numbers."""
    n = len(values)
    flat = [v for row in values for v in row if v is not None]
    low, high = min(flat), max(flat)
    factor, name = scale_of(high, unit)
    cell = max(5.0, min(40.0, 600 / n))
    left, top, edge = 34.0, 22.0, cell - 1
    parts = [text(left - 6, top - 6, name, "tick end")]
    for i, row in enumerate(values):
        if n <= 16 or i % math.ceil(n / 16) == 0:
            middle = (i + 0.5) * cell
            parts.append(text(left - 6, top + middle + 4, labels[i], "tick end"))
            parts.append(text(left + middle, top - 6, labels[i], "tick mid"))
        for j, v in enumerate(row):
            if v is None:
                continue
            good = (v - low) / (high - low) if high > low else 1.0
            level = round(8 * (good if higher else 1 - good))
            x, y = left + j * cell, top + i * cell
            marked = " bad" if (i, j) in bad else ""
            parts.append(
                f'<rect class="h{level}{marked}" x="{x:.1f}" y="{y:.1f}" width="{edge:.1f}" height="{edge:.1f}"/>'
            )
            if n <= 16:
                parts.append(text(x + cell / 2 - 0.5, y + cell / 2 + 3.5, digits(v / factor), f"cell t{level}"))
    side = left + n * cell + 4
    frame = Frame(side, top + n * cell + 4, 0, 1, 0, 1)
    return svg(frame, parts, what, css="heat", style=f' style="max-width:{side:.0f}px"')


def bullet(*, low: float, value: float, high: float, limit: float, bound: str, status: str, unit: str) -> Markup:
    """One value from zero against its limit: a bar, its interval, a line where the limit is."""
    top = max(high, limit, value) * 1.1 or 1.0
    frame = Frame(260, 26, 0.0, top, 0, 1, left=0, right=0, top=4, bottom=4)
    x, edge = frame.x(max(value, 0.0)), frame.x(limit)
    parts = [
        '<rect class="track" x="0" y="9" width="260" height="8"/>',
        f'<rect class="bar {status}" x="0" y="9" width="{x:.1f}" height="8"/>',
        f'<line class="whisker" x1="{frame.x(low):.1f}" x2="{frame.x(high):.1f}" y1="13" y2="13"/>',
        f'<line class="limit" x1="{edge:.1f}" x2="{edge:.1f}" y1="2" y2="24"/>',
    ]
    side = "at least" if bound == "floor" else "at most"
    return svg(frame, parts, f"{quantity(value, unit)} where {side} {quantity(limit, unit)} is asked for", css="bullet")


def ratio(value: Estimate, *, reach: float, word: str) -> Markup:
    """A ratio with its interval around 1; the ends of the axis are 1 - reach and 1 + reach."""
    frame = Frame(180, 18, 1 - reach, 1 + reach, 0, 1, left=4, right=4, top=2, bottom=2)
    low, middle, high = (min(max(v, 1 - reach), 1 + reach) for v in (value.low, value.median, value.high))
    one = frame.x(1.0)
    parts = [
        f'<line class="grid" x1="{one:.1f}" x2="{one:.1f}" y1="0" y2="18"/>',
        f'<line class="interval {word}" x1="{frame.x(low):.1f}" x2="{frame.x(high):.1f}" y1="9" y2="9"/>',
        f'<circle class="middle {word}" cx="{frame.x(middle):.1f}" cy="9" r="3.4"/>',
    ]
    told = f"ratio {digits(value.median)}, interval {digits(value.low)} to {digits(value.high)}"
    return svg(frame, parts, told, css="ratio")


def trend(
    values: Sequence[float], nights: Sequence[str], changes: Sequence[int], *, unit: str, what: str,
    width: float = 720, height: float = 200,
) -> Markup:  # fmt: skip
    """A value over the nights, with a line at each level and a mark where it changes; the last night has a ring."""
    low, high = min(values), max(values)
    pad = (high - low) * 0.1 or abs(high) * 0.05 or 1.0
    frame = Frame(width, height, -0.5, max(len(values) - 0.5, 0.5), low - pad, high + pad)
    parts = [y_axis(frame, unit)]
    bounds = [0, *changes, len(values)]
    for begin, end in itertools.pairwise(bounds):
        level = frame.y(median(values[begin:end]))
        x1, x2 = frame.x(begin - 0.5), frame.x(end - 0.5)
        parts.append(f'<line class="level" x1="{x1:.1f}" x2="{x2:.1f}" y1="{level:.1f}" y2="{level:.1f}"/>')
    free = 0.0  # where the next date does not run into the one before
    for place in changes:
        x = frame.x(place - 0.5)
        parts.append(
            f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{frame.height - frame.bottom}"/>'
        )
        if x >= free:
            parts.append(text(x + 4, frame.top + 8, nights[place], "limit-text"))
            free = x + 66
    for i, (value, night) in enumerate(zip(values, nights, strict=True)):
        title = f"<title>{escape(night)}: {quantity(value, unit)}</title>"
        parts.append(f'<circle class="dot" cx="{frame.x(i):.1f}" cy="{frame.y(value):.1f}" r="2.2">{title}</circle>')
    last = f'cx="{frame.x(len(values) - 1):.1f}" cy="{frame.y(values[-1]):.1f}"'
    parts.append(f'<circle class="ring" {last} r="4.6"/>')
    step = max(1, math.ceil(len(nights) / (width / 90)))
    parts += [text(frame.x(i), frame.height - 8, nights[i], "tick mid") for i in range(0, len(nights), step)]
    return svg(frame, parts, f"{what}; the value axis does not start at zero")


def _wide_enough(
    spans: Sequence[tuple[float, float, str, str]], least: float
) -> Iterator[tuple[float, float, str, str]]:
    """Spans in their order, those shorter than `least` joined with what follows them: else there may be too many."""
    begin: float | None = None
    joined = 0
    for i, (b, e, css, label) in enumerate(spans):
        begin = b if begin is None else begin
        joined += 1
        if e - begin >= least or i == len(spans) - 1:
            yield begin, e, css, label if joined == 1 else f"{joined} short ones, the last {label}"
            begin, joined = None, 0


def timeline(spans: Sequence[tuple[float, float, str, str]], *, total: float, what: str) -> Markup:
    """Where the time of a campaign went: spans of (begin, end, class, label) in seconds."""
    frame = Frame(720, 46, 0.0, total, 0, 1, left=0, right=0)
    parts = ['<rect class="track" x="0" y="6" width="720" height="20"/>']
    for begin, end, css, label in _wide_enough(spans, total / frame.width):
        x, width = frame.x(begin), max(1.0, frame.x(end) - frame.x(begin) - 0.8)
        box = f'x="{x:.1f}" y="6" width="{width:.1f}" height="20"'
        parts.append(f'<rect class="{css}" {box}><title>{escape(label)}</title></rect>')
    parts += [
        text(frame.x(t), 42, f"{t / 60:g} min" if total > 180 else f"{t:g} s", f"tick {place}")
        for t, place in edges(ticks(0, total / (60 if total > 180 else 1), 5), 60 if total > 180 else 1, total)
    ]
    return svg(frame, parts, what, css="timeline")
