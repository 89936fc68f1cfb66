"""One limit against the units of one attempt: which unit is worst, and on which side of the bound it lies.

Pure arithmetic on estimates. A ratio's reference (another metric, the peers, a baseline) comes in as an
Estimate; where it comes from is the judge's business (reports/judge.py).

>>> from reports.units import Unit
>>> limit = Limit(name="floor", metric="m", unit="B/s", source="contract", floor=10.0)
>>> units = Unit((0,), "rank 0", "n1", (7.0, 8.0, 9.0)), Unit((1,), "rank 1", "n1", (11.0,))
>>> against(limit, Attempt(numbers=(1,), units=units))[0]
Judged(unit='rank 0', node='n1', estimate=Estimate(median=8.0, low=7.0, high=9.0, n=3), status='fail')
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clusters.limits import Limit
from reports.evidence import Attempt
from reports.statistics import Estimate, Estimates
from reports.units import samples_of

Floats = npt.NDArray[np.float64]


class Judged(NamedTuple):
    """One unit's value (or ratio) and the side of the bound it lies on."""

    unit: str
    node: str
    estimate: Estimate
    status: str


def against(
    limit: Limit, attempt: Attempt, reference: Estimate | None = None, *, excused: Collection[str] = ()
) -> list[Judged]:
    """The units that do not pass, gravest first and among equals the worst first, then the worst that passes.

    A value that is no finite number (a ratio that overflows) is an `error`, never on the good side.

    `reference` divides the values, where the limit bounds a ratio to a metric or a baseline. With
    `limit.of == "peers"` it is not used: each unit is held against the median unit, and of two units each
    against the other, so that a good one cannot lift a bad one halfway. Units on `excused` nodes, which are known to
    be bad, are judged like the others but do not count towards that median.
    """
    values = _extremes(limit, attempt) if limit.bound == "equal" else attempt.estimates
    with np.errstate(all="ignore"):  # what overflows is found below
        if limit.of == "peers":
            peer = _peers(values.median, _counted(attempt, excused))
            values = values.over(peer, peer, peer)
        elif reference is not None:
            values = values.over(reference.median, reference.low, reference.high)
    broken = ~np.isfinite([values.median, values.low, values.high]).all(axis=0)
    beyond, undecided = _sides(limit, values)
    rank = np.select([broken, beyond, undecided], [0, 1, 2], 3)
    order = np.lexsort((_goodness(limit, values.median), rank))
    failing = int(np.count_nonzero(rank < 3))
    names = "error", "impossible" if limit.physical else "fail", "noisy", "pass"
    units = attempt.units
    return [Judged(units[i].label, units[i].node, values.at(i), names[rank[i]]) for i in map(int, order[: failing + 1])]


def margin(limit: Limit, value: float) -> float | None:
    """How far `value` is on the good side, as a share of the limit; None where the limit is zero.

    >>> margin(Limit(name="l", metric="m", unit="s", source="x", ceiling=2.0), 2.5)
    -0.25
    """
    if limit.value == 0:
        return None
    return float(_goodness(limit, np.array(value))) / abs(limit.value)


def _goodness(limit: Limit, value: Floats) -> Floats:
    """Distance on the good side of the bound, in its unit."""
    if limit.bound == "floor":
        return value - limit.value
    if limit.bound == "ceiling":
        return limit.value - value
    return -np.abs(value - limit.value)


def _sides(limit: Limit, values: Estimates) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which units lie wholly beyond the bound, and which cannot be told.

    Undecided is a unit whose interval holds the bound. What physics allows asks whether the measurement is sound,
    not how good the unit is: there a noisy end beyond the bound proves nothing, and only the median counts.
    """
    if limit.bound == "equal":
        off = np.maximum(np.abs(values.low - limit.value), np.abs(values.high - limit.value))
        return off > limit.tolerance, np.zeros(len(off), dtype=bool)
    if limit.bound == "floor":
        return values.high < limit.value, (values.median if limit.physical else values.low) < limit.value
    return values.low > limit.value, (values.median if limit.physical else values.high) > limit.value


def _extremes(limit: Limit, attempt: Attempt) -> Estimates:
    """For equality every sample must hold: the worst one, and the whole range."""
    samples = samples_of(attempt.units)
    if isinstance(samples, np.ndarray):
        furthest = np.abs(samples - limit.value).argmax(axis=1)
        columns = samples[np.arange(len(samples)), furthest], samples.min(axis=1), samples.max(axis=1)
    else:
        rows = [(max(row, key=lambda s: abs(s - limit.value)), min(row), max(row)) for row in samples]
        columns = tuple(np.array(rows, dtype=np.float64).T)
    return Estimates(*columns, attempt.estimates.n)


def _counted(attempt: Attempt, excused: Collection[str]) -> npt.NDArray[np.bool_]:
    """Which units count towards the median: all but those on excused nodes."""
    if not excused:
        return np.ones(len(attempt.units), dtype=bool)
    return np.array([unit.node not in excused for unit in attempt.units])


def _peers(medians: Floats, counted: npt.NDArray[np.bool_]) -> Floats:
    """What each unit is held against: the median of the units counted, of two units the other one."""
    if len(medians) == 2:
        return medians[::-1]
    return np.full_like(medians, np.median(medians[counted] if counted.any() else medians))
