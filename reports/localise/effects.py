"""Who is slow: a two-way fit in logs, robust at every step, and how sure one can be of each effect.

`y = level + row + column + rest`, where a row is whoever sends (a NIC, a leaf, an uplink) and a column
whoever receives. Median polish finds the effects in spite of outliers; two rounds of Tukey's biweight then
use the data well (about 95 % efficient for normal noise, 64 % for medians). Noise is never assumed normal:
certainty comes from the fleet's own distribution of residuals. Sources: Tukey, Exploratory Data Analysis
(1977) for polish and biweight; Huber, Robust Statistics (1981) for the scale.

>>> upper_median(np.array([1.0, 2.0, 9.0, 5.0]), np.array([0, 0, 0, 2]), 3)
array([ 2., nan,  5.])
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reports.localise.pairs import Bools, Floats, Ints

NORMAL_MAD = 1.4826  # median absolute deviation -> standard deviation of a normal
BIWEIGHT = 4.685  # tuning constant, in standard deviations: 95 % efficiency
SMALLEST_NOISE = 1e-3  # 0.1 %: two exact numbers are not infinitely sure
MIN_CELLS = 2  # an effect seen once cannot be told from its cell
ENOUGH = 50  # elements that tell how much healthy ones really differ
UNSURE = -2.0  # among fifty elements one healthy one is this slow
SPARSE = 64  # a table is sparse with more possible pairs than this per cell
PRIOR_CELLS = 8  # the fleet's noise counts as this many cells beside a row's own
BIWEIGHT_VARIANCE = 1.1  # variance of a biweight centre of n cells, times n / noise²
PRIOR_BAD = 0.005  # share of hosts that are bad before anything was measured
EFFECT_RANGE = 0.7  # a fault may lie anywhere down to half speed (in logs): the price of a fitted effect


@dataclass(frozen=True, kw_only=True)
class Effects:
    """One effect per element, in logs (negative is slow); NaN where it cannot be judged."""

    effect: Floats
    num_cells: Ints
    z: Floats  # in standard deviations of the fleet of such effects
    spread: float  # by how much healthy elements really differ, beyond sampling; 0 where too few can tell

    @property
    def judged(self) -> Bools:
        """Which elements have enough cells."""
        return np.isfinite(self.effect)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Row and column effects, what they leave, and the noise of one cell."""

    row: Effects
    col: Effects
    rest: Floats
    level: float  # y of a cell between a typical row and a typical column
    noise: float


def upper_median(values: Floats, group: Ints, num_groups: int) -> Floats:
    """Median per group, shape (num_groups,); NaN for an empty group.

    Of an even number of values it takes the upper middle one: a fault needs a majority, or with two cells
    both. One sort of `group + fraction` does all groups at once (error about 1e-10 of the values' range).
    """
    out = np.full(num_groups, np.nan)
    if not len(values):
        return out
    low, width = float(values.min()), float(np.ptp(values)) or 1.0
    keys = group + (values - low) / (2 * width)
    keys.sort()
    count = np.bincount(group, minlength=num_groups)
    some = np.flatnonzero(count)
    at = (np.cumsum(count) - count)[some] + count[some] // 2
    out[some] = (keys[at] - some) * (2 * width) + low
    return out


def sums(values: Floats, group: Ints, num_groups: int) -> Floats:
    """Sum per group, shape (num_groups,)."""
    return np.bincount(group, weights=values, minlength=num_groups).astype(np.float64)


