"""Small multiples: each number of a family over the last nights, this run the last of them.

trends(before, "gemm")      # panels, those that changed most first
"""

from __future__ import annotations

from reports import charts
from reports.before import Before
from reports.drawing import Panel
from reports.quantities import percent
from reports.trend import Trend
from reports.trend import trends as trends_of

NIGHTS = 60  # of the most recent ones
SMALL = 12  # panels of a family
LEAST = 3  # fewer nights are no trend


def trends(before: Before, family: str) -> list[Panel]:
    """The family's numbers over the nights; those with the largest change of level first."""
    nights = before.nights[-NIGHTS:]
    if len(nights) < LEAST:
        return []
    own = set(nights[-1].by_key)
    mine = [night for night in nights if own & set(night.by_key)]
    found = [t for t in trends_of(mine, f"{family}.*") if len(t.values) >= LEAST and t.runs[-1] == nights[-1].run]
    found.sort(key=lambda t: (-max([abs(c.effect) for c in t.changes], default=0.0), t.title))
    return [_small(t) for t in found[:SMALL]]


def _small(trend: Trend) -> Panel:
    nights = [f"{when:%Y-%m-%d}" for when in trend.when]
    places = [change.place for change in trend.changes]
    said = f"{len(nights)} nights"
    if trend.changes:
        step = max(trend.changes, key=lambda change: abs(change.effect))
        said += f" · {percent(step.effect)} on {step.when:%Y-%m-%d}"
        if step.around:
            said += f" ({', '.join(f'{name} {old} → {new}' for name, old, new in step.around[:2])})"
    what = f"{trend.title} over {said}"
    chart = charts.trend(trend.values, nights, places, unit=trend.unit, what=what, width=360, height=130)
    return Panel(title=trend.title.partition(".")[2] or trend.title, detail=said, chart=chart)
