"""Simulated nights of a cluster: what the ladder is measured on. Every value is a logarithm, more is better.

The model, per night, unit (GPU) and metric:

    value = shared(night, metric)      sd 1 %, Student t with 4 degrees of freedom
          + leaf(night, leaf, metric)  sd 0.3 %: 64 GPUs behind one switch have it in common
          + own(night, unit, metric)   sd 0.5 %, Student t with 4 degrees of freedom
          + offset(unit, metric)       sd 1.5 %, the same every night: healthy GPUs differ

On 3 % of the nights something disturbs the whole cluster: 3 to 10 % off every metric.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from reports import ladder

GPUS, METRICS, LEAF = 512, 50, 64


@dataclass
class Nights:
    """One simulated cluster. `fault(night)` is added to every value, shaped units x metrics."""

    seed: int
    gpus: int = GPUS
    metrics: int = METRICS
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.offset = self.random.normal(0, 0.015, (self.gpus, self.metrics))

    def heavy(self, sd: float, shape: tuple[int, ...]) -> np.ndarray:
        """Student t with 4 degrees of freedom, scaled to a standard deviation."""
        return self.random.standard_t(4, shape) * sd / np.sqrt(2)

    def night(self) -> np.ndarray:
        """One night, units x metrics."""
        shared = self.heavy(0.01, (1, self.metrics))
        leaf = np.repeat(self.random.normal(0, 0.003, (-(-self.gpus // LEAF), self.metrics)), LEAF, axis=0)[: self.gpus]
        own = self.heavy(0.005, (self.gpus, self.metrics))
        disturbed = -self.random.uniform(0.03, 0.10) if self.random.random() < 0.03 else 0.0
        return self.offset + shared + leaf + own + disturbed

    def many(self, count: int) -> np.ndarray:
        """So many nights."""
        return np.stack([self.night() for _ in range(count)])


FLOOR, DRIFT_FLOOR = 0.025, 0.02
RERUNS = 2


def alarms(
    cluster: Nights, history: np.ndarray, fault: np.ndarray | float, *, rates: tuple[float, float] = (ladder.RATE,) * 2
) -> tuple:
    """One night up the ladder, two confirming re-runs included: alarms on (metrics) and on (units, metrics).

    `rates` of false discoveries, of what is shared and of what is each unit's own.
    """
    shared, own = ladder.split(history)

    def once() -> tuple[ladder.Deviation, ladder.Deviation]:
        s, o = ladder.split(cluster.night() + fault)
        return ladder.against_history(shared, s, floor=FLOOR), ladder.against_history(own, o, floor=FLOOR)

    first, again = once(), [once() for _ in range(RERUNS)]
    return tuple(ladder.confirmed(first[i], [each[i] for each in again], rate=rates[i]) for i in range(2))


def creeping(history: np.ndarray, pinned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The drift rung: what of (metrics) and of (units, metrics) has crept away from the pinned nights."""
    found = []
    for recent, before in zip(ladder.split(history[-ladder.HISTORY :]), ladder.split(pinned), strict=True):
        found.append(ladder.against_pinned(recent, before, spread=ladder.spread_of(before), floor=DRIFT_FLOOR).suspect)
    return found[0], found[1]


def nights_until_found(seed: int, *, size: float, whole: bool, nights: int, per_night: float = 0.0) -> int | None:
    """On which night (0 is the first) a fault of one metric is found, on the whole cluster or on one GPU.

    A cluster of 64 GPUs and 10 metrics, with the rates of false discoveries scaled as if it were 512 x 50.
    """
    cluster = Nights(seed, gpus=64, metrics=10)
    history = pinned = cluster.many(ladder.HISTORY)
    where = (slice(None) if whole else 5, 3)
    for night in range(nights):
        fault = np.zeros((64, 10))
        fault[where] = -size - per_night * (night + 1)
        rates = ladder.RATE * 10 / METRICS, ladder.RATE * 640 / (GPUS * METRICS)
        found = alarms(cluster, history, fault, rates=rates)
        history = np.concatenate([history, (cluster.night() + fault)[None]])[-40:]
        crept = creeping(history, pinned)
        if any(each[0][3] if whole else each[1][5, 3] for each in (found, crept)):
            return night
    return None
