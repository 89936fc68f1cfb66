"""Charts of where time and money go: shares of a step, ranks of a save, slots of a pipeline, conditions, rent or buy.

Drawn as reports/charts.py does: shapes and places only, colours are the page's classes, every chart says what it
shows. Time runs to the right and begins at zero.

>>> "<svg" in shares([("step", (("compute", 0.8), ("bubble", 0.2)))], ("compute", "bubble"), what="a step")
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from reports.drawing import Frame, Line, edges, grid, svg, text, ticks
from reports.quantities import digits, quantity, scale_of, share

WIDE = 720.0
NARROW = 0.045  # share of a bar that is too narrow for its number
KINDS = {"F": "forward", "B": "backward", "I": "backward, inputs", "W": "backward, weights"}
COLOURS = 12
LABELS = 16  # ranks that are named on an axis


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One quantity over the benchmarks of a run: the lowest, middle and highest of all nodes, or None."""

    name: str
    unit: str
    values: tuple[tuple[float, float, float] | None, ...]
    bad: frozenset[int] = field(default_factory=frozenset)  # places where it disqualified what was measured


def shares(bars: Sequence[tuple[str, Sequence[tuple[str, float]]]], names: Sequence[str], *, what: str) -> Markup:
    """Each bar is a whole, cut into named shares; the n-th of `names` has the n-th colour, here and in the legend."""
    height, top = 22.0, 16.0
    frame = Frame(WIDE, len(bars) * (height + 18) + 26, 0.0, 1.0, 0, 1, left=0, right=0)
    drawn = []
    for i, (title, parts) in enumerate(bars):
        y, x = i * (height + 18) + top, 0.0
        drawn.append(text(0, y - 4, title, "tick"))
        for name, part in parts:
            width = max(0.0, part) * WIDE
            words = f"{name} {share(part)}"
            box = f'x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width - 1):.1f}" height="{height:g}"'
            drawn.append(f'<rect class="s{names.index(name) % COLOURS}" {box}><title>{escape(words)}</title></rect>')
            if part >= NARROW:
                drawn.append(text(x + width / 2, y + 15, f"{100 * part:.0f} %", "inside mid"))
            x += width
    drawn += [
        text(v * WIDE, frame.height - 4, f"{100 * v:g} %", f"tick {place}")
        for v, place in ((0.0, "start"), (0.25, "mid"), (0.5, "mid"), (0.75, "mid"), (1.0, "end"))
    ]
    return svg(frame, drawn, what, css="wide")


def legend(names: Sequence[str], used: Mapping[str, str]) -> Markup:
    """The colours of the `used` names with what they mean, as HTML."""
    swatches = [
        f'<span class="key"><span class="swatch s{i % COLOURS}"></span>{escape(used[name])}</span>'
        for i, name in enumerate(names)
        if name in used
    ]
    return Markup(" ").join(map(Markup, swatches))


def slot_legend(kinds: Sequence[str]) -> Markup:
    """What the colours of `slots` mean, as HTML."""
    swatches = [
        f'<span class="key"><span class="swatch k{escape(k)}"></span>{escape(KINDS.get(k, k))}</span>' for k in kinds
    ]
    return Markup(" ").join(
        map(Markup, [*swatches, '<span class="key"><span class="swatch track"></span>waiting</span>'])
    )


def ranks(
    values: Sequence[float], lines: Sequence[Line], *, what: str, begins: Sequence[float] | None = None
) -> Markup:
    """How long each rank took, from a common begin or from its own of `begins` until `values`; the last is named."""
    starts = begins or [0.0] * len(values)
    slowest = max(range(len(values)), key=lambda i: values[i])
    height = min(16.0, max(4.0, 260 / len(values)))
    reach = max([*values, *(line.value for line in lines)]) * 1.08 or 1.0
    frame = Frame(WIDE, len(values) * height + 44, 0.0, reach, 0, 1, left=54, right=60, top=16, bottom=28)
    drawn = _time_axis(frame)
    step = max(1, math.ceil(len(values) / LABELS))
    for i, value in enumerate(values):
        x, y = frame.x(starts[i]), frame.top + i * height
        width = max(0.5, frame.x(value) - x)
        box = f'x="{x:g}" y="{y + 0.5:.1f}" width="{width:.1f}" height="{height - 1:.1f}"'
        css = "slowest" if i == slowest else "rank"
        told = f"rank {i}: {quantity(value, 's')}"
        if begins:
            told = f"rank {i}: from {quantity(starts[i], 's')} to {quantity(value, 's')}"
        drawn.append(f'<rect class="{css}" {box}><title>{told}</title></rect>')
        if i % step == 0:
            drawn.append(text(frame.left - 6, y + height / 2 + 4, f"rank {i}", "tick end"))
    for line in lines:
        x = frame.x(line.value)
        drawn.append(
            f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{frame.height - frame.bottom}"/>'
        )
        drawn.append(text(x, 11, line.label, "limit-text mid"))
    y = frame.top + (slowest + 0.5) * height + 4
    drawn.append(text(frame.x(values[slowest]) + 5, y, f"rank {slowest}: {quantity(values[slowest], 's')}", "strong"))
    return svg(frame, drawn, what, css="wide")


