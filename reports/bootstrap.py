"""The ratio of two medians with an interval that respects what was repeated: runs, units in runs, samples in units.

Iterations of one run are not independent repetitions of an experiment, so they are never pooled: each level is
drawn again from the level above it. With more than MANY units a level is not drawn but taken from order statistics,
which is the same to the eye and much faster.

>>> ratio_of_medians([[[2.0, 2.0]]], [[[4.0, 4.0]]])
Estimate(median=2.0, low=2.0, high=2.0, n=2)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reports.statistics import Estimate, estimates

Floats = npt.NDArray[np.float64]
Units = Sequence[Sequence[float]] | Floats  # samples of each unit, or the median of each of more than FEW units
Runs = Sequence[Units]

DRAWS = 1000
FEW = 30  # with more units than this, their own noise is already in how they differ
MANY = 200


def ratio_of_medians(before: Runs, after: Runs, *, seed: int = 0) -> Estimate:
    """The median of `after` over that of `before`, with a 95 % interval. All samples must be positive.

    The median of a side is the median over its units' medians, over its runs. `n` is the number of samples (or of
    medians) of the smaller side. With one run a side, the interval knows nothing of how runs differ.
    """
    random = np.random.default_rng(seed)
    sides = [_draws(side, random) for side in (before, after)]
    ratios = sides[1][0] / sides[0][0]
    low, high = np.quantile(ratios, (0.025, 0.975))
    middle = sides[1][1] / sides[0][1]
    count = min(sum(_size(units) for units in side) for side in (before, after))
    return Estimate(middle, min(float(low), middle), max(float(high), middle), count)


def _draws(runs: Runs, random: np.random.Generator) -> tuple[Floats, float]:
    """Redrawn medians of one side, and its median as measured."""
    drawn = np.stack([_of_run(units, random) for units in runs])
    measured = float(np.median([np.median(_medians(units)) for units in runs]))
    if len(runs) == 1:
        return drawn[0], measured
    chosen = random.integers(len(runs), size=(DRAWS, len(runs)))
    redrawn: Floats = np.median(drawn[chosen, np.arange(DRAWS)[:, None]], axis=1)
    return redrawn, measured


def _of_run(units: Units, random: np.random.Generator) -> Floats:
    """Redrawn medians over the units of one run."""
    medians = _medians(units)
    if len(units) > MANY:
        return _from_order(medians, random)
    which = random.integers(len(units), size=(DRAWS, len(units)))
    if len(units) > FEW:
        drawn = medians[which]
    else:
        inner = np.stack([_of_unit(np.asarray(samples, dtype=np.float64), random) for samples in units])
        drawn = inner[which, random.integers(DRAWS, size=which.shape)]
    redrawn: Floats = np.median(drawn, axis=1)
    return redrawn


def _medians(units: Units) -> Floats:
    return units if isinstance(units, np.ndarray) else estimates(units).median


def _size(units: Units) -> int:
    return len(units) if isinstance(units, np.ndarray) else sum(map(len, units))


def _of_unit(samples: Floats, random: np.random.Generator) -> Floats:
    """Redrawn medians of one unit's samples."""
    redrawn: Floats = np.median(samples[random.integers(len(samples), size=(DRAWS, len(samples)))], axis=1)
    return redrawn


def _from_order(medians: Floats, random: np.random.Generator) -> Floats:
    """Redrawn medians of many units: the order statistic whose rank is Binomial(n, 1/2)."""
    ordered = np.sort(medians)
    rank = random.binomial(len(ordered), 0.5, size=DRAWS)
    redrawn: Floats = ordered[np.minimum(rank, len(ordered) - 1)]
    return redrawn
