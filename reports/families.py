"""The measured numbers of a run, family by family, as charts and short tables for the page.

Sweeps over sizes become curves, ranks and nodes become marks or a step curve, pairs become a heat map, single
numbers become rows. Exact results (no wrong element) are only counted. What a chart marks as failed is what
the Verdicts say; nothing is judged here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.measurement import PAIRS, Expected, Verdict, params_key
from reports import charts, durability, heatmap
from reports.anatomy import anatomies
from reports.before import Before
from reports.drawing import Line, Panel, Point
from reports.evidence import Attempt, Evidence
from reports.findings import SIGNS, family, limit_text
from reports.quantities import param, percent, quantity, size
from reports.runs import StoredRun
from reports.sparks import trends
from reports.statistics import Estimate, median
from reports.units import Units

PANELS = 24  # charts of one family; more are counted
BYTES = 900_000  # of all charts of a page; of more, those that come later are counted
ROWS = 40  # rows of a family's table
MARKS = 64  # so many ranks have a mark each; more become a step curve
NAMED = 3  # of them that a step curve names
GRAVITY = ("error", "missing", "impossible", "fail", "noisy", "waived", "pass")

ABOUT = {
    "gemm": "Matrix products on every device at once. The slowest device counts.",
    "memory": "Copies inside device memory; bytes read and written are both counted.",
    "collectives": "Bus bandwidth as nccl-tests counts it, from verified results; the time is the slowest rank's.",
    "links": "Every ordered pair of ranks. Latency is half the round trip.",
    "checkpoint": "Save until durable, the raw writer in the same run, and a verified load.",
    "reads": "Token files read cold by all ranks at once, by others than wrote them, in order and at random.",
    "training": "Whole training steps of the reference model; the loss is compared with a single process.",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number in a family's table."""

    what: str
    detail: str
    value: str
    interval: str
    n: int
    limits: str
    status: str
    before: str  # what the baseline measured, and how much this is more or less
    e: Expected


@dataclass(kw_only=True)
class Family:
    """Everything the page shows of one family of metrics."""

    name: str
    about: str = ""
    panels: list[Panel] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    exact: int = 0  # exact results that hold
    trends: list[Panel] = field(default_factory=list)  # over the nights before
    absent: list[str] = field(default_factory=list)  # what was not recorded, so that it is not drawn
    left_out: int = 0  # charts and rows beyond what one page holds


def families(
    stored: StoredRun, verdicts: Sequence[Verdict], before: Before | None = None, *, room: int = BYTES
) -> list[Family]:
    """The families of a run in the order in which they were expected, beside what was measured `before`.

    Their charts take about `room` bytes at most.
    """
    before = before or Before.of(stored)
    by_number: dict[tuple[str, str, str], list[Verdict]] = defaultdict(list)
    for v in verdicts:
        by_number[v.config, v.metric, params_key(v.params)].append(v)
    groups: dict[str, dict[tuple[Any, ...], list[Expected]]] = defaultdict(lambda: defaultdict(list))
    for e in stored.run.expected:
        groups[family(e.metric)][_group(e)].append(e)
    found: list[Family] = []
    inside = anatomies(stored)
    for name, members in groups.items():
        made = Family(name=name, about=ABOUT.get(name, ""))
        for group in members.values():
            drawn = sum(len(panel.chart) for each in (*found, made) for panel in each.panels)
            _add(made, group, stored.evidence, by_number, before, full=drawn > room)
        if name in inside:
            made.panels += inside[name].panels
            made.absent += inside[name].absent
        if name == "checkpoint":
            made.panels += durability.panels(stored)
        made.trends += trends(before, name)
        if made.panels or made.rows or made.exact:
            found.append(made)
    return found


