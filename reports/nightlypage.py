"""A night shown: what is worse and on which node, what waits for its re-runs, what changed around it, with trends.

    write(report, stored, every, path)      # `every`: tonight and the nights before it, from reports/archive.py

The same report as the terminal's; nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from reports import charts
from reports.archive import Night
from reports.nightly import Report
from reports.quantities import percent
from reports.rungs import Alarm
from reports.runs import StoredRun
from reports.templates import template
from reports.trend import around, trends

GROUPS, ROWS, CHARTS = 30, 25, 12
NIGHTS = 90  # of the most recent ones, on a trend
WORDS = {0: ("same", "Nothing new"), 1: ("worse", "Regression"), 3: ("undecided", "Cannot say")}
MEANING = {
    0: "Nothing is worse than on the nights before, and everything that was expected is there.",
    1: "Something is worse, and it was seen again or needs no second look.",
    3: "Nothing is proven worse, but not everything could be decided.",
}


def page(report: Report, stored: StoredRun, every: Sequence[Night]) -> str:
    """The night as one self-contained HTML file."""
    nights = [night for night in every if night.run == report.run or _before(night, every, report.run)]
    earlier = [night for night in nights if night.run != report.run and night.suite == stored.run.suite]
    own = [night for night in nights if night.run == report.run]
    word, title = WORDS[report.status]
    climbed = report.climbed
    leading = [group.alarms[0] for group in climbed.groups] + sorted(climbed.suspects, key=lambda a: a.effect)
    text: str = template("nightly.html.j2").render(
        report=report,
        run=stored.run,
        word=word,
        title=title,
        said=MEANING[report.status],
        groups=climbed.groups[:GROUPS],
        suspects=sorted(climbed.suspects, key=lambda a: a.effect),
        refuted=sorted(climbed.refuted, key=lambda a: a.effect),
        improved=sorted(climbed.improved, key=lambda a: -a.effect),
        changed=around(earlier[-1], own[0]) if earlier and own else (),
        last=earlier[-1].run if earlier else "",
        trends={alarm: _trend(alarm, nights[-NIGHTS:]) for alarm in leading[:CHARTS]},
        on=_on,
        NIGHTLY_ROWS=ROWS,
    )
    return text.lstrip()


def write(report: Report, stored: StoredRun, every: Sequence[Night], path: Path) -> Path:
    """Write the page."""
    path.write_text(page(report, stored, every), encoding="utf-8")
    return path


def _before(night: Night, every: Sequence[Night], run: str) -> bool:
    return any(own.run == run and night.started < own.started for own in every)


def _on(alarm: Alarm) -> str:
    """Where an alarm is: its unit and node, or everywhere."""
    on = f" on {alarm.node}" if alarm.node and alarm.node not in alarm.unit else ""
    return f"{alarm.unit}{on}".strip() or "all units"


def _trend(alarm: Alarm, nights: Sequence[Night]) -> Markup:
    """The number of an alarm over the nights; nothing where it has no three of them."""
    metric = alarm.title.split(" ", 1)[0]
    found = [t for t in trends(nights, metric, node=alarm.unit) if t.title == alarm.title and len(t.values) > 2]
    if not found:
        return Markup("")
    t = found[0]
    what = f"{alarm.title}, {_on(alarm)}, {percent(alarm.effect)} tonight, over {len(t.values)} nights"
    names = [f"{when:%Y-%m-%d}" for when in t.when]
    return charts.trend(t.values, names, [c.place for c in t.changes], unit=t.unit, what=what, height=160)