def slots(rows: Sequence[tuple[int, str, int, int, float, float]], *, what: str) -> Markup:
    """A pipeline's schedule: (rank, kind, stage, micro-batch, begin, end), a row for each rank."""
    num_ranks, end = 1 + max(row[0] for row in rows), max(row[5] for row in rows)
    height = min(24.0, max(10.0, 320 / num_ranks))
    frame = Frame(WIDE, num_ranks * height + 34, 0.0, end, 0, 1, left=54, right=6, top=4, bottom=28)
    drawn = [
        f'<rect class="track" x="{frame.left:g}" y="{frame.top + r * height + 0.5:.1f}" '
        f'width="{frame.width - frame.left - frame.right:g}" height="{height - 1:.1f}"/>'
        for r in range(num_ranks)
    ]
    for rank, kind, stage, micro_batch, begin, finish in rows:
        x, width = frame.x(begin), frame.x(finish) - frame.x(begin)
        y = frame.top + rank * height
        box = f'x="{x:.1f}" y="{y + 0.5:.1f}" width="{max(0.5, width - 0.6):.1f}" height="{height - 1:.1f}"'
        words = f"{KINDS.get(kind, kind)} of micro-batch {micro_batch}, stage {stage}: {quantity(finish - begin, 's')}"
        drawn.append(f'<rect class="slot k{escape(kind)}" {box}><title>{escape(words)}</title></rect>')
        if width > 13 and height >= 14:
            drawn.append(text(x + width / 2, y + height / 2 + 4, str(micro_batch), "inside mid"))
    step = max(1, math.ceil(num_ranks / LABELS))
    drawn += [
        text(frame.left - 6, frame.top + (r + 0.5) * height + 4, f"stage {r}", "tick end")
        for r in range(0, num_ranks, step)
    ]
    return svg(frame, drawn + _time_axis(frame, lines=False), what, css="wide")


def lanes(columns: Sequence[str], every: Sequence[Lane], *, what: str) -> Markup:
    """Conditions over the benchmarks of a run, a lane for each quantity; a cross marks what disqualified."""
    height, gap, left = 46.0, 14.0, 128.0
    bottom = 30.0
    outer = Frame(WIDE, len(every) * (height + gap) + bottom, 0, 1, 0, 1)
    room = (WIDE - left - 8) / max(1, len(columns))
    drawn = []
    for k, lane in enumerate(every):
        y = k * (height + gap)
        known = [v for v in lane.values if v]
        low, high = min(v[0] for v in known), max(v[2] for v in known)
        pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
        frame = Frame(WIDE, y + height, 0, 1, low - pad, high + pad, left=left, right=8, top=y, bottom=0)
        box = f'x="{left:g}" y="{y:.1f}" width="{WIDE - left - 8:.1f}" height="{height:g}"'
        drawn.append(f'<rect class="track" {box}/>')
        drawn.append(text(0, y + 14, lane.name, "tick"))
        factor, unit = scale_of(high, lane.unit) if lane.unit == "s" else (1.0, lane.unit)
        shown = digits(high / factor) if low == high else f"{digits(low / factor)} to {digits(high / factor)}"
        drawn.append(text(0, y + 29, f"{shown} {'' if unit == '1' else unit}".strip(), "tick"))
        for i, value in enumerate(lane.values):
            if value:
                drawn.append(_lane_mark(frame, left + (i + 0.5) * room, room, value, lane, i, columns[i]))
    step = max(1, math.ceil(len(columns) / max(1, int((WIDE - left) / 92))))
    drawn += [
        text(left + (i + 0.5) * room, outer.height - 16, name if len(name) < 15 else name[:14] + "…", "tick mid")
        for i, name in enumerate(columns)
        if i % step == 0
    ]
    return svg(outer, drawn, what, css="wide")


