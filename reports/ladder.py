"""The ladder: is tonight worse than other nights, is one node worse than its peers. Pure functions on arrays.

Everything works on *goodness*: the logarithm of a value, turned so that more is better. A difference of -0.05 is
then 5 % worse, whatever the metric. The unit of replication is the night (a run) or the unit (a rank, a node),
never the iteration. Rungs 1 and 2 (integrity, hard limits) are the judge's; reading runs is reports/nightly.py's.

Noise between nights has heavy tails: chances come from Student's t with 4 degrees of freedom, scaled by the MAD.

>>> against_history(np.zeros((20, 1)), np.array([-0.05]), floor=0.02).suspect.tolist()
[True]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reports.statistics import discoveries

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

HISTORY = 20  # nights that tonight is held against
LEAST = 8  # with fewer there is no baseline
PEERS = 8  # fewer units have no fleet to be compared with
NIGHT_MADS, FLEET_MADS, DRIFT_SIGMAS = 4.0, 5.0, 3.5
DRIFT_NIGHTS = 7
DRIFT_WINDOW = 10  # nights of which those seven are the last that nothing disturbed as a whole
RERUNS = 2  # occasions on which a suspect must be seen again
RATE = 0.01  # of confirmed alarms, so many may be chance: over 30 quiet nights 0.3 false pages
DRIFT_RATE = 0.05  # of what drifts; the same seven nights are asked anew each night, no re-run confirms them
MAD_OF_T4 = 0.740697  # MAD of Student's t with 4 degrees of freedom and scale 1: its quantile at 3/4
OF_TWO = 1.536  # MAD of the difference of two such values over that of one (numerically)
MAD_TO_SIGMA = 1.4826


class Deviation(NamedTuple):
    """How far each series lies from what it is held against; arrays of one shape."""

    amount: Floats  # difference of goodness: negative is worse
    threshold: Floats  # positive: worse than minus this is suspect
    chance: Floats  # one-sided probability of being so bad by chance
    known: Bools  # False: too little to hold it against (no_baseline)

    @property
    def suspect(self) -> Bools:
        """What is worse than its threshold."""
        suspect: Bools = self.known & (self.amount < -self.threshold)
        return suspect

    @property
    def improved(self) -> Bools:
        """What is better by as much: shown, never an alarm."""
        improved: Bools = self.known & (self.amount > self.threshold)
        return improved


def goodness(values: npt.ArrayLike, better: str) -> Floats:
    """Logarithms of positive values, turned so that more is better."""
    logs = np.log(np.asarray(values, dtype=np.float64))
    return logs if better == "higher" else -logs


def split(nights: Floats) -> tuple[Floats, Floats]:
    """Nights x units x metrics into what all units share (nights x metrics) and what each adds to it.

    A night on which everything is slow shows in the first; one weak unit in the second, free of the first's noise.
    """
    shared = np.nanmedian(nights, axis=-2)
    return shared, nights - shared[..., None, :]


class Usual(NamedTuple):
    """What earlier nights amount to, per series."""

    middle: Floats  # their median
    spread: Floats  # their MAD
    nights: npt.NDArray[np.int64]  # that count


def usual(history: Floats) -> Usual:
    """The last 20 nights of `history`: one row per night, oldest first; nan where that night does not count."""
    recent = history[-HISTORY:]
    return Usual(*_middle_and_mad(recent), np.count_nonzero(np.isfinite(recent), axis=0))


def against_history(history: Floats | Usual, tonight: Floats, *, floor: float | Floats) -> Deviation:
    """Tonight against M - max(4 MAD, floor) of the last 20 comparable nights on which the metric passed.

    `floor` is the smallest difference that matters, whatever the spread.
    """
    middle, spread, nights = history if isinstance(history, Usual) else usual(history)
    known = (nights >= LEAST) & np.isfinite(tonight)
    threshold = np.maximum(NIGHT_MADS * spread, floor)
    amount = np.where(known, tonight - middle, 0.0)
    return Deviation(amount, threshold, _chance(amount, _sound(spread, floor)), known)


def against_peers(units: Floats, *, floor: float) -> Deviation:
    """Each unit (first axis) against M - max(5 MAD, floor) of all units of the same night; at least 8 of them."""
    middle, spread = _middle_and_mad(units)
    count = np.count_nonzero(np.isfinite(units), axis=0)
    known = np.isfinite(units) & (count >= PEERS)
    threshold = np.broadcast_to(np.maximum(FLEET_MADS * spread, floor), units.shape)
    amount = np.where(known, units - middle, 0.0)
    return Deviation(amount, threshold, _chance(amount, np.maximum(spread, floor / FLEET_MADS)), known)


def missing(samples: Floats) -> Floats:
    """What the samples of each unit lack against the typical unit's: units x samples, one metric, in goodness.

    A gray unit is fast most of the time, so its median is fine. What counts is the distance between its sorted
    samples and the typical unit's, on the bad side only (the Wasserstein distance of what is missing), after both
    are aligned at their upper quartile.
    """
    ordered = np.sort(samples, axis=1)
    low, rest = divmod(0.75 * (ordered.shape[1] - 1), 1)
    quartile = ordered[:, int(low)] * (1 - rest) + ordered[:, math.ceil(low + rest)] * rest
    ordered = ordered - quartile[:, None]
    lacking: Floats = np.maximum(np.median(ordered, axis=0) - ordered, 0.0).mean(axis=1)
    return lacking


def gray(samples: Floats, *, floor: float) -> Deviation:
    """Units whose samples lack more than their peers' do, by the rule for peers."""
    return against_peers(-missing(samples), floor=floor)


