"""`history METRIC`: a number over the nights, where it changed, and what changed around it then.

    python -m reports history collectives.all_reduce.busbw --history runs --node gpu-a07-1 -o trend.html

Change points are shown; no verdict rests on them. The environment's facts of the night before a change and of the
night it begins are compared, as that is where its cause is looked for first.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from markupsafe import Markup
from tabulate import tabulate

from reports import charts
from reports.archive import Night, Series, nights
from reports.changepoints import change_points
from reports.comparison import Key
from reports.quantities import percent, quantity
from reports.repairs import Effect, Repair, concern, effects, recorded, seen
from reports.runs import RunError
from reports.templates import template

ROWS = 40
PANELS = 60


@dataclass(frozen=True, kw_only=True)
class Change:
    """A new level that begins on one night."""

    night: str  # the run with which it begins
    when: datetime
    place: int
    effect: float  # share; negative is worse
    around: tuple[tuple[str, str, str], ...]  # facts that differ: name, before, after


@dataclass(frozen=True, kw_only=True)
class Trend:
    """One number over the nights."""

    title: str
    unit: str
    better: str
    runs: tuple[str, ...]
    when: tuple[datetime, ...]
    values: tuple[float, ...]
    changes: tuple[Change, ...]
    repairs: tuple[Effect, ...] = ()


def trends(
    every: Sequence[Night], metric: str, *, node: str = "", serial: str = "", repairs: Sequence[Repair] = ()
) -> list[Trend]:
    """The trend of each number whose metric matches a shell pattern: its median unit, one node's units, or one part's.

    A part (GPU or adapter) is followed by its serial through all places: its own unit where there is one, else the
    units of the node that it was in.
    """
    keys: dict[Key, Series] = {}
    for night in every:
        keys |= {s.key: s for s in night.series if fnmatchcase(s.metric, metric) and s.better != "equal"}
    told = concern([*repairs, *seen(every)], node=node, serial=serial) if node or serial else list(repairs)
    told.sort(key=lambda repair: repair.at)
    found = [_trend(every, series, node, serial, told) for series in keys.values()]
    return [trend for trend in found if trend.values]


def _trend(every: Sequence[Night], series: Series, node: str, serial: str, repairs: Sequence[Repair]) -> Trend:
    points = [
        (night, float(np.median(night.medians(s)[chosen])))
        for night in every
        if (s := night.by_key.get(series.key)) and (chosen := _places(night, s, node, serial))
    ]
    changes = []
    values = [value for _, value in points]
    found = change_points([math.log(v) for v in values] if min(values, default=0.0) > 0 else values)
    edges = [0, *found, len(values)]
    for k, place in enumerate(found):
        before, after = (float(np.median(values[edges[i] : edges[i + 1]])) for i in (k, k + 1))
        better = after / before if series.better == "higher" else before / after
        previous, night = points[place - 1][0], points[place][0]
        changes.append(
            Change(night=night.run, when=night.started, place=place, effect=better - 1, around=around(previous, night))
        )
    return Trend(
        title=series.title,
        unit=series.unit,
        better=series.better,
        runs=tuple(night.run for night, _ in points),
        when=tuple(night.started for night, _ in points),
        values=tuple(values),
        changes=tuple(changes),
        repairs=tuple(effects(repairs, [night.started for night, _ in points], values, series.better)),
    )


def _places(night: Night, series: Series, node: str, serial: str) -> list[int]:
    """Which units count: all, those of one node (or with that label), or those of the part with a serial."""
    if serial:
        if own := [i for i, each in enumerate(series.serials) if each == serial]:
            return own
        at = night.places.get(serial)
        return [i for i, on in enumerate(series.nodes) if at and on == at[0]]
    if not node:
        return list(range(len(series.labels)))
    return [i for i, (label, on) in enumerate(zip(series.labels, series.nodes, strict=True)) if node in (label, on)]


def around(before: Night, after: Night) -> tuple[tuple[str, str, str], ...]:
    """Facts of the environment that differ between two nights: name, before, after."""
    names = sorted(before.facts.keys() | after.facts.keys())
    pairs = [(name, before.facts.get(name, "not known"), after.facts.get(name, "not known")) for name in names]
    return tuple(pair for pair in pairs if pair[1] != pair[2])


def table(found: Sequence[Trend]) -> str:
    """The trends as text, those that changed first."""
    ordered = sorted(found, key=lambda t: min([c.effect for c in t.changes], default=1.0))
    rows = [
        (
            trend.title,
            len(trend.values),
            quantity(float(np.median(trend.values)), trend.unit),
            quantity(trend.values[-1], trend.unit),
            "; ".join(f"{c.when:%Y-%m-%d} {percent(c.effect)}" for c in trend.changes),
        )
        for trend in ordered[:ROWS]
    ]
    parts = [tabulate(rows, headers=("number", "nights", "median", "last", "changes"), tablefmt="simple")]
    if len(ordered) > ROWS:
        parts.append(f"... and {len(ordered) - ROWS:,} more")
    around = {
        f"{c.when:%Y-%m-%d} {name}: {old} -> {new}" for t in ordered for c in t.changes for name, old, new in c.around
    }
    if around:
        parts.append("\n".join(["what else changed on those nights", *sorted(around)]))
    units: dict[str, set[str]] = {}
    for trend in found:
        units.setdefault(trend.title, set()).add(f"{trend.unit} ({trend.better} is better)")
    parts += [
        f"{name} changed its unit: {' and '.join(sorted(u))}; not compared" for name, u in units.items() if len(u) > 1
    ]
    if repaired := [(t, e) for t in ordered[:ROWS] for e in t.repairs]:
        helped = [(e.repair.line(), t.title, _gain(e), e.word) for t, e in repaired[:ROWS]]
        parts.append(tabulate(helped, headers=("repair", "number", "after it", ""), tablefmt="simple"))
    return "\n\n".join(parts)


def _gain(found: Effect) -> str:
    return "–" if found.gain is None else percent(found.gain)


def page(found: Sequence[Trend], *, metric: str, node: str) -> str:
    """The trends as one self-contained HTML file, those that changed first."""
    ordered = sorted(found, key=lambda t: min([c.effect for c in t.changes], default=1.0))
    text: str = template("trend.html.j2").render(
        gain=_gain,
        trends=ordered[:PANELS],
        left_out=max(0, len(ordered) - PANELS),
        metric=metric,
        node=node,
        chart=_chart,
    )
    return text.lstrip()


def _chart(trend: Trend) -> Markup:
    return charts.trend(
        list(trend.values),
        [f"{when:%Y-%m-%d}" for when in trend.when],
        [change.place for change in trend.changes],
        unit=trend.unit,
        what=f"{trend.title} over {len(trend.values)} nights, {len(trend.changes)} changes",
    )


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `history`."""
    words = "a number over the nights, where it changed, and what changed around it"
    parser = commands.add_parser("history", help=words, description=words)
    parser.add_argument("metric", help="a metric's name or a shell pattern: 'gemm.*'")
    parser.add_argument("--history", type=Path, default=Path("runs"), metavar="DIR", help="a folder of runs (runs)")
    parser.add_argument("--cluster", default="", metavar="NAME", help="only this cluster's runs")
    parser.add_argument("--node", default="", metavar="NAME", help="only this node's units (or one unit's label)")
    parser.add_argument("--serial", default="", metavar="SN", help="only this GPU or adapter, wherever it was")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write a page too")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    every = nights(options.history, cluster=options.cluster)
    named = {"node": options.node, "serial": options.serial}
    found = trends(every, options.metric, **named, repairs=recorded(options.history))
    if not found:
        metrics = sorted({s.metric for night in every for s in night.series})
        on = "".join(f" of {kind} {name}" for kind, name in named.items() if name)
        raise RunError(f"no number {options.metric}{on} in {len(every)} runs of {options.history}; there are: "
                       f"{', '.join(metrics[:20]) or 'none'}")  # fmt: skip
    print(table(found))
    if options.output:
        options.output.write_text(
            page(found, metric=options.metric, node=options.serial or options.node), encoding="utf-8"
        )
        print(f"\npage: {options.output}")
    return 0
