"""Frames, axes, marks and words that the charts are drawn with, as pieces of SVG.

>>> Frame(100, 50, 0.0, 10.0, 0.0, 1.0).x(0.0)
46.0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from markupsafe import Markup, escape

from reports.quantities import digits, quantity, scale_of
from reports.statistics import Estimate

BAD = ("fail", "impossible")


class Point(NamedTuple):
    """One value on a chart."""

    x: float
    value: Estimate
    status: str = "pass"
    label: str = ""


class Line(NamedTuple):
    """A limit on a chart; `x` is where it holds, None everywhere."""

    value: float
    label: str
    x: float | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart with its heading."""

    title: str
    detail: str
    chart: Markup
    wide: bool = False
    legend: Markup = field(default_factory=Markup)


class Frame(NamedTuple):
    """The plotting area of a chart and what its edges mean."""

    width: float
    height: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    left: float = 46
    right: float = 10
    top: float = 12
    bottom: float = 26

    def x(self, value: float) -> float:
        """Horizontal place of a value."""
        inside = self.width - self.left - self.right
        return self.left + inside * (value - self.x_low) / ((self.x_high - self.x_low) or 1)

    def y(self, value: float) -> float:
        """Vertical place of a value; the axis grows upwards."""
        inside = self.height - self.top - self.bottom
        return self.height - self.bottom - inside * (value - self.y_low) / ((self.y_high - self.y_low) or 1)


def edges(ticks: Sequence[float], factor: float, total: float) -> list[tuple[float, str]]:
    """Ticks at round times, the outer ones aligned inwards so that none is cut."""
    inside = [t * factor for t in ticks if t * factor <= total]
    return [(t, "start" if t < total * 0.03 else "end" if t > total * 0.97 else "mid") for t in inside]


def y_axis(frame: Frame, unit: str) -> str:
    """Horizontal lines with their values, and the unit above them."""
    factor, name = scale_of(frame.y_high, unit)
    lines = [grid(frame, v, digits(v / factor)) for v in ticks(frame.y_low, frame.y_high, 4)]
    return "".join(lines) + text(frame.left - 6, 9, "" if name == "1" else name, "tick end")


def grid(frame: Frame, value: float, label: str) -> str:
    """One horizontal line with its label."""
    y = frame.y(value)
    line = f'<line class="grid" x1="{frame.left}" x2="{frame.width - frame.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + (text(frame.left - 6, y + 4, label, "tick end") if y > 18 else "")


def limit_line(frame: Frame, line: Line, x: float | None) -> str:
    """The limit as a line across the chart, or a short one at the size it holds for."""
    y = frame.y(line.value)
    begin, end = frame.left, frame.width - frame.right
    if x is not None:
        begin, end = max(begin, frame.x(x) - 26), min(end, frame.x(x) + 26)
    drawn = f'<line class="limit" x1="{begin:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return drawn + text(end, y - 4 if y > 22 else y + 12, line.label, "limit-text end")


def mark(x: float, y: float, p: Point, unit: str, name: str) -> str:
    """A dot; a cross for what failed, an open square for what is undecided."""
    told = f"{name}: {quantity(p.value.median, unit)} (n={p.value.n}), {p.status}"
    title = f"<title>{escape(told)}</title>"
    if p.status in BAD:
        path = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
        return f'<path class="cross" d="{path}">{title}</path>'
    if p.status == "noisy":
        return f'<rect class="open" x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7">{title}</rect>'
    return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.6">{title}</circle>'


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two, about so many.

    >>> ticks(0, 10, 4)
    [0.0, 2.5, 5.0, 7.5, 10.0]
    """
    raw = (high - low) / about
    if raw <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1, 2, 2.5, 5, 10) if raw <= m * power * 1.001), 10 * power)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def spread(items: Sequence[tuple[float, Point]], about: int) -> list[tuple[float, Point]]:
    """At most so many of the items, evenly, the last one among them."""
    step = max(1, math.ceil((len(items) - 1) / max(1, about - 1)))
    return [item for i, item in enumerate(items) if (len(items) - 1 - i) % step == 0]


def path(places: Sequence[tuple[float, float]]) -> str:
    """Places as the points of a line or an area."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def text(x: float, y: float, words: str, css: str) -> str:
    """Words at a place."""
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def svg(frame: Frame, parts: Sequence[str], what: str, *, css: str = "chart", style: str = "") -> Markup:
    """The whole chart; `what` is read out where it cannot be seen."""
    box = f"0 0 {frame.width:g} {frame.height:g}"
    head = f'<svg class="{css}"{style} viewBox="{box}" role="img" aria-label="{escape(what)}">'
    return Markup(head + "".join(parts) + "</svg>")