def middle(values: Floats) -> float:
    """Upper median of all finite values; 0 where there are none."""
    finite = np.sort(values[np.isfinite(values)])
    return float(finite[len(finite) // 2]) if len(finite) else 0.0


def spread(values: Floats, centre: float | None = None) -> float:
    """Robust standard deviation about `centre` (default: the middle), at most 3 x that of the fast half.

    The cap keeps a fleet in which nearly half is slow from calling that slowness its own spread; the lower
    half counts up to it because real bandwidths have a hard ceiling and a tail below.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0
    off = finite - (middle(finite) if centre is None else centre)
    both = NORMAL_MAD * float(np.median(np.abs(off)))
    above = off[off >= 0]
    fast = NORMAL_MAD * float(np.median(above)) if len(above) else both
    return min(both, 3 * fast) if fast > 0 else both


def few(num: int) -> float:
    """By how much to widen a spread estimated from `num` values: of few it is often too small by chance."""
    return 1 + 5 / max(num, 1)


def two_way(y: Floats, row: Ints, col: Ints, num_rows: int, num_cols: int, *, weight: float = 1.0) -> Fit:
    """Fit rows and columns to `y`, all shape (cells,).

    `weight` is the number of independent measurements a cell stands for (0.5 in a mirrored table).
    """
    noise = max(spread(y), SMALLEST_NOISE)
    rest = y - middle(y)
    sides = (_Side(row, num_rows), _Side(col, num_cols))
    pair = _repeated(row, col, num_rows, num_cols)
    for _ in range(2):
        for side in sides:
            if pair is None:
                step = upper_median(rest, side.of, side.size)
            else:
                own = upper_median(rest, pair.of_cell, len(pair.cell))
                step = upper_median(own, side.of[pair.cell], side.size)
            rest = side.moved(rest, step)
    for _ in range(2):
        for side in sides:
            rest = side.moved(rest, _biweight_means(rest, side.of, side.size, noise))
    first, second = (_judged(side, rest, noise, weight) for side in sides)
    level = middle(y) + sum(middle(side.effect[side.count >= MIN_CELLS]) for side in sides)
    return Fit(row=first, col=second, rest=rest, level=level, noise=noise)


@dataclass(frozen=True, kw_only=True)
class _Pairs:
    """Which cells measure the same pair again."""

    of_cell: Ints  # (cells,): the pair of each
    cell: Ints  # (pairs,): one cell of each


def _repeated(row: Ints, col: Ints, num_rows: int, num_cols: int) -> _Pairs | None:
    """The distinct pairs, or None where repeats cannot matter.

    A pair must count once in the medians: in a re-test of one of three nodes, its partners meet nobody else,
    and would seem as slow as it is. In a sparse table repeats are too rare to matter.
    """
    if num_rows * num_cols > SPARSE * len(row):
        return None
    _, cell, of_cell = np.unique(row * num_cols + col, return_index=True, return_inverse=True)
    return _Pairs(of_cell=of_cell.astype(np.int64), cell=cell.astype(np.int64))


class _Side:
    """Rows or columns while they are being fitted."""

    def __init__(self, of: Ints, size: int) -> None:
        self.of, self.size = of, size
        self.count = np.bincount(of, minlength=size)
        self.effect = np.zeros(size)

    def moved(self, rest: Floats, step: Floats) -> Floats:
        """Take `step` into the effects (of those with enough cells); returns what is left."""
        step = np.where(self.count >= MIN_CELLS, step, 0.0)
        self.effect += step
        left: Floats = rest - step[self.of]
        return left


def _biweight_means(rest: Floats, group: Ints, size: int, noise: float) -> Floats:
    near = np.clip(1 - (rest / (BIWEIGHT * noise)) ** 2, 0, None) ** 2
    total = np.bincount(group, weights=near, minlength=size)
    summed = np.bincount(group, weights=near * rest, minlength=size)
    return np.divide(summed, total, out=np.zeros(size), where=total > 0.1)


def _judged(side: _Side, rest: Floats, noise: float, weight: float) -> Effects:
    """Effects about their own middle; z by the cells' noise and by how much healthy elements differ anyway."""
    effect = np.where(side.count >= MIN_CELLS, side.effect, np.nan)
    effect = effect - middle(effect)
    near = np.minimum(np.abs(rest), 3 * noise) ** 2  # an outlier must not hide the row it sits in
    own = np.bincount(side.of, weights=near, minlength=side.size)
    variance = (PRIOR_CELLS * noise**2 + own) / (PRIOR_CELLS + side.count)
    sampling = BIWEIGHT_VARIANCE * variance / (weight * np.maximum(side.count, 1))
    healthy = math.sqrt(max(0.0, spread(effect) ** 2 - middle(sampling[side.count >= MIN_CELLS])))
    z = effect / np.sqrt(sampling + healthy**2)
    known = healthy if np.isfinite(effect).sum() >= ENOUGH else 0.0
    return Effects(effect=effect, num_cells=side.count, z=z / max(1.0, spread(z)), spread=known)


def share_below(z: Floats) -> Floats:
    """Normal probability of a value as low as z."""
    return np.array([0.5 * math.erfc(-float(v) / math.sqrt(2)) for v in np.ravel(z)]).reshape(np.shape(z))


def certainty(z: Floats, num_elements: int) -> Floats:
    """1 - the number of healthy elements expected to look this slow (Bonferroni), at least 0."""
    z = np.nan_to_num(z)
    low = (z < UNSURE) | (num_elements * float(share_below(np.array(UNSURE))) < 1)  # the others are 0 for certain
    sure = np.zeros(np.shape(z))
    sure[low] = np.maximum(0.0, 1 - num_elements * share_below(z[low]))
    return sure


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The fleet's own distribution of one cell, as a density on a grid: heavy tails and outliers included."""

    grid: Floats
    log_density: Floats
    scale: float

    @classmethod
    def of(cls, cells: Floats, scale: float) -> Noise:
        """From healthy cells about 0. A smoothed histogram, mixed with 1 % of anything between e^-4 and e^4.

        The bandwidth is Silverman's rule for a normal core, 0.9 x scale x n^(-1/5).
        """
        step = scale / 8
        edge = 60 * scale
        edges = np.arange(-edge, edge + step, step)
        count, _ = np.histogram(cells, edges)
        width = max(0.9 * scale * max(len(cells), 1) ** -0.2, step) / step
        reach = int(4 * width) + 1
        bell = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
        smooth = np.convolve(count, bell / bell.sum(), mode="same") / (max(len(cells), 1) * step)
        broad = 0.01 + 1.0 / (len(cells) + 1)
        density = (1 - min(broad, 0.5)) * smooth + min(broad, 0.5) / 8
        return cls(grid=(edges[:-1] + edges[1:]) / 2, log_density=np.log(density), scale=scale)

    def log_odds(self, cells: Floats, effect: Floats) -> Floats:
        """Per cell: how much better it fits an element that is slower by `effect` than a healthy one, in logs."""
        odds: Floats = self._log(cells - effect) - self._log(cells)
        return odds

    def _log(self, cells: Floats) -> Floats:
        beyond = float(self.log_density.min())
        return np.interp(cells, self.grid, self.log_density, left=beyond, right=beyond)


def shared_weight(num_cells: Ints, spread: float, scale: float) -> Floats:
    """By how much to divide the log odds of cells of one element that share its healthy deviation, `spread`.

    n cells with independent noise `scale` then speak for n / (1 + n spread²/scale²): the design effect of a cluster
    sample (Kish, 1965).
    """
    return (1 + num_cells * (spread / scale) ** 2).astype(np.float64)


def probability_bad(log_odds: Floats, num_cells: Ints, scale: float, *, prior: float = PRIOR_BAD) -> Floats:
    """Posterior probability per element from its cells' summed log odds.

    `prior` is the share of such elements that are bad. The effect was fitted, so its likelihood is divided by how
    many distinguishable effects there were to choose from (EFFECT_RANGE over its standard error).
    """
    error = scale / np.sqrt(np.maximum(num_cells, 1))
    price = np.minimum(np.log(math.sqrt(2 * math.pi) * error / EFFECT_RANGE), 0)
    logit = log_odds + price + math.log(prior / (1 - prior))
    return 1 / (1 + np.exp(-np.clip(logit, -500, 500)))