def _lane_mark(
    frame: Frame, x: float, room: float, value: tuple[float, float, float], lane: Lane, i: int, column: str
) -> str:
    low, middle, high = value
    unit = "" if lane.unit == "1" else f" {lane.unit}"
    told = f"{column}: {lane.name} {digits(middle)}{unit}"
    if low != high:
        told += f", {digits(low)} to {digits(high)} over the nodes"
    title = f"<title>{escape(told)}</title>"
    y1, y2 = frame.y(high), frame.y(low)
    width = min(14.0, room * 0.6)
    box = f'x="{x - width / 2:.1f}" y="{y1:.1f}" width="{width:.1f}" height="{max(1.5, y2 - y1):.1f}"'
    drawn = f'<rect class="range" {box}>{title}</rect>'
    if i in lane.bad:
        y = frame.y(high)
        return drawn + f'<path class="cross" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8">{title}</path>'
    return drawn + f'<circle class="dot" cx="{x:.1f}" cy="{frame.y(middle):.1f}" r="2.4">{title}</circle>'


def owning(
    *, buy: float, keep: float, rents: Sequence[tuple[str, float]], crossings: Sequence[float], unit: str, what: str
) -> Markup:
    """Money spent after so many months: owning as one line, each rent (name, a month) as another, crossings marked."""
    finite = [m for m in crossings if math.isfinite(m)]
    months = max(6.0, 1.6 * max(finite, default=10.0))
    top = 1.05 * max(
        [buy + keep * months, *(rent * min(months, 1.6 * max(finite, default=months)) for _, rent in rents)]
    )
    top = min(top, 2.6 * (buy + keep * months))
    frame = Frame(WIDE, 260, 0.0, months, 0.0, top, left=64, right=150, top=16, bottom=34)
    factor, name = next(((f, n) for f, n in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if top >= f), (1.0, ""))
    drawn = [grid(frame, v, digits(v / factor)) for v in ticks(0.0, top, 4)]
    drawn.append(text(frame.left - 6, 9, f"{name} {unit}".strip(), "tick end"))
    drawn += [text(frame.x(v), frame.height - 16, digits(v), "tick mid") for v in ticks(0.0, months, 6)]
    drawn.append(text(frame.x(months / 2), frame.height - 2, "months", "tick mid"))
    lines = [("owning", buy, keep), *((title, 0.0, rent) for title, rent in rents)]
    for i, (title, at_begin, a_month) in enumerate(lines):
        end = months if at_begin + a_month * months <= top else (top - at_begin) / a_month
        x, y = frame.x(end), frame.y(at_begin + a_month * end)
        drawn.append(
            f'<line class="money m{min(i, 3)}" x1="{frame.left:g}" y1="{frame.y(at_begin):.1f}" '
            f'x2="{x:.1f}" y2="{y:.1f}"/>'
        )
        drawn.append(text(x + 6, y + 4, title, "strong"))
    for (title, rent), month in zip(rents, crossings, strict=True):
        if math.isfinite(month):
            x, y = frame.x(month), frame.y(rent * month)
            told = f"<title>{escape(title)}: buying is cheaper after {digits(month)} months</title>"
            drawn.append(f'<circle class="open even" cx="{x:.1f}" cy="{y:.1f}" r="5">{told}</circle>')
            drawn.append(text(x + 9, y + 19, f"{month:.1f} months", "strong"))
    return svg(frame, drawn, what, css="wide")


def _time_axis(frame: Frame, *, lines: bool = True) -> list[str]:
    factor, unit = scale_of(frame.x_high, "s")
    bottom = frame.height - frame.bottom
    found = []
    for value, place in edges(ticks(0.0, frame.x_high / factor, 6), factor, frame.x_high):
        x = frame.x(value)
        if lines:
            found.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{bottom}"/>')
        found.append(text(x, bottom + 14, f"{digits(value / factor)} {unit}", f"tick {place}"))
    return found
