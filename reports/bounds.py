"""One limit against the units of one attempt: which unit is worst, and on which side of the bound it lies.

Pure arithmetic on estimates. A ratio's reference (another metric, the peers, a baseline) comes in as an
Estimate; where it comes from is the judge's business (reports/judge.py).

>>> limit = Limit(name="floor", metric="m", unit="B/s", source="contract", floor=10.0)
>>> against(limit, [Unit((0,), "rank 0", "n1", (7.0, 8.0, 9.0)), Unit((1,), "rank 1", "n1", (11.0,))])[0]
Judged(unit='rank 0', node='n1', estimate=Estimate(median=8.0, low=7.0, high=9.0, n=3), status='fail')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clusters.limits import Limit
from reports.evidence import Unit
from reports.statistics import Estimate, estimate, median

SEVERITY = ("impossible", "fail", "noisy", "waived", "pass")  # the gravest unit gives the verdict its status


class Judged(NamedTuple):
    """One unit's value (or ratio) and the side of the bound it lies on."""

    unit: str
    node: str
    estimate: Estimate
    status: str


def against(limit: Limit, units: Sequence[Unit], reference: Estimate | None = None) -> list[Judged]:
    """Every unit against the limit, gravest first and among equals the worst first.

    `reference` divides the values, where the limit bounds a ratio to a metric or a baseline. With
    `limit.of == "peers"` it is not used: each unit is held against the median unit, and of two units each
    against the other, so that a good one cannot lift a bad one halfway.
    """
    values = [_estimate(limit, unit) for unit in units]
    if limit.of == "peers":
        values = [v.over(_exact(_peer(values, i))) for i, v in enumerate(values)]
    elif reference is not None:
        values = [v.over(reference) for v in values]
    judged = [
        Judged(unit.label, unit.node, value, _status(limit, value)) for unit, value in zip(units, values, strict=True)
    ]
    return sorted(judged, key=lambda j: (SEVERITY.index(j.status), _goodness(limit, j.estimate.median)))


def margin(limit: Limit, value: float) -> float | None:
    """How far `value` is on the good side, as a share of the limit; None where the limit is zero.

    >>> margin(Limit(name="l", metric="m", unit="s", source="x", ceiling=2.0), 2.5)
    -0.25
    """
    if limit.value == 0:
        return None
    return _goodness(limit, value) / abs(limit.value)


def _goodness(limit: Limit, value: float) -> float:
    """Distance on the good side of the bound, in its unit."""
    if limit.bound == "floor":
        return value - limit.value
    if limit.bound == "ceiling":
        return limit.value - value
    return -abs(value - limit.value)


def _estimate(limit: Limit, unit: Unit) -> Estimate:
    """Median and interval; for equality the worst sample and the range, as every sample must hold."""
    if limit.bound != "equal":
        return estimate(unit.samples)
    worst = max(unit.samples, key=lambda s: abs(s - limit.value))
    return Estimate(worst, min(unit.samples), max(unit.samples), len(unit.samples))


def _peer(values: Sequence[Estimate], index: int) -> float:
    """What one unit is held against: the median unit, of two units the other one."""
    if len(values) == 2:
        return values[1 - index].median
    return median([v.median for v in values])


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value, 1)


def _status(limit: Limit, value: Estimate) -> str:
    beyond = "impossible" if limit.physical else "fail"
    if limit.bound == "equal":
        holds = max(abs(value.low - limit.value), abs(value.high - limit.value)) <= limit.tolerance
        return "pass" if holds else beyond
    if limit.bound == "floor":
        near, far, bound = value.high, value.low, limit.value
    else:
        near, far, bound = -value.low, -value.high, -limit.value
    if near < bound:
        return beyond
    return "noisy" if far < bound else "pass"
