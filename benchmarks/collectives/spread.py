"""How a handful of times is spread: the middle, the tails where there are enough samples, the scatter.

>>> spread([1.0, 2.0, 3.0, 4.0, 100.0])
{'min': 1.0, 'p50': 3.0, 'mad': 1.0, 'cv': 1.773}
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

BEYOND = 5  # a percentile is named once so many samples lie beyond it: p95 from 100 samples on, p99 from 500


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` of the ascending samples do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(samples: Sequence[float]) -> dict[str, float]:
    """min, p50, p95 and p99 (if there are samples enough), MAD, and the coefficient of variation.

    MAD is the median distance from the median, in the samples' unit and unscaled; cv is the standard deviation
    over the mean.
    """
    ordered = sorted(samples)
    middle = statistics.median(ordered)
    found = {"min": ordered[0], "p50": middle}
    for name, share in (("p95", 0.95), ("p99", 0.99)):
        if len(ordered) * (1 - share) >= BEYOND - 1e-9:
            found[name] = percentile(ordered, share)
    found["mad"] = statistics.median(abs(s - middle) for s in ordered)
    found["cv"] = round(statistics.pstdev(ordered) / statistics.fmean(ordered), 3)
    return found