def _group(e: Expected) -> tuple[Any, ...]:
    """What is shown together: the sizes of one sweep, all exact results, else each number alone."""
    if e.better == "equal":
        return ("exact",)
    if e.per == "world" and "bytes" in e.params and e.metric.rpartition(".")[2] in ("busbw", "latency"):
        return e.metric, e.config, params_key({k: v for k, v in e.params.items() if k != "bytes"})
    return e.metric, e.config, params_key(e.params)


def _add(
    made: Family, group: list[Expected], evidence: Evidence, by_number: dict[tuple[str, str, str], list[Verdict]],
    before: Before, *, full: bool,
) -> None:  # fmt: skip
    """Turn one group into a chart, a row or a count."""
    if group[0].better == "equal":
        made.exact += sum(all(v.status == "pass" for v in by_number[e.config, *e.key]) for e in group)
        return
    measured = []
    full = full or len(made.panels) >= PANELS or len(made.rows) >= ROWS
    for e in () if full else group:
        attempts = evidence.attempts(e)
        if attempts and not attempts[-1].problem:
            measured.append((e, attempts[-1], by_number[e.config, *e.key]))
    if not measured:
        made.left_out += full
        return
    e, attempt, verdicts = measured[0]
    if len(measured) > 1:
        made.panels.append(_sweep(measured, before, of=len(group)))
    elif e.per in PAIRS and len(attempt.units) > 1:
        made.panels.append(_pairs(e, attempt, verdicts))
    elif len(attempt.units) > 1:
        made.panels.append(_units(e, attempt, verdicts, before.value(e)))
    else:
        made.rows.append(_row(e, attempt.estimates.at(0), verdicts, before.value(e)))


def _sweep(measured: Sequence[tuple[Expected, Attempt, list[Verdict]]], before: Before, *, of: int) -> Panel:
    first = measured[0][0]
    points, limits = [], defaultdict(list)
    for e, attempt, verdicts in measured:
        points.append(Point(float(e.params["bytes"]), attempt.estimates.at(0), _status(verdicts)))
        for v in _absolute(e, verdicts):
            limits[v.limit, v.bound, v.limit_value].append(float(e.params["bytes"]))
    lines = [
        Line(float(value or 0), f"{SIGNS[bound]} {quantity(value, first.unit)}", x)
        for (_, bound, value), at in limits.items()
        for x in ([None] if len(at) == len(measured) else at)
    ]
    detail = _detail(first, but=("bytes",))
    if len(measured) < of:
        detail += f" · only {len(measured)} of {of} sizes were measured"
    what = f"{first.metric} {detail} from {size(int(points[0].x))} to {size(int(points[-1].x))}"
    known = [Point(float(e.params["bytes"]), value) for e, *_ in measured if (value := before.value(e))]
    chart = charts.sweep(points, lines, unit=first.unit, what=what, before=known)
    return Panel(title=_title(first), detail=detail, chart=chart)


def _units(e: Expected, attempt: Attempt, verdicts: list[Verdict], before: Estimate | None) -> Panel:
    """Every unit with its own mark, or of many a step curve with the worst ones named."""
    num = len(attempt.units)
    typical = median(attempt.estimates.median.tolist())
    lines = [Line(float(v.limit_value or 0), limit_text(v)) for v in _absolute(e, verdicts)]
    lines = [line for line in lines if 0.5 * typical < line.value < 1.5 * typical]  # others would flatten the chart
    if before and not 0.5 * typical < before.median < 1.5 * typical:
        before = None
    what = f"{e.metric} of {num:,} {e.per}s, median {quantity(typical, e.unit)}"
    each = f"each {e.per}" if num <= MARKS else f"share of {num:,} {e.per}s that reach at most"
    detail = " · ".join(part for part in (_detail(e), each) if part)
    bad = _bad_units(verdicts)
    if num <= MARKS:
        order = sorted(range(num), key=lambda i: attempt.units[i].identity)
        points = [_point(attempt, i, place, bad) for place, i in enumerate(order)]
        chart = charts.units(points, lines, unit=e.unit, what=what, before=before)
        return Panel(title=_title(e), detail=detail, chart=chart)
    values, higher = attempt.estimates.median, e.better == "higher"
    order = values.argsort(kind="stable").tolist()
    worst = [_point(attempt, i, 0, bad) for i in (order[:NAMED] if higher else order[: -NAMED - 1 : -1])]
    told = f"{what}; worst: {', '.join(p.label for p in worst)}"
    chart = charts.ecdf(values.tolist(), worst, lines, unit=e.unit, what=told, before=before, higher=higher)
    return Panel(title=_title(e), detail=detail, chart=chart)


