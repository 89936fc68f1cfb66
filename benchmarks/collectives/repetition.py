"""When to stop repeating: the median is known well enough, or the time is spent.

The interval of the median is the distribution-free one from order statistics (David and Nagaraja, Order
Statistics, 3rd ed., 7.1): with n sorted samples the true median lies between the samples of rank
(n - z sqrt(n)) / 2 and (n + z sqrt(n)) / 2 + 1. No shape of the noise is assumed.

>>> median_interval([1.0, 1.0, 1.1, 1.0, 1.2, 1.0, 1.0, 1.1, 1.0])
(1.0, 1.2)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z95 = 1.96  # two-sided 95 %
FEWEST = 6  # fewer samples have no 95 % interval: 1 - 2 / 2**n first exceeds 0.95 at 6


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median; (-inf, inf) with fewer than 6 samples."""
    n = len(samples)
    if n < FEWEST:
        return -math.inf, math.inf
    ordered = sorted(samples)
    low = max(0, math.floor((n - Z95 * math.sqrt(n)) / 2) - 1)
    high = min(n - 1, math.ceil((n + Z95 * math.sqrt(n)) / 2))
    return ordered[low], ordered[high]


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """The rule: at least `fewest`, at most `most`, until the median is within `precision` or `budget_s` is spent."""

    fewest: int
    most: int
    budget_s: float
    precision: float = 0.02  # half width of the median's interval as a share of the median

    def stopped(self, samples: Sequence[float], elapsed_s: float) -> str:
        """Why to stop now: "precise", "budget" or "most"; empty: go on."""
        n = len(samples)
        if n < self.fewest:
            return ""
        if n >= self.most:
            return "most"
        low, high = median_interval(samples)
        if high - low <= 2 * self.precision * sorted(samples)[n // 2]:
            return "precise"
        return "budget" if elapsed_s >= self.budget_s else ""
