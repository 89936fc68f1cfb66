"""Where a series of nights changed its level: the best division into stretches, found exactly.

Each stretch costs the squared deviations from its mean, each change a penalty of PENALTY sigma^2 ln(n); sigma comes
from the differences of neighbours, so that the changes themselves do not widen it. Single wild nights are drawn in
to 4 sigma first: an outlier is no change. Search with pruning (Killick, Fearnhead, Eckley 2012). Changes are shown;
no verdict rests on them.

>>> change_points([1.0] * 10 + [2.0] * 10)
[10]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reports.statistics import MAD_TO_SIGMA, mad

Floats = npt.NDArray[np.float64]

PENALTY = 3.0
SHORTEST = 3  # nights of a stretch


def change_points(values: Sequence[float]) -> list[int]:
    """Indices at which a new stretch begins; none for fewer than two stretches' worth of nights."""
    data = np.asarray(values, dtype=np.float64)
    n = len(data)
    if n < 2 * SHORTEST:
        return []
    sigma = MAD_TO_SIGMA * mad(np.diff(data)) / math.sqrt(2)
    if sigma == 0:
        sigma = float(np.std(data)) * 1e-3 or 1.0
    data = _drawn_in(data, sigma)
    sums, squares = np.concatenate([[0.0], np.cumsum(data)]), np.concatenate([[0.0], np.cumsum(data**2)])
    penalty = PENALTY * sigma**2 * math.log(n)
    best, previous = np.full(n + 1, np.inf), np.zeros(n + 1, dtype=int)
    best[0] = -penalty
    candidates = np.array([0])
    for end in range(SHORTEST, n + 1):
        usable = candidates[candidates <= end - SHORTEST]
        total, length = sums[end] - sums[usable], end - usable
        cost = best[usable] + squares[end] - squares[usable] - total**2 / length
        i = int(cost.argmin())
        best[end], previous[end] = cost[i] + penalty, usable[i]
        kept = usable[cost <= best[end]]
        candidates = np.concatenate([kept, candidates[candidates > end - SHORTEST], [end]])
    changes, at = [], n
    while previous[at] > 0:
        at = int(previous[at])
        changes.append(at)
    return changes[::-1]


def _drawn_in(data: Floats, sigma: float) -> Floats:
    """Wild nights moved to 4 sigma from the median of their neighbourhood of 7 nights."""
    padded = np.pad(data, 3, mode="edge")
    local = np.median(np.lib.stride_tricks.sliding_window_view(padded, 7), axis=1)
    drawn: Floats = np.clip(data, local - 4 * sigma, local + 4 * sigma)
    return drawn