def _point(attempt: Attempt, i: int, place: int, bad: dict[str, str]) -> Point:
    unit = attempt.units[i]
    return Point(float(place), attempt.estimates.at(i), bad.get(unit.label, "pass"), _name(unit.label, unit.node))


def _name(label: str, node: str) -> str:
    """A unit's label, with its node where that is known."""
    return f"{label} on {node}" if node and node not in label else label


def _pairs(e: Expected, attempt: Attempt, verdicts: list[Verdict]) -> Panel:
    units, higher = attempt.units, e.better == "higher"
    identities = units.identities if isinstance(units, Units) else [unit.identity for unit in units]
    table, block = heatmap.cells(identities, attempt.estimates.median, higher=higher)
    failing = heatmap.marked(_bad_units(verdicts), block)
    what = heatmap.told(table, failing, metric=e.metric, pairs=len(units), unit=e.unit)
    worst = f"worst pair of each {block} x {block} ranks" if block > 1 else ""
    detail = " · ".join(part for part in (_detail(e), "row sends to column", worst) if part)
    chart = heatmap.draw(table, block, failing, unit=e.unit, higher=higher, what=what)
    return Panel(title=_title(e), detail=detail, chart=chart, wide=len(table) > 8)


def _row(e: Expected, value: Estimate, verdicts: list[Verdict], before: Estimate | None) -> Row:
    limits = [limit_text(v) + (f" of {_ratio(v)}" if v.limit_unit != e.unit else "") for v in verdicts if v.limit]
    return Row(
        what=_title(e),
        detail=_detail(e),
        value=quantity(value.median, e.unit),
        interval=f"{quantity(value.low, e.unit)} to {quantity(value.high, e.unit)}" if value.n > 1 else "one sample",
        n=value.n,
        limits=", ".join(limits) or "no limit",
        status=_status(verdicts) if verdicts else "measured",
        before=f"{quantity(before.median, e.unit)} ({percent(value.median / before.median - 1)})"
        if before and before.median
        else "",
        e=e,
    )


def _ratio(v: Verdict) -> str:
    return f"its reference ({quantity(v.value, '1')} reached)"


def _title(e: Expected) -> str:
    return e.metric.partition(".")[2] or e.metric


def _detail(e: Expected, but: Iterable[str] = ()) -> str:
    shown = sorted(
        ((k, v) for k, v in e.params.items() if k not in but), key=lambda item: (item[0] != "bytes", item[0])
    )
    return " · ".join(param(k, v) for k, v in shown if (k, v) != ("group", "world"))


def _absolute(e: Expected, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts whose limit is on the value itself, so that it can be drawn beside it."""
    return [v for v in verdicts if v.limit_value is not None and v.limit_unit == e.unit and v.bound != "equal"]


def _status(verdicts: Iterable[Verdict]) -> str:
    """The gravest status of mandatory limits; advisory ones do not colour a chart."""
    found = {v.status for v in verdicts if v.mandatory}
    return next((s for s in GRAVITY if s in found), "pass")


def _bad_units(verdicts: Iterable[Verdict]) -> dict[str, str]:
    """Labels of units that a mandatory limit fails, with the status."""
    bad = {}
    for v in verdicts:
        if v.mandatory and v.status in ("fail", "impossible", "noisy", "waived"):
            bad[v.subject] = v.status
            bad |= {unit[0]: v.status for unit in v.evidence.get("units", ())}
    return bad