def against_pinned(recent: Floats, pinned: Floats, *, spread: Floats, floor: float) -> Deviation:
    """The median of the last 7 nights against the median of the pinned nights: creep that no single night shows.

    `spread` is the MAD of one night. The median of 7 has about 1.25 sigma / sqrt(7), and so has the other side. It is
    so low by chance where at least 4 of 7 nights are.
    """
    known = np.count_nonzero(np.isfinite(recent[-DRIFT_NIGHTS:]), axis=0) >= DRIFT_NIGHTS
    known &= np.count_nonzero(np.isfinite(pinned), axis=0) >= 1
    sides = 1 / DRIFT_NIGHTS + 1 / np.maximum(np.count_nonzero(np.isfinite(pinned), axis=0), 1)
    sigma = 1.25 * MAD_TO_SIGMA * spread * np.sqrt(sides)
    amount = np.where(known, median_of(recent[-DRIFT_NIGHTS:]) - median_of(pinned), 0.0)
    threshold = np.maximum(DRIFT_SIGMAS * sigma, floor)
    one = _chance(amount / np.sqrt(DRIFT_NIGHTS * sides), _sound(spread, floor))
    most = range(DRIFT_NIGHTS // 2 + 1, DRIFT_NIGHTS + 1)
    chance = np.sum([math.comb(DRIFT_NIGHTS, k) * one**k * (1 - one) ** (DRIFT_NIGHTS - k) for k in most], axis=0)
    return Deviation(amount, threshold, chance, known)


def confirmed(first: Deviation, again: Sequence[Deviation], *, rate: float = RATE) -> Bools:
    """Which suspects are real: seen on every occasion, and beyond chance among all series of the night.

    `again` holds re-runs of the suspects, each on an occasion of its own or beside a control, as a disturbed night
    disturbs a second try as well. The median of all tries must pass the threshold and every try half of it. Of all
    series of the night, at most `rate` of those believed are chance; the chances of the tries are combined by
    Fisher's method.
    """
    if len(again) < RERUNS:
        return np.zeros_like(first.known)
    tries = np.stack([first.amount, *(d.amount for d in again)])
    beyond = (np.median(tries, axis=0) < -first.threshold) & (tries.max(axis=0) < -first.threshold / 2)
    seen = first.suspect & beyond & np.all([d.known for d in again], axis=0)
    return beyond_chance(seen, _fisher(np.stack([first.chance, *(d.chance for d in again)])), rate=rate)


def beyond_chance(seen: Bools, chance: Floats, *, rate: float) -> Bools:
    """What of the `seen` stands out among all series, so that at most `rate` of what is believed is chance."""
    chances = np.where(seen, chance, 1.0)
    believed: Bools = seen & discoveries(chances.ravel().tolist(), rate=rate).reshape(chances.shape)
    return believed


def sound_occasions(first: Deviation, again: Sequence[Deviation]) -> tuple[Deviation, list[Deviation]]:
    """Tonight and its re-runs without the evidence of occasions that something disturbed as a whole.

    Disturbed is an occasion on which most of many numbers are off at once, where another occasion is not so: such a
    re-run does not count, and such a night proves nothing by itself. Where every occasion is so, the cluster is slow.
    """
    off = [_off(d) for d in (first, *again)]
    if all(off):
        return first, list(again)
    kept = first._replace(chance=np.ones_like(first.chance)) if off[0] else first
    return kept, [d for d, bad in zip(again, off[1:], strict=True) if not bad]


def _off(d: Deviation) -> bool:
    """Whether most of many numbers are beyond half their threshold."""
    known = d.known & (d.threshold > 0)
    many = int(np.count_nonzero(known)) >= PEERS
    return many and float(np.median(d.amount[known] / d.threshold[known])) < -0.5


def refuted(first: Deviation, again: Sequence[Deviation], real: Bools) -> Bools:
    """Which suspects are settled as chance: a re-run contradicts them, or RERUNS saw them and they are not `real`.

    What no re-run measured is neither confirmed nor refuted.
    """
    if not again:
        return np.zeros_like(first.known)
    known = np.stack([np.broadcast_to(d.known, first.known.shape) for d in again])
    against = known & (np.stack([d.amount for d in again]) >= -first.threshold / 2)
    settled: Bools = first.suspect & ~real & (against.any(axis=0) | (known.sum(axis=0) >= RERUNS))
    return settled


def steady_spread(pinned: Floats, recent: Floats) -> Floats:
    """The MAD of one night, of each series (nights are the first axis): the larger of two estimates.

    One is the MAD of the pinned nights, the other comes from the differences of neighbouring nights, which neither a
    step nor a creep among them widens. From 20 nights either alone is often too small by a third, and then chance
    looks like drift.
    """
    between = median_of(np.abs(np.diff(np.concatenate([pinned, recent]), axis=0))) / OF_TWO
    return np.maximum(_middle_and_mad(pinned)[1], np.nan_to_num(between))


def disturbed(nights: Floats, pinned: Usual, *, floor: Floats) -> Bools:
    """Nights (first axis) on which most numbers (second) lie far below their pinned median: the night rung's business.

    Seven nights with two such among them would make every number drift at once.
    """
    below = (nights - pinned.middle) / _sound(pinned.spread, floor)
    return np.nan_to_num(median_of(below.T)) < -NIGHT_MADS


def median_of(rows: Floats) -> Floats:
    """Median down the first axis without its nans; nan where there is nothing."""
    if not len(rows):
        return np.full(rows.shape[1:], np.nan)
    finite = np.isfinite(rows)
    if finite.all():
        return np.asarray(np.median(rows, axis=0), dtype=np.float64)
    empty = ~finite.any(axis=0)
    found = np.asarray(np.nanmedian(np.where(empty, 0.0, rows), axis=0), dtype=np.float64).reshape(empty.shape)
    found[empty] = np.nan
    return found


def _middle_and_mad(rows: Floats) -> tuple[Floats, Floats]:
    middle = median_of(rows)
    return middle, np.nan_to_num(median_of(np.abs(rows - middle)))


def _sound(spread: Floats, floor: float | Floats) -> Floats:
    """A spread that few nights alike by chance do not make too small."""
    return np.maximum(spread, np.asarray(floor) / NIGHT_MADS / 2)


def _chance(amount: Floats, spread: Floats) -> Floats:
    """One-sided tail of Student's t with 4 degrees of freedom whose MAD is `spread`; closed form."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(amount == 0, 0.0, -amount / (spread / MAD_OF_T4))
        root = 1 + t**2 / 4
        below = 0.5 + 3 / 8 * t / np.sqrt(root) * (1 - t**2 / (12 * root))
    return np.clip(np.where(np.isfinite(t), 1 - below, np.where(t > 0, 0.0, 1.0)), 1e-15, 1.0)


def _fisher(chances: Floats) -> Floats:
    """Independent chances (first axis) as one: the chi-squared tail of -2 sum(ln p), closed for an even number."""
    product = np.prod(chances, axis=0)
    minus_log = -np.log(product)
    terms = [minus_log**i / math.factorial(i) for i in range(len(chances))]
    combined: Floats = np.minimum(product * np.sum(terms, axis=0), 1.0)
    return combined
