"""Statistics of a handful of samples: median, its interval, spread, robust distance.

Benchmark samples are few, skewed and without a known distribution. So everything here rests on order
statistics: nothing assumes a normal distribution, and nothing pools what was not repeated alike.
Verdicts are not given here (see reports/judge.py).

>>> estimate([3.0, 1.0, 2.0])
Estimate(median=2.0, low=1.0, high=3.0, n=3)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
MAD_TO_SIGMA = 1.4826  # 1 / (quantile of the normal distribution at 3/4): MAD of a normal sample -> its sigma


class Estimate(NamedTuple):
    """A median with its interval, in the unit of the samples."""

    median: float
    low: float
    high: float
    n: int

    @property
    def noise(self) -> float:
        """Half width of the interval as a share of the median (infinite around zero)."""
        half = (self.high - self.low) / 2
        if half == 0:
            return 0.0
        return half / abs(self.median) if self.median else math.inf

    def over(self, other: Estimate) -> Estimate:
        """The ratio to another estimate, both positive. Its interval takes both ends at their worst."""
        return Estimate(self.median / other.median, self.low / other.high, self.high / other.low, self.n)


class Estimates(NamedTuple):
    """The estimates of many units as columns, one entry per unit."""

    median: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    n: npt.NDArray[np.int64]

    def at(self, index: int) -> Estimate:
        """One unit's estimate."""
        return Estimate(float(self.median[index]), float(self.low[index]), float(self.high[index]), int(self.n[index]))

    def over(self, median: Any, low: Any, high: Any) -> Estimates:
        """Ratios to one estimate, or to one per unit, all positive; the interval takes both ends at their worst."""
        return Estimates(self.median / median, self.low / high, self.high / low, self.n)


@functools.cache
def interval_rank(n: int, confidence: float = CONFIDENCE) -> int:
    """The k for which [k-th smallest, k-th largest] of n samples holds the median with `confidence`.

    The number of samples below the median is Binomial(n, 1/2), whatever their distribution; k is the
    largest with P(Binomial <= k - 1) <= (1 - confidence) / 2 (David and Nagaraja, Order Statistics, 7.1).
    Below 6 samples no k reaches 95 %: then it is 1, the whole range.

    >>> interval_rank(6), interval_rank(20)
    (1, 6)
    """
    tail = (1 - confidence) / 2
    log_half = -n * math.log(2)
    below, k = 0.0, 0
    for i in range(n // 2 + 1):
        below += math.exp(math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + log_half)
        if below > tail:
            break
        k = i + 1
    return max(k, 1)


def estimate(samples: Sequence[float]) -> Estimate:
    """Median and its distribution-free 95 % interval (fewer than 6 samples: their range).

    Raises ValueError for no samples.
    """
    ordered = sorted(samples)
    n = len(ordered)
    if n == 0:
        raise ValueError("no samples: there is no median")
    k = interval_rank(n)
    return Estimate(_middle(ordered), ordered[k - 1], ordered[n - k], n)


def estimates(rows: Sequence[Sequence[float]] | npt.NDArray[np.float64]) -> Estimates:
    """The estimate of every row of samples; the rows may differ in length. ValueError for an empty row.

    >>> estimates([[1.0, 2.0, 3.0], [5.0]]).at(1)
    Estimate(median=5.0, low=5.0, high=5.0, n=1)
    """
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    if not lengths.all():
        raise ValueError("no samples: there is no median")
    columns = np.empty((3, len(rows)))
    for n in np.unique(lengths):
        at = np.flatnonzero(lengths == n)
        chosen = rows if len(at) == len(rows) else [rows[int(i)] for i in at]
        ordered = np.sort(np.array(chosen, dtype=np.float64), axis=1)
        k = interval_rank(int(n))
        middle = ordered[:, n // 2] if n % 2 else ordered[:, n // 2 - 1] / 2 + ordered[:, n // 2] / 2
        columns[:, at] = middle, ordered[:, k - 1], ordered[:, n - k]
    return Estimates(columns[0], columns[1], columns[2], lengths)


def median(values: Sequence[float]) -> float:
    """The median. Raises ValueError for no values."""
    if len(values) == 0:
        raise ValueError("no values: there is no median")
    return _middle(sorted(values))


def mad(values: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """Median absolute deviation from the median, unscaled.

    >>> mad([1.0, 2.0, 3.0, 4.0, 100.0])
    1.0
    """
    data = np.asarray(values, dtype=np.float64)
    return float(np.median(np.abs(data - np.median(data))))


def robust_z(values: Sequence[float] | npt.NDArray[np.float64], *, floor: float = 0.0) -> npt.NDArray[np.float64]:
    """Distance of each value from the median, in robust sigmas.

    The scale is 1.4826 MAD, at least `floor` (same unit as the values): identical peers have no spread,
    and without a floor the smallest difference among them would be infinitely far. With a scale of zero,
    equal values are at 0 and others at plus or minus infinity.
    """
    data = np.asarray(values, dtype=np.float64)
    distance = data - np.median(data)
    scale = max(MAD_TO_SIGMA * mad(data), floor)
    if scale > 0:
        return distance / scale
    return np.where(distance == 0, 0.0, np.copysign(np.inf, distance))


def discoveries(p_values: Sequence[float], *, rate: float = 0.05) -> npt.NDArray[np.bool_]:
    """Which of many tests to believe, so that at most `rate` of those believed are chance (Benjamini-Hochberg).

    >>> discoveries([0.001, 0.5, 0.03]).tolist()
    [True, False, True]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    below = np.flatnonzero(p[order] <= rate * np.arange(1, len(p) + 1) / max(len(p), 1))
    believed = np.zeros(len(p), dtype=bool)
    if len(below):
        believed[order[: below[-1] + 1]] = True
    return believed


def chance(ratio: Estimate) -> float:
    """Two-sided probability of a ratio so far from 1 by chance: its logarithm as a normal, as wide as its interval."""
    width = math.log(ratio.high / ratio.low) / (2 * 1.96)
    distance = abs(math.log(ratio.median))
    if width == 0:
        return 0.0 if distance else 1.0
    return math.erfc(distance / width / math.sqrt(2))


def _middle(ordered: Sequence[float]) -> float:
    n = len(ordered)
    return float(ordered[n // 2] if n % 2 else ordered[n // 2 - 1] / 2 + ordered[n // 2] / 2)
